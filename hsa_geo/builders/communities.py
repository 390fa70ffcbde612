"""Nested partitions of a graph, and the edges that they leave among siblings.

Everything here works on plain numbers, whatever the graph comes from: nodes are ``0..n-1``, edges
``edge_index [2, E]`` with a weight each (an undirected graph stores both directions of an edge),
and a hierarchy is the parent of every tree node, leaves ``0..n-1`` first, -1 for the root: what
:meth:`hsa_geo.data.SignalTree.from_parents` takes.

Example:
    A triangle, a bridge and a triangle:

    >>> edge = np.array([[0, 1, 2, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5, 3]])
    >>> edge_index = np.concatenate([edge, edge[::-1]], axis=1)
    >>> parent = stack_partitions(nested_louvain(6, edge_index, resolutions=[1]))
    >>> parent.tolist()
    [6, 6, 6, 7, 7, 7, 8, 8, -1]
    >>> link, weight = sibling_links(parent, edge_index)
    >>> link[:, -2:].tolist(), weight[-2:].tolist()
    ([[6, 7], [7, 6]], [1.0, 1.0])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.builders._graph_attrs import shown
from hsa_geo.builders._louvain import Ints, Reals, coalesce, compact, louvain
from hsa_geo.data.canonical import levels_of
from hsa_geo.errors import BuilderError, ShapeError

__all__ = [
    "nested_louvain",
    "partition_recursively",
    "sibling_links",
    "stack_partitions",
]


def nested_louvain(
    num_nodes: int,
    edge_index: Any,
    weight: Any = None,
    *,
    resolutions: float | Sequence[float] = (1.0,),
    seed: int | None = 0,
) -> list[Ints]:
    r"""Communities at several resolutions, each a union of those at the next finer one.

    Louvain's method runs at the finest (highest) resolution on the graph, then at the next one on
    the graph of the communities found, and so on.  It maximises the modularity

    .. math::
        Q_\gamma = \frac1m \sum_{ij} \Big(w_{ij} - \gamma \frac{k_i^{out} k_j^{in}}{m}\Big)
        [c_i = c_j], \qquad m = \sum_{ij} w_{ij},

    so directions count, and in an undirected graph (both directions stored) it is the usual one.

    Args:
        num_nodes: Number of nodes n.
        edge_index: ``[2, E]`` ints, tensor or array.
        weight: ``[E]``, not negative. (default: every edge counts 1)
        resolutions: One or several :math:`\gamma`, in any order. (default: ``1``)
        seed: Seed of the order in which nodes are looked at, :obj:`None` for a random one.
            (default: ``0``)

    Returns:
        A list of ``[n]``, finest first: the community of every node, numbered in order of first
        appearance.  A node without edges is a community of its own.

    Raises:
        ShapeError: If ``edge_index`` or ``weight`` do not fit.
        BuilderError: If a resolution or the seed cannot be used.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> [labels.tolist() for labels in nested_louvain(5, edge_index, resolutions=[0.1, 9])]
        [[0, 1, 2, 3, 4], [0, 0, 1, 1, 2]]
    """
    row, col, values = _edges(num_nodes, edge_index, weight)
    rng = _generator(seed)
    n, labels, levels = num_nodes, np.arange(num_nodes), []
    for resolution in sorted(_resolutions(resolutions), reverse=True):
        row, col, values = coalesce(n, row, col, values)
        found = louvain(n, row, col, values, resolution=resolution, rng=rng)
        labels = found[labels]
        levels.append(compact(labels))
        row, col, n = found[row], found[col], int(found.max(initial=-1)) + 1
    return levels


def stack_partitions(partitions: Iterable[Any]) -> Ints:
    """The hierarchy of nested partitions, as the parent of every node.

    Args:
        partitions: Arrays ``[n]`` of ints, finest first: the group of every node.  Two nodes in
            one group stay together in all coarser ones.

    Returns:
        ``[M]``, parents: leaves ``0..n-1``, then groups of the finest partition, those of the
        next one, ..., the root, which holds what the coarsest has left apart.  A group of one
        member is left out, its member stands in its place.

    Raises:
        ShapeError: If the partitions are no integers of one length, or there is no node.
        BuilderError: If they are not nested; the message names the nodes.

    Example:
        >>> stack_partitions([[0, 0, 1, 1, 2], [0, 0, 0, 0, 1]]).tolist()
        [5, 5, 6, 6, 8, 7, 7, 8, -1]
    """
    arrays = [np.asarray(labels) for labels in partitions]
    n = len(arrays[0]) if arrays and arrays[0].ndim == 1 else 0
    if n == 0 or any(a.shape != (n,) or a.dtype.kind not in "iu" for a in arrays):
        shapes = [f"{a.dtype} {list(a.shape)}" for a in arrays]
        raise ShapeError(f"partitions are {shapes}: give integers [n], one at least, for each.")
    top: Ints = np.arange(n)  # the tree node that stands for the branch of every leaf so far
    parents: list[Ints] = [np.full(n, -1)]
    count = n
    groups_before = np.arange(n)
    for labels in [*map(compact, arrays), np.zeros(n, dtype=np.int64)]:
        first = np.unique(groups_before, return_index=True)[1]  # one leaf of each branch
        member = labels[first]
        torn = np.flatnonzero(member[groups_before] != labels)
        if torn.size:
            leaf = int(torn[0])
            raise BuilderError(
                f"nodes {int(first[groups_before[leaf]])} and {leaf} are together in a partition "
                "but not in the next coarser one: give nested partitions, finest first."
            )
        sizes = np.bincount(member)
        real = sizes > 1
        node_of = np.where(real, count + np.cumsum(real) - 1, -1)  # of the groups of many
        flat = np.concatenate(parents)
        joined = real[member]
        flat[top[first[joined]]] = node_of[member[joined]]
        parents = [flat, np.full(int(real.sum()), -1)]
        count += int(real.sum())
        top = np.where(real[labels], node_of[labels], top)
        groups_before = labels
    return np.concatenate(parents)


def partition_recursively(
    n: int,
    split: Callable[[Any, Ints], tuple[list[Ints], Callable[[int], Any]]],
    whole: Any,
    max_group: int,
) -> Ints:
    """The hierarchy that a partition function makes, applied to groups until they are small.

    Args:
        n: Number of nodes.
        split: Takes a group (anything, e.g. a subgraph) and its nodes, and returns the parts:
            their nodes, and a function that gives part k in turn.  It may return one part only, or
            as many as there are nodes: the group is then left as it is.
        whole: The group of all nodes.
        max_group: Groups of at most as many nodes are not split further; that of all nodes is
            split once in any case.

    Returns:
        ``[M]``, parents: leaves ``0..n-1``, then groups, the root first among them.  Groups of
        one node are left out.

    Example:
        >>> def halves(group, nodes):
        ...     parts = np.array_split(nodes, 2)
        ...     return parts, lambda k: None
        >>> partition_recursively(6, halves, None, 2).tolist()
        [10, 10, 7, 9, 9, 8, -1, 6, 6, 8, 7]
    """
    parent = np.full(n, -1)
    if n == 1:
        return parent
    above = [-1]  # parents of the groups
    stack: list[tuple[int, Any, Ints]] = [(0, whole, np.arange(n))]
    while stack:
        group, content, nodes = stack.pop()
        parts, content_of = split(content, nodes)
        if len(parts) in (1, len(nodes)):
            parent[nodes] = n + group
            continue
        for k, part in enumerate(parts):
            if len(part) == 1:
                parent[part] = n + group
                continue
            above.append(n + group)
            if len(part) > max_group:
                stack.append((len(above) - 1, content_of(k), part))
            else:
                parent[part] = n + len(above) - 1
    return np.concatenate([parent, np.array(above)])


def sibling_links(
    parent: Any, edge_index: Any, weight: Any = None, *, symmetric: bool = False
) -> tuple[Ints, Reals]:
    """Edges among siblings: each edge joins the two branches that part where its ends do.

    Args:
        parent: ``[M]``, parent of every tree node, -1 for the root; leaves are ``0..N-1``.
        edge_index: ``[2, E]``, edges among the leaves.
        weight: ``[E]``, not negative. (default: every edge counts 1)
        symmetric: Say that both directions of each edge are there with one weight; the links are
            then symmetric to the last bit. (default: :obj:`False`)

    Returns:
        Tree nodes ``[2, L]``, sorted by (source, target), and the sum of the weights ``[L]``
        between the leaves below them, where it is above zero.  Loops are left out.

    Raises:
        ShapeError: If ``edge_index`` or ``weight`` do not fit.
        TreeError: If ``parent`` has a cycle.

    Example:
        >>> link, weight = sibling_links([3, 3, 4, 4, -1], [[0, 0, 1], [1, 2, 2]])
        >>> link.tolist(), weight.tolist()
        ([[0, 3], [1, 2]], [1.0, 2.0])
    """
    above = np.asarray(parent, dtype=np.int64)
    m = len(above)
    row, col, values = _edges(m - len(np.unique(above[above >= 0])), edge_index, weight)
    keep = row < col if symmetric else row != col
    a, b = _branches(above, row[keep], col[keep])
    if symmetric:
        a, b = np.minimum(a, b), np.maximum(a, b)
    a, b, total = coalesce(m, a, b, values[keep])
    a, b, total = a[total > 0], b[total > 0], total[total > 0]
    if symmetric:
        a, b, total = coalesce(m, np.append(a, b), np.append(b, a), np.append(total, total))
    return np.stack([a, b]), total


def _branches(parent: Ints, a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """The siblings above two different leaves each, by jumps of powers of two."""
    level = levels_of(parent)
    jumps = [np.where(parent < 0, np.arange(len(parent)), parent)]
    for _ in range(int(level.max(initial=0)).bit_length() - 1):
        jumps.append(jumps[-1][jumps[-1]])
    down = level[a] - level[b]
    for k, up in enumerate(jumps):
        a = np.where(down >> k & (down > 0), up[a], a)
        b = np.where(-down >> k & (down < 0), up[b], b)
    for up in reversed(jumps):
        apart = up[a] != up[b]
        a, b = np.where(apart, up[a], a), np.where(apart, up[b], b)
    return a, b


def _edges(n: int, edge_index: Any, weight: Any) -> tuple[Ints, Ints, Reals]:
    """Checked copies: sources, targets, weights."""
    index = edge_index.detach().cpu().numpy() if isinstance(edge_index, Tensor) else edge_index
    index = np.asarray(index)
    if index.ndim != 2 or len(index) != 2 or (index.size and index.dtype.kind not in "iu"):
        raise ShapeError(f"edge_index is {index.dtype} {list(index.shape)}: give integers [2, E].")
    index = index.astype(np.int64)
    if index.size and not 0 <= index.min() <= index.max() < n:
        bad = index[(index < 0) | (index >= n)]
        raise ShapeError(f"edge_index holds {int(bad[0])}, but the nodes are 0..{n - 1}.")
    if isinstance(weight, Tensor):
        weight = weight.detach().cpu().to(torch.float64).numpy()
    values = np.ones(index.shape[1]) if weight is None else np.asarray(weight)
    if values.shape != (index.shape[1],) or values.dtype.kind not in "biuf":
        raise ShapeError(
            f"weight is {values.dtype} {list(values.shape)}: give [{index.shape[1]}] numbers, one "
            "for each edge."
        )
    values = values.astype(np.float64)
    with np.errstate(over="ignore"):
        if not (values >= 0).all() or not np.isfinite(values.sum()):
            raise ShapeError("weight must be finite and not negative, and so must its sum.")
    return index[0], index[1], values


def _resolutions(resolutions: Any) -> list[float]:
    try:
        values = [resolutions] if isinstance(resolutions, Real) else list(resolutions)
        found = [float(value) for value in values if not isinstance(value, str)]
        if found and len(found) == len(values) and all(0 < v < float("inf") for v in found):
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    raise BuilderError(
        f"resolutions={shown(resolutions)}: give one or several positive numbers; higher ones make "
        "smaller groups."
    )


def _generator(seed: Any) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except Exception:  # numpy shows what it was given, which may fail
        raise BuilderError(f"seed={shown(seed)}: give an integer from 0, or None.") from None
