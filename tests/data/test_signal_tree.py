from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from data_cases import NAMES, PAGE, Plain, assert_same, full_tree, full_trees, page_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.views import tree_text
from hsa_geo.errors import HSAError, MixedKeysError, ShapeError, TreeError, UnsupportedError
from hsa_geo.testing import trees

# Building ########################################################################################


def test_fields_of_the_page():
    tree, order = SignalTree.from_parents(
        PAGE, name=NAMES, pos=torch.arange(11), domain=Domain.SEQUENCE, return_order=True
    )
    assert tree.tree_name == [NAMES[i] for i in order]
    assert tree.tree_name == [NAMES[i] for i in (0, 1, 7, 10, 2, 6, 8, 5, 4, 9, 3)]
    assert tree.tree_pos[:, 0].tolist() == order.tolist()
    assert tree.tree_pos.dtype == torch.float32
    assert tree.tree_level.tolist() == [2, 3, 3, 3, 2, 1, 2, 2, 1, 1, 0]
    assert (tree.num_nodes, tree.num_leaves, tree.num_tree_nodes, tree.depth) == (7, 7, 11, 3)
    assert tree.validate()


@pytest.mark.parametrize(
    "parents",
    [
        [2, 2, -1],
        (2, 2, -1),
        np.array([2, 2, -1]),
        np.array([2, 2, -1], dtype=np.int8),
        torch.tensor([2, 2, -1]),
        torch.tensor([2, 2, -1], dtype=torch.int32),
    ],
)
def test_parents_of_any_integer_type(parents):
    tree = SignalTree.from_parents(parents)
    assert tree.tree_index.tolist() == [[2, 2], [0, 1]]
    assert tree.tree_index.dtype == torch.int64


@pytest.mark.parametrize(
    "parents", [[0.0, -1.0], [[-1]], ["a"], [None, -1], [True], [[1], [2, 3]], torch.tensor(-1)]
)
def test_parents_that_are_no_integers(parents):
    with pytest.raises(ShapeError, match="parent"):
        SignalTree.from_parents(parents)


@given(trees(max_nodes=24), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_attributes_move_with_their_nodes(tree, seed):
    """The same tree from ids in any order: what belongs to a node still does."""
    generator = torch.Generator().manual_seed(seed)
    m = tree.num_tree_nodes
    shuffle = torch.randperm(m, generator=generator)  # new id of each node
    parents = torch.full((m,), -1)
    parents[shuffle[tree.tree_index[1]]] = shuffle[tree.tree_index[0]]
    leaves = shuffle[: tree.num_leaves].argsort()  # canonical leaf of each input row
    row = leaves.argsort()
    moved, order = SignalTree.from_parents(
        parents,
        domain=torch.empty(m, dtype=torch.int64).index_copy(0, shuffle, tree.tree_domain),
        pos=torch.empty(m, 2).index_copy(0, shuffle, tree.tree_pos),
        name=[str(int(i)) for i in shuffle.argsort()],
        x=leaves.float(),
        tags=[str(int(i)) for i in leaves],
        word_x=leaves.clone(),
        word_index=torch.arange(len(leaves)),
        some_node=shuffle,
        edge_index=torch.stack([row, row.flip(0)]),
        tree_pe=torch.empty(m, 1).index_copy(0, shuffle, torch.arange(m).unsqueeze(1).float()),
        return_order=True,
    )
    moved.validate()
    old = [int(name) for name in moved.tree_name]  # canonical id before the shuffle
    assert [int(shuffle[i]) for i in old] == order.tolist()
    assert moved.tree_pe[:, 0].tolist() == old
    assert torch.equal(moved.tree_pos, tree.tree_pos[old])
    assert torch.equal(moved.tree_domain, tree.tree_domain[old])
    assert moved.x.tolist() == old[: tree.num_leaves]
    assert moved.tags == [str(i) for i in old[: tree.num_leaves]]
    assert [old[int(i)] for i in moved.word_index] == moved.word_x.tolist()
    assert [old[int(i)] for i in moved.some_node] == list(range(m))
    ends = moved.edge_index.tolist()
    assert [old[i] for i in ends[0]] == [old[i] for i in ends[1]][::-1] == list(range(len(row)))


def test_canonical_input_is_left_alone():
    x = torch.rand(4, 2)
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=x, y=torch.ones(4))
    assert tree.x is x


