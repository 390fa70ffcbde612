"""A hierarchy laid over a graph keeps the graph; taken off, it gives the graph back."""

import copy
import pickle

import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given, settings
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from transform_cases import (
    HIERARCHIES,
    assert_batch_is_singles,
    assert_same_data,
    graph_of,
    graphs,
    two_triangles,
)

import hsa_geo.transforms as transforms
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, ShapeError, TreeError, UnsupportedError
from hsa_geo.transforms import DropHierarchy, attach_hierarchy


@pytest.mark.parametrize("name", HIERARCHIES)
@settings(max_examples=12, deadline=None)
@given(graph=graphs(), other=graphs())
def test_every_hierarchy_keeps_everything_else(name, graph, other):
    transform, trees = HIERARCHIES[name], []
    for data in (graph, other):
        before = copy.copy(data)
        tree = transform(data)
        assert tree.validate()
        assert_same_data(data, before)
        assert list(tree.to_dict())[1 : 1 + len(data.to_dict())] == list(data.to_dict())
        for key, value in data.to_dict().items():
            assert tree[key] is value, key
        back = DropHierarchy()(tree)
        assert type(back) is Data
        assert back.num_nodes == data.num_nodes
        assert_same_data(back, data, skip=("num_nodes",))
        assert_same_data(transform(data), tree)  # the same again
        trees.append(tree)
    assert_batch_is_singles(trees)


@pytest.mark.parametrize("name", HIERARCHIES)
def test_hierarchies_pickle_compose_and_print(name):
    transform = HIERARCHIES[name]
    tree = transform(two_triangles())
    assert_same_data(pickle.loads(pickle.dumps(transform))(two_triangles()), tree)
    composed = T.Compose([T.Constant(), transform, T.NormalizeFeatures()])
    assert composed(two_triangles()).x.shape == (7, 4)
    assert repr(transform).startswith(type(transform).__name__ + "(")


@pytest.mark.parametrize("name", HIERARCHIES)
def test_what_has_no_place_for_a_hierarchy_is_refused(name):
    transform = HIERARCHIES[name]
    data = two_triangles()
    tree = transform(data)
    with pytest.raises(UnsupportedError, match=r"has a hierarchy already: .*DropHierarchy"):
        transform(tree)
    assert_same_data(transform(DropHierarchy()(tree)), tree)
    with pytest.raises(UnsupportedError, match="DataBatch cannot be given one hierarchy"):
        transform(Batch.from_data_list([data, data]))
    hetero = HeteroData()
    hetero["a"].x = torch.rand(2, 1)
    with pytest.raises(UnsupportedError, match=r"HeteroData .*to_homogeneous"):
        transform(hetero)
    with pytest.raises(UnsupportedError, match="TemporalData"):
        transform(TemporalData(src=torch.tensor([0]), dst=torch.tensor([0]), t=torch.tensor([0])))
    empty = graph_of(1, [])
    empty.update({key: value[:0] for key, value in empty.to_dict().items() if key in "x pos"})
    empty.num_nodes = 0
    with pytest.raises(BuilderError, match="num_nodes=0, but a tree needs at least one leaf"):
        transform(empty)


class OwnBatching(Data):
    def __inc__(self, key, value, *args):
        return 5 if key == "place" else super().__inc__(key, value, *args)


class OnlyMethods(Data):
    def area(self):
        return 1


def test_subclasses():
    assert attach_hierarchy(OnlyMethods(num_nodes=2), [2, 2, -1]).num_leaves == 2
    with pytest.raises(UnsupportedError, match=r"OwnBatching batches in a way of its own"):
        attach_hierarchy(OwnBatching(num_nodes=2), [2, 2, -1])


@pytest.mark.parametrize(
    "key", ["tree_index", "tree_pos", "tree_name", "tree_span", "tree_link", "tree_link_kind"]
)
def test_names_of_the_hierarchy_are_refused(key):
    with pytest.raises(BuilderError, match=f"'{key}', which is a name of the hierarchy's own"):
        attach_hierarchy(Data(num_nodes=2, **{key: torch.zeros(2)}), [2, 2, -1])


