"""Windows of windows over a grid, as arrays of tree nodes, for pictures and videos.

A level groups the cells of a grid into windows of h rows and w columns, smaller at the lower and
right border where the sides do not divide; the windows are the cells of the next, smaller grid.
Nothing loops over cells, and the arrays of a grid's size are made once.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hsa_geo.builders._arguments import shown
from hsa_geo.errors import BuilderError

__all__ = ["GridNodes", "Windows", "grid_nodes", "integer", "window_levels"]

#: Sides (h, w) of the windows of every level, bottom-up, and whether the last one repeats.
Windows = tuple[tuple[tuple[int, int], ...], bool]


@dataclass(frozen=True)
class GridNodes:
    """The nodes of windows of windows, in canonical order: leaves first, the root last.

    Attributes:
        parent: ``[M]`` int64, parent of every node, -1 for the root.
        pos: ``[M, 2]`` float32, row and column of every node in its parent's window.
        cell: ``[N]`` int64, the cell (row * cols + column) of every leaf.
    """

    parent: np.ndarray
    pos: np.ndarray
    cell: np.ndarray


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int within limits.

    Raises:
        BuilderError: If it is none.

    Example:
        >>> integer("patch_size", np.int64(8), 1)
        8
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise BuilderError(f"{name}={shown(value)} is no integer: give one.")
    if number < least or (most is not None and number > most):
        upto = "or more" if most is None else f"to {most}"
        raise BuilderError(f"{name}={shown(number)} is out of range: give {least} {upto}.")
    return number


def window_levels(name: str, window: Any, *, line: bool = False) -> Windows:
    """What the caller says about windows, checked.

    Args:
        name: Name of the argument, for errors.
        window: A side, a pair (h, w), or a list of those, one for each level.
        line: Windows over a sequence (h steps, w = 1): sides only. (default: :obj:`False`)

    Returns:
        The levels; a single window repeats.

    Raises:
        BuilderError: If a window has no cells, or groups nothing.

    Example:
        >>> window_levels("window", (4, 2)), window_levels("window", [8, 2], line=True)
        ((((4, 2),), True), (((8, 1), (2, 1)), False))
    """
    levels = []
    for level in window if isinstance(window, list) else [window]:
        if isinstance(level, tuple) and not line:
            if len(level) != 2:
                raise BuilderError(
                    f"{name} has a window {shown(level)}: give a pair (h, w), or a list of "
                    "windows, one for each level."
                )
            sides = integer(name, level[0], 1), integer(name, level[1], 1)
        else:
            side = integer(name, level, 1)
            sides = (side, 1 if line else side)
        if sides == (1, 1):
            raise BuilderError(f"{name} has a window of one cell, which groups nothing: give 2.")
        levels.append(sides)
    return tuple(levels), not isinstance(window, list)


def grid_nodes(rows: int, cols: int, windows: Windows) -> GridNodes:
    """Windows of windows over a grid.

    Levels are made until one window is left or no window is larger than one cell; if several are
    left then, they are the children of a root.  A grid of one cell is a single leaf.

    Args:
        rows: Rows of the grid, at least 1.
        cols: Columns, at least 1.
        windows: From :func:`window_levels`.

    Returns:
        The nodes; the arrays are shared between calls and read-only.

    Example:
        >>> nodes = grid_nodes(2, 3, (((2, 2),), True))
        >>> nodes.parent.tolist(), nodes.cell.tolist()
        ([6, 6, 6, 6, 7, 7, 8, 8, -1], [0, 1, 3, 4, 2, 5])
        >>> nodes.pos[6:].tolist()
        [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    return (
        _cached_nodes(rows, cols, windows)
        if rows * cols <= 2**16
        else _nodes(*_grids(rows, cols, windows))
    )


@lru_cache(maxsize=64)
def _cached_nodes(rows: int, cols: int, windows: Windows) -> GridNodes:
    return _nodes(*_grids(rows, cols, windows))


def _grids(
    rows: int, cols: int, windows: Windows
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Sizes of the grids of all levels, bottom-up, and of the windows between them."""
    grids, sides = [(rows, cols)], []
    levels, repeat = windows
    for h, w in levels:
        while grids[-1] != (1, 1):
            rows, cols = grids[-1]
            side = (min(h, rows), min(w, cols))
            if side == (
                1,
                1,
            ):  # e.g. windows of one row and several columns, when one column is left
                break
            grids.append((-(-rows // side[0]), -(-cols // side[1])))
            sides.append(side)
            if not repeat:
                break
    if grids[-1] != (1, 1):
        sides.append(grids[-1])
        grids.append((1, 1))
    return grids, sides


def _nodes(grids: list[tuple[int, int]], sides: list[tuple[int, int]]) -> GridNodes:
    first = np.cumsum([0] + [rows * cols for rows, cols in grids])  # id of a level's first node
    rank = np.zeros(1, dtype=np.int64)  # place of every cell of the grid above, depth-first
    parents, positions = [np.array([-1])], [np.zeros((1, 2), dtype=np.float32)]
    cell = rank
    for k in range(len(sides) - 1, -1, -1):  # top-down
        (rows, cols), (h, w) = grids[k], sides[k]
        row, col = np.divmod(np.arange(rows * cols), cols)
        above = rank[(row // h) * grids[k + 1][1] + col // w]
        cell = np.argsort(above * (h * w) + (row % h) * w + col % w)
        rank = np.empty_like(cell)
        rank[cell] = np.arange(len(cell))
        parents.append(first[k + 1] + above[cell])
        positions.append(np.stack([row % h, col % w], axis=1)[cell].astype(np.float32))
    out = GridNodes(np.concatenate(parents[::-1]), np.concatenate(positions[::-1]), cell)
    for array in (out.parent, out.pos, out.cell):
        array.flags.writeable = False
    return out
