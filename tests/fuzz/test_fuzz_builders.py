"""The fuzzers: a slice of their cases, and that they find what they look for."""

from __future__ import annotations

import argparse
import json
import random
import signal
import time
import warnings

import fuzz_builders
import fuzz_html
import fuzz_image
import pytest
import torch
from fuzz_builders import BUILDERS, Hang, check, draw, kind_of, make_folder
from fuzz_case import Case, FromBytes, mutated_bytes

from hsa_geo.builders import from_text
from hsa_geo.data import SignalTree

SLICE = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_slice_of_the_cases(builder, folder):
    found = [
        check(draw(builder, 7, number, folder), twice=number % 8 == 0) for number in range(SLICE)
    ]
    assert found.count("tree") > SLICE // 10
    assert found.count("refused") > SLICE // 10


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_number_is_one_case(builder, folder):
    for number in range(20):
        one, same = (draw(builder, 3, number, folder) for _ in range(2))
        assert one.options.keys() == same.options.keys()
        if isinstance(one.source, (str, bytes, bytearray)):
            assert one.source == same.source
    sources = {repr(draw(builder, 3, number, folder))[:2000] for number in range(20)}
    assert len(sources) > 15


def broken(source, kind=None):
    """A builder with every fault."""
    tree = SignalTree.from_parents([-1, 0, 0], x=torch.full((2, 1), random.random()))
    if kind == "error":
        raise KeyError(source)
    if kind == "warning":
        warnings.warn("beware", RuntimeWarning, stacklevel=1)
    if kind == "tree":
        tree.tree_level[0] = 7
    if kind == "hang":
        try:
            time.sleep(5)
        except Exception:
            return tree
    return tree


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("error", AssertionError, "untyped error: KeyError"),
        ("warning", AssertionError, "untyped warning: RuntimeWarning"),
        ("tree", AssertionError, "not valid"),
        ("hang", Hang, "more than 0.05 s"),
        ("random", AssertionError, "'x' differs"),
    ],
)
def test_faults_are_found(kind, error, says):
    with pytest.raises(error, match=says) as caught:
        check(
            Case(broken, "page", {"kind": kind}), twice=True, seconds=0.05 if kind == "hang" else 9
        )
    assert kind_of(caught.value)


def test_attributes_are_looked_at():
    keys = frozenset(["tree_index", "tree_level", "tree_domain", "tree_pos", "tree_span"])
    with pytest.raises(AssertionError, match=r"attributes: .*text_x"):
        check(Case(from_text, "a b", keys=keys))
    assert check(Case(from_text, "...", keys=keys)) == "refused"


def test_processes_that_end_or_hang_cost_one_case(monkeypatch, tmp_path):
    def deadly(rng, folder):
        return Case(die, rng.choice(["live", "live", "live", "die", "hang", "stuck", "raise"]))

    monkeypatch.setitem(fuzz_builders.BUILDERS, "text", deadly)
    args = argparse.Namespace(out=tmp_path / "found", seconds=0.2, memory=0)
    log = fuzz_builders.fuzz("text", 865, range(8), args)
    assert sum(log.counts.values()) == 8
    numbers = {kind.split(" at ")[0]: found for kind, found in log.kinds.items()}
    drawn = [fuzz_builders.draw("text", 865, number, tmp_path).source for number in range(8)]
    assert numbers["the process ended with code 3"] == [
        i for i, s in enumerate(drawn) if s == "die"
    ]
    assert log.counts["tree"] == drawn.count("live")
    assert numbers["Hang"] == [i for i, s in enumerate(drawn) if s == "hang"]
    assert numbers["the process is stuck"] == [i for i, s in enumerate(drawn) if s == "stuck"]
    assert numbers["ZeroDivisionError"] == [i for i, s in enumerate(drawn) if s == "raise"]
    saved = [json.loads(path.read_text()) for path in (tmp_path / "found").iterdir()]
    assert {one["number"] for one in saved} >= {numbers["ZeroDivisionError"][0]}
    assert any("die('raise')" in one["call"] for one in saved)


def die(source):
    if source == "die":
        import os

        os._exit(3)
    if source == "hang":
        time.sleep(3)
    if source == "stuck":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as a call into C does
        time.sleep(30)
    if source == "raise":
        raise ZeroDivisionError
    return SignalTree.from_parents([-1])


def test_memory_is_limited(monkeypatch):
    def greedy(rng, folder):
        return Case(eat, 0)

    monkeypatch.setitem(fuzz_builders.BUILDERS, "text", greedy)
    args = argparse.Namespace(out=None, seconds=9.0, memory=256)
    log = fuzz_builders.fuzz("text", 0, range(2), args)
    assert log.counts == {"failed": 2}
    assert "MemoryError" in next(iter(log.kinds))


def eat(source):
    bytearray(2**30)
    return SignalTree.from_parents([-1])


def test_draws_from_bytes_repeat_and_end(folder):
    for builder in BUILDERS:
        for seed in range(5):
            data = random.Random(seed).randbytes(200)
            cases = [BUILDERS[builder](FromBytes(data), folder) for _ in range(2)]
            assert cases[0].options.keys() == cases[1].options.keys()
            check(cases[0])
        check(BUILDERS[builder](FromBytes(b""), folder))
    assert FromBytes(b"\xff" * 7).random() == 1 - 2**-53
    assert FromBytes(b"\x05").getrandbits(2) == 1


def test_mutations_change_most_files():
    files = fuzz_image.seed_files()
    assert len(files) > 100
    rng = random.Random(0)
    changed = [mutated_bytes(rng, file, files) != file for file in files]
    assert sum(changed) > 0.8 * len(files)


def test_command_line(capsys, tmp_path, monkeypatch):
    pages = list(fuzz_html.PAGES)
    monkeypatch.setattr(fuzz_html, "PAGES", pages)
    (tmp_path / "more.html").write_text("<p>more")
    argv = ["--cases", "5", "--builder", "html", "--pages", str(tmp_path), "--memory", "0"]
    assert fuzz_builders.main(argv) == 0
    assert "html: 5 cases from 0, seed 0: " in capsys.readouterr().out
    assert pages[-1] == "<p>more"
    assert fuzz_builders.main(["--only", "3", "--builder", "text"]) == 0
    assert "from_text(" in capsys.readouterr().out
