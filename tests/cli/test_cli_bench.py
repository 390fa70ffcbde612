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
    assert "thread" in told.err
    lines = told.out.splitlines()
    assert max(map(len, lines)) < 80
    rows = [line.split() for line in lines[-4:]]
    assert [row[:4] for row in rows[::2]] == [
        *(["20", "leaves", "1.5", "forward"], ["2", "leaves", "1.0", "forward"]),
    ]
    assert [row[0] for row in rows[1::2]] == ["training", "training"]
    hsa, flat = map(float, rows[0][4:6])
    times, way = rows[0][6:]
    assert way == ("faster" if flat > hsa else "slower")
    ratio = max(flat / hsa, hsa / flat)
    assert float(times.rstrip("x")) == pytest.approx(ratio, rel=0.6, abs=0.1)  # rounded figures


def test_trees_of_files_as_json(capsys, tmp_path):
    (tmp_path / "a.json").write_text("[[1, 2], [3, [4, 5]]]")
    assert run(["bench", str(tmp_path / "a.json"), *QUICK, "--json", "--threads", "1"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["leaves"], row["pairs"], row["flat_pairs"]) == ("a.json", 5, 13, 25)
    assert all(row[f"{a}_{way}"] > 0 for a in ("hsa", "flat") for way in ("forward", "train"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.json", "--leaves", "5"], 2, "not both"),
        (["missing.json"], 1, "'missing.json' does not exist"),
        (["--leaves", "1"], 2, "--leaves"),
        (["--threads", "100000"], 2, "--threads"),  # torch would crash
        (["--as", "json"], 2, "give files, too"),
        (["."], 1, "'.' is a folder: give files, or --as site for a folder of pages."),
        (["a.json", "empty.json"], 1, "'empty.json' is empty"),
        (["a.json", "notes"], 1, "give --as"),
    ],
)
def test_what_does_not_go(capsys, tmp_path, monkeypatch, arguments, code, says):
    """One line, before anything is measured or announced."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("[1, 2]")
    (tmp_path / "notes").write_text("to be")
    (tmp_path / "empty.json").touch()
    assert run(["bench", *QUICK, *arguments]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert says in told.err


def test_files_of_any_kind(capsys, tmp_path):
    for name in ("one.html", "two.html"):
        (tmp_path / name).write_text("<p>to be <a href=two.html>or not</a>")
    (tmp_path / "notes").write_text("to be")
    assert run(["bench", *QUICK, "--json", "--as", "site", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] == 8
    assert run(["bench", *QUICK, "--json", "--as", "text", str(tmp_path / "notes")]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] == 2


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
