"""Says that kernels are being compiled, where a first step would otherwise be silent for a minute.

numba compiles a kernel when it is first called and keeps it on disk; what is kept is only read.

Example:
    >>> with compiling_told(print):
    ...     pass  # whatever calls kernels
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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

    from hsa_geo.ops.compiled.jit import compile_listener

    with event.install_listener("numba:compile", compile_listener(say)):
        yield
