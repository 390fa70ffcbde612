"""The attention benchmark: what it compares, what it says, and that it leaves nothing out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import attention  # noqa: E402
import attention_check  # noqa: E402
import attention_fresh  # noqa: E402
import attention_measure  # noqa: E402
from attention_goals import Goal, goals  # noqa: E402
from attention_limits import Limits  # noqa: E402
from attention_report import Table, number  # noqa: E402
from attention_rivals import CONTENDERS, OURS, Contender, Run  # noqa: E402
from attention_shapes import SHAPES, make_work  # noqa: E402

SMALL = {"heads": 2, "dim": 4}
SINGLE = [name for name in SHAPES if not name.startswith("batch")]


def program(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, BENCHMARKS / "attention.py", "--threads", 1, *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)


# The program ################################################################


def test_all_backends_agree():
    done = program("--check", "--sizes", 20, "--heads", 1, "--dim", 4)
    assert done.returncode == 0, done.stderr
    assert "all backends agree" in done.stdout
    assert "WRONG" not in done.stdout
    for name in (*SHAPES, *OURS, "reference", "flat SDPA"):
        assert name in done.stdout


def test_everything_is_measured_or_named(tmp_path):
    pytest.importorskip("matplotlib")
    small = ["--sizes", 40, "--heads", 2, "--dim", 8, "--rounds", 2]
    done = program("--quick", *small, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "attention.json").read_text())
    assert [work["shape"] for work in report["works"]] == list(SHAPES)
    text = (tmp_path / "attention.md").read_text(encoding="utf-8")
    for work in report["works"]:
        assert work["results"].keys() | work["skipped"].keys() == CONTENDERS.keys()
        assert not work["results"].keys() & work["skipped"].keys()
        assert set(OURS) <= work["results"].keys()
        for key, result in work["results"].items():
            assert ("train" in result) == CONTENDERS[key].trains
            assert all(0 < at["q1"] <= at["median"] <= at["q3"] for at in result.values())
            assert all(at["n"] == 2 for at in result.values())
        for key in work["skipped"]:
            assert f"left out: {CONTENDERS[key].label}" in done.stdout
            assert f"left out: {CONTENDERS[key].label}" in text
    assert "left out: scaling" in done.stdout
    assert "not measured" in done.stdout
    assert all(contender.text in text for contender in CONTENDERS.values())
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shapes", "spiral"], "invalid choice: 'spiral' (choose from"),
        (["--sizes", "1"], "1 is no number of leaves: give 2 or more"),
        (["--rounds", "0"], "0 is not positive"),
        (["--check", "--million"], "run one after the other"),
        (["--check", "--out", "x"], "--out is for the whole benchmark: leave it out"),
        (["--million", "--sizes", "9"], "--sizes is for the whole benchmark: leave it out"),
    ],
)
def test_wrong_arguments_are_refused(arguments, says, capsys):
    with pytest.raises(SystemExit) as stop:
        attention.main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    if "--shapes" in arguments:
        assert all(name in error for name in SHAPES)


def test_disagreement_is_an_error(monkeypatch, capsys):
    right = attention_check.hsa_attention

    def wrong(q, k, v, plan, *, backend, **options):
        return right(q, k, v, plan, backend=backend, **options) * (
            1.001 if backend == "block" else 1
        )

    monkeypatch.setattr(attention_check, "hsa_attention", wrong)
    arguments = ["--check", "--shapes", "document", "--sizes", "30", "--heads", "1", "--dim", "4"]
    assert attention.main(arguments) == 1
    out = capsys.readouterr().out
    assert "BACKENDS DISAGREE" in out
    wrong_lines = [line for line in out.splitlines() if line.rstrip().endswith("WRONG")]
    assert len(wrong_lines) == 2
    assert all("block" in line for line in wrong_lines)


def test_nan_is_no_agreement():
    nan = torch.full((2,), torch.nan)
    output, gradients = attention_check.compare([nan, nan], [torch.ones(2), torch.ones(2)])
    assert not output <= 1
    assert not gradients <= 1


def test_a_missing_package_is_named_before_the_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert attention.main(["--out", str(tmp_path / "new")]) == 1
    assert "pip install 'hsa_geo[examples]'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


# Shapes #####################################################################


@pytest.mark.parametrize("leaves", [2, 3, 5, 40, 333])
@pytest.mark.parametrize("name", SINGLE)
def test_shapes_are_trees_of_that_many_leaves(name, leaves):
    work = make_work(name, leaves, **SMALL)
    work.tree.validate()
    assert (work.leaves, work.length, work.plan.num_trees) == (leaves, leaves, 1)
    assert work.q.shape == (leaves, 2, 4)
    assert (work.pos is not None) == SHAPES[name].placed


def group_sizes(name: str, leaves: int) -> list[int]:
    return list(make_work(name, leaves, **SMALL).plan.group_sizes)


def test_shapes_are_what_they_are_called():
    assert set(group_sizes("windows4", 256)) == {4}
    assert set(group_sizes("windows16", 256)) == {16}
    assert set(group_sizes("quadtree", 256)) == {4}
    assert group_sizes("wide", 50) == [50]
    assert group_sizes("chain", 50) == [2] * 49
    plan = make_work("document", 5000, **SMALL).plan
    assert plan.num_levels == 6
    words = torch.tensor(plan.group_sizes)[slice(*plan.level_groups[5:7])]
    assert bool((words[:-1] >= 5).all())
    assert int(words.max()) == 30


def test_pixels_know_their_row_and_column():
    tree = SHAPES["quadtree"].make(16, np.random.default_rng(0))
    corners = [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert tree.tree_pos[:20].tolist() == corners * 5


def test_batches_hold_whole_documents():
    work = make_work("batch64", 256, **SMALL)
    assert (work.plan.num_trees, work.length, work.leaves) == (4, 64, 256)
    assert make_work("batch600", 100, **SMALL).plan.num_trees == 1


def test_a_seed_draws_the_same_again():
    first, same, other = (make_work("document", 300, **SMALL, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.tree.tree_index, same.tree.tree_index)
    assert torch.equal(first.q, same.q)
    assert not torch.equal(first.q, other.q)


# Contenders #################################################################


@pytest.mark.parametrize("name", ["document", "quadtree", "batch64"])
def test_contenders_run_and_have_gradients(name):
    work = make_work(name, 128, **SMALL)
    for key, contender in CONTENDERS.items():
        if contender.skip(work, Limits()):
            continue
        run = contender.build(work)
        out = run.forward()
        if contender.trains:
            out.sum().backward()
            assert all(x.grad is not None for x in run.inputs), key
            rows = work.plan.num_nodes if key in ("transformer_conv", "propagate") else work.leaves
            assert out.numel() == rows * 8, key


def test_flat_attention_is_ours_on_a_wide_tree():
    work = make_work("wide", 40, **SMALL, dtype=torch.float64)
    outs = [CONTENDERS[key].build(work).forward() for key in ("flat", "block")]
    assert torch.allclose(outs[0][0].transpose(0, 1), outs[1])


def test_messages_go_along_the_sibling_pairs():
    work = make_work("document", 60, heads=1, dim=2)
    run = CONTENDERS["propagate"].build(work)
    q, k, v = run.inputs
    out = run.forward()
    target, source = work.plan.pair_nodes
    mine = source[target == 3]
    weight = ((q[3] * k[mine]).sum(-1) / 2**0.5).softmax(0)
    assert torch.allclose(out[3], (weight[:, None] * v[mine]).sum(0), atol=1e-6)


def test_what_is_too_large_is_left_out():
    document = make_work("document", 200, **SMALL)
    low = Limits(flat=100, projected=300, pairs=100, leaves=100, padded=100, levels=2, scores=100)
    for key in ("block", "edge", "flat", "gps", "performer", "transformer_conv", "propagate"):
        reason = CONTENDERS[key].skip(document, low)
        assert re.search(r"more than (100|2)$", reason or ""), key
        assert CONTENDERS[key].skip(document, Limits()) is None, key
    assert CONTENDERS["numba"].skip(document, low) is None
    wide = make_work("wide", 60, **SMALL)
    for key in ("flat", "gps", "performer"):
        assert "see document" in CONTENDERS[key].skip(wide, Limits(again=50)), key
        assert CONTENDERS[key].skip(document, Limits(again=50)) is None, key
    chain = make_work("chain", 60, **SMALL)
    assert CONTENDERS["block"].skip(chain, Limits(levels=50)) == "60 levels, more than 50"


# Measuring ##################################################################


def test_contenders_take_turns(monkeypatch):
    called: list[str] = []

    def fake(name: str) -> Contender:
        x = torch.ones(3, requires_grad=True)

        def forward():
            called.append(name)
            return x * 2

        return Contender(name, name, lambda work: Run(forward, [x]), trains=name == "a")

    monkeypatch.setattr(attention_measure, "CONTENDERS", {name: fake(name) for name in "abc"})
    work = make_work("document", 10, **SMALL)
    given = {"rounds": 4, "budget": 0.0, "limits": Limits()}
    found = attention_measure.measure(work, ["a", "b", "c"], **given)
    # The budget is spent at once: of four rounds two, since the measurement of memory counts.
    assert len(called) == 3 + 4 + 2 * 4
    rounds = called[-8:]
    assert [sorted(rounds[i : i + 4]) for i in (0, 4)] == [["a", "a", "b", "c"]] * 2
    assert rounds[:4] != rounds[4:]
    assert found["results"]["a"]["train"]["n"] == 3
    assert "train" not in found["results"]["b"]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_peak_memory_of_a_call():
    assert attention_measure.start_peak() is not None
    work = make_work("document", 4096, heads=8, dim=64)  # 8 MB each of q, k, v, out
    taker = attention_measure.Taker("copy", work)
    taker.prepare()
    assert taker.peak(False)[0] / work.qkvo_bytes == pytest.approx(1, abs=0.05)


def test_a_fresh_process_answers():
    request = {"key": "block", "leaves": 600, "threads": 1, "options": SMALL}
    answer = attention_fresh.in_fresh_process(request)
    assert answer["forward"] > 0
    assert answer["qkvo_bytes"] == 4 * 600 * 8 * 4


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_the_rise_of_a_fresh_process_is_that_of_forward():
    request = {"key": "flat", "leaves": 4096, "threads": 1, "options": {"heads": 8, "dim": 64}}
    answer = attention_fresh.serve(request)  # flat attention writes its output, a quarter
    assert 0.2 < answer["rise"] / answer["qkvo_bytes"] < 0.4


def test_a_process_that_fails_says_why(monkeypatch):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 9, stdout="", stderr="a\nno memory\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"'block'.* ended with 9: no memory"):
        attention_fresh.in_fresh_process({"key": "block"})


# Reports ####################################################################


def fake_report() -> dict:
    def at(seconds: float) -> dict:
        return {"median": seconds, "q1": seconds, "q3": seconds, "n": 3, "peak": 1000}

    results = {
        "numba": {"forward": at(1.0), "train": at(2.0)},
        "flat": {"forward": at(25.0), "train": at(20.0)},
        "projection": {"forward": at(0.5)},
    }
    work = {"shape": "document", "leaves": 4096, "results": results, "skipped": {}}
    scaling = {"small": 16384, "large": 262144}
    scaling["results"] = {"numba": {"small": at(1.0), "large": at(17.0)}}
    return {"works": [work], "scaling": scaling, "memory": []}


def test_goals_are_met_missed_or_not_measured():
    found = {goal.what: goal for goal in goals(fake_report())}
    flat = "flat SDPA over HSA, forward"
    assert found[f"{flat}, 4,096 leaves"] == Goal(f"{flat}, 4,096 leaves", 25.0, 20, True)
    assert found[f"{flat}, 4,096 leaves"].verdict == "met"
    assert found[f"{flat}, 1,024 leaves"].verdict == "not measured"
    assert found[f"{flat} + backward, 4,096 leaves"].verdict == "missed"
    assert found["HSA over one projection, forward, 4,096 leaves"].verdict == "missed"
    assert found["time of 262,144 leaves over that of 16,384"].verdict == "met"


def test_numbers_have_three_digits():
    shown = [number(x) for x in (123456.0, 12.34, 1.234, 0.1234, 0.01234)]
    assert shown == ["123,456", "12.3", "1.23", "0.123", "0.0123"]


def test_tables_need_no_rich(monkeypatch, capsys):
    table = Table("title", ["", "value"], [["a", "1.5"], ["bb", "12.5"]], ["a note"])
    assert table.markdown() == (
        "|  | value |\n| --- | ---: |\n| a | 1.5 |\n| bb | 12.5 |\n\n- a note\n"
    )
    monkeypatch.setitem(sys.modules, "rich", None)
    table.show()
    out = capsys.readouterr().out
    assert out == "\ntitle\n\n    value\n--  -----\na     1.5\nbb   12.5\n- a note\n"
