"""The ``"numba"`` backend: compiled kernels as one PyTorch operator with a gradient.

To ``torch.compile`` the operator is opaque.  Everything about the trees comes in one packed
tensor, so a compiled model takes trees of any shape without compiling again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import UnsupportedError
from hsa_geo.ops.block import BlockPasses
from hsa_geo.ops.dynamic import solve
from hsa_geo.ops.inputs import Dropout, Inputs

__all__ = ["fused_attention", "gradients_with_graph", "is_batched", "like_bias"]


def fused_attention(x: Inputs, mask: Dropout | None = None) -> tuple[Tensor, Tensor]:
    """Hierarchical attention by compiled kernels, on the CPU.

    Args:
        x: Checked inputs.
        mask: Dropout mask, see :func:`~hsa_geo.ops.inputs.dropout_mask`. (default: :obj:`None`)

    Returns:
        Outputs ``[N, H, Dv]`` and energies of the roots ``[B, H]``, without the part of the l2
        energy that comes from the queries alone.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.ops.inputs import check_inputs
        >>> q = torch.zeros(2, 1, 1)
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> fused_attention(check_inputs(q, q, q + 3, tree))[0].flatten().tolist()
        [3.0, 3.0]
    """
    tensors = (x.query, x.key, x.value, x.term, x.pos, x.bias)
    if not torch.compiler.is_compiling():
        phi, out = _Fused.apply(*tensors, x, mask)
        return out, phi
    q, k, v, *others = tensors
    pairs, own = (None, None) if mask is None else mask
    phi, out, *_ = _attention(q, k, v, x.plan.packed, *others, pairs, own, x.scale)
    return out, phi


class _Fused(torch.autograd.Function):
    """The kernels outside ``torch.compile``.

    For a second derivative the gradient is computed anew by the ``"block"`` backend, whose every
    step differentiates any number of times.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        term: Tensor | None,
        pos: Tensor | None,
        bias: Tensor | None,
        x: Inputs,
        mask: Dropout | None,
    ) -> tuple[Tensor, Tensor]:
        from hsa_geo.ops.compiled.attention import forward
        from hsa_geo.ops.compiled.frame import Call

        pairs, own = (None, None) if mask is None else mask
        call = Call(q, k, v, x.plan.packed, term, pos, bias, pairs, own, x.scale)
        phi, saved = forward(call)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, term, pos, bias, pairs, own, x.plan.packed, *saved)
        ctx.plan, ctx.scale = x.plan, x.scale
        return phi, saved.result

    @staticmethod
    def backward(ctx: Any, grad_phi: Tensor | None, grad: Tensor | None) -> tuple[Any, ...]:
        from hsa_geo.ops.compiled.attention import Saved
        from hsa_geo.ops.compiled.frame import Call
        from hsa_geo.ops.compiled.gradient import backward

        q, k, v, term, pos, bias, pairs, own, packed, *rest = ctx.saved_tensors
        saved = Saved(*(t.detach() for t in rest))
        grad = torch.zeros_like(saved.result) if grad is None else grad
        if grad_phi is None:
            grad_phi = q.new_zeros(ctx.plan.num_trees, q.size(1))
        if torch.is_grad_enabled() or is_batched(grad) or is_batched(grad_phi):
            # create_graph=True, or is_grads_batched=True, which hands over many gradients at once
            mask = None if pairs is None else (pairs, own)
            inputs = Inputs(q, k, v, term, pos, bias, ctx.plan, ctx.scale, l2=False)
            return *_differentiable(inputs, mask, grad, grad_phi), None, None
        call = Call(q, k, v, packed, term, pos, bias, pairs, own, ctx.scale)
        to = backward(call, saved, grad, grad_phi)
        return *to[:5], like_bias(to.bias, bias), None, None


def is_batched(grad: Tensor) -> bool:
    """Whether a gradient stands for many, as in a vectorised Jacobian.

    Example:
        >>> is_batched(torch.zeros(1))
        False
    """
    return bool(torch._C._functorch.is_legacy_batchedtensor(grad))


def _differentiable(
    x: Inputs, mask: Dropout | None, grad: Tensor, grad_phi: Tensor
) -> list[Tensor | None]:
    """Gradients with a graph of their own."""

    def outputs(views: dict[str, Any]) -> tuple[Tensor, Tensor]:
        solution = solve(replace(x, **views), BlockPasses(), mask)
        return solution.out, solution.phi

    names = ("query", "key", "value", "term", "pos", "bias")
    return gradients_with_graph({n: getattr(x, n) for n in names}, outputs, (grad, grad_phi))


