"""Sibling attention in padded blocks: matrix products instead of one message per pair.

Groups of similar size are padded to one width W (:mod:`hsa_geo.data.buckets`) and attend as one
batch ``[K, H, W, W]``.  The diagonal and the padding are ``-inf``; a row with nothing left has
output 0 and log-sum-exp -inf.

All buckets are padded in one move: a row ``(slot, head)`` goes to its place in the concatenation
of the buckets, each laid out ``[K, H, W]``, so that products need no further copies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hsa_geo.data.buckets import MAX_PAIRS, Bucket
from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.edge import SiblingInput, log_safe
from hsa_geo.ops.segment import segment_expand, segment_sum
from hsa_geo.ops.walk import leaf_paths, slot_means

__all__ = ["BlockPasses"]


class BlockPasses:
    """The moves of the ``"block"`` backend; same calls as :class:`~.edge.EdgePasses`."""

    paths = staticmethod(leaf_paths)

    @staticmethod
    def means(xs: tuple[Tensor, ...], plan: TreePlan) -> tuple[Tensor, ...]:
        """Means over the leaves under every slot, each ``[N, ...]`` by row to ``[S, ...]``."""
        return tuple(slot_means(x, plan) for x in xs)

    @staticmethod
    def upward(x: Tensor, share: Tensor, group_ptr: Tensor) -> Tensor:
        """``[n, ...]`` children to ``[k, ...]`` weighted sums of each group."""
        return segment_sum(x * share.view(-1, *[1] * (x.dim() - 1)), group_ptr)

    @staticmethod
    def downward(x: Tensor, group_ptr: Tensor, n: int) -> Tensor:
        """``[k, ...]`` parents to ``[n, ...]``, the parent's row for every child."""
        return segment_expand(x, group_ptr, n)

    @staticmethod
    def sibling(x: SiblingInput, plan: TreePlan) -> tuple[Tensor, Tensor]:
        """Output ``[S - B, H, Dv]`` and log-sum-exp ``[S - B, H]`` over the siblings."""
        if not plan.buckets:
            return x.value, x.key_term  # no slot but roots: nothing to attend to
        heads = x.query.size(1)
        first = plan.bucket_place - plan.slot_rank  # of each slot's group, among padded slots
        head = torch.arange(heads, device=plan.device)
        row = (first * heads + plan.slot_rank)[:, None] + head * plan.bucket_width[:, None]
        row = row.flatten()
        sizes = [bucket.slots.numel() * heads for bucket in plan.buckets]

        def pad(t: Tensor) -> tuple[Tensor, ...]:  # [S - B, H, D] -> [K * H * W, D] per bucket
            return _Pad.apply(t.reshape(len(row), t.size(-1)), row, sum(sizes)).split(sizes)

        query, key, value = pad(x.query), pad(x.key), pad(x.value)
        key_term = pad(x.key_term[..., None])
        pos = [None] * len(sizes) if x.pos is None else pad(x.pos)
        parts = [
            _attention(query[i], key[i], value[i], key_term[i], pos[i], bucket, x.bias, x.mask)
            for i, bucket in enumerate(plan.buckets)
        ]
        out = _Unpad.apply(torch.cat([part[0] for part in parts]), row)
        log_sum = _Unpad.apply(torch.cat([part[1] for part in parts]), row)
        return out.view(x.value.shape), log_sum.view(x.key_term.shape)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_term: Tensor,
    pos: Tensor | None,
    bucket: Bucket,
    bias: Tensor | None,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attention of one bucket: rows ``[K * H * W, *]`` to output and log-sum-exp likewise.

    Wide groups some rows at a time, whose scores are computed anew for the gradient, so that
    memory does not grow with the square of the width.
    """
    k, w = bucket.slots.shape
    heads = len(query) // (k * w)

    def batch(t: Tensor) -> Tensor:  # [K * H * W, D] -> [K * H, W, D]
        return t.view(k * heads, w, t.size(-1))

    tensors = (batch(query), batch(key), batch(value), batch(key_term))
    step = max(1, MAX_PAIRS // (k * w))
    if step >= w:
        out, log_sum = _some_rows(*tensors, None if pos is None else batch(pos), bucket, bias, mask)
        return out.reshape(value.shape), log_sum.reshape(key_term.shape)
    parts = []
    for low in range(0, w, step):
        here = slice(low, min(low + step, w))
        place = None if pos is None else batch(pos)
        given = (*tensors, place, bucket, bias, mask, here)
        parts.append(checkpoint(_some_rows, *given, use_reentrant=False))
    out, log_sum = (torch.cat(part, 1) for part in zip(*parts))
    return out.reshape(value.shape), log_sum.reshape(key_term.shape)


def _some_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_term: Tensor,
    pos: Tensor | None,
    bucket: Bucket,
    bias: Tensor | None,
    mask: Tensor | None,
    here: slice = slice(None),
) -> tuple[Tensor, Tensor]:
    """Rows ``here`` of a bucket, ``[K * H, W, *]`` to output and log-sum-exp ``[K * H, r, *]``."""
    k, w = bucket.slots.shape
    heads = len(query) // k
    score = torch.baddbmm(key_term.transpose(1, 2), query[:, here], key.transpose(1, 2))
    if pos is not None:
        score = torch.baddbmm(score, pos[:, here], pos.transpose(1, 2))
    r = score.size(1)
    score = score.view(k, heads, r, w)
    public = None
    if bias is not None or mask is not None:
        public = _public_pairs(bucket, here)
    if bias is not None:
        score = score + bias[public].permute(0, 3, 1, 2)
    hidden = torch.eye(w, dtype=torch.bool, device=score.device)[here]
    if bucket.padded:
        hidden = hidden | ~bucket.valid[:, None, None, :]
    score = score.masked_fill(hidden, -torch.inf)

    # Not softmax and logsumexp: for rows this short the plain operations are three times faster.
    top = score.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).min)
    weight = score.sub_(top).exp_()
    total = weight.sum(-1, keepdim=True)
    share, log_sum = weight / torch.where(total > 0, total, 1.0), top + log_safe(total)
    if mask is not None:
        share = share * mask[public].permute(0, 3, 1, 2)
    out = torch.bmm(share.view(k * heads, r, w), value)
    return out, log_sum.view(k * heads, r, 1)


def _public_pairs(bucket: Bucket, here: slice = slice(None)) -> Tensor:
    """``[K, r, W]``, public place of the pair (i, j) of each group; 0 where there is none."""
    w = bucket.slots.size(1)
    i = torch.arange(w, device=bucket.slots.device)[here, None]
    j = torch.arange(w, device=bucket.slots.device)[None, :]
    others = (bucket.size - 1)[:, None, None]
    place = bucket.pair_start[:, None, None] + i * others + j - (j > i).long()
    real = bucket.valid[:, here, None] & bucket.valid[:, None, :] & (i != j)
    return torch.where(real, place, 0)


class _Pad(torch.autograd.Function):
    """``[n, D]`` rows to their places among ``[total, D]``, zero elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, row: Tensor, total: int) -> Tensor:
        ctx.save_for_backward(row)
        return x.new_zeros(total, x.size(1)).index_copy_(0, row, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Unpad.apply(grad, *ctx.saved_tensors), None, None


class _Unpad(torch.autograd.Function):
    """The transpose of :class:`_Pad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, row: Tensor) -> Tensor:
        ctx.save_for_backward(row)
        ctx.total = len(x)
        return x.index_select(0, row)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Pad.apply(grad, *ctx.saved_tensors, ctx.total), None
