"""The words for nested signals: ``Sequence``, ``Set``, ``Grid``, ``Graph`` and ``Leaf``.

A signal maps the positions of a domain to values, and the values may be signals again.  Each
container is a domain with its children; a leaf holds numbers.  Any child may also be a plain
Python object, by one rule, :data:`RULE`.  What a parent says of its children, by keys or by
default, goes for those that do not say it of themselves: a child's own ``name`` and ``pos`` come
first.  :func:`~hsa_geo.builders.from_nested` makes a tree of all this,
:func:`~hsa_geo.builders.to_nested` turns it back.

Signals are frozen and compare by identity, so a Python ``set`` keeps equal leaves apart; to
compare what they hold, use :func:`~hsa_geo.builders.nested.same_signal`.  Printing, hashing,
copying, pickling and deleting them does not recurse, however deep they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from hsa_geo.builders._signal_base import Signal
from hsa_geo.builders._signal_checks import (
    check_modality,
    count_of,
    edges_of,
    position_of,
    short,
    size_of,
    weights_of,
)
from hsa_geo.errors import BuilderError

__all__ = ["RULE", "Graph", "Grid", "Leaf", "Sequence", "Set", "Signal"]

#: What plain Python objects mean wherever a signal is expected.
RULE = (
    "a list or tuple is a Sequence, a set or frozenset a Set, a dict a Set of named children, an "
    "array or tensor of any shape one leaf, a number a leaf of one feature"
)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Leaf(Signal):
    """A leaf: numbers, and what kind of numbers they are.

    Only needed where a bare array, tensor or number cannot say enough.

    Args:
        value: A number, an array or tensor of any shape, or lists of numbers that make one
            array; a number counts as one feature, like an array of shape [1].  A mapping of
            modalities to arrays ``[k, ...]`` gives the leaf k rows of each modality, with ``"x"``
            (one row) for the leaf's own features.  None is a leaf without features. (default:
            :obj:`None`)
        modality: The kind of the value, such as ``"image"``: it goes to ``image_x`` and
            ``image_index``. (default: :obj:`None`, which goes to ``x``)
        name: Name of the node. (default: :obj:`None`)
        pos: Position in the parent's domain, one or two numbers. (default: the position that the
            parent gives it)

    Raises:
        BuilderError: If ``modality`` cannot be a modality's name, ``name`` is no string or
            ``pos`` no position.

    Example:
        >>> Leaf([0.5, 2], name="t")
        Leaf([0.5, 2], name='t')
        >>> Leaf(np.zeros((3, 8, 8), dtype=np.uint8), modality="image")
        Leaf(uint8 [3, 8, 8], modality='image')
    """

    is_leaf: ClassVar[bool] = True

    value: Any = None
    modality: str | None = None
    name: str | None = None
    pos: Any = None

    def __post_init__(self) -> None:
        if self.modality is not None:
            check_modality(self.modality)
        if isinstance(self.value, Mapping):
            object.__setattr__(self, "value", dict(self.value))
            for modality in self.value:
                check_modality(modality)
            if self.modality is not None:
                raise BuilderError(
                    f"modality={self.modality!r} beside a mapping of modalities: give one of them."
                )
        if self.name is not None or self.pos is not None:
            self._check_name_and_pos()

    def __deepcopy__(self, memo: dict[int, Any]) -> Leaf:
        return Leaf(copy.deepcopy(self.value, memo), self.modality, self.name, self.pos)

    def __reduce__(self) -> Any:
        return Leaf, (self.value, self.modality, self.name, self.pos)

    def __repr__(self) -> str:
        if isinstance(self.value, dict):
            parts = [f"{key!r}: {size_of(value)}" for key, value in self.value.items()]
            text = f"{{{', '.join(parts)}}}"
        else:
            text = size_of(self.value)
        text += "" if self.modality is None else f", modality={self.modality!r}"
        return f"Leaf({text}{self._labels()})"


class _Listed(Signal):
    """A container whose children stand in one list."""

    __slots__ = ()
    children: Any

    def __post_init__(self) -> None:
        self._check_name_and_pos()
        children = self.children
        what = type(self).__name__
        if isinstance(children, Mapping):
            children = dict(children)
        elif isinstance(children, (np.ndarray, Tensor)):
            if children.ndim == 0:
                raise BuilderError(
                    f"{what} has the array {size_of(children)} for children, which has no rows: "
                    "give an array with one row for each child."
                )
        elif isinstance(children, (str, bytes, Signal)) or not isinstance(children, Iterable):
            raise BuilderError(
                f"{what} has {short(children)} for children: give a list of them, a mapping or "
                "an array with one row for each."
            )
        else:
            children = tuple(children)
        object.__setattr__(self, "children", children)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({count_of(len(self.children), 'child')}{self._labels()})"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Sequence(_Listed):
    """Children in a row, at the positions 0, 1, 2, ... or at given ones (times, offsets).

    Args:
        children: The children in order; or an array ``[n, ...]``, whose rows are the leaves; or
            a mapping of numbers, the positions, or of names to children.
        name: Name of the node. (default: :obj:`None`)
        pos: Position in the parent's domain. (default: the one that the parent gives it)

    Raises:
        BuilderError: If ``children`` is no list, mapping or array of rows, the keys of a mapping
            are neither all numbers nor all strings, ``name`` no string or ``pos`` no position.

    Example:
        >>> Sequence([1.5, Sequence(np.zeros((3, 1)))], name="page")
        Sequence(2 children, name='page')
    """

    children: Any
    name: str | None = None
    pos: Any = None

    def __post_init__(self) -> None:
        super(Sequence, self).__post_init__()  # slots make a new class
        if not isinstance(self.children, dict):
            return
        named = [isinstance(key, str) for key in self.children]
        if any(named) and not all(named):
            raise BuilderError(
                f"the keys of a Sequence are {short(list(self.children))}: give only numbers, "
                "the positions, or only names."
            )
        if not any(named):
            for key in self.children:
                position_of(key)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Set(_Listed):
    """Children without order or position.

    Their order is kept (it is the leaves' reading order) but means nothing.

    Args:
        children: The children; or an array ``[n, ...]``, whose rows are the leaves; or a mapping
            of names to children (names are ``str`` of the keys).
        name: Name of the node. (default: :obj:`None`)
        pos: Position in the parent's domain. (default: the one that the parent gives it)

    Raises:
        BuilderError: If ``children`` is no list, mapping or array of rows, ``name`` no string or
            ``pos`` no position.

    Example:
        >>> Set({"title": [1, 2], "body": [3, 4, 5]})
        Set(2 children)
    """

    children: Any
    name: str | None = None
    pos: Any = None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Grid(Signal):
    """Children in rows and columns, at the positions (row, column).

    Args:
        rows: Rows of equal length; or an array ``[R, C, ...]``, whose cells are the leaves; or,
            for a grid with holes or at other places, a mapping of (row, column) to children.
        name: Name of the node. (default: :obj:`None`)
        pos: Position in the parent's domain. (default: the one that the parent gives it)

    Raises:
        BuilderError: If ``rows`` is none of these, ``name`` no string or ``pos`` no position.

    Example:
        >>> Grid([[1, 2], [3, 4], [5, 6]]), Grid(np.zeros((4, 4, 3))), Grid({(0, 7): 1.0})
        (Grid(3 x 2), Grid(4 x 4), Grid(1 cell))
    """

    rows: Any
    name: str | None = None
    pos: Any = None

    def __post_init__(self) -> None:
        self._check_name_and_pos()
        rows = self.rows
        if isinstance(rows, Mapping):
            rows = dict(rows)
            for key in rows:
                position_of(key, size=2)
        elif isinstance(rows, (np.ndarray, Tensor)):
            if rows.ndim < 2:
                raise BuilderError(
                    f"Grid has the array {size_of(rows)} for rows: give an array [R, C, ...]."
                )
        else:
            rows = self._listed(rows)
        object.__setattr__(self, "rows", rows)

    @staticmethod
    def _listed(rows: Any) -> tuple[tuple[Any, ...], ...]:
        kinds = (str, bytes, Mapping, Signal)
        if isinstance(rows, kinds) or not isinstance(rows, Iterable):
            raise BuilderError(
                f"Grid has {short(rows)} for rows: give a list of rows, an array [R, C, ...], or "
                "a mapping of (row, column) to children."
            )
        out = []
        for i, row in enumerate(rows):
            flat = isinstance(row, (np.ndarray, Tensor)) and row.ndim == 0
            if isinstance(row, kinds) or not isinstance(row, Iterable) or flat:
                raise BuilderError(f"row {i} of a Grid is {short(row)}: give a list of cells.")
            out.append(tuple(row))
            if len(out[-1]) != len(out[0]):
                raise BuilderError(
                    f"row {i} of a Grid has {len(out[-1])} cells, but row 0 has {len(out[0])}: "
                    "give rows of equal length, or a mapping of (row, column) to children."
                )
        return tuple(out)

    def __repr__(self) -> str:
        if isinstance(self.rows, dict):
            size = count_of(len(self.rows), "cell")
        else:
            columns = len(self.rows[0]) if len(self.rows) else 0
            size = f"{len(self.rows)} x {columns}"
        return f"Grid({size}{self._labels()})"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Graph(_Listed):
    """Children that are the vertices of a graph.

    Args:
        children: The vertices; or an array ``[n, ...]``, whose rows are the leaves; or a mapping
            of names to children (names are ``str`` of the keys).
        edges: Pairs of vertices, by index, or by key if ``children`` is a mapping; or an array
            ``[E, 2]`` of indices.  Kept as an int64 array of indices. (default: none)
        weights: A number for each edge, kept as float32 ``[E]``. (default: :obj:`None`)
        directed: Whether an edge points from its first vertex to its second.  If not, it is
            given once, and stands in the tree in both directions. (default: ``False``)
        name: Name of the node. (default: :obj:`None`)
        pos: Position in the parent's domain. (default: the one that the parent gives it)

    Raises:
        BuilderError: If ``children`` is no list, mapping or array of rows, an edge is no pair of
            vertices or given twice in an undirected graph, there are more or fewer weights than
            edges or one is no finite number, ``name`` no string or ``pos`` no position.

    Example:
        >>> site = Graph({"home": [1, 2], "about": [3]}, edges=[("home", "about")])
        >>> site, site.edges.tolist()
        (Graph(2 children, 1 edge), [[0, 1]])
    """

    children: Any
    edges: Any = ()
    weights: Any = None
    directed: bool = False
    name: str | None = None
    pos: Any = None

    def __post_init__(self) -> None:
        super(Graph, self).__post_init__()  # slots make a new class
        edges = edges_of(self.edges, self.children)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "directed", bool(self.directed))
        if self.weights is not None:
            object.__setattr__(self, "weights", weights_of(self.weights, len(edges)))
        if not self.directed and len(edges):
            low, high = edges.min(axis=1), edges.max(axis=1)
            order = np.lexsort((high, low))
            same = np.flatnonzero((np.diff(low[order]) == 0) & (np.diff(high[order]) == 0))
            if same.size:
                edge = edges[max(order[same[0]], order[same[0] + 1])].tolist()
                raise BuilderError(
                    f"the edge {tuple(edge)} of an undirected Graph is given twice: give it once, "
                    "in one direction, or say directed=True."
                )

    def __repr__(self) -> str:
        size = f"{count_of(len(self.children), 'child')}, {count_of(len(self.edges), 'edge')}"
        return f"Graph({size}{', directed' if self.directed else ''}{self._labels()})"
