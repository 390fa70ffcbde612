"""The nodes of a tree in the order in which a page shows them: each before what lies below it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsa_geo.data.signal_tree import SignalTree

__all__ = ["Outline"]


@dataclass(frozen=True)
class Outline:
    """A tree as flat lists, one entry for each of the M nodes, parents before children.

    Attributes:
        node: Id of each node.
        place: Place of each id in these lists.
        parent: Place of the parent, -1 for the root.
        level: Level, 0 for the root.
        size: Number of nodes of the subtree; 1 for leaves alone.
        first: Place of the first leaf below in the reading order.
        leaves: Number of leaves below.
        leaf_place: ``[N]``, place of each leaf in reading order.

    Example:
        >>> outline = Outline.of(SignalTree.from_parents([3, 3, 4, 4, -1]))
        >>> outline.node.tolist(), outline.size.tolist(), outline.first.tolist()
        ([4, 3, 0, 1, 2], [5, 3, 1, 1, 1], [0, 0, 0, 1, 2])
    """

    node: np.ndarray
    place: np.ndarray
    parent: np.ndarray
    level: np.ndarray
    size: np.ndarray
    first: np.ndarray
    leaves: np.ndarray
    leaf_place: np.ndarray

    @classmethod
    def of(cls, tree: SignalTree) -> Outline:
        """The outline of one tree."""
        m, n = tree.num_tree_nodes, tree.num_leaves
        up, child = tree.tree_index.cpu().numpy()
        above = np.full(m, -1)
        above[child] = up
        level = tree.tree_level.cpu().numpy()
        size, leaves = np.ones(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
        leaves[:n] = 1
        levels = np.argsort(level, kind="stable")
        bounds = np.searchsorted(level[levels], np.arange(int(level.max()) + 2))
        for deep in range(int(level.max()), 0, -1):
            here = levels[bounds[deep] : bounds[deep + 1]]
            np.add.at(size, above[here], size[here])
            np.add.at(leaves, above[here], leaves[here])
        # A child stands behind its parent and its elder siblings with all that is below them.
        place, first = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
        begin = np.flatnonzero(np.r_[True, up[1:] != up[:-1]]) if m > 1 else np.zeros(0, np.int64)
        rows = np.diff(np.r_[begin, m - 1])
        ahead, passed = (_before(count[child], begin, rows) for count in (size, leaves))
        ahead_of, passed_of = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
        ahead_of[child], passed_of[child] = ahead, passed
        for deep in range(1, int(level.max()) + 1):
            here = levels[bounds[deep] : bounds[deep + 1]]
            place[here] = place[above[here]] + 1 + ahead_of[here]
            first[here] = first[above[here]] + passed_of[here]
        node = np.empty(m, dtype=np.int64)
        node[place] = np.arange(m)
        parent = np.where(above[node] < 0, -1, place[above[node]])
        return cls(
            *(node, place, parent, level[node], size[node], first[node], leaves[node]),
            leaf_place=first[:n],
        )


def _before(count: np.ndarray, begin: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of the counts of a row's elder siblings, of rows in groups."""
    total = np.cumsum(count) - count
    return total - np.repeat(total[begin], rows)
