"""The walk of a networkx graph that is a rooted tree, and what is wrong with one that is none."""

from __future__ import annotations

from collections.abc import Hashable

import networkx as nx

from hsa_geo.builders._graph_attrs import Attrs, shown, sorted_by
from hsa_geo.errors import NotATreeError

__all__ = ["rooted_walk"]

WORKS = (
    "a rooted tree is a DiGraph with edges from parent to child, or an undirected tree with "
    'root=; for any other graph give hierarchy=, e.g. "louvain", which groups its nodes'
)
OR_ELSE = "or give hierarchy= for a graph that is no tree"


def rooted_walk(
    graph: nx.Graph, attrs: Attrs, root: Hashable | None, order: str | None
) -> tuple[list[Hashable], list[int]]:
    """All labels of a rooted tree depth-first, and the place of the parent of each (root: -1).

    Args:
        graph: The graph, not empty.
        attrs: Attributes of its nodes.
        root: Label of the root, :obj:`None` to find it in a directed graph.
        order: Attribute to sort siblings by.

    Raises:
        NotATreeError: If the graph is no rooted tree.
        BuilderError: If siblings cannot be sorted.

    Example:
        >>> rooted_walk(nx.DiGraph(["rb", "ra", "bc"]), {}, None, None)
        (['r', 'b', 'c', 'a'], [-1, 0, 1, 0])
    """
    if root is not None and root not in graph:
        raise NotATreeError(f"root={shown(root)} is no node of the graph: give the label of one.")
    _check_edges(graph)
    if graph.is_directed():
        root = _root_of(graph, root)
    elif root is None:
        raise NotATreeError(f"the graph is undirected, so any node could be the root: {WORKS}.")
    return _walk(graph, attrs, root, order)


def _check_edges(graph: nx.Graph) -> None:
    for node in nx.nodes_with_selfloops(graph):
        raise NotATreeError(f"node {shown(node)} has an edge to itself: remove it, {OR_ELSE}.")
    if graph.is_multigraph():
        for u, v in graph.edges():
            if graph.number_of_edges(u, v) > 1:
                raise NotATreeError(
                    f"nodes {shown(u)} and {shown(v)} are joined by "
                    f"{graph.number_of_edges(u, v)} edges: "
                    f"keep one, e.g. by nx.DiGraph(graph), {OR_ELSE}."
                )


def _root_of(graph: nx.DiGraph, root: Hashable | None) -> Hashable:
    """The one node of a directed graph without parent."""
    for node, degree in graph.in_degree():
        if degree > 1:
            parents = " and ".join(shown(p) for p in list(graph.predecessors(node))[:3])
            raise NotATreeError(
                f"node {shown(node)} has {degree} parents, {parents}: keep one of the edges "
                f"to it, turn around any that points up from a child to its parent, {OR_ELSE}."
            )
    roots = [node for node, degree in graph.in_degree() if degree == 0]
    if len(roots) > 1:
        raise NotATreeError(
            f"nodes {', '.join(shown(node) for node in roots[:5])} have no parent, but a tree has "
            "one root: add a common parent, turn around edges that point up, make one tree of each "
            f"(nx.weakly_connected_components), {OR_ELSE}."
        )
    if not roots:
        raise NotATreeError(
            f"every node has a parent, so {shown(_on_cycle(graph, next(iter(graph))))} lies on a "
            f"cycle: remove the edge that closes it, {OR_ELSE}."
        )
    if root is not None and graph.in_degree(root):
        raise NotATreeError(
            f"root={shown(root)} has a parent, {shown(next(graph.predecessors(root)))}: the root "
            f"of this graph is {shown(roots[0])}; for another one give graph.to_undirected()."
        )
    return roots[0]


def _on_cycle(graph: nx.DiGraph, node: Hashable) -> Hashable:
    """A node on the cycle above ``node``, in a graph where every node there has one parent."""
    seen = set()
    while node not in seen:
        seen.add(node)
        node = next(graph.predecessors(node))
    return node


def _walk(
    graph: nx.Graph, attrs: Attrs, root: Hashable, order: str | None
) -> tuple[list[Hashable], list[int]]:
    labels: list[Hashable] = []
    parent: list[int] = []
    place: dict[Hashable, int] = {}
    stack: list[tuple[Hashable, int]] = [(root, -1)]
    directed = graph.is_directed()
    while stack:
        node, above = stack.pop()
        if node in place:
            raise NotATreeError(
                f"the edge between {shown(labels[above])} and {shown(node)} closes a "
                "cycle: take nx.bfs_tree(graph, root) or a spanning tree of this graph, "
                f"{OR_ELSE}."
            )
        here = place[node] = len(labels)
        labels.append(node)
        parent.append(above)
        below = list(graph.neighbors(node))  # the successors, if directed
        if not directed and above >= 0:
            below = [other for other in below if place.get(other) != above]
        if order is not None and below:
            below = sorted_by(attrs, below, order)
        stack.extend((child, here) for child in reversed(below))
    if len(labels) < len(graph):
        lost = next(node for node in graph if node not in place)
        if directed:  # one parent each, and no second root
            raise NotATreeError(
                f"node {shown(_on_cycle(graph, lost))} lies on a cycle: remove the edge "
                f"that closes it, {OR_ELSE}."
            )
        raise NotATreeError(
            f"node {shown(lost)} is not connected to the root {shown(root)}: add the missing "
            f"edge, make one tree of each nx.connected_components, {OR_ELSE}."
        )
    return labels, parent
