from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from graph_cases import KINDS, edges_of, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders import from_networkx
from hsa_geo.builders._graph_edges import Edges, parts_of
from hsa_geo.errors import BuilderError


@given(graphs(), st.sampled_from([None, "w"]))
@settings(max_examples=50, deadline=None)
def test_edges_are_the_matrix_of_networkx(graph, weight):
    nodes = list(graph)
    edges = Edges.of(graph, {node: i for i, node in enumerate(nodes)}, weight)
    dense = np.zeros((len(nodes), len(nodes)))
    np.add.at(dense, tuple(edges.index), edges.matrix_weight())
    degree = dict(
        graph.out_degree(weight=weight) if graph.is_directed() else graph.degree(weight=weight)
    )
    assert dense.sum(axis=1).tolist() == [degree[node] for node in nodes]
    pairs = zip(*edges.index.tolist(), edges.weight.tolist())
    assert sorted((str(nodes[i]), str(nodes[j]), w) for i, j, w in pairs) == sorted(
        (str(u), str(v), w) for u, v, w in edges_of(graph, weight).elements()
    )


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_parts_are_the_subgraphs_of_networkx(graph):
    nodes = list(graph)
    parts = [nodes[::-3], nodes[-2::-3], nodes[-3::-3]]
    found = parts_of(graph, parts, [True, False, True])
    assert found[1] is None
    for k in (0, 2):
        expected = graph.subgraph(parts[k])
        assert list(found[k]) == parts[k]
        assert found[k].nodes == expected.nodes
        assert type(found[k]) is type(graph)
        assert nx.utils.graphs_equal(found[k], expected.copy())


WEIGHTED = [float("nan"), float("inf"), -1, -0.5, "1", None, [1, 2], 1e39, 10**400, 1j, 10**5000]


@pytest.mark.parametrize("odd", WEIGHTED, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_do_not_fit(kind, odd):
    graph = kind()
    graph.add_edge("a", "b", w=1)
    graph.add_edge("b", "c", w=odd)
    with pytest.raises(BuilderError, match="edge between 'b' and 'c' has 'w'"):
        from_networkx(graph, hierarchy="louvain", weight="w")
    for data in ({}, {"v": 1}):
        graph = kind()
        graph.add_edge("b", "c", **data)
        with pytest.raises(BuilderError, match="edge between 'b' and 'c' has no attribute 'w'"):
            from_networkx(graph, hierarchy=["b", "c"], weight="w")


def test_weights_of_other_types():
    graph = nx.Graph()
    for i, w in enumerate([True, np.float32(2), torch.tensor(3.0), np.array([4]), 5]):
        graph.add_edge(i, i + 1, w=w)
    tree = from_networkx(graph, hierarchy=[*range(6)], weight="w")
    assert tree.edge_weight.dtype == tree.tree_link_weight.dtype == torch.float32
    assert tree.edge_weight.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert torch.equal(tree.edge_index, tree.tree_link)
    graph = nx.Graph([(0, 1), (1, 2)])
    nx.set_edge_attributes(graph, 3e38, "w")
    with pytest.raises(BuilderError, match="add up to"):
        from_networkx(graph, hierarchy="louvain", weight="w")


def test_edges_without_weight_are_edges_but_no_links():
    graph = nx.Graph()
    graph.add_edge(0, 1, w=0)
    tree = from_networkx(graph, hierarchy=[0, 1], weight="w")
    assert tree.edge_index.tolist() == [[0, 1], [1, 0]]
    assert tree.tree_link.shape == (2, 0)


@given(graphs(kinds=[nx.Graph, nx.MultiGraph]), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_links_of_undirected_graphs_are_symmetric_to_the_bit(graph, random):
    for _, _, data in graph.edges(data=True):
        data["w"] = random.random()
    tree = from_networkx(graph, hierarchy=("a",), weight="w")
    links = dict(zip(map(tuple, tree.tree_link.t().tolist()), tree.tree_link_weight.tolist()))
    assert links == {(c, b): w for (b, c), w in links.items()}
