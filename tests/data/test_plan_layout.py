"""Where the padded blocks find the slots of a plan."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.data.plan_layout import lasting
from hsa_geo.testing import trees


@given(st.lists(trees(max_nodes=20), min_size=1, max_size=4).map(Batch.from_data_list))
@settings(max_examples=30, deadline=None)
def test_rows_parents_ranks_and_buckets(batch):
    plan = batch.plan
    assert plan.leaf_slot[plan.leaf_place].tolist() == plan.row_slot.tolist()
    first = plan.num_trees
    for slot in range(first, plan.num_slots):
        group = int(plan.slot_group[slot])
        assert plan.slot_parent[slot - first] == plan.group_parent[group]
        assert plan.slot_rank[slot - first] == slot - plan.group_ptr[group]
    padded = [slot for b in plan.buckets for slot in b.slots.flatten().tolist()]
    width = [b.slots.size(1) for b in plan.buckets for _ in range(b.slots.numel())]
    for slot in range(first, plan.num_slots):
        place = int(plan.bucket_place[slot - first])
        assert padded[place] == slot
        assert width[place] == plan.bucket_width[slot - first]
    assert sorted(plan.bucket_place.tolist()) == sorted(set(plan.bucket_place.tolist()))


@given(trees(max_nodes=20), st.booleans())
@settings(max_examples=30, deadline=None)
def test_shares_in_the_hierarchical_mean(tree, weighted):
    """Those of siblings add up to that of their parent, those of all leaves to one."""
    if weighted:
        tree.leaf_weight = torch.arange(tree.num_leaves) % 3 + 1
    plan = tree.plan
    share = plan.log_share.exp()
    assert torch.allclose(share[plan.leaf_slot].sum(), torch.ones((), dtype=torch.float64))
    for group in range(plan.num_groups):
        members = slice(int(plan.group_ptr[group]), int(plan.group_ptr[group + 1]))
        parent = share[plan.group_parent[group]]
        assert torch.allclose(share[members].sum(), parent)
        if not weighted:
            assert torch.allclose(share[members], parent / (members.stop - members.start))


def test_what_is_made_in_inference_mode_lasts():
    with torch.inference_mode():
        assert not lasting(lambda: torch.ones(1))().is_inference()
        assert torch.ones(1).is_inference()
