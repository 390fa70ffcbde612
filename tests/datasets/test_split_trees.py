"""Sets of any dataset: the given ones, and folds by class and group."""

import inspect

import numpy as np
import pytest
import torch

from hsa_geo import datasets
from hsa_geo.data import SignalTree
from hsa_geo.datasets import StoredTrees
from hsa_geo.datasets.in_memory import TreesInMemory
from hsa_geo.datasets.split_trees import SplitTrees
from hsa_geo.datasets.splits import stratified_split
from hsa_geo.errors import ShapeError, UnsupportedError


def dataset_of(kind=SplitTrees, count=40, **columns):
    dataset = kind()
    trees = [
        SignalTree.from_parents([1, -1], **{key: make(i) for key, make in columns.items()})
        for i in range(count)
    ]
    dataset.data, dataset.slices = dataset.collate(trees)
    return dataset


def number(make):
    return lambda i: torch.tensor([make(i)])


def lists(sets):
    return [rows.tolist() for rows in sets]


def test_every_dataset_splits_in_the_same_way():
    kinds = [
        kind
        for kind in vars(datasets).values()
        if isinstance(kind, type) and issubclass(kind, TreesInMemory)
    ]
    assert len(kinds) >= 13
    assert all(issubclass(kind, StoredTrees) for kind in kinds)
    assert all(kind.split is SplitTrees.split for kind in kinds)


def test_every_dataset_takes_the_same_arguments():
    """Those of StoredTrees, in its order; what a dataset has besides stands behind the folder."""
    wanted = list(inspect.signature(StoredTrees).parameters)
    for kind in vars(datasets).values():
        if isinstance(kind, type) and issubclass(kind, StoredTrees):
            names = list(inspect.signature(kind).parameters)
            own = [name for name in names if name not in wanted]
            assert [name for name in names if name in wanted] == wanted, kind.__name__
            assert names == [wanted[0], *own, *wanted[1:]], kind.__name__


def test_folds_by_class_and_group():
    dataset = dataset_of(y=number(lambda i: i % 2), group_id=number(lambda i: i // 4))
    labels, groups = np.arange(40) % 2, np.arange(40) // 4
    for fold in range(5):
        sets = dataset.split(fold, seed=3, validation=0.25)
        assert lists(sets) == lists(
            stratified_split(labels, groups, fold=fold, seed=3, validation=0.25)
        )
        assert labels[sets[2]].mean() == 0.5
        assert sum(len(np.unique(groups[rows])) for rows in sets) == 10


def test_without_groups_each_tree_is_its_own():
    dataset = dataset_of(y=number(lambda i: i % 4))
    assert lists(dataset.split(1)) == lists(stratified_split(np.arange(40) % 4, fold=1))


def test_another_key_of_groups():
    class Pages(SplitTrees):
        group_key = "domain_id"

    dataset = dataset_of(Pages, domain_id=number(lambda i: i % 8), group_id=number(lambda i: i))
    train, validation, test = dataset.split(0, folds=4, validation=0.2)
    assert not set(test % 8) & set(train % 8)
    assert not set(validation % 8) & set(train % 8)
    assert len(test) == 10


@pytest.mark.parametrize(
    "y",
    [
        lambda i: torch.eye(8)[[i % 8]],  # several classes at once
        lambda i: torch.tensor([i / 7]),  # a number
        lambda i: torch.tensor([[i % 2, 1]]),
    ],
)
def test_labels_that_are_no_single_class_are_not_stratified(y):
    dataset = dataset_of(y=y)
    assert lists(dataset.split(2)) == lists(stratified_split([0] * 40, fold=2))
    without = dataset_of(doc_id=number(lambda i: i))
    assert lists(without.split(2)) == lists(dataset.split(2))


def test_given_sets():
    dataset = dataset_of(y=number(lambda i: i % 2), split=number(lambda i: i % 3))
    assert lists(dataset.split()) == [list(range(k, 40, 3)) for k in range(3)]
    assert lists(dataset.split(validation=0.5, seed=9)) == lists(dataset.split())
    part = dataset[30:]
    assert lists(part.split()) == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert len(dataset[:1].split()[1]) == 0  # this part has none


def test_a_validation_set_is_drawn_where_none_is_given():
    columns = {
        "y": number(lambda i: i % 2),
        "group_id": number(lambda i: i // 4),
        "split": number(lambda i: 2 * (i >= 32)),
    }
    train, validation, test = dataset_of(**columns).split(validation=0.25)
    assert test.tolist() == list(range(32, 40))
    assert len(validation) == 8
    assert not set(train // 4) & set(validation // 4)
    assert sorted([*train, *validation]) == list(range(32))

    class Given(SplitTrees):
        validation_given = True

    assert len(dataset_of(Given, **columns).split()[1]) == 0


def test_trees_of_no_set_are_left_out():
    dataset = dataset_of(split=number(lambda i: i % 4 - 1))
    assert lists(dataset.split()) == [list(range(k, 40, 4)) for k in (1, 2, 3)]


@pytest.mark.parametrize("columns", [{}, {"split": number(lambda i: -1)}])
def test_no_given_sets(columns):
    with pytest.raises(UnsupportedError, match="SplitTrees comes without a test set: pass a fold"):
        dataset_of(y=number(lambda i: i % 2), **columns).split()


def test_arguments_out_of_range():
    dataset = dataset_of(y=number(lambda i: i % 2), split=number(lambda i: i % 3))
    for fold in (None, 0):
        with pytest.raises(ShapeError, match=r"validation=1\.5 is no share"):
            dataset.split(fold, validation=1.5)
    with pytest.raises(ShapeError, match="fold=5 of folds=5"):
        dataset.split(5)


def test_the_signature_is_documented():
    names = list(inspect.signature(SplitTrees.split).parameters)
    assert names == ["self", "fold", "folds", "seed", "validation"]
