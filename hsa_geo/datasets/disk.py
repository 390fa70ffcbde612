"""Files that are complete or not there, also when the disk is full.

Example:
    >>> name = tempfile.mkdtemp() + "/file"
    >>> write_bytes(name, b"text")
    >>> open(name, "rb").read()
    b'text'
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hsa_geo.errors import DiskFullError, PathError, UnsupportedError

__all__ = ["alone", "checked_root", "remove_stale", "telling_when_full", "write_bytes"]

#: Left-overs of killed runs are removed after this many seconds.
STALE_SECONDS = 24 * 3600

#: No space, over the quota, file larger than allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def checked_root(root: Any, **functions: Any) -> Path:
    """The folder of a dataset, before anything is fetched into it.

    Args:
        root: What was given for it.
        **functions: ``transform`` and the like, by their names.

    Returns:
        The path; it need not exist.

    Raises:
        PathError: If it is no path, or a file stands where the folder should be.
        UnsupportedError: If a function cannot be called.

    Example:
        >>> checked_root("data/brown", transform=None)
        PosixPath('data/brown')
    """
    name = os.fsdecode(root) if isinstance(root, (str, bytes, os.PathLike)) else ""
    if not name or "\0" in name:
        raise PathError(
            f"root={root!r:.80} is no folder: give a path, such as 'data', where what is fetched "
            "and built will be kept."
        )
    path = Path(name)
    file = next((place for place in (path, *path.parents) if place.exists()), path)
    if file.exists() and not file.is_dir():
        raise PathError(f"root={name!r:.200}: '{file}' is a file, not a folder: give another.")
    for key, function in functions.items():
        if function is not None and not callable(function):
            raise UnsupportedError(f"{key}={function!r:.80} is no function: give one, or None.")
    return path


@contextlib.contextmanager
def telling_when_full(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the error of a full disk into one that says what to do.

    Args:
        path: What is being written; its folder must exist.

    Raises:
        DiskFullError: In place of an ``OSError`` of a full disk.

    Example:
        >>> with telling_when_full("pages.bin"):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
        ...
        hsa_geo.errors.DiskFullError: ...
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFullError) or error.errno not in _FULL:
            raise
        raise DiskFullError(error.errno, full_message(path)) from error


def full_message(path: str | os.PathLike[str]) -> str:
    """What to say when there was no room for ``path``.

    Args:
        path: What was being written.

    Returns:
        One sentence.

    Example:
        >>> full_message("pages.bin").startswith("No space left to write 'pages.bin' (")
        True
    """
    try:
        free = f"{shutil.disk_usage(Path(path).absolute().parent).free / 1e6:.0f} MB are free"
    except OSError:
        free = "the disk or the quota is full"
    return (
        f"No space left to write '{path}' ({free}): free some, or give another root; nothing "
        "half-written is left."
    )


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one step: it is complete under its name, or not there.

    Args:
        path: The file; an old one is replaced.
        content: What it holds afterwards.

    Raises:
        OSError: If it cannot be written; then an old file is still whole.
        DiskFullError: If there is no room, which is an ``OSError``, too.

    Example:
        >>> name = tempfile.mkdtemp() + "/file"
        >>> write_bytes(name, b"text")
        >>> open(name, "rb").read()
        b'text'
    """
    path = Path(path)
    with telling_when_full(path):
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def remove_stale(folder: Path, start: str, age: float = STALE_SECONDS) -> None:
    """Remove what killed runs left in ``folder`` under names that begin with ``start``.

    Only entries older than a day go, as another process may be at work.

    Args:
        folder: Where to look.
        start: How the names begin.
        age: Seconds for which an entry may stay. (default: a day)

    Example:
        >>> remove_stale(Path(tempfile.mkdtemp()), ".download-")
    """
    for path in folder.glob(f"{glob.escape(start)}*"):
        try:
            if time.time() - path.stat().st_mtime >= age:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError:  # gone already, or not ours to remove
            continue


@contextlib.contextmanager
def alone(path: str | os.PathLike[str], waiting: str = "") -> Iterator[bool]:
    """Let one process at a time in; the others wait until it is out, or has died.

    The file may be removed inside, together with its folder: who waits notices.  Where the
    system or the file system has no such locks, nobody waits.

    Args:
        path: File to lock; it and its folder are made if missing, the file is removed at the end.
        waiting: What to say on stderr before waiting. (default: nothing)

    Yields:
        Whether no other process can be inside, False where there are no locks.

    Example:
        >>> with alone(tempfile.mkdtemp() + "/lock") as sure:
        ...     pass
    """
    file = _lock(Path(path), waiting)
    try:
        yield file is not None
    finally:
        if file is not None:
            with file, contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    os.unlink(path)


def _lock(path: Path, waiting: str) -> IO[bytes] | None:
    """The locked file, None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return None
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open(path, "ab")  # noqa: SIM115
        except FileNotFoundError:  # its folder went in between
            continue
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    print(waiting, file=sys.stderr, flush=True)
                    waiting = ""
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:  # who was here before us has removed it
            pass
        except OSError:  # no locks on this file system
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()
