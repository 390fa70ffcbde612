"""Attributes of the nodes of a networkx graph: features, domains, positions.

``attrs`` holds the attributes of every node by its label, as ``dict(graph.nodes(data=True))``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hsa_geo.builders._arguments import shown, text_of
from hsa_geo.builders._rows import cast
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DomainError

__all__ = [
    "Attrs",
    "attribute_of",
    "domain_of",
    "features",
    "numbers",
    "points",
    "positions",
    "ranks_among_siblings",
    "shown",
    "sorted_by",
    "text_of",
]

Attrs = Mapping[Hashable, Mapping[Any, Any]]
Ints = NDArray[np.int64]


def attribute_of(attrs: Attrs, node: Hashable, attribute: Any) -> Any:
    """The value of an attribute; BuilderError if the node has none.

    Example:
        >>> attribute_of({"a": {"v": 1}}, "a", "v")
        1
    """
    try:
        return attrs[node][attribute]
    except (KeyError, TypeError):
        hint = "give it to every node that needs it"
        if isinstance(attribute, str) and attribute.upper() in Domain.__members__:
            hint += f", or Domain.{attribute.upper()} for all nodes"
        raise BuilderError(
            f"node {shown(node)} has no attribute {shown(attribute)} (it has "
            f"{shown(list(attrs[node]))}): {hint}."
        ) from None


def numbers(value: Any) -> NDArray[Any] | None:
    """A number, array or tensor as an array that torch knows; :obj:`None` if it is nothing such.

    Example:
        >>> numbers([1, 2]), numbers("1")
        (array([1, 2]), None)
    """
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            value = value.float() if value.dtype is torch.bfloat16 else value
            value = value.numpy()
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # ragged, sparse, ...
        return None
    if array.dtype.kind not in "biuf":
        return None
    if array.dtype == np.longdouble:  # torch does not know it
        return array.astype(np.float64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _rows(attrs: Attrs, nodes: Sequence[Hashable], attribute: Any) -> list[NDArray[Any]]:
    """An attribute of every node as arrays."""
    out = []
    for node in nodes:
        value = attribute_of(attrs, node, attribute)
        array = numbers(value)
        if array is None:
            raise BuilderError(
                f"node {shown(node)} has {shown(attribute)} = {shown(value)}, which is no number "
                "or array of numbers."
            )
        out.append(array)
    return out


def features(
    attrs: Attrs, leaves: Sequence[Hashable], x: str | Sequence[str], dtype: torch.dtype
) -> Tensor:
    """Features ``[N, ...]`` of the leaves from one attribute or several.

    Example:
        >>> features({"a": {"v": 1, "w": [2, 3]}}, ["a"], ["v", "w"], torch.int64)
        tensor([[1, 2, 3]])
    """
    several = not isinstance(x, str)
    try:
        chosen = list(x) if several else [x]
    except TypeError:  # no sequence; perhaps an attribute that is no string
        chosen, several = [x], False
    if dtype.is_complex:
        raise BuilderError(f"dtype={dtype} is complex: give a real type.")
    columns = []
    for attribute in chosen:
        rows = _rows(attrs, leaves, attribute)
        shape = rows[0].shape
        for leaf, row in zip(leaves, rows):
            if row.shape != shape:
                raise BuilderError(
                    f"node {shown(leaf)} has {shown(attribute)} of shape {list(row.shape)}, but "
                    f"node {shown(leaves[0])} of shape {list(shape)}: give every leaf the same."
                )
        if several and len(shape) > 1:
            raise BuilderError(
                f"{shown(attribute)} has shape {list(shape)} at node {shown(leaves[0])}: of "
                "several attributes each must be a number or a vector."
            )
        column = cast(
            _stacked(rows, leaves, attribute), dtype, str(attribute), lambda i: _node(leaves[i])
        )
        columns.append(column.unsqueeze(-1) if column.dim() == 1 else column)
    if not columns:
        raise BuilderError(f"x={shown(x)} names no attribute: give one, several, or None.")
    return torch.cat(columns, dim=-1)


def _node(label: Hashable) -> str:
    return f"node {shown(label)}"


def _stacked(rows: list[Any], leaves: Sequence[Hashable], attribute: Any) -> torch.Tensor:
    """Rows as one tensor of the type that holds them all; none may change by that."""
    stacked = np.stack(rows)
    if len({row.dtype for row in rows}) > 1:
        for i, row in enumerate(rows):
            if row.dtype.kind in "iu" and (stacked[i].astype(row.dtype) != row).any():
                raise BuilderError(
                    f"{_node(leaves[i])} has {shown(attribute)} = {shown(row.tolist())}, which "
                    f"{stacked.dtype} cannot hold beside the others: give all the same type."
                )
    return torch.from_numpy(stacked)


def domain_of(value: Any, label: Hashable = None) -> Domain:
    """A domain by its name or number, of node ``label`` or (:obj:`None`) of all nodes.

    Example:
        >>> domain_of("sequence").name
        'SEQUENCE'
    """
    try:
        if isinstance(value, str):
            return Domain[value.upper()]
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return Domain(int(value))
    except (KeyError, ValueError):
        pass
    where = f"node {shown(label)} has" if label is not None else "domain is"
    known = [f"{d.name}={d.value}" for d in Domain]
    raise DomainError(f"{where} the domain {shown(value)}, which is none of {known}.")


def points(attrs: Attrs, nodes: Sequence[Hashable], pos: Any) -> NDArray[np.float64]:
    """Positions ``[n, 2]`` of the nodes; a second coordinate that is not given is zero.

    Example:
        >>> points({"a": {"p": 1}, "b": {"p": (2, 3)}}, "ab", "p").tolist()
        [[1.0, 0.0], [2.0, 3.0]]
    """
    rows = _rows(attrs, nodes, pos)
    for node, row in zip(nodes, rows):
        if row.ndim > 1 or row.size not in (1, 2):
            raise _no_position(node, row)
    size = np.array([row.size for row in rows], dtype=np.int64)
    flat = np.concatenate([np.ravel(row) for row in rows]) if rows else np.zeros(0)
    out = np.zeros((len(rows), 2))
    start = np.cumsum(size) - size
    out[:, 0] = flat[start]
    out[size == 2, 1] = flat[start[size == 2] + 1]
    limit = float(np.finfo(np.float32).max)  # a position is float32 in the tree
    bad = np.flatnonzero(~(np.abs(out) <= limit).all(axis=1))
    if bad.size:
        raise _no_position(nodes[int(bad[0])], rows[int(bad[0])])
    return out


def _no_position(node: Hashable, value: NDArray[Any]) -> BuilderError:
    return BuilderError(
        f"node {shown(node)} has the position {shown(value.tolist())}: give one or two finite "
        "numbers."
    )


def positions(
    attrs: Attrs, labels: Sequence[Hashable], parent: Ints, domains: Ints, pos: Any
) -> NDArray[np.float64]:
    """``[M, 2]``, positions of all nodes of a rooted tree, whose siblings stand in order.

    Without positions siblings count 0, 1, ... in a ``SEQUENCE`` and are at zero elsewhere.  One
    that the root has is kept, though it has no use.

    Example:
        >>> parent = np.array([-1, 0, 0])
        >>> positions({}, "rab", parent, np.array([1, 0, 0]), None).tolist()
        [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    m = len(labels)
    out = np.zeros((m, 2))
    counted = (parent >= 0) & (domains[parent] == Domain.SEQUENCE)
    out[counted, 0] = ranks_among_siblings(parent)[counted]
    if pos is None:
        return out
    has = np.array([pos in attrs[label] for label in labels])
    if m > 1 and not has[1:].any():
        raise BuilderError(f"no node has the attribute {shown(pos)} given as pos: give positions.")
    placed = np.bincount(parent + 1, weights=has, minlength=m + 1) > 0  # groups with positions
    nodes = np.flatnonzero(placed[parent + 1])
    out[nodes] = points(attrs, [labels[i] for i in nodes.tolist()], pos)
    return out


def ranks_among_siblings(parent: Ints) -> Ints:
    """``[M]``, the place of every node among those of the same parent, in the order given.

    Example:
        >>> ranks_among_siblings(np.array([-1, 0, 0, 1, 0])).tolist()
        [0, 0, 1, 0, 2]
    """
    order = np.argsort(parent, kind="stable")  # the root, then group by group
    group = parent[order]
    out: Ints = np.empty(len(parent), dtype=np.int64)
    out[order] = np.arange(len(parent)) - np.searchsorted(group, group)
    return out


def sorted_by(attrs: Attrs, nodes: list[Hashable], order: Any) -> list[Hashable]:
    """The nodes sorted by an attribute; equal ones stay in order.

    Example:
        >>> sorted_by({"a": {"rank": 2}, "b": {"rank": 1}}, ["a", "b"], "rank")
        ['b', 'a']
    """
    keys = [attribute_of(attrs, node, order) for node in nodes]
    try:
        with np.errstate(all="ignore"):  # numpy's floats overflow beside large numbers
            if all(key == key for key in keys):  # nan is not
                return [nodes[i] for i in sorted(range(len(nodes)), key=keys.__getitem__)]
        raise ValueError
    except Exception:  # whatever the values' own comparison raises
        raise BuilderError(
            f"siblings {shown(nodes[0])}, ... have values of {shown(order)} that cannot be "
            f"compared, e.g. {shown(keys[:3])}: give numbers, or strings."
        ) from None
