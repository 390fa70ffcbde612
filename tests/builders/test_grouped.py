from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from graph_cases import KINDS, edges_of, graphs, halves, hierarchies, links_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv

from hsa_geo.builders import from_networkx
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DomainError, HSAError, NotATreeError, UnsupportedError
from hsa_geo.nn import HSAConv


def parents_of(tree):
    parent = [-1] * tree.num_tree_nodes
    for above, below in tree.tree_index.t().tolist():
        parent[below] = above
    return parent


def same(tree, other):
    assert tree.keys() == other.keys()
    for key in tree.keys():  # noqa: SIM118
        a, b = tree[key], other[key]
        assert torch.equal(a, b) and a.dtype == b.dtype if torch.is_tensor(a) else a == b, key


# Any graph, any hierarchy ########################################################################


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_graph_with_any_hierarchy(data):
    graph = data.draw(graphs())
    options = data.draw(hierarchies(graph))
    weight = data.draw(st.sampled_from([None, "w"]))
    order = data.draw(st.sampled_from([None, "r"]))
    build = {"weight": weight, "order": order, "x": "f", "return_labels": True, **options}
    before = (list(graph.nodes(data=True)), list(graph.edges(data=True)))
    tree, labels = from_networkx(graph, **build)

    assert (list(graph.nodes(data=True)), list(graph.edges(data=True))) == before
    assert tree.validate()
    assert tree.plan.leaf_order.tolist() == list(range(tree.num_nodes))  # reading order
    leaves = labels[: tree.num_nodes]
    assert len(labels) == len(tree.tree_name) == tree.num_tree_nodes
    assert Counter(leaves) == Counter(graph)
    assert tree.x.tolist() == [graph.nodes[leaf]["f"] for leaf in leaves]
    assert tree.tree_name[: len(leaves)] == [str(leaf) for leaf in leaves]

    weights = [1] * tree.num_edges if weight is None else tree.edge_weight.tolist()
    rows = [(i, j, w) for (i, j), w in zip(tree.edge_index.t().tolist(), weights)]
    assert Counter((leaves[i], leaves[j], w) for i, j, w in rows) == edges_of(graph, weight)
    assert rows == sorted(rows, key=lambda row: row[:2])
    assert ("edge_weight" in tree) == (weight is not None)

    found = map(tuple, tree.tree_link.t().tolist())
    assert dict(zip(found, tree.tree_link_weight.tolist())) == links_of(tree, rows)
    same(tree, from_networkx(graph, **{**build, "return_labels": False}))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_batch_equals_its_trees(data):
    trees = []
    for _ in range(data.draw(st.integers(1, 3))):
        graph = data.draw(graphs(max_nodes=8))
        trees.append(from_networkx(graph, x="f", weight="w", **data.draw(hierarchies(graph))))
    batch = Batch.from_data_list(trees)
    assert batch.validate()
    for tree, back in zip(trees, batch.to_data_list()):
        same(tree, back)
    torch.manual_seed(0)
    attend, pass_on = HSAConv(2, 4, heads=2).double(), GCNConv(2, 4).double()

    def run(tree):
        x = tree.x.double()
        return attend(x, tree), pass_on(x, tree.edge_index, tree.edge_weight.double())

    for k, whole in enumerate(run(batch)):
        torch.testing.assert_close(whole, torch.cat([run(tree)[k] for tree in trees]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hierarchy", ["louvain", halves, ("g",), ["only"], {"k": "only"}])
def test_one_node(kind, hierarchy):
    graph = kind()
    graph.add_node("only", g=1)
    graph.add_edge("only", "only")
    tree, labels = from_networkx(graph, hierarchy=hierarchy, return_labels=True)
    given_groups = {("g",): ["only", 1, None], "k": ["only", "k", None]}
    if isinstance(hierarchy, tuple | dict):
        assert labels == given_groups[("g",) if isinstance(hierarchy, tuple) else "k"]
    else:
        assert labels == (["only", None] if isinstance(hierarchy, list) else ["only"])
    assert tree.edge_index.tolist() == [[0], [0]]
    assert tree.tree_link.shape == (2, 0)
    assert tree.tree_link.dtype == torch.int64
    assert tree.tree_link_weight.shape == (0,)
    assert tree.validate()


class Label(str):
    """A string with a hash that can be changed, as those of strings from process to process."""

    salt = 0

    def __hash__(self):
        return hash((str(self), Label.salt)) % 97

    __eq__ = str.__eq__


@pytest.mark.parametrize(
    "hierarchy",
    [
        lambda graph: "louvain",
        lambda graph: nx.community.greedy_modularity_communities,
        lambda graph: nx.connected_components,
        lambda graph: [set(list(graph)[:9]), {frozenset(list(graph)[9:20]), *list(graph)[20:]}],
    ],
)
def test_the_order_of_sets_does_not_matter(monkeypatch, hierarchy):
    trees = []
    for salt in range(3):
        monkeypatch.setattr(Label, "salt", salt)
        graph = nx.relabel_nodes(nx.karate_club_graph(), lambda node: Label(f"person {node}"))
        trees.append(from_networkx(graph, hierarchy=hierarchy(graph)))
    same(trees[0], trees[1])
    same(trees[0], trees[2])


# Louvain #########################################################################################


def test_louvain_of_two_cliques():
    graph = nx.disjoint_union(nx.complete_graph(4), nx.complete_graph(3))
    graph.add_edge(0, 4)
    graph.add_node("alone")
    tree, labels = from_networkx(graph, hierarchy="louvain", resolutions=1, return_labels=True)
    assert labels == [0, 1, 2, 3, 4, 5, 6, "alone", None, None, None]
    assert parents_of(tree) == [8] * 4 + [9] * 3 + [10] * 3 + [-1]  # the one alone is no group
    assert tree.tree_name[7:] == ["alone", "group 1", "group 2", "graph"]
    assert tree.tree_link[:, -2:].tolist() == [[8, 9], [9, 8]]
    assert tree.tree_link_weight[-2:].tolist() == [1, 1]
    assert tree.tree_domain[8:].tolist() == [Domain.GRAPH] * 3


def test_weights_and_directions_decide():
    square = nx.cycle_graph(4)
    nx.set_edge_attributes(square, {(0, 1): 9, (2, 3): 9, (1, 2): 1, (0, 3): 1}, "w")

    def groups(graph, **options):
        tree, labels = from_networkx(
            graph, hierarchy="louvain", resolutions=1, return_labels=True, **options
        )
        return [labels[:4][i : i + 2] for i in (0, 2)] if tree.num_tree_nodes == 7 else None

    assert groups(square, weight="w") == [[0, 1], [2, 3]]
    nx.set_edge_attributes(square, {(0, 1): 1, (2, 3): 1, (1, 2): 9, (0, 3): 9}, "w")
    assert groups(square, weight="w") == [[0, 3], [1, 2]]
    parallel = nx.MultiGraph([(0, 1), (1, 2), (2, 3), (3, 0)] + [(0, 1), (2, 3)] * 5)
    assert groups(parallel) == [[0, 1], [2, 3]]


def test_resolutions_nest():
    graph = nx.connected_caveman_graph(8, 6)
    fine = from_networkx(graph, hierarchy="louvain", resolutions=[1])
    both = from_networkx(graph, hierarchy="louvain", resolutions=[0.2, 1])
    assert fine.depth == 2
    assert both.depth == 3
    assert both.num_tree_nodes > fine.num_tree_nodes
    below = from_networkx(graph, hierarchy="louvain", resolutions=(1, 0.2))
    same(both, below)


def test_seeds():
    graph = nx.gnm_random_graph(60, 150, seed=3)
    trees = [from_networkx(graph, hierarchy="louvain", seed=seed) for seed in (None, 0, 0, 1, 2)]
    same(trees[0], trees[1])
    same(trees[1], trees[2])
    assert len({str(tree.tree_index.tolist()) for tree in trees}) > 1


@pytest.mark.parametrize("graph", [nx.empty_graph(5), nx.Graph([(i, i) for i in range(5)])])
def test_nodes_without_neighbours_stay_under_the_root(graph):
    tree = from_networkx(graph, hierarchy="louvain")
    assert tree.num_tree_nodes == 6
    graph.add_edges_from([(0, 1), (1, 0)], w=0)
    assert from_networkx(graph, hierarchy="louvain").num_tree_nodes == 7


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


# Domains, positions, names, weights ##############################################################


def test_domains_and_positions():
    graph = nx.path_graph(4)
    nested = [[0, 1], 2, 3]
    tree = from_networkx(graph, hierarchy=nested, domain=Domain.SEQUENCE)
    assert "tree_link" not in tree
    assert tree.tree_pos[:, 0].tolist() == [0, 1, 1, 2, 0, 0]  # the group stands first
    assert from_networkx(graph, hierarchy=nested).tree_pos.abs().sum() == 0
    nx.set_node_attributes(graph, {i: (i, 10 * i) for i in range(4)}, "at")
    for domain in (None, Domain.GRID2D):
        tree = from_networkx(graph, hierarchy=nested, pos="at", domain=domain)
        assert tree.tree_pos.tolist() == [[0, 0], [1, 10], [2, 20], [3, 30], [0.5, 5], [0, 0]]
    graph.nodes[2].pop("at")
    with pytest.raises(BuilderError, match="node 2 has no attribute 'at'"):
        from_networkx(graph, hierarchy=nested, pos="at")
    with pytest.raises(DomainError, match="domain='kind' names an attribute"):
        from_networkx(graph, hierarchy=nested, domain="kind")
    with pytest.raises(DomainError, match="the domain 9"):
        from_networkx(graph, hierarchy=nested, domain=9)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_groups_are_at_the_mean_of_their_leaves(data):
    graph = data.draw(graphs())
    tree = from_networkx(graph, pos="p", **data.draw(hierarchies(graph)))
    parent = torch.tensor(parents_of(tree))
    below = torch.eye(tree.num_nodes, tree.num_tree_nodes)  # leaf, node
    node = torch.arange(tree.num_nodes)
    while (parent[node] >= 0).any():
        node = torch.where(parent[node] >= 0, parent[node], node)
        below[torch.arange(len(node)), node] = 1
    mean = (below.T @ tree.tree_pos[: tree.num_nodes]) / below.sum(0).unsqueeze(1)
    if tree.depth:
        mean[-1] = 0
    torch.testing.assert_close(tree.tree_pos, mean)


def test_names():
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, {0: "zero", 1: "one"}, "title")
    assert from_networkx(graph, hierarchy=[0, 1], name="title").tree_name[:2] == ["zero", "one"]
    del graph.nodes[1]["title"]
    with pytest.raises(BuilderError, match="node 1 has no attribute 'title'"):
        from_networkx(graph, hierarchy=[0, 1], name="title")


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


# Arguments that do not go together ###############################################################


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hierarchy": "louvain", "root": 0}, "root=0 goes with rooted trees"),
        ({"hierarchy": "louvain", "max_group": 3}, "max_group=3 goes with a partition"),
        ({"hierarchy": halves, "seed": 3}, "seed=3 goes with.*functools"),
        ({"hierarchy": ("a",), "resolutions": [1]}, "resolutions="),
        ({"root": 0, "weight": "w"}, "weight='w' goes with hierarchy="),
        ({"root": 0, "seed": 0}, "seed=0 goes with hierarchy="),
        ({"root": 0, "max_group": 1}, "max_group=1 goes with hierarchy="),
    ],
)
def test_arguments_that_do_not_go_together(options, message):
    with pytest.raises(UnsupportedError, match=message):
        from_networkx(nx.path_graph(3), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"resolutions": 0},
        {"resolutions": []},
        {"resolutions": [1, -2]},
        {"resolutions": "1"},
        {"resolutions": [float("nan")]},
        {"resolutions": float("inf")},
        {"resolutions": object()},
        {"seed": -1},
        {"seed": "a"},
        {"seed": 0.5},
        {"weight": ["w"]},
        {"pos": ["p"]},
        {"x": [["f"]]},
        {"x": 7},
        {"name": ["f"]},
        {"order": ["f"]},
        {"dtype": "float"},
    ],
    ids=str,
)
def test_arguments_that_cannot_be_used(options):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, 1, "f")
    with pytest.raises(HSAError) as error:
        from_networkx(graph, **{"hierarchy": "louvain", **options})
    assert str(next(iter(options))) in str(error.value) or "attribute" in str(error.value)


@pytest.mark.parametrize("graph", [nx.cycle_graph(3), nx.path_graph(2), nx.DiGraph(["ac", "bc"])])
def test_graphs_that_are_no_trees_are_told_of_hierarchies(graph):
    with pytest.raises(NotATreeError, match="hierarchy="):
        from_networkx(graph)
    assert from_networkx(graph, hierarchy="louvain").num_nodes == len(graph)
