"""A walked page as arrays: limits, chains removed, and the signal tree."""

from __future__ import annotations

from itertools import chain

import numpy as np
import torch

from hsa_geo.builders._collapse import collapse_chains, drop_leaves, sibling_rank
from hsa_geo.builders._page_lists import LeafKind, PageLists
from hsa_geo.builders._source import over_limit
from hsa_geo.builders.tokens import Field, hash_token, ids_of_words
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import levels_of
from hsa_geo.errors import LimitError

__all__ = ["PageArrays"]


class PageArrays:
    """A walked page as arrays; nodes keep their ids until :meth:`tree`.

    Args:
        walk: What the walk found.

    Attributes:
        inner: ``[M]``, which nodes are inner.
        keep: ``[M]``, which nodes are left.
    """

    def __init__(self, walk: PageLists) -> None:
        self.walk = walk
        self.parent = np.array(walk.parent, dtype=np.int64)
        self.kind = np.array(walk.kind, dtype=np.int64)
        self.inner = self.kind < 0
        self.keep = np.ones(len(self.parent), dtype=bool)
        self.name = walk.name

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
        # A paragraph of one sentence keeps the paragraph's name.
        alone = np.bincount(parent[1:], minlength=len(parent)) == 1
        sentence = np.array(self.walk.sentence, dtype=np.int64)
        sentence = new_id[sentence[self.keep[sentence]]]
        above_it = parent[sentence]
        for k in sentence[~drop[sentence] & drop[above_it] & alone[above_it]].tolist():
            self.name[ids[k]] = self.name[ids[parent[k]]]
        self.keep[ids[drop]] = False
        self.parent[ids[1:]] = ids[above[1:]]

    def tree(self, buckets: int, patch_size: int, names: bool) -> SignalTree:
        """The signal tree of what is left."""
        walk, keep = self.walk, self.keep
        ids = np.flatnonzero(keep)
        new_id = np.where(keep, np.cumsum(keep) - 1, -1)
        parent = self.parent[ids]
        parent[1:] = new_id[parent[1:]]
        kind, inner = self.kind[ids], self.inner[ids]
        row = np.where(keep & ~self.inner, np.cumsum(keep & ~self.inner) - 1, -1)

        domain = np.where(inner, int(Domain.SEQUENCE), -1)
        pos = np.zeros((len(ids), 2), dtype=np.float32)
        pos[1:, 0] = sibling_rank(parent)[1:]
        image_x, image_row = self._patches(new_id, row, domain, pos, patch_size)
        text_x, text_row = self._texts(row, buckets)
        form_node = new_id[np.array(walk.form_node, dtype=np.int64)]
        form_order = np.array(walk.form_order, dtype=np.int64)[form_node >= 0]
        tree: SignalTree = SignalTree.from_parents(
            parent,
            domain=domain,
            pos=pos,
            name=[self.name[i] for i in ids.tolist()] if names else None,
            leaf_kind=torch.from_numpy(kind[~inner]),
            text_x=torch.from_numpy(text_x),
            text_index=torch.from_numpy(text_row),
            image_x=torch.from_numpy(image_x),
            image_index=torch.from_numpy(image_row),
            form_node=torch.from_numpy(form_node[form_node >= 0]),
            form_order=torch.from_numpy(form_order),
        )
        return tree

    def _patches(
        self, new_id: np.ndarray, row: np.ndarray, domain: np.ndarray, pos: np.ndarray, size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        features = [np.zeros((0, 3 * size * size), dtype=np.uint8)]
        rows = [np.zeros(0, dtype=np.int64)]
        for first, node, grid in zip(self.walk.patch_node, self.walk.grid, self.walk.patches):
            cells = np.arange(grid.rows * grid.cols)
            kept = row[first + cells] >= 0
            cells = cells[kept]
            if not cells.size:
                continue
            rows.append(row[first + cells])
            features.append(grid.patches[kept])
            domain[new_id[node]] = int(Domain.GRID2D)
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
