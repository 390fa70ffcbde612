from __future__ import annotations

import re

import pytest
import torch
from data_cases import NAMES, PAGE, full_tree, full_trees, page_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.validation import validate
from hsa_geo.errors import DomainError, HSAError, HSAWarning, ShapeError, TreeError
from hsa_geo.testing import SHAPES, random_parents, random_tree, trees

# Ids of page_tree: leaves 0..6, then list 7, head 8, end 9, page 10


@given(trees(max_nodes=24))
@settings(max_examples=50, deadline=None)
def test_trees_are_valid(tree):
    assert tree.validate()


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_and_batches_of_every_shape_are_valid(shape):
    members = [random_tree(seed, shape=shape) for seed in range(6)]
    assert all(validate(tree) for tree in members)
    assert validate(Batch.from_data_list(members))


def test_full_trees_are_valid():
    assert all(tree.validate() for tree in full_trees())
    assert Batch.from_data_list(full_trees()).validate()


def edit(key, *index_and_value):
    """A change of one field: all of it, or one entry."""

    def change(tree):
        *index, value = index_and_value
        if not index:
            tree[key] = value
            return
        tree[key] = tree[key].clone()
        tree[key][tuple(index)] = value

    return change


def drop(key):
    def change(tree):
        del tree[key]

    return change


def swap(key, a, b, dim=0):
    """Exchange two rows or columns."""

    def change(tree):
        order = torch.arange(tree[key].size(dim))
        order[a], order[b] = b, a
        tree[key] = tree[key].index_select(dim, order)

    return change


def relabel(new_id):
    """The same tree with other ids."""

    def change(tree):
        new = torch.tensor(new_id)
        tree.tree_index = new[tree.tree_index]
        columns = (tree.tree_index[0] * 100 + tree.tree_index[1]).argsort()
        tree.tree_index = tree.tree_index[:, columns]
        for key in ("tree_level", "tree_domain", "tree_pos"):
            tree[key] = tree[key][new.argsort()]

    return change


