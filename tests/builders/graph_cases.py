"""Random networkx graphs, random hierarchies over them, and slow oracles."""

from __future__ import annotations

import functools
from collections import Counter

import networkx as nx
from hypothesis import strategies as st

from hsa_geo.data import Domain
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import networkx_graphs
from hsa_geo.testing.strategies import GRAPH_KINDS

KINDS = GRAPH_KINDS
graphs = networkx_graphs


def nestings(draw, labels):
    """Nested dicts, lists, tuples and sets of the labels."""
    todo = draw(st.permutations(labels))
    if len(todo) == 1 or draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from([list, set, frozenset, dict]))
        return {f"one {i}": v for i, v in enumerate(todo)} if kind is dict else kind(todo)
    cut = draw(st.integers(1, len(todo) - 1))
    parts = [nestings(draw, todo[:cut]), nestings(draw, todo[cut:])]
    return parts if draw(st.booleans()) else dict(zip(["x", ("y",)], parts))


def halves(graph):
    """A partition of any graph: one half of the nodes and the other."""
    nodes = list(graph)
    return [nodes[::2], set(nodes[1::2])]


def colours(graph):
    return nx.get_node_attributes(graph, "r")  # as a dict


def components(graph):
    return (nx.weakly_connected_components if graph.is_directed() else nx.connected_components)(
        graph
    )


def modularity(graph):
    if not graph.size(weight="w"):
        return [graph]
    return nx.community.louvain_communities(graph, weight="w", seed=0)


@st.composite
def hierarchies(draw, graph):
    """Keyword arguments of from_networkx that say how to group the graph."""
    kind = draw(st.sampled_from(["louvain", "function", "attributes", "nesting"]))
    if kind == "louvain":
        resolutions = st.lists(st.sampled_from([0.1, 0.5, 1, 2, 8]), min_size=1, max_size=3)
        return {
            "hierarchy": "louvain",
            "resolutions": draw(resolutions),
            "seed": draw(st.integers(0, 3)),
        }
    if kind == "function":
        function = draw(st.sampled_from([halves, colours, components, modularity]))
        return {"hierarchy": functools.partial(function), "max_group": draw(st.integers(1, 5))}
    if kind == "attributes":
        return {"hierarchy": draw(st.sampled_from([("a",), ("a", "b"), ("b", "a", "r")]))}
    return {"hierarchy": nestings(draw, list(graph))}


def edges_of(graph, weight=None):
    """The multiset of (source, target, weight), both directions if undirected, loops once."""
    found = Counter()
    for u, v, data in graph.edges(data=True):
        w = 1 if weight is None else data[weight]
        found[u, v, w] += 1
        if not graph.is_directed() and u != v:
            found[v, u, w] += 1
    return found


def links_of(tree, edges):
    """Weights between siblings of graph domains, pair by pair; ``edges`` by leaf rows."""
    plain = PlainTree.of(tree)
    under = [set(row.nonzero().flatten().tolist()) for row in plain.under]
    parent = dict(tree.tree_index.flip(0).t().tolist())
    links = {}
    for b, c in plain.pairs():
        if tree.tree_domain[parent[b]] == Domain.GRAPH:
            total = sum(w for (i, j, w) in edges if i in under[b] and j in under[c])
            if total > 0:
                links[b, c] = total
    return links


def parents_of(tree):
    """The parent of every tree node, -1 for the root."""
    parent = [-1] * tree.num_tree_nodes
    for above, below in tree.tree_index.t().tolist():
        parent[below] = above
    return parent
