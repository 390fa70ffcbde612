r"""Which layers to replace, and by which hierarchy: a calibration on unlabelled texts.

The divergence of a replaced layer's attention from the original's is known without the original's
matrix (Theorem 3.2): :math:`\sum_i KL(\theta_i \| \theta^f_i) = N \phi(R) + \sum_i \log \sum_j
e^{s_{ij}}`, and the last term is :math:`-N \phi` of the tree of depth one.  So the divergence of a
token is the difference of two energies, and of two hierarchies over the same queries and keys the
one with the lower energy is the closer, whatever flat attention is.

The model runs as it is, once over the texts; every layer's queries and keys are looked at on
their way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import NonFiniteError, ShapeError
from hsa_geo.hf.clusters import Clusters
from hsa_geo.hf.hierarchies import Flat, Hierarchy, hierarchy_from
from hsa_geo.hf.intercept import (
    Layers,
    default_special_ids,
    original_attention,
    tokenizer_special_ids,
)
from hsa_geo.hf.plans import Batch, Pass, Plans
from hsa_geo.hf.setting import check_special_ids
from hsa_geo.hf.unlabelled import unlabelled
from hsa_geo.ops.attention import tree_energy
from hsa_geo.ops.flops import attention_cost, flat_cost
from hsa_geo.ops.inputs import is_number

__all__ = ["Choice", "Option", "choose_layers", "measure_layers"]

#: Tokens of a batch of texts.
_TOKENS = 4096


@dataclass(frozen=True)
class Option:
    """One layer with one hierarchy and tie, measured.

    Attributes:
        layer: Its number.
        hierarchy: The hierarchy.
        tie: ``"block"`` or ``"key"``.
        kl: Divergence from the layer's own attention, of a token and head in the mean, in nats.
        flops: Operations of attention over all texts, exactly counted.
        flat_flops: Those of the layer as it is.

    Example:
        >>> from hsa_geo.hf import Windows
        >>> option = Option(3, Windows(8), "key", kl=0.2, flops=50, flat_flops=1000)
        >>> option.flops / option.flat_flops
        0.05
    """

    layer: int
    hierarchy: Hierarchy
    tie: str
    kl: float
    flops: int
    flat_flops: int


@dataclass(frozen=True)
class Choice:
    """What is to be replaced.

    Attributes:
        options: One for each layer to be replaced, by layer.
        kl: Sum of their divergences.
        flops: Operations of attention of the whole model, replaced as chosen.
        flat_flops: Those of the model as it is.

    Example:
        >>> from hsa_geo.hf import Windows
        >>> Choice((Option(3, Windows(8), "key", 0.2, 50, 1000),), 0.2, 5050, 6000).layers
        [3]
    """

    options: tuple[Option, ...]
    kl: float
    flops: int
    flat_flops: int

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers to be replaced."""
        return [option.layer for option in self.options]


def measure_layers(
    model: Any,
    batches: Iterable[Mapping[str, Any] | str] | Mapping[str, Any],
    hierarchies: Sequence[Any] = (4, 8, 16),
    ties: Sequence[str] = ("key",),
    *,
    tokenizer: Any = None,
    special_ids: Sequence[int] | None = None,
) -> list[Option]:
    """Measure every layer with every hierarchy and tie.

    Args:
        model: An encoder of transformers, not replaced.
        batches: Texts, a list of str; or inputs of the model, such as a tokenizer's, one or many.
            A few hundred texts of the lengths that matter are enough.
        hierarchies: As :func:`~hsa_geo.hf.replace_attention` takes them.
            (default: windows of 4, 8 and 16)
        ties: ``"block"``, ``"key"`` or both. (default: ``("key",)``)
        tokenizer: Of the model, for texts; it also says which tokens are special.
        special_ids: Ids of special tokens. (default: those that the tokenizer, or else the model's
            config, names)

    Returns:
        An option for each layer, hierarchy and tie.

    Raises:
        ShapeError: If there is no batch or no hierarchy, or texts come without a tokenizer.
        UnsupportedError: If the model is of a type that is not known, or has been replaced.
        NonFiniteError: If scores are no finite numbers.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        ...     intermediate_size=32, vocab_size=50)
        >>> batch = {"input_ids": torch.randint(5, 50, (2, 30))}
        >>> options = measure_layers(BertModel(config), [batch])
        >>> len(options), min(option.kl for option in options) >= 0
        (6, True)
    """
    lists = isinstance(hierarchies, Sequence) and isinstance(ties, Sequence)
    if not lists or isinstance(ties, str):
        raise ShapeError(f"hierarchies={hierarchies!r} and ties={ties!r}: give lists of them.")
    chosen = [hierarchy_from(spec) for spec in hierarchies]
    if not chosen or not ties:
        raise ShapeError("hierarchies=[] or ties=[] leaves nothing to measure: give at least one.")
    layers = Layers.of(model)
    if special_ids is None:
        named = tokenizer is None
        special_ids = (
            default_special_ids(model.config) if named else tokenizer_special_ids(tokenizer)
        )
    ids = check_special_ids(special_ids)
    batches = _inputs(batches, tokenizer, model, layers.patch_size is not None)
    probe = _Probe(layers, [(h, tie) for h in chosen for tie in ties], ids)
    before = {module: module.training for module in model.modules()}
    seen = 0
    with layers.intercepted(probe), torch.no_grad():
        model.eval()
        try:
            for batch in batches:
                if not isinstance(batch, Mapping):
                    raise ShapeError(
                        f"batches holds a {type(batch).__name__}: give inputs of the model by "
                        "name, such as {'input_ids': ids}, or texts with tokenizer=, in a list."
                    )
                model(**batch)
                seen += 1
        finally:
            for module, mode in before.items():
                module.training = mode
    if not seen:
        raise ShapeError("batches holds none: give some inputs of the model.")
    return probe.options()


