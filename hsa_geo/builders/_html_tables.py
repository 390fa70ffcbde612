"""Where the cells of a table stand, by the HTML standard's "forming a table".

Rows count in source order, those of ``<tfoot>`` last.  A cell stands in the first column of its
row that no cell before it or above it covers, and covers ``colspan`` columns (at most 1,000) and
``rowspan`` rows (0: all that are left), the latter up to the end of the group of rows.

Source: https://html.spec.whatwg.org/multipage/tables.html#forming-a-table
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hsa_geo.builders._page_lists import Frame, PageLists

__all__ = ["TableGrid"]

_MAX_COLSPAN, _MAX_ROWSPAN = 1000, 65534
_COLUMNS = 1000  # rowspan counts in so many columns, so that time stays linear
_FOREVER = 2**62
_NUMBER = re.compile(r"[ \t\r\n\f]*\+?([0-9]+)")


class TableGrid:
    """The grid of one table while the table is walked.

    Rows and groups of rows have no node; cells are children of one node, ``cells``.

    Args:
        outer: The table's frame.

    Attributes:
        outer: The same; whatever is no cell (the caption) falls into it.
        owner: The form that the current row's cells belong to.
        in_row: Whether a row is open.
    """

    def __init__(self, outer: Frame) -> None:
        self.outer = outer
        self.owner: Any = outer.owner
        self.in_row = False
        self._cells = Frame("cells", outer)
        self._made: list[tuple[Frame, bool, int, int]] = []  # cell, in the foot, row, column
        self._foot = False
        self._rows = [0, 0]  # so far in the body, in the foot
        self._column = 0
        self._until = np.zeros(_COLUMNS, dtype=np.int64)  # row up to which a column is covered
        self._covered = 0  # the last of them

    def start_group(self, foot: bool) -> None:
        """A group of rows begins, or (``foot=False``) ends."""
        self._foot = foot
        if self._covered:
            self._until[:] = 0
            self._covered = 0

    def start_row(self) -> None:
        """A row begins."""
        self._rows[self._foot] += 1
        self._column = 0
        self.in_row = True
        self.owner = self.outer.owner

    def end_row(self) -> None:
        """A row ends."""
        self.in_row = False
        self.owner = self.outer.owner

    def start_cell(self, name: str, attributes: dict[str, str | None]) -> Frame:
        """The frame of a cell that begins.

        Args:
            name: Its tag.
            attributes: Its attributes.
        """
        row, column = max(0, self._rows[self._foot] - 1), self._column
        if row < self._covered and column < _COLUMNS:
            free = self._until[column:] <= row
            step = int(free.argmax())
            column = column + step if free[step] else _COLUMNS
        width = min(_span(attributes.get("colspan")) or 1, _MAX_COLSPAN)
        height = min(_span(attributes.get("rowspan")), _MAX_ROWSPAN)
        if height != 1:
            until = row + height if height else _FOREVER
            covered = self._until[column : column + width]
            np.maximum(covered, until, out=covered)
            self._covered = max(self._covered, until)
        self._column = column + width
        cell = Frame(name, self._cells)
        cell.owner = self.owner
        self._made.append((cell, self._foot, row, column))
        return cell

    def close(self, page: PageLists) -> None:
        """Note in the page's lists where the cells stand that show something."""
        if self._cells.id < 0:
            return
        page.cells.append(self._cells.id)
        body = self._rows[0]
        for cell, foot, row, column in self._made:
            if cell.id >= 0:
                page.cell_pos.append((cell.id, row + body if foot else row, column))


def _span(text: str | None) -> int:
    """A ``colspan`` or ``rowspan`` as browsers read it, 1 if it is no number.

    Example:
        >>> _span("2"), _span(" 3px"), _span("-1"), _span(None), _span("0")
        (2, 3, 1, 1, 0)
    """
    match = _NUMBER.match(text or "")
    return int(match[1][:9]) if match else 1
