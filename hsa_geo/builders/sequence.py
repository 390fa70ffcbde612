"""Signal trees from sequences: windows of windows over the steps of a signal."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.builders._rows import array_of, cast
from hsa_geo.builders._signal_checks import short
from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.errors import BuilderError

__all__ = ["from_sequence"]


def from_sequence(x: Any, windows: Any) -> SignalTree:
    """Build a tree of windows over the steps of a sequence (audio, sensors, tokens).

    Windows follow each other without gap or overlap.  Levels are built until one node is left,
    the root; if the levels given leave more, the root is above them.

    Args:
        x: Features of the N steps ``[N, F]``, or of any shape ``[N, ...]``, N at least 1: a
            tensor, an array, or lists of numbers (floats become float32).
        windows: An integer w of at least 2: w steps a window, w windows a larger one, and so on
            until one is left, as in the paper.  Or a list with one entry for each level, the
            lowest first: an integer of at least 2, how many steps, or windows of the level below,
            are in each (the last may have fewer); or boundaries in steps ``[0, ..., N]``,
            increasing, window i from boundary i up to boundary i + 1, each of them a boundary of
            the level below, too.  An empty list puts all steps under the root.

    Returns:
        The tree: ``x`` as given (its type and device, its gradient, and not copied unless it is
        a list or an array that torch cannot share), ``tree_span [M, 2]`` int64 with the first
        step of every node and the one behind its last, ``SEQUENCE`` domains, and ``tree_pos[:,
        0]`` counting siblings.  One step is a tree of one leaf.

    Raises:
        BuilderError: If ``x`` has no steps or is no array of real numbers, or ``windows`` are not
            as above; the message names the level.

    Example:
        >>> tree = from_sequence(torch.zeros(10, 3), windows=(4, 2))
        >>> tree
        SignalTree(leaves=10, nodes=16, depth=3, x=[10, 3])
        >>> tree.tree_span[10:].tolist()
        [[0, 4], [4, 8], [8, 10], [0, 8], [8, 10], [0, 10]]
        >>> given = from_sequence(torch.zeros(10, 3), windows=[[0, 3, 4, 10], [0, 4, 10]])
        >>> given.tree_span[10:].tolist()
        [[0, 3], [3, 4], [4, 10], [0, 4], [4, 10], [0, 10]]
    """
    values = _values(x)
    levels = _boundaries(len(values), windows)
    counts = [len(bounds) - 1 for bounds in levels]
    first_id = np.cumsum([0, *counts])  # the levels of nodes follow each other, leaves first
    parents, ranks = [], []
    for lower, upper, above in zip(levels, levels[1:], first_id[1:]):
        inside = np.diff(np.searchsorted(lower, upper))  # how many nodes below each window
        parents.append(np.repeat(np.arange(above, above + len(inside)), inside))
        ranks.append(np.arange(len(lower) - 1) - np.repeat(np.cumsum(inside) - inside, inside))
    m = int(first_id[-1])
    pos = np.zeros((m, 2), dtype=np.float32)
    pos[:-1, 0] = np.concatenate(ranks or [np.zeros(0)])
    parent = np.concatenate(parents or [np.zeros(0, dtype=np.int64)])
    domain = np.full(m, int(Domain.SEQUENCE))
    domain[: len(values)] = LEAF
    spans = [np.stack([bounds[:-1], bounds[1:]], axis=1) for bounds in levels]
    # Ids are canonical as they are, so that from_parents, which sorts, is not needed.
    tree = SignalTree(
        num_nodes=len(values),
        tree_index=torch.from_numpy(np.stack([parent, np.arange(m - 1)])),
        tree_level=torch.from_numpy(np.repeat(np.arange(len(levels))[::-1], counts)),
        tree_domain=torch.from_numpy(domain),
        tree_pos=torch.from_numpy(pos),
        tree_span=torch.from_numpy(np.concatenate(spans)),
    ).to(values.device)
    tree.x = values
    return tree


def _values(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        plain = x.layout is torch.strided and not x.is_complex() and not x.is_quantized
        if not plain or x.device.type == "meta":
            raise BuilderError(f"x is {short(x)}: give a dense tensor of real numbers [N, F].")
        values = x
    else:
        array = array_of(x, "x")
        assert isinstance(array, np.ndarray)
        if not array.flags.writeable or any(s < 0 or s % array.itemsize for s in array.strides):
            array = array.copy()
        if array.dtype == np.ulonglong:  # another name of uint64, which torch does not know
            array = array.astype(np.uint64)
        try:
            values = torch.from_numpy(array)
        except TypeError:
            raise BuilderError(
                f"x has dtype {array.dtype}, which torch does not know: convert it first."
            ) from None
        if isinstance(x, (list, tuple)) and values.dtype == torch.float64 and values.dim():
            values = cast(values, torch.float32, "x", lambda row: f"step {row}")
    if values.dim() == 0 or len(values) == 0:
        raise BuilderError(
            f"x has the shape {list(values.shape)}, but a sequence has at least one step: give "
            "[N, F] with N at least 1."
        )
    return values


def _boundaries(n: int, windows: Any) -> list[np.ndarray]:
    """Boundaries in steps of the nodes of every level, leaves first, the root last."""
    repeated = _is_integer(windows)
    bounds = np.arange(n + 1)
    levels = [bounds]
    for level, entry in enumerate(itertools.repeat(windows) if repeated else _list(windows)):
        left = len(bounds) > 2  # more than one node
        if repeated and not left:
            break
        if _is_integer(entry):
            if entry < 2:
                where = "windows" if repeated else f"windows[{level}]"
                raise BuilderError(f"{where}={short(entry)}: a window has at least 2 in it.")
            upper = np.append(bounds[:-1:entry], n) if entry < n else np.array([0, n])
        else:
            upper = _given(entry, bounds, level)
        if left:
            levels.append(upper)
            bounds = upper
    if len(bounds) > 2:
        levels.append(np.array([0, n]))
    return levels


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _list(windows: Any) -> list[Any]:
    if isinstance(windows, (np.ndarray, Tensor)) and windows.ndim == 1:
        windows = windows.tolist()
    if not isinstance(windows, (list, tuple)):
        raise BuilderError(
            f"windows={short(windows)}: give an integer, or a list with an integer or boundaries "
            "[0, ..., N] for each level."
        )
    return list(windows)


def _given(entry: Any, below: np.ndarray, level: int) -> np.ndarray:
    """Boundaries of a level, checked against those of the level below."""
    where = f"windows[{level}]"
    if isinstance(entry, Tensor):
        entry = entry.detach().cpu().numpy()
    try:
        bounds = np.asarray(entry)
    except (ValueError, TypeError, OverflowError):  # ragged
        bounds = np.zeros(0)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds.dtype.kind not in "iu":
        raise BuilderError(
            f"{where} is {short(entry)}: give an integer of at least 2, or at least two boundaries "
            "in steps, integers."
        )
    n = int(below[-1])
    if bounds[0] != 0 or bounds[-1] != n:
        raise BuilderError(
            f"{where} goes from {int(bounds[0])} to {int(bounds[-1])}, but the sequence from 0 to "
            f"{n}: windows leave nothing out, so begin and end there."
        )
    flat = np.flatnonzero(bounds[1:] <= bounds[:-1])
    if flat.size:
        a, b = bounds[flat[0] : flat[0] + 2].tolist()
        raise BuilderError(
            f"{where} has the boundary {b} behind {a}: let them increase, as a window has at least "
            "one step."
        )
    bounds = bounds.astype(np.int64)
    lost = bounds[below[np.searchsorted(below, bounds)] != bounds]
    if lost.size:
        raise BuilderError(
            f"{where} has the boundary {int(lost[0])} inside of a window of the level below: give "
            "boundaries that are among those of that level."
        )
    return bounds