def _inputs(batches: Any, tokenizer: Any, model: Any, pictures: bool) -> Iterable[Any]:
    """Inputs of the model: those that are given, or made of texts."""
    if isinstance(batches, Mapping):
        return [batches]
    if isinstance(batches, (str, bytes)) or not isinstance(batches, Iterable):
        raise ShapeError(
            f"batches={batches!r:.80}: give texts, or inputs of the model by name, in a list."
        )
    if tokenizer is None:
        return batches
    given = list(batches)
    if not any(isinstance(one, str) for one in given):
        return given
    texts = unlabelled(given, tokenizer, model.config, pictures, None)
    parts = texts.batches(range(len(texts)), _TOKENS, seed=0)
    return (
        {name: x.to(model.device) for name, x in texts.inputs(rows).items() if torch.is_tensor(x)}
        for rows in parts
    )


def choose_layers(
    model: Any,
    batches: Iterable[Mapping[str, Any]] | Mapping[str, Any],
    hierarchies: Sequence[Any] = (4, 8, 16),
    ties: Sequence[str] = ("key",),
    *,
    max_flops: float | None = None,
    max_kl: float | None = None,
    tokenizer: Any = None,
    special_ids: Sequence[int] | None = None,
) -> Choice:
    """Choose layers and hierarchies within a budget.

    With ``max_kl`` the operations are made as few as the budget allows, with ``max_flops`` the
    divergence as small.  Starting from the model as it is, the step that saves most operations
    for a nat of divergence is taken again and again (on the lower convex hull of each layer's
    options), which is the best choice but for the last step.

    Args:
        model, batches, hierarchies, ties, tokenizer, special_ids: As in :func:`measure_layers`.
        max_flops: Operations of attention that may remain, as a share of the model's, 0 to 1.
        max_kl: Sum over the replaced layers of the divergence of a token and head, in nats.

    Returns:
        The choice.

    Raises:
        ShapeError: If not exactly one budget is given, or it cannot be kept.
        UnsupportedError, NonFiniteError: As in :func:`measure_layers`.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        ...     intermediate_size=32, vocab_size=50)
        >>> batch = {"input_ids": torch.randint(5, 50, (2, 40))}
        >>> choice = choose_layers(BertModel(config), [batch], max_flops=0.6)
        >>> choice.flops <= 0.6 * choice.flat_flops
        True
    """
    if (max_flops is None) == (max_kl is None):
        raise ShapeError(
            f"max_flops={max_flops} and max_kl={max_kl}: give one budget, and not both."
        )
    budget: Any = max_kl if max_flops is None else max_flops
    number = is_number(budget) and not isinstance(budget, bool)
    if not number or not math.isfinite(float(budget)) or budget < 0:
        raise ShapeError(f"a budget of {budget!r}: give a number of at least 0.")
    if max_flops is not None and max_flops > 1:
        raise ShapeError(
            f"max_flops={max_flops}: give the share of the operations that may remain, 0 to 1."
        )
    options = measure_layers(
        model, batches, hierarchies, ties, tokenizer=tokenizer, special_ids=special_ids
    )
    by_layer: dict[int, list[Option]] = {}
    for option in options:
        by_layer.setdefault(option.layer, []).append(option)
    flat = sum(some[0].flat_flops for some in by_layer.values())
    limit = float("-inf") if max_flops is None else max_flops * flat

    # Steps along every layer's hull, the cheapest divergence per saved operation first.
    steps = []
    for some in by_layer.values():
        at_kl, at_flops = 0.0, some[0].flat_flops
        for option in _hull(some):
            price = (option.kl - at_kl) / max(at_flops - option.flops, 1)
            steps.append((price, option.kl, option, option.kl - at_kl))
            at_kl, at_flops = option.kl, option.flops
    taken: dict[int, Option] = {}
    closed: set[int] = set()  # layers a step of which did not fit, so that none behind it may come
    kl, flops = 0.0, flat
    for _, _, option, more in sorted(steps, key=lambda step: step[:2]):
        layer = option.layer
        if flops <= limit or layer in closed:
            continue
        if max_kl is not None and kl + more > max_kl:
            closed.add(layer)
            continue
        flops += option.flops - (taken[layer].flops if layer in taken else option.flat_flops)
        kl += more
        taken[layer] = option
    if flops > limit and max_flops is not None:
        raise ShapeError(
            f"max_flops={max_flops} cannot be kept: with every layer replaced {flops / flat:.3f} "
            "of the operations remain, so allow more, or give other windows."
        )
    chosen = tuple(taken[layer] for layer in sorted(taken))
    return Choice(chosen, kl, int(flops), flat)


