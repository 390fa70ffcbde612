from __future__ import annotations

import enum

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders import from_networkx
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DomainError, HSAError, NotATreeError
from hsa_geo.testing import trees

SHAPES = [  # the same shape with labels of every kind: root > (a > (c, d), b)
    [4, 2, 6, 9, 1],
    ["root", "a", "b", "c", "d"],
    [(0,), (0, 1), (0, 2), (0, 1, 1), (0, 1, 2)],
    [None.__class__, "a", 3, (1, 2), 2.5],
    [True, "True", 2, frozenset([1]), enum.Enum("Color", "RED").RED],
    [-1, -2, -3, -4, -5],
]


def digraph(labels, kind=nx.DiGraph):
    root, a, b, c, d = labels
    graph = kind()
    graph.add_edges_from([(root, a), (root, b), (a, c), (a, d)])
    return graph


@pytest.mark.parametrize("labels", SHAPES, ids=lambda labels: str(labels[1]))
@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph, nx.Graph, nx.MultiGraph])
def test_any_labels(labels, kind):
    root, a, b, c, d = labels
    graph = digraph(labels, kind)
    tree, found = from_networkx(
        graph, root=None if graph.is_directed() else root, return_labels=True
    )
    assert found == [c, d, b, a, root]
    assert tree.tree_index.tolist() == [[3, 3, 4, 4], [0, 1, 3, 2]]
    assert tree.tree_name == [str(label) for label in found]
    assert tree.validate()


def test_siblings_come_as_their_edges_were_added():
    graph = nx.DiGraph()
    graph.add_nodes_from("zyxr")
    graph.add_edges_from([("r", "x"), ("r", "z"), ("r", "y")])
    assert from_networkx(graph).tree_name == ["x", "z", "y", "r"]
    assert from_networkx(nx.path_graph(3), root=1).tree_name == ["0", "2", "1"]


def test_order_by_an_attribute():
    graph = nx.DiGraph([("r", "x"), ("r", "z"), ("r", "y"), ("x", "u"), ("x", "v")])
    nx.set_node_attributes(graph, {"x": 3, "z": 1, "y": 3, "u": 2.5, "v": -1}, "rank")
    _, labels = from_networkx(graph, order="rank", return_labels=True)
    assert labels == ["z", "v", "u", "y", "x", "r"]  # x before y, as they were
    del graph.nodes["v"]["rank"]
    with pytest.raises(BuilderError, match="node 'v' has no attribute 'rank'"):
        from_networkx(graph, order="rank")
    for odd in ("late", float("nan"), None):
        graph.nodes["v"]["rank"] = odd
        with pytest.raises(BuilderError, match="'rank'"):
            from_networkx(graph, order="rank")


def test_root_of_an_undirected_tree():
    graph = nx.Graph([("b", "a"), ("c", "b"), ("c", "d")])
    for root, depth in [("a", 3), ("b", 2), ("c", 2), ("d", 3)]:
        tree, labels = from_networkx(graph, root=root, return_labels=True)
        assert labels[-1] == root
        assert tree.depth == depth
        assert tree.num_tree_nodes == 4
    assert from_networkx(digraph("rabcd"), root="r").num_leaves == 3  # may be said


def test_one_node():
    graph = nx.DiGraph()
    graph.add_node("only", v=3)
    assert from_networkx(graph, x="v").x.tolist() == [[3.0]]
    assert from_networkx(nx.Graph(graph), root="only").num_tree_nodes == 1


@pytest.mark.parametrize("directed", [True, False])
def test_chain_of_5000(directed):
    graph = nx.path_graph(5_000, create_using=nx.DiGraph if directed else nx.Graph)
    tree = from_networkx(graph, root=None if directed else 0)
    assert tree.depth == 4_999
    assert tree.tree_name[0] == "4999"


