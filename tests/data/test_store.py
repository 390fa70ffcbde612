from __future__ import annotations

import pytest
import torch
from data_cases import PAGE, full_tree, page_tree
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.data.store import Kind, kind_of, leaf_count
from hsa_geo.errors import MixedKeysError, ShapeError, TreeError, UnsupportedError

IDS = torch.tensor([0])


@pytest.mark.parametrize(
    ("key", "beside", "value", "kind"),
    [
        ("tree_index", [], IDS, Kind.TREE_EDGES),
        ("tree_level", [], IDS, Kind.TREE_NODES),
        ("tree_domain", [], IDS, Kind.TREE_NODES),
        ("tree_pos", [], torch.zeros(1, 2), Kind.TREE_NODES),
        ("tree_pe", [], torch.zeros(1, 2), Kind.TREE_NODES),
        ("tree_name", [], ["a"], Kind.TREE_NODES),
        ("form_node", [], IDS, Kind.NODE_IDS),
        ("form_node", [], torch.tensor([0.5]), Kind.OTHER),
        ("form_label", ["form_node"], IDS, Kind.NODE_ROWS),
        ("form_label", [], IDS, Kind.OTHER),
        ("text_index", ["text_x"], IDS, Kind.LEAF_ROWS),
        ("text_index", [], IDS, Kind.OTHER),
        ("text_index", ["text_x"], torch.tensor([0.5]), Kind.OTHER),
        ("text_x", ["text_index"], torch.zeros(1, 2), Kind.MODALITY),
        ("text_x", [], torch.zeros(1, 2), Kind.OTHER),
        ("image_index", [], torch.tensor([0.5]), Kind.OTHER),
        ("x", ["index"], IDS, Kind.OTHER),
        ("edge_index", [], IDS, Kind.GRAPH_EDGES),
        ("near_edge_index", [], IDS, Kind.GRAPH_EDGES),
        ("edge_label_index", [], IDS, Kind.GRAPH_EDGES),
        ("edge_x", ["edge_index"], torch.zeros(1, 2), Kind.OTHER),
        ("edge_attr", [], torch.zeros(1, 2), Kind.OTHER),
        ("ledger_index", [], IDS, Kind.OTHER),
        ("edge_score_index", [], torch.tensor([0.5]), Kind.OTHER),
        ("tree_x", ["tree_index"], torch.zeros(1, 2), Kind.OTHER),
    ],
)
def test_kinds(key, beside, value, kind):
    assert kind_of(key, [key, *beside], value) is kind


def test_features_beside_a_float_index_are_ordinary():
    values = {"image_x": torch.rand(2, 3), "image_index": torch.rand(2)}
    assert kind_of("image_x", values, values["image_x"]) is Kind.OTHER
    values["image_index"] = torch.tensor([0, 1])
    assert kind_of("image_x", values, values["image_x"]) is Kind.MODALITY


def test_nothing_of_the_tree_counts_as_node_or_edge_attribute():
    # as many leaves as tree edges elsewhere, modality rows and leaf edges: all sizes tie
    tree = SignalTree.from_parents(
        [3, 3, 3, -1],
        x=torch.rand(3, 2),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]),
        edge_attr=torch.rand(3, 1),
        text_x=torch.rand(3, 2),
        text_index=torch.tensor([2, 0, 1]),
        form_node=torch.tensor([0, 1, 3]),
        leaf_y=torch.tensor([1, 2, 3]),
    )
    assert {key for key, _ in tree if tree.is_node_attr(key)} == {"x", "leaf_y"}
    assert {key for key, _ in tree if tree.is_edge_attr(key)} >= {"edge_index", "edge_attr"}
    of_tree = {"tree_index", "tree_level", "tree_pos", "text_x", "text_index", "form_node"}
    assert not any(tree.is_edge_attr(key) for key in of_tree)


def test_single_leaf_and_single_edge_tie():
    tree = SignalTree.from_parents(
        [-1], x=torch.rand(1, 2), edge_index=torch.tensor([[0], [0]]), edge_attr=torch.rand(1, 1)
    )
    assert not tree.is_node_attr("tree_level")
    assert not tree.is_edge_attr("tree_index")
    assert tree.is_node_attr("x")


