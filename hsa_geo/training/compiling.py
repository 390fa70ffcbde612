"""Says that kernels are being compiled, where a first step would otherwise be silent for a minute.

numba compiles a kernel when it is first called and keeps it on disk; what is kept is only read.

Example:
    >>> with compiling_told(print):
    ...     pass  # whatever calls kernels
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from hsa_geo._optional import HAS_NUMBA

__all__ = ["compiling_told"]


@contextlib.contextmanager
def compiling_told(say: Callable[[str], None]) -> Iterator[None]:
    """Say once, within a block of code, that kernels are compiled, if any are.

    Args:
        say: Is given the sentence.

    Example:
        >>> with compiling_told(print):
        ...     pass
    """
    if not HAS_NUMBA:
        yield
        return
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

    with event.install_listener("numba:compile", Teller()):
        yield


def _sentence(dispatcher: Any) -> str:
    start = "compiling kernels for this machine, which takes some seconds up to a few minutes"
    kept = getattr(dispatcher.stats, "cache_path", None)
    if kept is None:
        return f"{start}, in every run, as there is no folder to keep them in: set NUMBA_CACHE_DIR"
    return f"{start}, once: later runs read them from '{kept}'"
