from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))

import training_length as bench


@pytest.mark.parametrize("words", [1, 30, 2300])
def test_documents(words):
    tree = bench.document(words, np.random.default_rng(0))
    assert tree.validate()
    assert (tree.num_leaves, tree.depth) == (words, 3)
    assert tree.plan.leaf_order.tolist() == list(range(words))
    parent, child = tree.tree_index
    first = np.unique(parent.numpy(), return_index=True)[1]
    place = np.arange(len(parent)) - np.repeat(first, np.diff([*first, len(parent)]))
    assert tree.tree_pos[child, 0].tolist() == place.tolist()


def test_the_program(tmp_path, capsys, monkeypatch):
    """Both models, the limit that ends one, and what is written."""
    command = ["bench", "--lengths", "40", "80", "--channels", "8", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", [*command, "--limit", "0", "--out", str(tmp_path)])
    assert bench.main() == 0
    report = json.loads((tmp_path / "training_length.json").read_text())
    assert {"date", "python"} <= report.keys()
    assert set(report["versions"]) == {"torch", "numpy", "hsa_geo"}
    assert report["seeds"] == {"weights": 0, "documents": {"40": 40, "80": 80}}
    assert report["limit"] == 0
    rows = report["rows"]
    assert [row["words"] for row in rows] == [40, 80]
    assert [sorted(row) for row in rows] == [
        ["documents", "flat", "hsa", "words"],
        ["documents", "words"],
    ]
    assert rows[0]["hsa"]["quartiles"][0] <= rows[0]["hsa"]["seconds"]
    table = (tmp_path / "training_length.md").read_text().splitlines()
    assert len(table) == 4
    assert table[3].count("not run: over 0 s") == 2
    assert rows[0]["hsa"]["bytes"] >= 0
    assert len({line.count("|") for line in table}) == 1


def test_check(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--check"])
    assert bench.main() == 0
    assert "both models train" in capsys.readouterr().out
