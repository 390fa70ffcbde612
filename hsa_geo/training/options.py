"""Options of a training, checked when they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from hsa_geo.errors import ShapeError, UnsupportedError

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """How :func:`~hsa_geo.training.fit` trains.

    Args:
        epochs: Most epochs.
        budget: Most leaves of a batch, for each process; see
            :class:`~hsa_geo.training.LeafBudgetBatchSampler`.
        step_budget: Most leaves of an optimizer's step, over all processes; more than they hold
            at once is accumulated. (default: ``budget`` times the number of processes)
        max_trees: Most trees of a batch. (default: any number)
        bucketing: Sort by size within windows of so many steps; 0 for none.
        on_large: ``"alone"`` or ``"error"``, about trees larger than ``budget``.
        lr: Learning rate of AdamW, after the warm-up.
        weight_decay: Of AdamW.
        decay_all: Decay norms, biases and embeddings, too.
        betas: Of AdamW.
        warmup: Share of the training in which the learning rate rises linearly from 0.
        final_lr: Share of ``lr`` at which the cosine ends.
        clip: Largest norm of the gradient of a step, or :obj:`None`.
        precision: ``"float32"``, or ``"bf16"`` for autocast.
        patience: Stop after so many epochs without a better metric, or :obj:`None`.
        ema: Decay of a moving average of the weights, which is then what is evaluated and kept;
            0 for none.  The first steps use ``(1 + step) / (10 + step)`` where that is less.
        seed: Everything random is drawn from (seed, epoch, step, rank).
        num_workers: Worker processes that build batches and their plans.
        device: ``"auto"`` (CUDA where it is there), or a device.
        checkpoint_steps: Write a checkpoint after so many steps, or :obj:`None`.
        checkpoint_seconds: Write a checkpoint after so many seconds, or :obj:`None`; one is
            written after every epoch in any case.
        tensorboard: Also write ``folder/tensorboard``.

    Raises:
        ShapeError: If a number is out of range.
        UnsupportedError: If a word is none of those that are possible.

    Example:
        >>> Options(epochs=3, precision="bf16").lr
        0.001
        >>> try:
        ...     Options(precision="fp16")
        ... except UnsupportedError as error:
        ...     print(error)
        precision='fp16' needs scaled losses, and on a CPU kernels that are not there: use 'bf16', which has the range of float32, or 'float32'.
    """  # noqa: E501

    epochs: int = 10
    budget: int = 16384
    step_budget: int | None = None
    max_trees: int | None = None
    bucketing: int = 0
    on_large: str = "alone"
    lr: float = 1e-3
    weight_decay: float = 0.01
    decay_all: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: float = 0.05
    final_lr: float = 0.0
    clip: float | None = 1.0
    precision: str = "float32"
    patience: int | None = None
    ema: float = 0.0
    seed: int = 0
    num_workers: int = 0
    device: str = "auto"
    checkpoint_steps: int | None = None
    checkpoint_seconds: float | None = 300.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, low in (
            *(("epochs", 1), ("budget", 1), ("step_budget", 1), ("max_trees", 1)),
            *(("bucketing", 0), ("seed", 0), ("num_workers", 0), ("patience", 1)),
            ("checkpoint_steps", 1),
        ):
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if type(value) is not int or value < low:
                raise ShapeError(f"{name}={value!r} must be a whole number of at least {low}.")
        for name, low_, high in (
            *(("lr", 0.0, math.inf), ("weight_decay", 0.0, math.inf), ("warmup", 0.0, 1.0)),
            *(("final_lr", 0.0, 1.0), ("clip", 0.0, math.inf), ("ema", 0.0, 1.0)),
            ("checkpoint_seconds", 0.0, math.inf),
        ):
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not low_ <= value <= high:
                raise ShapeError(f"{name}={value!r} must be from {low_} to {high}.")
            if math.isinf(value) and name != "checkpoint_seconds":
                more = "; None is for no limit" if name == "clip" else ""
                raise ShapeError(f"{name}={value!r} must be a finite number{more}.")
        pair = isinstance(self.betas, (tuple, list)) and len(self.betas) == 2
        if not pair or not all(isinstance(b, (int, float)) and 0 <= b < 1 for b in self.betas):
            raise ShapeError(f"betas={self.betas!r} must be two numbers from 0 to less than 1.")
        if self.device != "auto":
            try:
                torch.device(self.device)
            except (RuntimeError, TypeError):
                raise UnsupportedError(
                    f"device={self.device!r} is no device: use 'auto', 'cpu' or 'cuda'."
                ) from None
        if self.clip == 0 or self.ema == 1:
            raise ShapeError(
                f"clip={self.clip} and ema={self.ema} would never change a weight: clip=None is "
                "for no limit, ema=0.0 for no average."
            )
        if self.precision in ("fp16", "float16", "16", "half"):
            raise UnsupportedError(
                f"precision={self.precision!r} needs scaled losses, and on a CPU kernels that are "
                "not there: use 'bf16', which has the range of float32, or 'float32'."
            )
        for name, words in (
            ("precision", ("float32", "bf16")),
            ("on_large", ("alone", "error")),
        ):
            if getattr(self, name) not in words:
                known = " or ".join(map(repr, words))
                raise UnsupportedError(f"{name}={getattr(self, name)!r} is unknown: use {known}.")


_MAY_BE_NONE = (
    *("step_budget", "max_trees", "patience", "clip"),
    *("checkpoint_steps", "checkpoint_seconds"),
)
