"""Padded blocks: every group size, padding without weight, groups split over buckets."""

from __future__ import annotations

import pytest
import torch
from op_cases import Case, answer, assert_close, draw_mask, error, inputs_for
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, buckets
from hsa_geo.ops import attention_weights, block, hsa_attention
from hsa_geo.ops.block import _Pad, _public_pairs, _Unpad
from hsa_geo.testing import random_qkv, random_tree

energies = pytest.mark.parametrize("energy", ["dot", "l2"])


def ragged(sizes: list[int]) -> SignalTree:
    """A root above groups of the given numbers of leaves; size 1 is a leaf of the root."""
    parents, base = [], sum(sizes)
    inner = [size for size in sizes if size > 1]
    root, number = base + len(inner), 0
    for size in sizes:
        parents += [root] if size == 1 else [base + number] * size
        number += size > 1
    return SignalTree.from_parents([*parents, *[root] * len(inner), -1])


def full_case(tree: SignalTree, energy: str = "dot") -> Case:
    tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=1, seed=0)
    return Case(tree, tensors, draw_mask(tree.plan, 2, 0.3, 0), energy)


@energies
def test_groups_of_every_size(energy):
    """2 to 40 in one tree, most of them padded; with positions, bias and mask."""
    tree = ragged([1, 1, *range(2, 41)])
    assert any(bucket.padded for bucket in tree.plan.buckets)
    assert any(not bucket.padded for bucket in tree.plan.buckets)
    case = full_case(tree, energy)
    assert_close(answer(case, "block"), answer(case, "edge"), 1e-12)


@pytest.mark.parametrize("size", [2, 3, 7, 9, 11, 17, 33, 129])
def test_one_group_against_the_oracle(size):
    case = full_case(SignalTree.from_parents([size] * size + [-1]))
    assert_close(answer(case, "block"), answer(case, None), 1e-10)


def test_padding_takes_no_weight():
    """A group alone, and next to a wider one of the same bucket."""
    alone, wider = ragged([9]), ragged([10])
    q, k, v = random_qkv(alone, seed=1)
    q = q.abs() * 10  # padding repeats or invents rows: large scores would show them
    batch = Batch.from_data_list([alone, wider])
    assert len(batch.plan.buckets) == 1
    assert batch.plan.buckets[0].padded
    many = [torch.cat([t, other]) for t, other in zip((q, k, v), random_qkv(wider, seed=2))]
    out = hsa_attention(*many, batch, backend="block")[:9]
    assert error(out, hsa_attention(q, k, v, alone, backend="block")) < 1e-14


def test_buckets_split_to_bound_memory(monkeypatch):
    tree = ragged([1, *range(2, 12), *range(2, 12), *range(2, 12)])
    expected = answer(full_case(tree), "block")
    whole = len(tree.plan.buckets)
    monkeypatch.setattr(buckets, "MAX_PAIRS", 130)
    again = SignalTree.from_parents(ragged_parents(tree))
    assert len(again.plan.buckets) > whole
    assert_close(answer(full_case(again), "block"), expected, 1e-12)


def ragged_parents(tree: SignalTree) -> torch.Tensor:
    parents = torch.full((tree.num_tree_nodes,), -1)
    parents[tree.tree_index[1]] = tree.tree_index[0]
    return parents


def test_public_pairs_name_each_pair_once():
    plan = ragged([1, 2, 5, 9, 9, 10]).plan
    seen = torch.zeros(plan.num_pairs, dtype=torch.int64)
    for bucket in plan.buckets:
        w = bucket.slots.size(1)
        public = _public_pairs(bucket)
        real = bucket.valid[:, :, None] & bucket.valid[:, None, :]
        real &= ~torch.eye(w, dtype=torch.bool)
        seen.index_add_(0, public[real], torch.ones_like(public[real]))
        b, c = plan.slot_top[bucket.slots][:, :, None], plan.slot_top[bucket.slots][:, None, :]
        assert torch.equal(plan.pair_nodes[0, public[real]], b.expand(-1, w, w)[real])
        assert torch.equal(plan.pair_nodes[1, public[real]], c.expand(-1, w, w)[real])
    assert (seen == 1).all()


def test_pad_and_unpad_are_transposes_of_each_other():
    row = torch.tensor([4, 0, 2])
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    padded = _Pad.apply(x, row, 5)
    assert torch.equal(padded[row], x)
    assert padded[[1, 3]].abs().max() == 0
    assert torch.equal(_Unpad.apply(y, row), y[row])
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: _Pad.apply(x, row, 5) ** 3, x)
        assert check(lambda y: _Unpad.apply(y, row) ** 3, y)


def test_values_of_no_width():
    """Weights and energies are asked for without values."""
    tree = random_tree(3, shape="mixed")
    q, k, _ = random_qkv(tree)
    pair = {b: attention_weights(q, k, tree, backend=b).pair for b in ("edge", "block")}
    assert error(pair["block"], pair["edge"]) < 1e-14


@energies
@pytest.mark.parametrize("size", [5, 9, 20])
def test_wide_groups_some_rows_at_a_time(size, energy, monkeypatch):
    """With positions, bias and mask, forward, gradient and second derivative."""
    case = full_case(ragged([size, 1, size - 1]), energy)
    expected = answer(case, "block")
    monkeypatch.setattr(block, "MAX_PAIRS", 2 * size)
    assert_close(answer(case, "block"), expected, 1e-12)
    q, k, v = (case.tensors[name].clone().requires_grad_() for name in "qkv")

    def penalty():
        out = hsa_attention(q, k, v, case.tree, energy=energy, backend="block")
        (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (q, k, v))

    some = penalty()
    monkeypatch.undo()
    for actual, whole in zip(some, penalty()):
        assert error(actual, whole) < 1e-12


def test_memory_of_a_wide_group_does_not_grow_with_its_square(monkeypatch):
    """What is kept for the gradient: no tensor with b x b numbers."""
    tree = SignalTree.from_parents([60] * 60 + [-1])
    monkeypatch.setattr(block, "MAX_PAIRS", 120)
    kept = []
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        hsa_attention(q, k, v, tree, backend="block")
    assert kept
    assert max(t.numel() for t in kept) < 60 * 60
