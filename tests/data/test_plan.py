from __future__ import annotations

import copy

import pytest
import torch
from data_cases import Plain, full_trees
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import HSAError, ShapeError, TreeError
from hsa_geo.testing import SHAPES, random_tree, trees

forests = st.lists(trees(max_nodes=20), min_size=1, max_size=4).map(Batch.from_data_list)


def branching(plain: Plain) -> list[int]:
    return [v for v, kids in enumerate(plain.children) if len(kids) != 1]


def check_plan(tree: SignalTree) -> None:
    """Everything a plan says, against the tree in plain Python."""
    plan, plain = tree.plan, Plain.of(tree)
    m = len(plain.parent)
    leaves = [v for v in range(m) if not plain.children[v]]
    assert (plan.num_nodes, plan.num_leaves, plan.num_trees) == (m, len(leaves), len(plain.roots))

    # Slots: every leaf and branching node once, chains contracted
    bottom, top = plan.slot_bottom.tolist(), plan.slot_top.tolist()
    assert sorted(bottom) == branching(plain)
    assert top == [plain.top(v) for v in bottom]
    slot_of = {node: slot for slot, node in enumerate(bottom)}
    assert plan.count.tolist() == [len(plain.leaves(v)) for v in bottom]

    # Levels without chains; contiguous, roots first
    level = []
    for node in bottom:
        node, steps = plain.top(node), 0
        while plain.parent[node] >= 0:
            node, steps = plain.top(plain.parent[node]), steps + 1
        level.append(steps)
    assert level == sorted(level)
    assert plan.num_levels == max(level) + 1
    bounds = [sum(v < k for v in level) for k in range(plan.num_levels + 1)]
    assert list(plan.level_slots) == bounds
    assert [plain.parent[top[s]] for s in range(plan.num_trees)] == [-1] * plan.num_trees
    assert [bottom[s] for s in range(plan.num_trees)] == [plain.bottom(r) for r in plain.roots]

    # Groups: the children of every branching node, in sibling order, all at one level
    owners = [v for v in range(m) if len(plain.children[v]) > 1]
    ptr = plan.group_ptr.tolist()
    assert plan.num_groups == len(owners)
    assert sorted(bottom[s] for s in plan.group_parent.tolist()) == owners
    assert plan.group_sizes == tuple(plan.group_ptr.diff().tolist())
    assert (ptr[0], ptr[-1]) == (plan.num_trees, plan.num_slots)
    for group, parent in enumerate(plan.group_parent.tolist()):
        slots = range(ptr[group], ptr[group + 1])
        assert [top[s] for s in slots] == plain.children[bottom[parent]]
        assert plan.slot_group[list(slots)].unique().tolist() == [group]
        assert all(level[s] == level[parent] + 1 for s in slots)
        assert plan.level_groups[level[parent] + 1] <= group < plan.level_groups[level[parent] + 2]
    assert plan.slot_group[: plan.num_trees].tolist() == [-1] * plan.num_trees

    # Leaves: rows in increasing id
    assert plan.leaf_slot.tolist() == sorted(slot_of[v] for v in leaves)
    assert [leaves[row] for row in plan.leaf_row] == [bottom[s] for s in plan.leaf_slot]
    assert plan.leaf_row[plan.leaf_place].tolist() == list(range(len(leaves)))
    assert plan.leaf_is_root.tolist() == [v in plain.roots for v in leaves]
    tree_of = plain.roots and [sum(r < v for r in plain.roots) for v in leaves]
    assert plan.leaf_tree.tolist() == tree_of
    at = [level[s] for s in plan.leaf_slot.tolist()]
    assert list(plan.level_leaves) == [sum(v < k for v in at) for k in range(plan.num_levels + 1)]

    # Shares
    shares = [1.0] * plan.num_slots
    for group, parent in enumerate(plan.group_parent.tolist()):
        for s in range(ptr[group], ptr[group + 1]):
            shares[s] = len(plain.leaves(bottom[s])) / len(plain.leaves(bottom[parent]))
    assert plan.share.tolist() == shares

    # Ordered sibling pairs in public order: by parent id, then B, then C
    pairs = [(b, c) for v in owners for b in plain.children[v] for c in plain.children[v] if b != c]
    assert plan.num_pairs == len(pairs)
    assert [tuple(pair) for pair in plan.pair_nodes.t().tolist()] == pairs
    target, source = plan.pairs.target.tolist(), plan.pairs.source.tolist()
    assert [pairs[i] for i in plan.pairs.public.tolist()] == [
        (top[b], top[c]) for b, c in zip(target, source)
    ]
    assert target == sorted(target)
    for kid in range(plan.num_slots - plan.num_trees):
        span = slice(int(plan.pairs.ptr[kid]), int(plan.pairs.ptr[kid + 1]))
        assert set(target[span]) == {kid + plan.num_trees}
        assert source[span] == sorted(source[span])
    starts = {top[target[i]]: p for i, p in reversed(list(enumerate(plan.pairs.public.tolist())))}
    for group, start in enumerate(plan.pair_start.tolist()):
        assert start == starts[top[ptr[group]]]

    # Buckets: every group once, padded by at most a quarter
    seen, flat = [], []
    for bucket in plan.buckets:
        for row, size in enumerate(bucket.size.tolist()):
            slots = bucket.slots[row, :size].tolist()
            group = ptr.index(slots[0])
            assert slots == list(range(ptr[group], ptr[group + 1]))
            assert bucket.slots.size(1) <= 1.25 * size
            assert bucket.valid[row].tolist() == [i < size for i in range(bucket.slots.size(1))]
            assert int(bucket.pair_start[row]) == int(plan.pair_start[group])
            seen.append(group)
        flat += bucket.slots.flatten().tolist()
    assert sorted(seen) == list(range(plan.num_groups))
    kids = range(plan.num_trees, plan.num_slots)
    assert [flat[i] for i in plan.bucket_place.tolist()] == list(kids)


