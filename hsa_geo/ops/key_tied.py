r"""Key-tied attention: one softmax per leaf, over itself and the siblings on its way to the root.

For a leaf i, a sibling C of A (the leaf itself, or one of its ancestors)::

    t_iC    = q_i . kbar_C scale + term_C + e_A . e_C + bias_AC + log|C|
    log Z_i = log(exp(s_ii) + sum_C exp(t_iC))
    o_i     = exp(s_ii - log Z_i) v_i + sum_C exp(t_iC - log Z_i) vbar_C
    phi(R)  = - mean_i log Z_i

There is no recursion but in the means.  Only the side of the keys is tied, so the matrix is at
least as near to flat attention as block-tied attention, at a cost of O(N b log N) pairs.

The terms of the l2 energy are those of :mod:`hsa_geo.ops.dynamic`.  Two ways to compute it stand
here: message passing, one message for each pair of a leaf and a slot that it reaches, and padded
blocks, one for each group of leaves, which all reach the same slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.reach import ReachBlock
from hsa_geo.ops.dynamic import own_positions
from hsa_geo.ops.inputs import Dropout, Inputs
from hsa_geo.ops.packed import tree_shares
from hsa_geo.ops.reach_pass import ReachPass
from hsa_geo.ops.segment import segment_expand, segment_max, segment_sum
from hsa_geo.ops.walk import slot_means

__all__ = [
    "FusedKeyInput",
    "KeyInput",
    "KeySolution",
    "by_blocks",
    "energy_of",
    "fused_key_input",
    "key_input",
    "solve_by_blocks",
    "solve_by_edges",
]


class KeyInput(NamedTuple):
    """What key-tied attention needs, by row of the leaves or by slot.

    Attributes:
        query: ``[N, H, D]``, the scale inside.
        own: ``[N, H]``, ``s_ii``.
        value: ``[N, H, Dv]``.
        mean_key: ``[S, H, D]``.
        key_term: ``[S, H]``, ``log|C|`` and the l2 term of the key.
        mean_value: ``[S, H, Dv]``.
        pos: ``[S, H, P]``, embedding of the slot's position among its siblings, or None.
        bias: ``[pairs, H or 1]`` by public pair, or None.
        reach_bias: ``[Q, H or 1]`` by :class:`~hsa_geo.data.reach.Reach`, or None.
        mask: Dropout: ``([Q, H], [N, H])`` by :class:`~hsa_geo.data.reach.Reach`, or None.
    """

    query: Tensor
    own: Tensor
    value: Tensor
    mean_key: Tensor
    key_term: Tensor
    mean_value: Tensor
    pos: Tensor | None
    bias: Tensor | None
    reach_bias: Tensor | None
    mask: Dropout | None


class FusedKeyInput(NamedTuple):
    """What the compiled kernels need: a leaf's own key and value are those of its slot.

    Attributes:
        query: ``[N, H, D]``, without the scale.
        own: ``[N, H]``, what ``s_ii`` has beside the product and the term: |e|^2; or None.
        mean_key, key_term, mean_value, pos, bias, reach_bias, mask: As in :class:`KeyInput`.
        scale: Factor of q . k.
    """

    query: Tensor
    own: Tensor | None
    mean_key: Tensor
    key_term: Tensor
    mean_value: Tensor
    pos: Tensor | None
    bias: Tensor | None
    reach_bias: Tensor | None
    mask: Dropout | None
    scale: float

    def whole(self, plan: TreePlan) -> KeyInput:
        """The same for the other ways.

        Args:
            plan: The plan.

        Returns:
            With what the leaves have of their own.
        """
        slot = plan.row_slot
        query = self.query * self.scale
        own = (query * self.mean_key[slot]).sum(-1) + self.key_term[slot]
        return KeyInput(
            query,
            own if self.own is None else own + self.own,
            self.mean_value[slot],
            *self[2:9],
        )


@dataclass(frozen=True)
class KeySolution:
    """What key-tied attention found.

    Attributes:
        out: ``[N, H, Dv]``, output of every leaf.
        phi: ``[B, H]``, energy of every root, without the part of the queries alone.
        own: ``[N, H]``, theta_ii, after dropout.
        share: ``[Q, H]``, weight of every pair of a leaf and all of C, before dropout; empty where
            blocks were used.
    """

    out: Tensor
    phi: Tensor
    own: Tensor
    share: Tensor


def fused_key_input(x: Inputs, mask: Dropout | None) -> FusedKeyInput:
    """Means under every slot, for the compiled kernels.

    Args:
        x: Checked inputs.
        mask: Dropout mask, already scaled, or None.

    Returns:
        What they take.
    """
    plan = x.plan
    mean_key, mean_value = slot_means(x.key, plan), slot_means(x.value, plan)
    key_term = plan.mass.to(x.value.dtype).log()[:, None].expand(-1, x.query.size(1))
    if x.term is not None:
        key_term = key_term + slot_means(x.term, plan)
    pos = own = None
    if x.pos is not None:
        pos = x.pos.index_select(0, plan.slot_top)
        own = own_positions(x.pos, plan).index_select(0, plan.leaf_place)
    return FusedKeyInput(
        *(x.query, own, mean_key, key_term, mean_value, pos, x.bias, x.reach_bias, mask, x.scale)
    )


def key_input(x: Inputs, mask: Dropout | None) -> KeyInput:
    """Means under every slot, and the scores of the leaves with themselves.

    Args:
        x: Checked inputs.
        mask: Dropout mask, already scaled, or None.

    Returns:
        What the two ways below take.
    """
    return fused_key_input(x, mask).whole(x.plan)


def energy_of(log_z: Tensor, plan: TreePlan) -> Tensor:
    """The energy of every tree, the mean of its leaves' log-sum-exps with the sign changed.

    Args:
        log_z: ``[N, H]``.
        plan: The plan.

    Returns:
        ``[B, H]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([2, 2, -1]).plan
        >>> energy_of(torch.tensor([[1.0], [3.0]]), plan)
        tensor([[-2.]])
    """
    tree, share, roots = tree_shares(plan, log_z)
    weighted = log_z * share.to(log_z.dtype)[:, None]
    return -log_z.new_zeros(roots, log_z.size(1)).index_add(0, tree, weighted)


def solve_by_edges(x: KeyInput, plan: TreePlan, reach_pass: ReachPass) -> KeySolution:
    """One message for each pair of a leaf and a slot that it reaches.

    Args:
        x: From :func:`key_input`.
        plan: The plan.
        reach_pass: The message passing module.

    Returns:
        The solution, with the weights of all pairs.
    """
    reach = plan.reach
    score = (x.query[reach.row] * x.mean_key[reach.slot]).sum(-1) + x.key_term[reach.slot]  # [Q, H]
    if x.pos is not None:
        score = score + (x.pos[reach.branch] * x.pos[reach.slot]).sum(-1)
    if x.bias is not None:
        score = score + x.bias[reach.public]
    if x.reach_bias is not None:
        score = score + x.reach_bias
    top = torch.maximum(segment_max(score, reach.ptr), x.own.detach())  # [N, H]
    weight = (score - segment_expand(top, reach.ptr, len(score))).exp()
    own = (x.own - top).exp()
    total = segment_sum(weight, reach.ptr) + own
    share, own = weight / segment_expand(total, reach.ptr, len(score)), own / total
    kept = share if x.mask is None else share * x.mask[0]
    own = own if x.mask is None else own * x.mask[1]
    out = reach_pass(x.mean_value, kept, plan) + own[..., None] * x.value
    return KeySolution(out, energy_of(top + total.log(), plan), own, share)


def solve_by_blocks(x: KeyInput, plan: TreePlan) -> KeySolution:
    """Groups of leaves in padded blocks ``[K, H, W, L]``: W leaves that reach L slots.

    Args:
        x: From :func:`key_input`.
        plan: The plan.

    Returns:
        The solution, without the weights of the pairs.
    """
    out, log_z, own = by_blocks(x, plan)
    return KeySolution(out, energy_of(log_z, plan), own, x.own[:0])


def by_blocks(x: KeyInput, plan: TreePlan) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`solve_by_blocks`, with every leaf's log-sum-exp.

    Args:
        x: From :func:`key_input`.
        plan: The plan.

    Returns:
        Outputs ``[N, H, Dv]``, log-sum-exps and weights of the leaves themselves ``[N, H]``.
    """
    rows, outs, sums, owns = [], [], [], []
    for block in plan.reach_blocks:
        if block.split:  # scores of a wide group are computed anew for the gradient
            parts = checkpoint(_attend, x, plan, block, use_reentrant=False)
        else:
            parts = _attend(x, plan, block)
        out, log_z, own = (part[block.real] for part in parts)
        rows.append(block.row[block.real])
        outs.append(out)
        sums.append(log_z)
        owns.append(own)
    # What is left are leaves that are whole trees.
    left = torch.ones_like(x.own) if x.mask is None else x.mask[1]
    out, log_z, own = left[..., None] * x.value, x.own, left
    if rows:
        at = torch.cat(rows)
        out, log_z = (
            out.index_copy(0, at, torch.cat(outs)),
            log_z.index_copy(0, at, torch.cat(sums)),
        )
        own = own.index_copy(0, at, torch.cat(owns))
    return out, log_z, own


