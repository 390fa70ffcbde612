"""CommunityHierarchy: Louvain's communities, and the edges between them."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub
from torch_geometric.utils import to_networkx
from transform_cases import conv, graph_of, graphs, two_triangles

from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, ShapeError
from hsa_geo.transforms import CommunityHierarchy
from hsa_geo.transforms.communities import partitioned


def groups_of(tree, level):
    """Sets of leaves below the nodes of a level."""
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    out = {}
    for leaf in range(tree.num_leaves):
        node = leaf
        while tree.tree_level[node] > level:
            node = int(parent[node])
        out.setdefault(node, set()).add(leaf)
    return sorted(map(sorted, out.values()))


def test_two_triangles():
    tree = CommunityHierarchy(1.0)(two_triangles())
    assert groups_of(tree, 1) == [[0, 1, 2], [3, 4, 5], [6]]
    assert tree.tree_domain[tree.tree_domain >= 0].unique().tolist() == [Domain.SET]
    assert "tree_link" not in tree


def test_karate_club_is_about_as_modular_as_networkx_finds():
    data = KarateClub()[0]
    tree = CommunityHierarchy(1.0)(data)
    graph = to_networkx(data, to_undirected=True)
    ours = nx.community.modularity(graph, groups_of(tree, 1))
    theirs = nx.community.modularity(graph, nx.community.louvain_communities(graph, seed=0))
    assert ours > theirs - 0.03
    assert tree.y is data.y


def test_resolutions_nest_and_weights_count():
    edges = [(i, i + 1) for i in range(15)]
    data = graph_of(16, edges)
    tree = CommunityHierarchy([0.5, 8.0])(data)
    fine, coarse = groups_of(tree, 2), groups_of(tree, 1)
    assert len(fine) > len(coarse)
    assert all(any(set(a) <= set(b) for b in coarse) for a in fine)
    heavy = (data.edge_index.sum(0) % 4 == 1).float() * 100  # 0-1, 2-3, ...
    data.weight = heavy[:, None] + 0.01
    pairs = groups_of(CommunityHierarchy(3.0, weight="weight")(data), 1)
    assert pairs == [[i, i + 1] for i in range(0, 16, 2)]


@settings(max_examples=30, deadline=None)
@given(data=graphs())
def test_links_are_the_edges_where_branches_part(data):
    tree = CommunityHierarchy(add_links=True, weight="edge_weight")(data)
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    expected = {}
    for (a, b), w in zip(data.edge_index.t().tolist(), data.edge_weight.tolist()):
        above = [[a], [b]]
        for path in above:
            while parent[path[-1]] >= 0:
                path.append(int(parent[path[-1]]))
        while above[0] and above[1] and above[0][-1] == above[1][-1]:
            above[0].pop(), above[1].pop()
        if a != b and w > 0:
            key = above[0][-1], above[1][-1]
            expected[key] = expected.get(key, 0) + w
    found = dict(zip(map(tuple, tree.tree_link.t().tolist()), tree.tree_link_weight.tolist()))
    assert found == pytest.approx(expected)
    assert tree.tree_link_weight.dtype == torch.float32
    inner = tree.tree_domain[tree.tree_domain >= 0]
    assert (inner == Domain.GRAPH).all()


def test_no_edges_and_one_node():
    flat = CommunityHierarchy([3.0, 1.0], add_links=True)(graph_of(4, []))
    assert flat.tree_index.tolist() == [[4] * 4, [0, 1, 2, 3]]
    assert flat.tree_link.shape == (2, 0)
    single = CommunityHierarchy()(graph_of(1, []))
    assert single.num_tree_nodes == 1
    assert conv(3)(single.x.double(), single).isfinite().all()


def test_seed():
    torch.manual_seed(0)
    data = Data(edge_index=torch.randint(0, 60, (2, 150)), num_nodes=60)
    trees = [CommunityHierarchy(seed=seed)(data) for seed in (1, 1, 2)]
    assert torch.equal(trees[0].tree_index, trees[1].tree_index)
    assert not torch.equal(trees[0].tree_index, trees[2].tree_index)


def test_errors():
    data = two_triangles()
    with pytest.raises(BuilderError, match="no edge_index: set it"):
        CommunityHierarchy()(Data(num_nodes=2))
    with pytest.raises(BuilderError, match="no tensor 'length' given as weight"):
        CommunityHierarchy(weight="length")(data)
    with pytest.raises(ShapeError, match=r"'x' has shape \[7, 3\]"):
        CommunityHierarchy(weight="x")(data)
    data.edge_weight[0] = -1
    with pytest.raises(ShapeError, match="weight must be finite and not negative"):
        CommunityHierarchy(weight="edge_weight")(data)
    with pytest.raises(BuilderError, match="resolutions="):
        CommunityHierarchy("high")(data)
    with pytest.raises(ShapeError, match="edge_index holds 5"):
        CommunityHierarchy()(Data(num_nodes=2, edge_index=torch.tensor([[0], [5]])))
    for bad in (torch.tensor([[0], [5]]), torch.rand(2, 3), torch.zeros(3, 2).long()):
        with pytest.raises(ShapeError, match="edge_index"):
            partitioned(Data(num_nodes=2, edge_index=bad), [np.array([0, 0])], add_links=True)


def test_edge_index_class():
    data = two_triangles()
    tree = CommunityHierarchy(add_links=True)(data)
    n = data.num_nodes
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(n, n), sort_order="row")
    again = CommunityHierarchy(add_links=True)(data)
    assert torch.equal(again.tree_index, tree.tree_index)
    assert torch.equal(again.tree_link, tree.tree_link)
    assert again.edge_index is data.edge_index
