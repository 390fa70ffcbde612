"""AdamW with groups of parameters, its learning rate, and a moving average of the weights."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.errors import ShapeError
from hsa_geo.training.options import Options

__all__ = ["Average", "adamw", "learning_rate", "parameter_groups", "trained_parameters"]


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that are not frozen, by name, each once.

    Example:
        >>> list(trained_parameters(nn.Linear(2, 1)))
        ['weight', 'bias']
    """
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def parameter_groups(model: nn.Module, options: Options) -> list[dict[str, Any]]:
    """Groups for AdamW: those of ``model.parameter_groups()`` if it has that, then all others.

    What the model's own groups leave out is decayed if it is a matrix of no embedding;
    embeddings, biases and norms are decayed only with ``options.decay_all``.

    Args:
        model: ``model.parameter_groups()``, where it is there, returns dicts with ``params`` and
            perhaps ``lr_factor`` (of ``options.lr``) and ``weight_decay``.
        options: Their defaults.

    Returns:
        Dicts with ``params``, ``lr_factor`` and ``weight_decay``.

    Raises:
        ShapeError: If a group is none, or a parameter is in two groups.

    Example:
        >>> model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2))
        >>> for group in parameter_groups(model, Options(weight_decay=0.1)):
        ...     print([list(p.shape) for p in group["params"]], group["weight_decay"])
        [[2, 4]] 0.1
        [[5, 4], [2]] 0.0
    """
    own = getattr(model, "parameter_groups", None)
    groups, taken = [], set[int]()
    for given in own() if callable(own) else []:
        unknown = set(given) - {"params", "lr_factor", "weight_decay"}
        if unknown or "params" not in given:
            raise ShapeError(
                f"a group of parameters has the keys {sorted(given)}: give 'params', and perhaps "
                "'lr_factor' and 'weight_decay'."
            )
        members = [p for p in given["params"] if p.requires_grad]
        if any(id(p) in taken for p in members) or len({*map(id, members)}) != len(members):
            raise ShapeError("model.parameter_groups() names a parameter twice: name each once.")
        taken.update(map(id, members))
        decay = given.get("weight_decay", options.weight_decay)
        groups.append(
            {"params": members, "lr_factor": given.get("lr_factor", 1.0), "weight_decay": decay}
        )
    tables = {
        id(p)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        for p in module.parameters(recurse=False)
    }
    rest = [p for p in trained_parameters(model).values() if id(p) not in taken]
    decayed = [p for p in rest if options.decay_all or (p.dim() > 1 and id(p) not in tables)]
    plain = [p for p in rest if all(p is not q for q in decayed)]
    for members, decay in ((decayed, options.weight_decay), (plain, 0.0)):
        groups.append({"params": members, "lr_factor": 1.0, "weight_decay": decay})
    return [group for group in groups if group["params"]]


def adamw(model: nn.Module, options: Options) -> torch.optim.AdamW:
    """The optimizer; its learning rate is set before every step.

    Raises:
        ShapeError: If there is nothing to train.

    Example:
        >>> len(adamw(nn.Linear(2, 1), Options()).param_groups)
        2
    """
    groups = parameter_groups(model, options)
    if not groups:
        raise ShapeError(
            f"{type(model).__name__} has no parameter that requires a gradient: nothing to train."
        )
    return torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, fused=True)


def learning_rate(options: Options, progress: float) -> float:
    """Linear warm-up, then a cosine.

    Args:
        options: ``lr``, ``warmup`` and ``final_lr``.
        progress: Share of the training that is done, 0 to 1.

    Returns:
        The learning rate.

    Example:
        >>> options = Options(lr=1.0, warmup=0.5)
        >>> [round(learning_rate(options, p), 3) for p in (0.0, 0.25, 0.5, 0.75, 1.0)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < options.warmup:
        return options.lr * progress / options.warmup
    left = 1.0 - options.warmup
    turn = (progress - options.warmup) / left if left else 1.0
    share = options.final_lr + (1 - options.final_lr) * (1 + math.cos(math.pi * turn)) / 2
    return options.lr * share


class Average:
    """Exponential moving average of the trained weights.

    Args:
        model: Whose weights.
        decay: The share that stays in a step, once there were many.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> average = Average(model, decay=0.9)
        >>> with torch.no_grad():
        ...     _ = model.weight.add_(1.0)
        >>> average.update(model, steps=1)
        >>> with average.in_place(model):
        ...     inside = model.weight.item()
        >>> inside < model.weight.item()
        True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {
            name: p.detach().clone() for name, p in trained_parameters(model).items()
        }

    @torch.no_grad()
    def update(self, model: nn.Module, steps: int) -> None:
        """Take in the weights after ``steps`` steps."""
        weights = [p.detach() for p in trained_parameters(model).values()]
        decay = min(self.decay, (1 + steps) / (10 + steps))
        torch._foreach_lerp_([*self.weights.values()], weights, 1 - decay)

    @contextlib.contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Let the model have the average for a while."""
        own = {name: p.detach().clone() for name, p in trained_parameters(model).items()}
        copy_weights(model, self.weights)
        try:
            yield
        finally:
            copy_weights(model, own)


@torch.no_grad()
def copy_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters and buffers of these names."""
    mine = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, value in weights.items():
        mine[name].copy_(value)
