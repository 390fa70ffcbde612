"""What leaves reach: against walks over plain lists."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.data import reach as module
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import SHAPES, random_tree


def walk(tree):
    """(row, branch, C, number of the sibling pair) from every leaf upward, by the definition."""
    plain = PlainTree.of(tree)
    parent = {c: node for node, group in enumerate(plain.children) for c in group}
    number = {pair: place for place, pair in enumerate(plain.pairs())}
    out = []
    for row, leaf in enumerate(plain.leaves):
        branch = leaf
        while branch in parent:
            group = plain.children[parent[branch]]
            out += [(row, branch, c, number[branch, c]) for c in group if c != branch]
            branch = parent[branch]
    return out


def trees():
    made = [
        random_tree(seed, max_leaves=18, shape=SHAPES[seed % len(SHAPES)]) for seed in range(21)
    ]
    return [*made, Batch.from_data_list(made[:7]), SignalTree.from_parents([-1])]


@pytest.mark.parametrize("tree", trees(), ids=str)
def test_pairs_are_those_of_the_walk(tree):
    plan = tree.plan
    reach = plan.reach
    found = list(
        zip(
            reach.row.tolist(),
            plan.slot_top[reach.branch].tolist(),
            plan.slot_top[reach.slot].tolist(),
            reach.public.tolist(),
        )
    )
    expected = walk(tree)
    # A chain of single children is one slot, whose top is the sibling.
    assert [(row, c, pair) for row, _, c, pair in found] == [(r, c, p) for r, _, c, p in expected]
    assert [branch for _, branch, _, _ in found] == [branch for _, branch, _, _ in expected]
    assert module.num_reached(plan) == plan.reach_lists.num_pairs == len(expected)
    assert torch.equal(reach.ptr.diff(), torch.bincount(reach.row, minlength=plan.num_leaves))


@pytest.mark.parametrize("tree", trees(), ids=str)
@pytest.mark.parametrize("most", [1, 50, 1 << 20])
def test_blocks_hold_every_leaf_once(tree, most, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", most)
    plan, lists = tree.plan, tree.plan.reach_lists
    rows = []
    for block in module.reach_blocks(plan):
        assert block.row.shape == block.rank.shape == block.real.shape
        assert block.entry.shape == block.valid.shape
        assert block.real[:, 0].all()
        assert block.valid[:, 0].all()
        rows += block.row[block.real].tolist()
        for row, entry, valid in zip(block.row, block.entry, block.valid):
            own = lists.row_list[row[0]]
            expected = torch.arange(int(lists.ptr[own]), int(lists.ptr[own + 1]))
            assert torch.equal(entry[valid], expected)
            assert (lists.row_list[row] == own).all()
    assert sorted(rows) == (lists.row_list >= 0).nonzero().flatten().tolist()


def test_a_plan_that_moves_takes_them_along():
    plan = random_tree(3).plan
    expected = plan.reach
    moved = plan.to("cpu")
    assert torch.equal(moved.reach.slot, expected.slot)
    assert "reach" in moved.__dict__
    with torch.inference_mode():
        lists = random_tree(4).plan.reach_lists
    assert not lists.slot.is_inference()
