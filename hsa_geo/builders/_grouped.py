"""The tree over all nodes of a graph, grouped by a hierarchy, with the graph's edges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

from hsa_geo.builders._graph_attrs import (
    Attrs,
    attribute_of,
    domain_of,
    features,
    points,
    ranks_among_siblings,
    shown,
    sorted_by,
    text_of,
)
from hsa_geo.builders._graph_edges import Edges
from hsa_geo.builders._graph_groups import Groups, by_attributes, by_function, by_nesting
from hsa_geo.builders._louvain import Ints
from hsa_geo.builders.communities import nested_louvain, sibling_links, stack_partitions
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import canonical_order
from hsa_geo.errors import BuilderError, DomainError, UnsupportedError

__all__ = ["grouped_tree"]

RESOLUTIONS = (1.0, 4.0, 16.0)
MAX_GROUP = 16


def grouped_tree(
    graph: nx.Graph,
    attrs: Attrs,
    hierarchy: Any,
    *,
    x: Any,
    pos: Any,
    domain: Any,
    name: Any,
    order: Any,
    dtype: torch.dtype,
    weight: Any,
    resolutions: Any,
    seed: Any,
    max_group: Any,
) -> tuple[SignalTree, list[Any]]:
    """The tree, and the labels of its nodes; arguments as of ``from_networkx``.

    Example:
        >>> graph = nx.path_graph(3)
        >>> options = dict.fromkeys("x pos domain name order dtype weight resolutions".split())
        >>> tree, labels = grouped_tree(
        ...     graph, {}, [[0, 2], 1], seed=None, max_group=None, **options
        ... )
        >>> labels
        [0, 2, 1, None, None]
    """
    nodes = list(graph)
    edges = Edges.of(graph, {node: i for i, node in enumerate(nodes)}, weight)
    groups = _groups(graph, nodes, attrs, edges, hierarchy, resolutions, seed, max_group)
    tree_index, level, labels = _in_order(groups, attrs, order)
    n, m = len(nodes), len(level)
    parent: Ints = np.full(m, -1)
    parent[tree_index[1]] = tree_index[0]
    leaves = labels[:n]

    if isinstance(domain, str):
        raise DomainError(
            f"domain={domain!r} names an attribute, which groups made by hierarchy= do not have: "
            "give one Domain for all."
        )
    kind = Domain.GRAPH if domain is None else domain_of(domain)
    where = np.zeros((m, 2))
    if pos is not None:
        total = _totals(parent, level, np.column_stack([points(attrs, leaves, pos), np.ones(n)]))
        where[: max(m - 1, 1)] = (total[:, :2] / total[:, 2:])[: max(m - 1, 1)]  # not the root's
    elif kind is Domain.SEQUENCE:
        where[tree_index[1], 0] = ranks_among_siblings(tree_index[0])

    row = {label: i for i, label in enumerate(leaves)}
    edges = edges.renumbered(np.array([row[node] for node in nodes]))
    extra: dict[str, Any] = {"edge_index": edges.index}
    if weight is not None:
        extra["edge_weight"] = edges.weight.astype(np.float32)
    if kind is Domain.GRAPH:
        link, strength = sibling_links(
            parent, edges.index, edges.weight, symmetric=not edges.directed
        )
        extra |= {"tree_link": link, "tree_link_weight": strength.astype(np.float32)}
    tree = SignalTree.from_parents(
        parent,
        domain=int(kind),
        pos=where,
        name=_names(attrs, tree_index, level, labels, n, name),
        x=None if x is None else features(attrs, leaves, x, dtype),
        **extra,
    )
    return tree, labels


def _groups(
    graph: nx.Graph,
    nodes: list[Any],
    attrs: Attrs,
    edges: Edges,
    hierarchy: Any,
    resolutions: Any,
    seed: Any,
    max_group: Any,
) -> Groups:
    louvain = isinstance(hierarchy, str) and hierarchy == "louvain"
    function = callable(hierarchy)
    for argument, value, fits, kind in (
        ("resolutions", resolutions, louvain, 'hierarchy="louvain"'),
        ("seed", seed, louvain, 'hierarchy="louvain"; for a function use functools.partial'),
        ("max_group", max_group, function, "a partition function as hierarchy="),
    ):
        if value is not None and not fits:
            raise UnsupportedError(
                f"{argument}={shown(value)} goes with {kind} only: leave it out."
            )
    if louvain:
        levels = nested_louvain(
            len(nodes),
            edges.index,
            edges.matrix_weight(),
            resolutions=RESOLUTIONS if resolutions is None else resolutions,
            seed=0 if seed is None else seed,
        )
        return Groups.plain(stack_partitions(levels), nodes)
    if function:
        size = MAX_GROUP if max_group is None else max_group
        if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
            raise BuilderError(f"max_group={shown(size)}: give a number of nodes, at least 1.")
        return by_function(graph, nodes, hierarchy, int(size))
    if isinstance(hierarchy, tuple):
        return by_attributes(nodes, attrs, hierarchy)
    if isinstance(hierarchy, Iterable) and not isinstance(hierarchy, (str, bytes)):
        return by_nesting(nodes, hierarchy)
    raise BuilderError(
        f'hierarchy={shown(hierarchy)} is unknown: give "louvain", a function from a graph to a '
        'partition, a tuple of node attributes such as ("country", "city"), or nested dicts or '
        "lists of the nodes."
    )


def _in_order(groups: Groups, attrs: Attrs, order: Any) -> tuple[Ints, Ints, list[Any]]:
    """Edges of the tree in canonical order, level and label of every tree node."""
    nodes, n = groups.nodes, len(groups.nodes)
    parent = groups.parent
    if order is not None:
        place = {node: i for i, node in enumerate(nodes)}
        nodes = sorted_by(attrs, nodes, order)
        parent = np.concatenate([parent[[place[node] for node in nodes]], parent[n:]])
    canonical = canonical_order(parent)
    named = [*nodes, *groups.keys]
    labels = [named[i] for i in canonical.order.tolist()]
    return canonical.tree_index, canonical.level, labels


def _totals(parent: Ints, level: Ints, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[M, K]``, sums of leaf values ``[n, K]`` below every node of a canonical tree."""
    n, m = len(values), len(parent)
    out = np.zeros((m, values.shape[1]))
    out[:n] = values
    ends = n + np.flatnonzero(np.diff(level[n:])) + 1  # inner nodes lie level by level
    bounds = [0, n, *ends.tolist()]  # the last level is the root's
    for start, end in zip(bounds, bounds[1:] if m > n else []):
        np.add.at(out, parent[start:end], out[start:end])
    return out


def _names(
    attrs: Attrs, tree_index: Ints, level: Ints, labels: list[Any], n: int, name: Any
) -> list[str]:
    """Names of the leaves, the keys of groups, and numbers for groups that have none."""
    names = [
        text_of(label if name is None else attribute_of(attrs, label, name)) for label in labels[:n]
    ]
    m = len(labels)
    first: Ints = np.arange(m)  # the first leaf below, by pointer doubling over first children
    first[tree_index[0, ::-1]] = tree_index[1, ::-1]
    while (first >= n).any():
        first = first[first]
    number = {node: i for i, node in enumerate((n + np.lexsort((level[n:], first[n:]))).tolist())}
    for node, key in enumerate(labels[n:], start=n):
        if key is None:
            names.append("graph" if node == m - 1 else f"group {number[node]}")
        else:
            names.append(text_of(key))
    return names
