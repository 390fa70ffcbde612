"""What a training knows between two steps, and how it goes into a checkpoint and back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.errors import CheckpointError
from hsa_geo.training.optimizer import Average, copy_weights, trained_parameters

__all__ = ["Progress", "blamed_on_file", "gather", "kept_tensors", "restore"]


@dataclass
class Progress:
    """Where a training is; everything is a number, a list or a dict of them.

    Attributes:
        epoch: Epochs that are done.
        step: Steps of the present epoch that are done.
        total_steps: Steps of all epochs that are done.
        loss_sum: Sum of the losses of this epoch's items.
        weight_sum: Sum of their weights.
        learning_rate: Of the last step.
        seconds: That this epoch took so far, without evaluation.
        best_epoch: From 1; 0 for none.
        best_metric: Its metric.
        history: A dict for each epoch, with the columns of ``metrics.csv``.
        epoch_seconds: Of each epoch.
        peak_memory: In bytes.
        done: Whether the training has ended.

    Example:
        >>> Progress().total_steps
        0
    """

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    loss_sum: float = 0.0
    weight_sum: float = 0.0
    learning_rate: float = 0.0
    seconds: float = 0.0
    best_epoch: int = 0
    best_metric: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    peak_memory: int = 0
    done: bool = False

    @classmethod
    def read(cls, content: Any) -> Progress:
        """Make it again from what a checkpoint holds.

        Raises:
            CheckpointError: If that is no progress of a training.

        Example:
            >>> Progress.read(vars(Progress(epoch=2)))
            Traceback (most recent call last):
            ...
            hsa_geo.errors.CheckpointError: epoch and history do not fit
        """
        if not isinstance(content, dict) or content.keys() != {f.name for f in fields(cls)}:
            raise CheckpointError("it does not hold the progress of a training")
        new = cls(**content)
        for name, default in vars(cls()).items():
            value = content[name]
            if name == "best_metric":
                fits = value is None or _is_finite(value)
            elif isinstance(default, float):
                fits = _is_finite(value)
            else:
                fits = type(value) is type(default) and (not isinstance(value, int) or value >= 0)
            if not fits:
                raise CheckpointError(f"{name} is {value!r}")
        rows = all(isinstance(row, dict) and row.keys() == set(_COLUMNS) for row in new.history)
        if not rows or not len(new.history) == len(new.epoch_seconds) == new.epoch:
            raise CheckpointError("epoch and history do not fit")
        if not all(map(_is_finite, new.epoch_seconds)) or new.done > bool(new.epoch):
            raise CheckpointError("the times of the epochs are none")
        return new

    def end_epoch(self, metric: float | None) -> None:
        """Note an epoch, and the best so far, that is the first of the largest metric."""
        self.epoch += 1
        loss = self.loss_sum / self.weight_sum if self.weight_sum else 0.0
        self.history.append(
            {
                "epoch": self.epoch,
                "step": self.total_steps,
                "learning_rate": self.learning_rate,
                "loss": loss,
                "metric": metric,
            }
        )
        self.epoch_seconds.append(self.seconds)
        self.step, self.loss_sum, self.weight_sum, self.seconds = 0, 0.0, 0.0, 0.0
        if metric is None or self.best_metric is None or metric > self.best_metric:
            self.best_epoch, self.best_metric = self.epoch, metric


#: Keys of the rows of the history, the columns of ``metrics.csv``.
_COLUMNS = ("epoch", "step", "learning_rate", "loss", "metric")


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def kept_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Trained parameters and the buffers that belong to a model's state, by name, each once.

    Example:
        >>> list(kept_tensors(nn.BatchNorm1d(2)))
        ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """
    names = model.state_dict(keep_vars=True)
    buffers = {name: b for name, b in model.named_buffers() if name in names}
    return {**trained_parameters(model), **buffers}


def gather(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
    best: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """All tensors of a training under one name each.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> sorted(gather(model, torch.optim.AdamW(model.parameters()), None, {}))
        ['model/bias', 'model/weight']
    """
    out = {f"model/{name}": tensor for name, tensor in kept_tensors(model).items()}
    for i, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"]):
        for name, value in optimizer.state.get(parameter, {}).items():
            out[f"optimizer/{i}/{name}"] = value
    if average is not None:
        out.update({f"average/{name}": value for name, value in average.weights.items()})
    out.update({f"best/{name}": value for name, value in best.items()})
    return out


@contextlib.contextmanager
def blamed_on_file(place: str) -> Iterator[None]:
    """Say which checkpoint is meant where one holds what it should not.

    Args:
        place: Which.

    Raises:
        CheckpointError: In place of one that says only what is wrong.

    Example:
        >>> with blamed_on_file("the checkpoint of step 3"):
        ...     pass
    """
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(
            f"{place} is not as fit wrote it ({error}): remove its two files to go on from the one "
            "before, or the folder to begin anew."
        ) from None


def restore(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
    device: torch.device,
) -> dict[str, Tensor]:
    """Put the tensors of :func:`gather` back.

    Returns:
        The best weights, empty if there were none yet.

    Raises:
        CheckpointError: If the tensors are not those of this model and optimizer; nothing was
            changed then.
    """

    def under(name: str) -> dict[str, Tensor]:
        start = f"{name}/"
        return {
            key.removeprefix(start): value.clone()  # where torch aligns it: kernels may care
            for key, value in tensors.items()
            if key.startswith(start)
        }

    parts = {name: under(name) for name in ("model", "optimizer", "average", "best")}
    if sum(map(len, parts.values())) != len(tensors):
        raise CheckpointError("it holds tensors of something else")
    _check_like(parts["model"], kept_tensors(model), "model")
    _check_like(parts["average"], {} if average is None else average.weights, "average")
    if parts["best"]:
        _check_like(parts["best"], kept_tensors(model), "best")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in parts["optimizer"].items():
        index, _, name = key.partition("/")
        if not (index.isascii() and index.isdigit() and int(index) < len(parameters)):
            raise CheckpointError(f"'optimizer/{key}' belongs to no parameter")
        state.setdefault(int(index), {})[name] = value
    for number, found in state.items():
        p = parameters[number]
        like = {"step": torch.empty(()), "exp_avg": p, "exp_avg_sq": p}
        _check_like(found, like, f"optimizer/{number}")
    copy_weights(model, parts["model"])
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if average is not None:
        for name, value in parts["average"].items():
            average.weights[name].copy_(value)
    return {name: value.to(device) for name, value in parts["best"].items()}


def _check_like(found: Mapping[str, Tensor], needed: Mapping[str, Tensor], part: str) -> None:
    """Refuse tensors of other names, shapes or dtypes."""
    for name in [*needed, *found]:
        if name not in found or name not in needed:
            raise CheckpointError(f"'{part}/{name}' is {'new' if name in found else 'missing'}")
        a, b = found[name], needed[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise CheckpointError(
                f"'{part}/{name}' is {a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}"
            )
