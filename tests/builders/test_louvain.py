from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from graph_cases import graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders._graph_edges import Edges
from hsa_geo.builders._louvain import coalesce, compact, louvain


def matrix(graph, weight=None):
    edges = Edges.of(graph, {node: i for i, node in enumerate(graph)}, weight)
    return len(graph), *edges.index, edges.matrix_weight()


def find(graph, resolution=1.0, weight=None, seed=0):
    rng = np.random.default_rng(seed)
    return louvain(*matrix(graph, weight), resolution=resolution, rng=rng)


def modularity(graph, labels, **options):
    groups = {}
    for node, label in zip(graph, labels.tolist()):
        groups.setdefault(label, set()).add(node)
    return nx.community.modularity(graph, groups.values(), **options)


GRAPHS = {
    "karate": nx.karate_club_graph(),
    "cliques": nx.connected_caveman_graph(9, 5),
    "planted": nx.random_partition_graph([20] * 6, 0.5, 0.02, seed=0),
    "random": nx.gnm_random_graph(150, 500, seed=0),
    "directed": nx.gnm_random_graph(150, 700, seed=1, directed=True),
    "planted, directed": nx.random_partition_graph([15] * 6, 0.5, 0.02, seed=2, directed=True),
    "parts": nx.disjoint_union(nx.barbell_graph(6, 2), nx.star_graph(8)),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("resolution", [0.5, 1.0, 3.0])
def test_modularity_is_as_high_as_that_of_networkx(name, resolution):
    graph = GRAPHS[name]
    weight = "weight" if name == "karate" else None
    options = {"resolution": resolution, "weight": weight}
    ours = max(
        modularity(graph, find(graph, resolution, weight, seed), **options) for seed in range(3)
    )
    theirs = nx.community.louvain_communities(graph, seed=0, **options)
    assert ours >= nx.community.modularity(graph, theirs, **options) - 0.015


@given(graphs(max_nodes=9), st.sampled_from([0.3, 1.0, 2.0]))
@settings(max_examples=60, deadline=None)
def test_no_community_gains_by_joining_a_neighbour_of_its_own(graph, resolution):
    """Moves of whole communities are tried to the end, and none is ever for the worse."""
    labels = find(graph, resolution, "w")
    n, row, col, weight = matrix(graph, "w")
    total = weight.sum()
    if total == 0:
        assert labels.tolist() == list(range(n))
        return
    dense = np.zeros((n, n))
    np.add.at(dense, (row, col), weight / total)
    gain = dense - resolution * np.outer(dense.sum(1), dense.sum(0))
    apart = np.trace(gain)
    same = labels[:, None] == labels
    reached = (gain * same).sum()
    assert reached >= apart - 1e-9
    for a in range(labels.max() + 1):
        for b in range(a):
            joined = np.where(labels == a, b, labels)
            assert (gain * (joined[:, None] == joined)).sum() <= reached + 1e-9


@given(graphs(max_nodes=9), st.floats(1e-30, 1e30))
@settings(max_examples=30, deadline=None)
def test_the_unit_of_weights_does_not_matter(graph, unit):
    n, row, col, weight = matrix(graph, "w")
    unit = 2.0 ** round(np.log2(unit))  # exact
    one, other = (
        louvain(n, row, col, values, resolution=1.0, rng=np.random.default_rng(0))
        for values in (weight, weight * unit)
    )
    assert one.tolist() == other.tolist()


def test_weights_of_very_different_size_end():
    rng = np.random.default_rng(0)
    row, col = rng.integers(0, 200, (2, 2_000))
    weight = 10.0 ** rng.uniform(-30, 30, 2_000)
    labels = louvain(200, row, col, weight, resolution=1.0, rng=rng)
    assert labels.tolist() == compact(labels).tolist()


def test_numbering():
    assert compact(np.array([], dtype=np.int64)).tolist() == []
    assert compact(np.array([5, 5, -1, 5, 3])).tolist() == [0, 0, 1, 0, 2]
    graph = nx.disjoint_union_all([nx.complete_graph(3)] * 3)
    assert find(graph).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_sums_of_equal_places():
    empty = np.array([], dtype=np.int64)
    assert [part.tolist() for part in coalesce(0, empty, empty, np.zeros(0))] == [[], [], []]
    row, col, weight = coalesce(3, np.array([2, 0, 2]), np.array([1, 2, 1]), np.array([1, 2, 4.0]))
    assert [row.tolist(), col.tolist(), weight.tolist()] == [[0, 2], [2, 1], [2, 5]]