@given(trees(max_nodes=20), st.randoms())
@settings(max_examples=60, deadline=None)
def test_edges_in_any_order_give_the_same_groups(tree, random):
    edges = tree.tree_index.t().tolist()
    random.shuffle(edges)
    graph = nx.DiGraph()
    graph.add_node(tree.num_tree_nodes - 1)
    graph.add_edges_from(edges)
    back, labels = from_networkx(graph, return_labels=True)
    assert back.validate()
    found = {(labels[a], labels[b]) for a, b in back.tree_index.t().tolist()}
    assert found == set(map(tuple, edges))
    leaves = labels[: back.num_leaves]
    assert sorted(leaves) == list(range(tree.num_leaves))


# Attributes ######################################################################################


def featured():
    graph = digraph("rabcd")
    nx.set_node_attributes(graph, {"c": 1, "d": 2.5, "b": np.float64(-1)}, "w")
    nx.set_node_attributes(graph, {v: [i, 2 * i] for i, v in enumerate("bcd")}, "v")
    return graph


def test_features_of_the_leaves():
    graph = featured()
    assert from_networkx(graph, x="w").x.tolist() == [[1], [2.5], [-1]]
    assert from_networkx(graph, x="v").x.tolist() == [[1, 2], [2, 4], [0, 0]]
    both = from_networkx(graph, x=["v", "w"]).x
    assert both.tolist() == [[1, 2, 1], [2, 4, 2.5], [0, 0, -1]]
    assert both.dtype == torch.float32
    assert from_networkx(graph, x="v", dtype=torch.int64).x.dtype == torch.int64
    assert from_networkx(graph, x="w", dtype=torch.float64).x.dtype == torch.float64
    assert "x" not in from_networkx(graph)
    for leaf in "bcd":
        graph.nodes[leaf]["image"] = torch.rand(3, 2, 2, requires_grad=True)
    assert from_networkx(graph, x="image").x.shape == (3, 3, 2, 2)


@pytest.mark.parametrize(
    ("change", "x", "message"),
    [
        ({"d": None}, "w", "node 'd' has no attribute 'w'.*'v'"),
        ({"c": "1.5"}, "w", "node 'c' has 'w' = '1.5', which is no number"),
        ({"c": None.__class__}, "w", "node 'c'"),
        ({"c": [[1], [1, 2]]}, "w", "node 'c'"),
        ({"c": 1j}, "w", "node 'c'"),
        ({"d": [1, 2]}, "w", r"node 'd' has 'w' of shape \[2\], but node 'c' of shape \[\]"),
        ({}, "weight", "node 'c' has no attribute 'weight'"),
        ({}, ["v", "nothing"], "no attribute 'nothing'"),
        ({}, [], "names no attribute"),
        ({v: [[1]] for v in "bcd"}, ["w", "v"], "must be a number or a vector"),
    ],
)
def test_features_that_do_not_fit(change, x, message):
    graph = featured()
    for node, value in change.items():
        if value is None:
            del graph.nodes[node]["w"]
        else:
            graph.nodes[node]["w"] = value
    with pytest.raises(BuilderError, match=message):
        from_networkx(graph, x=x)


def test_positions_and_domains():
    graph = digraph("rabcd")
    nx.set_node_attributes(graph, {"r": "GRID2D", "a": Domain.SEQUENCE}, "kind")
    nx.set_node_attributes(graph, {"a": (0, 1), "b": (2, 3)}, "place")
    tree, labels = from_networkx(graph, domain="kind", pos="place", return_labels=True)
    domain = dict(zip(labels, tree.tree_domain.tolist()))
    place = dict(zip(labels, tree.tree_pos.tolist()))
    assert domain == {"r": 2, "a": 1, "b": -1, "c": -1, "d": -1}
    assert place == {"r": [0, 0], "a": [0, 1], "b": [2, 3], "c": [0, 0], "d": [1, 0]}


