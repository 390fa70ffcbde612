"""Texts to vectors by a pretrained encoder some of whose layers attend otherwise; what it costs.

Operations are counted in every replaced layer and batch, from the plan that the layer attended over
(groups by content differ from layer to layer), the grouping itself included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from zero_shot_rivals import RIVALS, Rival, Timed

from hsa_geo.data import TreePlan
from hsa_geo.datasets import MiniLM
from hsa_geo.errors import ShapeError
from hsa_geo.hf import Clusters, Squares, Windows
from hsa_geo.hf.intercept import Handler, Layers
from hsa_geo.hf.plans import Batch, Pass, Plans
from hsa_geo.hf.replace import Hierarchical
from hsa_geo.ops import attention_cost, flat_cost

TITLES = {"block": "block-tied", "key": "key-tied", "local": "local", "pooled": "pooled keys"}
#: Of the paper are windows in which special tokens lie like all others.
GROUPINGS: dict[str, Callable[[int], Any]] = {
    "windows": Windows,
    "clusters": Clusters,
    "squares": Squares,
    "paper's windows": lambda window: Windows(window, special=True),
}


@dataclass(frozen=True)
class Setting:
    """Layers, and what they do instead.

    Attributes:
        layers: Their numbers.
        kind: ``"block"``, ``"key"``, or a rival.
        window: Members of a group.
        grouping: One of :data:`GROUPINGS`.
    """

    layers: tuple[int, ...]
    kind: str
    window: int
    grouping: str = "windows"

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{TITLES[self.kind]}, {self.grouping} of {self.window}"

    @property
    def name(self) -> str:
        """The name of a file about it."""
        layers = "".join(map(str, self.layers))
        return f"{self.kind}-{self.grouping}{self.window}-layers{layers}"

    def handler(self, special: tuple[int, ...], patch_size: tuple[int, int] | None = None) -> Any:
        """The handler of replaced layers, of models of texts or of pictures."""
        hierarchy = GROUPINGS[self.grouping](self.window)
        if self.kind in RIVALS:
            return Rival(self.kind, hierarchy, special, patch_size)
        return Hierarchical(Plans(hierarchy, special, patch_size), self.kind)


def named(settings: Sequence[Setting], names: Sequence[str] | None) -> list[Setting]:
    """Settings of these names, all if None; one that there is not is a ShapeError."""
    known = {setting.name: setting for setting in settings}
    for name in names or ():
        if name not in known:
            raise ShapeError(f"--only {name}: give some of {', '.join(known)}.")
    return [known[name] for name in (known if names is None else names)]


@dataclass
class Outcome:
    """What a model gave.

    Attributes:
        vectors: ``[texts, features]``, of length 1.
        flat: Operations of attention of one layer as it was.
        replaced: Operations of attention of all replaced layers together.
        seconds: Of the whole model, without the counting.
        attention_seconds: Of the attention of all its layers.
    """

    vectors: np.ndarray
    flat: int
    replaced: int
    seconds: float = 0.0
    attention_seconds: float = 0.0


def outcome(
    encoder: MiniLM, setting: Setting | None, texts: Sequence[str], count: bool = True
) -> Outcome:
    """Encode texts with some layers replaced; all layers' attention is timed.

    Args:
        encoder: The encoder.
        setting: What is replaced, or None.
        texts: The texts.
        count: Whether operations are counted. (default: :obj:`True`)

    Returns:
        Vectors, operations and seconds.
    """
    special = (*encoder.encoder.before, *encoder.encoder.after)
    counter = Counter() if count else None
    begin = time.perf_counter()
    with attending(encoder.encoder.module, setting, special, counter) as timed:
        vectors = encoder.sentences(texts).numpy()
    seconds = time.perf_counter() - begin
    attention = sum(one.seconds for one in timed)
    if counter is None:
        return Outcome(vectors, 0, 0, seconds, attention)
    seconds, attention = seconds - counter.seconds, attention - counter.inside
    return Outcome(vectors, counter.flat, counter.replaced, seconds, attention)


@contextmanager
def attending(
    model: Any, setting: Setting | None, special: Sequence[int], counter: Counter | None = None
) -> Iterator[list[Timed]]:
    """Within it, layers of a model attend otherwise, and attention is timed.

    Args:
        model: A model of transformers.
        setting: What is replaced, or None.
        special: Ids of special tokens.
        counter: Counts operations, or None.

    Yields:
        The time of each layer.
    """
    layers = Layers.of(model)
    timed = []
    for number in range(len(layers.modules)):
        inner: Any = None
        if setting is not None and number in setting.layers:
            inner = setting.handler(tuple(special), layers.patch_size)
            if counter is not None:
                inner = Counted(inner, counter, setting)
        timed.append(Timed(inner))
    handlers: dict[int, Handler] = dict(enumerate(timed))
    if counter is not None:  # lengths, where the first layer sees them
        handlers[0] = Lengths(timed[0], counter)
    with layers.intercepted(handlers):
        yield timed


class Counter:
    """Adds up operations.

    Attributes:
        flat: Of one layer as it was.
        replaced: Of all replaced layers.
        seconds: That counting took; ``inside``, within timed attention.
    """

    def __init__(self) -> None:
        self.flat = self.replaced = 0
        self.seconds = self.inside = 0.0

    def see_lengths(self, batch: Batch, key: torch.Tensor) -> None:
        """A batch of texts came to the first layer."""
        self.flat += flat_cost(batch.plan, key.size(1), key.size(3)).total

    def see_layer(self, batch: Batch, key: torch.Tensor, setting: Setting) -> None:
        """A replaced layer attends."""
        begin = time.perf_counter()
        self.replaced += cost_of(setting, batch.plan, key.size(1), key.size(3))
        self.inside += time.perf_counter() - begin
        self.seconds += time.perf_counter() - begin


def cost_of(setting: Setting, plan: TreePlan, heads: int, dim: int) -> int:
    """Operations of a replaced layer over a batch."""
    total = attention_cost(plan, heads, dim, tie="block" if setting.kind == "block" else "key")
    operations = total.total
    if setting.kind == "local":  # tokens of the own window and special tokens, no means
        alone = int((plan.mass[plan.reach.slot] == 1).sum()) + plan.num_leaves
        operations = 4 * alone * heads * dim
    if setting.grouping == "clusters":
        lengths = plan.count[: plan.num_trees].tolist()
        operations += Clusters(setting.window).flops(lengths, heads * dim)
    return operations


class CountedPass:
    """What the layers of a pass share, where every question for the batch is counted."""

    def __init__(self, inner: Pass, counter: Counter, setting: Setting) -> None:
        self.inner, self.counter, self.setting = inner, counter, setting

    def batch(self, mask: torch.Tensor | None, key: torch.Tensor) -> Batch:
        """The batch, counted."""
        batch = self.inner.batch(mask, key)
        self.counter.see_layer(batch, key, self.setting)
        return batch


class Counted:
    """The handler of a replaced layer whose operations are counted."""

    def __init__(self, handler: Any, counter: Counter, setting: Setting) -> None:
        self.handler, self.counter, self.setting = handler, counter, setting

    def begin(self, ids: Any, pixels: Any) -> CountedPass:
        """The model is about to run."""
        return CountedPass(self.handler.begin(ids, pixels), self.counter, self.setting)

    def __call__(self, state: Any, *tensors: Any, **options: Any) -> Any:
        """Attend."""
        return self.handler(state, *tensors, **options)


class Lengths:
    """The handler of the first layer, where the lengths of the texts are seen."""

    def __init__(self, handler: Timed, counter: Counter) -> None:
        self.handler, self.counter = handler, counter
        self.plans = Plans(Windows(4))

    def begin(self, ids: Any, pixels: Any) -> Any:
        """The model is about to run."""
        return self.plans.begin(ids, pixels), self.handler.begin(ids, pixels)

    def __call__(
        self, state: Any, module: Any, query: Any, key: Any, *more: Any, **options: Any
    ) -> Any:
        """See the lengths, and attend."""
        begin = time.perf_counter()
        self.counter.see_lengths(state[0].batch(more[1], key), key)
        self.counter.seconds += time.perf_counter() - begin
        return self.handler(state[1], module, query, key, *more, **options)
