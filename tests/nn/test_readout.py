"""Means over the leaves under any nodes, against loops."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import ShapeError
from hsa_geo.nn import SubtreeReadout, subtree_mean
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import SHAPES, random_tree

shapes = pytest.mark.parametrize("shape", SHAPES)


def naive(x: torch.Tensor, tree) -> torch.Tensor:
    """``[M, ...]``: for each node the mean of the rows under it."""
    return torch.stack([x[under].mean(0) for under in PlainTree.of(tree).under])


@shapes
@pytest.mark.parametrize("seed", range(5))
def test_every_node(shape, seed):
    """Leaves, inner nodes, chains of single children, the root; in any order, repeated."""
    tree = random_tree(seed, shape=shape)
    x = torch.randn(tree.num_leaves, 3, dtype=torch.float64)
    nodes = torch.randint(tree.num_tree_nodes, (40,))
    nodes[: min(40, tree.num_tree_nodes)] = torch.randperm(tree.num_tree_nodes)[:40]
    assert torch.allclose(subtree_mean(x, tree, nodes), naive(x, tree)[nodes], atol=1e-12)


def test_leaves_come_back_and_the_root_is_the_default():
    tree = random_tree(7, shape="mixed")
    x = torch.randn(tree.num_leaves, 3)
    assert torch.equal(subtree_mean(x, tree, torch.arange(tree.num_leaves)), x)
    assert torch.allclose(subtree_mean(x, tree), x.mean(0, keepdim=True), atol=1e-6)


def test_nodes_of_a_contracted_chain():
    #  root 5 -> 4 -> 3 -> (0, 1, 2)
    tree = SignalTree.from_parents([3, 3, 3, 4, 5, -1])
    x = torch.tensor([[1.0], [2.0], [6.0]])
    assert tree.plan.num_slots == 4
    assert subtree_mean(x, tree, torch.tensor([3, 4, 5])).tolist() == [[3.0]] * 3
    chain = SignalTree.from_parents([1, 2, -1])
    assert subtree_mean(x[:1], chain, torch.arange(3)).tolist() == [[1.0]] * 3


def test_batches_and_their_node_ids():
    trees = [random_tree(seed) for seed in range(10)] + [random_tree(0, shape="single")]
    for seed, tree in enumerate(trees):
        tree.x = torch.randn(tree.num_leaves, 2, dtype=torch.float64)
        tree.form_node = torch.randint(tree.num_tree_nodes, (seed % 3 + 1,))
    batch = Batch.from_data_list(trees)
    assert torch.allclose(subtree_mean(batch.x, batch), torch.stack([t.x.mean(0) for t in trees]))
    expected = torch.cat([naive(t.x, t)[t.form_node] for t in trees])
    assert torch.allclose(subtree_mean(batch.x, batch, batch.form_node), expected)
    assert torch.allclose(subtree_mean(batch.x, batch.plan, batch.form_node), expected)


def test_ids_in_no_canonical_order():
    index = torch.tensor([[0, 0, 3, 3, 7, 7, 0], [6, 5, 4, 1, 3, 2, 8]])
    level = torch.tensor([0, 2, 1, 1, 2, 1, 1, 0, 1])
    plan = TreePlan.from_index(index, level)
    x = torch.randn(6, 2, dtype=torch.float64)  # leaves 1, 2, 4, 5, 6, 8
    mean = subtree_mean(x, plan, torch.tensor([0, 3, 7, 8]))
    expected = [x[[3, 4, 5]].mean(0), x[[0, 2]].mean(0), x[[0, 1, 2]].mean(0), x[5]]
    assert torch.allclose(mean, torch.stack(expected))


def test_gradients():
    tree = random_tree(8, max_leaves=8, shape="mixed")
    nodes = torch.tensor([tree.num_tree_nodes - 1, 0, tree.num_leaves, 0])
    x = torch.randn(tree.num_leaves, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: subtree_mean(x, tree, nodes), x)


def test_features_of_any_shape_and_type():
    tree = SignalTree.from_parents([2, 2, -1])
    assert subtree_mean(torch.tensor([1.0, 4.0]), tree).tolist() == [2.5]
    assert subtree_mean(torch.randn(2, 3, 4, 5), tree).shape == (1, 3, 4, 5)
    assert subtree_mean(torch.tensor([[1], [2]]), tree).tolist() == [[1.5]]
    assert subtree_mean(torch.empty(2, 0), tree).shape == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_that_overflow_half_precision(dtype):
    """65504 is the largest float16; bfloat16 loses ones added to 256."""
    tree = SignalTree.from_parents([1000] * 1000 + [-1])
    mean = subtree_mean(torch.full((1000, 1), 100.0, dtype=dtype), tree)
    assert mean.dtype == dtype
    assert mean.item() == 100.0


def test_no_nodes_and_no_trees():
    tree = SignalTree.from_parents([2, 2, -1])
    assert subtree_mean(torch.randn(2, 3), tree, torch.empty(0).long()).shape == (0, 3)
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    assert subtree_mean(torch.randn(0, 3), plan).shape == (0, 3)


@pytest.mark.parametrize(
    ("nodes", "quote"),
    [
        (torch.tensor([0, 7]), "holds 7, but the ids are 0..6"),
        (torch.tensor([-1]), "holds -1"),
        (torch.tensor([[0]]), r"shape \[1, 1\]"),
        (torch.tensor([0.0]), r"torch\.float32"),
        (torch.tensor([True]), r"torch\.bool"),
    ],
)
def test_nodes_that_are_none(nodes, quote):
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    with pytest.raises(ShapeError, match=quote):
        subtree_mean(torch.randn(4, 2), tree, nodes)


@pytest.mark.parametrize("rows", [3, 7])
def test_features_that_do_not_fit(rows):
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    with pytest.raises(ShapeError, match=rf"\[{rows}, 2\]"):
        subtree_mean(torch.randn(rows, 2), tree)
    with pytest.raises(ShapeError, match=r"\[\]"):
        subtree_mean(torch.tensor(1.0), tree)
    with pytest.raises(ShapeError, match="x is of type list"):
        subtree_mean([1.0] * 4, tree)
    with pytest.raises(ShapeError, match="nodes is of type list"):
        subtree_mean(torch.randn(4, 2), tree, [4, 5])


def test_as_a_module():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    x, nodes = torch.randn(4, 2), torch.tensor([4, 6])
    assert torch.equal(SubtreeReadout()(x, tree, nodes), subtree_mean(x, tree, nodes))
    assert torch.equal(SubtreeReadout()(x, tree), subtree_mean(x, tree))
