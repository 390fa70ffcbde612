"""Sibling groups of similar size, padded to one width, for batched matrix products.

A group of size b goes into the bucket of the smallest width >= b out of 2, 3, 4, 5, 6, 7, 8,
10, 12, 14, 16, 20, 24, 28, 32, 40, ... (four steps to each power of two), so that padding
never adds more than a quarter to b (b = 9 in width 10, 17 in 20, ...) and the number of
buckets grows with the logarithm of the largest group only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Bucket", "bucket_width", "make_buckets"]

#: Largest number of padded pairs in one bucket; larger ones are split, to bound temporaries.
MAX_PAIRS = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """K groups padded to width W.

    Attributes:
        slots: ``[K, W]``, slots of each group; padding repeats the group's first.
        valid: ``[K, W]`` bool, False at padding.
        size: ``[K]``, size of each group.
        pair_start: ``[K]``, public place of each group's first ordered pair.
        padded: Whether any group is smaller than W.
    """

    slots: Tensor
    valid: Tensor
    size: Tensor
    pair_start: Tensor
    padded: bool


def bucket_width(size: np.ndarray) -> np.ndarray:
    """Width of the bucket for groups of the given sizes.

    Example:
        >>> bucket_width(np.array([2, 7, 9, 17, 1000])).tolist()
        [2, 7, 10, 20, 1024]
    """
    size = np.asarray(size, dtype=np.int64)
    power = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)
    step = np.maximum(1 << np.maximum(power - 3, 0), 1)
    return (size + step - 1) // step * step


@torch.compiler.disable  # the compiler would take numpy arrays for tensors
def make_buckets(
    group_ptr: Tensor, pair_start: Tensor, sizes: tuple[int, ...]
) -> tuple[Bucket, ...]:
    """Buckets of all groups of a plan.

    Args:
        group_ptr: ``[G + 1]``, slots of group g are ``group_ptr[g]:group_ptr[g+1]``.
        pair_start: ``[G]``, public place of each group's first pair.
        sizes: Sizes of the groups.

    Returns:
        Buckets by increasing width; every group is in exactly one.

    Example:
        >>> ptr = torch.tensor([1, 3, 6])
        >>> [b.slots.tolist() for b in make_buckets(ptr, torch.tensor([0, 2]), (2, 3))]
        [[[1, 2]], [[3, 4, 5]]]
    """
    size = np.asarray(sizes, dtype=np.int64)
    width = bucket_width(size)
    order = np.argsort(width, kind="stable")
    values, first = np.unique(width[order], return_index=True)
    buckets = []
    for w, groups in zip(values.tolist(), np.split(order, first[1:])):
        chunk = max(1, MAX_PAIRS // (w * w))
        for start in range(0, len(groups), chunk):
            chosen = groups[start : start + chunk]
            ids = torch.from_numpy(chosen).to(group_ptr.device)
            begin = group_ptr[ids]
            count = group_ptr[ids + 1] - begin
            place = torch.arange(w, device=group_ptr.device)
            valid = place < count[:, None]  # [K, W]
            slots = begin[:, None] + torch.where(valid, place, 0)
            padded = bool((size[chosen] < w).any())
            buckets.append(Bucket(slots, valid, count, pair_start[ids], padded))
    return tuple(buckets)
