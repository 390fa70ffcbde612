from __future__ import annotations

import json

import pytest
import torch

from hsa_geo.cli import run
from hsa_geo.cli.bench import compare
from hsa_geo.data import SignalTree

QUICK = ["--seconds", "0", "--heads", "2", "--head-dim", "4"]


def test_a_table(capsys):
    assert run(["bench", *QUICK, "--leaves", "20", "--leaves", "2"]) == 0
    told = capsys.readouterr()
    assert "threads" in told.err
    rows = [line.split() for line in told.out.splitlines()]
    assert [row[:3] for row in rows[-2:]] == [["20", "leaves", "1.5"], ["2", "leaves", "1.0"]]
    hsa, flat, faster = (float(x) for x in rows[-2][3:6])
    assert faster == pytest.approx(flat / hsa, rel=0.6, abs=0.1)  # of rounded figures


def test_trees_of_files_as_json(capsys, tmp_path):
    (tmp_path / "a.json").write_text("[[1, 2], [3, [4, 5]]]")
    assert run(["bench", str(tmp_path / "a.json"), *QUICK, "--json", "--threads", "1"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["leaves"], row["pairs"], row["flat_pairs"]) == ("a.json", 5, 13, 25)
    assert all(row[f"{a}_{way}"] > 0 for a in ("hsa", "flat") for way in ("forward", "train"))


def test_what_does_not_go(capsys, tmp_path):
    assert run(["bench", str(tmp_path / "a.json"), "--leaves", "5"]) == 2
    assert "not both" in capsys.readouterr().err
    assert run(["bench", str(tmp_path / "a.json")]) == 1
    assert run(["bench", "--leaves", "1"]) == 2


def test_threads_are_given_back(capsys):
    before = torch.get_num_threads()
    assert run(["bench", *QUICK, "--leaves", "3", "--threads", str(before + 1)]) == 0
    assert torch.get_num_threads() == before


def test_runs_take_turns(monkeypatch):
    """As many runs as the time allows, three at least, in turns."""
    from hsa_geo import ops

    called = []
    original = ops.hsa_attention

    def watched(*args):
        called.append(torch.is_grad_enabled())
        return original(*args)

    monkeypatch.setattr(ops, "hsa_attention", watched)
    compare(SignalTree.from_parents([2, 2, -1]), 1, 4, seconds=0)
    assert called == [False, True] * 4  # a warm-up and three
