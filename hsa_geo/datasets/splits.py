"""Train, validation and test sets: stratified by class, whole groups on one side.

Groups (all sentences of a review, all mails of a thread) are dealt out one by one, the largest
first, each to the part that has the least of its classes so far, measured by what the part should
have.  Without groups every example is one of its own, and the classes come out even to within
one example.

Example:
    >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> [len(rows) for rows in stratified_split(labels, folds=4, validation=1 / 3)]
    [4, 2, 2]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsa_geo.errors import ShapeError, UnsupportedError

__all__ = ["check_generated", "deal", "stratified_split"]

Ints = NDArray[np.int64]


def deal(labels: Any, groups: Any, shares: Sequence[float], seed: int = 0) -> Ints:
    """Deal groups out to parts, so that every part has its share of every class.

    Args:
        labels: ``[n]``, class of every example.
        groups: ``[n]`` ints, group of every example, or :obj:`None`: each is its own.
        shares: What each part should get, in any unit; none of them negative.
        seed: Groups of one size are dealt in an order drawn with it. (default: :obj:`0`)

    Returns:
        ``[n]``, the part of every example; a part with share 0 gets none.

    Raises:
        ShapeError: If the lengths differ or there is nothing to deal to.

    Example:
        >>> deal([0, 0, 1, 1], [5, 5, 6, 6], [1, 1]).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
        True
    """
    classes = np.unique(_flat(labels, "labels"), return_inverse=True)[1]
    n = len(classes)
    owner = (
        np.arange(n)
        if groups is None
        else np.unique(_flat(groups, "groups"), return_inverse=True)[1]
    )
    if len(owner) != n:
        raise ShapeError(
            f"there are {n} labels but {len(owner)} groups: give one for each example."
        )
    share = np.asarray(shares, dtype=np.float64)
    if share.ndim != 1 or not np.isfinite(share).all() or (share < 0).any() or not share.sum() > 0:
        raise ShapeError(
            f"shares={list(shares)} are no shares: give numbers >= 0, one of them > 0."
        )
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    count = np.zeros((owner.max() + 1, classes.max() + 1))
    np.add.at(count, (owner, classes), 1)
    total = count.sum(0)
    # Sainte-Lague's rule for every class, weighted so that rare classes matter as much.
    open_parts = np.flatnonzero(share)
    weight = 1 / np.outer(share[open_parts] / share.sum(), total**2)
    have = np.zeros_like(weight)
    order = np.random.default_rng(seed).permutation(len(count))
    order = order[np.argsort(-count[order].sum(1), kind="stable")]
    part = np.empty(len(count), dtype=np.int64)
    for group in order.tolist():
        own = count[group]
        cost = ((2 * have + own) * weight) @ own
        best = int(np.lexsort((have.sum(1) / share[open_parts], cost))[0])
        have[best] += own
        part[group] = open_parts[best]
    return part[owner]


def stratified_split(
    labels: Any,
    groups: Any = None,
    *,
    fold: int = 0,
    folds: int = 5,
    seed: int = 0,
    validation: float = 0.1,
) -> tuple[Ints, Ints, Ints]:
    """One fold of a stratified cross-validation that keeps groups together.

    Args:
        labels: ``[n]``, class of every example.
        groups: ``[n]`` ints, group of every example. (default: each is its own)
        fold: Which fold is the test set, from 0. (default: :obj:`0`)
        folds: Number of folds, at least 2. (default: :obj:`5`)
        seed: Which of the many cross-validations. (default: :obj:`0`)
        validation: Share of what is left that is set apart, from 0 and below 1.
            (default: :obj:`0.1`)

    Returns:
        Indices of the training, validation and test sets, each increasing; they do not overlap,
        and the test sets of all folds of one seed are everything.

    Raises:
        ShapeError: If an argument is out of range.

    Example:
        >>> tests = [stratified_split([0, 1] * 10, fold=k)[2] for k in range(5)]
        >>> sorted(np.concatenate(tests).tolist()) == list(range(20))
        True
    """
    labels = _flat(labels, "labels")
    groups = None if groups is None else _flat(groups, "groups")
    if folds < 2 or not 0 <= fold < folds:
        raise ShapeError(f"fold={fold} of folds={folds}: give 2 folds or more, and one of them.")
    check_share(validation)
    is_test = deal(labels, groups, [1.0] * folds, seed) == fold
    rest = np.flatnonzero(~is_test)
    train, held = set_apart(rest, labels, groups, validation, seed)
    return train, held, np.flatnonzero(is_test)


def set_apart(
    rows: Ints, labels: Ints, groups: Ints | None, share: float, seed: int
) -> tuple[Ints, Ints]:
    """Split chosen rows in two, groups kept together.

    Args:
        rows: The rows, increasing.
        labels: Class of every example, not of the chosen alone.
        groups: Group of every example, or :obj:`None`.
        share: Share of the second part.
        seed: As in :func:`deal`.

    Returns:
        What stays and what is set apart, each increasing.

    Example:
        >>> stay, apart = set_apart(np.arange(10), np.zeros(10), None, 0.2, 0)
        >>> len(stay), len(apart)
        (8, 2)
    """
    own = None if groups is None else groups[rows]
    part = deal(labels[rows], own, [1 - share, share], seed + 1)
    return rows[part == 0], rows[part == 1]


def check_generated(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Check the options of a generated dataset: names, and ``sizes`` of its three sets.

    Args:
        options: What was given.
        known: Names of options beside ``sizes``.

    Raises:
        UnsupportedError: If a name is unknown.
        ShapeError: If ``sizes`` is not three numbers of trees.

    Example:
        >>> check_generated({"sizes": [40, 10, 10]}, ["seed"])
    """
    names = sorted({"sizes", *known})
    for name in options:
        if name not in names:
            raise UnsupportedError(f"option {name!r} is unknown: use {names}.")
    sizes = options.get("sizes", (1, 0, 0))
    three = isinstance(sizes, (list, tuple)) and len(sizes) == 3
    if not three or not all(type(n) is int and n >= 0 for n in sizes):
        raise ShapeError(
            f"sizes={sizes!r} must be three whole numbers from 0: trees for training, validation "
            "and test."
        )


def check_share(validation: float) -> None:
    """Raise unless a number may be the share of a validation set.

    Args:
        validation: The number.

    Raises:
        ShapeError: If it is not from 0 and below 1.

    Example:
        >>> check_share(1.0)
        Traceback (most recent call last):
        ...
        hsa_geo.errors.ShapeError: validation=1.0 is no share: give a number from 0, below 1.
    """
    if not 0 <= validation < 1:
        raise ShapeError(f"validation={validation} is no share: give a number from 0, below 1.")


def _flat(values: Any, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {list(array.shape)}: give one value for each example.")
    return array
