"""The canonical order of a tree's nodes, from a parent array, without a loop over nodes.

Leaves come first, numbered depth-first (reading order); inner nodes follow, deepest level
first and in reading order within a level; the root is last.  Loops run over levels, or over
powers of two (pointer doubling), never over nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsa_geo.errors import TreeError

__all__ = [
    "Canonical",
    "canonical_order",
    "leaf_spans",
    "levels_of",
    "reading_starts",
    "with_leaves_sorted",
]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Canonical:
    """A tree in canonical order.

    Attributes:
        order: ``[M]``, input id of each canonical node: ``input = order[canonical]``.
        num_leaves: Number of leaves N; leaves are canonical nodes ``0..N-1``.
        tree_index: ``[2, M-1]``, parent and child of each edge, sorted by (parent, rank).
        level: ``[M]``, level of each canonical node, root 0.
    """

    order: Ints
    num_leaves: int
    tree_index: Ints
    level: Ints


def levels_of(parent: Ints) -> Ints:
    """Level of every node of a forest, by pointer doubling.

    Args:
        parent: ``[M]``, parent id of every node, -1 for roots; ids in range.

    Returns:
        ``[M]``, number of edges to the node's root.

    Raises:
        TreeError: If nodes lie on a cycle; the message names one of them.

    Example:
        >>> levels_of(np.array([2, 2, -1])).tolist()
        [1, 1, 0]
    """
    level: Ints = (parent >= 0).astype(np.int64)
    up = parent.copy()
    # After k rounds `level` counts at most 2^k steps; a tree of M nodes ends by log2(M) + 1.
    for _ in range(len(parent).bit_length() + 1):
        live = np.flatnonzero(up >= 0)
        if live.size == 0:
            return level
        level[live] += level[up[live]]
        up[live] = up[up[live]]
    raise TreeError(
        f"node {int(np.flatnonzero(up >= 0)[0])} lies on or below a cycle of parents; "
        "give every node a path of parents that ends at a root (-1)."
    )


def canonical_order(parent: Ints) -> Canonical:
    """Canonical order of one rooted tree; siblings rank by the smallest leaf id below them.

    Args:
        parent: ``[M]`` int64, the parent of every node in any order, -1 for the root.

    Returns:
        The order and the index tensors in that order.

    Raises:
        TreeError: If there is no node, a parent id out of range, not exactly one root, a
            node that is its own parent, or a cycle; the message names the node.

    Example:
        >>> tree = canonical_order(np.array([-1, 0, 0, 2]))
        >>> tree.order.tolist(), tree.tree_index.tolist(), tree.level.tolist()
        ([1, 3, 2, 0], [[2, 3, 3], [1, 0, 2]], [1, 2, 1, 0])
    """
    m = len(parent)
    _check_parents(parent)
    level = levels_of(parent)
    root = int(np.flatnonzero(parent < 0)[0])

    is_leaf = np.ones(m, dtype=bool)
    is_leaf[parent[parent >= 0]] = False
    num_leaves = int(is_leaf.sum())

    first = leaf_spans(parent, level)[0]
    child = np.lexsort((first, parent))
    child = child[parent[child] >= 0]  # without the root, grouped by parent, in sibling order
    # Depth-first start of every node: its parent's start plus its earlier siblings' leaves.
    start = reading_starts(parent, level, child)

    leaves = np.flatnonzero(is_leaf)
    leaves = leaves[np.argsort(start[leaves])]
    inner = np.flatnonzero(~is_leaf)
    inner = inner[np.lexsort((start[inner], -level[inner]))]
    order = np.concatenate([leaves, inner])
    new_id = np.empty(m, dtype=np.int64)
    new_id[order] = np.arange(m)

    child = child[np.lexsort((start[child], new_id[parent[child]]))]
    tree_index = np.stack([new_id[parent[child]], new_id[child]])
    assert order[-1] == root
    return Canonical(order, num_leaves, tree_index, level[order])


def with_leaves_sorted(canonical: Canonical) -> Canonical:
    """The same tree with its leaves in order of increasing input id.

    Args:
        canonical: A tree in canonical order.

    Returns:
        The tree; siblings and inner nodes are in the order they were in.

    Example:
        >>> tree = with_leaves_sorted(canonical_order(np.array([4, 3, 4, -1, 3])))
        >>> tree.order.tolist(), tree.tree_index.tolist()
        ([0, 1, 2, 4, 3], [[3, 3, 4, 4], [0, 2, 3, 1]])
    """
    n = canonical.num_leaves
    by_id = np.argsort(canonical.order[:n])
    new_id = np.arange(len(canonical.order))
    new_id[by_id] = np.arange(n)
    order, level = canonical.order.copy(), canonical.level.copy()
    order[:n], level[:n] = order[by_id], level[by_id]
    return Canonical(order, n, new_id[canonical.tree_index], level)


def reading_starts(parent: Ints, level: Ints, child: Ints) -> Ints:
    """Depth-first place of every node's first leaf, by the order of siblings.

    Args:
        parent: ``[M]``, parent of every node of a forest, -1 for roots.
        level: ``[M]``, level of every node, root 0.
        child: All nodes that are no roots, grouped by parent, in sibling order.

    Returns:
        ``[M]``, counted within each tree.

    Example:
        >>> reading_starts(np.array([2, 2, -1]), np.array([1, 1, 0]), np.array([1, 0])).tolist()
        [1, 0, 0]
    """
    count = leaf_spans(parent, level)[2]
    before = np.zeros(len(parent), dtype=np.int64)
    if child.size:
        running = np.cumsum(count[child]) - count[child]
        head = np.flatnonzero(np.diff(parent[child], prepend=-1))
        lengths = np.diff(np.append(head, child.size))
        before[child] = running - np.repeat(running[head], lengths)
    return _sum_to_root(before, parent)


def leaf_spans(parent: Ints, level: Ints) -> tuple[Ints, Ints, Ints]:
    """Smallest and largest leaf id below every node of a forest, and the number of leaves.

    Args:
        parent: ``[M]``, parent of every node, -1 for roots.
        level: ``[M]``, level of every node, root 0.

    Returns:
        first ``[M]``, last ``[M]``, count ``[M]``; a leaf is below itself.

    Example:
        >>> spans = leaf_spans(np.array([2, 2, -1]), np.array([1, 1, 0]))
        >>> [span.tolist() for span in spans]
        [[0, 1, 0], [0, 1, 1], [1, 1, 2]]
    """
    m = len(parent)
    is_leaf = np.ones(m, dtype=bool)
    is_leaf[parent[parent >= 0]] = False
    first = np.where(is_leaf, np.arange(m), m)
    last = np.where(is_leaf, np.arange(m), -1)
    count = is_leaf.astype(np.int64)
    by_level = np.argsort(level, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(level))])
    for k in range(len(ptr) - 2, 0, -1):  # bottom-up
        nodes = by_level[ptr[k] : ptr[k + 1]]
        above = parent[nodes]
        np.minimum.at(first, above, first[nodes])
        np.maximum.at(last, above, last[nodes])
        np.add.at(count, above, count[nodes])
    return first, last, count


def _check_parents(parent: Ints) -> None:
    m = len(parent)
    if m == 0:
        raise TreeError("a tree needs at least one leaf, but parent has no entries.")
    bad = np.flatnonzero((parent < -1) | (parent >= m))
    if bad.size:
        raise TreeError(
            f"node {int(bad[0])} has parent {int(parent[bad[0]])}, which is not a node: use ids "
            f"0..{m - 1}, or -1 for the root."
        )
    loops = np.flatnonzero(parent == np.arange(m))
    if loops.size:
        raise TreeError(f"node {int(loops[0])} is its own parent; use -1 for the root.")
    roots = np.flatnonzero(parent == -1)
    if roots.size > 1:
        raise TreeError(
            f"nodes {roots[:5].tolist()} are all roots (parent -1), but a tree has one: add a "
            "common parent, or make one tree of each and batch them."
        )
    if roots.size == 0:
        raise TreeError(f"none of the {m} nodes is a root: give one of them the parent -1.")


def _sum_to_root(value: Ints, parent: Ints) -> Ints:
    """Sum of ``value`` over the path from every node to the root (pointer doubling)."""
    total, up = value.copy(), parent.copy()
    live = np.flatnonzero(up >= 0)
    while live.size:
        total[live] += total[up[live]]
        up[live] = up[up[live]]
        live = live[up[live] >= 0]
    return total
