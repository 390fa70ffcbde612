"""Files of a page, read from inside one folder and from nowhere else."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path
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
        parts = self._resolve(reference)
        if not parts:
            return None
        try:
            return self._read(parts)
        except LimitError:
            raise
        except (OSError, ValueError):
            return None

    def _resolve(self, reference: str) -> tuple[str, ...] | None:
        """Components below the base folder, with every symbolic link resolved."""
        reference = reference.strip(" \t\r\n\f")
        if _SCHEME.match(reference):
            return None
        name = unquote(re.split(r"[?#]", reference, maxsplit=1)[0])
        if not name or name[0] == "/" or "\0" in name or "\\" in name or _SCHEME.match(name):
            return None
        try:
            path = Path(os.path.realpath(self.base / name))
            return path.relative_to(self.base).parts
        except (OSError, ValueError):
            return None

    def _read(self, parts: tuple[str, ...]) -> bytes | None:
        # Component by component and without following links: what was resolved is what is read,
        # even if somebody swaps a folder for a link in between.
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
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            os.close(handle)
            return None
        with os.fdopen(handle, "rb") as file:
            data = file.read(self.max_bytes + 1) if info.st_size <= self.max_bytes else None
        if data is None or len(data) > self.max_bytes:
            raise LimitError(f"the file has {info.st_size} bytes, the limit is {self.max_bytes}.")
        return data


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
