from __future__ import annotations

import numpy as np
import pytest
import torch
from data_cases import PAGE, Plain
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.data import SignalTree
from hsa_geo.data.canonical import canonical_order, leaf_spans, levels_of
from hsa_geo.errors import TreeError
from hsa_geo.testing import SHAPES, random_parents


def naive_order(parents: list[int]) -> list[int]:
    """Input ids in canonical order: a recursive definition, walked without recursion."""
    children: dict[int, list[int]] = {node: [] for node in range(len(parents))}
    level = {}
    for node, above in enumerate(parents):
        if above >= 0:
            children[above].append(node)
        step, depth = node, 0
        while parents[step] >= 0:
            step, depth = parents[step], depth + 1
        level[node] = depth
    smallest = {}
    for node in sorted(children, key=lambda v: -level[v]):
        smallest[node] = min((smallest[kid] for kid in children[node]), default=node)
    walk, stack = [], [parents.index(-1)]
    while stack:
        node = stack.pop()
        walk.append(node)
        stack += sorted(children[node], key=lambda v: -smallest[v])
    place = {node: i for i, node in enumerate(walk)}
    leaves = [node for node in walk if not children[node]]
    inner = sorted((v for v in walk if children[v]), key=lambda v: (-level[v], place[v]))
    return leaves + inner


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(12))
def test_order_is_the_naive_one(shape, seed):
    parents = random_parents(seed, max_leaves=30, shape=shape)
    canonical = canonical_order(np.array(parents))
    assert canonical.order.tolist() == naive_order(parents)

    new_id = {old: new for new, old in enumerate(canonical.order.tolist())}
    edges = sorted((new_id[above], new_id[v]) for v, above in enumerate(parents) if above >= 0)
    assert sorted(map(tuple, canonical.tree_index.T.tolist())) == edges
    assert (np.diff(canonical.tree_index[0]) >= 0).all()
    tree = SignalTree.from_parents(parents)
    plain = Plain.of(tree)
    assert tree.tree_level.tolist() == [plain.level(v) for v in range(len(parents))]
    assert plain.leaves(len(parents) - 1) == list(range(canonical.num_leaves))  # reading order


@given(st.lists(st.integers(0, 30), max_size=30))
@settings(max_examples=100, deadline=None)
def test_canonical_ids_stay(picks):
    parents = [-1, *(pick % (node + 1) for node, pick in enumerate(picks))]
    first = canonical_order(np.array(parents))
    again = np.full(len(parents), -1)
    again[first.tree_index[1]] = first.tree_index[0]
    second = canonical_order(again)
    assert second.order.tolist() == list(range(len(parents)))
    assert np.array_equal(second.tree_index, first.tree_index)
    assert np.array_equal(second.level, first.level)


def test_children_rank_by_the_smallest_leaf_below():
    #      6          inner 4 holds leaf 2, inner 5 holds leaf 0: 5 comes first
    parents = [5, 6, 4, 4, 6, 6, -1]
    canonical = canonical_order(np.array(parents))
    assert canonical.order.tolist() == [0, 1, 2, 3, 5, 4, 6]


def test_levels_and_spans_of_a_forest():
    parent = np.array([2, 2, -1, 4, -1])
    level = levels_of(parent)
    assert level.tolist() == [1, 1, 0, 1, 0]
    first, last, count = leaf_spans(parent, level)
    assert first.tolist() == [0, 1, 0, 3, 3]
    assert last.tolist() == [0, 1, 1, 3, 3]
    assert count.tolist() == [1, 1, 2, 1, 1]


@pytest.mark.parametrize("depth", [5_000])
def test_chain_needs_no_recursion(depth):
    canonical = canonical_order(np.arange(-1, depth - 1))
    assert canonical.num_leaves == 1
    assert canonical.level.tolist() == list(range(depth))[::-1]


def test_a_wide_tree_is_quick():
    canonical = canonical_order(np.concatenate([np.zeros(100_000, int) + 100_000, [-1]]))
    assert canonical.num_leaves == 100_000
    assert np.array_equal(canonical.order, np.arange(100_001))


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([], "at least one leaf"),
        ([1, 5, -1], "node 1 has parent 5"),
        ([1, -2, -1], "node 1 has parent -2"),
        ([2, 1, -1], "node 1 is its own parent"),
        ([-1, 0, -1], r"nodes \[0, 2\] are all roots"),
        ([1, 2, 0], "none of the 3 nodes is a root"),
        ([-1, 0, 3, 2], "node [23] lies on or below a cycle"),
        ([-1, 2, 3, 1, 1], "node [1234] lies on or below a cycle"),
    ],
)
def test_what_is_no_tree_is_refused(parents, message):
    with pytest.raises(TreeError, match=message):
        canonical_order(np.array(parents, dtype=np.int64))


def test_order_is_returned():
    tree, order = SignalTree.from_parents(PAGE, return_order=True)
    assert order.dtype == torch.int64
    assert order.tolist() == naive_order(PAGE)
    assert tree.num_tree_nodes == len(PAGE)