@given(trees(max_nodes=30))
@settings(max_examples=120, deadline=None)
def test_plan_of_a_tree(tree):
    check_plan(tree)


@given(forests)
@settings(max_examples=60, deadline=None)
def test_plan_of_a_batch(batch):
    check_plan(batch)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_plan_of_every_shape(shape, seed):
    check_plan(random_tree(seed, max_leaves=40, shape=shape))
    check_plan(Batch.from_data_list([random_tree(seed + i, shape=shape) for i in range(3)]))


def test_columns_in_any_order_of_parents():
    tree = random_tree(11, max_leaves=30, shape="mixed")
    place = torch.randperm(tree.num_tree_nodes, generator=torch.Generator().manual_seed(0))
    order = torch.argsort(place[tree.tree_index[0]], stable=True)  # siblings stay in order
    assert not torch.equal(order, torch.arange(len(order)))
    plan = TreePlan.from_index(tree.tree_index[:, order], tree.tree_level)
    assert torch.equal(plan.pair_nodes, tree.plan.pair_nodes)


def test_chains_cost_nothing():
    n = 4_000  # under the root, chains of 4,000 and 1 nodes that end in two leaves each
    parents = [-1, *range(n), n, n, 0, n + 3, n + 3]
    plan = SignalTree.from_parents(parents).plan
    assert (plan.num_slots, plan.num_levels, plan.num_groups) == (7, 3, 3)
    check_plan(SignalTree.from_parents([*parents[:60], 59, 59]))


def test_batch_of_no_trees():
    plan = TreePlan.from_index(torch.zeros(2, 0).long(), torch.zeros(0).long())
    assert repr(plan) == "TreePlan(trees=0, leaves=0, nodes=0, groups=0, levels=0, pairs=0)"
    assert plan.pair_nodes.shape == (2, 0)
    assert plan.buckets == ()
    assert plan.share.shape == plan.bucket_place.shape == (0,)


