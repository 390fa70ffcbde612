"""Is one model better than another, or as good?  Statistics on saved predictions.

Two things are drawn at random in an experiment: the test items and the seeds of the runs.  The
intervals here are of a bootstrap that draws both anew (items, or groups of items that belong
together, the same ones for both models; seeds, each model its own).  A model with one seed has
nothing to draw from: the interval is then that of these trained models, not of the way to train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from comparison import Record

DRAWS = 4000
#: So many draws are made at once.
PIECE = 500


@dataclass(frozen=True)
class Difference:
    """Accuracy of one model minus that of another.

    Attributes:
        mean: The difference.
        low, high: Its 95% interval.
        low90, high90: Its 90% interval, the one of two one-sided tests at 5%.
        p: Of the sign-flip test over items (or groups), for these trained models: the seeds are
            averaged and taken as fixed.  How often a difference at least as large would come about
            if both were equally good.
    """

    mean: float
    low: float
    high: float
    low90: float
    high90: float
    p: float

    @property
    def real(self) -> bool:
        """Zero lies outside of the 95% interval."""
        return self.low > 0 or self.high < 0

    def equivalent(self, margin: float) -> bool:
        """Both one-sided tests at 5% say that the difference is smaller than the margin."""
        return -margin < self.low90 and self.high90 < margin

    def not_worse(self, margin: float) -> bool:
        """The one-sided test at 5% says that the first is less than the margin behind."""
        return self.low90 > -margin


@dataclass(frozen=True)
class Hits:
    """Which items each seed of a variant got right.

    Attributes:
        right: ``[seeds, items]``, 1.0 or 0.0.
        items: Ids of the items, ascending.
        seeds: The seeds.
    """

    right: np.ndarray
    items: np.ndarray
    seeds: tuple[int, ...]

    @property
    def accuracy(self) -> np.ndarray:
        """Of every seed ``[seeds]``, over all its folds."""
        return self.right.mean(1)


def hits(records: Sequence[Record], variant: str) -> Hits:
    """Put the folds of every seed of a variant together.

    Args:
        records: Records of any variants.
        variant: The one asked for.

    Returns:
        Its hits.

    Raises:
        ValueError: If there are none, an item is tested twice by a seed, or seeds were not tested
            on the same items.
    """
    own = [r for r in records if r.variant == variant]
    if not own:
        raise ValueError(f"there is no record of {variant!r}.")
    seeds = tuple(sorted({r.seed for r in own}))
    rows, items = [], None
    for seed in seeds:
        mine = [r for r in own if r.seed == seed]
        ids = np.concatenate([r.items for r in mine]).astype(np.int64)
        right = np.concatenate([np.asarray(r.predicted) == np.asarray(r.target) for r in mine])
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        if np.any(ids[1:] == ids[:-1]):
            raise ValueError(f"seed {seed} of {variant!r} tested an item twice.")
        if items is not None and not np.array_equal(ids, items):
            raise ValueError(f"seed {seed} of {variant!r} was not tested on the items of others.")
        items = ids
        rows.append(right[order].astype(float))
    assert items is not None
    return Hits(np.stack(rows), items, seeds)


def compare(
    first: Hits, second: Hits, group: np.ndarray | None = None, draws: int = DRAWS
) -> Difference:
    """How much more the first gets right than the second, on the same items.

    The mean over S seeds that are drawn anew from S varies by (S - 1) / S less than the mean over
    S new seeds does, so what was drawn is spread by the root of S / (S - 1) around the mean over
    the seeds, for every drawn set of items.  With one seed the interval is that of these trained
    models: another training may differ by more.

    By simulation, with four seeds: where seeds differ in how good they are by much more than the
    choice of items matters, the interval holds the truth in about 90% of the experiments, not 95%;
    where they differ in single items only, which both draws count, it is too wide.

    Args:
        first: Hits of one variant.
        second: Hits of the other.
        group: Group of each item ``[items]``; items of a group are drawn together.
            (default: every item by itself)
        draws: Of the bootstrap, and of the sign-flip test; exactly so many, at least 1.

    Returns:
        The difference.

    Raises:
        ValueError: If they were tested on different items, or nothing is to be drawn.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}: at least 1 is needed.")
    if not np.array_equal(first.items, second.items):
        raise ValueError("the two were not tested on the same items.")
    n = len(first.items)
    place = np.arange(n) if group is None else np.unique(group, return_inverse=True)[1]
    groups = int(place.max()) + 1
    rng = np.random.default_rng(0)
    pieces = [min(PIECE, draws - begin) for begin in range(0, draws, PIECE)]
    means = []
    for piece in pieces:  # [piece, items] at once
        weight = rng.multinomial(groups, np.full(groups, 1 / groups), size=piece)[:, place]
        total = weight.sum(1)
        drawn = []
        for one in (first.right, second.right):
            seeds = len(one)
            by_seed = one @ weight.T / total  # [seeds, piece]
            count = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=piece)
            mean = by_seed.mean(0)
            apart = (by_seed * count.T).sum(0) / seeds - mean
            drawn.append(mean + apart * np.sqrt(seeds / max(seeds - 1, 1)))
        means.append(drawn[0] - drawn[1])
    values = np.concatenate(means)
    low, low90, high90, high = np.percentile(values, [2.5, 5, 95, 97.5])
    gap = np.bincount(place, first.right.mean(0) - second.right.mean(0), groups)  # by group
    observed = abs(gap.sum())
    flipped = [np.abs(rng.choice([-1.0, 1.0], size=(piece, groups)) @ gap) for piece in pieces]
    as_large = int((np.concatenate(flipped) >= observed - 1e-9).sum())
    gain = float(first.right.mean() - second.right.mean())
    p = (as_large + 1) / (draws + 1)
    return Difference(gain, float(low), float(high), float(low90), float(high90), p)


def interval(one: Hits, group: np.ndarray | None = None, draws: int = DRAWS) -> tuple[float, float]:
    """95% interval of a variant's accuracy; items (or groups) and seeds as in :func:`compare`."""
    nothing = Hits(np.zeros((1, len(one.items))), one.items, (0,))
    gap = compare(one, nothing, group, draws)
    return gap.low, gap.high
