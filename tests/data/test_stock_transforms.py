"""Stock PyG transforms on a tree: each works with the hierarchy intact, or refuses."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.transforms as T
from data_cases import assert_same, page_tree
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import HSAError, ShapeError, TreeError, UnsupportedError
from hsa_geo.nn import HSAConv

HIERARCHY = ("tree_index", "tree_level", "tree_domain", "tree_pos", "tree_name")
OF_TREE = (*HIERARCHY, "text_x", "text_index", "form_node", "y", "num_nodes")


def graph_tree() -> SignalTree:
    """A tree with a graph among its leaves, one of them isolated, and an edge of its own."""
    tree = page_tree()
    generator = torch.Generator().manual_seed(0)
    tree.update(
        {
            "x": torch.rand(7, 3, generator=generator),
            "pos": torch.rand(7, 3, generator=generator),
            "edge_index": torch.tensor([[0, 1, 2, 0, 4, 4], [1, 2, 0, 0, 5, 5]]),
            "edge_attr": torch.rand(6, 2, generator=generator),
            "leaf_y": torch.tensor([0, 1, 0, 1, 0, 1, 1]),
            "leaf_id": torch.arange(7),
            "y": torch.tensor([[1, 0, 1]]),
            "text_x": torch.arange(7.0).unsqueeze(1),  # as many rows as leaves
            "text_index": torch.tensor([0, 0, 3, 6, 2, 1, 1]),
            "form_node": torch.tensor([8, 7, 10]),
        }
    )
    assert tree.validate()
    return tree


def without(*keys):
    def make():
        tree = graph_tree()
        for key in keys:
            del tree[key]
        return tree

    return make


def with_training():
    tree = graph_tree()
    tree.update({"train_mask": torch.arange(7) < 5, "y": tree.leaf_y})
    return tree


plain = without("edge_attr")
single = lambda: SignalTree.from_parents(  # noqa: E731
    [-1], x=torch.rand(1, 3), edge_index=torch.zeros(2, 1).long(), edge_attr=torch.rand(1, 2)
)
WORKS = {
    "AddLaplacianEigenvectorPE": (T.AddLaplacianEigenvectorPE(2), graph_tree),
    "AddRandomWalkPE": (T.AddRandomWalkPE(3), graph_tree),
    "AddRemainingSelfLoops": (T.AddRemainingSelfLoops("edge_attr"), graph_tree),
    "AddSelfLoops": (T.AddSelfLoops("edge_attr"), graph_tree),
    "AddSelfLoops, one leaf": (T.AddSelfLoops("edge_attr"), single),
    "Cartesian": (T.Cartesian(), graph_tree),
    "Center": (T.Center(), graph_tree),
    "Compose": (T.Compose([T.ToUndirected(), T.NormalizeFeatures()]), graph_tree),
    "Constant": (T.Constant(), graph_tree),
    "Delaunay": (T.Delaunay(), graph_tree),
    "Distance": (T.Distance(), graph_tree),
    "GCNNorm": (T.GCNNorm(), plain),
    "KNNGraph": (T.KNNGraph(2), graph_tree),
    "LaplacianLambdaMax": (T.LaplacianLambdaMax(), plain),
    "LinearTransformation": (T.LinearTransformation(torch.eye(3)), graph_tree),
    "LocalCartesian": (T.LocalCartesian(), graph_tree),
    "LocalDegreeProfile": (T.LocalDegreeProfile(), graph_tree),
    "MaskToIndex": (T.MaskToIndex(), with_training),
    "NodePropertySplit": (T.NodePropertySplit("popularity", [0.3, 0.1, 0.1, 0.3, 0.2]), graph_tree),
    "NormalizeFeatures": (T.NormalizeFeatures(), graph_tree),
    "NormalizeRotation": (T.NormalizeRotation(), graph_tree),
    "NormalizeScale": (T.NormalizeScale(), graph_tree),
    "OneHotDegree": (T.OneHotDegree(9), graph_tree),
    "RadiusGraph": (T.RadiusGraph(0.5), graph_tree),
    "RandomFlip": (T.RandomFlip(0), graph_tree),
    "RandomJitter": (T.RandomJitter(0.1), graph_tree),
    "RandomLinkSplit": (T.RandomLinkSplit(0.3, 0.3), graph_tree),
    "RandomNodeSplit": (T.RandomNodeSplit(num_val=1, num_test=1), graph_tree),
    "RandomRotate": (T.RandomRotate(10), graph_tree),
    "RandomScale": (T.RandomScale((0.9, 1.1)), graph_tree),
    "RandomShear": (T.RandomShear(0.1), graph_tree),
    "RemoveDuplicatedEdges": (T.RemoveDuplicatedEdges("edge_attr"), graph_tree),
    "RemoveSelfLoops": (T.RemoveSelfLoops("edge_attr"), graph_tree),
    "RemoveTrainingClasses": (T.RemoveTrainingClasses([1]), with_training),
    "SIGN": (T.SIGN(2), plain),
    "SVDFeatureReduction": (T.SVDFeatureReduction(2), graph_tree),
    "Spherical": (T.Spherical(), graph_tree),
    "TargetIndegree": (T.TargetIndegree(), graph_tree),
    "ToDense": (T.ToDense(), graph_tree),
    "ToDevice": (T.ToDevice("cpu"), graph_tree),
    "ToSparseTensor": (T.ToSparseTensor(), plain),
    "ToUndirected": (T.ToUndirected(), graph_tree),
    "TwoHop": (T.TwoHop(), graph_tree),
    "ToUndirected, one leaf": (T.ToUndirected(), single),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("name", WORKS)
def test_works_with_the_hierarchy_intact(name):
    transform, make = WORKS[name]
    tree = make()
    before = tree.clone()
    try:
        result = transform(tree)
    except ImportError as error:
        pytest.skip(str(error))
    assert_same(tree, before)  # transforms copy
    for out in result if isinstance(result, tuple) else (result,):
        assert type(out) is SignalTree
        assert out.validate()
        for key in set(OF_TREE) & set(before.keys()):
            assert_same(out.to_dict()[key], before.to_dict()[key], key)
        if "leaf_id" in out:
            assert out.leaf_id.tolist() == list(range(7))
        if "edge_attr" in out and out.edge_index is not None:
            assert len(out.edge_attr) == out.edge_index.size(1)
        back = Batch.from_data_list([out, out]).to_data_list() if "adj_t" not in out else []
        assert all(torch.equal(b.tree_index, before.tree_index) for b in back)


SELECTS = {
    "LargestConnectedComponents": (T.LargestConnectedComponents(), [0, 1, 2]),
    "two LargestConnectedComponents": (T.LargestConnectedComponents(2), [0, 1, 2, 4, 5]),
}


@pytest.mark.parametrize("name", SELECTS)
def test_selecting_leaves_restricts_the_tree(name):
    transform, rows = SELECTS[name]
    tree = graph_tree()
    tree.form_node = torch.tensor([7, 10])
    assert_same(transform(tree), tree.restrict(rows))


def as_many_edges_as_leaves():
    tree = graph_tree()
    tree.edge_index = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 0]])
    tree.edge_attr = torch.rand(7, 3)
    return tree


REFUSES = {
    "FixedPoints": (T.FixedPoints(5), graph_tree),
    "FixedPoints, same number": (T.FixedPoints(7), graph_tree),  # would shuffle the leaves
    "FixedPoints, permuted": (T.FixedPoints(7, replace=False), graph_tree),
    "LineGraph": (T.LineGraph(), graph_tree),
    "LineGraph, same number": (T.LineGraph(force_directed=True), as_many_edges_as_leaves),
    "Pad": (T.Pad(20, 30), graph_tree),
    "RemoveIsolatedNodes": (T.RemoveIsolatedNodes(), graph_tree),
    "VirtualNode": (T.VirtualNode(), graph_tree),
}


@pytest.mark.parametrize("name", REFUSES)
def test_refuses_what_changes_the_leaves(name):
    transform, make = REFUSES[name]
    tree = make()
    before = tree.clone()
    with pytest.raises(TreeError, match=r"num_nodes=\d+ was assigned.*restrict"):
        transform(tree)
    assert_same(tree, before)


def test_a_pruned_form_is_named():
    tree = graph_tree()
    tree.form_node = torch.tensor([9])
    with pytest.raises(TreeError, match=r"'form_node' refers to node 9 \('end'\)"):
        T.LargestConnectedComponents()(tree)


PADS = {"ToDense": (T.ToDense(12), graph_tree), "HalfHop": (T.HalfHop(), plain)}


@pytest.mark.parametrize("name", PADS)
def test_added_rows_are_found(name):
    """These transforms say nothing of the number of nodes; validate and HSAConv do."""
    transform, make = PADS[name]
    tree = transform(make())
    with pytest.raises(ShapeError, match=r"'x' has shape \[\d+, 3\], but there are 7 leaves"):
        tree.validate()
    with pytest.raises(HSAError):
        HSAConv(3, 4)(tree.x, tree)


def test_index_to_mask_needs_names():
    tree = graph_tree()
    tree.train_index = torch.tensor([1, 4])
    with pytest.raises(IndexError):  # it would take tree_index for leaf rows
        T.IndexToMask()(tree)
    out = T.IndexToMask("train_index")(tree)
    assert out.validate()
    assert out.train_mask.nonzero().flatten().tolist() == [1, 4]


def test_on_a_batch():
    batch = Batch.from_data_list([graph_tree(), graph_tree()])
    for transform in (T.ToUndirected(), T.AddSelfLoops("edge_attr"), T.NormalizeFeatures()):
        out = transform(batch)
        assert out.validate()
        assert torch.equal(out.tree_index, batch.tree_index)
    with pytest.raises(TreeError):
        T.VirtualNode()(batch)
    with pytest.raises(UnsupportedError, match="before batching"):
        T.LargestConnectedComponents()(batch)