def test_moved_and_copied_plans():
    batch = Batch.from_data_list(full_trees(4))
    plan = batch.plan
    lazy = ("share", "pairs", "pair_nodes", "buckets", "bucket_place")
    assert not any(name in plan.to("cpu").__dict__ for name in lazy)
    for name in lazy:
        getattr(plan, name)
    for other in (plan.to("cpu"), copy.deepcopy(plan)):
        assert all(name in other.__dict__ for name in lazy)
        assert repr(other) == repr(plan)
        assert torch.equal(other.pair_nodes, plan.pair_nodes)
        assert torch.equal(other.pairs.public, plan.pairs.public)
        assert len(other.buckets) == len(plan.buckets)
    meta = plan.to("meta")
    assert {meta.device.type, meta.buckets[0].slots.device.type, meta.pairs.ptr.device.type} == {
        "meta"
    }
    assert plan.device.type == "cpu"


@pytest.mark.parametrize(
    ("index", "level", "error", "message"),
    [
        ([[2, 2], [0, 1]], [1, 1], TreeError, "holds node 2"),
        ([[2, -1], [0, 2]], [1, 0, 0], TreeError, "holds node -1"),
        ([[2, 1], [0, 0]], [1, 0, 0], TreeError, "node 0 has 2 parents"),
        ([[2, 2], [0, 1]], [1, 2, 0], TreeError, "node 1 has level 2"),
        ([[2, 2], [0, 1]], [2, 2, 1], TreeError, "node 0 has level 2|node 2 has level 1"),
        ([[1, 0], [0, 1]], [1, 2], TreeError, "node 0 has level 1"),
        ([[0], [0]], [0], TreeError, "level"),
        ([2, 0], [1, 1, 0], ShapeError, r"shape \[2\]"),
        ([[2.0], [0.0]], [1, 1, 0], ShapeError, "float32"),
        ([[2, 2], [0, 1]], [[1, 1, 0]], ShapeError, r"\[1, 3\]"),
    ],
)
def test_what_is_no_forest(index, level, error, message):
    with pytest.raises(error, match=message) as caught:
        TreePlan.from_index(torch.tensor(index), torch.tensor(level))
    assert isinstance(caught.value, HSAError)


def test_a_plan_made_in_inference_mode_serves_training():
    tree = random_tree(3)
    with torch.inference_mode():
        plan = tree.plan
        made = [getattr(plan, name) for name in ("share", "leaf_tree", "pair_nodes", "row_slot")]
        made += [plan.slot_source, plan.bucket_place, plan.bucket_width, plan.buckets[0].slots]
    assert tree.plan is plan
    assert not any(tensor.is_inference() for tensor in [*made, plan.count, plan.group_ptr])


def test_flat_plan():
    """Trees of depth one over the same leaves, whatever rows and weights those have."""
    trees = [random_tree(seed, shape="mixed") for seed in range(3)]
    trees += [SignalTree.from_parents([3, 4, 3, 5, 5, -1], keep_leaf_order=True)]
    for i, tree in enumerate(trees):
        tree.leaf_weight = torch.arange(tree.num_leaves) % 3 + 1 + i
    batch = Batch.from_data_list(trees)
    plan, flat = batch.plan, batch.plan.flat
    assert flat is plan.flat
    assert flat.num_levels == 2
    assert (flat.num_leaves, flat.num_trees) == (plan.num_leaves, plan.num_trees)
    assert flat.leaf_tree.tolist() == plan.leaf_tree.tolist()
    assert flat.leaf_weight.tolist() == batch.leaf_weight.tolist()
    assert flat.mass[: flat.num_trees].tolist() == plan.mass[: plan.num_trees].tolist()
    moved = plan.to("cpu")
    assert moved.flat is not flat
    assert torch.equal(moved.flat.leaf_tree, flat.leaf_tree)
    with torch.inference_mode():
        inside = plan.to("cpu").flat
    assert not inside.mass.is_inference()
