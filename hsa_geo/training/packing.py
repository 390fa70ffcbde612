"""Trees packed into steps of so many leaves, and steps dealt out in balanced batches.

Two stages, since they answer two questions.  Which trees share an optimizer's step does not
depend on how many processes work on it; who computes which of them does.

Example:
    >>> sizes = np.array([5, 3, 4, 4, 9, 1])
    >>> start = pack(sizes, 8)
    >>> [sizes[a:b].tolist() for a, b in zip(start, start[1:])]
    [[5, 3], [4, 4], [9], [1]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Dealt", "deal", "pack"]


def pack(sizes: np.ndarray, budget: int, max_trees: int | None = None) -> np.ndarray:
    """Cut a row of trees into runs of at most ``budget`` leaves; a larger tree is one by itself.

    Args:
        sizes: ``[n]`` leaves of the trees, in order.
        budget: Most leaves of a run.
        max_trees: Most trees of a run. (default: any number)

    Returns:
        ``[runs + 1]`` int64, run k holds the trees ``start[k]:start[k + 1]``.

    Example:
        >>> pack(np.array([1, 1, 1]), 8, max_trees=2).tolist()
        [0, 2, 3]
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    count, starts, at = len(sizes), [0], 0
    while at < count:
        before = ends[at - 1] if at else 0
        stop = max(int(np.searchsorted(ends, before + budget, side="right")), at + 1)
        at = stop if max_trees is None else min(stop, at + max_trees)
        starts.append(at)
    return np.array(starts, dtype=np.int64)


@dataclass(frozen=True)
class Dealt:
    """The batches of all steps.

    Attributes:
        trees: ``[n]`` places of the trees in the row that was packed, batch after batch.
        start: ``[batches + 1]``, batch b holds ``trees[start[b]:start[b + 1]]``.
        step: ``[batches]``, its step, increasing.
        place: ``[batches]``, its number within the step, from 0.
    """

    trees: np.ndarray
    start: np.ndarray
    step: np.ndarray
    place: np.ndarray


def deal(
    sizes: np.ndarray,
    start: np.ndarray,
    budget: int,
    max_trees: int | None = None,
    replicas: int = 1,
) -> Dealt:
    """Cut every step into batches of at most ``budget`` leaves, as equal as may be.

    A step is cut into the least multiple of ``replicas`` that can hold it; the largest tree
    left goes to the batch with the fewest leaves so far.  What does not fit so becomes a
    further batch.

    Args:
        sizes: ``[n]`` leaves of the trees, in order.
        start: ``[steps + 1]``, as :func:`pack` gives it.
        budget: Most leaves of a batch, unless it is a single tree.
        max_trees: Most trees of a batch. (default: any number)
        replicas: Number of processes that share the batches of a step. (default: :obj:`1`)

    Returns:
        The batches.

    Example:
        >>> sizes = np.array([5, 3, 4, 4])
        >>> batches = deal(sizes, np.array([0, 4]), budget=8, replicas=2)
        >>> [sizes[t].tolist() for t in np.split(batches.trees, batches.start[1:-1])]
        [[5, 3], [4, 4]]
    """
    steps, counts = len(start) - 1, np.diff(start)
    total = np.add.reduceat(sizes, start[:-1]) if steps else np.zeros(0, dtype=np.int64)
    bins = replicas * np.ceil(total / (budget * replicas)).astype(np.int64)
    step = np.repeat(np.arange(steps), counts)
    if bins.max(initial=1) == 1 and (max_trees is None or counts.max(initial=0) <= max_trees):
        return Dealt(np.arange(len(sizes)), start, np.arange(steps), np.zeros_like(counts))
    largest_first = np.lexsort((-sizes, step))
    bin_of = _least_loaded(sizes, largest_first, start, bins)
    width = int(bins.max(initial=1))
    key = (step * width + bin_of)[largest_first]
    by_bin = np.argsort(key, kind="stable")
    trees, key = largest_first[by_bin], key[by_bin]
    first = np.flatnonzero(np.diff(key, prepend=-1))  # of each batch
    stop = np.append(first[1:], len(trees))
    leaves = np.add.reduceat(sizes[trees], first) if len(first) else np.zeros(0, dtype=np.int64)
    over = (leaves > budget) & (stop - first > 1)
    if max_trees is not None:
        over |= stop - first > max_trees
    cuts = [
        first[b] + pack(sizes[trees[first[b] : stop[b]]], budget, max_trees)[1:-1]
        for b in np.flatnonzero(over)
    ]
    begin = np.sort(np.concatenate([first, *cuts]))
    of = step[trees[begin]]
    place = np.arange(len(begin)) - np.searchsorted(of, of)
    return Dealt(trees, np.append(begin, len(trees)), of, place)


def _least_loaded(
    sizes: np.ndarray, order: np.ndarray, start: np.ndarray, bins: np.ndarray
) -> np.ndarray:
    """Bin of every tree: the k-th largest trees of all steps are placed at once."""
    counts = np.diff(start)
    by_count = np.argsort(-counts, kind="stable")  # steps that still have trees come first
    left = np.searchsorted(-counts[by_count], -np.arange(counts.max(initial=0)), side="left")
    load = np.where(np.arange(bins.max(initial=1)) < bins[by_count, None], 0.0, np.inf)
    bin_of = np.empty(len(order), dtype=np.int64)
    rows = np.arange(len(counts))
    for k, active in enumerate(left.tolist()):
        tree = order[start[by_count[:active]] + k]
        chosen = load[:active].argmin(1)
        load[rows[:active], chosen] += sizes[tree]
        bin_of[tree] = chosen
    return bin_of
