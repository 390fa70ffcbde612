"""Louvain's method on edge arrays: communities of high modularity by moving nodes one by one.

Blondel et al., "Fast unfolding of communities in large networks" (2008), with the modularity of
Leicht and Newman for directed graphs, which for undirected ones (both directions stored) is the
usual one.  Nodes wait in a queue, and only the neighbours of one that moved are looked at again,
as in Traag et al., "From Louvain to Leiden" (2019).
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "Reals", "coalesce", "compact", "louvain"]

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]

_VISITS = 200  # per node at most; rounding could move two nodes back and forth for ever


def compact(labels: Ints) -> Ints:
    """The same partition with labels 0, 1, ... in order of first appearance.

    Example:
        >>> compact(np.array([7, 2, 7, 5])).tolist()
        [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def coalesce(n: int, row: Ints, col: Ints, weight: Reals) -> tuple[Ints, Ints, Reals]:
    """Entries of a matrix with ``n`` columns sorted by (row, column), equal places added up.

    Example:
        >>> row, col, weight = coalesce(2, np.array([1, 0, 1]), np.array([0, 1, 0]), np.ones(3))
        >>> row.tolist(), col.tolist(), weight.tolist()
        ([0, 1], [1, 0], [1.0, 2.0])
    """
    place, inverse = np.unique(row * n + col, return_inverse=True)
    total = np.bincount(inverse, weights=weight, minlength=len(place)).astype(np.float64)
    return place // max(n, 1), place % max(n, 1), total


def louvain(
    n: int,
    row: Ints,
    col: Ints,
    weight: Reals,
    *,
    resolution: float,
    rng: np.random.Generator,
) -> Ints:
    """Communities of a graph given by the entries of its adjacency matrix.

    Args:
        n: Number of nodes.
        row, col, weight: ``[E]``, entries of the matrix, not negative; equal places add up.
        resolution: Weight of the null model; higher ones give smaller communities.
        rng: Draws the order of the nodes.

    Returns:
        ``[n]``, labels 0, 1, ... in order of first appearance.

    Example:
        >>> row, col = np.array([[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]])
        >>> weight = np.array([3.0, 3, 3, 3, 1, 1])
        >>> louvain(4, row, col, weight, resolution=1, rng=np.random.default_rng(0)).tolist()
        [0, 0, 1, 1]
    """
    labels: Ints = np.arange(n)
    total = weight.sum()
    if not total > 0:
        return labels
    row, col, weight = coalesce(n, row, col, weight / total)
    while True:
        found = compact(_local_moves(n, row, col, weight, resolution, rng))
        groups = int(found.max()) + 1
        labels = found[labels]
        if groups == n:
            return compact(labels)
        row, col, weight = coalesce(groups, found[row], found[col], weight)
        n = groups


def _local_moves(
    n: int,
    row: Ints,
    col: Ints,
    weight: Reals,
    resolution: float,
    rng: np.random.Generator,
) -> Ints:
    """Move nodes to the neighbouring community of highest gain until none can gain."""
    leaving = np.bincount(row, weights=weight, minlength=n)
    entering = np.bincount(col, weights=weight, minlength=n)
    apart = row != col
    ends = (row[apart], col[apart])
    both = coalesce(n, np.concatenate(ends), np.concatenate(ends[::-1]), np.tile(weight[apart], 2))
    ptr = np.searchsorted(both[0], np.arange(n + 1)).tolist()
    neighbour, strength = both[1].tolist(), both[2].tolist()

    # Plain lists, which Python reads several times faster than arrays.
    out_of: list[float] = leaving.tolist()
    into: list[float] = entering.tolist()
    total_out, total_in = list(out_of), list(into)
    label = list(range(n))
    queue = deque(rng.permutation(n).tolist())
    waits = [True] * n
    visits = _VISITS * n
    while queue and visits:
        visits -= 1
        node = queue.popleft()
        waits[node] = False
        start, end = ptr[node], ptr[node + 1]
        own, out, into_it = label[node], out_of[node], into[node]
        links = {own: 0.0}
        for other, value in zip(neighbour[start:end], strength[start:end]):
            there = label[other]
            links[there] = links.get(there, 0.0) + value
        total_out[own] -= out
        total_in[own] -= into_it
        a, b = resolution * out, resolution * into_it
        best = own
        # Twice the gain in modularity; a move must gain more than rounding can make up.
        gain = links[own] - a * total_in[own] - b * total_out[own] + 1e-12 * (out + into_it)
        for there, value in links.items():
            value -= a * total_in[there] + b * total_out[there]
            if value > gain:
                best, gain = there, value
        total_out[best] += out
        total_in[best] += into_it
        if best != own:
            label[node] = best
            for other in neighbour[start:end]:
                if not waits[other] and label[other] != best:
                    waits[other] = True
                    queue.append(other)
    return np.array(label, dtype=np.int64)
