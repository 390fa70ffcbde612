"""Key-tied attention by compiled kernels: their arguments, and their work on all threads."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.compiled.frame import PER_PIECE, first_time, flat, has_run, rows
from hsa_geo.ops.compiled.memory import empty
from hsa_geo.ops.compiled.reach import (
    Lists,
    ReachAdjoints,
    ReachScores,
    reach_backward,
    reach_forward,
)
from hsa_geo.ops.compiled.threads import run
from hsa_geo.ops.key_tied import FusedKeyInput

__all__ = ["backward", "forward"]

#: Leaves of a wide group that are one piece of work.
_LEAVES = 64


def _lists(plan: TreePlan) -> Lists:
    """The lists of a plan with their leaves, in pieces of work; kept with the plan."""
    kept: Lists | None = plan.__dict__.get("_compiled_reach")
    if kept is not None:
        return kept
    lists = plan.reach_lists
    row_list = lists.row_list.numpy()
    order = np.argsort(row_list, kind="stable")
    row = order[np.searchsorted(row_list[order], 0) :]  # without leaves that are whole trees
    which = row_list[row]
    change = np.flatnonzero(np.diff(which, prepend=-1))  # first leaf of each list
    place = np.arange(len(row)) - np.repeat(change, np.diff(change, append=len(row)))
    begin = np.flatnonzero(place % _LEAVES == 0)
    group = lists.group
    kept = Lists(
        ptr=lists.ptr.numpy(),
        slot=lists.slot.numpy(),
        branch=lists.branch.numpy(),
        public=lists.public.numpy(),
        beside=plan.group_ptr.diff()[group].numpy(),
        pair=plan.pair_start[group].numpy(),
        row=row,
        part=np.append(begin, len(row)),
        part_list=which[begin],
        rank=lists.row_rank.numpy(),
        row_slot=plan.row_slot.numpy(),
        row_ptr=lists.row_ptr.numpy(),
    )
    plan.__dict__["_compiled_reach"] = kept
    return kept


def _scores(x: FusedKeyInput) -> ReachScores:
    def given(t: Tensor | None) -> Any:
        return flat(x.query.new_empty(0) if t is None else t)

    heads = x.query.size(1)
    pairs, leaves = (None, None) if x.mask is None else x.mask
    return ReachScores(
        scale=flat(x.query.new_tensor([x.scale]))[0],
        own=given(x.own),
        term=flat(x.key_term),
        pos=rows(x.query.new_empty(0, heads, 0) if x.pos is None else x.pos),
        bias=given(x.bias),
        bias_heads=1 if x.bias is None else x.bias.size(1),
        reach=given(x.reach_bias),
        reach_heads=1 if x.reach_bias is None else x.reach_bias.size(1),
        mask=given(pairs),
        own_mask=given(leaves),
        heads=heads,
    )


def _pieces(lists: Lists, heads: int, dtype: torch.dtype) -> list[tuple[int, int]]:
    """Runs of pieces of work that take about equally long."""
    cost = np.diff(lists.part) * np.diff(lists.ptr)[lists.part_list] * heads
    total = cost.cumsum()
    if not len(cost):
        return []
    threads = torch.get_num_threads()
    count = min(4 * threads if threads > 1 else 1, int(total[-1]) // PER_PIECE + 1)
    count = 1 if first_time("key forward", dtype) else count
    cuts = np.searchsorted(total, np.linspace(0, total[-1], count + 1)[1:-1])
    return list(pairwise(np.unique([0, *cuts, len(cost)]).tolist()))


def _head_pieces(lists: Lists, heads: int, dtype: torch.dtype) -> list[tuple[int, int]]:
    """Ranges of heads."""
    cost = int((np.diff(lists.part) * np.diff(lists.ptr)[lists.part_list]).sum()) * heads
    count = min(torch.get_num_threads(), heads, cost // PER_PIECE + 1)
    count = 1 if first_time("key backward", dtype) else max(count, 1)
    return list(pairwise([heads * i // count for i in range(count + 1)]))


def forward(x: FusedKeyInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
    """Outputs ``[N, H, Dv]`` and log-sum-exps ``[N, H]``.

    Args:
        x: The inputs, on the CPU, all float32 or all float64.
        plan: The plan.

    Returns:
        Outputs and log-sum-exps.
    """
    lists, heads = _lists(plan), x.query.size(1)
    out = empty(x.mean_value, len(x.query), *x.mean_value.shape[1:])
    log_z = empty(x.key_term, len(x.query), heads)
    tensors = (rows(x.query), rows(x.mean_key), rows(x.mean_value), lists, _scores(x))
    result, lse = rows(out), flat(log_z)
    pieces = _pieces(lists, heads, x.query.dtype)
    run(lambda w0, w1: reach_forward(*tensors, w0, w1, result, lse), pieces)
    has_run("key forward", x.query.dtype)
    alone, slot = _alone(plan)
    if len(alone):
        value, kept = x.mean_value[slot], None if x.mask is None else x.mask[1][alone]
        out[alone] = value if kept is None else value * kept[..., None]
        score = (x.query[alone] * x.mean_key[slot]).sum(-1) * x.scale + x.key_term[slot]
        log_z[alone] = score if x.own is None else score + x.own[alone]
    return out, log_z


def _alone(plan: TreePlan) -> tuple[Tensor, Tensor]:
    """Rows and slots of the leaves that are whole trees."""
    alone = (plan.reach_lists.row_list < 0).nonzero().squeeze(1)
    return alone, plan.row_slot[alone]


def backward(
    x: FusedKeyInput, plan: TreePlan, log_z: Tensor, grad: Tensor, grad_z: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of a call.

    Args:
        x: Its inputs.
        plan: The plan.
        log_z: Its log-sum-exps.
        grad: Gradient of the outputs ``[N, H, Dv]``.
        grad_z: Gradient of the log-sum-exps ``[N, H]``.

    Returns:
        Gradients of ``query``, ``own``, ``mean_key``, ``key_term``, ``mean_value``, ``pos``,
        ``bias`` and ``reach_bias``; those of the biases are of all heads.
    """
    lists, heads = _lists(plan), x.query.size(1)
    new = partial(torch.zeros, dtype=x.query.dtype)
    to_q = empty(x.query, *x.query.shape)
    to_key, to_value = new(x.mean_key.shape), new(x.mean_value.shape)
    to_term = new(x.key_term.shape)
    to_own = None if x.own is None else new(x.own.shape)
    to_pos = None if x.pos is None else new(x.pos.shape)
    to_bias = None if x.bias is None else new((len(x.bias), heads))
    to_reach = None if x.reach_bias is None else new((len(x.reach_bias), heads))
    nothing = flat(x.query.new_empty(0))
    to = ReachAdjoints(
        out=rows(grad),
        lse=flat(grad_z),
        q=rows(to_q),
        own=nothing if to_own is None else flat(to_own),
        key=flat(to_key),
        value=flat(to_value),
        term=flat(to_term),
        pos=nothing if to_pos is None else flat(to_pos),
        bias=nothing if to_bias is None else flat(to_bias),
        reach=nothing if to_reach is None else flat(to_reach),
    )
    tensors = (rows(x.query), rows(x.mean_key), rows(x.mean_value), lists, _scores(x))
    lse = flat(log_z)
    pieces = _head_pieces(lists, heads, x.query.dtype)
    run(lambda h0, h1: reach_backward(*tensors, h0, h1, lse, to), pieces)
    has_run("key backward", x.query.dtype)
    alone, slot = _alone(plan)
    if len(alone):
        kept = grad[alone] if x.mask is None else grad[alone] * x.mask[1][alone][..., None]
        to_value[slot], to_term[slot] = kept, grad_z[alone]
        if to_own is not None:
            to_own[alone] = grad_z[alone]
        scaled = grad_z[alone][..., None] * x.scale
        to_q[alone], to_key[slot] = scaled * x.mean_key[slot], scaled * x.query[alone]
    return to_q, to_own, to_key, to_term, to_value, to_pos, to_bias, to_reach
