"""Restriction of a tree to a subset of its leaves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data.forest import Forest
from hsa_geo.data.store import NODE_KEYS, Kind, kind_of
from hsa_geo.errors import ShapeError, TreeError, UnsupportedError

__all__ = ["restrict"]

_LEVELS = 64


def restrict(tree: Any, leaves: Any, *, keep_order: bool = False) -> Any:
    """The tree over some of the leaves: their ancestors stay, the rest is pruned.

    Chains of single children that arise stay too (they change nothing in HSA).  Leaves keep
    their order, whatever the order of an index, unless ``keep_order`` asks for it.
    Positions, domains and names are kept, attributes with one row per leaf are selected,
    modalities filtered to the leaves that stay, edges among leaves (``edge_index``,
    ``{name}_edge_index``, ...) with their attributes (``edge_attr``, ``{name}_edge_weight``,
    ...) to those with both ends in, so are links among siblings (``tree_link``);
    ``{name}_node`` refers to the same nodes as before.
    Everything else belongs to the whole tree and stays.

    Args:
        tree: One SignalTree.
        leaves: Bool mask ``[N]``, or the rows ``[K]`` of the leaves to keep.
        keep_order: Number the leaves in the order of ``leaves``, as where a sampler has put its
            seeds first; siblings keep theirs. (default: :obj:`False`)

    Returns:
        A new tree, with its leaves in the order they were in (or in that of ``leaves``), and with
        a plan of its own.

    Raises:
        ShapeError: If ``leaves`` is empty, has duplicates, is out of range, or is neither mask
            nor index.
        TreeError: If a node that ``{name}_node`` refers to would be pruned.
        UnsupportedError: For a batch, or sparse matrices among the leaves.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.arange(4.0))
        >>> small = restrict(tree, torch.tensor([3, 0]))
        >>> small.x.tolist(), small.tree_index.tolist()
        ([0.0, 3.0], [[2, 3, 4, 4], [0, 1, 2, 3]])
    """
    if isinstance(tree, Batch) or "batch" in tree:
        raise UnsupportedError(
            "a batch cannot be restricted: restrict the trees before batching, or those of "
            "batch.to_data_list(), and batch them again."
        )
    n, m = tree.num_leaves, tree.num_tree_nodes
    rows = _rows(leaves, n, keep_order).to(tree.tree_index.device)  # increasing, or as given
    Forest.of(tree)  # refuses what is no tree before anything is indexed with it
    keep = _with_ancestors(tree.tree_index, rows, m)
    new_row = torch.full((n,), -1, dtype=torch.int64, device=rows.device)
    new_row[rows] = torch.arange(len(rows), device=rows.device)
    new_id = torch.cumsum(keep, 0) - 1
    new_id[:n] = new_row
    kept = torch.cat([rows, n + keep[n:].nonzero().squeeze(1)])  # old id of each new one

    values = tree.to_dict()
    out = type(tree)()
    out.num_nodes = len(rows)
    edges = _Edges(values, new_row)
    for key, value in values.items():
        kind = kind_of(key, values, value)
        if key == "num_nodes":
            continue
        if kind is Kind.TREE_EDGES:
            value = new_id[value[:, keep[value[1]]]]
        elif kind is Kind.TREE_NODES:
            value = _select(value, kept)
        elif kind is Kind.TREE_LINKS:
            value = new_id[value[:, _linked(value, keep)]]
        elif kind is Kind.LINK_ROWS:
            value = _select(value, _linked(values["tree_link"], keep))
        elif kind is Kind.NODE_IDS:
            value = _remap(tree, key, value, keep, new_id)
        elif kind is Kind.LEAF_ROWS:
            value = new_row[value]
            value = value[value >= 0]
        elif kind is Kind.MODALITY:
            index = new_row[values[f"{key.removesuffix('x')}index"]]
            value = _select(value, (index >= 0).nonzero().squeeze(1))
        elif kind is Kind.GRAPH_EDGES:
            value = edges.kept(key)
        elif key == "adj" and isinstance(value, Tensor) and value.shape[:2] == (n, n):
            value = _dense(key, value)[rows][:, rows]
        elif owner := edges.owner(key, tree):
            value = _select(value, edges.places(owner))
        elif tree.is_node_attr(key):
            value = _select(_dense(key, value), rows)
        out[key] = value
    assert set(NODE_KEYS) & set(values) <= set(out.keys())
    return out


def _linked(links: Tensor, keep: Tensor) -> Tensor:
    """Columns of ``tree_link`` with both ends among the nodes that stay."""
    return (keep[links[0]] & keep[links[1]]).nonzero().squeeze(1)


def _rows(leaves: Any, n: int, keep_order: bool) -> Tensor:
    """Rows to keep, increasing unless their order is to be kept."""
    try:
        leaves = torch.as_tensor(leaves)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"leaves={leaves!r:.80} are no rows: give a bool mask [{n}] or int64 rows."
        ) from error
    if leaves.dim() != 1 or leaves.is_floating_point() or leaves.is_complex():
        raise ShapeError(
            f"leaves has shape {list(leaves.shape)} and dtype {leaves.dtype}: give a bool mask "
            f"[{n}] or int64 rows."
        )
    if leaves.dtype == torch.bool:
        if len(leaves) != n:
            raise ShapeError(f"the mask has {len(leaves)} entries for {n} leaves: give {n}.")
        rows = leaves.nonzero().squeeze(1)
    else:
        given = leaves.long()
        rows = given.sort().values
        bad = rows[(rows < 0) | (rows >= n)]
        if bad.numel():
            raise ShapeError(f"there is no leaf {int(bad[0])}: the tree has leaves 0..{n - 1}.")
        twice = rows[1:][rows[1:] == rows[:-1]]
        if twice.numel():
            raise ShapeError(f"leaf {int(twice[0])} is listed twice: list every leaf once.")
        rows = given if keep_order else rows
    if len(rows) == 0:
        raise ShapeError("no leaf is kept, but a tree has at least one: keep some.")
    return rows


def _with_ancestors(tree_index: Tensor, rows: Tensor, m: int) -> Tensor:
    """``[M]`` bool, the leaves and all nodes above them."""
    up = torch.arange(m, device=rows.device)  # the root is its own parent here
    up[tree_index[1]] = tree_index[0]
    keep = torch.zeros(m, dtype=torch.bool, device=rows.device)
    keep[rows] = True
    nodes = rows
    for _ in range(_LEVELS):  # level by level, which costs what is kept
        nodes = up[nodes].unique()
        nodes = nodes[~keep[nodes]]
        if not len(nodes):
            return keep
        keep[nodes] = True
    for _ in range(m.bit_length()):  # deeper trees: pointer doubling
        keep[up[keep]] = True
        up = up[up]
    return keep


def _remap(tree: Any, key: str, value: Tensor, keep: Tensor, new_id: Tensor) -> Tensor:
    gone = value[~keep[value.long()]]
    if gone.numel():
        node = int(gone[0])
        name = f" ({tree.tree_name[node]!r})" if "tree_name" in tree else ""
        raise TreeError(
            f"'{key}' refers to node {node}{name}, none of whose leaves is kept: remove it from "
            f"'{key}' first, or keep one of its leaves."
        )
    return new_id[value.long()].to(value.dtype)


class _Edges:
    """The edges among leaves that stay, and which attributes go with them."""

    def __init__(self, values: dict[str, Any], new_row: Tensor) -> None:
        self.index: dict[str, Tensor] = {}
        self.new_row = new_row
        for key, value in values.items():
            if kind_of(key, values, value) is Kind.GRAPH_EDGES:
                self.index[key] = _dense(key, value)

    def places(self, key: str) -> Tensor:
        """Columns of ``key`` with all ends among the leaves that stay."""
        return (self.new_row[self.index[key]] >= 0).all(dim=0).nonzero().squeeze(1)

    def kept(self, key: str) -> Tensor:
        """``key`` restricted."""
        return self.new_row[self.index[key][:, self.places(key)]]

    def owner(self, key: str, tree: Any) -> str | None:
        """The edges whose attribute ``key`` is: ``{p}_attr``, ``{p}`` beside ``{p}_index``."""
        value = tree[key]
        if isinstance(value, Tensor) and value.dim() == 0:
            return None
        if not isinstance(value, (Tensor, list, tuple)):
            return None
        for name in sorted(self.index, key=len, reverse=True):
            stem = name.removesuffix("_index")
            named = key == stem or key.startswith(f"{stem}_")
            if stem not in ("edge", "face") and named and len(value) == self.index[name].size(1):
                return name
        return "edge_index" if "edge_index" in self.index and tree.is_edge_attr(key) else None


def _dense(key: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        raise UnsupportedError(
            f"'{key}' is a sparse matrix, which restrict does not cut: keep edge_index instead."
        )
    return value


def _select(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows.to(value.device)]
    if isinstance(value, (list, tuple)):
        return type(value)([value[i] for i in rows.tolist()])
    return value[rows.cpu().numpy()]  # an array
