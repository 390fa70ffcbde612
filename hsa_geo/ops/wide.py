"""Attention within one wide group: matrix products, and never a b x b matrix.

The scores of a few rows at a time are computed, used and forgotten, forward and backward, so
memory grows with b.  The formulas are those of :mod:`hsa_geo.ops.compiled.groups`.  A group of
leaves without biases or positions is plain softmax attention, for which PyTorch has a fused
kernel; what that lacks, the gradient through the log-sum-exp, gets in by one more channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["WideGradients", "WideGroup", "wide_backward", "wide_forward"]

#: Scores computed at a time, over all heads: 4 MB in float32.
_AT_ONCE = 1 << 20
#: The fused kernel takes weights from the log-sum-exp as it is, rounded: at most so wrong.
_LOST = 1e-4

#: PyTorch's fused attention on the CPU, which returns the log-sum-exp as well, and its gradient.
_FUSED: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_FUSED_BACKWARD: Any = getattr(
    torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None
)


@dataclass(frozen=True)
class WideGroup:
    """One group of b members.

    Attributes:
        q: ``[b, H, D]``.
        k: ``[b, H, D]``.
        v: ``[b, H, Dv]``.
        scale: Factor of q . k.
        diagonal: Whether members attend to themselves.
        term: ``[b, H]``, added to the scores of each key, or None.
        top: ``[b, H, P]``, position embeddings, or None.
        own: ``[b, H, P]``, those that count in a leaf's own score, or None.
        bias: ``[b (b - 1), H or 1]`` in public order, or None.
        mask: ``[b (b - 1), H]``, or None.
        own_mask: ``[b, H]``, mask of a leaf's weight on itself, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    diagonal: bool
    term: Tensor | None = None
    top: Tensor | None = None
    own: Tensor | None = None
    bias: Tensor | None = None
    mask: Tensor | None = None
    own_mask: Tensor | None = None


