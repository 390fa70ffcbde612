"""Values of leaves, one after another, as one tensor: without a call to torch for each."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.builders._signal_checks import short, size_of
from hsa_geo.errors import BuilderError

__all__ = ["Rows", "array_of", "cast", "is_number"]

#: What is called for an error about a row: the path to its leaf.
Where = Callable[[int], str]
_NATIVE = {np.dtype(kind) for kind in "?bhilqBHILQefd"}


class Rows:
    """The rows of one modality; those of the same sort that follow each other are a run.

    Attributes:
        leaf: The number of the leaf of each row.
    """

    def __init__(self) -> None:
        self.leaf: list[int] = []
        self._runs: list[tuple[bool, list[Any]]] = []

    def add(self, values: Iterable[Any], leaves: Iterable[int], *, block: bool = False) -> None:
        """Append values of one row each, or with ``block`` arrays of several rows."""
        if not self._runs or self._runs[-1][0] is not block:
            self._runs.append((block, []))
        self._runs[-1][1].extend(values)
        self.leaf.extend(leaves)

    def each(self) -> Iterator[np.ndarray]:
        """The rows one by one; slow, for tests.

        Raises:
            BuilderError: If a value is no array of numbers.
        """
        for block, values in self._runs:
            for value in values:
                array = array_of(value, "a leaf")
                if isinstance(array, Tensor):
                    array = (array.double() if array.is_floating_point() else array).numpy()
                yield from array if block else [array.reshape(array.shape or (1,))]

    def stack(self, what: str, shape: tuple[int, ...] | None, where: Where) -> Tensor:
        """All rows ``[n, ...]`` in their common type.

        Args:
            what: Name of the modality, for errors.
            shape: The shape that each row must have. (None: that of the first)
            where: The path to the leaf of a row.

        Raises:
            BuilderError: If a value is no array of numbers, or of another shape.
        """
        wanted, expected = shape, "modalities= says"
        parts: list[Tensor] = []
        start = 0
        for block, values in self._runs:
            count = sum(map(len, values)) if block else len(values)
            starts = list(accumulate(map(len, values), initial=start)) if block else None

            def place(i: int, starts: Any = starts, start: int = start) -> str:
                return where(start + i if starts is None else starts[i])

            values, block = _arrays(values, block, place)
            shapes = [v.shape[1:] for v in values] if block else [v.shape or (1,) for v in values]
            if wanted is None:
                wanted, expected = tuple(shapes[0]), f"{where(0)} has"
            if set(shapes) != {wanted}:
                bad = next(i for i, found in enumerate(shapes) if tuple(found) != wanted)
                raise BuilderError(
                    f"{place(bad)} has {what!r} of shape {list(shapes[bad])}, but {expected} shape "
                    f"{list(wanted)}: give all the same, or each shape a modality of its own."
                )
            with _one_type(what):
                parts.append(_joined(values, (count, *wanted)))
            start += count
        with _one_type(what):
            common = functools.reduce(torch.promote_types, [rows.dtype for rows in parts])
            parts = [rows.to(common) for rows in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@contextlib.contextmanager
def _one_type(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch does not promote uint16, uint32 and uint64
        raise BuilderError(
            f"the values of {what!r} have no common type ({error}): give all the same."
        ) from None


def is_number(kind: type) -> bool:
    """Whether objects of a type are numbers, as a leaf may be."""
    return issubclass(kind, (int, float, np.bool_, Number))


def array_of(value: Any, where: str) -> np.ndarray | Tensor:
    """The numbers of a leaf, as an array in memory or a detached tensor on the CPU.

    Args:
        value: A number, array, tensor, or lists of numbers.
        where: The path to the leaf.

    Raises:
        BuilderError: If it is something else, or holds something else than real numbers.

    Example:
        >>> array_of([[1, 2], [3, 4]], "root").shape
        (2, 2)
    """
    if isinstance(value, Tensor):
        plain = value.layout is torch.strided and not value.is_complex() and not value.is_quantized
        if plain and value.device.type != "meta":
            return value.detach().cpu()
        raise BuilderError(
            f"{where} is a tensor {size_of(value)}: give a dense one of real numbers."
        )
    try:
        array = _listed(value) if isinstance(value, (list, tuple)) else np.asarray(value)
        if array.dtype == object and is_number(type(value)):  # Fraction, Decimal, a large integer
            array = np.asarray(float(value))
    except Exception:  # ragged lists, or whatever __array__ of a foreign class raises
        array = np.asarray(None)
    if isinstance(value, np.ma.MaskedArray):
        raise BuilderError(f"{where} is a masked array: fill it first, e.g. by .filled(0).")
    if array.dtype.kind not in "biuf":
        raise BuilderError(
            f"{where} is {short(value)}, which is no array of real numbers: give one."
        )
    if array.dtype not in _NATIVE or not array.dtype.isnative:
        array = array.astype("f8" if array.dtype.itemsize > 8 else array.dtype.newbyteorder("="))
    return array


def _listed(value: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy makes nan of a masked number
        return np.asarray(value)


def cast(rows: Tensor, dtype: torch.dtype, what: str, where: Where) -> Tensor:
    """Rows as ``dtype``; floats may be rounded, but nothing else may change.

    Raises:
        BuilderError: If a number is no integer or out of range, and the type asks for that.
    """
    if rows.dtype == dtype or not rows.numel():
        return rows.to(dtype)
    try:
        out = rows.to(dtype)
        if dtype.is_floating_point:
            bad = ~out.isfinite() & rows.double().isfinite()
        else:
            bad = out.double() != rows.double()
    except RuntimeError as error:
        raise BuilderError(f"{what!r} cannot be made {dtype} ({error}): use another.") from None
    if bool(bad.any()):
        row = int(bad.reshape(len(bad), -1).any(dim=1).nonzero()[0])
        value = rows[row][bad[row]][0].item()
        raise BuilderError(
            f"{where(row)} holds {value!r} as {what!r}, which {dtype} cannot: give another dtype."
        )
    return out


def _arrays(values: list[Any], block: bool, place: Where) -> tuple[list[Any], bool]:
    """Each as an array or a tensor, and whether they are blocks; what is so is not touched."""
    kinds = set(map(type, values))
    if kinds == {np.ndarray} and {v.dtype for v in values} <= _NATIVE:
        return values, block
    if kinds == {Tensor}:
        sorts = {(v.layout, v.device.type, v.is_quantized) for v in values}
        complex_ = any(dtype.is_complex for dtype in {v.dtype for v in values})
        if sorts == {(torch.strided, "cpu", False)} and not complex_:
            return values, block
    if not block and all(is_number(kind) for kind in kinds):
        array = np.array(values)
        if array.dtype in _NATIVE:
            return [array[:, None]], True
    return [array_of(value, place(i)) for i, value in enumerate(values)], block


def _joined(values: list[Any], shape: tuple[int, ...]) -> Tensor:
    """A new tensor with the numbers of all values, of this shape."""
    values = [v if v.ndim else v.reshape(1) for v in values]
    if all(isinstance(v, np.ndarray) for v in values):
        return torch.from_numpy(np.concatenate(values).reshape(shape))
    with torch.no_grad():
        tensors = [v if isinstance(v, Tensor) else torch.from_numpy(np.array(v)) for v in values]
        return torch.cat(tensors).reshape(shape)
