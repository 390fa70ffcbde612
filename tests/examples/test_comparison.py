from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import comparison_work
import numpy as np
import pytest
from comparison import Job, Record, exit_code, positive, positive_rate, recipe_key, run_jobs
from comparison_statistics import Hits, compare, hits, interval
from comparison_table import markdown, rows_of, save_report, show, shown
from rich.console import Console

from hsa_geo.errors import DiskFullError, ShapeError

EXAMPLES = str(Path(__file__).parents[2] / "examples")


@pytest.fixture(autouse=True)
def processes_find_the_modules(monkeypatch):
    path = os.pathsep.join([EXAMPLES, str(Path(__file__).parent)])
    monkeypatch.setenv("PYTHONPATH", path)


def records(variant: str, right: np.ndarray, first_seed: int = 0) -> list[Record]:
    """Records of one fold for hits ``[seeds, items]``."""
    items = list(range(right.shape[1]))
    return [
        Record(variant, 0, first_seed + s, items, row.astype(int).tolist(), [1] * len(items))
        for s, row in enumerate(right)
    ]


# Runs #############################################################################################


def test_runs_are_kept_and_not_repeated(tmp_path):
    jobs = [Job("a", fold, seed) for seed in (0, 4) for fold in (0, 1)]
    first = run_jobs(jobs, comparison_work.guess, tmp_path, arguments=(0.7,))
    assert [(r.variant, r.fold, r.seed) for r in first] == [("a", j.fold, j.seed) for j in jobs]
    assert len({r.parameters for r in first} | {os.getpid()}) == 5  # every run in its own process
    assert {r.epochs for r in first} == {max(1, (os.cpu_count() or 1) // 2)}  # threads
    # The runs of seed 4 held 200 MB more, and their records say so of them alone.
    assert min(r.peak_bytes for r in first[2:]) > max(r.peak_bytes for r in first[:2]) + 1e8
    assert all(r.seconds > 0 for r in first)
    second = run_jobs(jobs, comparison_work.guess, tmp_path, arguments=(0.7,))
    assert list(map(repr, second)) == list(map(repr, first))  # NaN equals no NaN
    assert not list(tmp_path.glob("*.part"))

    (tmp_path / jobs[1].file).write_text("{half")
    (tmp_path / jobs[2].file).write_text(json.dumps({"schema": 0}))
    (tmp_path / jobs[3].file).write_text((tmp_path / jobs[0].file).read_text())
    again = run_jobs(jobs, comparison_work.guess, tmp_path, arguments=(0.7,))
    assert repr(again[0]) == repr(first[0])
    assert all(a.parameters != b.parameters for a, b in zip(again[1:], first[1:]))
    assert [r.predicted for r in again] == [r.predicted for r in first]


def test_a_record_of_another_recipe_is_made_anew(tmp_path):
    jobs, made = [Job("a"), Job("b")], []
    for second in ("x", "x", "y"):
        recipes = {"a": "w", "b": second}
        records = run_jobs(
            jobs,
            comparison_work.guess,
            tmp_path,
            arguments=(0.5,),
            recipe=lambda job, recipes=recipes: recipes[job.variant],
        )
        made.append([record.parameters for record in records])
    assert made[0] == made[1]
    assert made[2][0] == made[1][0]
    assert made[2][1] != made[1][1]


def test_what_was_finished_before_a_failure_stays(tmp_path):
    jobs = [Job("a", fold) for fold in (0, 1)]
    with pytest.raises(RuntimeError, match="fold 1 breaks"):
        run_jobs(jobs, comparison_work.fail_on_fold_one, tmp_path, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == [jobs[0].file]


def test_a_full_disk_leaves_nothing_half_written(tmp_path):
    with pytest.raises(DiskFullError):
        run_jobs([Job("a")], comparison_work.fill_the_disk, tmp_path)
    with pytest.raises(OSError, match="File too large"):
        run_jobs([Job("b")], comparison_work.leave_little_room, tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_of_the_command_line():
    assert (positive("3"), positive_rate("1e-3")) == (3, 0.001)
    for read, texts in ((positive, ("0", "-1", "x")), (positive_rate, ("0", "nan", "inf", "x"))):
        for text in texts:
            with pytest.raises((argparse.ArgumentTypeError, ValueError)):
                read(text)


def test_expected_errors_are_one_line(capsys):
    def fails(error):
        raise error

    assert exit_code(lambda: None) == 0
    for error in (ShapeError("two\nlines"), OSError("two lines")):
        assert exit_code(lambda error=error: fails(error)) == 1
        assert capsys.readouterr() == ("", "error: two lines\n")
    with pytest.raises(ZeroDivisionError):
        exit_code(lambda: fails(ZeroDivisionError()))


def test_recipes():
    assert recipe_key({"a": 1}, Job("b")) == recipe_key({"a": 1}, Job("b"))
    assert len({recipe_key({"a": 1}), recipe_key({"a": 2}), recipe_key(Job("b"))}) == 3
    assert recipe_key({"a": Job("b")}) != recipe_key({"a": Job("c")})


# Statistics #######################################################################################


def test_folds_of_a_seed_are_put_together():
    rows = [
        Record("a", 0, 0, [3, 1], [1, 0], [1, 1]),
        Record("a", 1, 0, [2, 0], [5, 5], [5, 5]),
        Record("b", 0, 0, [0], [0], [0]),
    ]
    found = hits(rows, "a")
    assert found.items.tolist() == [0, 1, 2, 3]
    assert found.right.tolist() == [[1, 0, 1, 1]]
    assert found.accuracy.tolist() == [0.75]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (Record("a", 1, 0, [0], [1], [1]), "tested an item twice"),
        (Record("a", 0, 1, [0, 2], [1, 1], [1, 1]), "not tested on the items of others"),
    ],
)
def test_folds_that_do_not_fit(more, match):
    with pytest.raises(ValueError, match=match):
        hits([Record("a", 0, 0, [0, 1], [1, 1], [1, 1]), more], "a")


def test_variants_that_do_not_fit():
    with pytest.raises(ValueError, match="no record of 'b'"):
        hits(records("a", np.ones((1, 3))), "b")
    one, other = np.ones((1, 3)), np.ones((1, 4))
    with pytest.raises(ValueError, match="same items"):
        compare(Hits(one, np.arange(3), (0,)), Hits(other, np.arange(4), (0,)))


def drawn(n, share_a, share_b, seeds, rng):
    """Two models that agree on nothing, on n items."""
    a = (rng.random((seeds, n)) < share_a).astype(float)
    b = (rng.random((seeds, n)) < share_b).astype(float)
    return Hits(a, np.arange(n), tuple(range(seeds))), Hits(b, np.arange(n), tuple(range(seeds)))


def test_intervals_cover_what_they_say():
    """Equal models: 95% intervals miss zero, and p < 0.05, in about one draw of twenty."""
    rng = np.random.default_rng(1)
    gaps = [compare(*drawn(200, 0.7, 0.7, 1, rng), draws=500) for _ in range(150)]
    assert 1 <= sum(gap.real for gap in gaps) <= 18
    assert 1 <= sum(gap.p < 0.05 for gap in gaps) <= 18
    width = np.mean([gap.high - gap.low for gap in gaps])
    assert abs(width - 2 * 1.96 * np.sqrt(2 * 0.7 * 0.3 / 200)) < 0.01


def test_a_real_difference_is_found():
    gap = compare(*drawn(2000, 0.8, 0.7, 3, np.random.default_rng(0)))
    assert abs(gap.mean - 0.1) < 0.03
    assert gap.low < gap.low90 < gap.mean < gap.high90 < gap.high
    assert gap.real
    assert gap.p < 0.001
    assert not gap.equivalent(0.05)
    assert gap.not_worse(0.015)


def test_equal_models_are_equivalent_only_with_enough_items():
    rng = np.random.default_rng(0)
    assert compare(*drawn(20_000, 0.8, 0.8, 3, rng)).equivalent(0.015)
    few = compare(*drawn(200, 0.8, 0.8, 1, rng))
    assert not few.equivalent(0.015)
    assert not few.real


def test_a_model_equals_itself():
    one, _ = drawn(100, 0.8, 0.8, 1, np.random.default_rng(0))
    gap = compare(one, one)
    assert (gap.mean, gap.low, gap.high, gap.p) == (0, 0, 0, 1)


def test_groups_widen_the_interval():
    """Ten copies of the same item say no more than one."""
    rng = np.random.default_rng(0)
    a, b = drawn(100, 0.8, 0.7, 1, rng)
    often = [Hits(np.repeat(h.right, 10, 1), np.arange(1000), (0,)) for h in (a, b)]
    once, alone = compare(a, b), compare(*often)
    grouped = compare(*often, group=np.repeat(np.arange(100), 10))
    assert grouped.mean == pytest.approx(once.mean)
    assert (grouped.low, grouped.high) == pytest.approx((once.low, once.high))
    assert grouped.p == pytest.approx(once.p)
    assert alone.high - alone.low < 0.5 * (grouped.high - grouped.low)


def test_seeds_that_differ_widen_the_interval():
    rng = np.random.default_rng(0)
    steady = np.repeat((np.arange(1000) < 700)[None].astype(float), 4, 0)
    moody = np.stack([(rng.random(1000) < s) for s in (0.5, 0.6, 0.8, 0.9)]).astype(float)
    items, seeds = np.arange(1000), tuple(range(4))
    other = Hits(steady[:, rng.permutation(1000)], items, seeds)
    calm = compare(Hits(steady, items, seeds), other)
    wild = compare(Hits(moody, items, seeds), other)
    assert wild.high - wild.low > 2 * (calm.high - calm.low)


@pytest.mark.parametrize("seeds", [1, 2])
def test_drawn_seeds_are_spread_as_new_ones_would_be(seeds):
    """Items do not matter; of two seeds, the one, the other or both are drawn."""
    right = np.array([[0.6], [0.8]])[:seeds].repeat(50, 1)
    one = Hits(right, np.arange(50), tuple(range(seeds)))
    low, high = interval(one)
    # Their standard deviation is 0.141; of the draws without a correction it would be 0.1.
    around = 0.1 * np.sqrt(2) if seeds == 2 else 0.0
    assert (low, high) == pytest.approx((right.mean() - around, right.mean() + around))


def test_intervals_cover_what_they_say_where_seeds_differ():
    """200 experiments of four seeds each of two equally good models, whose seeds differ."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        easy = 0.7 + rng.normal(0, 0.1, 300)
        two = []
        for _ in range(2):
            chance = easy + rng.normal(0, 0.05, (4, 1))
            right = (rng.random((4, 300)) < chance).astype(float)
            two.append(Hits(right, np.arange(300), (0, 1, 2, 3)))
        covered += not compare(*two, draws=400).real
    assert 0.9 <= covered / 200 <= 0.99


@pytest.mark.parametrize("draws", [1, 499, 501, 1200])
def test_there_are_exactly_so_many_draws(draws):
    a, b = drawn(50, 1.0, 0.0, 1, np.random.default_rng(0))
    assert compare(a, b, draws=draws).p == 1 / (draws + 1)


def test_no_draws():
    a, b = drawn(50, 0.7, 0.7, 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="draws=0: at least 1"):
        compare(a, b, draws=0)


def test_interval_of_one_model():
    low, high = interval(Hits(np.r_[np.ones(700), np.zeros(300)][None], np.arange(1000), (0,)))
    assert low < 0.7 < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 1000), rel=0.1)


# Tables ###########################################################################################


def test_options_in_a_title():
    assert shown({}) == ""
    assert shown({"labels": "groups", "max_words": 1000}) == "labels=groups, max_words=1000"


def test_tables(tmp_path):
    rng = np.random.default_rng(0)
    a, b = drawn(500, 0.9, 0.6, 3, rng)
    every = records("hsa", a.right) + records("flat", b.right)
    for record in every:
        record.parameters, record.seconds_per_epoch, record.peak_bytes = 1234, 1.5, 2 * 10**9
    rows = rows_of(every, {"hsa": "HSA", "flat": "flat", "never": "not run"}, "hsa")
    assert [row.variant for row in rows] == ["hsa", "flat"]
    assert rows[0].gap is None
    assert rows[1].gap.high < -0.2
    assert rows[1].sd == pytest.approx(b.accuracy.std(ddof=1))

    text = markdown(rows)
    lines = text.splitlines()
    assert lines[0].startswith("| model | accuracy | sd | runs | minus HSA | p (items) |")
    assert len({line.count("|") for line in lines}) == 1
    assert "| flat | 0." in lines[3]
    assert lines[3].endswith("| < 0.001 | 1,234 | 1.5 | 2.0 |")
    with (tmp_path / "out.txt").open("w") as out:
        show(rows, "All", Console(file=out, width=160))
    assert "1,234" in (tmp_path / "out.txt").read_text()

    save_report(tmp_path / "report.json", {"all": rows}, [0, 1, 2], settings={"channels": 8})
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["settings"] == {"channels": 8}
    assert report["tables"]["all"][1]["gap"]["mean"] == pytest.approx(rows[1].gap.mean)
    assert {"torch", "hsa_geo"} <= report["versions"].keys()
