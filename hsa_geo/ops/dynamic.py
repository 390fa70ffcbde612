r"""The dynamic program of hierarchical self-attention; the only place it is written.

Bottom-up, means of queries, keys and values; then attention among siblings, all levels at
once; then two scalars a node and head, up and down the levels::

    f_A     = -phi(A) = sum_B |B|/|A| log Z_B,      f_i = s_ii at a leaf
    log Z_B = logaddexp(f_B, L_B),                  L_B = log sum_C |C| exp(s_BC)
    w_B     = exp(f_B - log Z_B),                   sum_C a_BC = exp(L_B - log Z_B)
    c_B     = c_A w_B,   u_B = u_A + c_A sum_C a_BC vbar_C
    o_i     = u_i + c_i v_i

with C over the siblings of B, A the parent of B, c = 1 and u = 0 at the root (paper, Section 4).

The l2 energy needs no code of its own: ``-|q - k|^2 scale/2`` is ``q.k scale`` plus a term of
the key, ``-|k|^2 scale/2``, whose block mean is that of the key's slot, plus a term of the query
alone, which is the same for every j, so that it leaves Theta alone and adds its mean to phi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.edge import SiblingInput
from hsa_geo.ops.inputs import Dropout, Inputs

__all__ = ["Passes", "Solution", "solve"]


class Passes(Protocol):
    """What a backend provides: the three moves (see :class:`hsa_geo.ops.edge.EdgePasses`)."""

    def upward(self, x: Tensor, share: Tensor, group_ptr: Tensor) -> Tensor:
        """Weighted sums of groups of children."""

    def sibling(self, x: SiblingInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
        """Attention over siblings and its log-sum-exp."""

    def downward(self, x: Tensor, group_ptr: Tensor, n: int) -> Tensor:
        """The parent's row for every child."""


@dataclass(frozen=True)
class Solution:
    """What the dynamic program found.

    Attributes:
        out: ``[N, H, Dv]``, output of every leaf, in the dtype of the computation.
        phi: ``[B, H]``, energy of every root.
        log_z: ``[S - B, H]``, log Z of every non-root slot.
        carried: ``[G, H]``, c of the parent of every group.
        own: ``[N, H]``, weight theta_ii of every leaf on itself (after dropout).
        sibling: The input of the sibling pass.
    """

    out: Tensor
    phi: Tensor
    log_z: Tensor
    carried: Tensor
    own: Tensor
    sibling: SiblingInput


def solve(x: Inputs, passes: Passes, mask: Dropout | None = None) -> Solution:
    """Run the dynamic program.

    Args:
        x: Checked inputs.
        passes: The backend's three moves.
        mask: Dropout mask over pairs ``[P, H]`` and leaves ``[N, H]``, already scaled; phi, w
            and c are computed without it. (default: :obj:`None`)

    Returns:
        The solution.
    """
    plan, first = x.plan, x.plan.num_trees
    share = plan.share.to(x.query.dtype)  # |B|/|A|, [S]
    dim, dim_v = x.query.size(2), x.value.size(2)

    # Means of query, key, value (and of |q|^2, |k|^2 for l2) under every slot: [S, H, *].
    packed = [x.query * x.scale, x.key, x.value]
    if x.l2:
        packed += [t.square().sum(-1, keepdim=True) * (x.scale / 2) for t in (x.query, x.key)]
    mean = _means(torch.cat(packed, -1), plan, share, passes)
    query, key, value, *norms = mean.split([dim, dim, dim_v] + [1] * (2 * x.l2), -1)

    # Sibling scores, all levels at once.
    key_term = plan.count.to(mean.dtype).log()[:, None].expand(-1, mean.size(1))  # log|C|
    if x.l2:
        key_term = key_term - norms[1].squeeze(-1)
    if x.pos is not None:  # e(B) . e(C) as further features of query and key
        e = x.pos.index_select(0, plan.slot_top)  # [S, H, P]
        query, key = torch.cat([query, e], -1), torch.cat([key, e], -1)
    sibling = SiblingInput(
        query[first:],
        key[first:],
        key_term[first:],
        value[first:],
        x.bias,
        None if mask is None else mask[0],
    )
    out, log_sum = passes.sibling(sibling, plan)  # [S - B, H, Dv], [S - B, H]

    # Up: f of every slot, log Z of every non-root slot.
    f = _own_scores(x)  # [N, H] in slot order
    f_level: list[Tensor] = [f.new_empty(0)] * plan.num_levels
    log_z_level: list[Tensor] = [f.new_empty(0)] * plan.num_levels
    below: Tensor | None = None
    for level in reversed(range(plan.num_levels)):
        f_level[level] = _place(f, below, plan, level)
        if level > 0:
            slots = slice(plan.level_slots[level] - first, plan.level_slots[level + 1] - first)
            log_z_level[level] = torch.logaddexp(f_level[level], log_sum[slots])
            below = passes.upward(log_z_level[level], *_level(plan, share, level))
    phi = -f_level[0] if plan.num_levels else f
    if x.l2:  # the term of the query alone
        phi = phi + norms[0][:first].squeeze(-1)

    # Down: c and u of every slot; u first in one tensor [n, H, Dv + 1].
    heads = value.size(1)
    state = torch.cat([value.new_zeros(first, heads, dim_v), value.new_ones(first, heads, 1)], -1)
    leaf_state, carried = [_leaves(state, plan, 0)], []
    for level in range(1, plan.num_levels):
        low, high = plan.level_slots[level], plan.level_slots[level + 1]
        groups = slice(plan.level_groups[level], plan.level_groups[level + 1])
        parent = state.index_select(0, plan.group_parent[groups] - plan.level_slots[level - 1])
        carried.append(parent[..., -1])
        _, ptr = _level(plan, share, level)
        u, c = passes.downward(parent, ptr, high - low).split([dim_v, 1], -1)
        log_z = log_z_level[level]
        w = (f_level[level] - log_z).exp()[..., None]
        a = (log_sum[low - first : high - first] - log_z).exp()[..., None]
        state = torch.cat([u + c * a * out[low - first : high - first], c * w], -1)
        leaf_state.append(_leaves(state, plan, level))

    u, own = torch.cat(leaf_state).index_select(0, plan.leaf_place).split([dim_v, 1], -1)
    if mask is not None:
        own = own * mask[1][..., None]
    return Solution(
        out=u + own * x.value,
        phi=phi,
        log_z=torch.cat(log_z_level[1:]) if plan.num_levels > 1 else log_sum,
        carried=torch.cat(carried) if carried else log_sum,
        own=own.squeeze(-1),
        sibling=sibling,
    )


