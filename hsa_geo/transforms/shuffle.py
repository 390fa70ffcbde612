"""The leaves of a tree dealt out at random: the control of what a hierarchy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.errors import UnsupportedError
from hsa_geo.transforms.arguments import seed_or_none
from hsa_geo.transforms.attach import check_tree
from hsa_geo.transforms.rebuild import NewTree, reading_order, rebuild, sibling_ranks

__all__ = ["ShuffleHierarchy"]


class ShuffleHierarchy(BaseTransform):
    """Keep the shape of the hierarchy, but deal its places out to the leaves at random.

    As many groups of the same sizes and depths, with leaves that have nothing to do with one
    another: what a model gains from the true hierarchy over this one it gains from what the
    hierarchy says, and not from having one.

    Leaves keep their rows and attributes, so the order of rows is still that of the source, which
    is no longer the reading order (``plan.leaf_order``).  The leaves of a group stand in the order
    of their rows.  Inner nodes keep names, domains, positions and encodings, and ``{name}_node``
    follows them; a leaf takes the position and encoding of its new place.  Where the positions of
    a sequence count its nodes 0, 1, ..., they do so afterwards.  The span of an inner node reaches
    from the first to the last leaf below it; the root's stays.

    Args:
        seed (int, optional): Draw the same for every tree of a size; otherwise PyTorch's own
            generator draws, as in PyG's random transforms. (default: :obj:`None`)

    Raises:
        UnsupportedError: If the input is no single SignalTree, or has links among leaves.
        BuilderError: If the seed does not fit.

    Example:
        >>> tree = SignalTree.from_parents([6, 6, 6, 7, 7, 7, 8, 8, -1])
        >>> out = ShuffleHierarchy(seed=1)(tree)
        >>> out.tree_index[0].tolist(), sorted(out.tree_index[1].tolist()) == list(range(8))
        ([6, 6, 6, 7, 7, 7, 8, 8], True)
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed_or_none(seed)

    def forward(self, data: Any) -> SignalTree:
        """The tree with its leaves at other places."""
        tree = check_tree(data, "ShuffleHierarchy")
        forest = Forest.of(tree)
        n, m = tree.num_leaves, forest.num_nodes
        _check_links(tree, n)
        rows = reading_order(forest)
        generator = None
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed)
        place = torch.randperm(n, generator=generator).numpy()
        # The leaves of a group stand in the order of their rows, at its places from left to right.
        group = forest.parent[rows[place]]
        by_row = np.lexsort((rows, group))
        by_place = np.lexsort((place, group))
        place[by_row] = place[by_place]

        kept = np.concatenate([rows, np.arange(n, m)])
        moved = np.empty(m, dtype=np.int64)
        moved[kept] = np.arange(m)
        taken = kept.copy()
        taken[:n] = rows[place]
        above = forest.parent[taken]
        parent = np.where(above < 0, -1, moved[above])
        out = rebuild(tree, forest, NewTree(parent, kept, taken, moved, np.ones(m, dtype=bool)))
        if _counted(tree):
            _count(out)
        if "tree_span" in out:
            _cover(out)
        return out

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(seed={self.seed})"


def _check_links(tree: SignalTree, n: int) -> None:
    link = tree.to_dict().get("tree_link")
    if link is not None and bool((link < n).any()):
        raise UnsupportedError(
            f"tree_link joins leaf {int(link[link < n][0])} to a sibling that it would lose: "
            "remove tree_link first."
        )


def _in_sequence(tree: SignalTree) -> torch.Tensor:
    return tree.tree_domain[tree.tree_index[0]] == Domain.SEQUENCE


def _counted(tree: SignalTree) -> bool:
    """Whether the positions of all sequences are 0, 1, ...."""
    where = _in_sequence(tree)
    pos = tree.tree_pos[tree.tree_index[1], 0]
    return bool((pos == sibling_ranks(tree.tree_index))[where].all())


def _count(tree: SignalTree) -> None:
    where = _in_sequence(tree)
    pos = tree.tree_pos.clone()
    pos[tree.tree_index[1][where], 0] = sibling_ranks(tree.tree_index)[where].to(pos)
    tree.tree_pos = pos


def _cover(tree: SignalTree) -> None:
    """Spans of inner nodes, from those of the leaves; the root's stays."""
    forest = Forest.of(tree)
    span, n = tree.tree_span.clone(), tree.num_leaves
    low, high = span.cpu().numpy().T.copy()
    inner = ~forest.is_leaf
    inner[-1] = False
    low[inner], high[inner] = np.iinfo(np.int64).max, -1
    by_level = np.argsort(forest.level, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(forest.level))])
    for k in range(len(ptr) - 2, 1, -1):  # bottom-up, up to the children of the root
        nodes = by_level[ptr[k] : ptr[k + 1]]
        np.minimum.at(low, forest.parent[nodes], low[nodes])
        np.maximum.at(high, forest.parent[nodes], high[nodes])
    span[n:] = torch.from_numpy(np.stack([low, high], axis=1)[n:]).to(span)
    tree.tree_span = span
