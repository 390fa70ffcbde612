"""Means under slots and sums along paths, against loops over nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.walk import leaf_paths, slot_means
from hsa_geo.testing import SHAPES, random_tree

shapes = pytest.mark.parametrize("shape", SHAPES)


def dense_means(tree: SignalTree) -> Tensor:
    """``[S, N]``, from the definition: 1/|B| at the leaves under the bottom node of slot B."""
    under = PlainTree.of(tree).under.double()
    return (under / under.sum(1, keepdim=True))[tree.plan.slot_bottom]


def dense_paths(tree: SignalTree) -> Tensor:
    """``[N, S - B]``: the slots above a leaf, itself among them, without the root."""
    return PlainTree.of(tree).under.double()[tree.plan.slot_bottom][tree.plan.num_trees :].t()


@shapes
def test_means(shape):
    tree = random_tree(1, shape=shape)
    x = torch.randn(tree.num_leaves, 2, 3, dtype=torch.float64)
    expected = torch.einsum("sn,nhd->shd", dense_means(tree), x)
    assert torch.allclose(slot_means(x, tree.plan), expected, atol=1e-14)


@shapes
def test_paths(shape):
    tree = random_tree(2, shape=shape)
    plan = tree.plan
    x = torch.randn(plan.num_slots - plan.num_trees, 2, 3, dtype=torch.float64)
    expected = torch.einsum("ns,shd->nhd", dense_paths(tree), x)
    assert torch.allclose(leaf_paths(x, plan), expected, atol=1e-14)


@shapes
def test_gradients_are_the_transposes(shape):
    tree = random_tree(3, shape=shape)
    plan = tree.plan
    for function, matrix in ((slot_means, dense_means(tree)), (leaf_paths, dense_paths(tree))):
        x = torch.randn(matrix.size(1), 2, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(matrix.size(0), 2, dtype=torch.float64)
        (grad,) = torch.autograd.grad((function(x, plan) * weight).sum(), x)
        assert torch.allclose(grad, matrix.t() @ weight, atol=1e-14)


def test_second_gradients():
    plan = random_tree(4, max_leaves=6, shape="mixed").plan
    for function, rows in (
        (slot_means, plan.num_leaves),
        (leaf_paths, plan.num_slots - plan.num_trees),
    ):
        x = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)

        def cube(x, function=function):
            return function(x, plan) ** 3

        assert torch.autograd.gradcheck(cube, x)
        assert torch.autograd.gradgradcheck(cube, x)


def test_inputs_and_gradients_are_left_as_they_are():
    """Both work in place, on copies of their own."""
    plan = random_tree(5, shape="mixed").plan
    x = torch.randn(plan.num_leaves, 2)
    y = torch.randn(plan.num_slots - plan.num_trees, 2)
    kept = x.clone(), y.clone()
    slot_means(x, plan), leaf_paths(y, plan)
    assert torch.equal(x, kept[0])
    assert torch.equal(y, kept[1])
    x.requires_grad_()
    weight = torch.randn(plan.num_slots, 2)
    before = weight.clone()
    slot_means(x, plan).backward(weight)
    assert torch.equal(weight, before)


def test_no_trees():
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    x = torch.randn(0, 2, requires_grad=True)
    assert slot_means(x, plan).shape == (0, 2)
    assert leaf_paths(x, plan).shape == (0, 2)
    (slot_means(x, plan).sum() + leaf_paths(x, plan).sum()).backward()
    assert x.grad.shape == (0, 2)