def _level(plan: TreePlan, share: Tensor, level: int) -> tuple[Tensor, Tensor]:
    """Shares of the slots of a level, and their groups as segments starting at 0."""
    low, high = plan.level_slots[level], plan.level_slots[level + 1]
    ptr = plan.group_ptr[plan.level_groups[level] : plan.level_groups[level + 1] + 1] - low
    return share[low:high], ptr


def _means(x: Tensor, plan: TreePlan, share: Tensor, passes: Passes) -> Tensor:
    """Mean over the leaves under every slot: ``[N, H, F]`` by row to ``[S, H, F]``."""
    x = x.index_select(0, plan.leaf_row)
    levels: list[Tensor] = []
    below: Tensor | None = None
    for level in reversed(range(plan.num_levels)):
        levels.append(_place(x, below, plan, level))
        if level > 0:
            below = passes.upward(levels[-1], *_level(plan, share, level))
    return torch.cat(levels[::-1]) if levels else x


def _place(leaves: Tensor, inner: Tensor | None, plan: TreePlan, level: int) -> Tensor:
    """All slots of a level, from the leaves (in slot order) and the inner slots (by group)."""
    mine = slice(plan.level_leaves[level], plan.level_leaves[level + 1])
    if inner is None:  # the deepest level: leaves only
        return leaves[mine]
    low = plan.level_slots[level]
    groups = slice(plan.level_groups[level + 1], plan.level_groups[level + 2])
    inner_at = plan.group_parent[groups] - low
    if mine.start == mine.stop:
        place = torch.empty_like(inner_at)
        place[inner_at] = torch.arange(len(inner_at), device=inner_at.device)
        return inner.index_select(0, place)
    source = torch.empty(
        plan.level_slots[level + 1] - low, dtype=torch.int64, device=inner_at.device
    )
    kept = mine.stop - mine.start
    source[plan.leaf_slot[mine] - low] = torch.arange(kept, device=inner_at.device)
    source[inner_at] = torch.arange(kept, kept + len(inner_at), device=inner_at.device)
    return torch.cat([leaves[mine], inner]).index_select(0, source)


def _leaves(state: Tensor, plan: TreePlan, level: int) -> Tensor:
    """The leaves among the slots of a level."""
    mine = slice(plan.level_leaves[level], plan.level_leaves[level + 1])
    return state.index_select(0, plan.leaf_slot[mine] - plan.level_slots[level])


def _own_scores(x: Inputs) -> Tensor:
    """``s_ii`` of every leaf ``[N, H]`` in slot order (l2: without the query's own term)."""
    plan = x.plan
    own = (x.query * x.key).sum(-1) * x.scale
    if x.l2:
        own = own - x.key.square().sum(-1) * (x.scale / 2)
    own = own.index_select(0, plan.leaf_row)
    if x.pos is not None:  # the leaf's own e, zero where the leaf is a root
        e = x.pos.index_select(0, plan.slot_bottom[plan.leaf_slot])
        is_root = plan.leaf_is_root[plan.leaf_row][:, None]
        own = own + torch.where(is_root, 0.0, e.square().sum(-1))
    return own
