"""Build many trees in parts that survive a kill.

The items are cut into parts; the trees of each finished part go into a file of their own (see
:mod:`hsa_geo.datasets.collated`).  A run that is killed finds them again and builds the rest.

Example:
    >>> import tempfile
    >>> def build(items):
    ...     return [SignalTree.from_parents([k] * k + [-1]) for k in items], {"n": 2}
    >>> folder = tempfile.mkdtemp()
    >>> for trees, extra in build_in_parts([1, 2, 3], build, folder, mark="v1", size=2):
    ...     print(len(trees), extra)
    2 {'n': 2}
    1 {'n': 2}
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import collate_trees, load_collated, save_collated, trees_of
from hsa_geo.datasets.progress import track
from hsa_geo.errors import FileFormatError

__all__ = ["build_in_parts"]

T = TypeVar("T")
Part = tuple[list[SignalTree], dict[str, Any]]


def build_in_parts(
    items: Sequence[T],
    build: Callable[[Iterator[T]], Part],
    folder: str | os.PathLike[str],
    *,
    mark: str,
    size: int,
    description: str = "Building trees",
    log: bool = False,
) -> list[Part]:
    """Build the trees of all items, reading the parts that are there already.

    Args:
        items: What to build from.
        build: Takes the items of a part, one after the other, and returns its trees (any number)
            and something that JSON can hold.
        folder: Where the files of the parts go; made if missing.  Remove it when all is done.
        mark: Part of the file names; parts with another mark are not read, so put into it
            whatever changes the result.
        size: Items of a part.
        description: What the progress bar says. (default: :obj:`"Building trees"`)
        log: Show a progress bar over the items. (default: :obj:`False`)

    Returns:
        What ``build`` returned for each part, in order.

    Raises:
        OSError: If a part cannot be written.

    Example:
        See the example of :mod:`hsa_geo.datasets.parts`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chunks = [items[i : i + size] for i in range(0, len(items), size)]
    paths = [folder / f"{mark}-{k:05d}.safetensors" for k in range(len(chunks))]
    done: dict[int, Part] = {}
    for k, path in enumerate(paths):
        try:
            data, slices, extra = load_collated(path)
        except (FileNotFoundError, FileFormatError):
            continue  # not made yet, or damaged: made anew
        done[k] = trees_of(data, slices), extra
    todo = [item for k, chunk in enumerate(chunks) if k not in done for item in chunk]
    bar = iter(track(todo, description, enabled=log))
    for k, chunk in enumerate(chunks):
        if k not in done:
            trees, extra = build(islice(bar, len(chunk)))
            # Another process that has finished may remove the folder; then memory is enough.
            with contextlib.suppress(FileNotFoundError):
                folder.mkdir(parents=True, exist_ok=True)
                save_collated(paths[k], *collate_trees(trees), extra)
            done[k] = trees, extra
    for _ in bar:  # lets the bar end
        pass
    return [done[k] for k in range(len(chunks))]
