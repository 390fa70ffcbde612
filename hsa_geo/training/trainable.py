"""Which models can be trained and kept at all."""

from __future__ import annotations

import safetensors.torch
import torch
from torch import nn

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.training.optimizer import trained_parameters
from hsa_geo.training.state import kept_tensors

__all__ = ["check_trainable"]


def check_trainable(model: nn.Module, saved: bool) -> None:
    """Refuse tensors that a training could not change, keep or write, before it begins.

    Args:
        model: The model.
        saved: Whether there will be checkpoints.

    Raises:
        UnsupportedError: If a trained parameter or a buffer is sparse, expanded or of a dtype
            that is not for it, or a module gives sparse gradients.
        ShapeError: If a parameter is not initialised.

    Example:
        >>> check_trainable(nn.Linear(2, 1), saved=True)
    """
    trained = trained_parameters(model)
    for name, tensor in kept_tensors(model).items():
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
            raise ShapeError(f"'{name}' has no size yet: call the model on a batch before fit.")
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise UnsupportedError(
                f"'{name}' is no dense tensor ({tensor.layout}, {tensor.dtype}): give one, "
                "or a buffer with persistent=False."
            )
        if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape)):
            raise UnsupportedError(
                f"'{name}' is expanded, {list(tensor.shape)} with strides {list(tensor.stride())}: "
                "give expand(...).clone()."
            )
        if name in trained and not tensor.is_floating_point():
            raise UnsupportedError(
                f"'{name}' is {tensor.dtype}: train parameters of floating point, or freeze it."
            )
        if saved:
            try:
                safetensors.torch.save({"": torch.empty(0, dtype=tensor.dtype)})
            except (KeyError, ValueError, RuntimeError, safetensors.SafetensorError):
                raise UnsupportedError(
                    f"'{name}' is {tensor.dtype}, which checkpoints cannot hold: give another "
                    "dtype, or a buffer with persistent=False."
                ) from None
    for name, module in model.named_modules():
        sparse = isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse
        if sparse and module.weight.requires_grad:
            raise UnsupportedError(
                f"'{name or type(module).__name__}' gives sparse gradients: leave out sparse=True."
            )