def gradients_with_graph(
    inputs: dict[str, Tensor | None],
    outputs: Callable[[dict[str, Any]], tuple[Tensor, ...]],
    grads: tuple[Tensor, ...],
) -> list[Tensor | None]:
    """Gradients that can be differentiated again, by computing the outputs anew.

    Args:
        inputs: By name, None where there is none.
        outputs: Computes the outputs from views of those inputs that need gradients.
        grads: Gradients of the outputs.

    Returns:
        The gradient of each input, None where it needs none.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (grad,) = gradients_with_graph({"x": x}, lambda v: (v["x"] ** 2,), (torch.ones(2),))
        >>> grad.tolist(), grad.requires_grad
        ([2.0, 2.0], True)
    """
    wanted = {name: t for name, t in inputs.items() if t is not None and t.requires_grad}
    with torch.enable_grad():
        # Views, since some are computed from others: each is to get its own part only.
        views = {name: t.view_as(t) for name, t in wanted.items()}
        pairs = [(out, grad) for out, grad in zip(outputs(views), grads) if out.requires_grad]
    parts: tuple[Tensor | None, ...] = (None,) * len(views)
    if pairs:
        parts = torch.autograd.grad(
            [out for out, _ in pairs],
            list(views.values()),
            [grad for _, grad in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
    found = {n: torch.zeros_like(wanted[n]) if g is None else g for n, g in zip(views, parts)}
    return [found.get(name) for name in inputs]


def like_bias(grad: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """The gradient of a bias ``[P, H]`` as that of one which all heads share, if it is one.

    Example:
        >>> like_bias(torch.ones(2, 3), torch.zeros(2, 1)).tolist()
        [[3.0], [3.0]]
    """
    if grad is None or bias is None:
        return None
    return grad.sum(1, keepdim=True) if bias.size(1) == 1 else grad


@torch.library.custom_op("hsa_geo::attention", mutates_args=(), device_types="cpu")
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packed: Tensor,
    term: Tensor | None,
    pos: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    own_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from hsa_geo.ops.compiled.attention import forward
    from hsa_geo.ops.compiled.frame import Call

    phi, saved = forward(Call(q, k, v, packed, term, pos, bias, mask, own_mask, scale))
    return phi, *saved


@_attention.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packed: Tensor,
    term: Tensor | None,
    pos: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    own_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, ...]:
    sizes = torch.library.get_ctx()
    trees, kept = sizes.new_dynamic_size(), sizes.new_dynamic_size()  # the tensor's contents say
    n, heads, dim = q.shape
    new = q.new_empty
    return (
        new(trees, heads),
        new(v.shape),
        new(n, heads),
        *(new(kept, heads, dim), new(kept, heads, dim), new(kept, heads, v.size(2))),
        *(new(kept, heads, v.size(2)), new(kept, heads, v.size(2)), new(6, kept, heads)),
    )


@torch.library.custom_op("hsa_geo::attention_backward", mutates_args=(), device_types="cpu")
def _attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packed: Tensor,
    term: Tensor | None,
    pos: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    own_mask: Tensor | None,
    scale: float,
    saved: list[Tensor],
    grad: Tensor,
    grad_phi: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from hsa_geo.ops.compiled.attention import Saved
    from hsa_geo.ops.compiled.frame import Call
    from hsa_geo.ops.compiled.gradient import backward

    call = Call(q, k, v, packed, term, pos, bias, mask, own_mask, scale)
    to = backward(call, Saved(*saved), grad, grad_phi)
    term_, pos_, bias_ = (q.new_empty(0) if x is None else x for x in to[3:])
    return to.q, to.k, to.v, term_, pos_, bias_


@_attention_backward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packed: Tensor,
    term: Tensor | None,
    pos: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    own_mask: Tensor | None,
    scale: float,
    saved: list[Tensor],
    grad: Tensor,
    grad_phi: Tensor,
) -> tuple[Tensor, ...]:
    def like(x: Tensor | None) -> Tensor:
        return q.new_empty(0) if x is None else q.new_empty(x.shape)

    to_bias = q.new_empty(0) if bias is None else q.new_empty(bias.size(0), q.size(1))
    return like(q), like(k), like(v), like(term), like(pos), to_bias


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_phi: Tensor | None, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    q, k, v, packed, term, pos, bias, mask, own_mask, phi, *saved = ctx.saved_tensors
    saved = [x.detach() for x in saved]  # the outputs among them count as requiring a gradient
    grad = torch.zeros_like(saved[0]) if grad is None else grad
    grad_phi = torch.zeros_like(phi) if grad_phi is None else grad_phi
    to_q, to_k, to_v, to_term, to_pos, to_bias = _attention_backward(
        *(q, k, v, packed, term, pos, bias, mask, own_mask, ctx.scale, saved, grad, grad_phi)
    )
    return (
        *(to_q, to_k, to_v, None),
        None if term is None else to_term,
        None if pos is None else to_pos,
        like_bias(to_bias, bias),
        *(None, None, None),
    )


def _refuse_second(ctx: Any, *_: Any) -> None:
    raise UnsupportedError(
        "the compiled 'numba' backend has no second derivative: use backend='block' or 'edge', or "
        "do without torch.compile."
    )


_attention.register_autograd(_backward, setup_context=_save)
_attention_backward.register_autograd(_refuse_second)
