"""What HSA is compared with inside a pretrained model, at the same cost: two plainer attentions.

Both attend over the same windows as key-tied HSA and so compute as many products:

- *local*: a token sees the tokens of its own window and the special tokens, nothing else;
- *pooled*: a token sees its window, and of all other windows the mean key and value, as if each
  were one token; that is key-tied HSA without the theorem's term, the logarithm of the leaves.

Example:
    >>> from hsa_geo.hf import Windows
    >>> Rival("local", Windows(4), special_ids=())
    Rival(local, Windows(window=4, special=False))
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data import TreePlan
from hsa_geo.hf.hierarchies import Hierarchy
from hsa_geo.hf.intercept import Handler, original_attention
from hsa_geo.hf.plans import Pass, Plans
from hsa_geo.ops import hsa_attention

RIVALS = ("local", "pooled")


class Rival:
    """A handler of layers; see the module.

    Args:
        kind: ``"local"`` or ``"pooled"``.
        hierarchy: The windows.
        special_ids: Ids of special tokens.
        patch_size: Height and width of a patch, for models of pictures.
    """

    def __init__(
        self,
        kind: str,
        hierarchy: Hierarchy,
        special_ids: Sequence[int],
        patch_size: tuple[int, int] | None = None,
    ) -> None:
        if kind not in RIVALS:
            raise ValueError(f"there is no rival {kind!r}: use one of {', '.join(RIVALS)}.")
        self.kind, self.plans = kind, Plans(hierarchy, tuple(special_ids), patch_size)

    def begin(self, ids: Any, pixels: Any) -> Pass:
        """The model is about to run."""
        return self.plans.begin(ids, pixels)

    def __call__(
        self,
        state: Pass,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Attend; ``[B, H, L, D]`` to ``[B, L, H, D]``."""
        size, _heads, length, _dim = query.shape
        batch = state.batch(attention_mask, key)
        tensors = (batch.rows(x) for x in (query, key, value))
        bias = _bias(self.kind, batch.plan).to(query.dtype)
        out = hsa_attention(*tensors, batch.plan, tie="key", reach_bias=bias, scale=scaling)
        return batch.padded(out, size, length), None

    def __repr__(self) -> str:
        return f"Rival({self.kind}, {self.plans.hierarchy})"


def _bias(kind: str, plan: TreePlan) -> Tensor:
    """``[Q, 1]``, what a rival adds to the scores of key-tied HSA."""
    mass = plan.mass[plan.reach.slot].double()
    bias = torch.where(mass > 1, -torch.inf, 0.0) if kind == "local" else -mass.log()
    return bias[:, None]


class Timed:
    """A handler that measures the seconds spent in attention.

    Args:
        handler: The handler, or None for the model's own attention.
    """

    def __init__(self, handler: Handler | None = None) -> None:
        self.handler, self.seconds = handler, 0.0

    def begin(self, ids: Any, pixels: Any) -> Any:
        """The model is about to run."""
        return None if self.handler is None else self.handler.begin(ids, pixels)

    def __call__(self, state: Any, module: Any, *tensors: Any, **options: Any) -> Any:
        """Attend, and add up the time."""
        begin = perf_counter()
        if self.handler is not None:
            out = self.handler(state, module, *tensors, **options)
        else:
            options.pop("weights", None)
            out = original_attention(module)(module, *tensors, **options)
        self.seconds += perf_counter() - begin
        return out
