"""Relative positions of a pretrained encoder as biases of blocks: means over pairs of intervals.

An encoder such as MPNet adds to every score a number f(j - i) of the distance of its tokens.  Tied
attention needs its mean over all i under B and j under C, two intervals of places.  With the sums
``G(m) = sum_{d < m} f(d)`` and ``GG(m) = sum_{t < m} G(t)``, for i in [a, b) and j in [c, e)::

    sum_ij f(j - i) = GG(e - a + 1) - GG(e - b + 1) - GG(c - a + 1) + GG(c - b + 1)

so that a mean costs four look-ups, however large the blocks are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.errors import UnsupportedError

__all__ = ["block_bias", "distances", "reach_bias", "slot_intervals"]


def distances(bias: Tensor) -> Tensor:
    """What a bias says of every distance.

    Args:
        bias: ``[H, L, L]``, the same along diagonals.

    Returns:
        ``[2 L - 1, H]``, f of ``-(L - 1)`` to ``L - 1``.

    Example:
        >>> bias = torch.tensor([[[0.0, 1.0, 2.0], [-1.0, 0.0, 1.0], [-2.0, -1.0, 0.0]]])
        >>> distances(bias).flatten().tolist()
        [-2.0, -1.0, 0.0, 1.0, 2.0]
    """
    return torch.cat([bias[:, :, 0].flip(1), bias[:, 0, 1:]], 1).t()


def slot_intervals(plan: TreePlan, place: Tensor) -> tuple[Tensor, Tensor]:
    """The interval of places under every slot.

    Args:
        plan: The plan.
        place: ``[N]``, place of every leaf in its text.

    Returns:
        First place and the one behind the last, ``[S]`` each.

    Raises:
        UnsupportedError: If the leaves under a slot are not side by side.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> [t.tolist() for t in slot_intervals(plan, torch.arange(4))]
        [[0, 0, 2, 0, 1, 2, 3], [4, 2, 4, 1, 2, 3, 4]]
    """
    slot, rows = torch.arange(plan.num_slots, device=place.device), place[plan.leaf_order]
    of = torch.repeat_interleave(slot, plan.count)
    at = torch.arange(len(of), device=place.device) - (plan.count.cumsum(0) - plan.count)[of]
    value = rows[plan.leaf_start[of] + at]
    low = torch.full_like(slot, torch.iinfo(torch.int64).max)
    low = low.scatter_reduce(0, of, value, "amin")
    high = torch.full_like(slot, -1).scatter_reduce(0, of, value, "amax") + 1
    inner = plan.slot_group >= 0  # a root's own interval does not count
    if bool(((high - low != plan.count) & inner).any()):
        raise UnsupportedError(
            "the hierarchy groups tokens that are not side by side, and this encoder scores by "
            "distances: use windows or sentences."
        )
    return low, high


def block_bias(f: Tensor, plan: TreePlan, place: Tensor) -> Tensor:
    """Mean of ``f(j - i) - f(0)`` over the leaves of every ordered sibling pair.

    A score of a token with itself has f(0), which is taken from all, as softmax allows.

    Args:
        f: ``[2 L - 1, H]``, see :func:`distances`.
        plan: The plan.
        place: ``[N]``, place of every leaf in its text.

    Returns:
        ``[pairs, H]``, in the public order of pairs.

    Raises:
        UnsupportedError: As in :func:`slot_intervals`.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> f = torch.arange(-3.0, 4.0)[:, None]  # f(d) = d
        >>> block_bias(f, plan, torch.arange(4)).flatten().tolist()
        [1.0, -1.0, 1.0, -1.0, 2.0, -2.0]
    """
    low, high = slot_intervals(plan, place)
    pairs = plan.pairs
    a, b, c, e = low[pairs.target], high[pairs.target], low[pairs.source], high[pairs.source]
    _, twice = _prefix_sums(f)
    middle = (len(f) - 1) // 2  # of distance 0

    def at(m: Tensor) -> Tensor:
        return twice[m + middle]

    total = at(e - a + 1) - at(e - b + 1) - at(c - a + 1) + at(c - b + 1)
    mean = total / ((b - a) * (e - c))[:, None] - f[middle].double()
    return torch.empty_like(mean).index_copy(0, pairs.public, mean).to(f.dtype)


def reach_bias(f: Tensor, plan: TreePlan, place: Tensor) -> Tensor:
    """Mean of ``f(j - i) - f(0)`` over the leaves j of everything that a leaf i reaches.

    Args:
        f: ``[2 L - 1, H]``, see :func:`distances`.
        plan: The plan.
        place: ``[N]``, place of every leaf in its text.

    Returns:
        ``[Q, H]``, in the order of ``plan.reach``.

    Raises:
        UnsupportedError: As in :func:`slot_intervals`.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> f = torch.arange(-3.0, 4.0)[:, None]
        >>> reach_bias(f, plan, torch.arange(4)).flatten().tolist()
        [1.0, 2.5, -1.0, 1.5, 1.0, -1.5, -1.0, -2.5]
    """
    low, high = slot_intervals(plan, place)
    reach = plan.reach
    i, c, e = place[reach.row], low[reach.slot], high[reach.slot]
    once, _ = _prefix_sums(f)
    middle = (len(f) - 1) // 2
    total = once[e - i + middle] - once[c - i + middle]
    return (total / (e - c)[:, None] - f[middle].double()).to(f.dtype)


def _prefix_sums(f: Tensor) -> tuple[Tensor, Tensor]:
    """G and GG at ``-(L - 1)`` to ``L + 1``, in float64: differences of them are small."""
    once = torch.nn.functional.pad(f.double().cumsum(0), (0, 0, 1, 0))
    twice = torch.nn.functional.pad(once.cumsum(0), (0, 0, 1, 0))
    return once, twice