@dataclass(frozen=True)
class WideGradients:
    """Gradients of the tensors of a :class:`WideGroup`, by the same names.

    That of ``term`` is zero where the group has none.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    term: Tensor
    top: Tensor | None
    own: Tensor | None
    bias: Tensor | None


def wide_forward(x: WideGroup) -> tuple[Tensor, Tensor]:
    """Output ``[b, H, Dv]`` and log-sum-exp ``[b, H]``.

    Example:
        >>> zero, value = torch.zeros(3, 1, 1), torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1)
        >>> out, log_sum = wide_forward(WideGroup(zero, zero, value, 1.0, diagonal=False))
        >>> out.flatten().tolist()  # each the mean of the other two
        [3.0, 2.5, 1.5]
    """
    if _is_plain(x):
        query, key, value = (_padded(t, x, 0) for t in (x.q, x.k, x.v))
        out, log_sum = _FUSED(query, key, value, scale=x.scale)
        out, log_sum = out[0, :, :, : x.v.size(2)].transpose(0, 1), log_sum[0].t()
        lost = x.q.isnan().any(-1)  # the kernel takes a row of nan for one without keys: zeros
        if bool(lost.any()):
            out = out.masked_fill(lost[..., None], torch.nan)
            log_sum = log_sum.masked_fill(lost, torch.nan)
        return out, log_sum
    value = _heads(x.v)
    outs, sums = [], []
    for low, high, score in _scores(x):
        top = score.amax(-1, keepdim=True).clamp(min=torch.finfo(score.dtype).min)
        weight = score.sub_(top).exp_()
        total = weight.sum(-1, keepdim=True)
        sums.append((top + total.log()).squeeze(-1))
        weight /= torch.where(total > 0, total, 1.0)
        factor = _mask(x, low, high)
        if factor is not None:
            weight *= factor
        outs.append(torch.bmm(weight, value))
    return torch.cat(outs, 1).transpose(0, 1), torch.cat(sums, 1).t()


def wide_backward(
    x: WideGroup,
    lse: Tensor,
    grad: Tensor,
    weight: Tensor,
    slope: Tensor,
    out: Tensor | None = None,
) -> WideGradients:
    """Gradients, from G ``[b, H, Dv]`` of the weighted outputs.

    Args:
        x: The group.
        lse: ``[b, H]``, from :func:`wide_forward`.
        grad: G.
        weight: ``[b, H]``, factor w of each output.
        slope: ``[b, H]``, gradient of the log-sum-exps.
        out: ``[b, H, Dv]``, the outputs, if they are at hand. (default: computed where needed)

    Returns:
        The gradients.

    Example:
        >>> zero, one = torch.zeros(3, 1, 1), torch.ones(3, 1)
        >>> group = WideGroup(zero, zero, zero, 1.0, diagonal=False)
        >>> out, log_sum = wide_forward(group)
        >>> grads = wide_backward(group, log_sum, zero + 1, one, one)
        >>> grads.v.flatten().tolist(), grads.term.flatten().tolist()
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    """
    if _is_plain(x) and bool(lse.abs().amax() * torch.finfo(lse.dtype).eps < _LOST):
        out = wide_forward(x)[0] if out is None else out
        return _plain_backward(x, lse, grad, weight, slope, out)
    n, heads = lse.shape
    key, value, query, out_grad = _heads(x.k), _heads(x.v), _heads(x.q), _heads(grad)
    to_q, to_k, to_v = query.new_empty(query.shape), torch.zeros_like(key), torch.zeros_like(value)
    to_term = key.new_zeros(heads, n)
    top = None if x.top is None else _heads(x.top)
    to_top = None if top is None else torch.zeros_like(top)
    own = None if x.own is None else _heads(x.own)
    to_own = None if own is None else torch.empty_like(own)
    to_bias = None if x.bias is None else x.q.new_empty(n * (n - 1), heads)
    for low, high, score in _scores(x):
        here = slice(low, high)

        def column(t: Tensor, here: slice = here) -> Tensor:  # [b, H] -> [H, r, 1]
            return t[here].t()[..., None]

        level = column(lse)
        p = score.sub_(torch.where(level > -torch.inf, level, torch.inf)).exp_()
        total = p.sum(-1, keepdim=True)
        p /= torch.where(total > 0, total, 1.0)  # 1, up to the rounding of lse
        ds = torch.bmm(out_grad[:, here], value.transpose(1, 2))
        factor = _mask(x, low, high)
        if factor is not None:
            ds *= factor
        ds.sub_((p * ds).sum(-1, keepdim=True)).mul_(column(weight)).add_(column(slope)).mul_(p)
        p *= column(weight)
        if factor is not None:
            p *= factor
        to_v.baddbmm_(p.transpose(1, 2), out_grad[:, here])
        to_q[:, here] = torch.bmm(ds, key) * x.scale
        to_k.baddbmm_(ds.transpose(1, 2), query[:, here], alpha=x.scale)
        to_term += ds.sum(1)
        row = torch.arange(low, high, device=ds.device)
        if to_own is not None and own is not None and x.diagonal:
            to_own[:, here] = 2 * ds[:, row - low, row][..., None] * own[:, here]
        if to_bias is not None:
            others = _others(low, high, n, ds.device)
            pairs = ds.gather(2, others.expand(heads, -1, -1))  # [H, r, b - 1]
            to_bias[low * (n - 1) : high * (n - 1)] = pairs.flatten(1).t()
        if top is not None and to_top is not None:
            ds[:, row - low, row] = 0  # own scores have their own embeddings
            to_top[:, here] += torch.bmm(ds, top)
            to_top.baddbmm_(ds.transpose(1, 2), top[:, here])

    def back(t: Tensor | None) -> Tensor | None:
        return None if t is None else t.transpose(0, 1)

    return WideGradients(
        q=to_q.transpose(0, 1),
        k=to_k.transpose(0, 1),
        v=to_v.transpose(0, 1),
        term=to_term.t(),
        top=back(to_top),
        own=back(to_own),
        bias=to_bias,
    )


def _is_plain(x: WideGroup) -> bool:
    """Whether the group is softmax attention and nothing more, on the CPU."""
    extras = (x.term, x.top, x.bias, x.mask)
    plain = x.diagonal and all(t is None for t in extras) and min(x.q.numel(), x.v.numel()) > 0
    return plain and not x.q.is_cuda and None not in (_FUSED, _FUSED_BACKWARD)


def _padded(t: Tensor, x: WideGroup, more: int) -> Tensor:
    """``[b, H, D]`` to ``[1, H, b, *]`` with zeros up to the largest of D and Dv + more."""
    width = max(x.q.size(2), x.v.size(2) + more)
    t = t.contiguous()  # the fused kernel takes the last dimension for dense
    return torch.nn.functional.pad(t, (0, width - t.size(2))).transpose(0, 1)[None]


def _plain_backward(
    x: WideGroup, lse: Tensor, grad: Tensor, weight: Tensor, slope: Tensor, out: Tensor
) -> WideGradients:
    """The fused kernel computes ``dS = p (dO . v - dO . O)``.

    With the channels ``dO = [w G, 1]``, ``v = [v, 0]`` and ``O = [0, w delta - dL]`` that is the
    gradient of a weighted output and of the log-sum-exp together.
    """
    dim_v, weight = x.v.size(2), weight[..., None]
    query, key, value = (_padded(t, x, 1) for t in (x.q, x.k, x.v))
    stand_in = torch.zeros_like(value)
    stand_in[0, :, :, dim_v] = (weight[..., 0] * (grad * out).sum(-1) - slope).t()
    out_grad = _padded(weight * grad, x, 1).contiguous()
    out_grad[..., dim_v] = 1
    log_sum = lse.t()[None].contiguous()
    parts = _FUSED_BACKWARD(
        *(out_grad, query, key, value, stand_in, log_sum, 0.0, False), scale=x.scale
    )
    to_q, to_k, to_v = (part[0].transpose(0, 1) for part in parts)
    dim = x.q.size(2)
    return WideGradients(
        q=to_q[..., :dim],
        k=to_k[..., :dim],
        v=to_v[..., :dim_v],
        term=x.q.new_zeros(lse.shape),
        top=None,
        own=None,
        bias=None,
    )


def _heads(x: Tensor) -> Tensor:
    """``[b, H, D]`` to ``[H, b, D]``."""
    return x.transpose(0, 1).contiguous()


def _scores(x: WideGroup) -> Iterator[tuple[int, int, Tensor]]:
    """Some rows at a time: their range and scores ``[H, r, b]``."""
    n, heads, _ = x.q.shape
    query, key = _heads(x.q * x.scale), _heads(x.k).transpose(1, 2)
    top = None if x.top is None else _heads(x.top)
    step = max(1, _AT_ONCE // max(1, n * heads))
    for low in range(0, n, step):
        high = min(low + step, n)
        score = torch.bmm(query[:, low:high], key)
        row = torch.arange(low, high, device=score.device)
        if x.term is not None:
            score += x.term.t()[:, None, :]
        if top is not None:
            score.baddbmm_(top[:, low:high], top.transpose(1, 2))
            if x.own is not None and x.top is not None:
                change = x.own[low:high].square().sum(-1) - x.top[low:high].square().sum(-1)
                score[:, row - low, row] += change.t()
        if x.bias is not None:
            score += _spread(x.bias, low, high, n, 0.0)
        if not x.diagonal:
            score[:, row - low, row] = -torch.inf
        yield low, high, score


def _others(low: int, high: int, n: int, device: torch.device) -> Tensor:
    """``[r, b - 1]``, the others of each row."""
    row = torch.arange(low, high, device=device)[:, None]
    other = torch.arange(n - 1, device=device)
    return other + (other >= row)


def _spread(pairs: Tensor, low: int, high: int, n: int, own: float) -> Tensor:
    """``[b (b - 1), H or 1]`` to ``[H or 1, r, b]``, with ``own`` on the diagonal."""
    part = pairs[low * (n - 1) : high * (n - 1)].t().view(-1, high - low, n - 1)
    out = part.new_full((part.size(0), high - low, n), own)
    return out.scatter_(2, _others(low, high, n, part.device).expand_as(part), part)


def _mask(x: WideGroup, low: int, high: int) -> Tensor | None:
    """Factors of the weights ``[H, r, b]``."""
    if x.mask is None:
        return None
    factor = _spread(x.mask, low, high, len(x.q), 1.0)
    if x.own_mask is not None and x.diagonal:
        row = torch.arange(low, high, device=factor.device)
        factor[:, row - low, row] = x.own_mask[low:high].t()
    return factor
