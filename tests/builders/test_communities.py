from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.datasets import KarateClub

from hsa_geo.builders.communities import (
    nested_louvain,
    partition_recursively,
    sibling_links,
    stack_partitions,
)
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, HSAError, ShapeError, TreeError
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import trees


def coarser(fine, coarse):
    """Whether every group of ``fine`` lies within one of ``coarse``."""
    return len(set(zip(fine.tolist(), coarse.tolist()))) == len(set(fine.tolist()))


# Louvain #########################################################################################


@given(st.integers(1, 30), st.integers(0, 80), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_levels_are_nested(n, edges, seed):
    rng = np.random.default_rng(seed)
    index = rng.integers(0, n, (2, edges))
    levels = nested_louvain(n, index, rng.random(edges), resolutions=(1, 0.2, 5), seed=seed)
    assert len(levels) == 3
    for labels in levels:
        assert labels.shape == (n,)
        assert set(labels.tolist()) == set(range(labels.max() + 1))
    assert coarser(levels[0], levels[1])
    assert coarser(levels[1], levels[2])
    tree = SignalTree.from_parents(stack_partitions(levels))
    assert tree.validate()
    assert tree.num_nodes == n


def test_a_graph_of_pyg():
    data = KarateClub()[0]
    levels = nested_louvain(data.num_nodes, data.edge_index, resolutions=[1, 4])
    again = nested_louvain(34, data.edge_index.numpy(), torch.ones(156), resolutions=(4.0, 1.0))
    assert [a.tolist() for a in levels] == [b.tolist() for b in again]
    parent = stack_partitions(levels)
    link, weight = sibling_links(parent, data.edge_index, symmetric=True)
    tree = SignalTree.from_parents(
        parent,
        keep_leaf_order=True,
        domain=Domain.GRAPH,
        x=data.x,
        edge_index=data.edge_index,
        tree_link=link,
        tree_link_weight=weight.astype(np.float32),
    )
    assert tree.validate()
    assert torch.equal(tree.edge_index, data.edge_index)
    assert tree.tree_link_weight.sum() == 156


def test_seeds_of_the_core():
    index = np.random.default_rng(0).integers(0, 50, (2, 150))

    def labels(seed):
        return nested_louvain(50, index, seed=seed)[0].tolist()

    assert labels(0) == labels(0) == labels(np.int64(0))
    assert any(labels(seed) != labels(0) for seed in (1, 2, 3, None))


@pytest.mark.parametrize(
    ("index", "weight", "message"),
    [
        ([[0, 1, 2]], None, r"edge_index is int64 \[1, 3\]"),
        ([0, 1], None, "edge_index"),
        ([[0.5], [1]], None, "edge_index is float64"),
        ([[0], [3]], None, "edge_index holds 3, but the nodes are 0..2"),
        ([[0], [-1]], None, "edge_index holds -1"),
        ([[0], [1]], [1, 2], r"weight is int64 \[2\]"),
        ([[0], [1]], ["1"], "weight is <U1"),
        ([[0], [1]], [-1], "not negative"),
        ([[0], [1]], [float("nan")], "finite"),
        ([[0, 1], [1, 0]], [1e308, 1e308], "finite"),
    ],
)
def test_edges_that_do_not_fit(index, weight, message):
    with pytest.raises(ShapeError, match=message):
        nested_louvain(3, index, weight)
    with pytest.raises(ShapeError, match=message):
        sibling_links([3, 3, 3, -1], index, weight)


# Partitions ######################################################################################


def test_stacked_partitions():
    fine, coarse = [0, 1, 0, 2, 2, 5], np.array([7, 7, 7, 3, 3, 3])
    assert stack_partitions([fine]).tolist() == [6, 8, 6, 7, 7, 8, 8, 8, -1]
    parent = stack_partitions([fine, coarse]).tolist()
    assert parent == [6, 8, 6, 7, 7, 9, 8, 9, 10, 10, -1]
    assert stack_partitions([fine, fine, fine]).tolist() == stack_partitions([fine]).tolist()
    assert stack_partitions([[0, 1, 2], [0, 0, 0], [0, 0, 0]]).tolist() == [3, 3, 3, -1]
    assert stack_partitions([[4]]).tolist() == [-1]
    assert stack_partitions([[4], [2]]).tolist() == [-1]


@given(st.lists(st.lists(st.integers(0, 4), min_size=9, max_size=9), min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_stacked_partitions_keep_together_what_is_together(draws):
    levels = [np.array(list(map(hash, zip(*draws[k:])))) for k in range(len(draws))]
    tree = SignalTree.from_parents(stack_partitions(levels), keep_leaf_order=True)
    assert tree.validate()
    groups = {frozenset(row.nonzero().flatten().tolist()) for row in PlainTree.of(tree).under}
    blocks = {
        frozenset(np.flatnonzero(labels == label).tolist()) for labels in levels for label in labels
    }
    singles = {frozenset([i]) for i in range(9)}
    assert groups == blocks | singles | {frozenset(range(9))}
    assert len(groups) == tree.num_tree_nodes  # no single children


@pytest.mark.parametrize(
    ("partitions", "error", "message"),
    [
        ([[0, 0, 1], [0, 1, 1]], BuilderError, "nodes 0 and 1 are together"),
        ([[0, 1, 1], [0, 0, 0], [0, 1, 1]], BuilderError, "nodes 0 and 1 are together"),
        ([], ShapeError, "partitions"),
        ([[]], ShapeError, "partitions"),
        ([[0, 1], [0]], ShapeError, "partitions"),
        ([[0.5]], ShapeError, "float64"),
        ([3], ShapeError, "partitions"),
    ],
)
def test_partitions_that_do_not_nest(partitions, error, message):
    with pytest.raises(error, match=message):
        stack_partitions(partitions)


def test_recursion_over_plain_numbers():
    def halves(group, nodes):
        assert group.tolist() == nodes.tolist()
        parts = np.array_split(nodes, 2)
        return parts, parts.__getitem__

    parent = partition_recursively(8, halves, np.arange(8), 2)
    tree = SignalTree.from_parents(parent)
    assert tree.plan.group_sizes == (2,) * 7
    assert partition_recursively(1, halves, np.arange(1), 2).tolist() == [-1]
    assert partition_recursively(2, halves, np.arange(2), 1).tolist() == [2, 2, -1]


# Links ###########################################################################################


@given(trees(max_nodes=20), st.integers(0, 60), st.booleans(), st.integers(0, 10_000))
@settings(max_examples=120, deadline=None)
def test_links_are_sums_over_the_leaves_below(tree, edges, symmetric, seed):
    rng = np.random.default_rng(seed)
    index, weight = rng.integers(0, tree.num_nodes, (2, edges)), rng.integers(0, 3, edges) / 2
    if symmetric:
        index, weight = np.hstack([index, index[::-1]]), np.tile(weight, 2)
    parent = np.full(tree.num_tree_nodes, -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    link, total = sibling_links(parent, torch.from_numpy(index), weight, symmetric=symmetric)

    dense = np.zeros((tree.num_nodes, tree.num_nodes))
    np.add.at(dense, tuple(index), weight)
    plain = PlainTree.of(tree)
    expected = {}
    for b, c in sorted(plain.pairs()):
        between = dense[plain.under[b].numpy()][:, plain.under[c].numpy()].sum()
        if between > 0:
            expected[b, c] = between
    assert list(zip(map(tuple, link.T.tolist()), total.tolist())) == list(expected.items())
    assert link.dtype == np.int64
    loops = np.trace(dense)
    assert total.sum() == weight.sum() - loops  # each edge is in exactly one link


def test_links_of_deep_trees():
    n = 40_000  # leaf k hangs on inner node k - 1 of a chain, leaf 0 beside leaf 1
    parent = np.concatenate([[n], np.arange(n, 2 * n - 1), np.arange(n + 1, 2 * n - 1), [-1]])
    link, weight = sibling_links(parent, [[0, 0, n - 1, 5], [n - 1, 1, 7, 9]], [1, 2, 4, 8])
    top = 2 * n - 3
    expected = {(0, 1): 2, (n + 7, 9): 8, (n - 1, top): 4, (top, n - 1): 1}
    assert dict(zip(map(tuple, link.T.tolist()), weight.tolist())) == expected


def test_links_of_a_single_leaf_and_of_none():
    assert sibling_links([-1], [[0], [0]])[0].shape == (2, 0)
    link, weight = sibling_links([2, 2, -1], np.zeros((2, 0)))
    assert link.shape == (2, 0)
    assert weight.shape == (0,)
    with pytest.raises(TreeError):
        sibling_links([2, 2, 3, 2], [[0], [1]])
    with pytest.raises(HSAError):
        sibling_links([2, 2, -1], [[0], [2]])
