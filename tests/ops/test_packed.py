"""Operators that make and read packed plans."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data.kept import PackedPlan
from hsa_geo.nn import subtree_mean
from hsa_geo.nn.pooling import hierarchical_mean
from hsa_geo.ops.packed import (
    _leaf_rows,
    _leaves_under,
    _pack,
    _packed_means,
    _pair_nodes,
    _pair_rows,
    leaves_under,
    num_leaves,
    num_pairs,
    packed_plan,
    tree_means,
)
from hsa_geo.testing import SHAPES, random_tree

pytest.importorskip("numba")


def forest(seed: int) -> Batch:
    shapes = [SHAPES[(seed + i) % len(SHAPES)] for i in range(3)]
    return Batch.from_data_list([random_tree(seed + i, shape=s) for i, s in enumerate(shapes)])


@pytest.mark.parametrize("seed", range(7))
def test_means_of_trees(seed):
    batch = forest(seed)
    x = torch.randn(batch.num_nodes, 2, 3, dtype=torch.float64)
    expected = torch.stack([x[batch.batch == b].mean(0) for b in batch.batch])
    plan = batch.plan
    packed = packed_plan(batch.tree_index, batch.tree_level, batch.num_nodes)
    assert torch.allclose(tree_means(x, plan), expected)
    assert torch.allclose(tree_means(x, packed), expected)
    one = random_tree(seed)
    y = torch.randn(one.num_leaves, 2, dtype=torch.float64)
    assert torch.allclose(tree_means(y, one.plan), y.mean(0).expand_as(y))


def test_a_packed_plan_is_that_of_the_tree():
    batch = forest(3)
    packed = packed_plan(batch.tree_index, batch.tree_level, batch.num_nodes)
    assert torch.equal(packed.packed, batch.plan.packed)
    assert packed.num_leaves == batch.num_nodes
    assert packed.num_nodes == batch.plan.num_nodes
    assert packed.device == torch.device("cpu")


def test_a_packed_plan_knows_its_pairs():
    batch = forest(4)
    packed = PackedPlan(batch.plan.packed, batch.num_nodes, batch.plan.num_nodes)
    assert num_pairs(packed) == num_pairs(batch.plan) == batch.plan.num_pairs > 0


@pytest.mark.parametrize("weighted", [False, True])
def test_leaves_under_nodes(weighted):
    batch = forest(5)
    if weighted:
        batch.leaf_weight = torch.randint(1, 5, (batch.num_nodes,))
    x = torch.randn(batch.num_nodes, 3, dtype=torch.float64)
    weight = batch.leaf_weight if weighted else None
    for nodes in (None, torch.randperm(batch.plan.num_nodes)[:7]):
        for equal_children, readout in ((False, subtree_mean), (True, hierarchical_mean)):
            index = (batch.tree_index, batch.tree_level, weight, nodes, equal_children)
            inside = _leaves_under(*index)
            of, row, share, k = leaves_under(batch.plan, nodes, equal_children)
            assert len(inside[3]) == k
            assert all(torch.equal(a, b) for a, b in zip(inside, (of, row, share)))
            mean = x.new_zeros(k, 3).index_add(0, of, x[row] * share[:, None])
            assert torch.allclose(mean, readout(x, batch, nodes))
            torch.library.opcheck(_leaves_under, index)


def test_number_of_leaves():
    for seed in range(5):
        batch = forest(seed)
        rows = _leaf_rows(batch.tree_index, batch.tree_level)
        assert rows.size(0) == num_leaves(batch) == batch.num_nodes
    torch.library.opcheck(_leaf_rows, (batch.tree_index, batch.tree_level))


def test_operators_are_registered_well():
    batch = forest(2)
    weight = torch.randint(1, 4, (batch.num_nodes,))
    for weights in (None, weight):
        torch.library.opcheck(_pack, (batch.tree_index, batch.tree_level, weights))
    x = torch.randn(batch.num_nodes, 2, 3)
    torch.library.opcheck(_packed_means, (x, batch.plan.packed))
    torch.library.opcheck(_pair_rows, (batch.plan.packed,))
    torch.library.opcheck(_pair_nodes, (batch.tree_index, batch.tree_level))
