"""Millions of expressions of ListOps in a database on disk.

Example:
    >>> import tempfile
    >>> dataset = listops_on_disk(tempfile.mkdtemp(), 30, max_leaves=20)
    >>> len(dataset), int(dataset[29].y) in range(10)
    (30, True)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets.disk import write_bytes
from hsa_geo.datasets.listops_notation import CLOSE, draw_expressions
from hsa_geo.datasets.listops_trees import expression_trees
from hsa_geo.datasets.on_disk import OnDiskTrees
from hsa_geo.datasets.progress import track
from hsa_geo.errors import BuilderError, FileFormatError, ShapeError, UnsupportedError

__all__ = ["listops_on_disk", "split_of"]

#: File beside the database that holds the options.
OPTIONS_FILE = "listops_on_disk.json"
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
    """Random expressions in a database; a later or killed call goes on where the last one ended.

    Unlike :class:`~hsa_geo.datasets.ListOps`, values are as frequent as chance makes them, and
    expressions may repeat, but never in another ``split`` (see :func:`split_of`).  The options are
    kept beside the database, and a call with others is refused.

    Args:
        root: Folder of the database; one for each choice of the options.
        count: Number of expressions.  If the database holds more, none is removed, and the dataset
            is the first ``count`` of them.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        seed: The same seed and options give the same expressions. (default: ``0``)
        min_leaves, max_leaves, max_depth, max_args, nested: As in
            :func:`~hsa_geo.datasets.listops.draw_splits`.
        log: Show progress. (default: :obj:`False`)

    Returns:
        The dataset, whose trees are those of :class:`~hsa_geo.datasets.ListOps`.

    Raises:
        BuilderError: If there are no such expressions.
        UnsupportedError: If the folder holds trees of other options or of something else.
        FileFormatError: If a file in the folder is damaged.
        ShapeError: If ``count`` is negative.
        DiskFullError: If there is no room.

    Example:
        >>> import tempfile
        >>> root = tempfile.mkdtemp()
        >>> [len(listops_on_disk(root, count)) for count in (30, 50, 9)]
        [30, 50, 9]
        >>> listops_on_disk(root, 50, seed=1)
        Traceback (most recent call last):
        ...
        hsa_geo.errors.UnsupportedError: ... with seed=0, not 1: use another root...
    """
    if count < 0:
        raise ShapeError(f"count={count} is negative: give the number of expressions.")
    dataset = OnDiskTrees(root, transform)
    options = {"seed": int(seed), "min_leaves": int(min_leaves), "max_leaves": int(max_leaves)}
    options |= {"max_depth": int(max_depth), "max_args": int(max_args)}
    _keep_options(dataset, {**options, "nested": float(nested)})
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
    return dataset if count >= len(dataset) else dataset[:count]


def _keep_options(dataset: OnDiskTrees, options: dict[str, Any]) -> None:
    """Write the options beside an empty database, or compare them with those of a filled one."""
    path = Path(dataset.processed_dir, OPTIONS_FILE)
    elsewhere = f"use another root, or remove '{dataset.processed_dir}' to draw anew"
    if not len(dataset):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, json.dumps(options, indent=1).encode())
        return
    if not path.exists():
        raise UnsupportedError(
            f"the {len(dataset)} trees in '{dataset.root}' do not say by which options they were "
            f"drawn ('{path.name}' is missing): {elsewhere}."
        )
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise ValueError("no JSON object")
    except ValueError as error:
        raise FileFormatError(f"'{path}' is damaged ({error}): {elsewhere}.") from None
    differ = [name for name in sorted(held | options) if held.get(name) != options.get(name)]
    if differ:
        told = " and ".join(f"{name}={held.get(name)}, not {options.get(name)}" for name in differ)
        raise UnsupportedError(
            f"the {len(dataset)} expressions in '{dataset.root}' were drawn with {told}: "
            f"{elsewhere}."
        )
