"""Sibling groups with every option, and attention within one written densely, for autograd."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor

from hsa_geo.ops.wide import WideGroup

#: Options of a group that are tensors with gradients, beside q, k and v.
EXTRAS = ("term", "top", "own", "bias")


def make_group(
    n: int,
    heads: int = 2,
    dim: int = 3,
    value_dim: int = 2,
    *,
    diagonal: bool = True,
    having: tuple[str, ...] = (),
    bias_heads: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> WideGroup:
    """A random group; ``having`` names its options, of "term", "pos", "bias", "mask"."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def factors(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) < 0.7).to(dtype) / 0.7

    pairs, bias_heads = n * (n - 1), heads if bias_heads is None else bias_heads
    out = WideGroup(
        *(draw(n, heads, dim), draw(n, heads, dim), draw(n, heads, value_dim), 0.7, diagonal),
        term=draw(n, heads) if "term" in having else None,
        top=draw(n, heads, 2) if "pos" in having else None,
        own=draw(n, heads, 2) if "pos" in having and diagonal else None,
        bias=draw(pairs, bias_heads) if "bias" in having else None,
        mask=factors(pairs, heads) if "mask" in having else None,
        own_mask=factors(n, heads) if "mask" in having and diagonal else None,
    )
    return out


def to_dtype(x: WideGroup, dtype: torch.dtype) -> WideGroup:
    values = {f.name: getattr(x, f.name) for f in fields(x)}
    return replace(x, **{k: t.to(dtype) for k, t in values.items() if isinstance(t, Tensor)})


def dense(x: WideGroup) -> tuple[Tensor, Tensor]:
    """Output ``[b, H, Dv]`` and log-sum-exp ``[b, H]``, as they are defined."""
    n = len(x.q)
    here = torch.eye(n, dtype=torch.bool)
    score = x.scale * torch.einsum("ihd,jhd->hij", x.q, x.k)
    if x.term is not None:
        score = score + x.term.t()[:, None, :]
    if x.top is not None:
        score = score + torch.einsum("ihp,jhp->hij", x.top, x.top).masked_fill(here, 0.0)
    if x.own is not None:
        score = score + torch.diag_embed(x.own.square().sum(-1).t())
    if x.bias is not None:
        score = score + square(x.bias, n, 0.0)
    if not x.diagonal:
        score = score.masked_fill(here, -torch.inf)
    log_sum = score.logsumexp(-1, keepdim=True)
    theta = (score - log_sum.masked_fill(log_sum == -torch.inf, 0.0)).exp()
    if x.mask is not None:
        factor = square(x.mask, n, 0.0)
        if x.own_mask is not None:
            factor = factor + torch.diag_embed(x.own_mask.t())
        theta = theta * factor
    return torch.einsum("hij,jhd->ihd", theta, x.v), log_sum[..., 0].t()


def square(pairs: Tensor, n: int, own: float) -> Tensor:
    """``[n (n - 1), H]`` in public order to ``[H, n, n]``, with ``own`` on the diagonal."""
    heads = pairs.size(1)
    others = ~torch.eye(n, dtype=torch.bool).expand(heads, n, n)
    return torch.full((heads, n, n), own, dtype=pairs.dtype).masked_scatter(others, pairs.t())


def dense_gradients(x: WideGroup, grad: Tensor, weight: Tensor, slope: Tensor) -> dict[str, Tensor]:
    """Gradients of ``sum(grad * weight * out) + sum(slope * lse)``, by name."""
    names = [name for name in ("q", "k", "v", *EXTRAS) if getattr(x, name) is not None]
    leaf = {name: getattr(x, name).detach().clone().requires_grad_() for name in names}
    out, log_sum = dense(replace(x, **leaf))
    loss = (grad * weight[..., None] * out).sum() + (slope * log_sum).sum()
    parts = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
    return {
        name: torch.zeros_like(t) if part is None else part
        for (name, t), part in zip(leaf.items(), parts)
    }
