"""Key-tied attention by compiled kernels, as an operation with a gradient, on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.fused import gradients_with_graph, is_batched, like_bias
from hsa_geo.ops.inputs import Inputs
from hsa_geo.ops.key_tied import FusedKeyInput, by_blocks, energy_of, fused_key_input

__all__ = ["fused_key_attention"]


@torch.compiler.disable
def fused_key_attention(x: Inputs, mask: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Key-tied attention by compiled kernels.

    Args:
        x: Checked inputs, with ``tie="key"``.
        mask: Dropout mask, see :func:`~hsa_geo.ops.inputs.dropout_mask`.

    Returns:
        Outputs ``[N, H, Dv]`` and energies of the roots ``[B, H]``, without the part of the l2
        energy that comes from the queries alone.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.ops.inputs import check_inputs
        >>> q = torch.zeros(2, 1, 1)
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> fused_key_attention(check_inputs(q, q, q + 3, tree, tie="key"), None)[0].flatten()
        tensor([3., 3.])
    """
    out, log_z = _FusedKey.apply(*fused_key_input(x, mask), x.plan)
    return out, energy_of(log_z, x.plan)


class _FusedKey(torch.autograd.Function):
    """The kernels; a second derivative goes through the padded blocks."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        own: Tensor | None,
        mean_key: Tensor,
        key_term: Tensor,
        mean_value: Tensor,
        pos: Tensor | None,
        bias: Tensor | None,
        reach_bias: Tensor | None,
        mask: tuple[Tensor, Tensor] | None,
        scale: float,
        plan: TreePlan,
    ) -> tuple[Tensor, Tensor]:
        from hsa_geo.ops.compiled.key_tied import forward

        x = FusedKeyInput(
            *(query, own, mean_key, key_term, mean_value, pos, bias, reach_bias, mask, scale)
        )
        out, log_z = forward(x, plan)
        ctx.set_materialize_grads(False)
        pairs, leaves = (None, None) if mask is None else mask
        ctx.save_for_backward(*x[:8], pairs, leaves, log_z)
        ctx.plan, ctx.scale = plan, scale
        return out, log_z

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_z: Tensor | None) -> tuple[Any, ...]:
        from hsa_geo.ops.compiled.key_tied import backward

        *tensors, pairs, leaves, log_z = ctx.saved_tensors
        mask = None if pairs is None else (pairs, leaves)
        x = FusedKeyInput._make([*tensors, mask, ctx.scale])
        if grad is None:
            grad = x.mean_value.new_zeros(len(x.query), *x.mean_value.shape[1:])
        grad_z = torch.zeros_like(log_z) if grad_z is None else grad_z
        if torch.is_grad_enabled() or is_batched(grad) or is_batched(grad_z):
            return *_differentiable(x, ctx.plan, grad, grad_z), None, None, None
        to = backward(x, ctx.plan, log_z.detach(), grad, grad_z)
        biases = like_bias(to[-2], x.bias), like_bias(to[-1], x.reach_bias)
        return *to[:-2], *biases, None, None, None


def _differentiable(
    x: FusedKeyInput, plan: TreePlan, grad: Tensor, grad_z: Tensor
) -> list[Tensor | None]:
    """Gradients with a graph of their own."""

    def outputs(views: dict[str, Any]) -> tuple[Tensor, ...]:
        return by_blocks(x._replace(**views).whole(plan), plan)[:2]

    given = dict(zip(x._fields[:8], x[:8]))
    return gradients_with_graph(given, outputs, (grad, grad_z))
