"""The layer in which no leaf sees another."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import ShapeError
from hsa_geo.nn import HSAConv, LeafConv
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def tree_with(seed: int) -> SignalTree:
    tree = random_tree(seed, shape="mixed")
    tree.x = torch.randn(tree.num_leaves, 6, generator=torch.Generator().manual_seed(seed))
    return tree


def test_by_hand():
    tree, conv = tree_with(0), LeafConv(6, 4, heads=2)
    nn.init.normal_(conv.bias)
    own, gate, gated = (tree.x @ w.t() for w in conv.lin.weight.chunk(3))
    expected = own + nn.functional.gelu(gate) * gated + conv.bias
    assert torch.allclose(conv(tree.x, tree), expected, atol=1e-5)


def test_no_leaf_sees_another():
    tree, conv = tree_with(1), LeafConv(6, 4)
    x = tree.x.requires_grad_()
    (grad,) = torch.autograd.grad(conv(x, tree)[0].sum(), x)
    assert (grad[0] != 0).all()
    assert (grad[1:] == 0).all()


def test_a_forest_equals_its_trees_and_no_trees():
    conv = LeafConv(6, 4, heads=2)
    assert_forest_equals_trees(lambda tree: conv(tree.x, tree), [tree_with(s) for s in range(5)])
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    assert conv(torch.randn(0, 6), plan).shape == (0, 8)


def test_as_many_parameters_as_hsa_conv():
    sizes = [sum(p.numel() for p in cls(6, 4, heads=2).parameters()) for cls in (LeafConv, HSAConv)]
    assert sizes[0] == sizes[1]


def test_gradients_and_lazy_sizes():
    batch = Batch.from_data_list([tree_with(seed) for seed in range(3)])
    conv = LeafConv(-1, 4, heads=2)
    conv(batch.x, batch).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())


def test_what_is_refused():
    tree = tree_with(3)
    with pytest.raises(ShapeError, match=r"give \[N, 6\]"):
        LeafConv(6, 4)(torch.randn(tree.num_leaves, 5), tree)
    with pytest.raises(ShapeError, match=rf"N={tree.num_leaves} leaves"):
        LeafConv(6, 4)(torch.randn(tree.num_leaves + 1, 6), tree)


def test_reset_and_repr():
    conv = LeafConv(6, 4, heads=2)
    for parameter in conv.parameters():
        nn.init.constant_(parameter, 0.123)
    conv.reset_parameters()
    assert not any((p == 0.123).all() for p in conv.parameters())
    assert repr(conv) == "LeafConv(6, 4, heads=2)"
    assert LeafConv(6, 4, bias=False).bias is None
