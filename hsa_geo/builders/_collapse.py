"""Arrays of a page's nodes: chains of single children removed, limits applied."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["chain_tops", "collapse_chains", "drop_leaves", "set_nodes", "sibling_rank"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def _nearest_kept(parent: Ints, drop: Bools) -> Ints:
    """Of every node, itself or the nearest node above it that is kept (pointer doubling)."""
    jump = np.where(drop, parent, np.arange(len(parent)))
    while drop[jump].any():
        jump = jump[jump]
    return jump


def collapse_chains(parent: Ints, inner: Bools, pinned: Bools) -> tuple[Bools, Ints]:
    """Find the inner nodes that carry nothing, because they have one child.

    Of a chain the lowest node stays, in the place of the highest.  Pinned nodes stay always, and
    one that has a single inner child takes that child's children.

    Args:
        parent: ``[M]``, parents before children, -1 at the root (node 0, pinned).
        inner: ``[M]``, which nodes are inner.
        pinned: ``[M]``, which nodes stay.

    Returns:
        ``[M]`` which nodes go, and ``[M]`` the new parent of every node (-1 at the root).

    Example:
        >>> drop, above = collapse_chains(
        ...     np.array([-1, 0, 1, 2, 2]),
        ...     np.array([True, True, True, False, False]),
        ...     np.array([True, False, False, False, False]),
        ... )
        >>> drop.tolist(), above[3:].tolist()
        ([False, True, True, False, False], [0, 0])
    """
    children = np.bincount(parent[1:], minlength=len(parent))
    drop = inner & (children == 1) & ~pinned
    above = _nearest_kept(parent, drop)[parent]
    lone = pinned & (children == 1)
    absorbed = inner & ~drop & ~pinned & lone[above]
    absorbed[0] = False
    drop |= absorbed
    above = _nearest_kept(parent, drop)[parent]
    above[0] = -1
    return drop, above


def chain_tops(parent: Ints, chain: Bools) -> Ints:
    """Of every node, the highest node of the chain it hangs on, or itself.

    Args:
        parent: ``[M]``, -1 at the root, which is in no chain.
        chain: ``[M]``, which nodes have one child and go.

    Returns:
        ``[M]``, the node whose place the node takes.

    Example:
        >>> chain_tops(np.array([-1, 0, 1, 2, 0]), np.array([0, 1, 1, 0, 0], dtype=bool)).tolist()
        [0, 1, 1, 1, 4]
    """
    up: Ints = np.where(chain[parent] & (parent >= 0), parent, np.arange(len(parent)))
    while True:
        further = up[up]
        if (further == up).all():
            return up
        up = further


def set_nodes(parent: Ints, named: Bools, word: Bools, sentence: Ints) -> Ints:
    """The nodes whose children are a set: named ones without words of their own, and their lines.

    Args:
        parent: ``[M]``, -1 at the root.
        named: ``[M]``, nodes that shall be sets.
        word: ``[M]``, which leaves are words.
        sentence: Ids of the sentences.

    Returns:
        Ids of the named nodes that hold no word but deeper in them (in links, say), and of the
        sentences in those.

    Example:
        >>> parent = np.array([-1, 0, 1, 2, 0, 4])  # nav: sentence: a: word; p: word
        >>> named = np.array([0, 1, 0, 0, 0, 0], dtype=bool)
        >>> word = np.array([0, 0, 0, 0, 0, 1], dtype=bool)
        >>> set_nodes(parent, named, word, np.array([2])).tolist()
        [1, 2]
    """
    holder = np.arange(len(parent))
    holder[sentence] = parent[sentence]
    text = np.zeros(len(parent), dtype=np.bool_)
    text[holder[parent[word]]] = True
    unordered = named & ~text
    lines = sentence[unordered[parent[sentence]]]
    return np.concatenate([np.flatnonzero(unordered), lines])


def drop_leaves(parent: Ints, inner: Bools, keep_leaf: Bools) -> Bools:
    """Which nodes are left when only some leaves are: those and the nodes above them.

    Args:
        parent: ``[M]``, -1 at the root.
        inner: ``[M]``, which nodes are inner.
        keep_leaf: ``[M]``, which leaves stay (ignored at inner nodes).

    Returns:
        ``[M]`` which nodes stay.

    Example:
        >>> drop_leaves(
        ...     np.array([-1, 0, 1, 0]),
        ...     np.array([True, True, False, False]),
        ...     np.array([False, False, False, True]),
        ... ).tolist()
        [True, False, False, True]
    """
    keep = keep_leaf & ~inner
    rim = np.unique(parent[keep])
    while rim.size:
        rim = rim[rim >= 0]
        rim = rim[~keep[rim]]
        keep[rim] = True
        rim = np.unique(parent[rim])
    return keep


def sibling_rank(parent: Ints) -> Ints:
    """Index of every node among its siblings, in order of ids.

    Example:
        >>> sibling_rank(np.array([-1, 0, 0, 1, 0])).tolist()
        [0, 0, 1, 0, 2]
    """
    order = np.argsort(parent, kind="stable")
    grouped = parent[order]
    first = np.flatnonzero(np.diff(grouped, prepend=grouped[0] - 1))
    lengths = np.diff(np.append(first, len(grouped)))
    rank = np.empty_like(parent)
    rank[order] = np.arange(len(parent)) - np.repeat(first, lengths)
    return rank
