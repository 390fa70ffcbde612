"""Sums over contiguous segments, and their transpose: the two moves of message passing on trees.

Slots of a plan lie group by group, so scattering is a sum over contiguous segments (CSR) and
gathering a repetition.  Where torch_scatter is installed its ``segment_csr`` and
``gather_csr`` do the work, elsewhere plain PyTorch.  Each operation is the other's backward, so
both differentiate any number of times.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import HSAWarning

try:
    import torch_scatter
except ImportError:  # optional: plain PyTorch below does the same
    torch_scatter = None
except OSError as error:  # built for another version of torch
    torch_scatter = None
    warnings.warn(
        f"torch_scatter is installed but does not load ({error}), so plain PyTorch is used: "
        "reinstall it for this version of torch.",
        HSAWarning,
        stacklevel=2,
    )

__all__ = ["HAS_TORCH_SCATTER", "segment_expand", "segment_max", "segment_sum"]

#: Whether torch_scatter is installed and used.
HAS_TORCH_SCATTER = torch_scatter is not None


def _segment_ids(ptr: Tensor, total: int) -> Tensor:
    segments = torch.arange(len(ptr) - 1, device=ptr.device)
    return torch.repeat_interleave(segments, ptr.diff(), output_size=total)


def _uses_scatter(x: Tensor) -> bool:
    """Not for empty tensors, whose shape gather_csr loses, nor under torch.compile, which does not
    know it, nor on a GPU where it was built without CUDA."""
    if torch_scatter is None or x.numel() == 0 or torch.compiler.is_compiling():
        return False
    return not x.is_cuda or torch.ops.torch_scatter.cuda_version() >= 0


def _sum(x: Tensor, ptr: Tensor) -> Tensor:
    if _uses_scatter(x):
        return torch_scatter.segment_csr(x.contiguous(), ptr, reduce="sum")
    out = x.new_zeros((len(ptr) - 1, *x.shape[1:]))
    return out.index_add_(0, _segment_ids(ptr, len(x)), x)


def _expand(x: Tensor, ptr: Tensor, total: int) -> Tensor:
    if _uses_scatter(x):
        return torch_scatter.gather_csr(x.contiguous(), ptr)
    return x.index_select(0, _segment_ids(ptr, total))


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(ptr)
        ctx.total = len(x)
        return _sum(x, ptr)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (ptr,) = ctx.saved_tensors
        return _SegmentExpand.apply(grad, ptr, ctx.total), None


class _SegmentExpand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, total: int) -> Tensor:
        ctx.save_for_backward(ptr)
        return _expand(x, ptr, total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (ptr,) = ctx.saved_tensors
        return _SegmentSum.apply(grad, ptr), None, None


def segment_sum(x: Tensor, ptr: Tensor) -> Tensor:
    """Sum of each contiguous segment of rows.

    Args:
        x: ``[n, ...]``.
        ptr: ``[k + 1]`` int64, segment i is ``x[ptr[i]:ptr[i+1]]``; ``ptr[0] = 0``,
            ``ptr[k] = n``.

    Returns:
        ``[k, ...]``, zero for empty segments.

    Example:
        >>> segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2, 3])).tolist()
        [3.0, 0.0, 4.0]
    """
    return _SegmentSum.apply(x, ptr)


def segment_expand(x: Tensor, ptr: Tensor, total: int) -> Tensor:
    """Repeat row i of ``x`` for every row of segment i: the transpose of :func:`segment_sum`.

    Args:
        x: ``[k, ...]``.
        ptr: ``[k + 1]`` int64, as in :func:`segment_sum`.
        total: Number of rows of the result, ``ptr[k]``.

    Returns:
        ``[total, ...]``.

    Example:
        >>> segment_expand(torch.tensor([1.0, 2.0]), torch.tensor([0, 2, 3]), 3).tolist()
        [1.0, 1.0, 2.0]
    """
    return _SegmentExpand.apply(x, ptr, total)


def segment_max(x: Tensor, ptr: Tensor) -> Tensor:
    """Largest value of each segment, without gradient; ``-inf`` for empty segments.

    Example:
        >>> segment_max(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0, 2, 3])).tolist()
        [3.0, 2.0]
    """
    x = x.detach()
    ids = _segment_ids(ptr, len(x))
    out = x.new_full((len(ptr) - 1, *x.shape[1:]), -torch.inf)
    index = ids.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    return out.scatter_reduce_(0, index, x, "amax")
