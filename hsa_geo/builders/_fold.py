"""A signal tree as a nested signal: the way back of :mod:`hsa_geo.builders._unfold`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.builders._signal_checks import check_modality
from hsa_geo.builders.signals import Graph, Grid, Leaf, Sequence, Set, Signal
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import reading_starts
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import BuilderError, UnsupportedError

__all__ = ["features_of", "fold"]

_KEPT = {
    "num_nodes",
    "tree_index",
    "tree_level",
    "tree_domain",
    "tree_pos",
    "tree_name",
    "tree_link",
    "tree_link_weight",
    "x",
}


def features_of(tree: SignalTree) -> dict[str, Tensor]:
    """The features of a tree by modality; ``"x"`` are those of the leaves themselves.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1], x=torch.zeros(2, 3))
        >>> {modality: values.shape for modality, values in features_of(tree).items()}
        {'x': torch.Size([2, 3])}
    """
    values = tree.to_dict()
    out = {"x": values["x"]} if isinstance(values.get("x"), Tensor) else {}
    for key, value in values.items():
        if kind_of(key, values, value) is Kind.MODALITY:
            out[key.removesuffix("_x")] = value
    return out


def fold(tree: Any, drop: Collection[str]) -> Signal:
    """The signal of a tree; see :func:`hsa_geo.builders.to_nested`."""
    features = _checked(tree, drop)
    parent, child = tree.tree_index.cpu().numpy()
    m, n = tree.num_tree_nodes, tree.num_leaves
    domain = tree.tree_domain.tolist()
    start = np.searchsorted(parent, np.arange(m + 1))
    pos = tree.tree_pos.cpu().numpy()
    columns = _grid_columns(domain, pos, child, start)
    at = _explicit(domain, pos, parent, child, start, columns)
    names: list[Any] = [None] * m
    if "tree_name" in tree and "tree_name" not in drop:
        names = [name or None for name in tree.tree_name]
    graphs = _Graphs(tree, drop, parent, child, start)

    signals: list[Any] = _leaves(tree, features, names, at)
    kids, ptr = child.tolist(), start.tolist()
    for node in range(n, m):  # deepest level first, so that children are there
        below = kids[ptr[node] : ptr[node + 1]]
        children: Any = [signals[kid] for kid in below]
        label = {"name": names[node], "pos": at[node]}
        if domain[node] == Domain.SEQUENCE:
            signals.append(Sequence(children, **label))
        elif domain[node] == Domain.SET:
            signals.append(Set(children, **label))
        elif domain[node] == Domain.GRAPH:
            signals.append(Graph(children, **graphs.edges(node), **label))
        else:
            width = columns[node]
            if width is None:
                rows: Any = {_plain(pos[kid]): signals[kid] for kid in below}
            else:
                rows = [children[i : i + width] for i in range(0, len(children), width)]
            signals.append(Grid(rows, **label))
    return signals[-1]


# Checks ##########################################################################################


def _checked(tree: Any, drop: Collection[str]) -> dict[str, Tensor]:
    """The features that go into the signal; UnsupportedError if anything else would be lost."""
    if not isinstance(tree, SignalTree):
        raise BuilderError(f"tree is a {type(tree).__name__}: give a SignalTree.")
    if isinstance(tree, Batch) or "batch" in tree:
        raise UnsupportedError(
            "to_nested takes one tree, and this is a batch: use it on each of batch.to_data_list()."
        )
    if isinstance(drop, str):
        drop = (drop,)
    tree.validate()
    values = tree.to_dict()
    features = features_of(tree)
    kept = _KEPT | {f"{key}_{part}" for key in features for part in ("x", "index")}
    lost = sorted(set(values) - kept - set(drop))
    if lost:
        raise UnsupportedError(
            f"a nested signal has no place for {lost}: leave them out by drop={lost}, and add "
            "them to the tree that you build from it."
        )
    out = {}
    for modality, value in features.items():
        keys = {"x"} if modality == "x" else {f"{modality}_x", f"{modality}_index"}
        if keys & set(drop):
            continue
        if value.layout is not torch.strided or value.is_complex() or value.is_quantized:
            raise UnsupportedError(
                f"'{modality}' holds {value.dtype} in the layout {value.layout}: a nested signal "
                "takes dense real numbers."
            )
        try:
            check_modality(modality)
        except BuilderError as error:
            raise UnsupportedError(f"{error} It is a modality of this tree.") from None
        out[modality] = value
    level = tree.tree_level.cpu().numpy()
    parent = np.full(len(level), -1, dtype=np.int64)
    above, child = tree.tree_index.cpu().numpy()
    parent[child] = above
    starts = reading_starts(parent, level, child)[: tree.num_leaves]
    if (starts != np.arange(len(starts))).any():
        raise UnsupportedError(
            "the leaves of this tree are not in reading order, in which a nested signal lists "
            "them: sort them first by tree.restrict(tree.plan.leaf_order, keep_order=True)."
        )
    return out


# Positions #######################################################################################


def _plain(pos: np.ndarray) -> tuple[float, float]:
    """Row and column, as integers where they are such."""
    row, column = pos.tolist()
    return (
        int(row) if row.is_integer() else row,
        int(column) if column.is_integer() else column,
    )


def _grid_columns(
    domain: list[int], pos: np.ndarray, child: np.ndarray, start: np.ndarray
) -> dict[int, int | None]:
    """Columns of every grid that is written in rows; None for one written as a mapping."""
    out: dict[int, int | None] = {}
    for node, kind in enumerate(domain):
        if kind != Domain.GRID2D:
            continue
        places = pos[child[start[node] : start[node + 1]]]
        count, columns = len(places), float(places[-1, 1]) + 1
        if columns.is_integer() and 1 <= columns <= count and count % columns == 0:
            width = int(columns)
            row, column = np.divmod(np.arange(count), width)
            if (places[:, 0] == row).all() and (places[:, 1] == column).all():
                out[node] = width
                continue
        unique = len({tuple(place) for place in places.tolist()}) == count
        out[node] = None if unique else count  # else one row, with positions of their own
    return out


def _explicit(
    domain: list[int],
    pos: np.ndarray,
    parent: np.ndarray,
    child: np.ndarray,
    start: np.ndarray,
    columns: dict[int, int | None],
) -> list[tuple[float, float] | None]:
    """The position of every node that its parent would not give it."""
    default = np.zeros(pos.shape)
    kind = np.asarray(domain)[parent]
    rank = np.arange(len(child)) - start[parent]
    line = kind == Domain.SEQUENCE
    default[child[line], 0] = rank[line]
    for node, width in columns.items():
        kids = child[start[node] : start[node + 1]]
        if width is None:
            default[kids] = pos[kids]
        else:
            default[kids] = np.stack(np.divmod(np.arange(len(kids)), width), axis=1)
    out: list[tuple[float, float] | None] = [None] * len(pos)
    for node in np.flatnonzero((default.astype(np.float32) != pos).any(axis=1)).tolist():
        row, column = pos[node].tolist()
        out[node] = (row, column)
    return out


# Edges ###########################################################################################


class _Graphs:
    """The links of a tree, by graph."""

    def __init__(
        self,
        tree: SignalTree,
        drop: Collection[str],
        parent: np.ndarray,
        child: np.ndarray,
        start: np.ndarray,
    ) -> None:
        values = tree.to_dict()
        rank = np.zeros(tree.num_tree_nodes, dtype=np.int64)
        rank[child] = np.arange(len(child)) - start[parent]
        above = np.full(tree.num_tree_nodes, -1, dtype=np.int64)
        above[child] = parent
        links = values.get("tree_link")
        links = None if "tree_link" in drop else links
        ends = np.zeros((2, 0), np.int64) if links is None else links.cpu().numpy()
        owner = above[ends[0]]
        order = np.argsort(owner, kind="stable")
        self._edges = rank[ends[:, order].T]
        self._start = np.searchsorted(owner[order], np.arange(tree.num_tree_nodes + 1))
        self._weights = None
        weights = values.get("tree_link_weight")
        if weights is not None and not {"tree_link", "tree_link_weight"} & set(drop):
            if weights.dtype != torch.float32 or weights.dim() != 1:
                raise UnsupportedError(
                    f"tree_link_weight has dtype {weights.dtype} and shape {list(weights.shape)}: "
                    "a Graph takes one float32 for each edge."
                )
            self._weights = weights.detach().cpu().numpy()[order]
            if not np.isfinite(self._weights).all():
                raise UnsupportedError("tree_link_weight is not finite: a Graph takes numbers.")
        odd = np.flatnonzero(tree.tree_domain.cpu().numpy()[owner] != Domain.GRAPH)
        if odd.size:
            a, b = ends[:, odd[0]].tolist()
            raise UnsupportedError(
                f"tree_link joins nodes {a} and {b}, whose parent is no GRAPH: only a Graph has "
                "edges."
            )

    def edges(self, node: int) -> dict[str, Any]:
        """Arguments of Graph: undirected if the links are what that would give."""
        span = slice(self._start[node], self._start[node + 1])
        edges = self._edges[span]
        weights = None if self._weights is None else self._weights[span]
        loops = int((edges[:, 0] == edges[:, 1]).sum())
        half = (len(edges) + loops) // 2
        there, back = edges[:half], edges[half:]
        two = there[:, 0] != there[:, 1]
        mirrored = np.array_equal(there[two][:, ::-1], back)
        if mirrored and weights is not None:
            mirrored = np.array_equal(weights[:half][two], weights[half:])
        once = len(np.unique(np.sort(there, axis=1), axis=0)) == len(there)
        if not (mirrored and once):
            return {"edges": edges, "weights": weights, "directed": True}
        return {"edges": there, "weights": None if weights is None else weights[:half]}


# Leaves ##########################################################################################


def _rows(values: Tensor) -> list[Any]:
    """Each row as an array (a tensor where numpy has no such type), a number as one of [1]."""
    values = values.detach().cpu().clone()
    values = values.unsqueeze(-1) if values.dim() == 1 else values
    try:
        return list(values.numpy())
    except TypeError:
        return list(values.unbind(0))


def _leaves(
    tree: SignalTree, features: dict[str, Tensor], names: list[Any], at: list[Any]
) -> list[Any]:
    n = tree.num_leaves
    if set(features) == {"x"} and features["x"].dim() > 1:
        own = _rows(features["x"])
        return [Leaf(value, None, name, pos) for value, name, pos in zip(own, names, at)]
    inside: list[dict[str, list[Any]]] = [{} for _ in range(n)]
    for modality, values in features.items():
        leaf = range(n) if modality == "x" else tree[f"{modality}_index"].tolist()
        for place, row in zip(leaf, _rows(values)):
            inside[place].setdefault(modality, []).append(row)
    flat = {modality for modality, values in features.items() if values.dim() == 1}
    out = []
    for found, name, pos in zip(inside, names, at):
        if not found:
            out.append(Leaf(None, None, name, pos))
            continue
        modality, rows = next(iter(found.items()))
        if len(found) == 1 and len(rows) == 1 and modality not in flat:
            out.append(Leaf(rows[0], None if modality == "x" else modality, name, pos))
            continue
        value = {m: _joined(rows, m in flat) for m, rows in found.items()}
        out.append(Leaf(value, None, name, pos))
    return out


def _joined(rows: list[Any], flat: bool) -> Any:
    if isinstance(rows[0], Tensor):
        return torch.cat(rows) if flat else torch.stack(rows)
    return np.concatenate(rows) if flat else np.stack(rows)
