"""A tree with other inner nodes above the same leaves: what Rewindow and ContractChains share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hsa_geo.data import LEAF, SignalTree
from hsa_geo.data.canonical import Canonical, canonical_order, reading_starts
from hsa_geo.data.forest import Forest
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import TreeError

__all__ = ["NewTree", "reading_canonical", "rebuild", "sibling_ranks"]

Ints = NDArray[np.int64]


def sibling_ranks(tree_index: Tensor) -> Tensor:
    """Place of every column's child among its siblings, 0, 1, ..., ``[M-1]``.

    Example:
        >>> sibling_ranks(torch.tensor([[3, 3, 4, 4], [0, 1, 2, 3]]))
        tensor([0, 1, 0, 1])
    """
    parent = tree_index[0]
    return torch.arange(len(parent), device=parent.device) - torch.searchsorted(parent, parent)


def reading_order(forest: Forest) -> Ints:
    """Rows of the leaves of one tree in reading order, ``[N]``.

    Example:
        >>> tree = SignalTree.from_parents([3, 4, 3, 4, -1], keep_leaf_order=True)
        >>> reading_order(Forest.of(tree)).tolist()
        [0, 2, 1]
    """
    start = reading_starts(forest.parent, forest.level, forest.edge_child)
    leaves = np.flatnonzero(forest.is_leaf)
    return leaves[np.argsort(start[leaves])]


def reading_canonical(parent: Ints, rows: Ints) -> Canonical:
    """The canonical order of a tree whose leaf p in reading order has row ``rows[p]``.

    Args:
        parent: ``[M]``, parents; the leaves are nodes 0..N-1, in reading order.
        rows: ``[N]``, a permutation.

    Returns:
        As :func:`~hsa_geo.data.canonical.canonical_order`, with the leaves numbered by row.

    Example:
        >>> reading_canonical(np.array([3, 3, 4, 4, -1]), np.array([0, 2, 1])).order.tolist()
        [0, 2, 1, 3, 4]
    """
    found, n = canonical_order(parent), len(rows)
    new_id = np.arange(len(parent))
    new_id[:n] = rows[found.order[:n]]
    order, level = found.order.copy(), found.level.copy()
    order[new_id[:n]], level[new_id[:n]] = found.order[:n], found.level[:n]
    return Canonical(order, n, new_id[found.tree_index], level)


@dataclass
class NewTree:
    """What :func:`rebuild` makes a tree of; M' new nodes, the leaves first, in reading order.

    Attributes:
        parent: ``[M']``, parents, -1 for the root.
        same: ``[M']``, the old node that gives each its domain, name and span, -1 for new ones.
        place: ``[M']``, the old node that gives each its position and encoding, -1 for none: its
            encoding is then zero.
        moved: ``[M]``, the new node in place of each old one, -1 where it is gone.
        linked: ``[M]`` bool, the old nodes that keep the links among their children.
        domain: Domain of new nodes.
        name: Name of new nodes.
        pos: ``[M']``, first coordinates of nodes without a place. (default: zero)
        span: ``[M', 2]``, spans of new nodes. (default: zero)
    """

    parent: Ints
    same: Ints
    place: Ints
    moved: Ints
    linked: NDArray[np.bool_]
    domain: int = 0
    name: str = ""
    pos: Ints | None = None
    span: Ints | None = None


def rebuild(tree: SignalTree, forest: Forest, new: NewTree) -> SignalTree:
    """The tree with the hierarchy of ``new``; leaves, and all that belongs to them, as before.

    Args:
        tree: One tree.
        forest: Its forest.
        new: The hierarchy.

    Raises:
        TreeError: If ``{name}_node`` refers to a node that is gone.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 4, 4, -1])
        >>> flat = NewTree(
        ...     np.array([3, 3, 3, -1]), np.array([0, 1, 2, 4]), np.array([0, 1, 2, 4]),
        ...     np.array([0, 1, 2, -1, 3]), np.ones(5, dtype=bool),
        ... )
        >>> rebuild(tree, Forest.of(tree), flat).tree_index.tolist()
        [[3, 3, 3], [0, 1, 2]]
    """
    canonical = reading_canonical(new.parent, reading_order(forest))
    order, n = canonical.order, canonical.num_leaves
    device = tree.tree_index.device
    new_id = np.empty_like(order)
    new_id[order] = np.arange(len(order))
    moved = torch.from_numpy(np.where(new.moved < 0, -1, new_id[new.moved])).to(device)
    same = torch.from_numpy(new.same[order]).to(device)
    place = torch.from_numpy(new.place[order]).to(device)

    values = tree.to_dict()
    out = type(tree)()
    out.num_nodes = n
    links = _links(values, forest, new.linked, device)
    for key, value in values.items():
        kind = kind_of(key, values, value)
        if key == "num_nodes":
            continue
        if key == "tree_index":
            value = torch.from_numpy(canonical.tree_index).to(device)
        elif key == "tree_level":
            value = torch.from_numpy(canonical.level).to(device)
        elif key == "tree_domain":
            value = _taken(value, same, new.domain)
            value[:n] = LEAF
        elif key in ("tree_pos", "tree_pe"):
            value = _taken(value, place, 0)
            if new.pos is not None and key == "tree_pos":
                own = torch.from_numpy(new.pos[order]).to(value)
                value[:, 0] = torch.where(place < 0, own, value[:, 0])
        elif key == "tree_span":
            value = _taken(value, same, 0)
            if new.span is not None:
                own = torch.from_numpy(new.span[order]).to(device)
                value = torch.where(same[:, None] < 0, own, value)
        elif key == "tree_name":
            value = [value[i] if i >= 0 else new.name for i in same.tolist()]
        elif kind is Kind.TREE_LINKS:
            value = moved[value[:, links]]
        elif kind is Kind.LINK_ROWS:
            value = value[links] if isinstance(value, Tensor) else [value[i] for i in links]
        elif kind is Kind.NODE_IDS:
            value = _remapped(tree, key, value, moved)
        out[key] = value
    return out


def _links(
    values: dict[str, Any], forest: Forest, linked: NDArray[np.bool_], device: torch.device
) -> Tensor:
    """Columns of ``tree_link`` that stay."""
    link = values.get("tree_link")
    if link is None:
        return torch.empty(0, dtype=torch.int64, device=device)
    above = torch.from_numpy(forest.parent).to(device)[link[0]]
    return torch.from_numpy(linked).to(device)[above].nonzero().squeeze(1)


def _taken(value: Tensor, rows: Tensor, otherwise: int) -> Tensor:
    out = value[rows.clamp(min=0)]
    return out.masked_fill((rows < 0).view(-1, *[1] * (value.dim() - 1)), otherwise)


def _remapped(tree: SignalTree, key: str, value: Tensor, moved: Tensor) -> Tensor:
    gone = value[moved[value.long()] < 0]
    if gone.numel():
        node = int(gone[0])
        name = f" ({tree.tree_name[node]!r})" if "tree_name" in tree else ""
        raise TreeError(
            f"'{key}' refers to node {node}{name}, which is no more: remove it from '{key}' first."
        )
    return moved[value.long()].to(value.dtype)
