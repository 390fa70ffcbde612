"""Windows in place of the hierarchy that a tree has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import reading_starts
from hsa_geo.data.forest import Forest
from hsa_geo.errors import DomainError
from hsa_geo.transforms.arguments import counts
from hsa_geo.transforms.attach import check_tree
from hsa_geo.transforms.rebuild import NewTree, reading_order, rebuild

__all__ = ["Rewindow"]

Ints = NDArray[np.int64]


class Rewindow(BaseTransform):
    """Replace the hierarchy above the leaves, or above a level, by windows in reading order.

    ``Rewindow([16, 4])`` puts every 16 leaves into a window and every 4 of these into a larger
    one; a root holds what is left apart.  With ``level=2`` the nodes at level 2 (and leaves above
    it) stay with all that is below them, and stand in the windows in place of leaves.

    Leaves keep their rows and attributes.  Names, spans, encodings and links below the new nodes
    stay; a new node's name is ``"window"``, its span reaches from the first to the last below it,
    its encoding is zero; what stands in a window is at its place 0, 1, ... there.

    Args:
        windows (int or sequence of ints): Sizes of the windows, from 2, level by level upwards; an
            empty sequence makes one root over all.
        level (int, optional): Level of the nodes that stay, from 1. (default: the leaves alone)
        domain (Domain): ``SEQUENCE``, or ``SET``, which has no positions.
            (default: :obj:`Domain.SEQUENCE`)

    Raises:
        TreeError: If ``{name}_node`` refers to a node that is replaced; the message names it.
        UnsupportedError: If the input is no single SignalTree.
        BuilderError: If an argument does not fit.

    Example:
        >>> Rewindow(2)(SignalTree.from_parents([5] * 5 + [-1])).describe()
        SignalTree: 5 leaves, 9 nodes, depth 2
        8: SEQUENCE of 3, 5 leaves
          5 at 0: SEQUENCE of 2, 2 leaves
            0 at 0
            1 at 1
          6 at 1: SEQUENCE of 2, 2 leaves
            2 at 0
            3 at 1
          7 at 2: SEQUENCE of 1, 1 leaf
            4 at 0
    """

    def __init__(
        self,
        windows: int | Sequence[int],
        *,
        level: int | None = None,
        domain: Domain = Domain.SEQUENCE,
    ) -> None:
        self.windows = counts(windows, "windows", least=2)
        self.level = None if level is None else counts([level], "level")[0]
        if domain not in (Domain.SEQUENCE, Domain.SET):
            raise DomainError(f"domain={domain!r}: windows are a SEQUENCE, or a SET.")
        self.domain = Domain(domain)

    def forward(self, data: Any) -> SignalTree:
        """The tree with its leaves in windows."""
        tree = check_tree(data, "Rewindow")
        forest = Forest.of(tree)
        n, m = tree.num_leaves, forest.num_nodes
        start = reading_starts(forest.parent, forest.level, forest.edge_child)
        stays, unit = forest.is_leaf.copy(), forest.is_leaf.copy()
        if self.level is not None:
            stays |= forest.level >= self.level
            unit = (forest.level == self.level) | (forest.is_leaf & (forest.level < self.level))
        units = np.flatnonzero(unit)
        units = units[np.argsort(start[units])]

        # New numbers: leaves in reading order, inner nodes that stay, windows from small to large.
        kept = np.concatenate([reading_order(forest), n + np.flatnonzero(stays[n:])])
        moved = np.full(m, -1)
        moved[kept] = np.arange(len(kept))
        above = np.where(unit[kept], -1, moved[forest.parent[kept]])
        parents, top, count = [above], moved[units], len(kept)
        places = [np.zeros(count, dtype=np.int64)]
        spans = [self._spans(tree, kept)]
        for size in [*self.windows, len(units)]:
            if len(top) == 1:
                break
            index = np.arange(len(top))
            groups = -(-len(top) // size)
            parent, place, span = (np.concatenate(part) for part in (parents, places, spans))
            parent[top] = count + index // size
            place[top] = index % size
            first = np.arange(0, len(top), size)
            low = np.minimum.reduceat(span[top, 0], first)
            high = np.maximum.reduceat(span[top, 1], first)
            parents = [parent, np.full(groups, -1)]
            places = [place, np.zeros(groups, dtype=np.int64)]
            spans = [span, np.stack([low, high], axis=1)]
            top, count = count + np.arange(groups), count + groups
        same = np.concatenate([kept, np.full(count - len(kept), -1)])
        stands = same.copy()
        stands[moved[units]] = -1

        new = NewTree(np.concatenate(parents), same, stands, moved, stays & ~forest.is_leaf)
        new.domain, new.name = int(self.domain), "window"
        new.span = np.concatenate(spans)
        if self.domain is Domain.SEQUENCE:
            new.pos = np.concatenate(places)
        return rebuild(tree, forest, new)

    @staticmethod
    def _spans(tree: SignalTree, kept: Ints) -> Ints:
        span = tree.to_dict().get("tree_span")
        if span is None:
            return np.zeros((len(kept), 2), dtype=np.int64)
        return span.cpu().numpy()[kept]

    def __repr__(self) -> str:
        level = "" if self.level is None else f", level={self.level}"
        return f"{self.__class__.__name__}({list(self.windows)}{level})"
