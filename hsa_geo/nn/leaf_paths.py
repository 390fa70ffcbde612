"""The paths of leaves to their roots, read off the plan of a tree.

A path has at most ``levels`` ancestors counted from the leaf upward (parent, grandparent, ...) and
as many counted from the root downward (child of the root, ...); what lies between is left out, so
that a tree of thousands of levels costs no more.  Chains of single children count as one node, as
they do for :class:`~hsa_geo.nn.HSAConv`.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.ops.inputs import as_plan

__all__ = ["LeafPaths", "leaf_paths"]


@dataclass(frozen=True)
class LeafPaths:
    """The paths of the leaves to their roots, by leaf row; -1 where a path has ended.

    Ancestors are *slots* of the plan (:class:`~hsa_geo.data.TreePlan`).

    Attributes:
        low: ``[N, levels + 1]``, the leaf, its parent, its grandparent, ...
        top: ``[N, levels]``, its ancestor (or itself) at level 1, 2, ...
        depth: ``[N]``, level of the leaf.
        place: ``[S]``, place of every slot among its siblings, from 0.
        size: ``[S]``, number of siblings of every slot, itself included.
        number: ``[S]``, number of every branching slot within its tree, from 0 at the root; -1 at
            leaves.
    """

    low: Tensor
    top: Tensor
    depth: Tensor
    place: Tensor
    size: Tensor
    number: Tensor


_KNOWN: weakref.WeakKeyDictionary[TreePlan, dict[int, LeafPaths]] = weakref.WeakKeyDictionary()


def leaf_paths(tree: SignalTree | TreePlan, levels: int) -> LeafPaths:
    """The paths of all leaves, kept with the plan for the next layer that asks.

    Args:
        tree: A tree, a batch of trees, or a plan.
        levels: Number of ancestors counted from the leaf, and from the root.

    Returns:
        The paths.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> paths = leaf_paths(tree, 2)
        >>> paths.depth.tolist(), paths.place[paths.low[:, 0]].tolist()
        ([2, 2, 2, 2], [0, 1, 0, 1])
    """
    plan = as_plan(tree)
    known = _KNOWN.setdefault(plan, {})
    if levels not in known:
        known[levels] = _paths(plan, levels)
    return known[levels]


def _paths(plan: TreePlan, levels: int) -> LeafPaths:
    device, slots, trees = plan.device, plan.num_slots, plan.num_trees
    group = plan.slot_group[trees:]
    # One row more, the last: an ancestor that does not exist is its own parent.
    parent = torch.full((slots + 1,), slots, device=device)
    parent[trees:slots] = plan.group_parent[group]
    place, size = torch.zeros(slots, dtype=torch.int64, device=device), plan.count.new_ones(slots)
    place[trees:] = torch.arange(trees, slots, device=device) - plan.group_ptr[group]
    size[trees:] = plan.group_ptr.diff()[group]
    bounds = torch.tensor(plan.level_slots, dtype=torch.int64, device=device)
    level = torch.arange(plan.num_levels, device=device).repeat_interleave(bounds.diff())

    number = torch.full((slots,), -1, device=device)
    inner = (plan.count > 1).nonzero().squeeze(1)  # chains are contracted, so these branch
    owner = plan.leaf_tree[plan.leaf_order[plan.leaf_start[inner]]]
    by_tree = owner.argsort(stable=True)
    counts = torch.bincount(owner, minlength=trees)
    first = (counts.cumsum(0) - counts)[owner[by_tree]]
    number[inner[by_tree]] = torch.arange(len(inner), device=device) - first

    leaf = plan.leaf_slot[plan.leaf_place]  # by row
    low = [leaf]
    for _ in range(levels):
        low.append(parent[low[-1]])
    depth = level[leaf]
    # To the ancestor at level `levels`, in jumps of powers of two.
    at, far, jump = leaf, (depth - levels).clamp_min(0), parent
    while bool((far > 0).any()):
        at = torch.where(far % 2 == 1, jump[at], at)
        far, jump = far // 2, jump[jump]
    top = torch.full((len(leaf), levels), slots, device=device)
    for back in range(levels):
        column = depth.clamp_max(levels) - 1 - back
        rows = (column >= 0).nonzero().squeeze(1)
        top[rows, column[rows]] = at[rows]
        at = parent[at]

    def ended(slot: Tensor) -> Tensor:
        return slot.masked_fill(slot == slots, -1)

    return LeafPaths(ended(torch.stack(low, 1)), ended(top), depth, place, size, number)
