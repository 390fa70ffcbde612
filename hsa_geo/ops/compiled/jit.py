"""How the kernels are compiled: by numba, when first called, and kept on disk.

numba would use a kept kernel again as long as its own file is unchanged.  Kernels call each other
across files, so here one is used again only as long as all files of this folder are unchanged.
The logger ``hsa_geo`` says once, at the level INFO, that kernels are being compiled.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hsa_geo._optional import require

__all__ = ["compile_listener", "jit"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Sums may be reordered and products fused, but infinities and nan mean what they say.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def jit(function: _F) -> _F:
    """Compile a function of numbers, arrays and tuples of them; it runs without the GIL."""
    numba = require("numba", extra="fast", purpose="backend='numba'")
    _log_compiling()
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


def compile_listener(say: Callable[[str], object]) -> Any:
    """A listener for numba's event ``numba:compile``, which costs nothing where none is compiled.

    Args:
        say: Is given one sentence when the first kernel of hsa_geo is compiled.

    Returns:
        The listener.
    """
    from numba.core import event

    class Teller(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            ours = dispatcher.py_func.__module__.startswith("hsa_geo.")
            if ours and not self.told:
                self.told = True
                say(_sentence(dispatcher))

        def on_end(self, event: Any) -> None:
            pass

    return Teller()


def _sentence(dispatcher: Any) -> str:
    start = "compiling kernels for this machine, which takes some seconds up to a few minutes"
    kept = getattr(dispatcher.stats, "cache_path", None)
    if kept is None:
        return f"{start}, in every run, as there is no folder to keep them in: set NUMBA_CACHE_DIR"
    return f"{start}, once: later runs read them from '{kept}'"


@cache
def _log_compiling() -> None:
    from numba.core import event

    listener = compile_listener(logging.getLogger("hsa_geo").info)
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]


@cache
def sources(folder: Path = Path(__file__).parent) -> str:
    """A hash of all files of kernels."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
