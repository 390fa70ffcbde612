from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from graph_cases import halves, parents_of

from hsa_geo.builders import from_networkx
from hsa_geo.errors import BuilderError

# Partition functions #############################################################################


@pytest.mark.parametrize(
    "function",
    [
        nx.community.greedy_modularity_communities,
        nx.community.label_propagation_communities,
        nx.community.louvain_communities,
        nx.community.asyn_lpa_communities,  # a generator
        nx.connected_components,
        lambda graph: nx.community.kernighan_lin_bisection(graph, seed=0),
        lambda graph: {node: graph.nodes[node]["club"] for node in graph},
    ],
)
def test_partition_functions_of_networkx(function):
    graph = nx.karate_club_graph()
    tree, labels = from_networkx(
        graph, hierarchy=function, max_group=6, weight="weight", return_labels=True
    )
    assert tree.validate()
    assert sorted(labels[:34]) == list(range(34))
    assert tree.edge_weight.sum() == 2 * graph.size(weight="weight")


def test_recursion_stops_at_small_groups():
    graph = nx.path_graph(16)
    calls = []

    def split(group):
        calls.append(list(group))
        half = len(group) // 2
        return [list(group)[:half], list(group)[half:]]

    assert from_networkx(graph, hierarchy=split, max_group=4).depth == 3
    assert sorted(map(len, calls)) == [8, 8, 16]
    assert calls[1] in ([*range(8)], [*range(8, 16)])
    calls.clear()
    assert from_networkx(graph, hierarchy=split).depth == 2  # max_group=16, but once in any case
    assert calls == [[*range(16)]]
    assert from_networkx(graph, hierarchy=split, max_group=1).depth == 4  # pairs are not split


def test_groups_keep_the_kind_and_the_attributes():
    graph = nx.MultiDiGraph(title="roads")
    graph.add_nodes_from("abcdef", size=2)
    graph.add_edges_from([("a", "b"), ("a", "b"), ("b", "c"), ("e", "d"), ("f", "f")], length=3)
    seen = []

    def split(group):
        seen.append(group)
        return [list("bca"), list("def")] if len(group) == 6 else [group]

    from_networkx(graph, hierarchy=split, max_group=2)
    assert seen[0] is graph
    by_nodes = {tuple(group): group for group in seen[1:]}  # in the order of the graph
    abc, rest = by_nodes["a", "b", "c"], by_nodes["d", "e", "f"]
    assert type(abc) is nx.MultiDiGraph
    assert abc.graph == {"title": "roads"}
    assert abc.nodes["b"] == {"size": 2}
    assert list(abc.edges(data="length")) == [("a", "b", 3), ("a", "b", 3), ("b", "c", 3)]
    assert list(rest.edges) == [("e", "d", 0), ("f", "f", 0)]


def test_deep_partitions_need_no_recursion():
    graph = nx.empty_graph(1_100)

    def peel(group):
        first, *rest = group
        return [[first], rest]

    assert from_networkx(graph, hierarchy=peel, max_group=2).depth == 1_099


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ([[0, 1], [1, 2, 3]], "node 1 into two groups"),
        ([[0, 1, 1], [2, 3]], "node 1 into two groups"),
        ([[0, 1], [3]], "leaves out node 2"),
        ([], "leaves out node 0"),
        ([[0, 1, 2, 3, "z"]], "node 'z' into a group, which it was not given"),
        ([[0, 1], [2, 3, [4]]], r"node \[4\] into a group"),
        (["0123"], "no set of nodes"),
        (None, "TypeError.*NoneType"),
        ([0, 1, 2, 3], "TypeError"),
        ({0: 1, 1: 1, 2: 2}, "leaves out node 3"),
        ({0: [], 1: 1, 2: 2}, "TypeError"),
    ],
)
def test_what_is_no_partition(partition, message):
    with pytest.raises(BuilderError, match=message):
        from_networkx(nx.path_graph(4), hierarchy=lambda graph: partition)


def test_functions_that_fail():
    with pytest.raises(BuilderError, match=r"group of 3 nodes with node 0: NetworkXNotImpl") as e:
        from_networkx(nx.path_graph(3, nx.DiGraph), hierarchy=nx.connected_components)
    assert isinstance(e.value.__cause__, nx.NetworkXNotImplemented)
    with pytest.raises(BuilderError, match="into two groups"):
        from_networkx(nx.complete_graph(4), hierarchy=lambda g: [{0, 1, 2}, {1, 2, 3}], max_group=2)
    for odd in (0, -1, 2.5, True, "3"):
        with pytest.raises(BuilderError, match="max_group="):
            from_networkx(nx.path_graph(3), hierarchy=halves, max_group=odd)


# Attributes ######################################################################################


def places():
    graph = nx.Graph([("a", "c"), ("b", "d"), ("c", "e")])
    for node, country, city in [
        ("a", "FR", "Paris"),
        ("b", "US", "Paris"),
        ("c", "FR", "Lyon"),
        ("d", "FR", "Paris"),
        ("e", 1, 2.5),
    ]:
        graph.add_node(node, country=country, city=city)
    return graph