def test_arrays_become_tensors():
    tree = SignalTree.from_parents([2, 2, -1], x=np.ones((2, 3), dtype=np.float32), y=None)
    assert torch.equal(tree.x, torch.ones(2, 3))
    assert "y" not in tree


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"x": torch.rand(3, 2)}, r"'x' has shape \[3, 2\].*2 leaves"),
        ({"x": torch.tensor(1.0)}, r"'x' has shape \[\]"),
        ({"x": [[1.0], [2.0]]}, "'x' is a list"),
        ({"pos": [1, 2]}, r"pos has shape \[2, 1\] for 3 nodes"),
        ({"pos": [[1, 2, 3]] * 3}, r"\[3, 3\]"),
        ({"pos": [1, float("nan"), 0]}, "node 1 has position"),
        ({"pos": [[1], [1, 2], [3]]}, "pos is no array"),
        ({"pos": ["a", "b", "c"]}, "pos is no array"),
        ({"name": ["a"]}, "name has 1 entries for 3"),
        ({"tree_level": torch.zeros(3)}, "computed from parent"),
        ({"tree_pe": torch.zeros(2, 4)}, r"'tree_pe' must be a tensor \[3, K\]"),
        ({"form_node": torch.tensor([3])}, "'form_node' holds 3, but its node ids are 0..2"),
        ({"form_node": torch.tensor([-1])}, "'form_node' holds -1"),
        ({"form_node": 2}, "'form_node' is a int"),
        ({"form_node": [2]}, "'form_node' is a list"),
        ({"edge_index": torch.tensor([[0], [2]])}, "'edge_index' holds 2, but its leaf rows"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, "'edge_index' has dtype torch.float32"),
        ({"text_x": torch.rand(1, 2), "text_index": [0]}, "'text_index' is a list"),
        ({"text_x": torch.rand(1, 2), "text_index": torch.tensor([2])}, "'text_index' holds 2"),
        ({"x": np.array(["a", "b"])}, "dtype <U1"),
    ],
)
def test_attributes_that_do_not_fit(attrs, message):
    with pytest.raises(ShapeError, match=message):
        SignalTree.from_parents([2, 2, -1], **attrs)


def test_constructor_is_inert():
    assert (SignalTree().num_tree_nodes, SignalTree().depth) == (0, 0)
    tree = page_tree()
    again = SignalTree(
        x=torch.rand(7, 2), **{k: v for k, v in tree.to_dict().items() if k != "num_nodes"}
    )
    assert again.num_nodes == 7
    assert SignalTree.from_dict(again.to_dict()).validate()
    with pytest.raises(TreeError, match="no tree_index"):
        _ = SignalTree().plan
    with pytest.raises(TreeError, match="holds node -1"):  # a root stored with parent -1
        SignalTree(tree_index=torch.tensor([[2, 2, -1], [0, 1, 2]]), tree_level=torch.zeros(3))


def test_a_tree_without_x_knows_its_size():
    """num_nodes is never guessed from modality features, edges or tree tensors."""
    trees = [
        SignalTree.from_parents(
            [3, 3, 3, -1], word_x=torch.rand(7, 2), word_index=torch.tensor([0, 0, 1, 1, 2, 2, 2])
        )
        for _ in range(3)
    ]
    batch = Batch.from_data_list(trees)
    assert batch.num_nodes == 9
    assert batch.batch.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    assert batch.word_index.tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        2,
        3,
        3,
        4,
        4,
        5,
        5,
        5,
        6,
        6,
        7,
        7,
        8,
        8,
        8,
    ]


