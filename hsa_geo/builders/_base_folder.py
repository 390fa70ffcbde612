"""Files of a page, read from inside one folder and from nowhere else."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, unquote_to_bytes

from hsa_geo.errors import LimitError

__all__ = ["BaseFolder", "data_uri_bytes"]

_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.I)
_DATA_IMAGE = re.compile(r"data:image/[a-z0-9.+\-]+((?:;[a-z0-9\-]+=[^;,]*)*)(;base64)?,", re.I)
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class BaseFolder:
    """Reads files named by a page's relative references, inside ``base`` only.

    A reference is refused (gives None) if it has a scheme or a host, is absolute, holds NUL or a
    backslash, or names (after percent-decoding and following symbolic links) anything but a
    regular file below ``base``.  Nothing is ever fetched.

    Args:
        base: The folder.
        max_bytes: Largest file that is read.

    Example:
        >>> BaseFolder("/tmp", 10).read("../etc/passwd") is None
        True
    """

    def __init__(self, base: str | os.PathLike[str], max_bytes: int) -> None:
        self.base = Path(os.path.realpath(base))
        self.max_bytes = max_bytes

    def read(self, reference: str) -> bytes | None:
        """The bytes of the file that ``reference`` names, or None.

        Args:
            reference: As in ``src``; a query and a fragment are cut off.

        Returns:
            The file's bytes, or None if the reference is refused or nothing can be read there.

        Raises:
            LimitError: If the file is larger than ``max_bytes``.
        """
        reference = reference.strip(" \t\r\n\f")
        if _SCHEME.match(reference):
            return None
        name = unquote(re.split(r"[?#]", reference, maxsplit=1)[0])
        return None if "\\" in name or _SCHEME.match(name) else self.read_name(name)

    def read_name(self, name: str) -> bytes | None:
        """The same for a name that is decoded already."""
        try:
            with self._file(self._inside(name)) as file:
                size = os.fstat(file.fileno()).st_size
                data = file.read(self.max_bytes + 1) if size <= self.max_bytes else b""
        except (OSError, ValueError):
            return None
        if max(size, len(data)) > self.max_bytes:
            raise LimitError(f"the file has {size} bytes, the limit is {self.max_bytes}.")
        return data

    def head(self, name: str, limit: int | None) -> tuple[bytes, int]:
        """The beginning of a file, and its size.

        Args:
            name: A relative name, decoded.
            limit: Read one byte more than that at most; all if None.

        Returns:
            The bytes and the size in bytes.

        Raises:
            OSError: If the name is refused or nothing can be read there.
        """
        with self._file(self._inside(name)) as file:
            data = file.read() if limit is None else file.read(limit + 1)
            return data, max(os.fstat(file.fileno()).st_size, len(data))

    def _inside(self, name: str) -> tuple[str, ...]:
        """Components below the base folder, with every symbolic link resolved."""
        if name and name[0] != "/" and "\0" not in name:
            try:
                return Path(os.path.realpath(self.base / name)).relative_to(self.base).parts
            except ValueError:
                pass
        raise OSError(f"{name!r} names nothing inside the folder.")

    def _file(self, parts: tuple[str, ...]) -> BinaryIO:
        # Component by component and without following links: what was resolved is what is read,
        # even if somebody swaps a folder for a link in between.
        if not parts:
            raise OSError("the folder itself is no file.")
        nonblock = getattr(os, "O_NONBLOCK", 0)  # a pipe must not block
        if os.open in os.supports_dir_fd:
            folder = os.open(self.base, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            try:
                for part in parts[:-1]:
                    below = os.open(part, _FLAGS | getattr(os, "O_DIRECTORY", 0), dir_fd=folder)
                    os.close(folder)
                    folder = below
                handle = os.open(parts[-1], _FLAGS | nonblock, dir_fd=folder)
            finally:
                os.close(folder)
        else:  # pragma: no cover (not on POSIX)
            handle = os.open(self.base.joinpath(*parts), _FLAGS | getattr(os, "O_BINARY", 0))
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(f"{'/'.join(parts)!r} is no regular file.")
        return os.fdopen(handle, "rb")


def data_uri_bytes(uri: str, max_bytes: int) -> bytes | None:
    """The bytes of an image that is part of the page as a ``data:`` URI, or None.

    Args:
        uri: The reference.
        max_bytes: Largest size that is decoded.

    Returns:
        The image file's bytes, or None if it is no ``data:image/...`` URI or broken.

    Raises:
        LimitError: If it is larger than ``max_bytes``.

    Example:
        >>> data_uri_bytes("data:image/gif;base64,R0lG", 100)
        b'GIF'
    """
    uri = uri.strip(" \t\r\n\f")
    match = _DATA_IMAGE.match(uri)
    if not match:
        return None
    if len(uri) > 3 * max_bytes + 200:
        raise LimitError(f"the image has {len(uri)} characters, the limit is {max_bytes} bytes.")
    body = unquote_to_bytes(uri[match.end() :])
    if match.group(2):
        body = re.sub(rb"\s", b"", body)
        try:
            body = base64.b64decode(body + b"=" * (-len(body) % 4), validate=True)
        except binascii.Error:
            return None
    if len(body) > max_bytes:
        raise LimitError(f"the image has {len(body)} bytes, the limit is {max_bytes}.")
    return body
