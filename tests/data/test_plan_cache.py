"""The cached plan belongs to the very tensors it was made from."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.errors import TreeError


def weighted() -> SignalTree:
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    tree.leaf_weight = torch.tensor([1, 2, 3, 1])
    return tree


def test_a_plan_is_made_once():
    tree = weighted()
    assert tree.plan is tree.plan
    assert tree.clone().plan is not tree.plan


@pytest.mark.parametrize("key", ["tree_index", "tree_level", "leaf_weight"])
def test_other_tensors_and_changed_ones_make_another(key):
    tree = weighted()
    before = tree.plan
    tree[key] = tree[key].clone()
    other = tree.plan
    assert other is not before
    tree[key].add_(0)
    assert tree.plan is not other


def test_it_moves_along_with_all_it_was_made_from():
    tree = weighted()
    plan = tree.plan
    assert tree.to("cpu").plan.leaf_weight.tolist() == plan.leaf_weight.tolist()
    tree.to("cpu", "tree_index", "tree_level")  # without the weights
    assert tree.plan.mass.tolist() == plan.mass.tolist()


def test_a_tree_without_hierarchy_has_none():
    with pytest.raises(TreeError, match="no tree_index and tree_level"):
        _ = SignalTree(x=torch.zeros(2, 1)).plan
