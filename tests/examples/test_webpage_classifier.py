"""The web page classifier as a program: comparison, report, prediction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import webpage_classifier
import webpage_training
from rich.console import Console
from sklearn.metrics import f1_score
from webpage_cases import FORMS
from webpage_classifier import NAMES, evaluate, main, show
from webpage_data import READER, Pages
from webpage_training import Settings, build

from hsa_geo.datasets import FormPages
from hsa_geo.pages import PageClassifier

PROGRAM = Path(webpage_classifier.__file__)
CLASSES = list(FormPages.classes)
TINY = Settings(channels=8, heads=2, batch_size=16)

# Evaluation #################################################################


def example(pages: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict]:
    """Labels of pages, their domains, and what three models say, ``hsa`` with three seeds."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (pages, 8))
    y[:, 7] = 0

    def guess(wrong: float) -> np.ndarray:
        return np.where(rng.random(y.shape) < wrong, 1 - y, y)

    labels = {
        "hsa": {s: guess(0.2) for s in range(3)},
        "flat": {s: guess(0.4) for s in range(3)},
        "tfidf_page": {0: guess(0.3)},
    }
    return y, rng.integers(0, 15, pages), labels


def test_f1_is_that_of_sklearn():
    y, group, labels = example()
    report = evaluate(y.astype(np.float32), group, labels, draws=3)["models"]
    for name, by_seed in labels.items():
        for k, average in enumerate(["macro", "micro"]):
            each = [f1_score(y, p, average=average, zero_division=0) for p in by_seed.values()]
            assert report[name]["f1"][k] == pytest.approx(np.mean(each))
            assert [s[k] for s in report[name]["seeds"]] == pytest.approx(each)


def test_differences_are_paired():
    y, group, labels = example()
    labels["same"] = labels["hsa"]
    report = evaluate(y, group, labels, draws=200)["models"]
    assert report["hsa"]["hsa_minus"] == report["same"]["hsa_minus"] == [0.0, 0.0]
    assert report["same"]["hsa_minus_interval"] == [[0.0, 0.0], [0.0, 0.0]]
    for name in labels:
        gap = np.subtract(report["hsa"]["f1"], report[name]["f1"])
        assert report[name]["hsa_minus"] == pytest.approx(gap)
        for value, (low, high) in zip(report[name]["f1"], report[name]["interval"]):
            assert 0 < low < value < high < 1
    low, high = np.array(report["flat"]["hsa_minus_interval"]).T
    assert (low > 0).all()  # 0.2 against 0.4 of all labels wrong is a real difference
    # Two models that err on the same pages differ by less than each varies on its own.
    rng = np.random.default_rng(1)
    twin = np.where(rng.random(y.shape) < 0.01, 1 - labels["hsa"][0], labels["hsa"][0])
    close = evaluate(y, group, {"hsa": {0: labels["hsa"][0]}, "twin": {0: twin}}, 200)["models"]
    width = np.diff(close["twin"]["interval"])
    assert (np.diff(close["twin"]["hsa_minus_interval"]) < width / 2).all()


def test_evaluation_is_deterministic():
    y, group, labels = example()
    first = evaluate(y, group, labels, draws=50)
    np.random.seed(7)  # noqa: NPY002
    assert evaluate(y, group, labels, draws=50) == first
    assert json.loads(json.dumps(first))["models"]["flat"]["f1"] == first["models"]["flat"]["f1"]


def test_the_bootstrap_draws_whole_domains():
    y, _, labels = example()
    one = evaluate(y, np.zeros(len(y)), labels, draws=20)["models"]
    for row in one.values():  # one domain: always the same pages
        for value, ends in zip(row["f1"], row["interval"]):
            assert ends == pytest.approx([value, value])
    # Each page twice, as one domain, is no more evidence than each page once.
    single = evaluate(y, np.arange(len(y)), labels, draws=100)["models"]
    twice = {n: {s: np.repeat(p, 2, 0) for s, p in d.items()} for n, d in labels.items()}
    group = np.repeat(np.arange(len(y)), 2)
    double = evaluate(np.repeat(y, 2, 0), group, twice, draws=100)["models"]
    for name in labels:
        assert np.allclose(double[name]["interval"], single[name]["interval"])


