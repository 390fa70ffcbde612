"""The attention-free baseline."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import ShapeError
from hsa_geo.nn import DeepSetConv
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def tree_with(seed: int, shape: str = "mixed") -> SignalTree:
    tree = random_tree(seed, shape=shape)
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, 6, generator=generator)
    return tree


def test_by_hand():
    tree = tree_with(0)
    conv = DeepSetConv(6, 4, heads=2)
    nn.init.normal_(conv.bias)
    own, mean, top = (tree.x @ w.t() for w in conv.lin.weight.chunk(3))
    expected = own + mean.mean(0) + top.amax(0) + conv.bias
    assert torch.allclose(conv(tree.x, tree), expected, atol=1e-5)


def test_the_hierarchy_and_the_order_of_leaves_do_not_count():
    tree = tree_with(1)
    conv = DeepSetConv(6, 4)
    n = tree.num_leaves
    flat = SignalTree.from_parents([n] * n + [-1])
    out = conv(tree.x, tree)
    assert torch.allclose(conv(tree.x, flat), out, atol=1e-6)
    order = torch.randperm(n)
    assert torch.allclose(conv(tree.x[order], flat), out[order], atol=1e-5)


def test_a_forest_equals_its_trees():
    trees = [tree_with(seed) for seed in range(6)] + [tree_with(0, "single")]
    conv = DeepSetConv(6, 4, heads=2)
    assert_forest_equals_trees(lambda tree: conv(tree.x, tree), trees, atol=1e-5)


def test_negative_features_keep_their_maximum():
    """A pooled maximum that starts from zero would hide them."""
    tree = SignalTree.from_parents([2, 2, -1])
    conv = DeepSetConv(1, 1, bias=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
    out = conv(torch.tensor([[-5.0], [-3.0]]), tree)
    assert out.tolist() == [[-3.0], [-3.0]]


def test_trees_whose_leaves_interleave():
    index = torch.tensor([[4, 4, 5, 5], [0, 2, 1, 3]])
    plan = TreePlan.from_index(index, torch.tensor([1, 1, 1, 1, 0, 0]))
    conv, one = DeepSetConv(6, 4), SignalTree.from_parents([2, 2, -1])
    x = torch.randn(4, 6)
    assert torch.allclose(conv(x, plan)[[1, 3]], conv(x[[1, 3]], one), atol=1e-6)


def test_gradients_no_trees_and_lazy_sizes():
    batch = Batch.from_data_list([tree_with(seed) for seed in range(3)])
    conv = DeepSetConv(-1, 4, heads=2)
    conv(batch.x, batch).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    assert conv(torch.randn(0, 6), plan).shape == (0, 8)


def test_what_is_refused():
    tree = tree_with(3)
    with pytest.raises(ShapeError, match=r"give \[N, 6\]"):
        DeepSetConv(6, 4)(torch.randn(tree.num_leaves, 5), tree)
    with pytest.raises(ShapeError, match=rf"N={tree.num_leaves} leaves"):
        DeepSetConv(6, 4)(torch.randn(tree.num_leaves + 1, 6), tree)


def test_reset_and_repr():
    conv = DeepSetConv(6, 4, heads=2)
    for parameter in conv.parameters():
        nn.init.constant_(parameter, 0.123)
    conv.reset_parameters()
    assert not any((p == 0.123).all() for p in conv.parameters())
    assert repr(conv) == "DeepSetConv(6, 4, heads=2)"
    assert DeepSetConv(6, 4, bias=False).bias is None