def _hull(options: Sequence[Option]) -> list[Option]:
    """Options that are best for some price of an operation, by increasing divergence."""
    hull: list[tuple[float, float, Option | None]] = [(0.0, float(options[0].flat_flops), None)]
    for option in sorted(options, key=lambda o: (o.kl, o.flops)):
        if option.flops >= hull[-1][1]:
            continue
        while len(hull) > 1:
            (kl0, f0, _), (kl1, f1, _) = hull[-2:]
            if (kl1 - kl0) * (f0 - option.flops) <= (option.kl - kl0) * (f0 - f1):
                break
            hull.pop()
        hull.append((option.kl, float(option.flops), option))
    return [option for _, _, option in hull if option is not None]


class _Probe:
    """Looks at queries and keys of every layer; the model runs as it would."""

    def __init__(
        self, layers: Layers, kinds: list[tuple[Hierarchy, str]], special_ids: tuple[int, ...]
    ) -> None:
        self.layers, self.kinds = layers, kinds
        self.plans = [Plans(h, special_ids, layers.patch_size) for h, _ in kinds]
        self.flat = Plans(Flat(), special_ids, layers.patch_size)
        self.kl = [[0.0] * len(kinds) for _ in layers.modules]
        self.flops = [[0] * len(kinds) for _ in layers.modules]
        self.flat_flops = [0] * len(layers.modules)
        self.tokens = [0] * len(layers.modules)

    def begin(self, ids: Any, pixels: Any) -> list[Pass]:
        return [plans.begin(ids, pixels) for plans in (self.flat, *self.plans)]

    def __call__(
        self,
        state: list[Pass],
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> Any:
        number = self.layers.modules.index(module)
        _size, heads, _length, dim = query.shape
        scale, relative = options.get("scaling"), options.get("position_bias")
        flat = state[0].batch(attention_mask, key)
        q, k = flat.rows(query), flat.rows(key)
        leaves = flat.plan.count[: flat.plan.num_trees].to(q.dtype)  # of each text

        def energy(batch: Batch, tie: str) -> float:  # over all tokens, the mean of the heads
            given: dict[str, Any] = {"tie": tie, "scale": scale, **batch.bias(relative, tie)}
            return float((tree_energy(q, k, batch.plan, **given).mean(1) * leaves).sum())

        base = energy(flat, "block")
        self.tokens[number] += len(q)
        self.flat_flops[number] += flat_cost(flat.plan, heads, dim).total
        for i, ((hierarchy, tie), one) in enumerate(zip(self.kinds, state[1:])):
            batch = one.batch(attention_mask, key)
            self.kl[number][i] += energy(batch, tie) - base
            self.flops[number][i] += attention_cost(batch.plan, heads, dim, tie=tie).total
            if isinstance(hierarchy, Clusters):
                lengths = leaves.long().tolist()
                self.flops[number][i] += hierarchy.flops(lengths, heads * dim)
        options.pop("weights", None)
        return original_attention(module)(module, query, key, value, attention_mask, **options)

    def options(self) -> list[Option]:
        for number, sums in enumerate(self.kl):
            if not all(map(math.isfinite, sums)):
                raise NonFiniteError(
                    f"divergences of layer {number} are {sums}: the model, or what went in, holds "
                    "numbers that are not finite."
                )
        return [
            Option(
                number,
                hierarchy,
                tie,
                max(self.kl[number][i], 0.0) / max(self.tokens[number], 1),
                self.flops[number][i],
                self.flat_flops[number],
            )
            for number in range(len(self.layers.modules))
            for i, (hierarchy, tie) in enumerate(self.kinds)
        ]
