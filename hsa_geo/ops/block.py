"""Sibling attention in padded blocks: matrix products instead of one message per pair.

Groups of similar size are padded to one width W (:mod:`hsa_geo.data.buckets`) and attend as one
batch ``[K, H, W, W]``.  The diagonal and the padding are ``-inf``; a row with nothing left has
output 0 and log-sum-exp -inf.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hsa_geo.data.buckets import Bucket
from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.edge import SiblingInput, log_safe
from hsa_geo.ops.segment import segment_expand, segment_sum

__all__ = ["BlockPasses"]


class BlockPasses:
    """The three moves of the ``"block"`` backend; same calls as :class:`~.edge.EdgePasses`."""

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
        parts = [_bucket_attention(x, bucket, plan.num_trees) for bucket in plan.buckets]
        if not parts:
            return x.value, x.key_term  # no slot but roots: nothing to attend to
        place = plan.bucket_place
        out = torch.cat([part[0] for part in parts]).index_select(0, place)
        log_sum = torch.cat([part[1] for part in parts]).index_select(0, place)
        return out, log_sum


def _bucket_attention(x: SiblingInput, bucket: Bucket, first: int) -> tuple[Tensor, Tensor]:
    k, w = bucket.slots.shape
    rows = (bucket.slots - first).flatten()

    def gather(t: Tensor) -> Tensor:  # [S - B, H, D] -> [K, H, W, D]
        return t.index_select(0, rows).view(k, w, *t.shape[1:]).transpose(1, 2)

    query, key, value = gather(x.query), gather(x.key), gather(x.value)
    key_term = x.key_term.index_select(0, rows).view(k, w, -1).transpose(1, 2)  # [K, H, W]
    score = query @ key.transpose(-1, -2) + key_term[:, :, None, :]  # [K, H, W, W]

    if x.bias is not None or x.mask is not None:
        public = _public_pairs(bucket)  # [K, W, W]
    if x.bias is not None:
        score = score + x.bias[public].permute(0, 3, 1, 2)
    hidden = torch.eye(w, dtype=torch.bool, device=rows.device)
    if bucket.padded:
        hidden = hidden | ~bucket.valid[:, None, None, :]
    score = score.masked_fill(hidden, -torch.inf)

    top = score.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).min)
    weight = (score - top).exp()
    total = weight.sum(-1, keepdim=True)  # [K, H, W, 1]
    share = weight / torch.where(total > 0, total, 1.0)
    if x.mask is not None:
        share = share * x.mask[public].permute(0, 3, 1, 2)
    out = share @ value  # [K, H, W, Dv]
    log_sum = (top + log_safe(total)).squeeze(-1)  # [K, H, W]
    return (
        out.transpose(1, 2).reshape(k * w, *x.value.shape[1:]),
        log_sum.transpose(1, 2).reshape(k * w, -1),
    )


def _public_pairs(bucket: Bucket) -> Tensor:
    """``[K, W, W]``, public place of the pair (i, j) of each group; 0 where there is none."""
    w = bucket.slots.size(1)
    i = torch.arange(w, device=bucket.slots.device)[:, None]
    j = torch.arange(w, device=bucket.slots.device)[None, :]
    others = (bucket.size - 1)[:, None, None]
    place = bucket.pair_start[:, None, None] + i * others + j - (j > i).long()
    real = bucket.valid[:, :, None] & bucket.valid[:, None, :] & (i != j)
    return torch.where(real, place, 0)