def test_a_path_of_attributes():
    tree, labels = from_networkx(places(), hierarchy=("country", "city"), return_labels=True)
    assert labels[:5] == ["a", "d", "c", "b", "e"]
    assert labels[5:] == ["Paris", "Lyon", "Paris", 2.5, "FR", "US", 1, None]
    assert tree.tree_name[5:] == ["Paris", "Lyon", "Paris", "2.5", "FR", "US", "1", "graph"]
    assert parents_of(tree) == [5, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12, 12, -1]
    links = dict(zip(map(tuple, tree.tree_link.t().tolist()), tree.tree_link_weight.tolist()))
    assert {link: w for link, w in links.items() if link[0] < link[1]} == {
        (5, 6): 1,  # a - c
        (9, 10): 1,  # d - b
        (9, 11): 1,  # c - e
    }


@pytest.mark.parametrize("odd", [float("nan"), [1], np.zeros(2), {}])
def test_values_that_group_nothing(odd):
    graph = places()
    graph.nodes["d"]["city"] = odd
    with pytest.raises(BuilderError, match="node 'd' has 'city' = "):
        from_networkx(graph, hierarchy=("city",))
    del graph.nodes["d"]["city"]
    with pytest.raises(BuilderError, match="node 'd' has no attribute 'city'"):
        from_networkx(graph, hierarchy=("city",))
    with pytest.raises(BuilderError, match="names no attribute"):
        from_networkx(graph, hierarchy=())
    with pytest.raises(BuilderError, match="no attribute \\['city'\\]"):
        from_networkx(graph, hierarchy=(["city"],))


# Nested labels ###################################################################################


def test_nested_dicts_and_lists():
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", (0, 1)), ((0, 1), "a")])
    nested = {"EU": {"FR": ["c", "a"], "DE": "b"}, "US": [[(0, 1)]]}
    tree, labels = from_networkx(graph, hierarchy=nested, return_labels=True)
    assert labels == ["c", "a", "b", (0, 1), "FR", "DE", None, "EU", "US", None]
    assert tree.tree_name[4:] == ["FR", "DE", "group 5", "EU", "US", "graph"]
    assert parents_of(tree) == [4, 4, 5, 6, 7, 7, 8, 9, 9, -1]
    links = list(map(tuple, tree.tree_link.t().tolist()))
    assert links == [(4, 5), (5, 4), (7, 8), (8, 7)]  # a->b, b->c, c->(0, 1)->a


def test_what_partition_functions_return_is_a_hierarchy():
    graph = nx.karate_club_graph()
    for found in (
        nx.community.greedy_modularity_communities(graph),
        nx.community.louvain_communities(graph, seed=0),
        nx.community.label_propagation_communities(graph),
    ):
        found = list(found)
        tree = from_networkx(graph, hierarchy=iter(found))
        assert tree.num_tree_nodes == 34 + len(found) + 1


def test_order_of_sets_and_by_an_attribute():
    graph = nx.empty_graph(0)
    graph.add_nodes_from("edcba")
    for v in graph:
        graph.nodes[v]["at"] = ord(v)

    def leaves(hierarchy, order=None):
        return "".join(from_networkx(graph, hierarchy=hierarchy, order=order).tree_name[:5])

    assert leaves({frozenset("ab"), frozenset("cde")}) == "edcba"
    assert leaves([set("abe"), set("cd")]) == "ebadc"
    assert leaves(["a", ["c", "b"], "ed"[0], "d"]) == "acbed"
    assert leaves(["a", ["c", "b"], "e", "d"], "at") == "abcde"
    assert leaves([["e", "a"], ["c", "b", "d"]], "at") == "aebcd"
    assert leaves("louvain", "at") == "abcde"


class Odd:
    def __iter__(self):
        return iter(["a"])

    __hash__ = None


CYCLE = []
CYCLE.extend(["a", CYCLE])


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        (["a", "b"], "node 'c' is in no group"),
        (["a", "b", "c", "a"], "node 'a' is in two groups"),
        ([{"x": "a"}, {"y": ["a"]}], "node 'a' is in two groups"),
        (["a", "b", "c", "d"], "hierarchy holds 'd', which is no node"),
        (["a", "b", "c", 1], "hierarchy holds 1, which is no node"),
        ({"x": None}, "hierarchy holds None"),
        ({"x": ["a", "b", "c"], "y": []}, "group 'y' of hierarchy holds no nodes"),
        ([["a", "b", "c"], []], "the group of hierarchy holds no nodes"),
        ([], "holds no nodes"),
        ({}, "holds no nodes"),
        (CYCLE, "contains itself"),
        ({"x": CYCLE}, "contains itself"),
        ([np.array(3.0)], "no node"),
        ([Odd(), Odd()], "node 'a' is in two groups"),
        (5, "hierarchy=5 is unknown"),
        ("leiden", "hierarchy='leiden' is unknown.*louvain"),
        (b"abc", "is unknown"),
        (float("nan"), "is unknown"),
    ],
)
def test_hierarchies_that_do_not_fit(nested, message):
    graph = nx.path_graph(3)
    with pytest.raises(BuilderError, match=message):
        from_networkx(nx.relabel_nodes(graph, dict(enumerate("abc"))), hierarchy=nested)


def test_deep_nesting_needs_no_recursion():
    nested = ["end"]
    for _ in range(5_000):
        nested = [nested]
    graph = nx.empty_graph(0)
    graph.add_node("end")
    assert from_networkx(graph, hierarchy=nested).depth == 5_001
