"""Means under every slot and sums along every path, whole trees at a time.

Both are linear maps between the rows of the leaves and the slots of a plan, and each other's
transpose, so each is the other's backward and both differentiate any number of times.  They work
in place, level by level, and keep nothing for the backward pass; this is what the ``"block"``
backend runs instead of one message passing step for each level.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan

__all__ = ["leaf_paths", "slot_means"]


def slot_means(x: Tensor, plan: TreePlan) -> Tensor:
    """Mean over the leaves under every slot.

    Args:
        x: ``[N, ...]``, a row per leaf.
        plan: The plan.

    Returns:
        ``[S, ...]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 3, 3, 4, -1]).plan  # root -> leaf 0, (1, 2)
        >>> slot_means(torch.tensor([1.0, 2.0, 6.0]), plan).tolist()
        [3.0, 1.0, 4.0, 2.0, 6.0]
    """
    return _FromLeaves.apply(x, plan, True)


def leaf_paths(x: Tensor, plan: TreePlan) -> Tensor:
    """Sum over the slots from the root's child down to every leaf.

    Args:
        x: ``[S - B, ...]``, a row per slot that is not a root.
        plan: The plan.

    Returns:
        ``[N, ...]``, by row of the leaves; zero for a leaf that is a whole tree.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 3, 3, 4, -1]).plan
        >>> leaf_paths(torch.tensor([1.0, 10.0, 100.0, 200.0]), plan).tolist()
        [1.0, 110.0, 210.0]
    """
    return _ToLeaves.apply(x, plan, False)


class _FromLeaves(torch.autograd.Function):
    """Sums over leaves, at the slots that are no roots; or means, at all slots."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: TreePlan, mean: bool) -> Tensor:
        ctx.plan, ctx.mean = plan, mean
        out = x.new_zeros((plan.num_slots, *x.shape[1:]))
        out.index_copy_(0, plan.row_slot, _weighted(x, plan) if mean else x)
        for level in reversed(range(1 if mean else 2, plan.num_levels)):
            above, low, high = plan.level_slots[level - 1 : level + 2]
            parent = plan.slot_parent[low - plan.num_trees : high - plan.num_trees] - above
            out[above:low].index_add_(0, parent, out[low:high])
        if not mean:
            return out[plan.num_trees :]
        _divide_(out, plan)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _ToLeaves.apply(grad, ctx.plan, ctx.mean), None, None


class _ToLeaves(torch.autograd.Function):
    """The transpose of :class:`_FromLeaves`: sums along the path to each leaf."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: TreePlan, mean: bool) -> Tensor:
        ctx.plan, ctx.mean = plan, mean
        if mean:
            out = x.clone(memory_format=torch.contiguous_format)
            _divide_(out, plan)
        else:
            out = torch.cat([x.new_zeros((plan.num_trees, *x.shape[1:])), x])
        for level in range(1 if mean else 2, plan.num_levels):
            low, high = plan.level_slots[level : level + 2]
            parent = plan.slot_parent[low - plan.num_trees : high - plan.num_trees]
            out[low:high] += out.index_select(0, parent)
        out = out.index_select(0, plan.row_slot)
        return _weighted(out, plan) if mean else out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _FromLeaves.apply(grad, ctx.plan, ctx.mean), None, None


def _weighted(x: Tensor, plan: TreePlan) -> Tensor:
    """Rows of leaves as often as they count."""
    if plan.leaf_weight is None:
        return x
    return x * plan.leaf_weight.to(x.dtype).view(-1, *[1] * (x.dim() - 1))


def _divide_(x: Tensor, plan: TreePlan) -> None:
    """Sums to means; those of leaves are there already, unless they count several times."""
    if plan.leaf_weight is not None:
        x.div_(plan.mass.to(x.dtype).view(-1, *[1] * (x.dim() - 1)))
        return
    inner = plan.group_parent
    count = plan.mass[inner].to(x.dtype).view(-1, *[1] * (x.dim() - 1))
    x.index_copy_(0, inner, x.index_select(0, inner) / count)
