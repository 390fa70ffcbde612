"""Files named on the command line: one by one, or those of folders, as they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hsa_geo._folders import Found, walk
from hsa_geo.errors import BuilderError, LimitError

__all__ = ["MAX_BYTES", "find_files", "read_bytes"]

#: Largest file that is read.
MAX_BYTES = 2**25


def find_files(
    paths: Sequence[Path], wanted: Callable[[Path], bool], option: str = "--as"
) -> Iterator[Found]:
    """The files named, and those of the folders named; see :func:`hsa_geo._folders.walk`.

    Args:
        paths: Files, taken as they are, and folders.
        wanted: Which files of a folder.
        option: The command's option that takes files with other endings. (default: ``"--as"``)

    Yields:
        Files, and errors of what cannot be read, also of a folder in which there is none wanted.
    """
    for path in paths:
        if not path.is_dir():
            yield path, None
            continue
        empty = True
        for found in walk(path, wanted):
            empty = False
            yield found
        if empty:
            yield (
                path,
                BuilderError(
                    f"the folder '{path}' holds no file of a known kind: give another, or {option} "
                    "for files with other endings."
                ),
            )


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A file's bytes.

    Raises:
        BuilderError: If there are none, or ``path`` is a folder.
        LimitError: If there are more than ``limit``.
        OSError: If it cannot be read.
    """
    if path.is_dir():
        raise BuilderError(f"'{path}' is a folder: name a file, such as one in it.")
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise LimitError(f"'{path}' has more than {limit} bytes: cut it into parts.")
    if not data:
        raise BuilderError(f"'{path.name}' is empty: there is nothing to make a tree of.")
    return data
