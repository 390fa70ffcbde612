"""The benchmark of a replaced layer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))

import replaced_layer as bench


def test_rows():
    taken = {"flat": [4.0, 6.0, 8.0], "block 4": [2.0, 2.0, 2.0], "block 8": [1.0, 1.0, 8.0]}
    taken |= {"key 4": [4.0] * 3, "key 8": [12.0] * 3}
    taken |= {f"trees, {tie} {window}": [0.002] * 3 for tie, window in bench.SETTINGS}
    row = bench.row_of(2, 30, taken)
    assert row["flat"] == {"seconds": 6.0, "quartiles": [5.0, 7.0], "times faster": 1.0}
    assert [row[name]["times faster"] for name in ("block 4", "block 8")] == [3.0, 4.0]
    line = bench.markdown([row]).splitlines()[-1]
    cells = [f"{times}x (+ 2.0 ms)" for times in ("3.00", "4.00", "1.50", "0.50")]
    assert line == "| " + " | ".join(["2", "30", "6000.00", *cells]) + " |"


def test_the_program(tmp_path, capsys):
    assert bench.main(["--check"]) == 0
    line = ["--lengths", "24", "--batches", "1", "2", "--rounds", "2", "--out", str(tmp_path)]
    assert bench.main(line) == 0
    report = json.loads((tmp_path / "replaced_layer.json").read_text())
    assert [(row["batch"], row["length"]) for row in report["rows"]] == [(1, 24), (2, 24)]
    assert all(row["key 8"]["seconds"] > 0 for row in report["rows"])
    table = (tmp_path / "replaced_layer.md").read_text().splitlines()
    assert len(table) == 4
    assert table[0].count("|") == table[2].count("|")
    assert "all attend" in capsys.readouterr().out
