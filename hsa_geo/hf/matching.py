r"""How far the outputs of a model are from those of another: the loss of a recovery.

With the relative error :math:`\epsilon(h, t) = \sum_i \| h_i - t_i \|^2 / \sum_i \| t_i \|^2`

.. math::
    L = \frac{1}{3} \left( \frac{1}{K} \sum_l \epsilon(h^l, t^l) + \epsilon(\bar h, \bar t) +
    \epsilon(h_0, t_0) \right)

over all tokens that are no padding, of K layers' outputs; over the texts' mean last outputs; and
over the last outputs of their first tokens.  The mean and the first token are what heads and probes
read: errors that all lean to one side are small at every token, and move every text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["first_tokens", "matching_loss", "mean_tokens", "relative_error"]


def matching_loss(found: Sequence[Tensor], wanted: Sequence[Tensor], valid: Tensor) -> Tensor:
    """The loss, see the module.

    Args:
        found: Outputs ``[B, L, D]`` of layers, the model's last.
        wanted: What they should be.
        valid: ``[B, L]`` bool, which tokens are no padding; one of every text at least.

    Returns:
        A number: 0 where all are the same.

    Example:
        >>> t = torch.randn(2, 5, 4)
        >>> valid = torch.ones(2, 5, dtype=torch.bool)
        >>> round(matching_loss([0.5 * t, 0.5 * t], [t, t], valid).item(), 4)
        0.25
    """
    layers = [relative_error(h[valid], t[valid]) for h, t in zip(found, wanted)]
    mean, first = (
        relative_error(part(found[-1], valid), part(wanted[-1], valid))
        for part in (mean_tokens, first_tokens)
    )
    return (torch.stack(layers).mean() + mean + first) / 3


def relative_error(h: Tensor, t: Tensor) -> Tensor:
    """Squared error, relative to the square of what should be there.

    Example:
        >>> relative_error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))
        tensor(0.1000)
    """
    return (h - t).square().sum() / t.square().sum().clamp(min=torch.finfo(t.dtype).tiny)


def mean_tokens(h: Tensor, valid: Tensor) -> Tensor:
    """The mean over the tokens of every text.

    Args:
        h: ``[B, L, D]``.
        valid: ``[B, L]`` bool.

    Returns:
        ``[B, D]``.

    Example:
        >>> mean_tokens(torch.tensor([[[1.0], [5.0]]]), torch.tensor([[True, False]]))
        tensor([[1.]])
    """
    weight = valid.unsqueeze(-1).to(h.dtype)
    return (h * weight).sum(1) / weight.sum(1)


def first_tokens(h: Tensor, valid: Tensor) -> Tensor:
    """The first token of every text.

    Args:
        h: ``[B, L, D]``.
        valid: ``[B, L]`` bool.

    Returns:
        ``[B, D]``.

    Example:
        >>> first_tokens(torch.tensor([[[1.0], [5.0]]]), torch.tensor([[False, True]]))
        tensor([[5.]])
    """
    return h[torch.arange(len(h), device=h.device), valid.int().argmax(1)]