def test_names_that_mean_something_mean_it():
    data = Data(
        num_nodes=2,
        root_node=torch.tensor([1]),
        leaf_weight=torch.tensor([1, 3]),
        word_x=torch.rand(3, 2),
        word_index=torch.tensor([0, 0, 1]),
    )
    tree = attach_hierarchy(data, [2, 2, -1])
    batch = Batch.from_data_list([tree, tree])
    assert batch.root_node.tolist() == [1, 1 + 3]
    assert batch.word_index.tolist() == [0, 0, 1, 2, 2, 3]
    assert tree.plan.mass.tolist() == [4, 1, 3]


@pytest.mark.parametrize(
    "attrs",
    [
        {"root_node": torch.tensor([9])},
        {"train_node": torch.tensor([0]), "train_mask": torch.tensor([True, False])},
        {"word_x": torch.rand(3, 2), "word_index": torch.tensor([0, 1, 2])},
        {"leaf_weight": torch.tensor([0.5, 0.5])},
        {"x": torch.rand(3, 1)},
        {"batch": torch.tensor([0, 1])},
    ],
)
def test_names_that_cannot_mean_it_are_refused(attrs):
    with pytest.raises(BuilderError, match=r"do not fit a signal tree \(.*rename"):
        attach_hierarchy(Data(num_nodes=2, **attrs), [2, 2, -1])


def test_leaves_must_be_nodes():
    with pytest.raises(ShapeError, match="the hierarchy has 2 leaves but the graph 3 nodes"):
        attach_hierarchy(Data(num_nodes=3), [2, 2, -1])
    with pytest.raises(TreeError, match="its own parent"):
        attach_hierarchy(Data(num_nodes=1), [0])


def test_hierarchy_arguments_pass_through():
    tree = attach_hierarchy(
        Data(x=torch.arange(4.0)[:, None]),
        [4, 5, 4, 5, 6, 6, -1],
        domain=Domain.GRAPH,
        name=list("abcdefg"),
        tree_pe=torch.arange(7.0)[:, None],
        tree_link=torch.tensor([[4, 5], [5, 4]]),
    )
    assert tree.x.flatten().tolist() == [0, 1, 2, 3]  # rows stay, though 0 2 and 1 3 are siblings
    assert tree.tree_name == list("abcdefg")
    assert tree.tree_pe.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert tree.tree_link.tolist() == [[4, 5], [5, 4]]
    assert tree.plan.leaf_order.tolist() == [0, 2, 1, 3]


def test_sparse_adjacency_stays():
    data = T.ToSparseTensor()(two_triangles())
    tree = attach_hierarchy(data, [7] * 7 + [-1])
    assert tree.adj_t is data.adj_t
    with pytest.raises(BuilderError, match="no edge_index: give the graph its hierarchy before"):
        HIERARCHIES["communities"](data)


def test_drop_refuses_to_lose_references():
    tree: SignalTree = attach_hierarchy(Data(num_nodes=2, a_node=torch.tensor([0])), [2, 2, -1])
    assert DropHierarchy()(tree).a_node.tolist() == [0]
    tree.a_node = torch.tensor([1, 2])
    with pytest.raises(TreeError, match="'a_node' refers to node 2, an inner node"):
        DropHierarchy()(tree)


def test_drop_keeps_the_number_of_nodes():
    assert DropHierarchy()(attach_hierarchy(Data(num_nodes=3), [3, 3, 3, -1])).num_nodes == 3


def test_drop_takes_one_tree():
    with pytest.raises(UnsupportedError, match="DropHierarchy takes a SignalTree, not a Data"):
        DropHierarchy()(Data(num_nodes=1))
    tree = SignalTree.from_parents([-1])
    with pytest.raises(UnsupportedError, match="one tree at a time"):
        DropHierarchy()(Batch.from_data_list([tree, tree]))


def test_all_names_are_there():
    for name in transforms.__all__:
        assert getattr(transforms, name).__doc__
