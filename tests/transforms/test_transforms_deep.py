"""Transforms of trees of thousands of levels: no recursion, no cost of nodes times levels."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from transform_cases import assert_same_data

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.testing import random_tree
from hsa_geo.transforms import (
    AddTreePE,
    ContractChains,
    DropHierarchy,
    DropLeaves,
    MaskLeaves,
    MergeEqualLeaves,
    RepeatLeaves,
    RestrictHierarchy,
    Rewindow,
    leaves,
)

LEVELS = 5000


def chain(**attrs) -> SignalTree:
    """One leaf below a chain of nodes."""
    return SignalTree.from_parents(np.arange(LEVELS + 1) - 1, **attrs)


def comb(levels: int = LEVELS, per_level: int = 1, **attrs) -> SignalTree:
    """A chain of nodes with leaves at each; leaf i is at level 1 + i // per_level."""
    spine = per_level * levels + np.arange(levels)
    above = np.repeat(spine, per_level)
    parent = np.concatenate([above, [-1], spine[:-1]])
    tree = SignalTree.from_parents(parent, keep_leaf_order=True, **attrs)
    assert (tree.num_leaves, tree.depth) == (per_level * levels, levels)
    return tree


def test_drop_leaves():
    tree = comb(leaf_id=torch.arange(LEVELS), deep_node=torch.tensor([2 * LEVELS - 1]))
    out = DropLeaves(0.5, seed=0)(tree)
    assert out.validate()
    assert 2200 < out.num_leaves < 2800
    assert_same_data(out, tree.restrict(out.leaf_id))
    below = DropLeaves(1.0)(tree)  # one leaf below the root, the only one below the deepest node
    assert below.num_leaves <= 2
    assert below.leaf_id[-1] == LEVELS - 1
    assert below.depth == LEVELS
    assert_same_data(DropLeaves(1.0)(chain()), chain())
    tree.goes = tree.leaf_id > 0
    del tree.deep_node
    assert DropLeaves(mask="goes")(tree).num_tree_nodes == 2


def test_drop_leaves_of_a_deep_comb():
    out = DropLeaves(0.3, seed=0)(comb(60_000))
    assert out.depth > 50_000
    assert 0.65 < out.num_leaves / 60_000 < 0.75


@pytest.mark.parametrize("seed", range(5))
def test_highest_below(seed):
    tree = random_tree(seed, max_leaves=20)
    value = np.random.default_rng(seed).permutation(tree.num_leaves)
    forest = Forest.of(tree)
    expected = np.full(forest.num_nodes, -1)
    for leaf, own in enumerate(value):
        node = leaf
        while node >= 0:
            expected[node] = max(expected[node], own)
            node = forest.parent[node]
    assert np.array_equal(leaves._highest_below(forest, value), expected)


def test_mask_leaves():
    tree = comb(x=torch.ones(LEVELS, 1))
    out = MaskLeaves(0.5, store="masked", seed=0)(tree)
    assert torch.equal(out.x[:, 0] == 0, out.masked)


def test_rewindow():
    tree = comb(leaf_id=torch.arange(LEVELS))
    out = Rewindow([10, 10])(tree)
    assert out.validate()
    assert out.depth == 3
    assert out.num_tree_nodes == LEVELS + 500 + 50 + 1
    assert torch.equal(out.leaf_id, tree.leaf_id)
    assert Rewindow(2)(chain()).num_tree_nodes == 1
    kept = Rewindow([], level=LEVELS - 1)(tree)  # leaves above, and a node with one leaf
    assert kept.validate()
    assert kept.num_leaves == LEVELS


def test_merge_and_repeat_leaves():
    tree = comb(per_level=2, x=torch.zeros(2 * LEVELS, 1))
    small = MergeEqualLeaves()(tree)
    assert small.validate()
    assert (small.num_leaves, small.depth) == (LEVELS, LEVELS)
    assert (small.leaf_weight == 2).all()
    big = RepeatLeaves()(small)
    assert_same_data(big, tree)
    assert MergeEqualLeaves()(chain()).num_tree_nodes == LEVELS + 1
    heavy = chain(leaf_weight=torch.tensor([3]))
    repeated = RepeatLeaves()(heavy)
    assert repeated.validate()
    assert (repeated.num_leaves, repeated.depth) == (3, LEVELS)


@pytest.mark.parametrize("keep", [False, True])
def test_contract_chains(keep):
    assert ContractChains(keep)(chain()).num_tree_nodes == 1
    tree = comb()
    out = ContractChains(keep)(tree)  # the deepest node has one leaf
    assert out.validate()
    assert out.num_tree_nodes == tree.num_tree_nodes - 1
    torn = tree.restrict(torch.tensor([0, LEVELS - 1]))
    assert torn.num_tree_nodes == LEVELS + 2
    assert ContractChains(keep)(torn).num_tree_nodes == 3


def test_the_rest():
    tree = comb(x=torch.ones(LEVELS, 1))
    assert DropHierarchy()(tree).num_nodes == LEVELS
    part = RestrictHierarchy(tree)(Data(n_id=torch.tensor([LEVELS - 1, 0]), num_nodes=2))
    assert part.validate()
    assert part.depth == LEVELS
    tree.tree_domain[LEVELS:] = Domain.GRAPH
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    spine = torch.full((tree.num_tree_nodes,), -1)
    spine[parent[LEVELS:-1]] = torch.arange(LEVELS, tree.num_tree_nodes - 1)
    beside = spine[parent[: LEVELS - 1]]  # the inner node beside each leaf
    pairs = torch.stack([torch.arange(LEVELS - 1), beside])
    tree.tree_link = torch.cat([pairs, pairs.flip(0)], dim=1)
    assert tree.validate()
    pe = AddTreePE(k=1)(tree).tree_pe
    assert (pe[: LEVELS - 1].abs() - 0.5**0.5).abs().max() < 1e-6
