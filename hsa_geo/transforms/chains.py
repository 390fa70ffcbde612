"""Chains of single children contracted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.transforms.arguments import flag
from hsa_geo.transforms.attach import check_tree
from hsa_geo.transforms.rebuild import NewTree, reading_order, rebuild

__all__ = ["ContractChains"]

Bools = NDArray[np.bool_]


class ContractChains(BaseTransform):
    r"""Remove inner nodes that have one child, which change nothing in HSA.

    What remains of a chain is its lowest node, a leaf or a node with several children.  It keeps
    what it is: domain, name and span.  Where it stands, ``tree_pos`` and ``tree_pe``, it gets
    from the top of the chain, whose place among the siblings it takes.  ``{name}_node`` and links
    follow from all nodes of the chain.

    The one place where a chain does matter: a leaf's score with itself has the leaf's own position,
    its scores with siblings that of the top of the chain.  So a chain above a leaf is contracted to
    one node if both may differ: if the domains are not the same, or the positions or encodings
    are not (in a ``SET`` they do not count).

    Args:
        keep_positions (bool): Keep that one node, so that output and energy are the same to the
            last digit or two; otherwise the leaf takes the place of the top, and only without
            positions are they the same. (default: :obj:`True`)

    Raises:
        UnsupportedError: If the input is no single SignalTree.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 1, 2, 2], name=["page", "div", "p", "to", "be"])
        >>> ContractChains()(tree).describe()
        SignalTree: 2 leaves, 3 nodes, depth 1
        p: SET of 2, 2 leaves
          to
          be
    """

    def __init__(self, keep_positions: bool = True) -> None:
        self.keep_positions = flag(keep_positions, "keep_positions")

    def forward(self, data: Any) -> SignalTree:
        """The tree without chains."""
        tree = check_tree(data, "ContractChains")
        forest = Forest.of(tree)
        m, n = forest.num_nodes, tree.num_leaves
        nodes = np.arange(m)
        goes = np.bincount(forest.edge_parent, minlength=m) == 1
        below = nodes.copy()
        below[forest.edge_parent] = forest.edge_child  # the only child, where there is one
        over = np.where(forest.parent >= 0, forest.parent, nodes)
        if self.keep_positions:
            top = _followed(np.where(goes[over], over, nodes))
            leaf = np.flatnonzero(forest.is_leaf & goes[over])
            leaf = leaf[~_stands_alike(tree, forest, leaf, top[leaf])]
            goes[over[leaf]] = False
        top = _followed(np.where(goes[over], over, nodes))
        bottom = _followed(np.where(goes, below, nodes))

        kept = np.concatenate([reading_order(forest), n + np.flatnonzero(~goes[n:])])
        place = top[kept]
        new_id = np.full(m, -1)
        new_id[kept] = np.arange(len(kept))
        above = forest.parent[place]
        parent = np.where(above < 0, -1, new_id[above])
        new = NewTree(parent, kept, place, new_id[bottom], ~goes & ~forest.is_leaf)
        return rebuild(tree, forest, new)

    def __repr__(self) -> str:
        kept = "" if self.keep_positions else "keep_positions=False"
        return f"{self.__class__.__name__}({kept})"


def _followed(step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where steps end that lead along chains (pointer doubling)."""
    while True:
        further = step[step]
        if np.array_equal(further, step):
            return step
        step = further


def _stands_alike(
    tree: SignalTree, forest: Forest, leaf: NDArray[np.int64], top: NDArray[np.int64]
) -> Bools:
    """Whether every leaf has the same domain, position and encoding as the top of its chain."""
    domain = tree.tree_domain.cpu().numpy()
    own, high = domain[forest.parent[leaf]], domain[forest.parent[top]]
    alike: Bools = np.ones(len(leaf), dtype=np.bool_)
    for key in ("tree_pos", "tree_pe"):
        value = tree.to_dict().get(key)
        if value is not None:
            array = value.detach().cpu().numpy()
            alike &= (array[leaf] == array[top]).all(axis=1)
    # A root has no position, a leaf below it has one, unless in a set.
    return ((own == high) & alike & (forest.parent[top] >= 0)) | (
        (own == Domain.SET) & ((high == Domain.SET) | (forest.parent[top] < 0))
    )