BROKEN = {
    "no index": (drop("tree_index"), TreeError, "no 'tree_index'"),
    "no level": (drop("tree_level"), TreeError, "no 'tree_level'"),
    "no domain": (drop("tree_domain"), TreeError, "no 'tree_domain'"),
    "no pos": (drop("tree_pos"), TreeError, "no 'tree_pos'"),
    "no num_nodes": (drop("num_nodes"), TreeError, "num_nodes is not set.*7 leaves"),
    "index list": (edit("tree_index", [[1], [0]]), ShapeError, "'tree_index' is a list"),
    "index shape": (
        edit("tree_index", torch.zeros(3, 10).long()),
        ShapeError,
        r"'tree_index' has shape \[3, 10\]",
    ),
    "index int32": (
        lambda t: edit("tree_index", t.tree_index.int())(t),
        ShapeError,
        r"int32.*int64 \[2, M-1\]",
    ),
    "level shape": (edit("tree_level", torch.zeros(11, 1).long()), ShapeError, r"\[11, 1\]"),
    "level float": (lambda t: edit("tree_level", t.tree_level.float())(t), ShapeError, "float32"),
    "domain rows": (edit("tree_domain", torch.zeros(4).long()), ShapeError, "4 rows.* 11"),
    "pos double": (lambda t: edit("tree_pos", t.tree_pos.double())(t), ShapeError, "float64"),
    "pos width": (edit("tree_pos", torch.zeros(11, 3)), ShapeError, r"\[11, 3\].*\[M, 2\]"),
    "device": (edit("tree_pos", torch.zeros(11, 2, device="meta")), ShapeError, "is on meta"),
    "x device": (edit("x", torch.zeros(7, 2, device="meta")), ShapeError, "'x' is on meta"),
    "root edge": (edit("tree_index", 0, 0, -1), TreeError, "holds node -1"),
    "id too large": (edit("tree_index", 1, 0, 11), TreeError, "holds node 11.*11 nodes"),
    "own parent": (edit("tree_index", 0, 9, 9), TreeError, "node 9 is its own parent"),
    "two parents": (edit("tree_index", 1, 0, 4), TreeError, "node 4 has the parents"),
    "two roots": (lambda t: edit("tree_index", t.tree_index[:, :-1])(t), TreeError, "all roots"),
    "cycle": (edit("tree_index", 0, 5, 7), TreeError, "node 7 is its own parent|level"),
    "root level": (edit("tree_level", 10, 1), TreeError, "node 10 has level 1 but is a root"),
    "level": (edit("tree_level", 0, 7), TreeError, "node 0 has level 7.*node 8, has level 1"),
    "columns": (swap("tree_index", 0, 5, dim=1), TreeError, "column of tree_index"),
    "deep last": (
        relabel([0, 1, 2, 3, 4, 5, 6, 9, 8, 7, 10]),
        TreeError,
        "node 9 is an inner node behind one of a higher level|node [89]",
    ),
    "same level": (
        swap("tree_index", 7, 9, dim=1),
        TreeError,
        "node 9 comes after a node of its level",
    ),
    "leaf last": (
        relabel([0, 1, 2, 3, 4, 5, 7, 6, 8, 9, 10]),
        TreeError,
        "node 7 is a leaf behind inner nodes",
    ),
    "root not last": (
        relabel([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 9]),
        TreeError,
        "the last node, 10, is not the root",
    ),
    "leaf domain": (edit("tree_domain", 3, 0), DomainError, "node 3 is a leaf but has domain 0"),
    "inner domain": (edit("tree_domain", 8, -1), DomainError, "node 8 has domain -1"),
    "unknown domain": (edit("tree_domain", 7, 9), DomainError, "node 7 has domain 9.*GRID2D=2"),
    "nan": (edit("tree_pos", 5, 1, float("nan")), ShapeError, "node 5 has position"),
    "inf": (edit("tree_pos", 9, 0, float("inf")), ShapeError, "node 9 has position"),
    "pe rows": (edit("tree_pe", torch.zeros(7, 3)), ShapeError, r"\[7, 3\].*\[11, K\]"),
    "span type": (edit("tree_span", torch.zeros(11, 2)), ShapeError, "float32 .*int64"),
    "span rows": (edit("tree_span", torch.zeros(7, 2).long()), ShapeError, r"\[7, 2\].*\[11, 2\]"),
    "link shape": (edit("tree_link", torch.zeros(3, 2).long()), ShapeError, r"\[2, E\]"),
    "link range": (edit("tree_link", torch.tensor([[0], [11]])), ShapeError, "holds 11"),
    "link apart": (edit("tree_link", torch.tensor([[0], [9]])), ShapeError, "nodes 0 and 9.*sibl"),
    "link of the root": (edit("tree_link", torch.tensor([[10], [10]])), ShapeError, "no siblings"),
    "link weight": (edit("tree_link_weight", torch.zeros(2)), ShapeError, "2 rows.*0 columns"),
    "pe type": (edit("tree_pe", "?"), ShapeError, "tree_pe.*str"),
    "names": (edit("tree_name", NAMES[:-1]), ShapeError, "10 names for 11 nodes"),
    "name type": (edit("tree_name", [*NAMES[:-1], 3]), ShapeError, "name of node 10 is 3"),
    "names type": (edit("tree_name", "abc"), ShapeError, "tree_name.*str"),
    "x rows": (edit("x", torch.rand(11, 2)), ShapeError, r"'x' has shape \[11, 2\].*7 leaves"),
    "x list": (edit("x", [1] * 7), ShapeError, "'x' has shape list"),
    "x scalar": (edit("x", torch.tensor(1.0)), ShapeError, "'x' has shape"),
    "pos rows": (edit("pos", torch.rand(6, 3)), ShapeError, "'pos'.*7 leaves"),
    "mask rows": (edit("train_mask", torch.ones(5).bool()), ShapeError, "'train_mask'"),
    "edge ends": (edit("edge_index", torch.tensor([[0], [7]])), ShapeError, "holds 7.*0..6"),
    "edge shape": (edit("edge_index", torch.zeros(1, 3).long()), ShapeError, r"\[2, E\]"),
    "edge dtype": (edit("edge_index", torch.zeros(2, 1).int()), ShapeError, "int32"),
    "edge rows": (
        lambda t: t.update({"edge_index": torch.zeros(2, 3).long(), "edge_attr": torch.rand(2, 1)}),
        ShapeError,
        "'edge_attr'.*3 edges",
    ),
    "label edges": (edit("edge_label_index", torch.tensor([[9], [0]])), ShapeError, "holds 9"),
    "modality rows": (
        lambda t: t.update({"text_x": torch.rand(3, 2), "text_index": torch.tensor([0, 1])}),
        ShapeError,
        "'text_x' has 3 rows",
    ),
    "modality leaf": (
        lambda t: t.update({"text_x": torch.rand(2, 2), "text_index": torch.tensor([0, 7])}),
        ShapeError,
        "'text_index' holds 7.*leaves are 0..6",
    ),
    "modality negative": (
        lambda t: t.update({"text_x": torch.rand(2, 2), "text_index": torch.tensor([0, -1])}),
        ShapeError,
        "'text_index' holds -1",
    ),
    "modality dtype": (
        lambda t: t.update({"text_x": torch.rand(1, 2), "text_index": torch.tensor([0]).int()}),
        ShapeError,
        "int32",
    ),
    "node id": (edit("form_node", torch.tensor([3, 11])), ShapeError, "holds 11.*0..10"),
    "node id int": (edit("form_node", 3), ShapeError, "'form_node' is a int"),
    "node id list": (edit("form_node", [3]), ShapeError, "'form_node' is a list"),
    "node id dtype": (edit("form_node", torch.tensor([3]).short()), ShapeError, "int16"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named(case):
    change, error, message = BROKEN[case]
    tree = page_tree(x=torch.rand(7, 2))
    change(tree)
    with pytest.raises(error, match=message) as caught:
        tree.validate()
    assert isinstance(caught.value, HSAError)
    assert str(caught.value).endswith(".")
    with pytest.warns(HSAWarning, match=re.escape(str(caught.value))):
        assert tree.validate(raise_on_error=False) is False


def test_leaves_may_be_in_any_order():
    tree = page_tree(x=torch.rand(7, 2))
    relabel([1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10])(tree)
    assert tree.validate()
    tree = page_tree()
    swap("tree_index", 0, 1, dim=1)(tree)
    assert tree.validate()
    assert tree.plan.leaf_order.tolist() != list(range(7))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999))