def test_one_domain_for_all():
    graph = digraph("rabcd")
    tree = from_networkx(graph, domain=Domain.SEQUENCE)
    assert tree.tree_domain.tolist() == [-1, -1, -1, 1, 1]
    assert tree.tree_pos[:, 0].tolist() == [0, 1, 1, 0, 0]  # children count 0, 1, ...
    assert from_networkx(graph, domain=3).tree_pos.abs().sum() == 0


@pytest.mark.parametrize("value", ["sequence", "SEQUENCE", 1, np.int64(1), Domain.SEQUENCE])
def test_domains_as_names_and_numbers(value):
    graph = nx.DiGraph([("r", "a")])
    graph.nodes["r"]["d"] = value
    assert from_networkx(graph, domain="d").tree_domain.tolist() == [-1, 1]


@pytest.mark.parametrize("value", ["list", 7, -1, True, None, 1.0, [1]])
def test_unknown_domains(value):
    graph = nx.DiGraph([("r", "a")])
    graph.nodes["r"]["d"] = value
    with pytest.raises(DomainError, match=r"node 'r' has the domain.*SEQUENCE=1"):
        from_networkx(graph, domain="d")
    if value is not None and value != "list":
        with pytest.raises(DomainError):
            from_networkx(graph, domain=value)
    del graph.nodes["r"]["d"]
    with pytest.raises(BuilderError, match="node 'r' has no attribute 'd'"):
        from_networkx(graph, domain="d")


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"a": 1}, "node 'b' has no attribute 'place'"),
        ({"a": 1, "b": "2"}, "node 'b' has 'place' = '2', which is no number"),
        ({"a": 1, "b": float("nan")}, "node 'b' has the position nan"),
        ({"a": 1, "b": [1, 2, 3]}, "node 'b' has the position"),
        ({"a": [[1, 2]], "b": 1}, "node 'a' has the position"),
        ({"r": 1}, "no node has the attribute 'place'"),
        ({}, "no node has the attribute 'place'"),
    ],
)
def test_positions_that_do_not_fit(places, message):
    graph = digraph("rabcd")
    nx.set_node_attributes(graph, places, "place")
    with pytest.raises(BuilderError, match=message):
        from_networkx(graph, pos="place")


def test_names():
    graph = digraph("rabcd")
    nx.set_node_attributes(graph, {v: i for i, v in enumerate("rabcd")}, "tag")
    assert from_networkx(graph, name="tag").tree_name == ["3", "4", "2", "1", "0"]
    del graph.nodes["d"]["tag"]
    with pytest.raises(BuilderError, match="node 'd' has no attribute 'tag'"):
        from_networkx(graph, name="tag")


def test_attributes_of_edges_do_not_collide():
    graph = nx.DiGraph()
    graph.add_edge("r", "a", age=99, pos=(9, 9))
    graph.nodes["a"].update(age=1, pos=(1, 2))
    graph.graph["age"] = 3
    tree = from_networkx(graph, x="age", pos="pos")
    assert tree.x.tolist() == [[1.0]]
    assert tree.tree_pos.tolist() == [[1, 2], [0, 0]]


# What is no rooted tree ##########################################################################


def directed(*edges, kind=nx.DiGraph):
    return kind(list(edges))


