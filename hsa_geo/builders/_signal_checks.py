"""Checks of what the words for nested signals are given, and how errors quote it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from hsa_geo.errors import BuilderError

__all__ = [
    "check_modality",
    "count_of",
    "edges_of",
    "position_of",
    "short",
    "size_of",
    "weights_of",
]

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def check_modality(modality: Any) -> None:
    if not (isinstance(modality, str) and modality.isidentifier()):
        raise BuilderError(f"modality={short(modality)} is no name: give one such as 'image'.")
    if "edge" in modality.split("_") or modality.split("_")[0] == "tree":
        raise BuilderError(
            f"modality={modality!r} would be mistaken for edges or the hierarchy itself: give "
            "another name, such as 'image'."
        )


def position_of(pos: Any, size: int | None = None) -> tuple[float, float]:
    """Two floats from one or two numbers."""
    try:
        if isinstance(pos, Tensor):
            array = _from_torch(pos)
        else:
            array = np.asarray(pos)
        if array.dtype.kind not in "biuf":
            raise TypeError
        numbers = array.astype(np.float64).reshape(-1).tolist()
    except (ValueError, TypeError, OverflowError, RuntimeError):
        array, numbers = np.zeros(0), []
    finite = all(abs(number) <= _FLOAT32_MAX for number in numbers)  # nan is not
    if array.ndim > 1 or len(numbers) not in (1, 2) or not finite or size not in (None, array.size):
        wanted = "one or two" if size is None else "two"
        raise BuilderError(f"the position {short(pos)} is not {wanted} finite numbers.")
    return numbers[0], numbers[1] if len(numbers) == 2 else 0.0


def edges_of(edges: Any, children: Any) -> np.ndarray:
    """``[E, 2]`` indices of children."""
    if isinstance(edges, Tensor):
        edges = _from_torch(edges)
    if isinstance(children, dict):
        place = {key: i for i, key in enumerate(children)}
        pairs = []
        for edge in _pairs(edges):
            try:
                pairs.append([place[edge[0]], place[edge[1]]])
            except (KeyError, TypeError):
                raise BuilderError(
                    f"the edge {short(edge)} of a Graph joins no two of its children: it has "
                    f"{short(list(children))}."
                ) from None
        edges = pairs
    elif not isinstance(edges, np.ndarray):
        edges = _pairs(edges)
    try:
        array = np.array(edges)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(1)
    if array.size == 0 and array.shape in ((0,), (0, 2)):
        array = np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise BuilderError(
            f"edges={short(edges)} of a Graph are no pairs of indices: give [E, 2] integers, or "
            "keys if the children are a mapping."
        )
    bad = np.flatnonzero(((array < 0) | (array >= len(children))).any(axis=1))
    if bad.size:
        raise BuilderError(
            f"the edge {tuple(array[bad[0]].tolist())} of a Graph joins no two of its children: "
            f"their indices are 0..{len(children) - 1}."
        )
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def _from_torch(value: Tensor) -> np.ndarray:
    """An array, or one of objects, which is refused, of what numpy cannot hold."""
    try:
        if value.is_floating_point():  # bfloat16, which numpy has not
            value = value.double()
        return value.detach().cpu().numpy()
    except (TypeError, RuntimeError):  # sparse, or on no device
        return np.asarray(None)


def _pairs(edges: Any) -> list[Any]:
    if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
        raise BuilderError(f"edges={short(edges)} of a Graph is no list: give pairs of vertices.")
    if isinstance(edges, np.ndarray) and edges.ndim == 0:
        raise BuilderError("edges of a Graph are an array without rows: give pairs of vertices.")
    pairs = list(edges)
    for edge in pairs:
        if not (isinstance(edge, (tuple, list, np.ndarray)) and len(edge) == 2):
            raise BuilderError(f"the edge {short(edge)} of a Graph is no pair of two vertices.")
    return pairs


def weights_of(weights: Any, count: int) -> np.ndarray:
    if isinstance(weights, Tensor):
        weights = _from_torch(weights)
    elif isinstance(weights, Iterable) and not isinstance(weights, (np.ndarray, str, bytes)):
        weights = list(weights)
    try:
        array = np.array(weights)
        if array.dtype.kind not in "biuf" and array.size:
            raise TypeError
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    except (ValueError, TypeError, OverflowError):
        raise BuilderError(f"weights={short(weights)} of a Graph are no numbers.") from None
    if array.shape != (count,):
        raise BuilderError(
            f"weights of a Graph have shape {list(array.shape)} for {count_of(count, 'edge')}: "
            "give one for each."
        )
    if not np.isfinite(array).all():
        bad = int(np.flatnonzero(~np.isfinite(array))[0])
        raise BuilderError(f"weight {bad} of a Graph is {array[bad]}: give finite numbers.")
    array.flags.writeable = False
    return array


def short(value: Any, most: int = 60) -> str:
    """``repr`` for errors, of bounded length and depth."""
    if isinstance(value, (np.ndarray, Tensor)):
        return f"an array {size_of(value)}"
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        inside = value.items() if isinstance(value, dict) else value
        flat = (str, bytes, int, float, complex, bool, type(None))
        if len(value) > 8 or not all(
            isinstance(part, flat)
            or (
                isinstance(part, tuple) and len(part) < 4 and all(isinstance(p, flat) for p in part)
            )
            for part in inside
        ):
            return f"a {type(value).__name__} of {len(value)}"
    try:
        text = repr(value)
    except Exception:  # of a foreign class, or an integer too long to print
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def size_of(value: Any) -> str:
    if isinstance(value, (np.ndarray, Tensor)):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return short(value)


def count_of(number: int, what: str) -> str:
    plural = {"child": "children"}.get(what, f"{what}s")
    return f"{number} {what if number == 1 else plural}"
