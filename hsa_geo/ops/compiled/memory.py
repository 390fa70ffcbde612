"""Large new tensors in large pages, so that writing them does not mean a page fault every 4 KB.

Outputs and gradients are written once and are larger than any cache; where the system gives memory
in pages of 4 KB, the faults take about as long as a quarter of the attention itself.  Linux gives
2 MB at a time when it is asked to.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from torch import Tensor

__all__ = ["empty"]

_PAGE = 2 << 20
_ADVICE = 14  # MADV_HUGEPAGE


def empty(like: Tensor, *shape: int) -> Tensor:
    """A new tensor of the dtype of ``like``, uninitialised, in large pages if it is large.

    Example:
        >>> import torch
        >>> empty(torch.zeros(1, dtype=torch.float64), 3, 2).shape
        torch.Size([3, 2])
    """
    out = like.new_empty(shape)
    size, advise = out.numel() * out.element_size(), _madvise()
    if size >= 2 * _PAGE and advise is not None:
        start = -(-out.data_ptr() // _PAGE) * _PAGE  # whole large pages inside the tensor
        stop = (out.data_ptr() + size) // _PAGE * _PAGE
        advise(start, stop - start, _ADVICE)  # a wish: whether it is granted does not matter
    return out


@cache
def _madvise() -> Any:
    """The system call, or None where there is none that knows large pages."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        call = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call
