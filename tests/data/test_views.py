from __future__ import annotations

import networkx as nx
import pytest
import torch
from data_cases import Plain, full_tree, full_trees, page_tree
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import to_dense_batch

from hsa_geo.builders import from_networkx
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.views import MAX_INDENT, as_graph, to_networkx, tree_text
from hsa_geo.errors import ShapeError, TreeError
from hsa_geo.testing import random_tree

# as_graph ########################################################################################


def test_graph_of_a_tree():
    tree = page_tree(x=torch.rand(7, 3))
    graph = tree.as_graph()
    assert type(graph) is Data
    assert graph.num_nodes == 11
    assert graph.validate()
    assert torch.equal(graph.edge_index, tree.tree_index)
    assert torch.equal(graph.level, tree.tree_level)
    assert torch.equal(graph.domain, tree.tree_domain)
    assert torch.equal(graph.pos, tree.tree_pos)
    assert graph.leaf_mask.tolist() == [True] * 7 + [False] * 4
    assert torch.equal(graph.x, torch.cat([tree.x, torch.zeros(4, 3)]))
    assert graph.name == tree.tree_name
    graph.edge_index.zero_()
    assert tree.validate()


def test_graph_of_a_batch():
    members = full_trees(4)
    batch = Batch.from_data_list(members)
    graph = batch.as_graph()
    sizes = [t.num_tree_nodes for t in members]
    assert graph.batch.bincount().tolist() == graph.ptr.diff().tolist() == sizes
    assert torch.equal(graph.x[graph.leaf_mask], batch.x)
    assert graph.x[~graph.leaf_mask].abs().sum() == 0
    assert graph.name == [name for t in members for name in t.tree_name]
    assert GCNConv(4, 2)(graph.x, graph.edge_index).shape == (sum(sizes), 2)
    assert global_add_pool(graph.x, graph.batch).shape == (4, 4)
    assert to_dense_batch(graph.x, graph.batch)[1].sum(1).tolist() == sizes
    for i, tree in enumerate(members):
        assert torch.equal(graph.x[graph.batch == i], tree.as_graph().x)


def test_features_of_any_rank_and_type():
    tree = page_tree()
    tree.x = torch.arange(7)
    assert tree.as_graph().x.tolist() == [*range(7), 0, 0, 0, 0]
    assert page_tree(x=torch.ones(7, 2, 3)).as_graph().x.shape == (11, 2, 3)
    assert page_tree().as_graph().x is None
    tree = page_tree()
    tree.x = torch.rand(5, 1)
    with pytest.raises(ShapeError, match="7 leaves"):
        tree.as_graph()
    x = torch.rand(7, 2, requires_grad=True)
    page_tree(x=x).as_graph().x.sum().backward()
    assert torch.equal(x.grad, torch.ones(7, 2))


# tree_text #######################################################################################


