"""Signal trees from networkx graphs that are rooted trees.

A rooted tree is a ``DiGraph`` whose edges point from parent to child (an arborescence), or an
undirected tree with the root given.  Labels may be anything that networkx takes.  Siblings come
in the order of ``graph.successors(node)`` (``graph.neighbors(node)`` if undirected), which is the
order in which their edges were added, unless ``order=`` says otherwise.  Only attributes of nodes
are read, those of edges and of the graph are not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, DomainError, NotATreeError

__all__ = ["from_networkx"]

WORKS = (
    "from_networkx takes rooted trees: a DiGraph with edges from parent to child, or an "
    "undirected tree with root="
)


def from_networkx(
    graph: nx.Graph,
    *,
    root: Hashable | None = None,
    x: str | Sequence[str] | None = None,
    pos: str | None = None,
    domain: str | int | None = None,
    name: str | None = None,
    order: str | None = None,
    dtype: torch.dtype = torch.float32,
    return_labels: bool = False,
) -> Any:
    """Build a tree from a networkx graph that is a rooted tree.

    Args:
        graph: The graph.
        root: Label of the root; needed for an undirected graph, found in a directed one.
            (default: :obj:`None`)
        x: Attribute with the features of the leaves (a number or an array of the same shape for
            each), or several (numbers or vectors), which are concatenated.  A signal has values
            at its leaves only, so inner nodes need none, and what they have is not read.
            (default: no features)
        pos: Attribute with positions in the parent's domain, one or two numbers; within a group
            of siblings all or none have it. (default: no positions.  Siblings without positions
            count 0, 1, ... in a ``SEQUENCE`` and are at zero in other domains)
        domain: Attribute with the domain of a node's children, on every inner node: a
            :class:`~hsa_geo.data.Domain`, its name or number; or a ``Domain`` (not a string) for
            all inner nodes. (default: :obj:`Domain.SET`)
        name: Attribute with the names. (default: ``str`` of the labels)
        order: Attribute to sort siblings by; equal ones stay in order. (default: :obj:`None`)
        dtype: Type of the features. (default: ``torch.float32``)
        return_labels: Also return the labels of the nodes in canonical order; ``labels[:N]`` are
            those of the leaves. (default: :obj:`False`)

    Returns:
        The tree with ``tree_name``, or with ``return_labels`` the pair (tree, labels).

    Raises:
        NotATreeError: If the graph is no rooted tree; the message names the node and the remedy.
        BuilderError: If an attribute is missing at a node, or is no number or of another shape.
        DomainError: If a domain is unknown.

    Example:
        >>> graph = nx.DiGraph([("page", "box"), ("page", "image"), ("box", "to"), ("box", "be")])
        >>> tree, labels = from_networkx(graph, return_labels=True)
        >>> labels
        ['to', 'be', 'image', 'box', 'page']
        >>> tree.tree_index.tolist()
        [[3, 3, 4, 4], [0, 1, 3, 2]]
    """
    if not isinstance(graph, nx.Graph):
        raise NotATreeError(f"graph is a {type(graph).__name__}: {WORKS}.")
    if len(graph) == 0:
        raise NotATreeError("the graph has no nodes, but a tree needs at least one leaf.")
    if root is not None and root not in graph:
        raise NotATreeError(f"root={root!r} is no node of the graph: give the label of one.")
    _check_edges(graph)
    if graph.is_directed():
        root = _root_of(graph, root)
    elif root is None:
        raise NotATreeError(f"the graph is undirected, so any node could be the root: {WORKS}.")
    labels, parent = _walk(graph, root, order)  # in depth-first order

    kids: list[list[int]] = [[] for _ in labels]
    for node, above in enumerate(parent[1:], start=1):
        kids[above].append(node)
    domains = _domains(graph, labels, kids, domain)
    leaves = [label for label, below in zip(labels, kids) if not below]
    features = {} if x is None else {"x": _features(graph, leaves, x, dtype)}
    tree, ids = SignalTree.from_parents(
        parent,
        domain=domains,
        pos=_positions(graph, labels, kids, domains, pos),
        name=[str(label if name is None else _get(graph, label, name)) for label in labels],
        return_order=True,
        **features,
    )
    return (tree, [labels[i] for i in ids.tolist()]) if return_labels else tree


def _check_edges(graph: nx.Graph) -> None:
    for u, v in graph.edges():
        if u == v:
            raise NotATreeError(f"node {u!r} has an edge to itself: remove it.")
    if graph.is_multigraph():
        for u, v in graph.edges():
            if graph.number_of_edges(u, v) > 1:
                raise NotATreeError(
                    f"nodes {u!r} and {v!r} are joined by {graph.number_of_edges(u, v)} edges: "
                    "keep one of them, e.g. by nx.DiGraph(graph)."
                )


def _root_of(graph: nx.DiGraph, root: Hashable | None) -> Hashable:
    """The one node of a directed graph without parent."""
    for node, degree in graph.in_degree():
        if degree > 1:
            parents = " and ".join(repr(p) for p in list(graph.predecessors(node))[:3])
            raise NotATreeError(
                f"node {node!r} has {degree} parents, {parents}: keep one of the edges to it, and "
                "turn around any that points up from a child to its parent."
            )
    roots = [node for node, degree in graph.in_degree() if degree == 0]
    if len(roots) > 1:
        raise NotATreeError(
            f"nodes {', '.join(repr(node) for node in roots[:5])} have no parent, but a tree has "
            "one root: add a common parent, turn around edges that point up, or make one tree of "
            "each (nx.weakly_connected_components)."
        )
    if not roots:
        raise NotATreeError(
            f"every node has a parent, so {_on_cycle(graph, next(iter(graph)))!r} lies on a "
            "cycle: remove the edge that closes it."
        )
    if root is not None and root != roots[0]:
        raise NotATreeError(
            f"root={root!r} has a parent, {next(graph.predecessors(root))!r}: the root of this "
            f"graph is {roots[0]!r}; for another one give graph.to_undirected()."
        )
    return roots[0]


def _on_cycle(graph: nx.DiGraph, node: Hashable) -> Hashable:
    """A node on the cycle above ``node``, in a graph where every node there has one parent."""
    seen = set()
    while node not in seen:
        seen.add(node)
        node = next(graph.predecessors(node))
    return node


def _walk(graph: nx.Graph, root: Hashable, order: str | None) -> tuple[list[Hashable], list[int]]:
    """All labels depth-first from the root, and the place of the parent of each (root: -1)."""
    labels: list[Hashable] = []
    parent: list[int] = []
    place: dict[Hashable, int] = {}
    stack: list[tuple[Hashable, int]] = [(root, -1)]
    while stack:
        node, above = stack.pop()
        if node in place:
            raise NotATreeError(
                f"the edge between {labels[above]!r} and {node!r} closes a cycle: {WORKS}; take "
                "nx.bfs_tree(graph, root) or a spanning tree of this graph."
            )
        place[node] = len(labels)
        labels.append(node)
        parent.append(above)
        below = list(graph.neighbors(node))  # the successors, if directed
        if not graph.is_directed() and above >= 0:
            below.remove(labels[above])
        if order is not None:
            below = _sorted(graph, below, order)
        stack.extend((child, place[node]) for child in reversed(below))
    if len(labels) < len(graph):
        lost = next(node for node in graph if node not in place)
        if graph.is_directed():  # one parent each, and no second root
            raise NotATreeError(
                f"node {_on_cycle(graph, lost)!r} lies on a cycle: remove the edge that closes it."
            )
        raise NotATreeError(
            f"node {lost!r} is not connected to the root {root!r}: add the missing edge, or make "
            "one tree of each nx.connected_components."
        )
    return labels, parent


def _sorted(graph: nx.Graph, nodes: list[Hashable], order: str) -> list[Hashable]:
    keys = {node: _get(graph, node, order) for node in nodes}
    try:
        if all(keys[node] == keys[node] for node in nodes):  # nan is not
            return sorted(nodes, key=lambda node: keys[node])
        raise ValueError
    except (TypeError, ValueError):
        raise BuilderError(
            f"siblings {nodes[0]!r}, ... have values of {order!r} that cannot be compared, e.g. "
            f"{list(keys.values())[:3]!r}: give numbers, or strings."
        ) from None


def _get(graph: nx.Graph, node: Hashable, attribute: str) -> Any:
    try:
        return graph.nodes[node][attribute]
    except KeyError:
        raise BuilderError(
            f"node {node!r} has no attribute {attribute!r} (it has "
            f"{list(graph.nodes[node])!r}): give it to every node that needs it."
        ) from None


def _numbers(value: Any, node: Hashable, attribute: str) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype == np.longdouble:  # torch does not know it
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise BuilderError(
            f"node {node!r} has {attribute!r} = {value!r}, which is no number or array of numbers."
        )
    return array


def _features(
    graph: nx.Graph, leaves: list[Hashable], x: str | Sequence[str], dtype: torch.dtype
) -> Tensor:
    columns = []
    for attribute in [x] if isinstance(x, str) else x:
        rows = [_numbers(_get(graph, leaf, attribute), leaf, attribute) for leaf in leaves]
        for leaf, row in zip(leaves, rows):
            if row.shape != rows[0].shape:
                raise BuilderError(
                    f"node {leaf!r} has {attribute!r} of shape {list(row.shape)}, but node "
                    f"{leaves[0]!r} of shape {list(rows[0].shape)}: give every leaf the same."
                )
        column = torch.from_numpy(np.stack(rows)).to(dtype)
        column = column.unsqueeze(-1) if column.dim() == 1 else column
        if not isinstance(x, str) and column.dim() > 2:
            raise BuilderError(
                f"{attribute!r} has shape {list(rows[0].shape)} at node {leaves[0]!r}: of several "
                "attributes each must be a number or a vector."
            )
        columns.append(column)
    if not columns:
        raise BuilderError(f"x={x!r} names no attribute: give one, several, or None.")
    return torch.cat(columns, dim=-1)


def _domains(
    graph: nx.Graph, labels: list[Hashable], kids: list[list[int]], domain: str | int | None
) -> list[int]:
    """Domain of every node; SET, which is not looked at, at leaves."""
    if not isinstance(domain, str):
        value = Domain.SET if domain is None else domain
        return [int(_domain(value, None))] * len(labels)
    out = [int(Domain.SET)] * len(labels)
    for node, label in enumerate(labels):
        if kids[node]:
            out[node] = int(_domain(_get(graph, label, domain), label))
    return out


def _domain(value: Any, label: Hashable) -> Domain:
    try:
        if isinstance(value, str):
            return Domain[value.upper()]
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return Domain(int(value))
    except (KeyError, ValueError):
        pass
    where = f"node {label!r} has" if label is not None else "domain is"
    known = [f"{d.name}={d.value}" for d in Domain]
    raise DomainError(f"{where} the domain {value!r}, which is none of {known}.")


def _positions(
    graph: nx.Graph,
    labels: list[Hashable],
    kids: list[list[int]],
    domains: list[int],
    pos: str | None,
) -> np.ndarray:
    """``[M, 2]``, positions of all nodes; one that the root has is kept, though it has no use."""
    out = np.zeros((len(labels), 2))
    if pos is not None and len(labels) > 1 and all(pos not in graph.nodes[v] for v in labels[1:]):
        raise BuilderError(f"no node has the attribute {pos!r} given as pos: give positions.")
    groups = [([0], Domain.SET), *zip(kids, map(Domain, domains))]
    for group, domain in groups:
        if pos is None or all(pos not in graph.nodes[labels[node]] for node in group):
            if domain is Domain.SEQUENCE:
                out[group, 0] = np.arange(len(group))
            continue
        for node in group:
            value = _numbers(_get(graph, labels[node], pos), labels[node], pos)
            if value.ndim > 1 or value.size not in (1, 2) or not np.isfinite(value).all():
                raise BuilderError(
                    f"node {labels[node]!r} has the position {value.tolist()!r}: give one or two "
                    "finite numbers."
                )
            out[node, : value.size] = value
    return out
