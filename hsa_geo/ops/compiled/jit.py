"""How the kernels are compiled: by numba, when first called, and kept on disk.

numba would use a kept kernel again as long as its own file is unchanged.  Kernels call each other
across files, so here one is used again only as long as all files of this folder are unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
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
        kept = compiled._cache._cache_file  # type: ignore[attr-defined]
        kept._source_stamp = (kept._source_stamp, sources())
    except (RuntimeError, AttributeError):
        # No folder to write to, neither beside the module nor in the home folder; or a numba that
        # keeps kernels in another way, of which it is not known when they are out of date.
        compiled = numba.njit(**options)(function)
    return compiled


@cache
def sources(folder: Path = Path(__file__).parent) -> str:
    """A hash of all files of kernels."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
