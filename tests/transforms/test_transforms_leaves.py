"""DropLeaves and MaskLeaves."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from transform_cases import assert_same_data, conv, furnished, leaves_below

from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, ShapeError, TreeError, UnsupportedError
from hsa_geo.testing import random_tree, trees
from hsa_geo.transforms import DropLeaves, MaskLeaves


@settings(max_examples=50, deadline=None)
@given(tree=trees(max_nodes=14), seed=st.integers(0, 99), p=st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_some_leaves_go(tree, seed, p):
    tree = furnished(tree, seed)
    tree.leaf_id = torch.arange(tree.num_leaves)
    before = tree.clone()
    torch.manual_seed(seed)
    out = DropLeaves(p)(tree)
    assert_same_data(tree, before)
    assert out.validate()
    assert 1 <= out.num_leaves <= tree.num_leaves
    assert_same_data(out, tree.restrict(out.leaf_id))
    names = [tree.tree_name[node] for node in tree.form_node]
    assert [out.tree_name[node] for node in out.form_node] == names  # all that is referred to
    if p == 0:
        assert_same_data(out, tree)
    if p == 1:  # no more than needed: one below each of the two nodes
        assert out.num_leaves <= 2
    assert out.plan.mass[0] == out.num_leaves
    assert conv(3)(out.x, out).isfinite().all()


def test_how_many():
    tree = SignalTree.from_parents([2000] * 2000 + [-1])
    torch.manual_seed(0)
    sizes = [DropLeaves(0.25)(tree).num_leaves for _ in range(3)]
    assert len(set(sizes)) > 1
    assert all(1420 < size < 1580 for size in sizes)
    fixed = [DropLeaves(0.25, seed=5)(tree) for _ in range(2)]
    assert_same_data(*fixed)
    torch.manual_seed(0)
    assert DropLeaves(0.25)(tree).num_leaves == sizes[0]
    single = SignalTree.from_parents([-1])
    assert DropLeaves(1.0)(single).num_leaves == 1


def test_by_mask():
    tree = furnished(random_tree(5, max_leaves=9, shape="flat"))
    tree.goes = torch.arange(tree.num_leaves) % 2 == 1
    del tree.form_node, tree.form_label
    assert_same_data(DropLeaves(mask="goes")(tree), tree.restrict(~tree.goes))
    tree.goes = torch.ones(tree.num_leaves, dtype=torch.bool)
    with pytest.raises(ShapeError, match="no leaf is kept"):
        DropLeaves(mask="goes")(tree)
    with pytest.raises(BuilderError, match="mask='gone' is missing"):
        DropLeaves(mask="gone")(tree)
    with pytest.raises(BuilderError, match=r"mask='token' is torch.int64"):
        DropLeaves(mask="token")(tree)
    tree = SignalTree.from_parents([2, 2, -1], a_node=torch.tensor([1]))
    tree.goes = torch.tensor([False, True])
    with pytest.raises(TreeError, match="'a_node' refers to node 1"):
        DropLeaves(mask="goes")(tree)


@settings(max_examples=30, deadline=None)
@given(tree=trees(max_nodes=14), seed=st.integers(0, 99))
def test_masked_leaves(tree, seed):
    tree = furnished(tree, seed)
    before = tree.clone()
    torch.manual_seed(seed)
    transform = MaskLeaves(0.5, -1, attrs=["x", "token", "word_x"], store="masked")
    out = transform(tree)
    assert_same_data(tree, before)
    assert out.validate()
    hidden = out.masked
    assert (out.x[hidden] == -1).all()
    assert torch.equal(out.x[~hidden], tree.x[~hidden])
    assert torch.equal(out.token, tree.token.masked_fill(hidden, -1))
    words = hidden[tree.word_index]
    assert (out.word_x[words] == -1).all()
    assert torch.equal(out.word_x[~words], tree.word_x[~words])
    assert out.word_x.dtype == tree.word_x.dtype
    rest = ("x", "token", "word_x", "masked")
    assert_same_data(out, tree, skip=rest)
    assert leaves_below(out) == leaves_below(tree)
    Batch.from_data_list([out, out]).validate()


def test_values():
    tree = furnished(random_tree(3, max_leaves=6, shape="flat"))
    tree.hide = torch.arange(tree.num_leaves) == 0
    row = torch.tensor([1.0, 2.0, 3.0])
    out = MaskLeaves(value=row, mask="hide")(tree)
    assert out.x[0].tolist() == [1, 2, 3]
    assert torch.equal(out.x[1:], tree.x[1:])
    assert MaskLeaves(1.0, float("nan"))(tree).x.isnan().all()
    for value, attr in ((0.5, "token"), (torch.ones(2), "x"), (-1, "pixel_x")):
        tree.pixel_x = torch.zeros(1, 2, dtype=torch.uint8)
        tree.pixel_index = torch.tensor([0])
        with pytest.raises(ShapeError, match=f"does not fit '{attr}' of dtype"):
            MaskLeaves(1.0, value, attrs=attr)(tree)
    for attr in ("nothing", "y", "edge_attr", "tree_pos", "tree_name"):
        with pytest.raises(BuilderError, match=f"attrs names '{attr}', which holds no features"):
            MaskLeaves(attrs=attr)(tree)


@pytest.mark.parametrize("transform", [DropLeaves, MaskLeaves])
def test_arguments(transform):
    for p in (-0.1, 1.1, float("nan"), "half", [0.5]):
        with pytest.raises(BuilderError, match="is no probability"):
            transform(p)
    with pytest.raises(UnsupportedError, match="takes a SignalTree"):
        transform()(Data(x=torch.rand(1, 1)))
    assert repr(transform(0.5)).startswith(f"{transform.__name__}(p=0.5")
    assert repr(transform(mask="m")).startswith(f"{transform.__name__}(mask='m'")
    tree = furnished(random_tree(3, max_leaves=6, shape="flat"))
    again = pickle.loads(pickle.dumps(transform(0.5, seed=1)))
    assert_same_data(again(tree), transform(0.5, seed=1)(tree))
