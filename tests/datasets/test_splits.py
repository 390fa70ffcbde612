"""Splits: stratified, groups on one side, every example in one test set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.datasets.splits import deal, stratified_split
from hsa_geo.errors import ShapeError


@settings(max_examples=80, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    folds=st.integers(2, 5),
    seed=st.integers(0, 9),
    validation=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_folds_are_a_partition(labels, folds, seed, validation):
    tests = []
    for fold in range(folds):
        sets = stratified_split(labels, fold=fold, folds=folds, seed=seed, validation=validation)
        assert sorted(np.concatenate(sets).tolist()) == list(range(len(labels)))
        assert all((np.diff(part) > 0).all() for part in sets)
        assert validation or not len(sets[1])
        tests.append(sets[2])
    assert sorted(np.concatenate(tests).tolist()) == list(range(len(labels)))
    # Every class comes out even to within one example.
    for label in set(labels):
        counts = [sum(labels[i] == label for i in part) for part in tests]
        assert max(counts) - min(counts) <= 1


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 9))
def test_groups_stay_together(data, seed):
    n = data.draw(st.integers(1, 60))
    draw = st.lists(st.integers(0, 12), min_size=n, max_size=n)
    labels, groups = data.draw(draw), np.array(data.draw(draw)) * 1000 - 7
    sets = stratified_split(labels, groups, fold=1, folds=3, seed=seed, validation=0.3)
    sides = [set(groups[part].tolist()) for part in sets]
    assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]


def test_shares_of_rare_and_frequent_classes():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [2000, 600, 60])
    groups = rng.integers(0, 900, len(labels))
    for fold in range(5):
        _, validation, test = stratified_split(labels, groups, fold=fold, validation=0.25)
        for label, total in enumerate([2000, 600, 60]):
            assert (labels[test] == label).sum() == pytest.approx(total / 5, rel=0.1)
            assert (labels[validation] == label).sum() == pytest.approx(total * 0.2, rel=0.15)


def test_shares_of_single_examples_are_exact():
    part = deal(np.zeros(100), None, [0.9, 0.1])
    assert np.bincount(part).tolist() == [90, 10]
    assert np.bincount(deal(np.zeros(10), None, [1, 0, 1]), minlength=3).tolist() == [5, 0, 5]


def test_seed():
    labels = [0, 1] * 50
    a, b, c = (stratified_split(labels, seed=seed)[2].tolist() for seed in (0, 0, 1))
    assert a == b != c


def test_one_large_group_does_not_break_it():
    sets = stratified_split([0] * 10, [1] * 10, fold=0, folds=2, validation=0.5)
    assert sorted(map(len, sets)) == [0, 0, 10]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"fold": 5}, "fold=5 of folds=5"),
        ({"fold": -1}, "fold=-1"),
        ({"folds": 1}, "folds=1"),
        ({"validation": 1}, "validation=1"),
        ({"validation": float("nan")}, "validation=nan"),
        ({"groups": [1, 2, 3]}, "4 labels but 3 groups"),
        ({"groups": [[1], [2], [3], [4]]}, r"groups has shape \[4, 1\]"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ShapeError, match=message):
        stratified_split([0, 1, 0, 1], **kwargs)


@pytest.mark.parametrize("shares", [[], [0, 0], [1, -1], [float("nan")]])
def test_shares_that_are_none(shares):
    with pytest.raises(ShapeError, match="shares="):
        deal([0, 1], None, shares)


def test_nothing_to_split():
    assert [len(part) for part in stratified_split([], fold=0)] == [0, 0, 0]
