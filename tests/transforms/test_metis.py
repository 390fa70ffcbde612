"""MetisHierarchy: balanced parts; refuses clearly where METIS is not installed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import grid
from transform_cases import graph_of, two_triangles

from hsa_geo.errors import BuilderError, MissingPackageError, UnsupportedError
from hsa_geo.transforms import MetisHierarchy, metis


def sheet(rows=8, columns=8) -> Data:
    edge_index, _ = grid(rows, columns)
    return Data(edge_index=edge_index, num_nodes=rows * columns)


def below(tree, level):
    """Number of leaves below the nodes of a level."""
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    node = torch.arange(tree.num_leaves)
    while (tree.tree_level[node] > level).any():
        node = torch.where(tree.tree_level[node] > level, parent[node], node)
    return node.unique(return_counts=True)[1].tolist()


def test_parts_are_balanced_and_nested():
    pytest.importorskip("pymetis")
    tree = MetisHierarchy([16, 4], add_links=True)(sheet())
    assert tree.validate()
    assert tree.depth == 3
    assert len(below(tree, 1)) == 4
    assert max(below(tree, 1)) <= 20
    assert max(below(tree, 2)) <= 8
    cut = tree.tree_link_weight[tree.tree_level[tree.tree_link[0]] == 1].sum()
    assert cut < 110  # of 420; a division at random cuts about 315
    again = MetisHierarchy([4, 16], add_links=True)(sheet())
    assert torch.equal(tree.tree_index, again.tree_index)


def test_weights_count():
    pytest.importorskip("pymetis")
    data = graph_of(8, [(i, (i + 1) % 8) for i in range(8)])
    cheap = (data.edge_index.sum(0) % 8 == 7).long()  # 3-4, 7-0
    data.cost = 1000 - 999 * cheap
    assert below(MetisHierarchy(2, weight="cost")(data), 1) == [4, 4]
    tree = MetisHierarchy(2, weight="cost", add_links=True)(data)
    assert tree.tree_link_weight[tree.tree_level[tree.tree_link[0]] == 1].tolist() == [2, 2]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 9, 100])
def test_any_number_of_parts(parts):
    pytest.importorskip("pymetis")
    for data in (graph_of(5, []), graph_of(1, []), two_triangles(), graph_of(3, [(0, 0)])):
        assert MetisHierarchy(parts)(data).validate()


def test_errors():
    data = two_triangles()
    with pytest.raises(BuilderError, match="num_parts has the value 0"):
        MetisHierarchy([4, 0])
    data.edge_weight[0] = 0.5
    with pytest.raises(BuilderError, match=r"'edge_weight' has the value 0\.5.*whole numbers"):
        MetisHierarchy(2, weight="edge_weight")(data)
    with pytest.raises(BuilderError, match=r"edge_index holds nodes that are not 0\.\.1"):
        MetisHierarchy(2)(Data(num_nodes=2, edge_index=torch.tensor([[0], [5]])))


def test_without_packages(monkeypatch):
    monkeypatch.setattr(metis, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"'pymetis' or 'pyg_lib'.*pip install pymetis"):
        MetisHierarchy(2)(two_triangles())


def test_pyg_lib_is_asked_as_it_is_documented(monkeypatch):
    """A stand-in for pyg_lib, since it has no wheel everywhere."""
    asked = {}

    def partition(rowptr, col, num_partitions, node_weight=None, edge_weight=None, recursive=False):
        asked.update(rowptr=rowptr, col=col, nodes=node_weight, edges=edge_weight)
        return torch.arange(len(rowptr) - 1) * num_partitions // (len(rowptr) - 1)

    fake = ModuleType("pyg_lib")
    fake.partition = SimpleNamespace(metis=partition)
    monkeypatch.setitem(sys.modules, "pyg_lib", fake)
    monkeypatch.setattr(metis, "find_spec", lambda name: name == "pyg_lib" or None)
    tree = MetisHierarchy(2)(graph_of(4, [(0, 1), (1, 2), (2, 3)]))
    assert tree.tree_index.tolist() == [[4, 4, 5, 5, 6, 6], [0, 1, 2, 3, 4, 5]]
    assert asked["rowptr"].tolist() == [0, 1, 3, 5, 6]
    assert asked["col"].tolist() == [1, 0, 2, 1, 3, 2]
    assert asked["nodes"].tolist() == [1] * 4
    with pytest.raises(UnsupportedError, match="seed=0 is given, but pyg_lib takes none"):
        MetisHierarchy(2, seed=0)(two_triangles())
    assert asked["edges"].tolist() == [2] * 6  # both directions of each are one edge of weight 2
