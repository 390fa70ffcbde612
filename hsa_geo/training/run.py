"""One training in one process: its parts, a step, an epoch, a checkpoint."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.errors import CheckpointError, NonFiniteError, ShapeError, TrainingError
from hsa_geo.training.checkpoint import Checkpoints
from hsa_geo.training.checks import blamed_on_labels
from hsa_geo.training.contents import contents
from hsa_geo.training.distributed import World
from hsa_geo.training.identity import check_same, identity
from hsa_geo.training.loading import Batches
from hsa_geo.training.logs import Bar
from hsa_geo.training.losses import as_number, check_dense, check_effect, sum_of_losses
from hsa_geo.training.memory import peak_memory
from hsa_geo.training.optimizer import (
    Average,
    adamw,
    copy_weights,
    learning_rate,
    trained_parameters,
)
from hsa_geo.training.options import Options
from hsa_geo.training.samplers import LeafBudgetBatchSampler
from hsa_geo.training.seeds import seed_everything
from hsa_geo.training.state import Progress, blamed_on_file, gather, kept_tensors, restore
from hsa_geo.training.trainable import check_trainable

__all__ = ["Run"]


class Run:
    """The state of a training, and what changes it; :func:`~hsa_geo.training.fit` drives it.

    The moving average, the best weights and the checkpoints are the first process's alone.

    Args:
        model: On its device.
        train: Trees.
        validation: Trees, or :obj:`None`.
        loss: As in :func:`~hsa_geo.training.fit`.
        metric: As in :func:`~hsa_geo.training.fit`.
        options: How to train.
        folder: Of the checkpoints, or :obj:`None`.
        world: The processes.
        bar: Told about every step.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Sequence[Any],
        validation: Sequence[Any] | None,
        loss: Callable[[Any, Any], Any],
        metric: Callable[[Any, Any], float],
        options: Options,
        folder: Path | None,
        world: World,
        bar: Bar,
    ) -> None:
        self.model, self.options, self.world, self.bar = model, options, world, bar
        self.loss, self.metric = loss, metric
        self.train = self._batches(train, world, shuffle=True)
        alone = World(0, 1, world.device)  # only the first process evaluates
        self.validation = (
            None if validation is None else self._batches(validation, alone, shuffle=False)
        )
        if not len(self.train):
            raise ShapeError("train holds no tree: give at least one.")
        check_trainable(model, saved=folder is not None)
        world.broadcast(kept_tensors(model).values())
        self.optimizer = adamw(model, options)
        self.parameters = list(trained_parameters(model).values())
        self.average = Average(model, options.ema) if options.ema else None
        self.best: dict[str, Tensor] = {}
        self.state = Progress()
        self.checkpoints = None if folder is None else Checkpoints(folder)
        self._written = time.monotonic()
        self._identity = {} if folder is None else self._identify(train, validation)

    def _batches(self, trees: Sequence[Any], world: World, shuffle: bool) -> Batches:
        options = self.options
        sampler = LeafBudgetBatchSampler(
            trees,
            options.budget,
            shuffle,
            options.seed,
            world.size,
            world.rank,
            options.max_trees,
            step_budget=options.step_budget if shuffle else None,
            bucketing=options.bucketing if shuffle else 0,
            on_large=options.on_large,
        )
        return Batches(trees, sampler, world.device, options.num_workers, options.seed)

    # Checkpoints ############################################################

    def begin(self, resume: bool) -> None:
        """Go on from the newest checkpoint, or begin; all processes do the same.

        Raises:
            TrainingError: If there is a checkpoint, but it is not to be used.
            ResumeError, CheckpointError: If it cannot be.
        """
        if self.checkpoints is None:
            return
        folder = self.checkpoints.folder
        if not resume:
            if self.world.agree(bool(self.checkpoints.steps())):
                raise TrainingError(
                    f"'{folder}' holds checkpoints: go on from them with resume=True, or give "
                    "another folder."
                )
            return
        found = self.checkpoints.newest() if self.world.is_first else None
        step = self.world.agree(None if found is None else found[0])
        if step is None:
            return
        tensors, content = found[1:] if found is not None else self.checkpoints.read(step)
        with blamed_on_file(f"the checkpoint of step {step} in '{folder}'"):
            before = content.get("identity")
            if not isinstance(before, dict):
                raise CheckpointError("it does not say of what training it is")
            check_same(before, self._identity, folder)
            state = Progress.read(content.get("progress"))
            best = restore(tensors, self.model, self.optimizer, self.average, self.world.device)
            if bool(best) != (state.best_metric is not None):
                raise CheckpointError("its best weights and their metric do not fit")
        self.state, self.best = state, best

    def save(self) -> None:
        """Write a checkpoint; the first process does."""
        self._written = time.monotonic()
        if self.checkpoints is None or not self.world.is_first:
            return
        self.state.peak_memory = max(self.state.peak_memory, peak_memory(self.world.device))
        self.checkpoints.write(
            self.state.total_steps,
            gather(self.model, self.optimizer, self.average, self.best),
            {"identity": self._identity, "progress": vars(self.state)},
        )

    def _save_if_due(self) -> None:
        steps, seconds = self.options.checkpoint_steps, self.options.checkpoint_seconds
        late = seconds is not None and time.monotonic() - self._written >= seconds
        if late or (steps is not None and self.state.total_steps % steps == 0):
            self.save()

    def _identify(self, train: Any, validation: Any) -> dict[str, Any]:
        data = {"train": contents(train, self.train.sampler.sizes)}
        if self.validation is not None:
            data["validation"] = contents(validation, self.validation.sampler.sizes)
        return identity(self.model, self.options, data, self.world.size)

    # Steps ##################################################################

    def epoch(self) -> None:
        """Take the steps of an epoch that are left."""
        sampler, state = self.train.sampler, self.state
        sampler.set_epoch(state.epoch, state.step)
        steps, weights, count = sampler.steps, sampler.weights, sampler.num_steps
        self.bar.epoch(state.epoch, count, state.step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)  # what an interrupted step or others left
        totals = torch.zeros(3, dtype=torch.float64, device=self.world.device)
        number, since = int(steps.searchsorted(state.step)), time.perf_counter()
        for batch in self.train:
            if weights[number]:
                seed_everything(self.options.seed, state.epoch, number, self.world.rank, 0)
                totals += self._add_gradient(batch)
            number += 1
            if number < len(steps) and steps[number] == state.step:
                continue  # the step has more batches
            value = self._step(totals, count)
            totals.zero_()
            now = time.perf_counter()
            state.seconds += now - since
            self.bar.step(value)
            if state.step < count:  # an epoch's last checkpoint comes after its evaluation
                self._save_if_due()
            since = time.perf_counter()

    def _add_gradient(self, batch: Any) -> Tensor:
        """Sums over the items of one batch, whose gradients are added up."""
        place = self._place(self.train.sampler.num_steps)
        with self._precision(), blamed_on_labels(batch, place):
            out = self.loss(self.model, batch)
        total, numbers = sum_of_losses(out)
        if total.requires_grad:
            total.backward()
        return numbers

    def _step(self, totals: Tensor, steps_of_epoch: int) -> float:
        """All processes together take a step; returns its mean loss."""
        state, options = self.state, self.options
        check_dense(self.parameters)
        loss_sum, weight_sum, items = self.world.sum_gradients(self.parameters, totals).tolist()
        loss = loss_sum / weight_sum if weight_sum else 0.0 * loss_sum
        if not math.isfinite(loss):
            self._refuse("loss", loss, steps_of_epoch)
        progress = (state.epoch + (state.step + 0.5) / steps_of_epoch) / options.epochs
        state.learning_rate = learning_rate(options, progress)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        check_effect(grads, weight_sum, items, self._place(steps_of_epoch))
        if items:
            torch._foreach_div_(grads, weight_sum)
            norm = torch.nn.utils.get_total_norm(grads)
            if not math.isfinite(norm.item()):
                self._refuse("norm of the gradient", norm.item(), steps_of_epoch)
            if options.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(self.parameters, options.clip, norm)
            for group in self.optimizer.param_groups:
                group["lr"] = state.learning_rate * group["lr_factor"]
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        state.step += 1
        state.total_steps += 1
        state.loss_sum += loss_sum
        state.weight_sum += weight_sum
        if self.average is not None:
            self.average.update(self.model, state.total_steps)
        return loss

    def _place(self, steps_of_epoch: int) -> str:
        return f"step {self.state.step + 1} of {steps_of_epoch} of epoch {self.state.epoch + 1}"

    def _refuse(self, what: str, value: float, steps_of_epoch: int) -> None:
        raise NonFiniteError(
            f"the {what} is {value} in {self._place(steps_of_epoch)}: look for such numbers in its "
            f"trees, or lower lr={self.options.lr}, lengthen warmup={self.options.warmup}"
            + (", or use precision='float32'." if self.options.precision != "float32" else ".")
        )

    def _precision(self) -> Any:
        kind = self.world.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=self.options.precision == "bf16")

    # Epochs #################################################################

    def end_epoch(self) -> None:
        """Evaluate, keep the weights if they are the best, decide whether to stop, save."""
        state, options = self.state, self.options
        with self._averaged():
            value = self._evaluate()
            state.end_epoch(value)
            if value is not None and state.best_epoch == state.epoch and self.world.is_first:
                self.best = {
                    name: tensor.detach().clone()
                    for name, tensor in kept_tensors(self.model).items()
                }
        waited = state.epoch - state.best_epoch
        late = options.patience is not None and waited >= options.patience
        state.done = late or state.epoch >= options.epochs
        self.save()

    def _averaged(self) -> Any:
        return (
            contextlib.nullcontext() if self.average is None else self.average.in_place(self.model)
        )

    @torch.no_grad()
    def _evaluate(self) -> float | None:
        if self.validation is None:
            return None
        value: float | str | None = None
        if self.world.is_first:
            self.model.eval()
            seed_everything(self.options.seed, self.state.epoch, 2)
            with self._precision():
                found = self.metric(self.model, self.validation)
            value = as_number(found)
        value = self.world.agree(value)
        if isinstance(value, str):
            raise ShapeError(f"metric gave {value}: return one number, larger is better.")
        if not math.isfinite(value):
            raise NonFiniteError(
                f"the validation metric is {value} after epoch {self.state.epoch + 1}: see that "
                "metric returns a number for any outputs."
            )
        return float(value)

    def finish(self) -> None:
        """Give the model its best weights (without validation: its last), in all processes."""
        if self.world.is_first:
            if self.best:
                copy_weights(self.model, self.best)
            elif self.average is not None:
                copy_weights(self.model, self.average.weights)
        self.world.broadcast(kept_tensors(self.model).values())
        self.model.eval()
        peak = max(self.state.peak_memory, peak_memory(self.world.device))
        self.state.peak_memory = self.world.agree(peak)
