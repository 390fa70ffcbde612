"""Long texts in overlapping windows, and which word a piece of text belongs to.

An encoder reads at most so many pieces at once.  A longer text is read in windows that overlap;
each piece takes its vector from the window in whose middle it is most, the earlier of two alike.

Example:
    >>> starts, first = windows(10, size=6, stride=3)
    >>> starts.tolist(), first.tolist()  # pieces first[w] to first[w + 1] are of window w
    ([0, 3, 4], [0, 5, 7, 10])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsa_geo.errors import ShapeError

__all__ = ["batches_by_length", "pieces_of_words", "windows"]

Ints = NDArray[np.int64]


def windows(n: int, size: int, stride: int) -> tuple[Ints, Ints]:
    """Where the windows over n pieces begin, and which pieces each of them is for.

    Args:
        n: Number of pieces.
        size: Most pieces of a window.
        stride: Pieces from one window to the next, at most ``size``; the last window ends with
            the text, so that all but a single one are full.

    Returns:
        Starts ``[W]``, and ``[W + 1]``: window w is for the pieces from entry w to entry w + 1.
        No window if there is no piece.

    Raises:
        ShapeError: If ``size`` or ``stride`` is out of range.

    Example:
        >>> windows(3, size=6, stride=3)
        (array([0]), array([0, 3]))
    """
    if size < 1 or not 1 <= stride <= size:
        raise ShapeError(
            f"windows of {size} pieces every {stride} would leave pieces out: give a window of at "
            "least 1 and a stride from 1 to the window."
        )
    if n == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    if n <= size:
        return np.zeros(1, dtype=np.int64), np.array([0, n])
    starts = np.append(np.arange(0, n - size, stride), n - size)
    # Twice the middle of window w is m[w] = 2 starts[w] + size - 1; the borders lie between.
    middle = 2 * starts + size - 1
    return starts, np.concatenate([[0], (middle[:-1] + middle[1:]) // 4 + 1, [n]])


def pieces_of_words(pieces: Any, words: Any) -> tuple[Ints, Ints, Ints]:
    """Which pieces lie (in part) in which words.

    Args:
        pieces: Start and end ``[P, 2]`` of every piece in the text, in characters.
        words: Start and end ``[N, 2]`` of every word; empty ones (leaves that are no text)
            match nothing, the others are disjoint and in order.

    Returns:
        Pairs: pieces ``[K]``, place of the word of each among those that have pieces ``[K]``; and
        those words ``[n]``, ascending.

    Raises:
        ShapeError: If the words overlap or are out of order.

    Example:
        >>> pieces = np.array([[0, 2], [2, 4], [4, 5], [6, 9]])  # "play ##ing . don"
        >>> pieces_of_words(pieces, np.array([[0, 4], [5, 5], [6, 9], [9, 11]]))
        (array([0, 1, 3]), array([0, 0, 1]), array([0, 2]))
    """
    pieces = np.asarray(pieces, dtype=np.int64).reshape(-1, 2)
    words = np.asarray(words, dtype=np.int64).reshape(-1, 2)
    rows = np.flatnonzero(words[:, 1] > words[:, 0])
    start, end = words[rows].T
    if (end[:-1] > start[1:]).any():
        at = int(np.flatnonzero(end[:-1] > start[1:])[0])
        raise ShapeError(
            f"the words of leaves {rows[at]} and {rows[at + 1]} are out of order or overlap: give "
            "trees whose leaves are the words of the text, in reading order."
        )
    low = np.searchsorted(end, pieces[:, 0], side="right")
    high = np.searchsorted(start, pieces[:, 1], side="left")
    counts = np.where(pieces[:, 1] > pieces[:, 0], np.maximum(high - low, 0), 0)
    piece = np.repeat(np.arange(len(pieces)), counts)
    within = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)
    held, place = np.unique(low[piece] + within, return_inverse=True)
    return piece, place.astype(np.int64), rows[held]


def batches_by_length(lengths: Ints, most: int) -> list[Ints]:
    """Items of like length together, the longest first.

    Args:
        lengths: Of all items.
        most: A batch times its longest item is at most that (a single item may be longer).

    Returns:
        The items of each batch.

    Example:
        >>> [batch.tolist() for batch in batches_by_length(np.array([2, 9, 3, 3]), most=9)]
        [[1], [2, 3, 0]]
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    batches, at = [], 0
    while at < len(order):
        count = max(1, most // max(1, int(lengths[order[at]])))
        batches.append(order[at : at + count])
        at += count
    return batches
