"""Random numbers that are a function of (seed, epoch, step, rank) alone.

Nothing that was drawn before a step changes what is drawn in it, so a training that goes on
after a kill needs no state of a generator.

Example:
    >>> seed_everything(0, 3, 7)
    >>> first = torch.rand(())
    >>> seed_everything(0, 3, 7)
    >>> bool(torch.rand(()) == first)
    True
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

__all__ = ["random_state_kept", "seed_everything"]


def seed_everything(*key: int) -> None:
    """Seed torch (also on CUDA where it is in use), numpy and :mod:`random` from whole numbers.

    Args:
        *key: Any number of them, 0 or more.

    Example:
        >>> seed_everything(1, 2)
    """
    state = np.random.SeedSequence(key).generate_state(4)
    seed = int(state[0]) | int(state[1]) << 31
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # torch.manual_seed would trace the stack where it is not
        torch.cuda.manual_seed_all(seed)
    np.random.seed(int(state[2]))  # noqa: NPY002  what others use is seeded, too
    random.seed(int(state[3]))


@contextlib.contextmanager
def random_state_kept(device: torch.device | None = None) -> Iterator[None]:
    """Leave the generators of the caller as they were.

    Args:
        device: A CUDA device whose generator is kept, too. (default: none)

    Example:
        >>> _ = torch.manual_seed(0)
        >>> with random_state_kept():
        ...     a = torch.rand(())
        >>> bool(torch.rand(()) == a)
        True
    """
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    devices = [device] if device is not None and device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(python)
