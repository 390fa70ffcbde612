"""A nested signal as flat lists: one walk in reading order, without recursion.

:func:`unfold` is the only place that knows what a signal means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np
from torch import Tensor

from hsa_geo.builders._arguments import text_of
from hsa_geo.builders._rows import Rows, array_of, is_number
from hsa_geo.builders._signal_checks import position_of, short
from hsa_geo.builders.signals import RULE, Graph, Grid, Leaf, Sequence, Signal
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, LimitError, NotATreeError

__all__ = ["Unfolded", "unfold"]

_SHOWN = 4  # steps at both ends of a long path
_DOMAIN = {
    Sequence: Domain.SEQUENCE,
    list: Domain.SEQUENCE,
    tuple: Domain.SEQUENCE,
    Grid: Domain.GRID2D,
    Graph: Domain.GRAPH,
}  # the others: SET


@dataclass
class Unfolded:
    """The nodes of a signal in preorder, a leaf number for each leaf among them.

    Attributes:
        parent: Parent of every node, -1 for the root.
        rank: Place of every node among its siblings.
        row, column: Position of every node in its parent's domain.
        name: Name of every node, or None.
        inner: The container of every inner node.
        domain: The domain of every inner node.
        leaves: The node of every leaf.
        rows: The values of each modality; ``"x"`` are those without one.
        graphs: Level, node and Graph, of every graph.
    """

    parent: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    row: list[float] = field(default_factory=list)
    column: list[float] = field(default_factory=list)
    name: list[str | None] = field(default_factory=list)
    inner: dict[int, Any] = field(default_factory=dict)
    domain: dict[int, Domain] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)
    graphs: list[tuple[int, int, Graph]] = field(default_factory=list)

    def path(self, node: int) -> str:
        """How errors call a node, such as ``root['page'][2][0]``."""
        steps = []
        while self.parent[node] >= 0:
            node, rank = self.parent[node], self.rank[node]
            steps.append(_step(self.inner[node], rank))
        if len(steps) > 3 * _SHOWN:
            middle = f" ... ({len(steps) - 2 * _SHOWN} levels) ... "
            steps[_SHOWN:-_SHOWN] = [middle]
        return "".join(["root", *reversed(steps)])

    def path_of_leaf(self, leaf: int) -> str:
        """How errors call the leaf with this number."""
        return self.path(self.leaves[leaf])

    def children(self) -> tuple[np.ndarray, np.ndarray]:
        """All nodes but the root by parent and rank, and where those of each parent begin."""
        parent = np.asarray(self.parent)
        order = np.lexsort((np.asarray(self.rank), parent))
        return order, np.searchsorted(parent[order], np.arange(len(parent)))


def unfold(signal: Any, *, max_leaves: int | None = None, max_depth: int | None = None) -> Unfolded:
    """Walk a signal.

    Args:
        signal: Any signal, see :mod:`hsa_geo.builders.signals`.
        max_leaves: Most leaves. (default: :obj:`None`)
        max_depth: Most levels below the root. (default: :obj:`None`)

    Returns:
        Its nodes; the values are not looked at yet.

    Raises:
        BuilderError: If a container is empty or something is no signal.
        NotATreeError: If a container contains itself.
        LimitError: If there are too many leaves or levels.

    Example:
        >>> found = unfold({"a": [1, 2], "b": 3})
        >>> found.parent, found.leaves, found.path(2)
        ([-1, 0, 1, 1, 0], [2, 3, 4], "root['a'][0]")
    """
    walk = _Walk(max_leaves, max_depth)
    walk.visit(signal, -1, 0, 0.0, 0.0, None)
    while walk.frames:
        node, rest = walk.frames[-1]
        for rank, child, row, column, key in rest:
            if walk.visit(child, node, rank, row, column, key):
                break  # it has children of its own, which come first
        else:
            walk.frames.pop()
            walk.open.discard(id(walk.found.inner[node]))
    return walk.found


class _Walk:
    def __init__(self, max_leaves: int | None, max_depth: int | None) -> None:
        self.found = Unfolded()
        self.frames: list[tuple[int, Iterator[Any]]] = []  # nodes being walked, and what is left
        self.open: set[int] = set()  # ids of their containers
        self.max_leaves = float("inf") if max_leaves is None else max_leaves
        self.max_depth = float("inf") if max_depth is None else max_depth

    def visit(
        self, item: Any, parent: int, rank: int, row: float, column: float, key: str | None
    ) -> bool:
        """Add a node, and all its children if none of them has any; whether children are left."""
        found = self.found
        node = len(found.parent)
        found.parent.append(parent)
        found.rank.append(rank)
        found.row.append(row)
        found.column.append(column)
        found.name.append(key)
        if isinstance(item, Signal):
            if item.pos is not None:
                found.row[node], found.column[node] = item.pos
            if item.name is not None:
                found.name[node] = item.name
            if isinstance(item, Leaf):
                self._leaf(node, item)
                return False
        elif _is_bare_leaf(type(item)):
            self._check_leaves(1)
            self._rows("x").add([item], [len(found.leaves)])
            found.leaves.append(node)
            return False
        return self._container(node, item)

    def _container(self, node: int, item: Any) -> bool:
        found = self.found
        children = _children(item)
        if children is None:
            raise BuilderError(f"{found.path(node)} is {short(item)}, which is no signal: {RULE}.")
        if id(item) in self.open:
            raise NotATreeError(
                f"{found.path(node)} is a {type(item).__name__} that contains itself: remove the "
                "cycle."
            )
        count = len(children)
        if count == 0:
            raise BuilderError(
                f"{found.path(node)} is an empty {type(item).__name__}: give it a child, or leave "
                "it out."
            )
        depth = len(self.frames) + 1
        if depth > self.max_depth:
            raise LimitError(
                f"{found.path(node)} has children at level {depth}, but max_depth is "
                f"{self.max_depth}: raise it."
            )
        found.inner[node] = item
        found.domain[node] = _DOMAIN.get(type(item), Domain.SET)
        if isinstance(item, (list, tuple)):
            found.domain[node] = Domain.SEQUENCE
        if isinstance(item, Graph):
            found.graphs.append((len(self.frames), node, item))

        array = isinstance(children, (np.ndarray, Tensor))
        if array or all(map(_is_bare_leaf, set(map(type, children)))):
            self._check_leaves(count)
            first, leaf = len(found.parent), len(found.leaves)
            row, column = _positions(item, count)
            found.parent.extend(repeat(node, count))
            found.rank.extend(range(count))
            found.row.extend(row)
            found.column.extend(column)
            found.name.extend(_names(item) or repeat(None, count))
            found.leaves.extend(range(first, first + count))
            if array:  # its rows; numbers count as one feature
                children = [children[:, None] if children.ndim == 1 else children]
            self._rows("x").add(children, range(leaf, leaf + count), block=array)
            return False
        row, column = _positions(item, count)
        names = _names(item) or repeat(None, count)
        self.frames.append((node, zip(range(count), children, row, column, names)))
        self.open.add(id(item))
        return True

    def _leaf(self, node: int, leaf: Leaf) -> None:
        self._check_leaves(1)
        number = len(self.found.leaves)
        self.found.leaves.append(node)
        if leaf.value is None:
            return
        if not isinstance(leaf.value, dict):
            self._rows(leaf.modality or "x").add([leaf.value], [number])
            return
        for modality, value in leaf.value.items():
            where = f"{self.found.path(node)}, as {modality!r},"
            rows = array_of(value, where)
            if rows.ndim == 0:
                raise BuilderError(f"{where} is a number: give an array of rows [k, ...].")
            if modality == "x" and len(rows) != 1:
                raise BuilderError(f"{where} has {len(rows)} rows: a leaf has one.")
            if len(rows):
                self._rows(modality).add([rows], repeat(number, len(rows)), block=True)

    def _rows(self, modality: str) -> Rows:
        return self.found.rows.setdefault(modality, Rows())

    def _check_leaves(self, more: int) -> None:
        if len(self.found.leaves) + more > self.max_leaves:
            raise LimitError(
                f"the signal has more than {self.max_leaves} leaves (max_leaves): raise it, or "
                "look for parts that are repeated many times."
            )


def _is_bare_leaf(kind: type) -> bool:
    return issubclass(kind, (np.ndarray, Tensor)) or is_number(kind) or _is_foreign_array(kind)


def _is_foreign_array(kind: type) -> bool:
    return hasattr(kind, "__array__") and not issubclass(kind, Signal)


def _children(item: Any) -> Any:
    """The children in one list, tuple or array of rows; None if there cannot be any."""
    if isinstance(item, Grid):
        rows = item.rows
        if isinstance(rows, (np.ndarray, Tensor)):
            return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])
        if isinstance(rows, dict):
            return list(rows.values())
        return list(chain.from_iterable(rows))
    children = item.children if isinstance(item, Signal) else item  # type: ignore[attr-defined]
    if isinstance(children, dict):
        return list(children.values())
    if isinstance(children, (set, frozenset)):
        return list(children)
    return children if isinstance(children, (list, tuple, np.ndarray, Tensor)) else None


def _keys(item: Any) -> list[Any] | None:
    inside = item.rows if isinstance(item, Grid) else getattr(item, "children", item)
    return list(inside) if isinstance(inside, dict) else None


def _names(item: Any) -> list[str] | None:
    """Names that a container gives its children."""
    keys = None if isinstance(item, Grid) else _keys(item)
    if keys is None or (isinstance(item, Sequence) and not isinstance(keys[0], str)):
        return None
    return [key if isinstance(key, str) else text_of(key) for key in keys]


def _positions(item: Any, count: int) -> tuple[Any, Any]:
    """Rows and columns that a container gives its children."""
    zeros = [0.0] * count
    if isinstance(item, Grid):
        keys = _keys(item)
        if keys is not None:
            pairs = [position_of(key) for key in keys]
            return [row for row, _ in pairs], [column for _, column in pairs]
        columns = count // len(item.rows)
        ranks = np.arange(count)
        return (ranks // columns).tolist(), (ranks % columns).tolist()
    if isinstance(item, Sequence):
        keys = _keys(item)
        if keys is not None and not isinstance(keys[0], str):
            pairs = [position_of(key) for key in keys]
            return [row for row, _ in pairs], [column for _, column in pairs]
    elif not isinstance(item, (list, tuple)):
        return zeros, zeros
    return range(count), zeros


def _step(item: Any, rank: int) -> str:
    """The step of a path from a container to one of its children."""
    keys = _keys(item)
    if keys is not None:
        return f"[{short(keys[rank])}]"
    if isinstance(item, Grid):
        columns = len(item.rows[0])
        return f"[{rank // columns}][{rank % columns}]"
    return f"[{rank}]"
