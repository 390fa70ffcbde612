"""Training from the command line: from labelled pages to a model, in one process but for Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import hsa_geo
from hsa_geo.cli import run
from hsa_geo.pages import PageClassifier, PageReader, TrainingPages, sources

SMALL = ["--channels", "8", "--heads", "2"]
TEXTS = {
    "shop": "<title>Shop {0}</title><p>Buy our {0} shoes now. Only today!</p>",
    "news": "<title>Paper {0}</title><p>Elections on day {0}. The parliament votes.</p>",
}


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A folder with a folder for each label; it is the working folder's neighbour."""
    monkeypatch.chdir(tmp_path)
    for label, text in TEXTS.items():
        folder = tmp_path / "web" / label / "deeper"
        folder.mkdir(parents=True)
        for number in range(12):
            (folder / f"{number}.html").write_text(text.format(number))
    return tmp_path / "web"


def test_a_folder_of_labels_and_a_page_of_ones_own(web, capsys):
    assert run(["train", str(web), *SMALL, "--epochs", "8"]) == 0
    told = capsys.readouterr()
    assert "best epoch" in told.out
    assert told.out.endswith("hsa-geo predict PAGE.html\n")
    assert "2 labels, 20 pages to train on, 4 to validate on" in told.err
    assert sorted(path.name for path in Path("page-model").iterdir()) == [
        *("config.json", "metrics.csv", "model.safetensors"),
    ]
    Path("mine.html").write_text("<p>New shoes to buy, only today!")
    assert run(["predict", "mine.html"]) == 0
    assert capsys.readouterr().out.startswith("mine.html: shop\n")


def test_a_table_with_pages_that_cannot_be_read(web, capsys):
    rows = [f"{path.relative_to(web)},{path.parts[-3]}" for path in web.rglob("*.html")]
    (web / "empty.html").touch()
    rows += ["empty.html,shop", "missing.html,news"]
    (web / "pages.csv").write_text("\n".join(["path,label", *rows]))
    assert run(["train", str(web / "pages.csv"), *SMALL, "--epochs", "2", "--json"]) == 1
    told = capsys.readouterr()
    content = json.loads(told.out)
    assert content["labels"] == ["news", "shop"]
    assert (content["pages"], content["validation_pages"]) == (20, 4)
    assert [entry["error"] for entry in content["failed"]] == ["BuilderError", "FileNotFoundError"]
    assert told.err.count("error: ") == 2
    assert PageClassifier.load("page-model").labels == ["news", "shop"]


def test_what_is_lost_in_reading_is_said_once(web, capsys):
    for number in range(3):
        (web / "shop" / f"deep{number}.html").write_text("<div>shoes " * 1100)
    assert run(["train", str(web), *SMALL, "--epochs", "1"]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warned) == 1
    assert warned[0].startswith("warning: 3 times something was lost in reading, first: ")


def test_the_same_seed_gives_the_same_model(web, capsys):
    for out in ("one", "two"):
        arguments = ["train", str(web), *SMALL, "--epochs", "2", "--out", out, "--seed", "3"]
        assert run(arguments) == 0
    one, two = (Path(out, "model.safetensors").read_bytes() for out in ("one", "two"))
    assert one == two


def test_too_few_pages_to_validate_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for label, text in TEXTS.items():
        Path("web", label).mkdir(parents=True)
        Path("web", label, "1.html").write_text(text.format(1))
    assert run(["train", "web", *SMALL, "--epochs", "3"]) == 0
    assert "too few pages to validate on" in capsys.readouterr().out


def test_real_forms_by_name(tmp_path, monkeypatch, capsys):
    """The real pages stand aside: three of them, hand-written, show that the way is there."""
    reader = PageReader("form")
    form = "<form>{} <input name=q></form>"
    trees = []
    for kind, word in enumerate(["Search", "Password"] * 8):
        tree = reader(f"<title>Page</title>{form.format(word)}")
        tree.form_label = torch.tensor([kind % 2])
        tree.y = torch.eye(2)[[kind % 2]]
        trees.append(tree)
    told = []

    def read(root, share, seed):
        print("a report")
        told.append((root, share, seed))
        return TrainingPages(reader, ["search", "login"], trees, trees[:4])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hsa_geo.pages.form_pages", read)
    arguments = ["train", "form-pages", "--data", "here", "--seed", "5", *SMALL, "--json"]
    assert run(arguments) == 0
    assert told == [(Path("here"), 0.15, 5)]
    written = capsys.readouterr()
    assert json.loads(written.out)["labels"] == ["search", "login"]
    assert "a report" in written.err
    assert PageClassifier.load("page-model").reader == reader


