"""Fields of a plan, against the definitions; what uses them is tested in test_plan.py."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.data.indexing import plan_fields
from hsa_geo.testing import SHAPES, random_tree


@pytest.mark.parametrize("shape", SHAPES)
def test_groups_hold_the_children_of_branching_nodes(shape):
    for seed in range(4):
        tree = random_tree(seed, shape=shape)
        fields = plan_fields(tree.tree_index, tree.tree_level)
        children: dict[int, list[int]] = {}
        for above, below in tree.tree_index.t().tolist():
            children.setdefault(above, []).append(below)
        expected = {node: below for node, below in children.items() if len(below) > 1}
        bottom, top = fields["slot_bottom"].tolist(), fields["slot_top"].tolist()
        bounds = fields["group_ptr"].tolist()
        actual = {
            bottom[parent]: top[low:high]
            for parent, low, high in zip(fields["group_parent"].tolist(), bounds, bounds[1:])
        }
        assert actual == expected
        assert fields["group_sizes"] == tuple(len(actual[key]) for key in actual)
        assert fields["num_pairs"] == sum(len(b) * (len(b) - 1) for b in expected.values())


def test_edges_in_any_order_give_the_same_fields():
    tree = random_tree(5, shape="mixed")
    key = torch.rand(tree.num_tree_nodes)[tree.tree_index[0]]
    order = torch.argsort(key, stable=True)  # siblings stay in order
    assert not torch.equal(order, order.sort().values)
    shuffled = tree.tree_index[:, order]
    whole, again = (plan_fields(index, tree.tree_level) for index in (tree.tree_index, shuffled))
    for name, value in whole.items():
        same = torch.equal(value, again[name]) if torch.is_tensor(value) else value == again[name]
        assert same, name


def test_no_trees_and_one_leaf():
    none = plan_fields(torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    assert none["num_leaves"] == none["num_trees"] == none["num_pairs"] == 0
    one = plan_fields(torch.empty(2, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    assert (one["num_leaves"], one["num_trees"], one["count"].tolist()) == (1, 1, [1])


def test_a_plan_has_these_fields():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    plan = TreePlan.from_index(tree.tree_index, tree.tree_level)
    for name, value in plan_fields(tree.tree_index, tree.tree_level).items():
        mine = getattr(plan, name)
        assert torch.equal(mine, value) if torch.is_tensor(value) else mine == value
