"""Tensors as safetensors wants them: on the CPU, dense, each in memory of its own."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

__all__ = ["separate"]


def separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors on the CPU, each in memory of its own; only where it must be, a copy.

    Args:
        tensors: Dense ones, on any device; they may be views of each other.

    Returns:
        Contiguous tensors.

    Example:
        >>> import torch
        >>> both = torch.arange(4.0)
        >>> out = separate({"both": both, "half": both[:2]})
        >>> out["half"].untyped_storage().nbytes()
        8
    """
    out, taken = {}, set[int]()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage()
        if storage.data_ptr() in taken or storage.nbytes() != plain.numel() * plain.element_size():
            plain = plain.clone()
        taken.add(plain.untyped_storage().data_ptr())
        out[name] = plain
    return out