def test_the_table_names_every_model_and_what_is_real():
    y, group, labels = example()
    all_labels = {name: labels.get(name, labels["flat"]) for name in NAMES}
    all_labels["deep_set"] = labels["hsa"]
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    show(evaluate(y, group, all_labels, draws=100), 60, 3, console)
    lines = console.export_text().splitlines()
    rows = {name: next(line for line in lines if f"│ {t} " in line) for name, t in NAMES.items()}
    assert "yes / yes" in rows["flat"]
    assert "no / no" in rows["deep_set"]
    assert "yes" not in rows["hsa"]


# The whole comparison #######################################################


@pytest.fixture
def small_program(small_web, monkeypatch, tmp_path):
    """The program on the small web, in this process; gives its arguments to ``main``."""
    root, out = tmp_path / "data", tmp_path / "runs"
    monkeypatch.setitem(webpage_training._pages, root, small_web)
    monkeypatch.setattr(Pages, "read", lambda *args, **kwargs: small_web)
    monkeypatch.setattr(webpage_classifier, "Settings", lambda: TINY)
    monkeypatch.setattr(
        webpage_classifier, "ProcessPoolExecutor", lambda *args, **kwargs: ThreadPoolExecutor(1)
    )
    monkeypatch.setenv("COLUMNS", "200")

    def start(*arguments: str) -> int:
        monkeypatch.setattr(
            sys, "argv", ["program", "--root", str(root), "--out", str(out), *arguments]
        )
        return main()

    return start, out


