"""Labelled pages on disk: a folder with a folder for each label, or a table of paths and labels."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import NamedTuple

from hsa_geo._folders import walk
from hsa_geo.errors import LabelError

__all__ = ["LabelledPage", "find_labelled"]

_ENDINGS = (".html", ".htm", ".xhtml")


class LabelledPage(NamedTuple):
    """A page and its label.

    Attributes:
        path: The file.
        label: Its label.

    Example:
        >>> LabelledPage(Path("shops/1.html"), "shops").label
        'shops'
    """

    path: Path
    label: str


def find_labelled(source: str | os.PathLike[str]) -> list[LabelledPage]:
    """The labelled pages of a folder or a table.

    - Of a folder each folder in it is a label, and the ``.html``, ``.htm`` and ``.xhtml`` files
      anywhere below are its pages.  Hidden files and folders are left out, and links to folders.
    - A table is a CSV file (UTF-8, or UTF-16 with its mark) with a path and a label in each row; a
      first row ``path,label`` is a heading, which may name further columns in any order.  Paths
      are relative to the folder of the table.

    Args:
        source: The folder or the table.

    Returns:
        The pages, by label and path or in the order of the table; they are not opened.

    Raises:
        LabelError: If there are no pages, or of one label only, or a row is none.
        BuilderError: If a page is a link out of the folder of its label.
        OSError: If the folder or the table cannot be read.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("news/1.html", "shops/2.html"):
        ...     (folder / name).parent.mkdir()
        ...     (folder / name).touch()
        >>> [(page.path.name, page.label) for page in find_labelled(folder)]
        [('1.html', 'news'), ('2.html', 'shops')]
    """
    path = Path(source)
    pages = _in_folder(path) if path.is_dir() else _in_table(path)
    labels = {page.label for page in pages}
    if len(labels) < 2:
        raise LabelError(
            f"'{path}' holds {len(pages)} pages of {len(labels)} labels: give at least two labels, "
            "each a folder of pages in a folder, or a CSV file of paths and labels."
        )
    return pages


def _in_folder(folder: Path) -> list[LabelledPage]:
    pages = []
    for top in sorted(folder.iterdir()):
        if top.name.startswith(".") or top.is_symlink() or not top.is_dir():
            continue
        for path, error in walk(top, lambda path: path.suffix.lower() in _ENDINGS):
            if error is not None:
                raise error
            pages.append(LabelledPage(path, top.name))
    return pages


def _in_table(path: Path) -> list[LabelledPage]:
    pages = []
    data = path.read_bytes()  # once: it may be a pipe
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        # A path may be bytes that are no UTF-8, as the file system has them; a label may not.
        text = data.decode(*(("utf-16", "strict") if wide else ("utf-8-sig", "surrogateescape")))
        rows = csv.reader(io.StringIO(text, newline=""))
        first, columns = True, (0, 1)
        for row in rows:
            if first and {"path", "label"} <= set(row):
                columns = row.index("path"), row.index("label")
            elif row:
                pages.append(_in_row(row, columns, path, rows.line_num))
            first = False
    except (csv.Error, UnicodeDecodeError) as error:
        raise LabelError(f"'{path}' is no CSV file ({error}): give a path and a label.") from error
    return pages


def _in_row(row: list[str], columns: tuple[int, int], table: Path, line: int) -> LabelledPage:
    named = row[columns[1]].strip() if len(row) > max(columns) else ""
    if not named or not row[columns[0]]:
        raise LabelError(
            f"line {line} of '{table}' is {','.join(row)!r:.120}: give a path and a label."
        )
    if any("\udc80" <= c <= "\udcff" for c in named) or "\0" in named:
        found = named.encode("utf-8", "surrogateescape")
        raise LabelError(
            f"line {line} of '{table}' has the label {found!r:.120}, which is not UTF-8: save the "
            "table as UTF-8, or as UTF-16 with its mark."
        )
    return LabelledPage(table.parent / row[columns[0]], named)
