"""Files named on the command line: one by one, or those of folders, as they are found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hsa_geo.errors import BuilderError, HSAError, LimitError

__all__ = ["MAX_BYTES", "Found", "find_files", "read_bytes"]

#: Largest file that is read.
MAX_BYTES = 2**25

#: A file, and why it cannot be read (None where nothing speaks against it).
Found = tuple[Path, Exception | None]


def find_files(paths: Sequence[Path], wanted: Callable[[Path], bool]) -> Iterator[Found]:
    """The files named, and those of the folders named, sorted by name within each folder.

    In folders hidden files and folders are left out, what is no regular file, and links to
    folders; a link to a file outside is an error.  Nothing is kept but the names of the folders
    above the present file.

    Args:
        paths: Files, taken as they are, and folders.
        wanted: Which files of a folder.

    Yields:
        Files, and errors of what cannot be read.

    Raises:
        BuilderError: If none is found.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b.html", "a.html", "c.css"):
        ...     (folder / name).touch()
        >>> [path.name for path, error in find_files([folder], lambda p: p.suffix == ".html")]
        ['a.html', 'b.html']
    """
    for path in paths:
        if not path.is_dir():
            yield path, None
            continue
        empty = True
        for found in _walk(path, wanted):
            empty = False
            yield found
        if empty:
            raise BuilderError(
                f"the folder '{path}' holds no file of a known kind: give one with pages, or "
                "--as for files with other endings."
            )


def _walk(folder: Path, wanted: Callable[[Path], bool]) -> Iterator[Found]:
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


def _outside(path: Path, folder: Path) -> HSAError:
    return BuilderError(f"'{path}' is a link out of '{folder}': name what it points to instead.")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A file's bytes.

    Raises:
        LimitError: If there are more than ``limit``.
        OSError: If it cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise LimitError(f"'{path}' has more than {limit} bytes: cut it into parts.")
    return data
