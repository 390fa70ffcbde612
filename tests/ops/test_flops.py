"""Counted costs: against counts by hand, the oracle's lists, and the paper's table."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.builders import from_sequence
from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.flops import attention_cost, count_pairs, flat_cost
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import SHAPES, random_tree

#: The paper's table of zero-shot replacement: mean tokens of a text; millions of operations flat
#: and in windows of 4; how far a single text of the mean length may be off.
PAPER = {264: (214.94, 4.32, 0.05), 54: (None, 0.8357, 0.05), 55: (None, 0.8481, 0.05)}
PAPER |= {26: (None, 0.4132, 0.05), 12: (None, 0.1912, 0.15)}


@pytest.mark.parametrize("tokens", PAPER)
def test_the_paper_s_table(tokens):
    """RoBERTa-base: twelve heads of 64."""
    flat, windows, limit = PAPER[tokens]
    tree = from_sequence(torch.zeros(tokens, 1), windows=4)
    cost = attention_cost(tree, 12, 64, convention="paper")
    assert cost.total / 1e6 == pytest.approx(windows, rel=limit)
    if flat is not None:
        assert flat_cost([tokens], 12, 64).total / 1e6 == pytest.approx(flat, rel=0.01)


def test_the_figures_of_the_mathematics():
    """Windows of 4, repeatedly, over whole texts."""
    for tokens, millions in ((264, 4.307), (54, 0.860), (55, 0.876), (26, 0.396), (12, 0.175)):
        tree = from_sequence(torch.zeros(tokens, 1), windows=4)
        cost = attention_cost(tree, 12, 64, convention="paper")
        assert cost.total / 1e6 == pytest.approx(millions, abs=0.001)
        assert cost.total == 4 * 768 * cost.pairs


@pytest.mark.parametrize("seed", range(28))
def test_pairs_are_those_of_the_oracle(seed):
    tree = random_tree(seed, max_leaves=25, shape=SHAPES[seed % len(SHAPES)])
    plain = PlainTree.of(tree)
    parent = {c: node for node, group in enumerate(plain.children) for c in group}
    assert count_pairs(tree) == plain.num_pairs + len(plain.leaves)
    squares = sum(len(group) ** 2 for group in plain.children)
    assert count_pairs(tree, convention="paper") == squares
    reached = 0
    for leaf in plain.leaves:
        node = leaf
        while node in parent:
            reached += len(plain.children[parent[node]]) - 1
            node = parent[node]
    assert count_pairs(tree, tie="key") == reached + len(plain.leaves)


def test_a_batch_costs_what_its_trees_do():
    forest = [random_tree(seed, max_leaves=9) for seed in range(6)]
    for tie in ("block", "key"):
        whole = attention_cost(Batch.from_data_list(forest), 2, 4, value_dim=3, tie=tie)
        parts = [attention_cost(tree, 2, 4, value_dim=3, tie=tie) for tree in forest]
        assert whole.total == sum(part.total for part in parts)
        assert whole.pairs == sum(part.pairs for part in parts)
    lengths = [tree.num_leaves for tree in forest]
    assert flat_cost(Batch.from_data_list(forest), 2, 4) == flat_cost(lengths, 2, 4)


def test_the_parts_by_hand():
    """Root > two groups of two leaves; D = 3, Dv = 5, two heads."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    block = attention_cost(tree, 2, 3, value_dim=5)
    assert (block.pairs, block.scores, block.values) == (6 + 4, 10 * 2 * 6, 10 * 2 * 10)
    assert (block.means, block.paths) == (6 * (6 + 6 + 10), 6 * 2 * 10)
    key = attention_cost(tree, 2, 3, value_dim=5, tie="key")
    assert (key.pairs, key.means, key.paths) == (4 * 2 + 4, 6 * (6 + 10), 0)
    assert key.total == 12 * 2 * 6 + 12 * 2 * 10 + 96


def test_depth_one_costs_what_flat_attention_does():
    tree = SignalTree.from_parents([-1] + [0] * 12)
    for tie in ("block", "key"):
        assert count_pairs(tree, tie=tie) == flat_cost([12], 1, 1).pairs


def test_what_is_refused():
    tree = SignalTree.from_parents([-1, 0, 0])
    with pytest.raises(UnsupportedError, match="convention='rough' is unknown"):
        count_pairs(tree, convention="rough")
    with pytest.raises(UnsupportedError, match="tie='both' is unknown"):
        count_pairs(tree, tie="both")
    with pytest.raises(UnsupportedError, match="block-tied attention alone"):
        attention_cost(tree, 1, 1, tie="key", convention="paper")
    with pytest.raises(ShapeError, match="heads=0"):
        attention_cost(tree, 0, 4)
    with pytest.raises(ShapeError, match="negative"):
        flat_cost([3, -1], 1, 1)
    with pytest.raises(ShapeError, match="list"):
        count_pairs([3, 4])
