"""Forest: the hierarchy of a tree or a batch as arrays on the host, safe to index.

What checks and draws a tree (:mod:`hsa_geo.data.validation`, :mod:`hsa_geo.data.views`) starts
from it; what computes with a tree starts from its :class:`~hsa_geo.data.TreePlan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsa_geo.data.canonical import Ints
from hsa_geo.errors import TreeError

__all__ = ["Forest", "flat_names"]


@dataclass(frozen=True)
class Forest:
    """Parents, levels and trees of all nodes.

    Attributes:
        edge_parent: ``[E]``, row 0 of ``tree_index``.
        edge_child: ``[E]``, row 1 of ``tree_index``.
        parent: ``[M]``, parent of every node, -1 at roots.
        level: ``[M]``, level of every node.
        roots: ``[B]``, ids of the roots, increasing.
        tree: ``[M]``, number of the tree of every node: a tree's nodes end with its root.
        is_leaf: ``[M]`` bool.
    """

    edge_parent: Ints
    edge_child: Ints
    parent: Ints
    level: Ints
    roots: Ints
    tree: Ints
    is_leaf: NDArray[np.bool_]

    @classmethod
    def of(cls, tree: Any) -> Forest:
        """The forest of a SignalTree or Batch.

        Raises:
            TreeError: If an id is out of range, a node has two parents or is its own, or there
                is no root; the message names the node.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> Forest.of(SignalTree.from_parents([2, 2, -1])).parent.tolist()
            [2, 2, -1]
        """
        above, child = tree.tree_index.detach().cpu().numpy()
        level = tree.tree_level.detach().cpu().numpy()
        m = len(level)
        for ids in (above, child):
            bad = np.flatnonzero((ids < 0) | (ids >= m))
            if bad.size:
                raise TreeError(
                    f"tree_index holds node {int(ids[bad[0]])}, but the tree has {m} nodes: ids "
                    f"are 0..{m - 1}, and the root has no edge (no -1)."
                )
        loops = np.flatnonzero(above == child)
        if loops.size:
            raise TreeError(f"node {int(child[loops[0]])} is its own parent in tree_index.")
        times = np.bincount(child, minlength=m)
        if times.max(initial=0) > 1:
            node = int(np.argmax(times > 1))
            parents = above[child == node][:5].tolist()
            raise TreeError(f"node {node} has the parents {parents}: a tree allows one.")
        parent = np.full(m, -1, dtype=np.int64)
        parent[child] = above
        roots = np.flatnonzero(parent < 0)
        if m and not roots.size:
            raise TreeError(f"none of the {m} nodes is a root: one of them has no parent.")
        is_leaf = np.ones(m, dtype=bool)
        is_leaf[above] = False
        number = np.searchsorted(roots, np.arange(m))
        return cls(above, child, parent, level, roots, number, is_leaf)

    @property
    def num_nodes(self) -> int:
        """Number of nodes M."""
        return len(self.parent)

    @property
    def num_trees(self) -> int:
        """Number of trees B."""
        return len(self.roots)

    def name(self, node: int | np.integer[Any]) -> str:
        """How an error calls a node; in a batch by its tree and its id within it.

        Example:
            >>> from torch_geometric.data import Batch
            >>> from hsa_geo.data import SignalTree
            >>> batch = Batch.from_data_list([SignalTree.from_parents([2, 2, -1])] * 2)
            >>> Forest.of(batch).name(4)
            'node 1 of tree 1'
        """
        if self.num_trees == 1:
            return f"node {int(node)}"
        tree = min(int(self.tree[node]), self.num_trees - 1)
        start = int(self.roots[tree - 1]) + 1 if tree else 0
        return f"node {int(node) - start} of tree {tree}"


def flat_names(names: Any) -> Any:
    """``tree_name`` of a tree or of a batch (a list for every tree) as one list.

    Example:
        >>> flat_names([["a", "b"], ["c"]])
        ['a', 'b', 'c']
    """
    while isinstance(names, list) and names and all(isinstance(item, list) for item in names):
        names = [name for item in names for name in item]
    return names
