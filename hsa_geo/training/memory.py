"""Largest memory of a training."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import torch

__all__ = ["peak_memory", "reset_peak_memory"]


def reset_peak_memory(device: torch.device) -> None:
    """Count from here; only Linux can do so for the memory of a process.

    Example:
        >>> reset_peak_memory(torch.device("cpu"))
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # what a CPU's peak counts from, where it is allowed
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes that tensors held at most on a CUDA device, or that this process held on a CPU.

    Example:
        >>> peak_memory(torch.device("cpu")) > 10**6
        True
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