# Batching ########################################################################################


def test_increments_of_a_batch():
    members = full_trees(6)
    batch = Batch.from_data_list(members)
    nodes = np.cumsum([0] + [t.num_tree_nodes for t in members])
    leaves = np.cumsum([0] + [t.num_leaves for t in members])
    for key, offset in [
        ("tree_index", nodes),
        ("region_node", nodes),
        ("text_index", leaves),
        ("edge_index", leaves),
        ("tree_level", nodes * 0),
        ("weight_index", nodes * 0),
        ("leaf_y", nodes * 0),
        ("text_x", nodes * 0),
    ]:
        parts = [t[key] + int(offset[i]) for i, t in enumerate(members)]
        columns = key in ("tree_index", "edge_index")
        assert torch.equal(batch[key], torch.cat(parts, dim=1 if columns else 0)), key
    assert batch.tree_name == [t.tree_name for t in members]  # lengths differ
    assert batch.num_graphs == batch.plan.num_trees == 6
    assert batch.validate()


def numbers_as_tensors(tree: SignalTree) -> SignalTree:
    """What stock PyG makes of Python numbers when it batches them."""
    for key, value in tree.to_dict().items():
        if isinstance(value, (bool, int, float)) and key != "num_nodes":
            tree[key] = torch.tensor([value])
    return tree


def test_to_data_list_is_exact():
    members = full_trees(10)
    for original, back in zip(members, Batch.from_data_list(members).to_data_list()):
        assert type(back) is SignalTree
        assert_same(back, numbers_as_tensors(original))


