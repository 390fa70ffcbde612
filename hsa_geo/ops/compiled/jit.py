"""How the kernels are compiled: by numba, when first called, and kept on disk.

A cached kernel is used again as long as its own file is unchanged, so each module of kernels
calls no compiled function of another module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hsa_geo._optional import require

__all__ = ["jit"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Sums may be reordered and products fused, but infinities and nan mean what they say.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def jit(function: _F) -> _F:
    """Compile a function of numbers, arrays and tuples of them; it runs without the GIL."""
    numba = require("numba", extra="fast", purpose="backend='numba'")
    options = {"nogil": True, "error_model": "numpy", "fastmath": _FAST}
    try:
        compiled: _F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to write to: neither beside the module nor in the home folder
        compiled = numba.njit(**options)(function)
    return compiled
