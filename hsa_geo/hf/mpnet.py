"""MPNet's attention, which does not ask for its function by name, nor hands anything on.

Its modules get another ``forward``, and learn from a context variable which pass runs.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import UnsupportedError

__all__ = ["begin_pass", "end_pass", "mpnet_attention", "mpnet_forward", "state_of"]

#: The pass that runs, in this thread.
_pass: ContextVar[dict[int, Any] | None] = ContextVar("hsa_geo_pass", default=None)


def begin_pass(states: dict[int, Any]) -> None:
    """The model is about to run; what its handlers know of the pass.

    Example:
        >>> handler = object()
        >>> begin_pass({id(handler): "state"})
        >>> state_of(_pass.get(), handler)
        'state'
        >>> end_pass()
    """
    _pass.set(states)


def end_pass(*_: Any) -> None:
    """The model has run, or failed: layers that run now run outside of it.

    Example:
        See that of :func:`begin_pass`.
    """
    _pass.set(None)


def state_of(states: dict[int, Any] | None, handler: Any) -> Any:
    """What a handler knows of the pass.

    Raises:
        UnsupportedError: If its layer runs outside of a pass.

    Example:
        See that of :func:`begin_pass`.
    """
    if states is None or id(handler) not in states:
        raise UnsupportedError(
            "a replaced layer runs outside of its model, whose tokens it does not know: call the "
            "model, model(...), not its encoder or model.forward(...)."
        )
    return states[id(handler)]


def mpnet_forward(
    module: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, ...]:
    """In the place of the forward of MPNet's attention, which has projections of its own.

    Args:
        module: The attention module, with a handler.
        hidden_states: ``[B, L, H D]``.
        attention_mask: Of padding, or None.
        position_bias: ``[B, H, L, L]``, or None.
        output_attentions: Whether the weights are wanted.

    Returns:
        ``[B, L, H D]``, and the weights if they are wanted.
    """
    shape = (*hidden_states.shape[:-1], -1, module.attention_head_size)
    q, k, v = (
        linear(hidden_states).view(shape).transpose(1, 2)
        for linear in (module.q, module.k, module.v)
    )
    handler = module._hsa_handler
    out, weights = handler(
        *(state_of(_pass.get(), handler), module, q, k, v, attention_mask),
        dropout=module.dropout.p if module.training else 0.0,
        scaling=module.attention_head_size**-0.5,
        position_bias=position_bias,
        weights=output_attentions,
    )
    out = module.o(out.flatten(2))
    return (out, weights) if output_attentions else (out,)


def mpnet_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """What MPNet's attention does between its projections; ``[B, H, L, D]`` to ``[B, L, H, D]``.

    Example:
        >>> x = torch.zeros(1, 2, 3, 4)
        >>> mpnet_attention(None, x, x, x, None)[0].shape
        torch.Size([1, 3, 2, 4])
    """
    bias = position_bias
    if attention_mask is not None:
        bias = attention_mask if bias is None else bias + attention_mask
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling
    )
    return out.transpose(1, 2), None
