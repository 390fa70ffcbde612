"""The files of a folder and of the folders in it, as they are found.

Example:
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.html", "a.html", "c.css"):
    ...     (folder / name).touch()
    >>> [path.name for path, error in walk(folder, lambda path: path.suffix == ".html")]
    ['a.html', 'b.html']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hsa_geo.errors import BuilderError

__all__ = ["Found", "walk"]

#: A file, and why it cannot be read (None where nothing speaks against it).
Found = tuple[Path, Exception | None]


def walk(folder: Path, wanted: Callable[[Path], bool]) -> Iterator[Found]:
    """The files of a folder, sorted by name within each folder.

    Hidden files and folders are left out, what is no regular file, and links to folders; a link to
    a file outside is an error.  Nothing is kept but the names of the folders above the present
    file.

    Args:
        folder: The folder; it may be a link itself.
        wanted: Which files.

    Yields:
        Files, and what cannot be read with the error.
    """
    inside = os.path.join(os.path.realpath(folder), "")
    stack = [iter([folder])]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
        elif path is folder or (path.is_dir() and not path.is_symlink()):
            try:
                names = sorted(name for name in os.listdir(path) if not name.startswith("."))
            except OSError as error:
                yield path, error
                continue
            stack.append(map(path.joinpath, names))
        elif wanted(path) and path.is_file():
            leads_out = path.is_symlink() and not os.path.realpath(path).startswith(inside)
            yield path, _outside(path, folder) if leads_out else None


def _outside(path: Path, folder: Path) -> BuilderError:
    return BuilderError(f"'{path}' is a link out of '{folder}': name what it points to instead.")
