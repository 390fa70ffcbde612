"""Run pieces of work on PyTorch's own threads.

PyTorch's OpenMP threads keep spinning for some milliseconds after each of its operations, so
that threads of our own would compete with them for the cores (and a small model would run up to
twice as long).  Where the OpenMP runtime that PyTorch loaded has the entry point of GNU's, which
Clang's has too, the pieces run there; elsewhere, on a thread pool.  Compiled kernels release the
GIL.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["run"]

_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

#: Whether this process is the fork of another; pieces then run one after the other.
_forked = False


def run(work: Callable[..., None], pieces: Sequence[tuple[int, ...]]) -> None:
    """Call ``work(*piece)`` for every piece, on up to ``torch.get_num_threads()`` threads.

    In a forked process, such as a data loader's worker, on one.

    Args:
        work: Releases the GIL while it computes.
        pieces: Arguments of the calls; no two may write to the same place.

    Raises:
        BaseException: The first exception of any call.

    Example:
        >>> done = []
        >>> run(done.append, [(1,), (2,)])
        >>> sorted(done)
        [1, 2]
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads <= 1 or _forked:
        for piece in pieces:
            work(*piece)
        return
    queue = itertools.count()  # next() is atomic under the GIL
    errors: list[BaseException] = []

    def worker(_: Any = None) -> None:
        try:
            for i in queue:
                if i >= len(pieces) or errors:
                    return
                work(*pieces[i])
        except BaseException as error:
            errors.append(error)

    parallel = _openmp()
    if parallel is not None:
        parallel(_Work(worker), None, threads, 0)
    else:
        others = [_pool().submit(worker) for _ in range(threads - 1)]
        worker()
        for other in others:
            other.result()
    if errors:
        raise errors[0]


@cache
def _openmp() -> Any:
    """``GOMP_parallel`` of the OpenMP runtime that PyTorch is linked to, or None."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        path = Path(torch.__file__).parent / "lib" / name
        try:
            entry = ctypes.CDLL(str(path)).GOMP_parallel  # found among its dependencies
        except (OSError, AttributeError):
            continue
        entry.argtypes = [_Work, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        entry.restype = None
        return entry
    return None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="hsa_geo")


def _after_fork() -> None:
    """Threads do not survive a fork, and OpenMP would wait for them."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
