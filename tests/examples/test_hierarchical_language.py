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
import numpy as np
import pytest
import torch
from comparison import Record
from comparison_statistics import Difference
from comparison_table import Row
from language_data import TASKS
from language_training import ABLATIONS, MODELS, VARIANTS, Settings, Variant, predict, settings_of
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
    said = program.equivalence([row(low90=low90, high90=high90)], "hsa")
    assert (said["equivalent"], said["not_worse"]) == (equivalent, not_worse)


def test_documents_by_length(tmp_path):
    size = np.random.default_rng(0).integers(1, 60, 600)
    right = (size < 25).astype(int).tolist()  # HSA fails on long texts
    records = [
        Record("hsa", 0, 0, list(range(600)), right, [1] * 600),
        Record("flat", 0, 0, list(range(600)), [1] * 600, [1] * 600),
    ]
    corpus = SimpleNamespace(trees=[Data(num_nodes=int(n)) for n in size])
    with (tmp_path / "out").open("w") as out:
        tables = program.by_length(corpus, records, ["hsa", "flat"], Console(file=out))
    assert {name: rows[0].accuracy for name, rows in tables.items()} == {
        "0 to 24 words": 1.0,
        "25 to 49 words": 0.0,
        "50 to 99 words": 0.0,
    }


def test_the_best_is_chosen_on_validation_documents(tmp_path):
    items = list(range(200))
    records = [
        Record("hsa", 0, 0, items, [1] * 200, [1] * 200, validation=0.6),
        Record("hsa_windows", 0, 0, items, [1] * 120 + [0] * 80, [1] * 200, validation=0.7),
        Record("tfidf", 0, 0, items, [1] * 100 + [0] * 100, [1] * 200),
    ]
    titles = {"hsa": "HSA", "hsa_windows": "windows", "tfidf": "TF-IDF"}
    with (tmp_path / "out").open("w") as out:
        said = program.best_against(records, "tfidf", titles, None, Console(file=out, width=200))
    assert (said["variant"], said["mean"]) == ("hsa_windows", pytest.approx(0.1))
    assert "windows, 0.700 there" in (tmp_path / "out").read_text()


def test_cut():
    record = Record("a", 0, 0, [2, 0, 1], [7, 8, 9], [7, 8, 0])
    assert program.cut(record, np.array([10, 20, 30]), 10, 25) == replace(
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
    assert "HSA - flat = " in done.stdout
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


def test_arguments_without_effect_are_refused(tmp_path):
    done = run(tmp_path, tmp_path, "--quick", "--seeds", "3")
    assert done.returncode == 2
    assert "--quick runs one fold and one seed" in done.stderr
