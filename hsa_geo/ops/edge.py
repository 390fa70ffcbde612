"""The dynamic program's three moves as message passing: upward, among siblings, downward.

Each is a small :class:`~torch_geometric.nn.MessagePassing` module, since one class has one
``message``.  This is the readable backend, one message per tree edge or ordered sibling pair;
:mod:`hsa_geo.ops.block` computes the same sibling pass in padded blocks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.reach_pass import ReachPass
from hsa_geo.ops.segment import segment_expand, segment_max, segment_sum

__all__ = [
    "DownwardPass",
    "EdgePasses",
    "SiblingInput",
    "SiblingPass",
    "UpwardPass",
    "by_level",
    "level_parents",
    "level_ptr",
    "log_safe",
    "pair_scores",
    "place",
    "sibling_shares",
]


class SiblingInput(NamedTuple):
    """What the sibling pass needs; the first row of each is the first non-root slot.

    The score of C for B is ``query_B . key_C + pos_B . pos_C + key_term_C (+ bias_BC)``: the
    scale is already inside query, ``log|C|`` and the l2 term of the key inside ``key_term``.

    Attributes:
        query: ``[S - B, H, D]``.
        key: ``[S - B, H, D]``.
        key_term: ``[S - B, H]``.
        value: ``[S - B, H, Dv]``.
        pos: ``[S - B, H, P]``, or None.
        bias: ``[P, H or 1]`` by public pair, or None.
        mask: ``[P, H]`` by public pair, multiplies the weights (dropout), or None.
    """

    query: Tensor
    key: Tensor
    key_term: Tensor
    value: Tensor
    pos: Tensor | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None


def log_safe(total: Tensor) -> Tensor:
    """``log(total)``, with log 0 = -inf and gradient zero there.

    Example:
        >>> log_safe(torch.tensor([1.0, 0.0])).tolist()
        [0.0, -inf]
    """
    positive = total > 0
    return torch.where(positive, torch.where(positive, total, 1.0).log(), -torch.inf)


def pair_scores(x: SiblingInput, plan: TreePlan) -> Tensor:
    """Scores of all ordered sibling pairs ``[P, H]``, sorted as :attr:`TreePlan.pairs`."""
    pairs, first = plan.pairs, plan.num_trees
    target, source = pairs.target - first, pairs.source - first
    score = (x.query[target] * x.key[source]).sum(-1) + x.key_term[source]  # [P, H]
    if x.pos is not None:
        score = score + (x.pos[target] * x.pos[source]).sum(-1)
    return score if x.bias is None else score + x.bias[pairs.public]


class UpwardPass(MessagePassing):
    """Children to parents: ``sum_B share_B x_B``, so means of means weighted by leaves.

    ``forward(x [n, ...], share [n], group_ptr [k + 1]) -> [k, ...]`` for the n children of k
    groups, given group by group.

    Example:
        >>> x, share = torch.tensor([[2.0], [4.0], [7.0]]), torch.tensor([0.5, 0.5, 1.0])
        >>> UpwardPass()(x, share, torch.tensor([0, 2, 3])).tolist()
        [[3.0], [7.0]]
    """

    explain = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def forward(self, x: Tensor, share: Tensor, group_ptr: Tensor) -> Tensor:
        """Weighted sums of each group of children."""
        n, k = len(x), len(group_ptr) - 1
        child = torch.arange(n, device=x.device)
        parent = torch.repeat_interleave(
            torch.arange(k, device=x.device), group_ptr.diff(), output_size=n
        )
        flat = x.reshape(n, -1)
        out = self.propagate(
            torch.stack([child, parent]), x=flat, share=share, group_ptr=group_ptr, size=(n, k)
        )
        return out.view(k, *x.shape[1:])

    def message(self, x: Tensor, share: Tensor) -> Tensor:  # edges are the children, in order
        """Message of a child."""
        return x * share[:, None]

    def aggregate(self, inputs: Tensor, group_ptr: Tensor) -> Tensor:
        """Sum over the contiguous children of each parent."""
        return segment_sum(inputs, group_ptr)


def sibling_shares(x: SiblingInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
    """Softmax over the siblings of every non-root slot, and its log-sum-exp.

    Args:
        x: The input of the sibling pass.
        plan: The plan.

    Returns:
        ``[P, H]``, in the order of ``plan.pairs``, and ``[S - B, H]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([3, 3, 3, -1]).plan
        >>> zero = torch.zeros(3, 1, 1)
        >>> sibling_shares(SiblingInput(zero, zero, zero[..., 0], zero), plan)[0].flatten()
        tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000])
    """
    pairs = plan.pairs
    score = pair_scores(x, plan)  # [P, H]
    top = segment_max(score, pairs.ptr).clamp(min=torch.finfo(score.dtype).min)  # [S-B, H]
    weight = (score - segment_expand(top, pairs.ptr, len(score))).exp()
    total = segment_sum(weight, pairs.ptr)
    share = weight / segment_expand(torch.where(total > 0, total, 1.0), pairs.ptr, len(score))
    return share, top + log_safe(total)


class SiblingPass(MessagePassing):
    """Sibling to sibling: softmax over the others, and its log-sum-exp.

    ``forward(x, plan) -> (output [S - B, H, Dv], log_sum [S - B, H])`` over the non-root slots.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([3, 3, 3, -1]).plan
        >>> zero, value = torch.zeros(3, 1, 1), torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1)
        >>> out, log_sum = SiblingPass()(SiblingInput(zero, zero, zero[..., 0], value), plan)
        >>> out.flatten().tolist()  # each the mean of the other two
        [3.0, 2.5, 1.5]
    """

    explain = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def forward(self, x: SiblingInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
        """Attention of every non-root slot over its siblings, without itself."""
        pairs, first = plan.pairs, plan.num_trees
        size = (len(x.query), len(x.query))
        share, log_sum = sibling_shares(x, plan)
        if x.mask is not None:
            share = share * x.mask[pairs.public]
        edges = torch.stack([pairs.source - first, pairs.target - first])
        out = self.propagate(edges, value=x.value, share=share, pair_ptr=pairs.ptr, size=size)
        return out, log_sum

    def message(self, value_j: Tensor, share: Tensor) -> Tensor:
        """Value of the sibling, weighted."""
        return value_j * share[:, :, None]

    def aggregate(self, inputs: Tensor, pair_ptr: Tensor) -> Tensor:
        """Sum over the contiguous pairs of each slot."""
        return segment_sum(inputs, pair_ptr)


class DownwardPass(MessagePassing):
    """Parents to children: hand down the parent's state.

    ``forward(x [k, ...], group_ptr [k + 1], n) -> [n, ...]``.

    Example:
        >>> DownwardPass()(torch.tensor([[3.0], [7.0]]), torch.tensor([0, 2, 3]), 3).tolist()
        [[3.0], [3.0], [7.0]]
    """

    explain = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def forward(self, x: Tensor, group_ptr: Tensor, n: int) -> Tensor:
        """The parent's row for every child."""
        k = len(x)
        child = torch.arange(n, device=x.device)
        parent = torch.repeat_interleave(
            torch.arange(k, device=x.device), group_ptr.diff(), output_size=n
        )
        out = self.propagate(
            torch.stack([parent, child]), x=x.reshape(k, -1), group_ptr=group_ptr, size=(k, n)
        )
        return out.view(n, *x.shape[1:])

    def message(self, x: Tensor, group_ptr: Tensor, edge_index_i: Tensor) -> Tensor:
        """Message to a child; every child hears from one parent."""
        return segment_expand(x, group_ptr, len(edge_index_i))

    def aggregate(self, inputs: Tensor) -> Tensor:
        """One message per child, in order: nothing to add up."""
        return inputs


