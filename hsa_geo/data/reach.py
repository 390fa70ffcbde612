"""What every leaf reaches: the siblings of itself and of its ancestors, as lists of slots.

Leaves of one group reach the same slots, so a list is kept for every group that has leaves: first
the members of the group, then the siblings of its parent, of its grandparent, and so on.  A leaf
of rank r in its group reaches all of its group's list but the entry r, which is itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hsa_geo.data.buckets import MAX_PAIRS, bucket_width

if TYPE_CHECKING:
    from hsa_geo.data.plan import TreePlan

__all__ = [
    "Reach",
    "ReachBlock",
    "ReachLists",
    "num_reached",
    "reach_blocks",
    "reach_lists",
    "reach_pairs",
]


@dataclass(frozen=True)
class ReachLists:
    """One list for each group with leaves; L lists, T entries.

    Attributes:
        ptr: ``[L + 1]``, the entries of list l are ``ptr[l]:ptr[l+1]``.
        group: ``[L]``, group of each list.
        slot: ``[T]``, the slot C that is reached.
        branch: ``[T]``, the ancestor A whose sibling C is; -1 for members of the list's own group.
        public: ``[T]``, place of the sibling pair (A, C) in the public order of the plan's pairs;
            -1 for members of the own group, whose pairs start with another leaf each.
        row_list: ``[N]``, list of every leaf by row; -1 for a leaf that is a whole tree.
        row_rank: ``[N]``, rank of every leaf in its group.
        row_ptr: ``[N + 1]``, the pairs of leaf i (:class:`Reach`) are ``row_ptr[i]:row_ptr[i+1]``.
        num_pairs: Number of pairs of a leaf and a slot that it reaches, Q.
    """

    ptr: Tensor
    group: Tensor
    slot: Tensor
    branch: Tensor
    public: Tensor
    row_list: Tensor
    row_rank: Tensor
    row_ptr: Tensor
    num_pairs: int


@dataclass(frozen=True)
class Reach:
    """Every pair of a leaf and a slot that it reaches, by row of the leaf, from the leaf upward.

    Attributes:
        row: ``[Q]``, row of the leaf.
        branch: ``[Q]``, slot A on the leaf's side: the leaf itself or an ancestor.
        slot: ``[Q]``, slot C that is reached, a sibling of A.
        public: ``[Q]``, place of (A, C) in the public order of the plan's sibling pairs.
        ptr: ``[N + 1]``, the pairs of leaf i are ``ptr[i]:ptr[i+1]``.
    """

    row: Tensor
    branch: Tensor
    slot: Tensor
    public: Tensor
    ptr: Tensor


@dataclass(frozen=True)
class ReachBlock:
    """K groups of leaves padded to W leaves that reach L slots.

    Attributes:
        row: ``[K, W]``, row of each leaf; padding repeats the group's first.
        rank: ``[K, W]``, its rank in the group, which is its own place in the list.
        real: ``[K, W]`` bool, False at padding.
        entry: ``[K, L]``, place of each slot in the plan's lists; padding repeats the first.
        valid: ``[K, L]`` bool, False at padding.
        split: Whether the group was too wide for one block.
    """

    row: Tensor
    rank: Tensor
    real: Tensor
    entry: Tensor
    valid: Tensor
    split: bool


def reach_lists(plan: TreePlan) -> ReachLists:
    """The lists of a plan; the only loop runs over levels.

    A list holds all siblings of all ancestors, so where many groups of leaves lie under one parent
    (10,000 sentences under one root) there are as many entries as pairs of those groups.

    Args:
        plan: The plan.

    Returns:
        The lists.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> lists = reach_lists(plan)  # slots: root 0, inner 1 and 2, leaves 3 to 6
        >>> [part.tolist() for part in lists.slot.split(lists.ptr.diff().tolist())]
        [[3, 4, 2], [5, 6, 1]]
        >>> lists.num_pairs
        8
    """
    device, first = plan.device, plan.num_trees
    size = plan.group_ptr.diff()  # [G]
    has_leaf = torch.zeros(plan.num_groups, dtype=torch.bool, device=device)
    has_leaf[plan.slot_group[plan.leaf_slot[plan.leaf_slot >= first]]] = True
    group = has_leaf.nonzero().squeeze(1)  # [L]

    # Visits (list, A) of the ancestors of each list's leaves, level by level; A = -1 stands for
    # the leaves themselves.
    lists = [torch.arange(len(group), device=device)]
    branches = [torch.full_like(group, -1)]
    visited = [group]
    above, which = plan.group_parent[group], lists[0]
    for _ in range(plan.num_levels):
        inner = above >= first
        above, which = above[inner], which[inner]
        lists.append(which)
        branches.append(above)
        visited.append(plan.slot_group[above])
        above = plan.slot_parent[above - first]
    of = torch.cat(lists)
    order = torch.sort(of, stable=True).indices
    of, branch, visit = of[order], torch.cat(branches)[order], torch.cat(visited)[order]

    # Of each visited group all members but A.
    count = size[visit] - (branch >= 0).long()
    entry = torch.repeat_interleave(count)  # visit of each entry
    place = torch.arange(len(entry), device=device) - (count.cumsum(0) - count)[entry]
    begin = plan.group_ptr[visit]
    rank = torch.where(branch >= 0, branch - begin, size[visit])[entry]  # of A, or past the end
    slot = begin[entry] + place + (place >= rank)
    others = (size[visit] - 1)[entry]
    public = plan.pair_start[visit][entry] + rank * others + place
    public = torch.where(branch[entry] >= 0, public, -1)

    length = torch.zeros(len(group), dtype=torch.int64, device=device).index_add_(0, of, count)
    list_of_group = torch.full((plan.num_groups + 1,), -1, dtype=torch.int64, device=device)
    list_of_group[group] = torch.arange(len(group), device=device)
    row_list = list_of_group[plan.slot_group[plan.row_slot]]  # group -1, of roots: the last
    ranks = torch.nn.functional.pad(plan.slot_rank, (first, 0))
    reached = torch.nn.functional.pad(length - 1, (0, 1))[row_list]
    row_ptr = torch.nn.functional.pad(reached.cumsum(0), (1, 0))
    return ReachLists(
        ptr=torch.nn.functional.pad(length.cumsum(0), (1, 0)),
        group=group,
        slot=slot,
        branch=branch[entry],
        public=public,
        row_list=row_list,
        row_rank=ranks[plan.row_slot],
        row_ptr=row_ptr,
        num_pairs=int(row_ptr[-1]),
    )


def num_reached(plan: TreePlan) -> int:
    """Number of pairs of a leaf and a slot that it reaches, without making them.

    Args:
        plan: The plan.

    Returns:
        Q.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> num_reached(SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan)
        8
    """
    group = plan.slot_group[plan.num_trees :]
    others = plan.group_ptr.diff()[group] - 1  # of each slot, reached by all leaves below it
    return int((others * plan.count[plan.num_trees :]).sum())


def reach_pairs(plan: TreePlan) -> Reach:
    """Every pair by itself; as many as there are, so large for wide groups.

    Args:
        plan: The plan.

    Returns:
        The pairs.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> reach = reach_pairs(SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan)
        >>> reach.row.tolist(), reach.slot.tolist()
        ([0, 0, 1, 1, 2, 2, 3, 3], [4, 2, 3, 2, 6, 1, 5, 1])
    """
    lists = plan.reach_lists
    row = torch.repeat_interleave(lists.row_ptr.diff(), output_size=lists.num_pairs)
    place = torch.arange(lists.num_pairs, device=plan.device) - lists.row_ptr[row]
    rank, which = lists.row_rank[row], lists.row_list[row]
    entry = lists.ptr[which] + place + (place >= rank)
    branch, public = lists.branch[entry], lists.public[entry]
    group = lists.group[which]
    own = plan.pair_start[group] + rank * (plan.group_ptr.diff()[group] - 1) + place
    return Reach(
        row=row,
        branch=torch.where(branch >= 0, branch, plan.row_slot[row]),
        slot=lists.slot[entry],
        public=torch.where(branch >= 0, public, own),
        ptr=lists.row_ptr,
    )


@torch.compiler.disable  # the compiler would take numpy arrays for tensors
def reach_blocks(plan: TreePlan) -> tuple[ReachBlock, ...]:
    """Every leaf that is no whole tree, in one block, with about MAX_PAIRS scores a head at most.

    Args:
        plan: The plan.

    Returns:
        The blocks, by size.

    Groups of similar numbers of leaves and of slots are padded together, as sibling groups are
    (:mod:`hsa_geo.data.buckets`).

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> (block,) = reach_blocks(SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan)
        >>> block.row.tolist(), block.entry.tolist()
        ([[0, 1], [2, 3]], [[0, 1, 2], [3, 4, 5]])
    """
    lists, device = plan.reach_lists, plan.device
    by_list = torch.sort(lists.row_list, stable=True).indices  # leaves that are trees come first
    first = lists.ptr.cpu()
    slots = first.diff()  # of each list
    leaves = torch.bincount(lists.row_list + 1, minlength=len(slots) + 1).cpu()
    start = leaves.cumsum(0)[:-1]
    leaves = leaves[1:]
    most = (MAX_PAIRS // slots.clamp(min=1)).clamp(min=1)  # leaves of a list in one block
    parts = (leaves + most - 1) // most
    of = torch.repeat_interleave(parts)  # list of each part
    number = torch.arange(len(of)) - (parts.cumsum(0) - parts)[of]
    begin = start[of] + number * most[of]
    count = torch.minimum(most[of], start[of] + leaves[of] - begin)
    size = torch.stack([count, slots[of]], 1)
    padded = torch.from_numpy(bucket_width(size.numpy()))
    kinds, kind = torch.unique(padded, dim=0, return_inverse=True)
    blocks = []
    for i, (tall, wide) in enumerate(kinds.tolist()):
        for some in (kind == i).nonzero().squeeze(1).split(max(1, MAX_PAIRS // (tall * wide))):
            real, at = _padded(begin[some], count[some], tall)
            valid, entry = _padded(first[of[some]], slots[of[some]], wide)
            row = by_list[at.to(device)]
            split = bool((parts[of[some]] > 1).any())
            tensors = (real.to(device), entry.to(device), valid.to(device))
            blocks.append(ReachBlock(row, lists.row_rank[row], *tensors, split))
    return tuple(blocks)


def _padded(begin: Tensor, count: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Whether each of ``width`` places is one of ``count``, and ``begin`` plus the place if so."""
    place = torch.arange(width)
    real = place < count[:, None]
    return real, begin[:, None] + torch.where(real, place, 0)
