"""The example on pages with pictures, on a tiny manual, from the command line to the table."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("selectolax")
pytest.importorskip("PIL")
pytest.importorskip("rich")
pytest.importorskip("sklearn")
sys.path.insert(0, str(Path(__file__).parents[1] / "datasets"))

import multimodal_pages
from comparison import Job
from manual_cases import make_deb, png
from multimodal_runs import Settings, known_words, load, reduced, run, split_of

from hsa_geo.datasets import manual_sections
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.datasets.manual_sections import MANUALS

FOLDER = "usr/share/doc/grass-doc/html"
COLORS = ("red", "lime", "blue", "yellow", "black", "cyan")
TINY = ["--data", "grass", "--max-side", "16", "--epochs", "2", "--folds", "2", "--channels", "8"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A manual of 48 pages; words and pictures both say the section, some pages lack one."""
    root = tmp_path_factory.mktemp("data")
    files = {}
    for label, family in enumerate("rvtigd"):
        for k in range(8):
            name = f"{family}.page{k}"
            picture = f"<p>one{k}<img src={name}.png alt=x{k}>" if k != 3 else ""
            said = f"<p>common about{label} thing{label} number{k}" if k != 5 else ""
            files[f"{FOLDER}/{name}.html"] = f"<h2>DESCRIPTION</h2>{said}{picture}"
            files[f"{FOLDER}/{name}.png"] = png(COLORS[label])
    real = MANUALS["grass"]
    path = root / "manual_pages" / "raw" / real.archive.filename
    make_deb(path, files)
    archive = replace(real.archive, sha256=sha256_of(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(manual_sections.MANUALS, "grass", replace(real, archive=archive))
        load(str(root), Settings(data="grass", max_side=16))  # processes read what is stored
    return root


@pytest.fixture(autouse=True)
def processes_find_the_modules(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "examples"))


def test_from_the_command_line_to_the_table(root, tmp_path, capsys):
    variants = ["hsa-both", "told-image", "tfidf", "majority"]
    line = ["--root", str(root), "--out", str(tmp_path), *TINY, "--quiet", "--seeds", "1"]
    line += ["--rates", "0.01", "0.003"]
    assert multimodal_pages.main([*line, "--variants", *variants]) == 0
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "report.json").read_text())
    rows = {row["variant"]: row for row in report["tables"]["grass"]}
    assert list(rows) == [v for v in multimodal_pages.TITLES if v in variants]
    assert report["items"] == 48
    assert report["settings"]["max_side"] == 16
    assert rows["tfidf"]["accuracy"] > rows["majority"]["accuracy"]
    assert rows["hsa-both"]["gap"] is None
    assert "TF-IDF" in (folder / "table.md").read_text()
    assert report["title"] == "grass: 48 items, 6 classes; max_words=128, max_side=16"
    assert (folder / "table.md").read_text().startswith(report["title"])
    assert report["title"] in " ".join(capsys.readouterr().out.split())
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*seed0.json")}
    # Two folds, and the other rate of the two that are trained on the first.
    assert len(before) == 2 * len(variants) + 2
    assert set(report["rates"]) == {"hsa-both", "told-image"}
    multimodal_pages.main([*line, "--variants", *variants])  # nothing runs again
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*seed0.json")}


def test_all_data_one_after_the_other(monkeypatch):
    seen = []
    monkeypatch.setattr(
        multimodal_pages, "compare_models", lambda given: seen.append((given.data, given.seeds))
    )
    assert multimodal_pages.main(["--data", "all", "--seeds", "2"]) == 0
    assert seen == [("gimp-help", 2), ("grass", 2), ("emojis", 2)]


@pytest.mark.parametrize("line", [["--seeds", "0"], ["--max-words", "0"], ["--rates", "0"]])
def test_numbers_out_of_range_are_refused(line, capsys):
    with pytest.raises(SystemExit) as error:
        multimodal_pages.main(line)
    assert error.value.code == 2
    assert line[0] in capsys.readouterr().err


def test_expected_errors_are_one_line(root, tmp_path, capsys):
    line = ["--root", str(root), "--out", str(tmp_path), *TINY, "--quiet", "--folds", "1"]
    assert multimodal_pages.main(line) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: fold=0 of folds=1")
    assert err.count("\n") == 1


def test_the_models_learn(root):
    settings = Settings(
        *("grass", 2),
        **{"max_side": 16, "epochs": 25, "patience": 25, "channels": 16, "budget": 64},
        **{"dropout": 0.0, "word_dropout": 0.0},
    )
    for variant in ("hsa-text@0.01", "hsa-image@0.01"):
        record = run(Job(variant), str(root), settings)
        assert record.accuracy > 0.5, variant
        assert record.parameters > 0


def test_splits_are_whole_groups_and_cover_all(root):
    settings = Settings("grass", folds=3, max_side=16)
    data = load(str(root), settings)
    groups, tested = data.column("group_id").numpy(), []
    for fold in range(3):
        parts = split_of(data, settings, fold)
        assert sorted(np.concatenate(parts).tolist()) == list(range(48))
        kinds = [set(groups[part].tolist()) for part in parts]
        assert not kinds[0] & kinds[1]
        assert not (kinds[0] | kinds[1]) & kinds[2]
        tested += parts[2].tolist()
    assert sorted(tested) == list(range(48))
    limited = np.concatenate(split_of(data, replace(settings, limit=30), 0))
    assert len(limited) == 30


def test_reduced_trees(root):
    data = load(str(root), Settings("grass", max_side=16))
    tree = data[0]
    words, pictures = reduced(tree, ("word",), 3), reduced(tree, ("image",), 3)
    assert words.num_nodes == 3
    assert words.word_x.tolist() == tree.word_x[:3].tolist()
    assert len(words.image_x) == 0
    assert pictures.num_nodes == len(tree.image_x) == 4
    assert len(pictures.word_x) == 0
    lacking = next(tree for tree in data if len(tree.image_x) == 0)
    empty = reduced(lacking, ("image",), 3)
    assert empty.num_nodes == 1  # a leaf that holds nothing of the modality
    assert len(empty.image_x) == 0


def test_words_are_known_from_training_items_alone(root):
    data = load(str(root), Settings("grass", max_side=16))
    number = known_words(data, [0, 1])
    shared = set(data[0].word_x.tolist()) & set(data[1].word_x.tolist())
    assert set(number.nonzero().squeeze(1).tolist()) == shared
    assert torch.equal(number[number > 0], torch.arange(1, len(shared) + 1))


@pytest.mark.skipif("HSA_GEO_DATA" not in os.environ, reason="needs the real manual")
def test_the_real_manual(tmp_path):
    kept = Path(
        os.environ["HSA_GEO_DATA"], "manual_pages", "raw", MANUALS["grass"].archive.filename
    )
    if not kept.is_file():
        pytest.skip(f"'{kept}' is not there")
    (tmp_path / "manual_pages" / "raw").mkdir(parents=True)
    (tmp_path / "manual_pages" / "raw" / kept.name).symlink_to(kept)
    settings = Settings("grass", folds=4, max_side=8, max_words=32, epochs=1, channels=16)
    record = run(Job("hsa-both@0.01"), str(tmp_path), settings)
    assert len(record.items) > 100
    assert record.seconds_per_epoch > 0
