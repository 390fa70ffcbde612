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
        if not plan.buckets:
            return x.value, x.key_term  # no slot but roots: nothing to attend to
        # One gather for all buckets: its backward is then one scatter, not one per bucket.
        packed = torch.cat([x.query, x.key, x.value, x.key_term[..., None]], -1)
        rows = packed.index_select(0, plan.bucket_slots - plan.num_trees)
        parts = [
            _bucket_attention(x, bucket, part)
            for bucket, part in zip(
                plan.buckets, rows.split([bucket.slots.numel() for bucket in plan.buckets])
            )
        ]
        place = plan.bucket_place
        out = torch.cat(parts).index_select(0, place)  # [S - B, H, Dv + 1]
        return out[..., :-1], out[..., -1]


def _bucket_attention(x: SiblingInput, bucket: Bucket, rows: Tensor) -> Tensor:
    """Output and log-sum-exp of one bucket, ``[K * W, H, Dv + 1]``; rows are its members'."""
    k, w = bucket.slots.shape
    dim, dim_v = x.query.size(-1), x.value.size(-1)
    # [K * W, H, F] -> [K, H, W, F]
    query, key, value, key_term = (
        rows.view(k, w, *rows.shape[1:]).transpose(1, 2).split([dim, dim, dim_v, 1], -1)
    )
    score = query @ key.transpose(-1, -2) + key_term.transpose(-1, -2)  # [K, H, W, W]

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
    out = torch.cat([share @ value, top + log_safe(total)], -1)  # [K, H, W, Dv + 1]
    return out.transpose(1, 2).reshape(k * w, *out.shape[1:2], dim_v + 1)


def _public_pairs(bucket: Bucket) -> Tensor:
    """``[K, W, W]``, public place of the pair (i, j) of each group; 0 where there is none."""
    w = bucket.slots.size(1)
    i = torch.arange(w, device=bucket.slots.device)[:, None]
    j = torch.arange(w, device=bucket.slots.device)[None, :]
    others = (bucket.size - 1)[:, None, None]
    place = bucket.pair_start[:, None, None] + i * others + j - (j > i).long()
    real = bucket.valid[:, :, None] & bucket.valid[:, None, :] & (i != j)
    return torch.where(real, place, 0)
