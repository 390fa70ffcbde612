"""Recovery of what replaced attention lost: a short distillation on unlabelled texts.

The teacher is the model as it was, with its own attention.  The replaced layers are trained so that
what comes out of them, and of the layers behind, is what came out before
(:mod:`hsa_geo.hf.matching`).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hsa_geo.errors import NonFiniteError, ShapeError, UnsupportedError
from hsa_geo.hf.intercept import Layers
from hsa_geo.hf.matching import matching_loss
from hsa_geo.hf.plans import valid_tokens
from hsa_geo.hf.unlabelled import Inputs, Texts, unlabelled
from hsa_geo.ops.inputs import is_number
from hsa_geo.training.logs import Bar
from hsa_geo.training.optimizer import adamw, learning_rate
from hsa_geo.training.options import Options

__all__ = ["Recovery", "recover"]

#: What may be trained.
TRAINED = ("attention", "layers", "after")
#: One text in so many is held out to measure on, but no more texts, and no more batches, than so.
_HELD, _MOST_HELD, _MOST_HELD_BATCHES = 10, 64, 4


@dataclass(frozen=True)
class Recovery:
    """What :func:`recover` did.

    Attributes:
        before: Loss before the training, on texts that were held out: 0 for outputs that are the
            original's, about 1 for outputs that have nothing to do with them.
        after: The same, after it.
        steps: Steps of the optimizer.
        tokens: Tokens that were trained on, repeated ones counted again, padding not.
        seconds: Time of the whole call.
        parameters: Number of trained parameters.

    Example:
        >>> recovery = Recovery(0.4, 0.1, steps=200, tokens=200_000, seconds=250.0, parameters=9)
        >>> recovery.after / recovery.before
        0.25
    """

    before: float
    after: float
    steps: int
    tokens: int
    seconds: float
    parameters: int


def recover(
    model: Any,
    texts: Any,
    tokenizer: Any = None,
    *,
    train: str = "layers",
    epochs: int = 1,
    seconds: float = 600.0,
    lr: float = 2e-4,
    batch_tokens: int = 1024,
    max_tokens: int | None = None,
    weight_decay: float = 0.0,
    warmup: float = 0.1,
    clip: float | None = 1.0,
    seed: int = 0,
    log: bool = True,
) -> Recovery:
    """Train replaced layers to give what they gave before they were replaced, in place.

    No labels are needed: the original model, of which a copy is kept meanwhile (of the trained
    parameters alone), says what is right for each token (see the module).  AdamW, a linear warm-up, a
    cosine, no dropout.  Heads on top of the encoder are not trained and stay what they are.

    The same arguments give the same weights, unless it is the time that ends the training.

    Args:
        model: Of transformers, after :func:`~hsa_geo.hf.replace_attention`.
        texts: A list of str like those that the model is for; or ready-made inputs of the model by
            name, each of them a batch, such as ``{"pixel_values": pixels}``.  Labels among these
            are left aside.
        tokenizer: Of the model, for texts.
        train: ``"attention"`` trains the attention modules of replaced layers, ``"layers"``
            the whole of these layers, ``"after"`` the layers behind the first of them, too; norms
            are never trained.  Whether parameters require gradients makes no difference, and is
            left as it is.
        epochs: How often every text is trained on.
        seconds: Time limit; a training that it cuts short still ends with small steps.
        lr: Learning rate after the warm-up.
        batch_tokens: Tokens of a step at most, padding included; ready-made batches stay whole.
        max_tokens: Longer texts are cut. (default: what tokenizer and model take, at most 512)
        weight_decay: Of AdamW.
        warmup: Share of the training in which the learning rate rises.
        clip: Largest norm of a gradient, or None.
        seed: Of the order of texts, and of the choice of those that are held out: a tenth, at most
            64 texts or 4 ready-made batches.  Of fewer than 10, none, and the loss is then
            measured on what is trained on.
        log: Show progress on stderr.

    Returns:
        Loss before and after, steps, tokens, seconds.

    Raises:
        UnsupportedError: If no layer of the model is replaced, it is of a type that is not known,
            its parameters are of less than 32 bits, or ``texts`` and ``tokenizer`` do not suit it.
        ShapeError: If there is no text, or a number is out of range.
        NonFiniteError: If the loss is no number, or no more; the parameters are then as they were.

    Stopped with Ctrl-C, it leaves the model with what was trained so far.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from hsa_geo.hf import replace_attention
        >>> config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=32, vocab_size=50, initializer_range=0.5)
        >>> model = replace_attention(BertModel(config).eval(), layers="all", hierarchy=4)
        >>> batches = [{"input_ids": torch.randint(5, 50, (4, 30))} for _ in range(10)]
        >>> recovery = recover(model, batches, epochs=3, log=False)
        >>> recovery.steps, recovery.after < recovery.before
        (27, True)
    """  # noqa: E501
    begin = time.monotonic()
    numbers = (("batch_tokens", batch_tokens, 1), ("max_tokens", max_tokens, 3))
    for name, value, least in numbers:
        if value is not None and (type(value) is not int or value < least):
            raise ShapeError(f"{name}={value!r}: give a whole number of at least {least}.")
    options = Options(
        epochs=epochs,
        budget=batch_tokens,
        lr=lr,
        weight_decay=weight_decay,
        warmup=warmup,
        clip=clip,
        seed=seed,
    )
    if train not in TRAINED:
        raise UnsupportedError(f"train={train!r} is unknown: use one of {TRAINED}.")
    if not is_number(seconds) or isinstance(seconds, bool) or not seconds > 0:
        raise ShapeError(f"seconds={seconds!r}: give a time above 0.")
    layers = Layers.of(model)
    replaced = [i for i, module in enumerate(layers.modules) if "_hsa_handler" in vars(module)]
    if not replaced:
        raise UnsupportedError(
            "no layer of the model is replaced: replace_attention(model, layers=[...]) first."
        )
    pictures = layers.patch_size is not None
    data = unlabelled(texts, tokenizer, model.config, pictures, max_tokens)
    trained = _trained(layers, replaced, train)
    with _training(model, trained):
        run = _Run(layers, replaced[0], trained, data, options, begin + seconds)
        return run.run(Bar(epochs, log), begin)


def _trained(layers: Layers, replaced: list[int], train: str) -> list[nn.Parameter]:
    """Parameters that are to be trained."""
    modules = layers.modules
    if train != "attention":
        modules = _whole_layers(layers)
        if train == "after":
            replaced = list(range(replaced[0], len(modules)))
    inside = [module for number in replaced for module in modules[number].modules()]
    # Norms may switch features off; a probe that standardises would see the smallest change there.
    found = [
        p
        for module in inside
        if not isinstance(module, nn.LayerNorm)
        for p in module.parameters(recurse=False)
    ]
    for p in found:
        if p.dtype not in (torch.float32, torch.float64):
            raise UnsupportedError(
                f"the model's parameters are {str(p.dtype).removeprefix('torch.')}, in which small "
                "steps are lost: recover(model.float(), ...), and go back to it afterwards."
            )
    return found


def _whole_layers(layers: Layers) -> list[nn.Module]:
    """Layers with all that is in them, by number."""
    for some in layers.base.modules():
        if isinstance(some, nn.ModuleList) and len(some) == len(layers.modules):
            held = zip(some, layers.modules)
            if all(any(m is attention for m in layer.modules()) for layer, attention in held):
                return list(some)
    raise UnsupportedError("the model does not keep its layers in one list: use train='attention'.")


@contextmanager
def _training(model: nn.Module, trained: list[nn.Parameter]) -> Iterator[None]:
    """Only these parameters are trained, without dropout; all is as it was afterwards."""
    modes = {module: module.training for module in model.modules()}
    needed = {p: (p.requires_grad, p.grad) for p in model.parameters()}
    cached = torch.is_autocast_cache_enabled()
    try:
        model.eval()
        for p in needed:
            p.requires_grad_(False)
        for p in trained:
            p.requires_grad_(True)
            p.grad = None
        torch.set_autocast_cache_enabled(False)  # which would keep parameters as they were
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)
        for module, mode in modes.items():
            module.training = mode
        for p, (wanted, grad) in needed.items():
            p.requires_grad_(wanted)
            p.grad = grad


class _Run:
    """One training."""

    def __init__(
        self,
        layers: Layers,
        first: int,
        trained: list[nn.Parameter],
        data: Texts | Inputs,
        options: Options,
        seconds: float,
    ) -> None:
        self.base, self.first, self.trained = layers.base, first, trained
        self.data, self.options, self.seconds = data, options, seconds
        own = {id(p) for p in trained}
        shared = [*self.base.parameters(), *self.base.buffers()]
        # The teacher has copies of what is trained, and shares all else.
        self.teacher = copy.deepcopy(self.base, {id(x): x for x in shared if id(x) not in own})
        Layers.of(self.teacher).release()

    def run(self, bar: Bar, begin: float) -> Recovery:
        """Measure, train, measure."""
        held, rows = self._parts()
        with torch.no_grad():
            before = self._measured(held)
        if not math.isfinite(before):
            raise NonFiniteError(
                f"the loss is {before} before the training: the model, or what went in, holds "
                "numbers that are not finite."
            )
        optimizer = adamw(self.base, self.options)
        budget, seed = self.options.budget, self.options.seed
        plan = [
            self.data.batches(rows, budget, seed + epoch) for epoch in range(self.options.epochs)
        ]
        total, steps, tokens = sum(map(len, plan)), 0, 0
        with bar:
            for epoch, batches in enumerate(plan):
                bar.epoch(epoch, steps=len(batches), done=0)
                for batch in batches:
                    passed = (time.monotonic() - begin) / self.seconds
                    if passed >= 1 and steps:
                        break
                    done = (steps + 0.5) / total
                    # The clock has no say until it is clear that it will end the training.
                    done = max(done, passed) if passed > 0.1 else done
                    for group in optimizer.param_groups:
                        group["lr"] = learning_rate(self.options, min(done, 1.0))
                    loss, count = self._step(optimizer, batch, steps)
                    steps, tokens = steps + 1, tokens + count
                    bar.step(loss)
        with torch.no_grad():
            after = self._measured(held)
        if not math.isfinite(after):  # the last step went too far
            self._undo()
            raise NonFiniteError(
                f"the loss is {after} after {steps} steps: the model is as it was; give a learning "
                f"rate below lr={self.options.lr}."
            )
        bar.say(f"loss on held-out texts {before:.4g} before, {after:.4g} after {steps} steps")
        seconds = time.monotonic() - begin
        return Recovery(before, after, steps, tokens, seconds, sum(p.numel() for p in self.trained))

    def _parts(self) -> tuple[list[list[int]], list[int]]:
        """Batches to measure on, and what is trained on."""
        order = np.random.default_rng(self.options.seed).permutation(len(self.data)).tolist()
        most = _MOST_HELD if isinstance(self.data, Texts) else _MOST_HELD_BATCHES
        count = min(len(order) // _HELD, most)
        held, rows = (order[:count], order[count:]) if count else (order[:most], order)
        return self.data.batches(held, self.options.budget, self.options.seed), sorted(rows)

    def _measured(self, batches: list[list[int]]) -> float:
        total, weight = 0.0, 0
        for batch in batches:
            loss, tokens = self._loss(batch)
            total, weight = total + float(loss) * tokens, weight + tokens
        return total / weight

    def _step(self, optimizer: Any, batch: list[int], number: int) -> tuple[float, int]:
        """One step; its loss, and its tokens."""
        loss, tokens = self._loss(batch)
        optimizer.zero_grad()
        loss.backward()
        clip = math.inf if self.options.clip is None else self.options.clip
        norm = float(nn.utils.clip_grad_norm_(self.trained, clip))
        value = loss.item()
        if not (math.isfinite(value) and math.isfinite(norm)):
            self._undo()
            with torch.no_grad():  # was it the training, or what went in?
                again = float(self._loss(batch)[0])
            remedy = f"give a learning rate below lr={self.options.lr}"
            if not math.isfinite(again):
                remedy = "what went in holds numbers that are not finite"
            raise NonFiniteError(
                f"loss {value} and norm of the gradient {norm} in step {number + 1}: the model is "
                f"as it was; {remedy}."
            )
        optimizer.step()
        return value, tokens

    def _loss(self, batch: list[int]) -> tuple[Tensor, int]:
        """The loss of a batch, and its number of tokens."""
        given = self.data.inputs(batch)
        device = self.base.device
        inputs = {k: x.to(device) if isinstance(x, Tensor) else x for k, x in given.items()}
        with torch.no_grad():
            wanted = self._outputs(self.teacher, inputs)
        found = self._outputs(self.base, inputs)
        valid = valid_tokens(inputs.get("attention_mask"))
        if valid is None:
            valid = torch.ones(wanted[0].shape[:2], dtype=torch.bool, device=device)
        return matching_loss(found, wanted, valid), int(valid.sum())

    def _outputs(self, base: Any, inputs: Mapping[str, Any]) -> list[Tensor]:
        """``[B, L, D]`` of each layer from the first replaced one on, and of the model."""
        made = base(**inputs, output_hidden_states=True, return_dict=True)
        return [*made.hidden_states[self.first + 1 :], made.last_hidden_state]

    @torch.no_grad()
    def _undo(self) -> None:
        """Give the trained parameters what they were, which the teacher has."""
        for mine, before in zip(self.base.parameters(), self.teacher.parameters()):
            if mine is not before:
                mine.copy_(before)
