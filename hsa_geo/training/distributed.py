"""Several processes, as ``torchrun`` starts them: what they have to agree on.

Example:
    >>> with connected("cpu") as world:
    ...     world.rank, world.size, world.agree({"lr": 0.1})
    (0, 1, {'lr': 0.1})
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hsa_geo.errors import UnsupportedError

__all__ = ["World", "connected"]

#: Processes wait so long for the first, which evaluates and writes alone.
TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True)
class World:
    """The processes of a training.

    Attributes:
        rank: Number of this one.
        size: How many there are.
        device: Where this one computes.

    Example:
        >>> World(0, 1, torch.device("cpu")).is_first
        True
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that evaluates and writes."""
        return self.rank == 0

    def agree(self, value: Any) -> Any:
        """What the first process says, for all.

        Args:
            value: Anything that JSON can hold; of the others it is not looked at.

        Returns:
            The first one's value.
        """
        if self.size == 1:
            return value
        text = json.dumps(value).encode() if self.is_first else b""
        length = torch.tensor([len(text)], device=self.device)
        dist.broadcast(length, 0)
        content = torch.empty(int(length), dtype=torch.uint8, device=self.device)
        if self.is_first:
            content.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(content, 0)
        return json.loads(content.cpu().numpy().tobytes())

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.detach().copy_(whole)

    def sum_gradients(self, parameters: Sequence[nn.Parameter], totals: Tensor) -> Tensor:
        """Add up gradients, and numbers that go with them, over all processes.

        A parameter without a gradient here but with one elsewhere gets it; one without any stays
        without, as it would with a single process.

        Args:
            parameters: The same in all processes.
            totals: ``[k]`` float64.

        Returns:
            ``[k]``, their sums.
        """
        if self.size == 1:
            return totals
        has = torch.tensor([float(p.grad is not None) for p in parameters], dtype=torch.float64)
        sums = torch.cat([totals, has.to(totals.device)])
        dist.all_reduce(sums)
        anywhere = sums[len(totals) :].tolist()
        used = [p for p, count in zip(parameters, anywhere) if count]
        for p in used:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        for dtype in {p.dtype: None for p in used}:
            grads = [p.grad for p in used if p.grad is not None and p.dtype == dtype]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            dist.all_reduce(flat)
            for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
                grad.copy_(part.view_as(grad))
        return sums[: len(totals)]


@contextlib.contextmanager
def connected(device: str = "auto") -> Iterator[World]:
    """Join the other processes that ``torchrun`` started, if it did.

    They stay connected until this one ends, so that several trainings can follow each other; a
    process group that is there already is used.

    Args:
        device: ``"auto"`` for this process's CUDA device, or the CPU where there is none; or a
            device. (default: ``"auto"``)

    Yields:
        The processes; one alone without ``torchrun``.

    Example:
        >>> with connected("cpu") as world:
        ...     print(world)
        World(rank=0, size=1, device=device(type='cpu'))

    Raises:
        UnsupportedError: If this build of torch cannot connect processes, or the device is not
            there.
    """
    local = int(os.environ.get("LOCAL_RANK", 0))
    if device == "auto":
        device = f"cuda:{local}" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError):
        raise UnsupportedError(
            f"device={device!r:.60} is no device: use 'auto', 'cpu' or 'cuda'."
        ) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(f"device={device!r}, but there is no CUDA device: use 'cpu'.")
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", local)
    there = dist.is_available() and dist.is_initialized()
    if not there and int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield World(0, 1, place)
        return
    if not dist.is_available():
        raise UnsupportedError("this build of torch has no torch.distributed: run one process.")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if not there:  # for as long as the process lives: a store serves one group of this name
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=TIMEOUT)
        atexit.register(_disconnect)
    yield World(dist.get_rank(), dist.get_world_size(), place)


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
