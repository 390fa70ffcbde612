"""``fit``: the training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from hsa_geo._files import folder_path
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.training.checks import check_arguments, check_classes, check_labels, check_trees
from hsa_geo.training.compiling import compiling_told
from hsa_geo.training.distributed import connected
from hsa_geo.training.logs import Bar, Log
from hsa_geo.training.memory import reset_peak_memory
from hsa_geo.training.optimizer import trained_parameters
from hsa_geo.training.options import Options
from hsa_geo.training.run import Run
from hsa_geo.training.seeds import random_state_kept

__all__ = ["FitResult", "accuracy", "fit"]

Loss = Callable[[Any, Any], Any]
Metric = Callable[[Any, Any], float]


@dataclass(frozen=True)
class FitResult:
    """What :func:`fit` returns.

    Attributes:
        best_epoch: Epoch whose weights the model has, from 1 (the last one without validation).
        metric: Its validation metric, or :obj:`None`.
        history: A dict for each epoch: epoch, step, learning_rate, loss, metric.
        seconds_per_epoch: Mean time of an epoch's steps, without evaluation.
        peak_memory: Most bytes that this process held (on CUDA: its tensors).
        parameters: Number of trained parameters.
        frozen_parameters: Number of those that are not trained.

    Example:
        >>> FitResult(1, 0.5, [], 0.1, 10, 3, 0).metric
        0.5
    """

    best_epoch: int
    metric: float | None
    history: list[dict[str, Any]]
    seconds_per_epoch: float
    peak_memory: int
    parameters: int
    frozen_parameters: int


def accuracy(model: nn.Module, batches: Any) -> float:
    """Share of trees whose largest output is the class ``batch.y``; the default metric.

    Args:
        model: ``model(batch)`` gives ``[B, classes]``.
        batches: Batches with ``y [B]``.

    Returns:
        From 0 to 1.

    Raises:
        LabelError: If there is no ``y``, or it holds no class of the outputs.
        ShapeError: If ``y`` is no class for each output.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> batch = SimpleNamespace(y=torch.tensor([0, 1]))
        >>> accuracy(lambda batch: torch.tensor([[2.0, 1.0], [3.0, 1.0]]), [batch])
        0.5
    """
    right = total = 0
    for batch in batches:
        output = model(batch)
        check_labels(batch, "accuracy")
        if output.shape[:-1] != batch.y.shape:
            raise ShapeError(
                f"accuracy compares outputs {list(output.shape)} with y {list(batch.y.shape)}: "
                "give one class for each, or a metric of your own."
            )
        check_classes(batch.y, output.size(-1))
        right += int((output.argmax(-1) == batch.y).sum())
        total += batch.y.numel()
    return right / max(total, 1)


def fit(
    model: nn.Module,
    train: Sequence[Any],
    validation: Sequence[Any] | None = None,
    *,
    loss: Loss,
    metric: Metric | None = None,
    options: Options | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    log: bool = True,
) -> FitResult:
    """Train a model in place; it ends with the weights of its best epoch, in eval mode.

    Under ``torchrun`` the processes share every step; the loss of a step is a sum over items
    divided by their number everywhere, so that two processes take the steps of one.

    Args:
        model: Any module.
        train: Trees (a dataset or a list), at least one.
        validation: Trees on which ``metric`` is taken after every epoch. (default: none)
        loss: ``loss(model, batch)`` gives the loss of every item ``[K]`` (trees, subtrees, ...),
            or a pair of losses and their weights ``[K]``.
        metric: ``metric(model, batches)`` gives a number, larger is better; it is called in eval
            mode, without gradients, by the first process.  (default: :func:`accuracy`)
        options: How to train. (default: ``Options()``)
        folder: Where checkpoints and ``metrics.csv`` go; all processes must see it.
            (default: nothing is written)
        resume: Go on from the newest checkpoint in ``folder``, or begin if there is none; a
            finished training is read. (default: :obj:`False`)
        log: Show progress on stderr. (default: :obj:`True`)

    Returns:
        A record of the training.

    Raises:
        NonFiniteError: If a loss, gradient or metric is no finite number; says in which step.
        ResumeError: If the checkpoint is of other options, data or another model.  Of the data
            are compared: number and sizes of the trees, all labels ``y`` of lists and of datasets
            in memory, and 16 trees whole (those of a PyG dataset before its ``transform``); not
            ``loss`` and ``metric``.
        CheckpointError, DiskFullError: If a checkpoint cannot be read, or one or ``metrics.csv``
            not be written.
        TrainingError: If there are checkpoints in ``folder`` but ``resume`` is not given, or the
            loss of a step does not depend on what is trained, or its weights sum to 0.
        ShapeError: If ``train`` is empty or holds no trees, features of ``validation`` are of
            another width, ``loss`` does not give a loss per item, or ``metric`` no number.
        MixedKeysError: If trees of a batch lack an attribute that others have.
        LabelError: If the trees have no labels where they are needed, or others than the outputs.
        PathError: If ``folder`` is no path.
        UnsupportedError: If an argument would have no effect, or the model has tensors that cannot
            be trained or kept: sparse ones or their gradients, expanded or complex ones.

    Example:
        >>> import torch
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.nn import subtree_mean
        >>> class Mean(nn.Linear):
        ...     def forward(self, batch):
        ...         return super().forward(subtree_mean(batch.x, batch))
        >>> trees = [
        ...     SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 3) + c, y=torch.tensor([c]))
        ...     for c in [0, 1] * 20
        ... ]
        >>> def loss(model, batch):
        ...     return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")
        >>> result = fit(Mean(3, 2), trees, trees, loss=loss, log=False,
        ...              options=Options(epochs=3, budget=16, lr=0.1))
        >>> result.metric > 0.6, len(result.history), result.parameters
        (True, 3, 8)
    """
    options = Options() if options is None else options
    place = None if folder is None else folder_path("folder", folder)
    check_arguments(model, loss, metric, options)
    with random_state_kept():
        first = check_trees("train", train)
        if validation is not None:
            check_trees("validation", validation, first)
    _check_arguments(options, validation, metric, place, resume, log)
    with connected(options.device) as world, random_state_kept(world.device):
        reset_peak_memory(world.device)
        model.to(world.device)
        bar = Bar(options.epochs, log and world.is_first)
        run = Run(model, train, validation, loss, metric or accuracy, options, place, world, bar)
        run.begin(resume)
        state = run.state
        with (
            bar,
            compiling_told(bar.say),
            Log(place if world.is_first else None, options, state) as written,
        ):
            while not state.done:
                run.epoch()
                run.end_epoch()
                bar.row(state.history[-1], state.epoch_seconds[-1], state.best_epoch)
                written.row(state.history)
        run.finish()
    count = {p: p.numel() for p in model.parameters()}
    trained = sum(count[p] for p in trained_parameters(model).values())
    return FitResult(
        best_epoch=state.best_epoch,
        metric=state.best_metric,
        history=state.history,
        seconds_per_epoch=sum(state.epoch_seconds) / len(state.epoch_seconds),
        peak_memory=state.peak_memory,
        parameters=trained,
        frozen_parameters=sum(count.values()) - trained,
    )


def _check_arguments(
    options: Options,
    validation: Sequence[Any] | None,
    metric: Metric | None,
    folder: Path | None,
    resume: bool,
    log: bool,
) -> None:
    if validation is None and (metric is not None or options.patience is not None):
        raise UnsupportedError("metric and patience need validation trees: give some.")
    if validation is not None and not len(validation):
        raise ShapeError("validation holds no tree: give some, or None.")
    for name, switch in (("resume", resume), ("log", log)):
        if not isinstance(switch, bool):
            raise UnsupportedError(f"{name}={switch!r:.60} is neither True nor False: give one.")
    for name, given in (
        ("resume", resume),
        ("tensorboard", options.tensorboard),
        ("checkpoint_steps", options.checkpoint_steps is not None),
    ):
        if given and folder is None:
            raise UnsupportedError(f"{name} needs a folder: give fit(..., folder=...).")
