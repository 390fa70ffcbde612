"""What loss and metric give: sums over items, and what is refused because it trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.errors import ShapeError, TrainingError, UnsupportedError

__all__ = ["as_number", "check_dense", "check_effect", "sum_of_losses"]


def sum_of_losses(out: Any) -> tuple[Tensor, Tensor]:
    """What a loss function gave for a batch, summed.

    Args:
        out: Losses ``[K]``, or a pair of losses and their weights ``[K]``.

    Returns:
        The sum of the weighted losses, and ``[3]`` float64 without a gradient: this sum, that of
        the weights, and K.

    Raises:
        ShapeError: If it is not a loss for every item, with a weight for each.

    Example:
        >>> total, numbers = sum_of_losses((torch.tensor([1.0, 3.0]), torch.tensor([1.0, 0.5])))
        >>> numbers.tolist()
        [2.5, 1.5, 2.0]
    """
    losses, weights = out if isinstance(out, tuple) and len(out) == 2 else (out, None)
    if not isinstance(losses, Tensor) or losses.dim() != 1:
        what = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ShapeError(f"loss gave {what}, not the loss of every item [K]: use reduction='none'.")
    if losses.is_complex():
        raise ShapeError(f"loss gave {losses.dtype}: give real numbers.")
    losses = losses.float() if losses.dtype in (torch.float16, torch.bfloat16) else losses
    if weights is None:
        total, weight = losses.sum(), losses.new_tensor(float(len(losses)), dtype=torch.float64)
    elif not isinstance(weights, Tensor) or weights.shape != losses.shape:
        shape = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ShapeError(
            f"loss gave losses {list(losses.shape)} with weights {shape}: give a weight for each."
        )
    else:
        total, weight = (losses * weights).sum(), weights.sum()
    count = torch.full_like(total, len(losses), dtype=torch.float64)
    return total, torch.stack([total.detach().double(), weight.detach().double(), count])


def check_dense(parameters: Sequence[nn.Parameter]) -> None:
    """Refuse sparse gradients.

    Raises:
        UnsupportedError: If one is.

    Example:
        >>> check_dense([nn.Parameter(torch.zeros(2))])
    """
    for p in parameters:
        if p.grad is not None and p.grad.layout != torch.strided:
            raise UnsupportedError(
                f"the gradient of a parameter {list(p.shape)} is sparse: use a module that gives a "
                "dense one (sparse=False)."
            )


def check_effect(grads: Sequence[Tensor], weight: float, items: float, place: str) -> None:
    """Refuse a step that has items and would change nothing.

    Args:
        grads: The gradients.
        weight: Sum of the weights of the items.
        items: Number of items.
        place: Which step.

    Raises:
        TrainingError: If there is no gradient, or no weight.

    Example:
        >>> check_effect([], 0.0, 0.0, "step 1")
    """
    if items and not (grads and weight):
        why = "does not depend on a trained parameter" if weight else "has weights of sum 0"
        raise TrainingError(
            f"the loss {why} in {place}, which would change nothing: leave out detach() and "
            "no_grad(), and give no items, [0], where there is nothing to learn."
        )


def as_number(found: Any) -> float | str:
    """The number that a metric gave, or in words what it gave instead.

    Example:
        >>> as_number(torch.tensor(0.5)), as_number(None)
        (0.5, 'NoneType')
    """
    try:
        return float(found)
    except (TypeError, ValueError, RuntimeError):
        shape = f" {list(found.shape)}" if isinstance(found, Tensor) else ""
        return f"{type(found).__name__}{shape}"