@pytest.mark.parametrize("name", ["missing", "web/shop", "web/shop/deeper/1.html"])
def test_what_is_no_set_of_pages(web, capsys, name):
    assert run(["train", name]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_is_overwritten_unasked(web, capsys):
    arguments = ["train", str(web), *SMALL, "--epochs", "1"]
    assert run(arguments) == 0
    before = Path("page-model/model.safetensors").read_bytes()
    assert run([*arguments, "--seed", "1"]) == 1
    assert "holds a model already" in capsys.readouterr().err
    assert Path("page-model/model.safetensors").read_bytes() == before
    assert run([*arguments, "--seed", "1", "--overwrite"]) == 0
    assert Path("page-model/model.safetensors").read_bytes() != before


def test_an_interrupted_training_goes_on(web, capsys, monkeypatch):
    arguments = ["train", str(web), *SMALL, "--epochs", "4", "--patience", "4", "--validation"]
    arguments += ["0.2"]
    assert run([*arguments, "--out", "whole"]) == 0
    from hsa_geo.training.run import Run

    end_epoch = Run.end_epoch

    def stop(self):
        end_epoch(self)
        if self.state.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "end_epoch", stop)
    assert run(arguments) == 130
    assert "--resume goes on from 'page-model/training'" in capsys.readouterr().err
    assert not Path("page-model/config.json").exists()
    monkeypatch.setattr(Run, "end_epoch", end_epoch)
    assert run(arguments) == 1
    assert "holds an interrupted training: give --resume" in capsys.readouterr().err
    assert run([*arguments, "--resume"]) == 0
    for name in ("model.safetensors", "metrics.csv"):
        assert Path("page-model", name).read_bytes() == Path("whole", name).read_bytes(), name
    assert not Path("page-model/training").exists()


def test_going_on_where_there_is_nothing(web, capsys):
    assert run(["train", str(web), *SMALL, "--epochs", "1", "--resume"]) == 0
    told = capsys.readouterr().err
    assert "note: 'page-model' holds no interrupted training: beginning one\n" in told


def test_a_training_that_was_to_replace_a_model_goes_on(web, capsys, monkeypatch):
    """As the interruption says, without the option that would begin anew."""
    arguments = ["train", str(web), *SMALL, "--epochs", "2"]
    assert run([*arguments, "--seed", "1"]) == 0
    before = Path("page-model/model.safetensors").read_bytes()
    assert run([*arguments, "--resume"]) == 1  # it is no interrupted one
    assert "holds a model already" in capsys.readouterr().err
    from hsa_geo.training.run import Run

    end_epoch = Run.end_epoch

    def stop(self):
        end_epoch(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "end_epoch", stop)
    assert run([*arguments, "--overwrite"]) == 130
    assert "with --resume in place of --overwrite goes on" in capsys.readouterr().err
    assert Path("page-model/model.safetensors").read_bytes() == before
    monkeypatch.setattr(Run, "end_epoch", end_epoch)
    assert run([*arguments, "--resume"]) == 0
    assert "holds no interrupted training" not in capsys.readouterr().err
    assert Path("page-model/model.safetensors").read_bytes() != before


