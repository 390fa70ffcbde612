"""Signal trees from networkx graphs: rooted trees as they are, any other graph by a hierarchy.

A rooted tree is a ``DiGraph`` whose edges point from parent to child (an arborescence), or an
undirected tree with the root given; its leaves are the leaves.  With ``hierarchy=`` all nodes of
any graph become leaves, grouped by communities, by attributes or as the caller says, and its
edges stay: as ``edge_index`` among the leaves, and among siblings as ``tree_link``.

Labels may be anything that networkx takes.  Siblings of a rooted tree come in the order of
``graph.successors(node)`` (``graph.neighbors(node)`` if undirected), which is the order in which
their edges were added; nodes grouped by a hierarchy in the order of the graph, or of the nested
dicts and lists that name them; ``order=`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import torch

from hsa_geo.builders._arguments import check_flags
from hsa_geo.builders._graph_attrs import (
    attribute_of,
    domain_of,
    features,
    positions,
    shown,
    text_of,
)
from hsa_geo.builders._grouped import grouped_tree
from hsa_geo.builders._rooted import WORKS, rooted_walk
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, NotATreeError, UnsupportedError

__all__ = ["from_networkx"]


def from_networkx(
    graph: nx.Graph,
    *,
    root: Hashable | None = None,
    hierarchy: str | tuple[str, ...] | Callable[[Any], Any] | Iterable[Any] | None = None,
    x: str | Sequence[str] | None = None,
    pos: str | None = None,
    domain: str | int | None = None,
    name: str | None = None,
    order: str | None = None,
    weight: str | None = None,
    resolutions: float | Sequence[float] | None = None,
    seed: int | None = None,
    max_group: int | None = None,
    dtype: torch.dtype = torch.float32,
    return_labels: bool = False,
) -> Any:
    """Build a tree from a networkx graph.

    Args:
        graph: The graph: a rooted tree, or with ``hierarchy`` any graph, directed or not, with
            parallel edges, loops, nodes without edges, in several components.
        root: Label of the root of a rooted tree; needed for an undirected graph, found in a
            directed one. (default: :obj:`None`)
        hierarchy: How to group the nodes of the graph, which are then the leaves.
            (default: :obj:`None`, the graph is a rooted tree)

            - ``"louvain"``: communities at several ``resolutions``, each a union of the finer
              ones; see :func:`~hsa_geo.builders.communities.nested_louvain`.
            - a function from a graph to a partition, such as
              ``nx.community.greedy_modularity_communities``: an iterable of groups of nodes, or a
              dict from node to group.  It is applied to the graph, and again to the subgraph of
              every group of more than ``max_group`` nodes, until it splits them no more (gives
              one group, or every node apart).
            - a tuple of attributes, the coarsest first: ``("country", "city")``.
            - nested dicts (names of groups to contents), lists or sets of labels, also what a
              partition function has returned.  What is a node of the graph is a leaf, even if it
              is a tuple.  Every node must be named once.

            Groups of one member that are computed are left out (the member stands in for them);
            those that are given stay.
        x: Attribute with the features of the leaves (a number or an array of the same shape for
            each), or several (numbers or vectors), which are concatenated.  A signal has values
            at its leaves only, so inner nodes need none, and what they have is not read.
            (default: no features)
        pos: Attribute with positions in the parent's domain, one or two numbers; within a group
            of siblings all or none have it.  With ``hierarchy`` every node has one, and a group
            is at the mean of its leaves. (default: no positions.  Siblings without positions
            count 0, 1, ... in a ``SEQUENCE`` and are at zero in other domains)
        domain: Attribute with the domain of a node's children, on every inner node: a
            :class:`~hsa_geo.data.Domain`, its name or number; or a ``Domain`` (not a string) for
            all inner nodes, the only choice with ``hierarchy``. (default: :obj:`Domain.SET`, with
            ``hierarchy`` :obj:`Domain.GRAPH`)
        name: Attribute with the names. (default: ``str`` of the labels)
        order: Attribute to sort siblings by; equal ones stay in order.  With ``hierarchy`` leaves
            are sorted by it, and groups by their first leaf. (default: :obj:`None`)
        weight: Attribute of the edges with their weights, not negative; only with ``hierarchy``.
            A partition function reads what it likes instead. (default: every edge counts 1)
        resolutions: Of ``hierarchy="louvain"``, positive, in any order; higher ones make smaller
            groups. (default: ``(1, 4, 16)``)
        seed: Of ``hierarchy="louvain"``. (default: ``0``, so that a graph gives one tree)
        max_group: Of a partition function. (default: ``16``)
        dtype: Type of the features. (default: ``torch.float32``)
        return_labels: Also return the labels of the tree nodes in canonical order; ``labels[:N]``
            are those of the leaves.  With ``hierarchy`` those of groups are the keys of the dicts
            or the values of the attributes, :obj:`None` where there is none.
            (default: :obj:`False`)

    Returns:
        The tree with ``tree_name``, or with ``return_labels`` the pair (tree, labels).  With
        ``hierarchy`` it also has

        - ``edge_index [2, E]``: all edges, by leaf rows, sorted; both directions of an undirected
          one, a loop once; ``edge_weight [E]`` if ``weight`` is given;
        - ``tree_link [2, L]``, ``tree_link_weight [L]``, if the domain is ``GRAPH``: pairs of
          siblings with edges between the leaves below them, and the sum of the weights of these
          (or their number), if it is above zero.  Both directions if undirected.

    Raises:
        NotATreeError: If there is no ``hierarchy`` and the graph is no rooted tree, or it has no
            nodes; the message names the node and the remedy.
        BuilderError: If an attribute is missing at a node or edge, or is no number or of another
            shape; if a hierarchy or partition leaves out a node or has it twice.
        DomainError: If a domain is unknown.
        UnsupportedError: If an argument does not go with ``hierarchy``.

    Example:
        >>> graph = nx.DiGraph([("page", "box"), ("page", "image"), ("box", "to"), ("box", "be")])
        >>> tree, labels = from_networkx(graph, return_labels=True)
        >>> labels
        ['to', 'be', 'image', 'box', 'page']
        >>> tree.tree_index.tolist()
        [[3, 3, 4, 4], [0, 1, 3, 2]]

        >>> ring = nx.cycle_graph(4)
        >>> tree = from_networkx(ring, hierarchy={"left": [0, 1], "right": [2, 3]})
        >>> tree.tree_name, tree.tree_link.tolist()
        (['0', '1', '2', '3', 'left', 'right', 'graph'], [[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]])
    """
    if not isinstance(graph, nx.Graph):
        raise NotATreeError(f"graph is a {type(graph).__name__}: give a networkx graph; {WORKS}.")
    if len(graph) == 0:
        raise NotATreeError("the graph has no nodes, but a tree needs at least one leaf.")
    for argument, given in (("pos", pos), ("weight", weight)):
        if not isinstance(given, Hashable):
            raise BuilderError(f"{argument}={shown(given)}: give the name of an attribute.")
    if not isinstance(dtype, torch.dtype):
        raise BuilderError(f"dtype={shown(dtype)}: give a torch.dtype.")
    check_flags(return_labels=return_labels)
    attrs = dict(graph.nodes(data=True))
    common: dict[str, Any] = {
        "x": x,
        "pos": pos,
        "domain": domain,
        "name": name,
        "order": order,
        "dtype": dtype,
    }
    if hierarchy is not None:
        if root is not None:
            raise UnsupportedError(
                f"root={shown(root)} goes with rooted trees only, hierarchy= puts a root above all "
                "nodes: leave one of them out."
            )
        tree, labels = grouped_tree(
            graph,
            attrs,
            hierarchy,
            weight=weight,
            resolutions=resolutions,
            seed=seed,
            max_group=max_group,
            **common,
        )
    else:
        options = {
            "weight": weight,
            "resolutions": resolutions,
            "seed": seed,
            "max_group": max_group,
        }
        for argument, value in options.items():
            if value is not None:
                raise UnsupportedError(
                    f"{argument}={shown(value)} goes with hierarchy= only: give both or none."
                )
        tree, labels = _rooted_tree(graph, attrs, root, **common)
    return (tree, labels) if return_labels else tree


def _rooted_tree(
    graph: nx.Graph,
    attrs: dict[Hashable, dict[Any, Any]],
    root: Hashable | None,
    *,
    x: Any,
    pos: Any,
    domain: Any,
    name: Any,
    order: Any,
    dtype: torch.dtype,
) -> tuple[SignalTree, list[Hashable]]:
    labels, above = rooted_walk(graph, attrs, root, order)  # in depth-first order
    parent = np.array(above)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True

    domains = np.full(len(parent), int(Domain.SET))  # not looked at, at leaves
    if isinstance(domain, str):
        for node in np.flatnonzero(inner).tolist():
            label = labels[node]
            domains[node] = domain_of(attribute_of(attrs, label, domain), label)
    elif domain is not None:
        domains[:] = domain_of(domain)
    leaves = [labels[node] for node in np.flatnonzero(~inner).tolist()]
    tree, ids = SignalTree.from_parents(
        parent,
        domain=domains,
        pos=positions(attrs, labels, parent, domains, pos),
        name=[
            text_of(label if name is None else attribute_of(attrs, label, name)) for label in labels
        ],
        return_order=True,
        x=None if x is None else features(attrs, leaves, x, dtype),
    )
    return tree, [labels[i] for i in ids.tolist()]
