"""What a plan knows about its slots by row, level, bucket and leaf, computed when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch
from torch import Tensor

from hsa_geo.data.buckets import Bucket, make_buckets
from hsa_geo.data.reach import (
    Reach,
    ReachBlock,
    ReachLists,
    reach_blocks,
    reach_lists,
    reach_pairs,
)

if TYPE_CHECKING:
    from typing import Any

    Base = Any
else:
    Base = object

__all__ = ["PlanLayout", "lasting"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def lasting(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make what is cached outside inference mode, or training could not use it afterwards."""

    @wraps(build)
    def outside(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not torch.is_inference_mode_enabled():
            return build(*args, **kwargs)
        with torch.inference_mode(False):
            return build(*args, **kwargs)

    return outside


class PlanLayout(Base):
    """Part of :class:`~hsa_geo.data.TreePlan`: where the backends find things."""

    @cached_property
    @lasting
    def buckets(self) -> tuple[Bucket, ...]:
        """Groups of similar size padded to one width; see :mod:`hsa_geo.data.buckets`."""
        return make_buckets(self.group_ptr, self.pair_start, self.group_sizes)

    @cached_property
    @lasting
    def row_slot(self) -> Tensor:
        """``[N]``, slot of every leaf by row."""
        return self.leaf_slot[self.leaf_place]

    @cached_property
    @lasting
    def slot_parent(self) -> Tensor:
        """``[S - B]``, slot of the parent of every non-root slot."""
        return self.group_parent[self.slot_group[self.num_trees :]]

    @cached_property
    @lasting
    def slot_rank(self) -> Tensor:
        """``[S - B]``, rank of every non-root slot among its siblings."""
        slot = torch.arange(self.num_trees, self.num_slots, device=self.device)
        return slot - self.group_ptr[self.slot_group[self.num_trees :]]

    @cached_property
    @lasting
    def slot_source(self) -> Tensor:
        """``[S]``, for every slot its place in a list of its level: leaves by slot, then inner
        slots by the group of their children."""
        leaves = torch.tensor(self.level_leaves, device=self.device).diff()
        groups = torch.tensor(self.level_groups, device=self.device).diff()[1:]  # below each level
        source = torch.empty(self.num_slots, dtype=torch.int64, device=self.device)
        source[self.leaf_slot] = _rank_in_runs(leaves, self.num_leaves)
        above = torch.repeat_interleave(leaves[:-1], groups, output_size=self.num_groups)
        source[self.group_parent] = _rank_in_runs(groups, self.num_groups) + above
        return source

    @cached_property
    @lasting
    def log_share(self) -> Tensor:
        """``[S]`` float64, log of every slot's share in the hierarchical mean of its tree, in which
        a node is the mean of its children and a leaf counts as often as its weight says."""
        vote = torch.ones(self.num_slots, dtype=torch.float64, device=self.device)
        if self.leaf_weight is not None:  # but one child, if it is a chain, whatever is below it
            alone = self.slot_top[self.leaf_slot] == self.slot_bottom[self.leaf_slot]
            vote[self.leaf_slot] = torch.where(alone, self.leaf_weight[self.leaf_row], 1).double()
        group = self.slot_group[self.num_trees :]
        total = vote.new_zeros(self.num_groups).index_add_(0, group, vote[self.num_trees :])
        share = torch.zeros_like(vote)
        share[self.num_trees :] = (vote[self.num_trees :] / total[group]).log()
        for level in range(1, self.num_levels):
            low, high = self.level_slots[level], self.level_slots[level + 1]
            share[low:high] += share[self.group_parent[self.slot_group[low:high]]]
        return share

    @cached_property
    @lasting
    def reach_lists(self) -> ReachLists:
        """What the leaves of each group reach; see :mod:`hsa_geo.data.reach`."""
        return reach_lists(self)

    @cached_property
    @lasting
    def reach(self) -> Reach:
        """Every pair of a leaf and a sibling of itself or of an ancestor, one by one."""
        return reach_pairs(self)

    @cached_property
    @lasting
    def reach_blocks(self) -> tuple[ReachBlock, ...]:
        """Groups of leaves and what they reach, padded."""
        return reach_blocks(self)

    @cached_property
    @lasting
    def bucket_place(self) -> Tensor:
        """``[S - B]``, place of every non-root slot in the concatenated, flattened buckets."""
        place = torch.empty(self.num_slots - self.num_trees, dtype=torch.int64, device=self.device)
        offset = 0
        for bucket in self.buckets:
            at = bucket.valid.flatten().nonzero().squeeze(1)
            place[bucket.slots.flatten()[at] - self.num_trees] = at + offset
            offset += bucket.slots.numel()
        return place

    @cached_property
    @lasting
    def bucket_width(self) -> Tensor:
        """``[S - B]``, width of the bucket of every non-root slot."""
        width = torch.empty(self.num_slots - self.num_trees, dtype=torch.int64, device=self.device)
        for bucket in self.buckets:
            width[bucket.slots.flatten() - self.num_trees] = bucket.slots.size(1)
        return width


def _rank_in_runs(lengths: Tensor, total: int) -> Tensor:
    """``0..n-1`` for each run of length n."""
    start = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths, output_size=total)
    return torch.arange(total, device=lengths.device) - start
