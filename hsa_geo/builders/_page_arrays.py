"""A walked page as arrays: limits, chains removed, and the signal tree."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import torch

from hsa_geo.builders._collapse import (
    chain_tops,
    collapse_chains,
    drop_leaves,
    set_nodes,
    sibling_rank,
)
from hsa_geo.builders._page_lists import LeafKind, PageLists
from hsa_geo.builders._source import over_limit
from hsa_geo.builders.tokens import Field, hash_token, ids_of_words
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import levels_of
from hsa_geo.errors import LimitError

__all__ = ["PageArrays", "signal_tree"]


class PageArrays:
    """A walked page as arrays; nodes keep their ids until :meth:`tree`.

    Args:
        walk: What the walk found.
        sets: Tags whose children are a set where they hold no words of their own.

    Attributes:
        inner: ``[M]``, which nodes are inner.
        keep: ``[M]``, which nodes are left.
        domain: ``[M]``, domain of the children of each inner node.
        place: ``[M]``, the node in whose place each node stands.
    """

    def __init__(self, walk: PageLists, sets: frozenset[str] = frozenset()) -> None:
        self.walk = walk
        self.parent = np.array(walk.parent, dtype=np.int64)
        self.kind = np.array(walk.kind, dtype=np.int64)
        self.inner = self.kind < 0
        self.keep = np.ones(len(self.parent), dtype=bool)
        self.name = walk.name
        self.place = np.arange(len(self.parent))
        self.domain = np.full(len(self.parent), int(Domain.SEQUENCE), dtype=np.int64)
        self.domain[walk.grid + walk.cells] = int(Domain.GRID2D)
        if sets:
            named = self.inner.copy()
            for node in np.flatnonzero(named).tolist():
                named[node] = self.name[node] in sets
            sentence = np.array(walk.sentence, dtype=np.int64)
            unordered = set_nodes(self.parent, named, self.kind == LeafKind.WORD, sentence)
            self.domain[unordered] = int(Domain.SET)

    def limit_leaves(self, limit: int | None, on_limit: str) -> None:
        """Leave out the last leaves beyond a limit, or raise."""
        leaves = np.flatnonzero(~self.inner)
        if limit is None or len(leaves) <= limit:
            return
        over_limit(
            on_limit,
            f"the page has {len(leaves)} leaves, more than max_leaves={limit}",
            "raise max_leaves",
            f"the last {len(leaves) - limit} leaves",
            stacklevel=5,
        )
        keep = np.zeros(len(self.parent), dtype=bool)
        keep[leaves[:limit]] = True
        self._restrict(keep)

    def limit_depth(self, limit: int | None, on_limit: str, collapse: bool) -> None:
        """Leave out the leaves below a level, or raise."""
        if limit is None or len(self.parent) <= limit:
            return
        level = levels_of(self.parent)
        if level[self.keep].max() <= limit:
            return
        deep = self.keep & ~self.inner & (level > limit)
        leaves = int((self.keep & ~self.inner).sum())
        over_limit(
            on_limit,
            f"the page's tree is {int(level[self.keep].max())} levels deep, more than "
            f"max_depth={limit}",
            "raise max_depth",
            f"the {int(deep.sum())} of {leaves} leaves that lie deeper",
            stacklevel=5,
        )
        if int(deep.sum()) == leaves:
            raise LimitError(f"max_depth={limit} leaves no leaf of the page: raise max_depth.")
        self._restrict(self.keep & ~self.inner & ~deep)
        if collapse:
            self.collapse()

    def _restrict(self, keep_leaf: np.ndarray) -> None:
        self.keep &= drop_leaves(self.parent, self.inner, keep_leaf)

    def collapse(self) -> None:
        """Remove inner nodes with a single child."""
        ids = np.flatnonzero(self.keep)
        new_id = np.cumsum(self.keep) - 1
        parent = self.parent[ids]
        parent[1:] = new_id[parent[1:]]
        pinned = np.zeros(len(self.parent), dtype=bool)
        pinned[self.walk.pinned] = True
        drop, above = collapse_chains(parent, self.inner[ids], pinned[ids])
        children = np.bincount(parent[1:], minlength=len(parent))
        alone = children == 1
        # A pinned node takes over the children of its only child, as they lie there.
        absorbed = np.flatnonzero(drop & (children > 1))
        self.domain[ids[above[absorbed]]] = self.domain[ids[absorbed]]
        if self.walk.cells:
            self.place[ids] = self.place[ids[chain_tops(parent, drop & alone)]]
        # A paragraph of one sentence keeps the paragraph's name, a table of cells the table's.
        sentence = np.array(self.walk.sentence + self.walk.cells, dtype=np.int64)
        sentence = new_id[sentence[self.keep[sentence]]]
        above_it = parent[sentence]
        for k in sentence[~drop[sentence] & drop[above_it] & alone[above_it]].tolist():
            self.name[ids[k]] = self.name[ids[parent[k]]]
        self.keep[ids[drop]] = False
        self.parent[ids[1:]] = ids[above[1:]]

    def tree(self, buckets: int, patch_size: int, names: bool) -> SignalTree:
        """The signal tree of what is left."""
        return signal_tree(**self.fields(buckets, patch_size, names))

    def fields(self, buckets: int, patch_size: int, names: bool) -> dict[str, Any]:
        """What is left, as the arguments of :func:`signal_tree`; the root is node 0."""
        walk, keep = self.walk, self.keep
        ids = np.flatnonzero(keep)
        new_id = np.where(keep, np.cumsum(keep) - 1, -1)
        parent = self.parent[ids]
        parent[1:] = new_id[parent[1:]]
        kind, inner = self.kind[ids], self.inner[ids]
        row = np.where(keep & ~self.inner, np.cumsum(keep & ~self.inner) - 1, -1)

        domain = np.where(inner, self.domain[ids], -1)
        pos = np.zeros((len(ids), 2), dtype=np.float32)
        around = domain[parent[1:]]
        pos[1:, 0] = np.where(around == Domain.SEQUENCE, sibling_rank(parent)[1:], 0)
        if walk.cells:
            cell_pos = np.zeros((len(keep), 2), dtype=np.float32)
            cells = np.array(walk.cell_pos, dtype=np.int64)
            cell_pos[cells[:, 0]] = cells[:, 1:]
            on_grid = np.flatnonzero(around == Domain.GRID2D) + 1
            pos[on_grid] = cell_pos[self.place[ids[on_grid]]]
        image_x, image_row = self._patches(new_id, row, pos, patch_size)
        text_x, text_row = self._texts(row, buckets)
        form_node = new_id[np.array(walk.form_node, dtype=np.int64)]
        form_order = np.array(walk.form_order, dtype=np.int64)[form_node >= 0]
        return {
            "parent": parent,
            "domain": domain,
            "pos": pos,
            "name": [self.name[i] for i in ids.tolist()] if names else None,
            "leaf_kind": kind[~inner],
            "text_x": text_x,
            "text_index": text_row,
            "image_x": image_x,
            "image_index": image_row,
            "form_node": form_node[form_node >= 0],
            "form_order": form_order,
        }

    def _patches(
        self, new_id: np.ndarray, row: np.ndarray, pos: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        features = [np.zeros((0, 3 * size * size), dtype=np.uint8)]
        rows = [np.zeros(0, dtype=np.int64)]
        for first, grid in zip(self.walk.patch_node, self.walk.patches):
            cells = np.arange(grid.rows * grid.cols)
            kept = row[first + cells] >= 0
            cells = cells[kept]
            if not cells.size:
                continue
            rows.append(row[first + cells])
            features.append(grid.patches[kept])
            pos[new_id[first + cells]] = np.stack([cells // grid.cols, cells % grid.cols], axis=1)
        return np.concatenate(features), np.concatenate(rows)

    def _texts(self, row: np.ndarray, buckets: int) -> tuple[np.ndarray, np.ndarray]:
        walk = self.walk
        word_rows = row[self.kind == LeafKind.WORD]
        tokens = ids_of_words(walk.words, buckets)
        counts = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
        tag_id = {tag: hash_token(tag, buckets) for tag in set(walk.tags)}
        tags = np.fromiter(map(tag_id.__getitem__, walk.tags), np.int64, count=len(walk.tags))
        nodes, fields, ids = (np.array(part, dtype=np.int64) for part in walk.extra)
        rows = np.concatenate([np.repeat(word_rows, counts), word_rows, row[nodes]])
        token = np.concatenate(
            [np.fromiter(chain.from_iterable(tokens), np.int64, count=counts.sum()), tags, ids]
        )
        field = np.concatenate(
            [
                np.full(int(counts.sum()), int(Field.WORD)),
                np.full(len(tags), int(Field.TAG)),
                fields,
            ]
        )
        order = np.argsort(rows, kind="stable")
        order = order[rows[order] >= 0]
        return np.stack([token[order], field[order]], axis=1), rows[order]


def signal_tree(
    *, parent: np.ndarray, domain: np.ndarray, pos: np.ndarray, name: list[str] | None, **attrs: Any
) -> SignalTree:
    """The signal tree of arrays.

    Args:
        parent, domain, pos, name: As for :meth:`SignalTree.from_parents`.
        attrs: Arrays of attributes.

    Returns:
        The tree; the rows of modalities are sorted by leaf.
    """
    tensors: dict[str, Any] = {key: torch.from_numpy(value) for key, value in attrs.items()}
    tree: SignalTree = SignalTree.from_parents(parent, domain=domain, pos=pos, name=name, **tensors)
    # A caption that does not come first in its table moves leaves behind others.
    for modality in ("text", "image"):
        index = tree[f"{modality}_index"]
        if (index[1:] < index[:-1]).any():
            order = index.argsort(stable=True)
            tree[f"{modality}_index"] = index[order]
            tree[f"{modality}_x"] = tree[f"{modality}_x"][order]
    return tree
