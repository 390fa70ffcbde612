"""Files that are written in one step, and never through a link that someone left there.

Example:
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.txt")
    >>> with replacing(path) as part:
    ...     _ = part.write_text("to be")
    >>> path.read_text()
    'to be'
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hsa_geo.errors import PathError

__all__ = [
    "disk_is_full",
    "file_in_folder",
    "folder_path",
    "make_folder",
    "replacing",
    "write_text",
]

#: No space, over the quota, file larger than allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room, or no more allowed.

    Args:
        error: Of Python, or of safetensors, which tells the system's code in its text.

    Returns:
        True or false.

    Example:
        >>> disk_is_full(OSError(errno.ENOSPC, "No space left on device"))
        True
        >>> disk_is_full(OSError(errno.EACCES, "Permission denied"))
        False
    """
    if getattr(error, "errno", None) in _FULL:
        return True
    return any(re.search(rf"os error {code}\b", str(error)) for code in _FULL)


def file_in_folder(path: Path) -> None:
    """Check where a file is to be written.

    Args:
        path: The file.

    Raises:
        PathError: If it is a folder, or would lie in none.

    Example:
        >>> import tempfile
        >>> file_in_folder(Path(tempfile.mkdtemp(), "a.txt"))
    """
    if path.is_dir():
        raise PathError(f"'{path}' is a folder: give the name of a file, such as one in it.")
    if not path.parent.is_dir():
        what = "is no folder" if path.parent.exists() else "does not exist"
        raise PathError(f"'{path.parent}' {what}: '{path.name}' needs a folder, make it first.")


def folder_path(name: str, value: Any) -> Path:
    """A path that was given as an argument, whether or not it is there.

    Args:
        name: What the argument is called.
        value: What was given.

    Returns:
        The path.

    Raises:
        PathError: If it is none.

    Example:
        >>> folder_path("folder", "runs").name
        'runs'
    """
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str) or "\0" in text:
        raise PathError(f"{name}={value!r:.60} is no path: give the name of a folder as a str.")
    return Path(text)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless they are there.

    Args:
        path: The folder.

    Raises:
        PathError: If a file stands in the way.
        OSError: If it cannot be made.

    Example:
        >>> import tempfile
        >>> make_folder(Path(tempfile.mkdtemp(), "a", "b"))
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        there = next(place for place in (path, *path.parents) if os.path.lexists(place))
        raise PathError(
            f"'{there}' is a file, not a folder to write into: give another name."
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place at the end, or goes if anything fails.

    Its name is its own, so that of several writers the last one wins, and no file mixes two.

    Args:
        path: What is to be written; its folder must exist.

    Yields:
        The new file, empty.  What had its name is removed; a link's target is left alone.

    Raises:
        PathError: If ``path`` is a folder, or lies in none.
        OSError: If it cannot be made; an old ``path`` is then still whole.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> with replacing(path) as part:
        ...     part.parent == path.parent, part.exists(), path.exists()
        (True, True, False)
    """
    file_in_folder(path)
    # Bytes, as a file system counts them; a long name may have to make room for the rest.
    start = os.fsdecode(os.fsencode(path.name)[:200])
    part = path.with_name(f".{start}.{secrets.token_hex(4)}.part")
    with open(part, "xb") as file:  # fails where there is anything, also a link to nowhere
        mode = os.fstat(file.fileno()).st_mode & 0o777
    try:
        yield part
        os.chmod(part, mode)  # safetensors makes files that only their owner can read
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step.

    Args:
        path: The file; its folder must exist.
        text: What it holds afterwards, as UTF-8.

    Raises:
        OSError: If it cannot be written; an old one is then still whole.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> write_text(path, "to be")
        >>> path.read_text()
        'to be'
    """
    with replacing(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    with contextlib.suppress(OSError):  # the names, too, where a folder can be synchronised
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
