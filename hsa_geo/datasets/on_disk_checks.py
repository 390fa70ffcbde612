"""Whether a tree that was read is one: quick, as it is asked of every tree of a large set.

:meth:`~hsa_geo.data.SignalTree.validate` takes longer than reading a small tree.  Here the
hierarchy, the lengths, and the ranges of everything that refers to a leaf or a node are looked at;
only what does not pass is validated, which says what is wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.data.domain import LEAF, Domain
from hsa_geo.data.store import Kind, kind_of

__all__ = ["check_tree"]

#: Domains are 0 to this.
_LAST = max(map(int, Domain))
_OF_LEAVES = (Kind.LEAF_ROWS, Kind.GRAPH_EDGES)


def check_tree(tree: SignalTree) -> None:
    """Raise if a tree is damaged.

    Args:
        tree: The tree, on the CPU.

    Raises:
        HSAError: As :meth:`~hsa_geo.data.SignalTree.validate`.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> check_tree(tree)
        >>> tree.tree_index[1, 1] = 0
        >>> check_tree(tree)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hsa_geo.errors.TreeError: ...
    """
    values = tree.to_dict()
    try:
        fits = _hierarchy_fits(values) and _references_fit(values)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError):
        fits = False
    if not fits:
        tree.validate()


def _hierarchy_fits(values: dict[str, Any]) -> bool:
    parent, child = values["tree_index"].numpy()
    level, domain = values["tree_level"].numpy(), values["tree_domain"].numpy()
    leaves, nodes = values["num_nodes"], len(level)
    if (
        not 0 < leaves <= nodes
        or len(domain) != nodes
        or values["tree_pos"].shape != (nodes, 2)
        or len(child) != nodes - 1
        or len(values.get("tree_name", level)) != nodes
        or not np.isfinite(values["tree_pos"].numpy()).all()
        or level[-1] != 0
    ):
        return False
    inner = domain[leaves:]
    if (domain[:leaves] != LEAF).any() or (inner < 0).any() or (inner > _LAST).any():
        return False
    if nodes == 1:
        return True
    if parent.min() < leaves or child.min() < 0 or child.max() > nodes - 2:
        return False
    return bool(
        parent[-1] == nodes - 1  # sorted, so it is the largest
        and (parent[1:] >= parent[:-1]).all()
        and np.bincount(child, minlength=nodes - 1).max() == 1  # each node but the root once
        and np.bincount(parent, minlength=nodes)[leaves:].min() > 0
        and (level[child] == level[parent] + 1).all()
        and (level[leaves + 1 :] <= level[leaves:-1]).all()
    )


def _references_fit(values: dict[str, Any]) -> bool:
    leaves, nodes = values["num_nodes"], len(values["tree_level"])
    for key, value in values.items():
        kind = kind_of(key, values, value)
        if kind in (Kind.TREE_LINKS, Kind.LINK_ROWS):  # rare: left to the full validation
            return False
        if kind is Kind.NODE_ROWS and len(value) != len(values[f"{key.rpartition('_')[0]}_node"]):
            return False
        if kind is Kind.TREE_NODES and len(value) != nodes:
            return False
        if key in ("x", "pos", "batch", "edge_attr", "edge_weight", "leaf_weight"):
            rows = values["edge_index"].size(1) if key.startswith("edge_") else leaves
            if len(value) != rows:
                return False
        if kind is Kind.LEAF_ROWS:
            if value.dim() != 1 or len(value) != len(values[f"{key.removesuffix('index')}x"]):
                return False
        elif kind is Kind.GRAPH_EDGES and value.size(0) != 2:
            return False
        if kind is Kind.NODE_IDS or kind in _OF_LEAVES:
            if not isinstance(value, Tensor):
                return False
            some = value.numpy()
            limit = nodes if kind is Kind.NODE_IDS else leaves
            if some.size and (some.min() < 0 or some.max() >= limit):
                return False
    return True