def test_compare_again_and_predict(small_program, monkeypatch, capsys, tmp_path):
    start, whole = small_program
    out = whole / "quick"  # a quick run keeps apart from the full one
    monkeypatch.setattr(webpage_classifier, "Settings", lambda: replace(TINY, epochs=1))
    monkeypatch.setattr(webpage_classifier, "replace", lambda settings, epochs: settings)
    assert start("--quick") == 0
    shown = capsys.readouterr().out
    assert all(title in shown for title in NAMES.values())
    report = json.loads((out / "report.json").read_text())
    assert list(report["models"]) == list(NAMES)
    assert set(report["parameters"]) == {"hsa", "flat", "deep_set"}
    runs = next(path for path in out.iterdir() if path.name not in ("model", "report.json"))
    assert sorted(path.name for path in runs.glob("*.json")) == [
        "deep_set-fold0-seed0.json",
        "flat-fold0-seed0.json",
        "hsa-all-seed0.json",
        "hsa-fold0-seed0.json",
    ]
    weights = (out / "model" / "model.safetensors").read_bytes()

    # Once more, from the files: nothing is trained, and the model is there again.
    monkeypatch.setattr(webpage_training, "train", None)
    (out / "model" / "model.safetensors").unlink()
    assert start("--quick") == 0
    again = json.loads((out / "report.json").read_text())
    assert again["models"] == report["models"]
    assert (out / "model" / "model.safetensors").read_bytes() == weights
    assert sorted(path.name for path in (out / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]

    page = tmp_path / "page.html"
    page.write_text(FORMS[1])
    capsys.readouterr()
    assert start("--predict", str(page)) == 0
    answer = capsys.readouterr().out
    assert "--quick" in answer
    assert "form 1 of 1: " in answer
    assert not (whole / "model").exists()


@pytest.mark.parametrize("other", [["--seeds", "2"], ["--predict", "page.html"]])
def test_quick_does_not_go_with_everything(small_program, capsys, other):
    with pytest.raises(SystemExit):
        small_program[0]("--quick", *other)
    assert "--quick" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--seeds", "--workers"])
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_numbers_of_the_command_line(small_program, capsys, option, value):
    with pytest.raises(SystemExit):
        small_program[0](option, value)
    assert f"argument {option}" in capsys.readouterr().err


# Prediction #################################################################


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with an untrained model, that says "login" of what holds a password field."""
    out = tmp_path_factory.mktemp("out")
    torch.manual_seed(0)
    untrained = build(TINY, "hsa")
    with torch.no_grad():
        untrained.lin.bias[CLASSES.index("login")] = 20.0
    PageClassifier(untrained, READER, CLASSES).save(out / "model")
    return out


@pytest.fixture
def predict(model, monkeypatch, capsys, tmp_path):
    """``--predict`` in this process: exit code, stdout, stderr."""

    def start(page: str | Path, out: Path = model) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["program", "--out", str(out), "--predict", str(page)])
        monkeypatch.chdir(tmp_path)
        code = main()
        return code, *capsys.readouterr()

    return start


PAGES = {
    "forms.html": f"<title>Two forms</title>{FORMS[0]}{FORMS[1]}".encode(),
    "no_forms.html": b"<p>Nothing to fill in here.</p>",
    "empty.html": b"",
}


@pytest.fixture(scope="module")
def answers(model, tmp_path_factory):
    """What the program says in a process of its own, by page; all run at the same time."""
    folder = tmp_path_factory.mktemp("pages")
    for name, content in PAGES.items():
        (folder / name).write_bytes(content)
    command = [sys.executable, str(PROGRAM), "--out", str(model), "--predict"]
    started = {
        name: subprocess.Popen(
            [*command, name],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in (*PAGES, "missing.html")
    }
    out = {}
    for name, process in started.items():
        stdout, stderr = process.communicate(timeout=300)
        out[name] = (process.returncode, stdout, stderr)
    return out


def test_labels_of_a_page(answers):
    code, stdout, stderr = answers["forms.html"]
    assert (code, stderr) == (0, "")
    lines = stdout.splitlines()
    assert lines[0] == "forms.html: login"
    table = [line.split("│")[1:3] for line in lines if line.startswith("│")]
    assert sorted(row[0].strip() for row in table) == sorted(CLASSES)
    values = [float(row[1]) for row in table]
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 for value in values)
    assert lines[-2:] == ["form 1 of 2: login (1.000)", "form 2 of 2: login (1.000)"]


def test_a_page_without_forms(answers):
    code, stdout, stderr = answers["no_forms.html"]
    assert (code, stderr) == (0, "")
    assert stdout.splitlines()[0] == "no_forms.html: no form of a known type"
    assert "form 1" not in stdout
    assert stdout.count("0.000") == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [("empty.html", "the page shows nothing"), ("missing.html", "missing.html")],
)
def test_what_is_no_page_is_one_line(answers, name, message):
    code, stdout, stderr = answers[name]
    assert (code, stdout) == (1, "")
    assert stderr.startswith("error: ")
    assert len(stderr.splitlines()) == 1
    assert message in stderr


def test_a_name_that_looks_like_markup_or_is_long(predict, tmp_path):
    for name in ("[red]a[/blue].html", ":smile:.html"):
        path = tmp_path / ("long" * 40) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FORMS[0])
        code, stdout, _ = predict(path)
        assert code == 0
        assert stdout.splitlines()[0] == f"{path}: login"
        path.unlink()
        code, stdout, stderr = predict(path)
        assert (code, stdout) == (1, "")
        assert stderr.splitlines() == [f"error: [Errno 2] No such file or directory: '{path}'"]


@pytest.mark.parametrize("content", [b"", b"\x00" * 99, b"<script>x()</script>", b"%PDF-1.4 \x01"])
def test_pages_of_nothing(predict, tmp_path, content):
    path = tmp_path / "page.html"
    path.write_bytes(content)
    code, stdout, stderr = predict(path)
    assert code in (0, 1)
    assert bool(stdout) == (code == 0)
    assert len(stderr.splitlines()) == code
    assert predict(tmp_path)[0] == 1  # a folder


def test_no_model(predict, tmp_path):
    (tmp_path / "page.html").write_text(FORMS[0])
    code, _, stderr = predict("page.html", tmp_path / "elsewhere")
    assert code == 1
    assert len(stderr.splitlines()) == 1
    assert "without --predict first" in stderr


@pytest.mark.parametrize("extra", [{}, {"pages": {"labels": CLASSES}}])
def test_a_model_of_something_else(predict, tmp_path, extra):
    (tmp_path / "page.html").write_text(FORMS[0])
    build(TINY, "flat").save(tmp_path / "model", extra)
    code, _, stderr = predict("page.html", tmp_path)
    assert code == 1
    assert len(stderr.splitlines()) == 1
    assert "does not say how it reads pages" in stderr
    (tmp_path / "model" / "config.json").write_text("{")
    code, _, stderr = predict("page.html", tmp_path)
    assert code == 1
    assert len(stderr.splitlines()) == 1