class EdgePasses(torch.nn.Module):
    """The passes of the ``"edge"`` backend; no parameters.

    ``upward``, ``sibling`` and ``downward`` are block-tied attention; ``reach`` is the move of
    key-tied attention, from the slots that a leaf reaches to the leaf.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 3, 3, 4, -1]).plan  # root -> leaf 0, (1, 2)
        >>> (mean,) = EdgePasses().means((torch.tensor([[1.0], [2.0], [6.0]]),), plan)
        >>> mean.flatten().tolist()
        [3.0, 1.0, 4.0, 2.0, 6.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.upward = UpwardPass()
        self.sibling = SiblingPass()
        self.downward = DownwardPass()
        self.reach = ReachPass()

    def means(self, xs: tuple[Tensor, ...], plan: TreePlan) -> tuple[Tensor, ...]:
        """Means over the leaves under every slot: each ``[N, ..., D]`` to ``[S, ..., D]``."""
        if plan.num_levels == 0:
            return xs
        x = torch.cat(xs, -1)
        share = plan.share.to(x.dtype)
        leaves = by_level(x.index_select(0, plan.leaf_row), plan.level_leaves)
        slots: list[Tensor] = []
        below: Tensor | None = None
        for level in reversed(range(plan.num_levels)):
            slots.append(place(leaves[level], below, plan, level))
            if level > 0:
                low, high = plan.level_slots[level : level + 2]
                below = self.upward(slots[-1], share[low:high], level_ptr(plan, level))
        return torch.cat(slots[::-1]).split([part.size(-1) for part in xs], -1)

    def paths(self, x: Tensor, plan: TreePlan) -> Tensor:
        """Sums from the root's child to every leaf, ``[S - B, ...]`` to ``[N, ...]`` by row."""
        parts = by_level(x, plan.level_slots[1:])
        total = x.new_zeros((plan.num_trees, *x.shape[1:]))
        leaves: list[Tensor] = []
        for level in range(plan.num_levels):
            low, high = plan.level_slots[level : level + 2]
            if level > 0:
                parent = level_parents(total, plan, level)
                total = self.downward(parent, level_ptr(plan, level), high - low) + parts[level - 1]
            mine = plan.leaf_slot[plan.level_leaves[level] : plan.level_leaves[level + 1]]
            leaves.append(total.index_select(0, mine - low))
        return torch.cat(leaves).index_select(0, plan.leaf_place) if leaves else x


def by_level(x: Tensor, bounds: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The rows of each level; ``bounds`` are a plan's ``level_slots`` or ``level_leaves``."""
    return x.split([high - low for low, high in pairwise(bounds)])


def level_ptr(plan: TreePlan, level: int) -> Tensor:
    """The groups of a level as segments of its slots."""
    groups = plan.group_ptr[plan.level_groups[level] : plan.level_groups[level + 1] + 1]
    return groups - plan.level_slots[level]


def level_parents(x: Tensor, plan: TreePlan, level: int) -> Tensor:
    """From the rows of the level above, those of the parents of each group of a level."""
    parents = plan.group_parent[plan.level_groups[level] : plan.level_groups[level + 1]]
    return x.index_select(0, parents - plan.level_slots[level - 1])


def place(leaves: Tensor, inner: Tensor | None, plan: TreePlan, level: int) -> Tensor:
    """All slots of a level, from its leaves (in slot order) and inner slots (by group)."""
    if inner is None:  # the deepest level
        return leaves
    source = plan.slot_source[plan.level_slots[level] : plan.level_slots[level + 1]]
    return torch.cat([leaves, inner]).index_select(0, source)