def test_trees_with_leaves_in_given_order_are_valid(seed):
    parents = random_parents(seed)
    generator = torch.Generator().manual_seed(seed)
    shuffle = torch.randperm(len(parents), generator=generator)
    parent = torch.tensor(parents)
    mixed = torch.full_like(parent, -1)
    has = parent >= 0
    mixed[shuffle[has]] = shuffle[parent[has]]
    n = int(SignalTree.from_parents(mixed).num_nodes)
    kept, order = SignalTree.from_parents(
        mixed, keep_leaf_order=True, return_order=True, x=torch.arange(n)
    )
    assert kept.validate()
    assert kept.x.tolist() == list(range(n))
    assert order[:n].tolist() == sorted(order[:n].tolist())
    _, by = SignalTree.from_parents(mixed, return_order=True)
    assert order[n:].tolist() == by[n:].tolist()
    assert order[kept.plan.leaf_order].tolist() == by[:n].tolist()
    assert kept.restrict(torch.arange(n)).tree_index.tolist() == kept.tree_index.tolist()


def test_empty_tree():
    tree = page_tree()
    tree.update(
        {
            "tree_index": torch.zeros(2, 0).long(),
            "tree_level": torch.zeros(0).long(),
            "tree_domain": torch.zeros(0).long(),
            "tree_pos": torch.zeros(0, 2),
        }
    )
    with pytest.raises(TreeError, match="at least one leaf"):
        tree.validate()
    with pytest.raises(TreeError):
        SignalTree().validate()


def test_nodes_of_a_batch_are_named_by_tree():
    def batch():
        return Batch.from_data_list([page_tree(x=torch.rand(7, 2)) for _ in range(3)])

    broken = batch()
    broken.tree_level[11 + 4] = 9
    with pytest.raises(TreeError, match=r"node 4 of tree 1 has level 9.*node 8 of tree 1"):
        broken.validate()
    broken = batch()
    broken.tree_domain[22 + 10] = 9
    with pytest.raises(DomainError, match="node 10 of tree 2 has domain 9"):
        broken.validate()
    broken = batch()
    broken.tree_index[0, 0] = 18  # a parent in the next tree
    with pytest.raises(TreeError, match="node 1 of tree 0 has a parent in another tree"):
        broken.validate()
    broken = batch()
    broken.tree_index[0, -1] = broken.tree_index[1, 0] = 0
    with pytest.raises(HSAError):
        broken.validate()
    broken = batch()
    broken.batch[6] = 1
    with pytest.raises(ShapeError, match="leaf 6 has batch 1, but it belongs to tree 0"):
        broken.validate()
    broken = batch()
    broken.tree_name[1] = ["a"]
    with pytest.raises(ShapeError, match="23 names for 33 nodes"):
        broken.validate()
    broken = batch()
    broken._slice_dict["tree_level"] = torch.tensor([0, 10, 22, 33])
    with pytest.raises(TreeError, match="tree 0 of the batch"):
        broken.validate()


def test_two_roots_in_one_item_of_a_batch():
    batch = Batch.from_data_list([full_tree(0), full_tree(1)])
    forest = SignalTree(**{k: v for k, v in batch.to_dict().items() if k[0] != "_"})
    assert forest.validate()  # it has a batch vector, as an item of a batch of batches does
    del forest["batch"]
    with pytest.raises(TreeError, match="all roots"):
        forest.validate()


def test_changing_what_may_change():
    tree = page_tree(x=torch.rand(7, 2))
    tree.tree_domain[7] = Domain.GRID2D
    tree.tree_pos[3] = 5
    tree.x = torch.rand(7, 9)
    tree.note = object()
    assert tree.validate()
    assert len(PAGE) == tree.num_tree_nodes
