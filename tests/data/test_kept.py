"""Packed plans: groups of leaves and kept slots against the tree in plain Python."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from data_cases import Plain, full_trees
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.data.kept import PackedPlan, check_packed, pack_kept, unpack_kept
from hsa_geo.errors import TreeError
from hsa_geo.ops import hsa_attention
from hsa_geo.testing import SHAPES, random_tree, trees

forests = st.lists(trees(max_nodes=20), min_size=1, max_size=4).map(Batch.from_data_list)


def assert_packed(tree: SignalTree) -> None:
    """Everything a packed plan says, against the tree."""
    plan, plain = tree.plan, Plain.of(tree)
    packed = pack_kept(plan)
    leaves, kept = unpack_kept(packed)
    leaf, slot = ({k: v.tolist() for k, v in x._asdict().items()} for x in (leaves, kept))
    assert packed.dtype == torch.int64
    assert sum(len(part) for part in (*leaves, *kept)) + 7 == len(packed)
    numbers = [len(leaf["pair"]), len(leaf["row"]), len(slot["pair"]), len(slot["leaf"])]
    numbers += [plan.num_leaves, plan.num_nodes, plan.num_pairs]
    assert packed[:7].tolist() == numbers

    # The groups: children of every branching node, by whether all of them are leaves.
    ids = [node for node, below in enumerate(plain.children) if not below]
    row_of = {node: row for row, node in enumerate(ids)}
    owners = [node for node, below in enumerate(plain.children) if len(below) > 1]
    bottoms = {node: [plain.bottom(child) for child in plain.children[node]] for node in owners}
    of_leaves = [n for n in owners if all(not plain.children[b] for b in bottoms[n])]
    first_pair, seen = {}, 0
    for node in owners:  # in order of their ids
        first_pair[node] = seen
        seen += len(bottoms[node]) * (len(bottoms[node]) - 1)

    # Kept slots: the tops of the trees first, then the members of the other groups.
    node_of: list[int] = [plain.bottom(root) for root in plain.roots]
    assert slot["top"][: len(node_of)] == plain.roots
    groups = list(zip(slot["ptr"], slot["ptr"][1:], slot["parent"], slot["pair"]))
    assert slot["ptr"][0] == len(plain.roots)
    assert slot["ptr"][-1] == len(slot["leaf"])
    for low, high, parent, pair in groups:
        assert parent < low == len(node_of)  # parents before children
        owner = node_of[parent]
        assert slot["top"][low:high] == plain.children[owner]
        assert pair == first_pair[owner]
        node_of += bottoms[owner]
    assert sorted(node_of[p] for p in slot["parent"]) == sorted(set(owners) - set(of_leaves))
    for c, node in enumerate(node_of):
        assert slot["size"][c] == len(plain.leaves(node))
        assert slot["leaf"][c] == row_of.get(node, -1)
        alone = node in row_of and plain.parent[node] < 0
        assert slot["own"][c] == (-1 if alone else node)

    # Groups of leaves below them.
    found = [node_of[parent] for parent in leaf["parent"]]
    assert sorted(found) == sorted(of_leaves)
    assert (leaf["ptr"][0], leaf["ptr"][-1]) == (0, len(leaf["row"]))
    for g, owner in enumerate(found):
        at = slice(leaf["ptr"][g], leaf["ptr"][g + 1])
        assert leaf["top"][at] == plain.children[owner]
        assert leaf["own"][at] == bottoms[owner]
        assert leaf["row"][at] == [row_of[node] for node in bottoms[owner]]
        assert leaf["pair"][g] == first_pair[owner]

    # Every leaf is once a member of a group of leaves or a kept slot.
    assert sorted(leaf["row"] + [row for row in slot["leaf"] if row >= 0]) == list(range(len(ids)))


@given(trees(max_nodes=30))
@settings(max_examples=120, deadline=None)
def test_packed_plan_of_a_tree(tree):
    assert_packed(tree)


@given(forests)
@settings(max_examples=60, deadline=None)
def test_packed_plan_of_a_batch(batch):
    assert_packed(batch)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_packed_plan_of_every_shape(shape, seed):
    assert_packed(random_tree(seed, max_leaves=40, shape=shape))
    assert_packed(Batch.from_data_list([random_tree(seed + i, shape=shape) for i in range(3)]))


def test_a_single_leaf_at_the_end_of_a_chain():
    """No groups at all; the leaf of a longer chain is no root and has a position of its own."""
    for parents, own in (([-1], -1), ([-1, 0], 0), ([-1, 0, 1, 2], 0)):
        tree = SignalTree.from_parents(parents)
        leaves, kept = unpack_kept(tree.plan.packed)
        assert [len(part) for part in leaves] == [1, 0, 0, 0, 0, 0]
        assert (kept.ptr.tolist(), kept.leaf.tolist(), kept.size.tolist()) == ([1], [0], [1])
        assert kept.own.tolist() == [own]
        assert_packed(tree)


def test_chains_of_any_length_cost_one_slot():
    n = 3_000  # under the root, chains of 3,000 and 1 nodes that end in two leaves each
    parents = [-1, *range(n), n, n, 0, n + 3, n + 3]
    leaves, kept = unpack_kept(SignalTree.from_parents(parents).plan.packed)
    assert (len(kept.leaf), len(kept.parent), len(leaves.parent)) == (3, 1, 2)
    assert kept.size.tolist() == [4, 2, 2]


def test_no_trees():
    plan = TreePlan.from_index(torch.zeros(2, 0).long(), torch.zeros(0).long())
    leaves, kept = unpack_kept(plan.packed)
    assert plan.packed[:7].tolist() == [0] * 7
    assert (leaves.ptr.tolist(), kept.ptr.tolist()) == ([0], [0])
    assert [len(part) for part in (*leaves[1:], *kept[1:])] == [0] * 11


def test_edges_in_no_canonical_order():
    """Two interleaved trees; ids of leaves and inner nodes are mixed."""
    index = torch.tensor([[7, 3, 7, 0, 3, 0, 0], [2, 1, 0, 8, 4, 5, 6]])
    level = torch.tensor([1, 1, 1, 0, 1, 2, 2, 0, 2])
    ordered = index[:, index[0].argsort(stable=True)]
    assert_packed(SignalTree(tree_index=ordered, tree_level=level, num_nodes=6))
    same = TreePlan.from_index(ordered, level).packed
    assert torch.equal(TreePlan.from_index(index, level).packed, same)


def test_a_plan_keeps_its_packed_form():
    plan = Batch.from_data_list(full_trees(4)).plan
    packed = plan.packed
    assert plan.packed is packed
    copies = (
        plan.to("cpu"),
        copy.deepcopy(plan),
        copy.copy(plan),
        pickle.loads(pickle.dumps(plan)),
    )
    for other in copies:
        assert other._packed is not None
        assert torch.equal(other.packed, packed)
    assert plan.to("meta").packed.device.type == "meta"


def test_a_packed_plan_made_in_inference_mode_serves_training():
    tree = random_tree(3)
    with torch.inference_mode():
        packed = tree.plan.packed
    assert not packed.is_inference()


def test_it_holds_no_tensor_twice():
    """Unpacking makes views, so that kernels read the one tensor."""
    packed = random_tree(5, max_leaves=40).plan.packed
    for part in (x for parts in unpack_kept(packed) for x in parts):
        assert part.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()
        assert part.is_contiguous()


def test_the_plan_inside_a_graph():
    tree = random_tree(5)
    plan = PackedPlan(tree.plan.packed, 4, 9)
    assert (plan.num_leaves, plan.num_nodes, plan.device) == (4, 9, torch.device("cpu"))


def test_a_damaged_plan_is_refused():
    """Kernels look at no index: whatever is changed is found before they run, or harmless."""
    tree = random_tree(5, shape="mixed")
    sound = tree.plan.packed
    check_packed(sound)
    refused = 0
    for place in range(len(sound)):
        for value in (-2, 50_000, 10**9, int(sound[place]) + 1):
            packed = sound.clone()
            packed[place] = value
            try:
                check_packed(packed)
            except TreeError:
                refused += 1
    assert refused > 3 * len(sound)
    for packed in (sound[:-1], sound[:3], torch.cat([sound, sound[:1]]), sound.int(), sound[None]):
        with pytest.raises(TreeError, match="build the plan anew"):
            check_packed(packed.clone())


def test_a_change_in_place_is_seen():
    packed = SignalTree.from_parents([5, 5, 5, 6, 6, 7, 7, -1]).plan.packed
    check_packed(packed)
    packed[10] = 50_000
    with pytest.raises(TreeError):
        check_packed(packed)
    q = torch.randn(5, 2, 4, requires_grad=True)
    plan = SignalTree.from_parents([5, 5, 5, 6, 6, 7, 7, -1]).plan
    out = hsa_attention(q, q, q, plan, backend="numba")
    plan.packed[10] = 50_000
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    with pytest.raises(TreeError):
        hsa_attention(q, q, q, plan, backend="numba")
