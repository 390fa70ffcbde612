"""The dynamic program's three moves as message passing: upward, among siblings, downward.

Each is a small :class:`~torch_geometric.nn.MessagePassing` module, since one class has one
``message``.  This is the readable backend, one message per tree edge or ordered sibling pair;
:mod:`hsa_geo.ops.block` computes the same sibling pass in padded blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.segment import segment_expand, segment_max, segment_sum

__all__ = [
    "DownwardPass",
    "EdgePasses",
    "SiblingInput",
    "SiblingPass",
    "UpwardPass",
    "log_safe",
    "pair_scores",
]


class SiblingInput(NamedTuple):
    """What the sibling pass needs; the first row of each is the first non-root slot.

    The score of C for B is ``query_B . key_C + key_term_C (+ bias_BC)``: scale and positions are
    already inside query and key, ``log|C|`` and the l2 term of the key inside ``key_term``.

    Attributes:
        query: ``[S - B, H, D]``.
        key: ``[S - B, H, D]``.
        key_term: ``[S - B, H]``.
        value: ``[S - B, H, Dv]``.
        bias: ``[P, H or 1]`` by public pair, or None.
        mask: ``[P, H]`` by public pair, multiplies the weights (dropout), or None.
    """

    query: Tensor
    key: Tensor
    key_term: Tensor
    value: Tensor
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
    return score if x.bias is None else score + x.bias[pairs.public]


class UpwardPass(MessagePassing):
    """Children to parents: ``sum_B share_B x_B``, so means of means weighted by leaves.

    ``forward(x [n, ...], share [n], group_ptr [k + 1]) -> [k, ...]`` for the n children of k
    groups, given group by group.
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


class SiblingPass(MessagePassing):
    """Sibling to sibling: softmax over the others, and its log-sum-exp.

    ``forward(x, plan) -> (output [S - B, H, Dv], log_sum [S - B, H])`` over the non-root slots.
    """

    explain = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def forward(self, x: SiblingInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
        """Attention of every non-root slot over its siblings, without itself."""
        pairs, first = plan.pairs, plan.num_trees
        size = (len(x.query), len(x.query))
        score = pair_scores(x, plan)  # [P, H]
        top = segment_max(score, pairs.ptr).clamp(min=torch.finfo(score.dtype).min)  # [S-B, H]
        weight = (score - segment_expand(top, pairs.ptr, len(score))).exp()
        total = segment_sum(weight, pairs.ptr)
        share = weight / segment_expand(torch.where(total > 0, total, 1.0), pairs.ptr, len(score))
        if x.mask is not None:
            share = share * x.mask[pairs.public]
        edges = torch.stack([pairs.source - first, pairs.target - first])
        out = self.propagate(edges, value=x.value, share=share, pair_ptr=pairs.ptr, size=size)
        return out, top + log_safe(total)

    def message(self, value_j: Tensor, share: Tensor) -> Tensor:
        """Value of the sibling, weighted."""
        return value_j * share[:, :, None]

    def aggregate(self, inputs: Tensor, pair_ptr: Tensor) -> Tensor:
        """Sum over the contiguous pairs of each slot."""
        return segment_sum(inputs, pair_ptr)


class DownwardPass(MessagePassing):
    """Parents to children: hand down the parent's state.

    ``forward(x [k, ...], group_ptr [k + 1], n) -> [n, ...]``.
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
    """The three passes of the ``"edge"`` backend; no parameters.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([2, 2, -1]).plan
        >>> passes = EdgePasses()
        >>> passes.upward(torch.tensor([[2.0], [4.0]]), torch.tensor([0.5, 0.5]),
        ...               torch.tensor([0, 2])).tolist()
        [[3.0]]
    """

    def __init__(self) -> None:
        super().__init__()
        self.upward = UpwardPass()
        self.sibling = SiblingPass()
        self.downward = DownwardPass()
