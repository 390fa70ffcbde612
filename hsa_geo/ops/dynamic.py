r"""The dynamic program of hierarchical self-attention (compiled: ops/compiled/recursion.py).

Bottom-up, means of queries, keys and values; then attention among siblings, all levels at
once; then scalars, one a node and head, up and down the levels::

    f_A     = -phi(A) = sum_B |B|/|A| log Z_B,      f_i = s_ii at a leaf
    log Z_B = logaddexp(f_B, L_B),                  L_B = log sum_C |C| exp(s_BC)
    w_B     = sigmoid(f_B - L_B),                   sum_C a_BC = sigmoid(L_B - f_B)
    c_B     = c_A w_B,   u_B = u_A + c_A sum_C a_BC vbar_C
    o_i     = u_i + c_i v_i

with C over the siblings of B, A the parent of B, c = 1 and u = 0 at the root (paper, Section 4).

The l2 energy needs no code of its own: ``-|q - k|^2 scale/2`` is ``q.k scale`` plus a term of
the key, ``-|k|^2 scale/2``, whose block mean is that of the key's slot, plus a term of the query
alone, which is the same for every j, so that it leaves Theta alone and adds its mean to phi
(:func:`~hsa_geo.ops.inputs.query_energy`, which is not part of the solution here).
(So that nothing is lost where norms are large and distances small, the origin is moved to the
mean key beforehand.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.edge import SiblingInput, by_level, level_parents, level_ptr, place
from hsa_geo.ops.inputs import Dropout, Inputs

__all__ = ["Passes", "Solution", "own_scores", "solve"]


class Passes(Protocol):
    """What a backend provides (see :class:`hsa_geo.ops.edge.EdgePasses`)."""

    def means(self, xs: tuple[Tensor, ...], plan: TreePlan) -> tuple[Tensor, ...]:
        """Means of each tensor over the leaves under every slot."""

    def paths(self, x: Tensor, plan: TreePlan) -> Tensor:
        """Sums along the paths to the leaves."""

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
        leave: ``[S - B, H]``, c_A sum_C a_BC, what every non-root slot B under A gives to its
            siblings.
        own: ``[N, H]``, weight theta_ii of every leaf on itself (after dropout).
        sibling: The input of the sibling pass.
    """

    out: Tensor
    phi: Tensor
    leave: Tensor
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
    heads, dim_v = x.value.size(1), x.value.size(2)

    # Means of query, key, value (and of the key's own term, for l2) under every slot: [S, H, *].
    leaves: tuple[Tensor, ...] = (x.query * x.scale, x.key, x.value)
    if x.term is not None:
        leaves += (x.term[..., None],)
    query, key, value, *rest = passes.means(leaves, plan)

    # Sibling scores, all levels at once.
    key_term = plan.mass[first:].to(value.dtype).log()[:, None].expand(-1, heads)  # log|C|
    if x.term is not None:
        key_term = key_term + rest[0][first:, :, 0]
    sibling = SiblingInput(
        query[first:],
        key[first:],
        key_term,
        value[first:],
        None if x.pos is None else x.pos.index_select(0, plan.slot_top[first:]),
        x.bias,
        None if mask is None else mask[0],
    )
    out, log_sum = passes.sibling(sibling, plan)  # [S - B, H, Dv], [S - B, H]

    # Up: f of every slot, log Z of every non-root slot.
    f_leaves = by_level(own_scores(x), plan.level_leaves)  # [N, H] in slot order
    outside = by_level(log_sum, plan.level_slots[1:])
    f_level: list[Tensor] = []
    log_z_level: list[Tensor] = []
    below: Tensor | None = None
    for level in reversed(range(plan.num_levels)):
        f_level.append(place(f_leaves[level], below, plan, level))
        if level > 0:
            low, high = plan.level_slots[level : level + 2]
            log_z_level.append(_log_add(f_level[-1], outside[level - 1]))
            below = passes.upward(log_z_level[-1], share[low:high], level_ptr(plan, level))
    phi = -f_level[-1] if f_level else log_sum

    # Down: log c of every slot, a sum along the path from the root.
    log_c_level = [log_sum.new_zeros(first, heads)]
    log_c_above: list[Tensor] = []  # of the parent
    leave_level: list[Tensor] = []
    for level in range(1, plan.num_levels):
        low, high = plan.level_slots[level : level + 2]
        parent = level_parents(log_c_level[-1], plan, level)
        log_c_above.append(passes.downward(parent, level_ptr(plan, level), high - low))
        # From the difference of f and L, so that what stays and what leaves add up to one even
        # where both are so large that log Z has no digits left.
        more = f_level[-1 - level] - outside[level - 1]
        log_c_level.append(log_c_above[-1] + logsigmoid(more))
        leave_level.append((log_c_above[-1] + logsigmoid(-more)).exp())
    leave = torch.cat(leave_level) if leave_level else log_sum

    # u of every leaf: c_A sum_C a_BC vbar_C = leave_B * output, summed.
    u = passes.paths(leave[..., None] * out, plan) if dim_v else x.value
    own = torch.cat(log_c_level).index_select(0, plan.row_slot).exp()  # c of leaves, [N, H]
    if mask is not None:
        own = own * mask[1]
    return Solution(
        out=u + own[..., None] * x.value,
        phi=phi,
        leave=leave,
        own=own,
        sibling=sibling,
    )


def _log_add(a: Tensor, b: Tensor) -> Tensor:
    """``log(exp(a) + exp(b))`` for finite a; b may be -inf.

    torch.logaddexp has the same value and gradient, but NaN as second derivative where one
    exceeds the other by more than the exponent's range.
    """
    top = torch.maximum(a, b).detach()
    return top + ((a - top).exp() + (b - top).exp()).log()


def own_scores(x: Inputs) -> Tensor:
    """``s_ii`` of every leaf ``[N, H]`` in slot order."""
    plan = x.plan
    own = (x.query * x.key).sum(-1) * x.scale
    if x.term is not None:
        own = own + x.term
    if plan.leaf_weight is not None:  # w equal leaves: log(w exp(s_ii))
        own = own + plan.leaf_weight.to(own.dtype).log()[:, None]
    own = own.index_select(0, plan.leaf_row)
    return own if x.pos is None else own + own_positions(x.pos, plan)


def own_positions(pos: Tensor, plan: TreePlan) -> Tensor:
    """``|e|^2`` of every leaf's own position ``[N, H]`` in slot order, zero where it is a root."""
    e = pos.index_select(0, plan.slot_bottom[plan.leaf_slot])
    return torch.where(plan.leaf_is_root[plan.leaf_row][:, None], 0.0, e.square().sum(-1))
