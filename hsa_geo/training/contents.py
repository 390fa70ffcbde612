"""What tells one set of trees from another, at little cost: sizes, labels, some trees whole.

Example:
    >>> from hsa_geo.data import SignalTree
    >>> trees = [SignalTree.from_parents([2, 2, -1], y=torch.tensor([c])) for c in (0, 1)]
    >>> swapped = trees[::-1]
    >>> contents(trees, np.array([2, 2])) == contents(swapped, np.array([2, 2]))
    False
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset
from torch_geometric.data import Dataset

from hsa_geo.training.checkpoint import fingerprint
from hsa_geo.training.seeds import random_state_kept, seed_everything

__all__ = ["SAMPLES", "contents"]

#: Trees of a set that are looked at whole, from the first to the last at equal distances.
SAMPLES = 16
#: Elements of a tensor that are looked at, again at equal distances.
ELEMENTS = 1 << 18


def contents(trees: Any, sizes: np.ndarray) -> dict[str, Any]:
    """A description of a set of trees, as JSON.

    Args:
        trees: A dataset (of PyG before its ``transform``) or a list.
        sizes: Leaves of each.

    Returns:
        ``trees`` and ``leaves``, their numbers; hashes of ``sizes``, of all ``labels`` ``y`` where
        the trees lie in memory (else :obj:`None`), and of ``some`` trees, 16 at most (:obj:`None`
        for each that is not the same when it is fetched twice).

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> found = contents([SignalTree.from_parents([2, 2, -1])], np.array([2]))
        >>> found["trees"], found["leaves"], len(found["some"])
        (1, 2, 1)
    """
    base, ids = _resolved(trees)
    count = min(SAMPLES, len(ids))
    chosen = [k * (len(ids) - 1) // max(count - 1, 1) for k in range(count)]
    return {
        "trees": len(sizes),
        "leaves": int(sizes.sum()),
        "sizes": fingerprint(torch.from_numpy(sizes.copy())),
        "labels": _labels(base, ids),
        "some": {f"tree {i}": _repeated(base, int(ids[i])) for i in chosen},
    }


def _resolved(trees: Any) -> tuple[Any, np.ndarray]:
    """What the trees are taken from, and which of it."""
    ids = np.arange(len(trees))
    while isinstance(trees, Subset):
        ids = np.asarray(trees.indices, dtype=np.int64)[ids]
        trees = trees.dataset
    if isinstance(trees, Dataset):
        ids = np.asarray(list(trees.indices()), dtype=np.int64)[ids]
    return trees, ids


def _labels(base: Any, ids: np.ndarray) -> str | None:
    slices = getattr(base, "slices", None)
    if isinstance(slices, dict) and isinstance(slices.get("y"), Tensor):
        start = slices["y"].numpy()
        count = (start[1:] - start[:-1])[ids]
        end = count.cumsum()
        rows = np.repeat(start[:-1][ids] - (end - count), count) + np.arange(count.sum())
        y = base._data.y
        return _of_labels(y[torch.from_numpy(rows)]) if isinstance(y, Tensor) else None
    if isinstance(base, (list, tuple)):
        found = [getattr(base[i], "y", None) for i in ids]
        labels = [y.reshape(-1).cpu() for y in found if isinstance(y, Tensor)]
        return _of_labels(torch.cat(labels)) if labels else None
    return None


def _of_labels(y: Tensor) -> str:
    return fingerprint([str(y.dtype), fingerprint(y)])


def _repeated(base: Any, number: int) -> str | None:
    """Hash of a tree, None if it is drawn at random."""
    found = set()
    with random_state_kept():
        for _ in range(1 if isinstance(base, (list, tuple)) else 2):
            seed_everything(0)
            tree = base.get(number) if isinstance(base, Dataset) else base[number]
            found.add(_of_tree(tree)[:16])
    return found.pop() if len(found) == 1 else None


def _of_tree(tree: Any) -> str:
    parts: dict[str, Any] = {}
    for key in sorted(tree.keys()):
        value = tree[key]
        if isinstance(value, Tensor):
            if value.layout == torch.strided:
                flat = value.detach().reshape(-1)
                some = flat[:: max(1, -(-len(flat) // ELEMENTS))]
                parts[key] = [str(value.dtype), list(value.shape), fingerprint(some)]
        else:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                parts[key] = json.dumps(value, sort_keys=True)
    return fingerprint(parts)
