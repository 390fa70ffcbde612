r"""Hierarchies by content: tokens with like keys are grouped, anew in every layer and pass.

The tokens of a run are halved again and again: at the median of their projections onto the
direction in which their keys differ most, so that halves are of equal size.  Keys are first
projected at random onto a few directions, which keeps their distances roughly and makes halving
cheap; what it costs is counted (:meth:`Clusters.flops`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError
from hsa_geo.hf.labels import Tokens, runs, several_runs

__all__ = ["Clusters"]

#: Directions that keys are projected onto.
_DIRECTIONS = 16
#: Steps of power iteration for the direction of the largest spread.
_STEPS = 2


@dataclass(frozen=True)
class Clusters:
    """Groups of tokens with like keys, groups of groups, and so on.

    Args:
        window: Most tokens of a group, and most groups of a larger one: 2, 4, 8, 16, ...
            (default: ``4``)

    Raises:
        ShapeError: If ``window`` is no power of two.

    Example:
        >>> keys = torch.tensor([0.0, 9.0, 0.1, 9.1, 0.2, 9.2, 0.3, 9.3]).view(8, 1, 1)
        >>> zero = torch.zeros(8, dtype=torch.int64)
        >>> tokens = Tokens(zero, torch.arange(8), zero.bool(), None, None, 1)
        >>> (label,) = Clusters(4).labels(tokens, keys)
        >>> sorted(label[::2].tolist()) == [label[0]] * 4, bool((label[::2] != label[1::2]).all())
        (True, True)
    """

    window: int = 4

    def __post_init__(self) -> None:
        window = self.window
        if type(window) is not int or not 2 <= window <= 2**30 or window & (window - 1):
            raise ShapeError(f"window={self.window!r}: give a power of two, such as 4.")

    @torch.no_grad()
    def labels(self, tokens: Tokens, keys: Tensor) -> list[Tensor]:
        """Labels of each level, lowest first.

        Args:
            tokens: The tokens.
            keys: ``[N, H, D]``.

        Returns:
            Labels ``[N]``.
        """
        group = runs(tokens)
        inside = group >= 0
        if not bool(inside.any()):
            return []
        x = _projected(keys[inside].flatten(1).float())
        run = torch.unique(group[inside], return_inverse=True)[1]
        need = _halvings(torch.bincount(run), self.window)[run]  # of each token's run
        part, most = run, int(need.max())
        history = [part]
        for step in range(most):
            part = _halved(x, part, need > step)
            history.append(part)
        # Levels are cut from below, so that the lowest groups are full: the k-th after as many
        # halvings as a run needs, less k times those that make one group of the level above.
        steps = torch.stack(history)  # [most + 1, n]
        at = torch.arange(len(run), device=x.device)
        labels = []
        for less in range(0, most, self.window.bit_length() - 1):
            done = (need - less).clamp(min=0)
            number = steps[done, at] - (run << done) + (run << most)  # told apart by run
            number = torch.where(done > 0, number, -1)
            labels.append(torch.full_like(group, -1).masked_scatter(inside, number))
        return labels + several_runs(tokens, group)

    def flops(self, lengths: list[int], dim: int) -> int:
        """Operations of grouping the tokens of a layer.

        Args:
            lengths: Tokens of each text.
            dim: Features of a key, of all heads.

        Returns:
            Their number: the projection, and for every halving means, power iteration and
            projection.
        """
        total = 0
        for length, halvings in zip(
            lengths, _halvings(torch.tensor(lengths), self.window).tolist()
        ):
            each = 2 * _DIRECTIONS * (2 + 2 * _STEPS + 1)
            total += length * (2 * dim * _DIRECTIONS + halvings * each)
        return total


def _halvings(count: Tensor, window: int) -> Tensor:
    """Halvings until no part of ``count`` tokens has more than ``window``."""
    return (count.double() / window).clamp(min=1).log2().sub(1e-9).ceil().long().clamp(min=0)


def _projected(x: Tensor) -> Tensor:
    """Rows projected onto random directions, always the same ones."""
    if x.size(1) <= _DIRECTIONS:
        return x
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(x.size(1), _DIRECTIONS, generator=generator).to(x.device)
    return x @ directions / _DIRECTIONS**0.5


def _halved(x: Tensor, part: Tensor, wanted: Tensor) -> Tensor:
    """Parts in two of equal size where it is wanted; of p, ``2 p`` and ``2 p + 1``."""
    parts = int(part.max()) + 1
    count = torch.bincount(part, minlength=parts)

    def total(rows: Tensor) -> Tensor:
        return rows.new_zeros(parts, rows.size(1)).index_add_(0, part, rows)

    centred = x - (total(x) / count.clamp(min=1)[:, None])[part]
    # Power iteration, from the row that is furthest from the mean.
    norm = centred.square().sum(1)
    far = torch.zeros(parts, dtype=norm.dtype, device=x.device)
    far = far.scatter_reduce(0, part, norm, "amax")
    at = torch.where(norm >= far[part], torch.arange(len(part), device=x.device), len(part))
    first = torch.full((parts,), len(part), dtype=torch.int64, device=x.device)
    first = first.scatter_reduce(0, part, at, "amin").clamp(max=len(part) - 1)
    direction = centred[first]
    for _ in range(_STEPS):
        direction = total(centred * (centred * direction[part]).sum(1, keepdim=True))
        direction = direction / direction.norm(dim=1, keepdim=True).clamp(min=1e-12)
    place = (centred * direction[part]).sum(1)

    order = torch.argsort(place, stable=True)
    order = order[torch.argsort(part[order], stable=True)]  # by part, then by place
    rank = torch.empty_like(part)
    rank[order] = torch.arange(len(part), device=x.device)
    rank = rank - (count.cumsum(0) - count)[part]
    return 2 * part + (wanted & (2 * rank >= count[part])).long()