def test_ctrl_c_leaves_nothing_broken(web, tmp_path):
    """The real command and signal, at whatever point that hits."""
    command = [sys.executable, "-m", "hsa_geo", "train", str(web), *SMALL, "--epochs", "100000"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(hsa_geo.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Also where the tests run in the background, whose processes ignore the signal from the start.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [*command, "--patience", "100000"], env=environment, preexec_fn=heard, **pipes
    )
    work = tmp_path / "page-model" / "training"
    for _ in range(1200):
        if list(work.glob("checkpoint-*.json")) or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    left = {path.name.partition("-")[0] for path in work.iterdir()}
    assert left <= {"checkpoint", "metrics.csv"}, left  # nothing half-written
    assert [path.name for path in work.parent.iterdir()] == ["training"]


def test_form_pages_are_those_of_the_dataset(monkeypatch):
    """The options and the function by which the examples store the same trees."""
    asked = {}

    class Dataset:
        def __init__(self, root, pre_transform, options, log):
            asked.update(root=root, pre_transform=pre_transform.__name__, options=options, log=log)
            raise FileNotFoundError("no more")

    monkeypatch.setattr(sources, "FormPages", Dataset)
    with pytest.raises(FileNotFoundError):
        sources.form_pages("somewhere", log=False)
    assert asked == {
        "root": "somewhere",
        "pre_transform": "focus",
        "options": {"include_hidden": True, "form_tokens": True, "images": False},
        "log": False,
    }


@pytest.mark.parametrize("options", [[], ["--overwrite"], ["--resume"]])
def test_a_folder_called_training_is_left_alone(web, capsys, options):
    """Pages of one's own, or anything else that no training has written."""
    web.rename(web.parent / "training")
    assert run(["train", "training", "--out", ".", *SMALL, "--epochs", "1", *options]) == 1
    assert "would be in its way" in capsys.readouterr().err
    assert len(list(Path("training").rglob("*.html"))) == 24


def test_nothing_is_made_where_nothing_is_read(web, capsys):
    assert run(["train", "nosuch"]) == 1
    assert not Path("page-model").exists()


@pytest.mark.parametrize("out", ["afile", "afile/deep/er"])
def test_a_file_in_the_place_of_the_model_is_told_before_pages_are_read(web, capsys, out):
    Path("afile").write_text("mine")
    (web / "shop" / "empty.html").touch()  # would be reported
    assert run(["train", str(web), *SMALL, "--out", out]) == 1
    assert capsys.readouterr().err == (
        "error: 'afile' is a file, not a folder to write into: give another --out.\n"
    )
    assert Path("afile").read_text() == "mine"


def test_a_blank_label_is_refused_at_once(web, capsys):
    rows = [f"{path.relative_to(web)},{path.parts[-3]}" for path in web.rglob("*.html")]
    (web / "pages.csv").write_text("\n".join([*rows, "shop/deeper/1.html,  "]))
    assert run(["train", str(web / "pages.csv"), *SMALL, "--epochs", "1"]) == 1
    assert "give a path and a label" in capsys.readouterr().err
    assert not Path("page-model").exists()


def test_pages_and_labels_in_other_encodings(tmp_path, monkeypatch, capsys):
    """UTF-16, GBK and latin-1 pages, in a table of UTF-16 with umlauts."""
    monkeypatch.chdir(tmp_path)
    pages = {
        "wide": "<p>Schöne Bücher über Käse".encode("utf-16"),
        "chinese": "<meta charset=gb2312><p>今天的新聞很多".encode("gbk"),
        "western": "<p>Schöne Bücher über Käse".encode("latin-1"),
    }
    rows = ["path,label"]
    for name, content in pages.items():
        for number in range(6):
            Path(f"{name}{number}.html").write_bytes(content)
            rows.append(f"{name}{number}.html,{'新聞' if name == 'chinese' else 'Bücher'}")
    Path("pages.csv").write_text("\n".join(rows), encoding="utf-16")
    assert run(["train", "pages.csv", *SMALL, "--epochs", "6", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["labels"] == ["Bücher", "新聞"]
    assert "warning" not in told.err
    for name in pages:
        assert run(["predict", f"{name}0.html", "--json"]) == 0
        label = json.loads(capsys.readouterr().out)["labels"]
        assert label == ["新聞" if name == "chinese" else "Bücher"]
    # The same letters in two encodings are the same words.
    reader = PageReader("page")
    wide, western = (reader(pages[name]).text_x.tolist() for name in ("wide", "western"))
    assert wide == western


def test_a_table_whose_labels_are_no_utf_8(web, capsys):
    table = "shop/deeper/1.html,Bücher\nnews/deeper/1.html,Spiele\n"
    (web / "pages.csv").write_bytes(table.encode("latin-1"))
    assert run(["train", str(web / "pages.csv"), *SMALL]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "which is not UTF-8: save the table as UTF-8" in told
    assert not Path("page-model").exists()


def test_ctrl_c_while_pages_are_read_leaves_nothing(web, tmp_path):
    """A page that is a pipe is waited for."""
    os.mkfifo(web / "pipe.html")
    (web / "pages.csv").write_text("pipe.html,shop\nnews/deeper/1.html,news\n")
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, "-m", "hsa_geo", "train", str(web / "pages.csv"), *SMALL],
        env={**os.environ, "PYTHONPATH": str(Path(hsa_geo.__file__).parents[1])},
        preexec_fn=heard,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pipe = os.open(web / "pipe.html", os.O_WRONLY)  # as soon as the other end is open
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(pipe)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web"]


def test_every_command_speaks_json(web, capsys):
    """One object a line on stdout, whatever goes wrong meanwhile."""
    page = str(web / "shop" / "deeper" / "1.html")
    (web / "empty.html").touch()
    quick = ["--seconds", "0", "--leaves", "4", "--leaves", "8"]
    for arguments, code, lines in (
        (["train", str(web), *SMALL, "--epochs", "1"], 0, 1),
        (["inspect", page], 0, 1),
        (["inspect", str(web)], 1, 25),
        (["inspect", str(web), "--as", "site"], 0, 1),
        (["predict", page], 0, 1),
        (["predict", str(web), "missing.html"], 1, 26),
        (["explain", page], 0, 1),
        (["bench", *quick], 0, 2),
    ):
        assert run([*arguments, "--json"]) == code
        out = capsys.readouterr().out
        records = [json.loads(line) for line in out.splitlines()]
        assert len(records) == lines, arguments
        assert out.endswith("\n")
        assert all(isinstance(record, dict) for record in records)
