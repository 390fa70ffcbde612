"""The comparison on texts: its parts, and the program on real data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hierarchical_language as program
import language_report
import numpy as np
import pytest
import torch
from comparison import Record, recipe_key
from comparison_statistics import Difference
from comparison_table import Row
from language_data import TASKS
from language_training import (
    ABLATIONS,
    HIERARCHIES,
    MODELS,
    VARIANTS,
    Settings,
    Variant,
    predict,
    settings_of,
)
from rich.console import Console
from torch import nn
from torch_geometric.data import Data

from hsa_geo import datasets
from hsa_geo.builders import from_text
from hsa_geo.datasets import GloVe, MovieSentences
from hsa_geo.errors import DownloadError
from hsa_geo.nn import SignalClassifier, Symbols

SCRIPT = Path(__file__).parents[2] / "examples" / "hierarchical_language.py"


# Parts ############################################################################################


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_makes_a_model(name):
    variant = VARIANTS[name]
    tree = from_text("One two. Three four five.\n\nSix.")
    n = tree.num_leaves
    tree.word_x, tree.word_index = torch.arange(n), torch.arange(n)
    settings = settings_of("food", variant, Settings())
    model = SignalClassifier(
        {"word": Symbols(9, settings.channels)},
        3,
        channels=settings.channels,
        num_layers=settings.num_layers,
        heads=settings.heads,
        hidden_channels=settings.hidden_channels,
        attention=variant.attention,
        readout=settings.readout,
        **variant.model,
    )
    assert model(tree).shape == (1, 3)


def test_models_are_of_one_size():
    """Within 2%, but for what tells flat attention the hierarchy."""
    count = {}
    for name in ("hsa", "flat", "deep_set", "none"):
        model = SignalClassifier(
            {"word": Symbols(9, 64)}, 2, hidden_channels=128, attention=MODELS[name].attention
        )
        count[name] = sum(p.numel() for p in model.parameters())
    assert max(count.values()) < 1.02 * min(count.values()), count


def test_settings_of_tasks_and_variants():
    base = Settings()
    assert settings_of("food", MODELS["hsa"], base) == base
    wide = settings_of("brown4", ABLATIONS["hsa_width128"], base)
    assert (wide.channels, wide.budget) == (128, TASKS["brown4"].settings["budget"])
    assert settings_of("brown4", Variant("a"), base, quick=True).epochs == 2


def test_tasks_name_datasets():
    for task in TASKS.values():
        assert hasattr(datasets, task.dataset)


def test_seeds_of_a_task():
    """More where a run is short; and records do not depend on how many there are."""
    assert {name: task.seeds for name, task in TASKS.items()} == {
        "food": 3,
        "movie": 5,
        "brown4": 5,
        "brown15": 5,
        "spam": 5,
    }
    task = TASKS["brown4"]
    assert recipe_key(task.made_by) == recipe_key(replace(task, seeds=1).made_by)
    assert recipe_key(task.made_by) != recipe_key(replace(task, options={}).made_by)


def test_the_hierarchies_that_one_may_choose_among():
    assert HIERARCHIES == ("hsa", "hsa_windows")


def test_jobs_of_other_rates_say_so():
    names = [program.named("hsa", rate, "food", Settings()) for rate in (None, 3e-3, 1e-3)]
    assert names == ["hsa", "hsa", "hsa@0.001"]
    assert [program.rate_of(name, "food", Settings()) for name in names] == [3e-3, 3e-3, 1e-3]


class Longest(nn.Module):
    """Says how many leaves a tree has."""

    def forward(self, batch):
        return nn.functional.one_hot(torch.bincount(batch.batch), 9).float()


def test_predictions_keep_the_order_of_the_trees():
    trees = [from_text(" ".join("abcdefgh"[:n])) for n in (3, 1, 5, 2, 8, 4, 1)]
    assert predict(Longest(), trees, 8) == [3, 1, 5, 2, 8, 4, 1]


def row(**gap):
    values = {"mean": 0.0, "low": -0.02, "high": 0.02, "p": 0.5, **gap}
    return Row("hsa", "HSA", 0.8, 0.01, Difference(**values), 10, 1.0, 1.0, 3, 3)


@pytest.mark.parametrize(
    ("low90", "high90", "equivalent", "not_worse"),
    [
        (-0.01, 0.01, "yes", "yes"),
        (-0.01, 0.02, "not shown", "yes"),
        (-0.02, 0.01, "not shown", "not shown"),
        (0.02, 0.04, "no", "yes"),
        (-0.04, -0.02, "no", "not shown"),
    ],
)
def test_equivalence(low90, high90, equivalent, not_worse):
    said = language_report.equivalence([row(low90=low90, high90=high90)], "hsa")
    assert (said["equivalent"], said["not_worse"]) == (equivalent, not_worse)


def test_documents_by_length(tmp_path):
    size = np.array([10] * 300 + [30] * 200 + [60] * 99)  # 99 are too few, whatever the seeds
    right = (size < 25).astype(int).tolist()  # HSA fails on long texts
    ids, ones = list(range(599)), [1] * 599
    records = [
        Record(variant, 0, seed, ids, right if variant == "hsa" else ones, ones)
        for variant in ("hsa", "flat")
        for seed in range(3)
    ]
    corpus = SimpleNamespace(trees=[Data(num_nodes=int(n)) for n in size])
    with (tmp_path / "out").open("w") as out:
        tables = language_report.by_length(corpus, records, ["hsa", "flat"], Console(file=out))
    assert {name: rows[0].accuracy for name, rows in tables.items()} == {
        "0 to 24 words": 1.0,
        "25 to 49 words": 0.0,
    }
    assert "25 to 49 words, 200 documents: 0.000 and 1.000" in (tmp_path / "out").read_text()


def of_fold(variant, fold, seed, share, validation=float("nan")):
    """A record of a hundred documents, a share of which is predicted right."""
    right = int(100 * share)
    items = list(range(100 * fold, 100 * fold + 100))
    predicted = [1] * right + [0] * (100 - right)
    return Record(variant, fold, seed, items, predicted, [1] * 100, validation=validation)


def test_the_best_is_chosen_on_the_validation_documents_of_every_fold(tmp_path):
    records = [
        of_fold("hsa", 0, 0, 1.0, validation=0.6),
        of_fold("hsa_windows", 0, 0, 0.7, validation=0.7),
        of_fold("hsa", 1, 0, 0.8, validation=0.7),
        of_fold("hsa_windows", 1, 0, 1.0, validation=0.65),
        # Seeds that not all have do not count, nor do ablations and random groups.
        of_fold("hsa", 0, 1, 1.0, validation=1.0),
        of_fold("hsa", 1, 1, 1.0, validation=1.0),
        *(of_fold("hsa_random", fold, 0, 1.0, validation=1.0) for fold in (0, 1)),
        *(of_fold("hsa_width128", fold, 0, 1.0, validation=1.0) for fold in (0, 1)),
        *(of_fold("tfidf", fold, 0, 0.5) for fold in (0, 1)),
    ]
    titles = {name: VARIANTS[name].title for name in VARIANTS} | {"tfidf": "TF-IDF"}
    with (tmp_path / "out").open("w") as out:
        console = Console(file=out, width=200)
        said = language_report.best_against(records, "tfidf", titles, None, console)
    assert said["variants"] == {0: "hsa_windows", 1: "hsa"}
    assert said["seeds"] == [0]
    assert said["mean"] == pytest.approx(0.25)
    assert "HSA, windows of 16 and 4: 1 of 2 folds, HSA, sentences: 1 of 2 folds" in (
        (tmp_path / "out").read_text()
    )
    assert language_report.best_against(records[-2:], "tfidf", titles, None, console) == {}


def test_cut():
    record = Record("a", 0, 0, [2, 0, 1], [7, 8, 9], [7, 8, 0])
    assert language_report.cut(record, np.array([10, 20, 30]), 10, 25) == replace(
        record, items=[0, 1], predicted=[8, 9], target=[8, 0]
    )


# The program on real data #########################################################################


@pytest.fixture(scope="module")
def real_data(tmp_path_factory):
    """A root with the movie sentences and GloVe, from ``$HSA_GEO_DATA`` or fetched."""
    root = tmp_path_factory.mktemp("language")
    cache = os.environ.get("HSA_GEO_DATA")
    for make in (MovieSentences, GloVe):
        name = getattr(make, "file_name", "glove")
        raw = root / name / "raw"
        raw.mkdir(parents=True)
        for path in Path(cache or root / "none", name, "raw").glob("*.*"):
            if path.is_file():
                (raw / path.name).symlink_to(path.resolve())
        try:
            make(root / name, log=False)
        except DownloadError as error:
            pytest.skip(f"the data cannot be had: {error}")
    return root


def run(root, out, *args):
    command = [sys.executable, str(SCRIPT), "--root", str(root), "--out", str(out), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.mark.download
def test_the_program(real_data, tmp_path):
    words = ("--task", "movie", "--quick", "--models", "hsa", "flat", "tfidf")
    done = run(real_data, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "trains too little" in done.stdout  # and says nothing of equality
    report = json.loads((tmp_path / "movie-glove" / "report.json").read_text())
    rows = {row["variant"]: row for row in report["tables"]["all"]}
    assert list(rows) == ["hsa", "flat", "tfidf"]
    assert rows["tfidf"]["accuracy"] > 0.6  # a tenth of the texts
    assert rows["hsa"]["accuracy"] > 0.5
    assert rows["hsa"]["parameters"] > 50_000
    records = list((tmp_path / "movie-glove").glob("*/*.json"))
    assert len(records) == 3
    written = {path: path.stat().st_mtime_ns for path in records}

    again = run(real_data, tmp_path, *words)  # nothing is trained again
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in records} == written


@pytest.mark.download
def test_learning_rates_are_chosen_on_the_first_fold(real_data, tmp_path):
    words = ("--task", "movie", "--quick", "--models", "none", "tfidf", "--rates", "1e-6", "3e-3")
    done = run(real_data, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "movie-glove"
    report = json.loads((out / "report.json").read_text())
    assert report["rates"] == {"none": 0.003}
    assert [row["variant"] for row in report["tables"]["all"]] == ["none", "tfidf"]
    assert {path.name for path in out.glob("*/*.json")} == {
        "none-fold0-seed0.json",
        "none@1e-06-fold0-seed0.json",
        "tfidf-fold0-seed0.json",
    }


def stand_in(monkeypatch, tmp_path, *words):
    """The program with runs that guess, on documents that are not there; its exit code."""

    def run_jobs(jobs, run, folder, **_):
        made.extend(jobs)
        return [
            of_fold(
                job.variant,
                job.fold,
                job.seed,
                0.9 if job.variant.startswith("hsa") else 0.8,
                validation=0.9 if "@0.001" in job.variant else 0.5,
            )
            for job in jobs
        ]

    made = []
    corpus = SimpleNamespace(trees=[{"num_nodes": 5}] * 500)
    monkeypatch.setattr(program, "prepare", lambda *_: corpus)
    monkeypatch.setattr(program, "run_jobs", run_jobs)
    monkeypatch.setattr(program, "by_length", lambda *_: {})
    monkeypatch.setattr(sys, "argv", ["program", "--out", str(tmp_path), *words])
    return program.main(), made


def test_all_tasks_one_after_the_other(monkeypatch, tmp_path, capsys):
    models = ["--models", "hsa", "flat", "tfidf"]
    code, made = stand_in(monkeypatch, tmp_path, "--task", "all", "--run-folds", "2", *models)
    assert code == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == sorted(
        f"{name}-glove" for name in TASKS
    )
    report = json.loads((tmp_path / "brown4-glove" / "report.json").read_text())
    assert report["options of the dataset"] == {"labels": "groups", "max_words": 1000}
    assert report["seeds"] == [0, 1, 2, 3, 4]
    title = (tmp_path / "brown4-glove" / "report.md").read_text().splitlines()[0]
    assert title == (
        "Brown, four groups; glove, 500 documents; labels=groups, max_words=1000; "
        "2 of 5 folds, 5 seed(s)"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "max_words=500" in said
    assert said.index("Food reviews") < said.index("Movie-review") < said.index("E-mails")
    assert {job.variant for job in made} == {"hsa", "flat", "tfidf"}


def test_rates_are_tried_on_the_first_fold_and_seed(monkeypatch, tmp_path):
    words = ["--seeds", "2", "--run-folds", "2", "--models", "hsa", "tfidf"]
    code, made = stand_in(monkeypatch, tmp_path, *words, "--rates", "3e-3", "1e-3", "0.001")
    assert code == 0
    tried, rest = made[:2], made[2:]
    assert [(job.variant, job.fold, job.seed) for job in tried] == [
        ("hsa", 0, 0),
        ("hsa@0.001", 0, 0),
    ]
    assert {job.variant for job in rest} == {"hsa@0.001", "tfidf"}
    report = json.loads((tmp_path / "food-glove" / "report.json").read_text())
    assert report["rates"] == {"hsa": 0.001}
    assert [row["variant"] for row in report["tables"]["all"]] == ["hsa", "tfidf"]


def test_expected_errors_are_one_line(monkeypatch, tmp_path, capsys):
    def prepare(*_):
        raise DownloadError("pip is missing: install it.")

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(sys, "argv", ["program", "--out", str(tmp_path)])
    assert program.main() == 1
    assert capsys.readouterr().err == "error: pip is missing: install it.\n"


@pytest.mark.parametrize("words", [("--seeds", "0"), ("--rates", "0"), ("--rates", "-1")])
def test_numbers_out_of_range_are_refused(monkeypatch, words, capsys):
    monkeypatch.setattr(sys, "argv", ["program", *words])
    with pytest.raises(SystemExit) as error:
        program.main()
    assert error.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_arguments_without_effect_are_refused(tmp_path):
    done = run(tmp_path, tmp_path, "--quick", "--seeds", "3")
    assert done.returncode == 2
    assert "--quick runs one fold and one seed" in done.stderr
