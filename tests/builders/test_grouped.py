from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest
import torch
from graph_cases import KINDS, edges_of, graphs, halves, hierarchies, links_of, parents_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv

from hsa_geo.builders import from_networkx
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DomainError, HSAError, NotATreeError, UnsupportedError
from hsa_geo.nn import HSAConv


def same(tree, other):
    assert set(tree.keys()) == set(other.keys())  # PyG lists them as a set does: in any order
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


# Domains, positions, names #######################################################################


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