def test_leaf_count():
    assert leaf_count(torch.tensor([[2, 2], [0, 1]]), 3) == 2
    assert leaf_count(torch.zeros(2, 0, dtype=torch.int64), 1) == 1
    for bad in (-1, 3):
        with pytest.raises(TreeError, match=f"holds node {bad}"):
            leaf_count(torch.tensor([[2, bad], [0, 1]]), 3)


def test_num_nodes_belongs_to_the_hierarchy():
    tree = page_tree()
    for number in (tree.num_leaves, 3, 99, None):
        with pytest.raises(TreeError, match=f"num_nodes={number} was assigned.*7 leaves"):
            tree.num_nodes = number
    with pytest.raises(TreeError):
        tree["num_nodes"] = 3
    assert tree.num_nodes == 7
    assert tree.clone().num_nodes == 7


def test_sorting_by_time_would_reorder_leaves():
    tree = page_tree()
    tree.time = torch.arange(7)
    assert tree.sort_by_time() is not None
    tree.time = tree.time.flip(0)
    with pytest.raises(UnsupportedError, match="sort"):
        tree.sort_by_time()


def test_snapshots_restrict_the_tree():
    tree = page_tree(x=torch.rand(7, 2))
    tree.time = torch.tensor([3, 0, 5, 1, 2, 2, 9])
    early = tree.snapshot(1, 3)
    assert early.validate()
    assert early.time.tolist() == [3, 1, 2, 2]
    assert early.tree_name == ["to", "b", "logo", "foot", "list", "head", "page"]
    assert tree.up_to(2).time.tolist() == [0, 1, 2, 2]
    assert tree.num_leaves == 7
    assert page_tree().up_to(3).num_leaves == 7  # no time


@pytest.mark.parametrize("first", [0, 1])
def test_mixed_keys_are_refused_in_either_order(first):
    pair = [full_tree(0), full_tree(1)]
    del pair[first]["text_x"]
    with pytest.raises(MixedKeysError, match="text_x"):
        Batch.from_data_list(pair)
    with pytest.raises(KeyError):  # what a caller would expect
        Batch.from_data_list(pair)


@pytest.mark.parametrize("first", [0, 1])
def test_a_third_tree_with_one_more_key_is_refused(first):
    three = [full_tree(i) for i in range(3)]
    three[-first]["extra"] = torch.rand(1)
    with pytest.raises(MixedKeysError, match=r"trees 0 and [12].*'extra'"):
        Batch.from_data_list(three)


def test_a_missing_attribute_is_named():
    with pytest.raises(MixedKeysError, match="no attribute 'z'"):
        page_tree()["z"]
    with pytest.raises(AttributeError):
        _ = page_tree().z
    assert page_tree().x is None  # as PyG has it
    assert not hasattr(page_tree(), "z")


def test_small_integers_are_refused_before_they_overflow():
    trees = [page_tree() for _ in range(40)]
    for tree in trees:
        tree.form_node = torch.tensor([len(PAGE) - 1], dtype=torch.uint8)
    with pytest.raises(ShapeError, match=r"form_node.*uint8"):
        Batch.from_data_list(trees)


@pytest.mark.parametrize("key", ["tree_span", "tree_pe", "tree_name"])
def test_rows_that_are_missing_do_not_batch(key):
    """Batched, the rows of the next tree would take their places."""
    full = SignalTree.from_parents(
        [2, 2, -1],
        name=["a", "b", "c"],
        tree_span=torch.zeros(3, 2).long(),
        tree_pe=torch.ones(3, 1),
    )
    broken = full.clone()
    broken[key] = full[key][:0]
    with pytest.raises(ShapeError, match=f"'{key}' of tree 1 has 0 rows for 3 tree nodes"):
        Batch.from_data_list([full, broken])
    batch = Batch.from_data_list([full, full])
    assert Batch.from_data_list([batch, batch]).num_graphs == 2
