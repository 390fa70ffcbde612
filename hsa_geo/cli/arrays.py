"""Numbers from files: tables with a row for each step, and numpy's ``.npy``."""

from __future__ import annotations

import csv
import io
import warnings
from typing import Any

from hsa_geo.errors import BuilderError, HSAWarning, LimitError

__all__ = ["MAX_STEPS", "is_npy", "read_array", "sequence_tree"]

#: Most steps of a sequence, whose tree takes some seconds then.
MAX_STEPS = 2**20


def is_npy(data: bytes) -> bool:
    """Whether this is a ``.npy`` file.

    Example:
        >>> is_npy(b"1,2")
        False
    """
    return data.startswith(b"\x93NUMPY")


def read_array(data: bytes, name: str) -> Any:
    """The numbers of a ``.npy`` file, or of a table.

    A table has a row of numbers for each step, with commas, semicolons or tabs between them; a
    first row without any number is a heading.  It is in UTF-8, or in UTF-16 with its mark.

    Args:
        data: What the file holds.
        name: What errors call it.

    Returns:
        An array of numpy, of a table ``[rows, columns]`` float32.

    Raises:
        BuilderError: If it holds anything but numbers, rows of unequal length, or no column.

    Warns:
        HSAWarning: If some of the numbers are not finite.

    Example:
        >>> read_array(b"x;y\\n1;2\\n3;4.5\\n", "a.csv").tolist()
        [[1.0, 2.0], [3.0, 4.5]]
    """
    import numpy as np

    array = _npy(data, name) if is_npy(data) else _table(data, name)
    lost = array.size - int(np.isfinite(array).sum())
    if lost:
        warnings.warn(
            f"{lost} of the {array.size} numbers of '{name}' are nan or infinite, with which a "
            "model gives nan: fill them in, or leave their steps out.",
            HSAWarning,
            stacklevel=2,
        )
    return array


def _npy(data: bytes, name: str) -> Any:
    import numpy as np

    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # headers may say anything
        raise BuilderError(
            f"'{name}' is no array that numpy reads ({error}): write it by numpy.save, without "
            "objects."
        ) from error
    if array.dtype.kind not in "biuf":
        raise BuilderError(f"'{name}' holds {array.dtype}: give an array of real numbers.")
    if 0 in array.shape[1:]:  # a few bytes that promise any number of steps
        raise BuilderError(
            f"the array of shape {list(array.shape)} in '{name}' has no number in a step: give one "
            "column or more."
        )
    return array


def _table(data: bytes, name: str) -> Any:
    import numpy as np

    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    # What is no character can stand in a heading only: it makes no number.
    text = data.decode("utf-16" if wide else "utf-8-sig", "replace")
    head = text.lstrip().partition("\n")[0]
    delimiter = next((mark for mark in "\t;" if mark in head), ",")
    rows: list[list[float]] = []
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    heading = True
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells):
                continue
            if heading and not any(map(_is_number, cells)):
                heading = False
                continue
            heading = False
            rows.append(_numbers(cells, lines.line_num, name))
            if len(rows[-1]) != len(rows[0]):
                raise BuilderError(
                    f"line {lines.line_num} of '{name}' has {len(rows[-1])} columns, but the first "
                    f"row {len(rows[0])}: give every row the same."
                )
    except csv.Error as error:
        raise BuilderError(f"'{name}' is no table ({error}): give rows of numbers.") from error
    if not rows:
        raise BuilderError(f"'{name}' holds no row of numbers: give one for each step.")
    return np.array(rows, dtype=np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], line: int, name: str) -> list[float]:
    for column, cell in enumerate(cells, start=1):
        if not _is_number(cell):
            raise BuilderError(
                f"line {line} of '{name}' has {cell!r:.40} in column {column}, which is no number: "
                "give numbers, or leave the row or column out."
            )
    return list(map(float, cells))


def sequence_tree(array: Any, window: int) -> Any:
    """The tree of windows over the steps of an array, named by steps counted from 0.

    Args:
        array: ``[N, ...]``.
        window: Steps in a window, windows in a larger one, and so on.

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Raises:
        BuilderError: If there is no step.
        LimitError: If there are more than :data:`MAX_STEPS`.

    Example:
        >>> import numpy as np
        >>> sequence_tree(np.zeros((3, 1)), 2).tree_name
        ['step 0', 'step 1', 'step 2', 'steps 0-1', 'step 2', 'sequence']
    """
    from hsa_geo.builders import from_sequence

    if array.ndim == 0 or len(array) == 0:
        raise BuilderError(f"the array of shape {list(array.shape)} has no step: give one or more.")
    if len(array) > MAX_STEPS:
        raise LimitError(
            f"the array of shape {list(array.shape)} has more than {MAX_STEPS} steps: cut it into "
            "parts, or take the mean of every few."
        )
    tree = from_sequence(array, windows=window)
    tree.tree_name = [
        f"step {first}" if first + 1 == end else f"steps {first}-{end - 1}"
        for first, end in tree.tree_span.tolist()
    ]
    tree.tree_name[-1] = "sequence"
    return tree