BAD = {
    "a->c<-b": (directed("ac", "bc"), None, "node 'c' has 2 parents, 'a' and 'b'.*keep one"),
    "edge up": (directed("ra", "rb", "ca"), None, "node 'a' has 2 parents.*points up"),
    "two roots": (directed("ab", "cd"), None, "nodes 'a', 'c' have no parent.*add a common"),
    "two nodes": (nx.empty_graph(2, nx.DiGraph), None, "nodes 0, 1 have no parent"),
    "cycle": (directed("ab", "bc", "ca"), None, "every node has a parent.*'[abc]'.*cycle"),
    "two-cycle": (directed("ab", "ba"), None, "cycle"),
    "cycle aside": (directed("ra", "bc", "cd", "db", "be"), None, "node '[bcd]' lies on a cycle"),
    "self-loop": (directed("ra", "aa"), None, "node 'a' has an edge to itself: remove"),
    "only a self-loop": (directed("aa"), None, "node 'a' has an edge to itself"),
    "multi-edge": (
        directed("ra", "ra", kind=nx.MultiDiGraph),
        None,
        r"nodes 'r' and 'a' are joined by 2 edges.*nx\.DiGraph",
    ),
    "both ways": (nx.DiGraph([(1, 2), (2, 1), (1, 3)]), None, "cycle"),
    "wrong root": (directed("ra", "ab"), "a", "root='a' has a parent, 'r'.*root.*is 'r'"),
    "unknown root": (directed("ra"), "z", "root='z' is no node"),
    "unhashable root": (directed("ra"), ["r"], "is no node"),
    "no root": (nx.Graph(["ab"]), None, "undirected.*root="),
    "triangle": (nx.Graph(["ab", "bc", "ca"]), "a", "closes a cycle.*bfs_tree"),
    "graph aside": (nx.Graph(["ab", "cd"]), "a", "node 'c' is not connected to the root 'a'"),
    "undirected loop": (nx.Graph(["ab", "bb"]), "a", "node 'b' has an edge to itself"),
    "undirected multi": (nx.MultiGraph(["ab", "ab"]), "a", "joined by 2 edges"),
    "empty": (nx.DiGraph(), None, "no nodes"),
    "karate": (nx.karate_club_graph(), 0, "closes a cycle"),
    "list": ([("a", "b")], None, "graph is a list"),
    "none": (None, None, "graph is a NoneType"),
}


@pytest.mark.parametrize("case", BAD)
def test_other_graphs_are_refused(case):
    graph, root, message = BAD[case]
    with pytest.raises(NotATreeError, match=message) as caught:
        from_networkx(graph, root=root)
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, HSAError)


def test_remedies_work():
    graph = nx.karate_club_graph()
    assert from_networkx(nx.bfs_tree(graph, 0)).num_tree_nodes == 34
    assert from_networkx(nx.minimum_spanning_tree(graph), root=5).num_tree_nodes == 34
    parallel = directed("ra", "ra", kind=nx.MultiDiGraph)
    assert from_networkx(nx.DiGraph(parallel)).num_leaves == 1


def test_graph_is_not_changed():
    graph = featured()
    before = (list(graph.nodes(data=True)), list(graph.edges(data=True)))
    from_networkx(graph, x=["v", "w"])
    assert (list(graph.nodes(data=True)), list(graph.edges(data=True))) == before


def test_features_in_a_type_that_torch_does_not_know():
    graph = nx.DiGraph([(0, 1)])
    graph.nodes[1]["f"] = np.longdouble(1.5)
    assert from_networkx(graph, x="f").x.tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, torch.int64),
        (300, torch.uint8),
        (1e300, torch.float32),
        (float("nan"), torch.int64),
        (2**63 + 5, torch.int64),
        (1, torch.complex64),
    ],
)
def test_features_that_a_type_cannot_hold_are_refused(value, dtype):
    graph = nx.DiGraph([("r", "a"), ("r", "b")])
    nx.set_node_attributes(graph, np.uint64(value) if value == 2**63 + 5 else value, "v")
    with pytest.raises(BuilderError, match=r"node 'a' holds|complex"):
        from_networkx(graph, x="v", dtype=dtype)


def test_numbers_do_not_change_beside_others():
    graph = nx.DiGraph([("r", "a"), ("r", "b")])
    graph.nodes["a"]["v"], graph.nodes["b"]["v"] = 2**53 + 1, 1.5
    with pytest.raises(BuilderError, match=r"node 'a' has 'v' = 9007199254740993"):
        from_networkx(graph, x="v", dtype=torch.float64)
    graph.nodes["b"]["v"] = 2
    assert from_networkx(graph, x="v", dtype=torch.int64).x[0, 0] == 2**53 + 1