def test_drawing():
    tree = SignalTree.from_parents(
        [-1, 0, 1, 1, 0, 4, 4, 0],
        name=["page", "p", "to", "be", "img", "left", "right", "?"],
        domain=[1, 1, 0, 0, 2, 0, 0, 0],
        pos=[[0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [0, 0], [0, 1], [2, 0]],
    )
    assert tree_text(tree).splitlines() == [
        "SignalTree: 5 leaves, 8 nodes, depth 2",
        "page: SEQUENCE of 3, 5 leaves",
        "  p at 0: SEQUENCE of 2, 2 leaves",
        "    to at 0",
        "    be at 1",
        "  img at 1: GRID2D of 2, 2 leaves",
        "    left at (0, 0)",
        "    right at (0, 1)",
        "  ? at 2",
    ]


def test_nodes_left_out_are_counted():
    tree = page_tree()
    lines = tree_text(tree, max_nodes=3).splitlines()
    assert len(lines) == 5
    assert lines[-1] == "... and 8 more nodes"
    assert tree_text(tree, max_nodes=10).endswith("... and 1 more node")
    assert "more" not in tree_text(tree, max_nodes=11)
    assert tree_text(tree, max_nodes=0).endswith("... and 11 more nodes")


@pytest.mark.parametrize("seed", range(8))
def test_every_node_is_drawn_once(seed):
    tree = random_tree(seed)
    lines = tree_text(tree, max_nodes=10**6).splitlines()[1:]
    ids = [int(line.split(":")[0].split(" at ")[0].split()[-1]) for line in lines]
    plain, stack, walk = Plain.of(tree), [len(tree.tree_level) - 1], []
    while stack:
        walk.append(stack.pop())
        stack += reversed(plain.children[walk[-1]])
    assert ids == walk
    indents = [(len(line) - len(line.lstrip())) // 2 for line in lines]
    assert indents == [min(plain.level(v), MAX_INDENT) for v in ids]


def test_deep_chain_stays_narrow():
    tree = SignalTree.from_parents(range(-1, 4_999), name=["node"] * 5_000)
    lines = tree_text(tree, max_nodes=5_000).splitlines()
    assert len(lines) == 5_001
    assert max(map(len, lines)) < 2 * MAX_INDENT + 60
    assert "[level 4999] node" in lines[-1]
    assert len(tree_text(tree).splitlines()) == 42


def test_wide_tree_is_cut():
    tree = SignalTree.from_parents([*[100_000] * 100_000, -1])
    assert tree_text(tree).endswith("... and 99961 more nodes")


def test_names_stay_in_their_line():
    tree = SignalTree.from_parents([1, -1], name=["x" * 300, "two\nlines\x1b[31m"])
    lines = tree_text(tree).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("two\\nlines\\x1b[31m: ")
    assert lines[2].endswith("xxx...")
    assert len(lines[2]) < 60


def test_drawing_of_a_batch_and_of_one_leaf():
    text = tree_text(Batch.from_data_list([page_tree(), page_tree()]))
    assert text.startswith("SignalTreeBatch: 2 trees, 14 leaves, 22 nodes, depth 3\npage")
    assert text.count("\npage: SET of 3, 7 leaves") == 2
    assert tree_text(SignalTree.from_parents([-1])) == "SignalTree: 1 leaf, 1 node, depth 0\n0"


# to_networkx #####################################################################################


def test_networkx_graph():
    tree = page_tree(x=torch.rand(7, 2))
    graph = tree.to_networkx()
    assert type(graph) is nx.DiGraph
    assert nx.is_arborescence(graph)
    assert list(graph) == list(range(11))
    plain = Plain.of(tree)
    assert [list(graph.successors(v)) for v in graph] == plain.children
    assert not any(data for *_, data in graph.edges(data=True))  # nothing to collide with
    for node, data in graph.nodes(data=True):
        assert data["level"] == plain.level(node)
        assert data["pos"] == tuple(tree.tree_pos[node].tolist())
        assert data["name"] == tree.tree_name[node]
        assert data["domain"] == ("LEAF" if node < 7 else "SET")
        assert ("x" in data) == (node < 7)
    assert graph.nodes[3]["x"] == tree.x[3].tolist()


@pytest.mark.parametrize("seed", range(12))
def test_round_trip(seed):
    tree = full_tree(seed)
    back, labels = from_networkx(
        to_networkx(tree), x="x", pos="pos", domain="domain", name="name", return_labels=True
    )
    assert labels == list(range(tree.num_tree_nodes))
    for key in ("tree_index", "tree_level", "tree_domain", "tree_pos", "x"):
        assert torch.equal(back[key], tree[key]), key
    assert back.tree_name == tree.tree_name


def test_a_batch_is_a_forest():
    graph = to_networkx(Batch.from_data_list([page_tree(), page_tree()]))
    assert nx.is_branching(graph)
    assert nx.number_weakly_connected_components(graph) == 2
    assert graph.nodes[21]["name"] == "page"


@pytest.mark.parametrize("view", [as_graph, to_networkx, tree_text])
def test_a_broken_tree_is_refused(view):
    tree = page_tree()
    tree.tree_index[1, 0] = 11
    with pytest.raises(TreeError, match="holds node 11"):
        view(tree)
    assert Domain(0) is Domain.SET