def _attend(x: KeyInput, plan: TreePlan, block: ReachBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs ``[K, W, H, Dv]``, log-sum-exps and the leaves' own weights ``[K, W, H]``."""
    lists = plan.reach_lists
    slot, branch = lists.slot[block.entry], lists.branch[block.entry]  # [K, L]
    key = x.mean_key[slot].permute(0, 2, 3, 1)  # [K, H, D, L]
    score = x.query[block.row].transpose(1, 2) @ key  # [K, H, W, L]
    score = score + x.key_term[slot].transpose(1, 2)[:, :, None]
    if x.pos is not None:
        e = x.pos[slot]  # [K, L, H, P]
        above = (x.pos[branch.clamp(min=0)] * e).sum(-1).transpose(1, 2)[:, :, None]  # e_A . e_C
        beside = x.pos[plan.row_slot[block.row]].transpose(1, 2) @ e.permute(0, 2, 3, 1)
        score = score + torch.where((branch < 0)[:, None, None], beside, above)

    place = torch.arange(slot.size(1), device=plan.device)
    rank = block.rank[..., None]
    itself = place == rank  # [K, W, L]
    number = place - (place > rank).long()  # of C among the slots that the leaf reaches
    if x.bias is not None:
        group = lists.group[lists.row_list[block.row]]  # [K, W]
        others = plan.group_ptr.diff()[group] - 1
        first = (plan.pair_start[group] + block.rank * others)[..., None]
        public = lists.public[block.entry][:, None]
        public = torch.where(public < 0, first + number, public)
        public = torch.where(block.valid[:, None] & ~itself, public, 0)
        score = score + x.bias[public].permute(0, 3, 1, 2)
    if x.reach_bias is not None or x.mask is not None:
        at = lists.row_ptr[block.row][..., None] + number
        at = torch.where(block.valid[:, None] & ~itself, at, 0)
    if x.reach_bias is not None and len(x.reach_bias):
        score = score + x.reach_bias[at].permute(0, 3, 1, 2)
    score = torch.where(itself[:, None], x.own[block.row].transpose(1, 2)[..., None], score)
    score = score.masked_fill(~block.valid[:, None, None], -torch.inf)

    top = score.detach().amax(-1, keepdim=True)  # of a leaf itself it is finite
    weight = (score - top).exp()
    total = weight.sum(-1, keepdim=True)
    share = weight / total
    if x.mask is not None:
        kept = x.mask[0][at] if len(x.mask[0]) else x.own.new_ones(*at.shape, 1)
        kept = torch.where(itself[..., None], x.mask[1][block.row][:, :, None], kept)
        share = share * kept.permute(0, 3, 1, 2)
    out = (share @ x.mean_value[slot].transpose(1, 2)).transpose(1, 2)
    log_z = (top + total.log()).squeeze(-1).transpose(1, 2)
    own = share.gather(-1, block.rank[:, None, :, None].expand(*share.shape[:3], 1))
    return out, log_z, own.squeeze(-1).transpose(1, 2)
