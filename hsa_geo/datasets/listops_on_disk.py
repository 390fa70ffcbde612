"""Millions of expressions of ListOps in a database on disk.

Example:
    >>> import tempfile
    >>> dataset = listops_on_disk(tempfile.mkdtemp(), 30, max_leaves=20)
    >>> len(dataset), int(dataset[29].y) in range(10)
    (30, True)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets.listops_notation import CLOSE, draw_expressions
from hsa_geo.datasets.listops_trees import expression_trees
from hsa_geo.datasets.on_disk import OnDiskTrees
from hsa_geo.datasets.progress import track
from hsa_geo.errors import BuilderError

__all__ = ["listops_on_disk", "split_of"]

#: Expressions drawn at a time, and written in one step; part of what a seed means.
CHUNK = 8192
#: Draws in a row that may bring nothing.
PATIENCE = 50


def split_of(tokens: bytes) -> int:
    """Split of an expression, by its tokens alone, so that equal ones are in the same.

    Args:
        tokens: As :meth:`hsa_geo.datasets.listops_notation.Expressions.encoded` gives them.

    Returns:
        0 (training) for 96 %, 1 (validation) and 2 (test) for 2 % each.

    Example:
        >>> split_of(b"some") == split_of(b"some") in (0, 1, 2)
        True
    """
    place = int.from_bytes(hashlib.blake2b(tokens, digest_size=4).digest()) % 50
    return place if place in (1, 2) else 0


def listops_on_disk(
    root: str | os.PathLike[str],
    count: int,
    transform: Callable[[SignalTree], Any] | None = None,
    *,
    seed: int = 0,
    min_leaves: int = 10,
    max_leaves: int = 100,
    max_depth: int = 4,
    max_args: int = 5,
    nested: float = 0.3,
    log: bool = False,
) -> OnDiskTrees:
    """Random expressions in a database; what is there already is kept, and a killed call goes on.

    Unlike :class:`~hsa_geo.datasets.ListOps`, values are as frequent as chance makes them, and
    expressions may repeat, but never in another ``split`` (see :func:`split_of`).

    Args:
        root: Folder of the database; use one for each choice of the options.
        count: Number of expressions.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        seed: The same seed and options give the same expressions. (default: ``0``)
        min_leaves, max_leaves, max_depth, max_args, nested: As in
            :func:`~hsa_geo.datasets.listops.draw_splits`.
        log: Show progress. (default: :obj:`False`)

    Returns:
        The dataset, whose trees are those of :class:`~hsa_geo.datasets.ListOps`.

    Raises:
        BuilderError: If there are no such expressions.
        DiskFullError: If there is no room.

    Example:
        See the example of :mod:`hsa_geo.datasets.listops_on_disk`.
    """
    dataset = OnDiskTrees(root, transform)
    have, seen, idle = len(dataset), 0, 0
    rng = np.random.default_rng([seed, 2])
    for goal in track(range(0, count, CHUNK), "Writing expressions", enabled=log):
        while seen < min(goal + CHUNK, count):  # what is there is drawn again, which is fast
            drawn = draw_expressions(
                CHUNK, rng, max_depth=max_depth, max_args=max_args, nested=nested
            )
            leaves = np.diff(np.append(0, np.cumsum(drawn.tokens != CLOSE))[drawn.ptr])
            fits = np.flatnonzero((leaves >= min_leaves) & (leaves <= max_leaves))
            idle = 0 if len(fits) else idle + 1
            if idle == PATIENCE:
                raise BuilderError(
                    f"no expression has {min_leaves} to {max_leaves} leaves with max_depth="
                    f"{max_depth} and max_args={max_args}: allow more of one of them."
                )
            fits = fits[: count - seen]
            new = drawn[fits[max(have - seen, 0) :]]
            seen += len(fits)
            trees = expression_trees(new)
            for tree, tokens in zip(trees, new.encoded()):
                tree.split = torch.tensor([split_of(tokens)])
            dataset.extend(trees)
    return dataset
