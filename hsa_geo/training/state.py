"""What a training knows between two steps, and how it goes into a checkpoint and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hsa_geo.training.checkpoint import fingerprint
from hsa_geo.training.optimizer import Average, copy_weights, trained_parameters
from hsa_geo.training.options import Options

__all__ = ["Progress", "gather", "identity", "kept_tensors", "restore"]

#: Options that change nothing in what is learned.
FREE = ("num_workers", "device", "checkpoint_steps", "checkpoint_seconds", "tensorboard")


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
    """

    def under(name: str) -> dict[str, Tensor]:
        start = f"{name}/"
        return {
            key.removeprefix(start): value.clone()  # where torch aligns it: kernels may care
            for key, value in tensors.items()
            if key.startswith(start)
        }

    copy_weights(model, under("model"))
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in under("optimizer").items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if average is not None:
        for name, value in under("average").items():
            average.weights[name].copy_(value)
    return {name: value.to(device) for name, value in under("best").items()}


def identity(
    model: nn.Module,
    options: Options,
    sizes: Mapping[str, np.ndarray],
    processes: int,
) -> dict[str, Any]:
    """What has to be the same for a training to go on, as JSON would give it back.

    Args:
        model: Its structure, and the values of what is not trained.
        options: But for those that change nothing in what is learned.
        sizes: Leaves of the trees of each set.
        processes: How many.

    Returns:
        A dict of dicts.

    Example:
        >>> identity(nn.Linear(1, 1), Options(), {"train": np.array([2, 3])}, 1)["train"]["leaves"]
        5
    """
    trained = kept_tensors(model)
    out = {
        "options": {k: v for k, v in dataclasses.asdict(options).items() if k not in FREE},
        "processes": processes,
        **{
            name: {
                "trees": len(values),
                "leaves": int(values.sum()),
                "sizes": fingerprint(torch.from_numpy(values.copy())),
            }
            for name, values in sizes.items()
        },
        "model": {
            "parts": {name or "itself": _settings(part) for name, part in model.named_modules()},
            "tensors": {k: f"{v.dtype} {list(v.shape)}" for k, v in trained.items()},
            "frozen": {
                name: fingerprint(p) for name, p in model.named_parameters() if not p.requires_grad
            },
        },
    }
    return dict(json.loads(json.dumps(out)))


def _settings(module: nn.Module) -> dict[str, Any]:
    """Class and plain attributes of a module, such as the rate of a dropout."""
    plain = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training"
    }
    kept = {k: v for k, v in plain.items() if v is None or isinstance(v, (bool, int, float, str))}
    return {"class": type(module).__qualname__, **kept}