@given(st.lists(trees(max_nodes=12), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_any_trees_batch_and_come_back(members):
    batch = Batch.from_data_list(members)
    assert batch.validate()
    for original, back in zip(members, batch.to_data_list()):
        assert_same(back, original)


def test_single_leaf_at_the_end_does_not_vanish():
    single = SignalTree.from_parents([-1], x=torch.ones(1, 2))
    page = SignalTree.from_parents(PAGE, x=torch.rand(7, 2))
    batch = Batch.from_data_list([page, single, single])
    assert global_mean_pool(batch.x, batch.batch, size=batch.num_graphs).shape == (3, 2)
    assert batch.plan.num_trees == 3
    assert batch.validate()
    assert batch.to_data_list()[2].tree_level.tolist() == [0]


def test_follow_batch_and_exclude_keys():
    members = full_trees(4)
    batch = Batch.from_data_list(members, follow_batch=["text_x", "tree_level"], exclude_keys=["y"])
    assert batch.text_x_batch.bincount(minlength=4).tolist() == [len(t.text_x) for t in members]
    assert batch.tree_level_ptr.diff().tolist() == [t.num_tree_nodes for t in members]
    assert "y" not in batch
    assert batch.validate()
    for back, original in zip(batch.to_data_list(), members):
        del original["y"]
        assert_same(back, numbers_as_tensors(original))


class Stored(InMemoryDataset):
    """Trees kept as PyG keeps them, without any increment."""

    def __init__(self, members: list[SignalTree]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(members)


def test_stock_in_memory_dataset():
    members = full_trees(5)
    stored = Stored(members)
    expected = [numbers_as_tensors(tree) for tree in members]
    assert_same(list(stored), expected)
    assert_same(list(Stored(list(stored))), expected)  # trees that were cut out before
    for batch in DataLoader(stored[[3, 1, 0]], batch_size=3):
        assert batch.validate()
        assert_same(batch.to_data_list(), [expected[i] for i in (3, 1, 0)])


def test_batch_of_no_trees():
    batch = Batch.from_data_list([SignalTree.from_parents([-1], x=torch.rand(1, 2))])
    empty = type(batch)(
        num_nodes=0,
        **{k: v[..., :0] if k == "tree_index" else v[:0] for k, v in batch if k != "num_nodes"},
    )
    assert empty.validate()
    assert empty.plan.num_trees == 0
    assert empty.as_graph().num_nodes == 0
    assert empty.depth == 0
    assert "trees" in tree_text(empty)
    assert len(empty.to_networkx()) == 0


def test_batch_of_batches():
    members = full_trees(5)
    inner = [
        Batch.from_data_list(members[:2], follow_batch=["text_x"]),
        Batch.from_data_list(members[2:], follow_batch=["text_x"]),
    ]
    outer = Batch.from_data_list(inner)
    flat = Batch.from_data_list(members, follow_batch=["text_x"])
    assert outer.validate()
    for key in ("tree_index", "text_index", "region_node", "edge_index", "batch", "text_x_batch"):
        assert torch.equal(outer[key], flat[key]), key
    assert outer.plan.num_trees == 5


def test_stock_loader_with_workers():
    members = full_trees(9)
    loader = DataLoader(members, batch_size=4, num_workers=2, follow_batch=["x"])
    seen = [tree for batch in loader for tree in batch.to_data_list()]
    for back, original in zip(seen, members):
        assert_same(back, numbers_as_tensors(original))
    assert len(seen) == 9


def test_error_of_a_worker_keeps_its_type():
    odd = full_tree(1)
    del odd["url"]
    with pytest.raises(MixedKeysError, match="url"):
        list(DataLoader([full_tree(0), odd], batch_size=2, num_workers=1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a GPU")
def test_pinned_memory():
    tree = full_tree(3)
    _ = tree.plan
    pinned = tree.pin_memory()
    assert pinned.x.is_pinned()
    assert pinned.plan.slot_bottom.is_pinned()
    loader = DataLoader(full_trees(4), batch_size=2, pin_memory=True)
    assert all(batch.x.is_pinned() and batch.validate() for batch in loader)


def test_concat_is_refused():
    with pytest.raises(UnsupportedError, match=r"use Batch\.from_data_list"):
        page_tree().concat(page_tree())


# Copies ##########################################################################################


@pytest.mark.parametrize(
    "make", [lambda: full_tree(4), lambda: Batch.from_data_list(full_trees(5))]
)
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        lambda tree: tree.clone(),
        lambda tree: pickle.loads(pickle.dumps(tree)),
    ],
    ids=["copy", "deepcopy", "clone", "pickle"],
)
@pytest.mark.parametrize("planned", [False, True])
def test_copies_are_equal_and_independent(make, duplicate, planned):
    tree = make()
    if planned:
        _ = tree.plan
    other = duplicate(tree)
    assert_same(other, tree)
    assert other.validate()
    assert repr(other.plan) == repr(tree.plan)
    if isinstance(tree, Batch):
        assert_same(other.to_data_list(), tree.to_data_list())
    other.x = other.x + 1
    other.fresh = 1
    assert "fresh" not in tree
    assert not torch.equal(other.x, tree.x)


def test_clone_and_deepcopy_share_no_memory():
    tree = full_tree(4)
    for other in (tree.clone(), copy.deepcopy(tree)):
        other.tree_level += 1
    assert tree.validate()


def test_chain_of_5000_levels():
    depth = 5_000
    tree = SignalTree.from_parents(range(-1, depth - 1), x=torch.ones(1, 2), name=["n"] * depth)
    assert tree.validate()
    assert tree.depth == depth - 1
    assert "depth=4999" in repr(tree)
    assert (tree.plan.num_slots, tree.plan.num_levels) == (1, 1)
    assert_same(pickle.loads(pickle.dumps(tree)), tree)
    assert_same(copy.deepcopy(tree), tree)
    assert tree.as_graph().num_nodes == depth
    assert_same(tree.restrict([0]), tree)
    batch = Batch.from_data_list([tree, tree])
    assert_same(batch.to_data_list()[1], tree)
    del tree, batch


# The plan, a cache ###############################################################################


def test_plan_is_built_once_and_invisible():
    tree = full_tree(2)
    plan = tree.plan
    assert tree.plan is plan
    assert not any("plan" in key for key in tree.to_dict())
    assert copy.copy(tree).plan is plan  # the very same tensors
    assert tree.clone().plan is not plan


def test_plan_follows_every_change_of_the_tree():
    tree = SignalTree.from_parents([3, 3, 4, 5, 5, -1])
    old = tree.plan
    other = SignalTree.from_parents([3, 4, 4, 5, 5, -1])
    tree.tree_index = other.tree_index
    tree.tree_level = other.tree_level
    new = tree.plan
    assert new is not old
    assert tree.plan is new

    tree.tree_index[0, 0] = tree.tree_index[0, 0].clone()  # in place, same value: counts as one
    assert tree.plan is not new
    tree.tree_level[0] += 1
    with pytest.raises(TreeError, match="node 0 has level"):
        _ = tree.plan

    small = SignalTree.from_parents([3, 3, 4, 5, 5, -1])
    _ = small.plan
    assert small.restrict([0, 2]).plan.num_leaves == 2
    assert small.subgraph(torch.tensor([True, False, False])).plan.num_leaves == 1


def test_plan_of_a_changed_copy():
    tree = page_tree()
    plan = tree.plan
    other = copy.copy(tree)
    other.tree_index = other.tree_index.clone()
    assert other.plan is not plan
    assert tree.plan is plan


def test_plan_moves_along():
    tree = full_tree(2)
    plan = tree.plan
    _ = plan.buckets, plan.pairs, plan.share
    moved = tree.to("cpu")
    assert moved is tree
    assert repr(tree.plan) == repr(plan)
    assert "buckets" in tree.plan.__dict__  # not computed again
    tree.to("cpu", "x")
    tree.cpu()
    assert tree.plan.num_leaves == tree.num_leaves
    meta = full_tree(2)
    _ = meta.plan
    meta = meta.to("meta")
    assert meta.plan.device.type == "meta"  # could not be built there


def test_plan_in_inference_mode():
    with torch.inference_mode():
        tree = page_tree()
        assert tree.plan is tree.plan
        assert tree.validate()


def test_plan_refuses_what_does_not_fit():
    tree = page_tree()
    tree.tree_index = tree.tree_index[:, 1:]
    with pytest.raises(HSAError):
        _ = tree.plan


# Seen as text ####################################################################################


def test_repr():
    assert repr(page_tree(x=torch.rand(7, 3))) == (
        "SignalTree(leaves=7, nodes=11, depth=3, x=[7, 3])"
    )
    text = repr(Batch.from_data_list(full_trees(3)))
    assert text.startswith("SignalTreeBatch(trees=3, leaves=")
    assert repr(SignalTree()) == "SignalTree()"
    assert len(repr(full_tree(0))) < 400


def test_describe_prints(capsys):
    page_tree().describe()
    assert "head: SET of 3, 5 leaves" in capsys.readouterr().out


# Stock PyG ######################################################################################


def test_is_data_for_every_layer():
    from torch_geometric.nn import GCNConv

    batch = Batch.from_data_list(full_trees(4))
    assert isinstance(batch, Data)
    assert GCNConv(4, 3)(batch.x, batch.edge_index).shape == (batch.num_nodes, 3)
    assert batch.num_node_features == 4


def test_subtrees_come_in_reading_order():
    plain = Plain.of(page_tree())
    assert [plain.leaves(v) for v in range(7, 11)] == [
        [1, 2, 3],
        [0, 1, 2, 3, 4],
        [6],
        list(range(7)),
    ]


@pytest.mark.parametrize("given", [{"name": "ab"}, {"name": 5}, {"pos": [10**400, 0]}])
def test_arguments_that_are_no_list_of_names_or_positions(given):
    with pytest.raises(ShapeError, match=next(iter(given))):
        SignalTree.from_parents([1, -1], **given)
