"""Time against leaves, both logarithmic, of a benchmark's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hsa_geo._optional import require
from hsa_geo.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_scaling"]

#: Colours that people with any colour vision tell apart (Okabe and Ito), markers and dashes.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vPX"
_DASHES = ("-", "--", ":")


def plot_scaling(
    table: Mapping[str, Mapping[int, Any]],
    ax: Axes | None = None,
    *,
    slopes: bool = True,
    xlabel: str = "leaves",
    ylabel: str = "seconds",
) -> Axes:
    """Draw how the time of each contender grows with the number of leaves.

    Args:
        table: By the name of each contender, seconds by number of leaves; in place of seconds also
            (lower quartile, median, upper quartile), whose range is then shaded.
        ax: Axes to draw on. (default: those of a new figure)
        slopes: Write beside each name the power of N by which its time grows over the larger half
            of its points, if it has three or more. (default: :obj:`True`)
        xlabel: What N counts. (default: ``"leaves"``)
        ylabel: What is measured. (default: ``"seconds"``)

    Returns:
        The axes.

    Raises:
        ShapeError: If the table is empty or holds something else than positive numbers.
        MissingPackageError: If matplotlib is not installed.

    Example:
        >>> table = {"HSA": {256: 0.001, 1024: 0.004, 4096: 0.016},
        ...          "flat": {256: 0.001, 1024: 0.016, 4096: (0.25, 0.256, 0.27)}}
        >>> [text.get_text() for text in plot_scaling(table).get_legend().get_texts()]
        ['HSA, $N^{1.0}$', 'flat, $N^{2.0}$']
    """
    lines = _points(table)
    if ax is None:
        pyplot = require("matplotlib.pyplot", extra="plot", purpose="drawing times")
        _, ax = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    assert ax is not None
    for k, (name, at) in enumerate(lines.items()):
        colour = _COLOURS[k % len(_COLOURS)]
        n, low, middle, high = at.T
        label = name.replace("$", r"\$")
        if slopes and len(n) >= 3:
            some = slice(len(n) // 2 - (len(n) == 3), None)
            power = np.polyfit(np.log(n[some]), np.log(middle[some]), 1)[0]
            label += f", $N^{{{power:.1f}}}$"
        ax.plot(
            *(n, middle),
            color=colour,
            marker=_MARKERS[k % len(_MARKERS)],
            linestyle=_DASHES[k // len(_COLOURS) % len(_DASHES)],
            linewidth=1.8,
            markersize=5,
            label=label,
        )
        ax.fill_between(n, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    ticks = np.unique(np.concatenate([at[:, 0] for at in lines.values()]))
    ax.set_xticks(ticks, [f"{n:,.0f}" for n in ticks], rotation=45 if len(ticks) > 6 else 0)
    ax.set_xticks([], minor=True)
    ax.grid(which="major", color="#DDDDDD", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return ax


def _points(table: Mapping[str, Mapping[int, Any]]) -> dict[str, np.ndarray]:
    """By name ``[n, 4]``: leaves, lower quartile, median, upper quartile, by number of leaves."""
    if not isinstance(table, Mapping) or not table:
        raise ShapeError(f"table={table!r}: give seconds by number of leaves, by name.")
    out = {}
    for name, row in table.items():
        if not isinstance(row, Mapping) or not row:
            raise ShapeError(f"'{name}' is {row!r}: give seconds by number of leaves.")
        points = []
        for leaves, value in sorted(row.items()):
            given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * 3
            try:
                numbers = [float(v) for v in (leaves, *given)]
            except (TypeError, ValueError):
                numbers = []
            good = len(numbers) == 4 and np.isfinite(numbers).all() and min(numbers) > 0
            if not good or not numbers[1] <= numbers[2] <= numbers[3]:
                raise ShapeError(
                    f"'{name}' has {value!r} at {leaves!r}: give positive seconds, or (lower "
                    "quartile, median, upper quartile)."
                )
            points.append(numbers)
        out[str(name)] = np.array(points)
    return out
