"""The files of a web site in a folder: which are pages, and what a reference in one names.

Names are bytes, as the file system has them, so that any name works.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

__all__ = ["Parts", "SiteFolder", "resolve", "shown"]

#: A path below the site's folder, as its components.
Parts = tuple[bytes, ...]
_SUFFIXES = (b".html", b".htm")
_INDEX = (b"index.html", b"index.htm")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:", re.I)
_BLANK = "".join(map(chr, range(33)))
_BREAKS = str.maketrans("", "", "\t\n\r")


def shown(parts: Parts) -> str:
    """A path as text, for names and messages.

    Example:
        >>> shown((b"sub", b"a.html"))
        'sub/a.html'
    """
    return b"/".join(parts).decode("utf-8", "replace")


def resolve(reference: str, folder: Parts | None) -> Parts | None:
    """The path that a reference in a page names, as a browser resolves it.

    Args:
        reference: As in ``href``; a query and a fragment are cut off.
        folder: The folder that relative references start from; None if that is outside.

    Returns:
        The path below the site's folder; None if it leaves that folder, has a scheme or a host,
        or names the page itself.

    Example:
        >>> resolve("../b%20c.html?x=1#top", (b"sub",))
        (b'b c.html',)
        >>> resolve("/a/./b.html", (b"sub",)), resolve("../../b.html", (b"sub",))
        ((b'a', b'b.html'), None)
    """
    if folder is None:
        return None
    reference = reference.strip(_BLANK).translate(_BREAKS)
    if _SCHEME.match(reference) or reference.startswith("//"):
        return None
    path = re.split(r"[?#]", reference, maxsplit=1)[0]
    if not path:
        return None
    parts = [] if path[0] == "/" else list(folder)
    for segment in path.split("/"):
        name = unquote_to_bytes(segment.encode("utf-8", "replace"))
        if name in (b"", b"."):
            continue
        if name == b"..":
            if not parts:
                return None
            parts.pop()
        elif b"/" in name or b"\0" in name:
            return None
        else:
            parts.append(name)
    return tuple(parts)


class SiteFolder:
    """The pages of a folder.

    Args:
        folder: Its path.

    Attributes:
        root: The path, with symbolic links resolved.
        unread: Folders that cannot be listed, and why.
    """

    def __init__(self, folder: str) -> None:
        self.root = os.fsencode(os.path.realpath(folder))
        self.unread: list[tuple[Parts, str]] = []
        self._linked = False  # whether a symbolic link to a folder was seen
        self._number: dict[Parts, int] = {}

    def list_pages(self) -> list[Parts]:
        """All pages, sorted: regular ``.html`` and ``.htm`` files.

        Hidden files and folders (``.git``) are left out, and so are symbolic links to folders
        and to files outside.
        """
        pages: list[Parts] = []
        stack: list[Parts] = [()]
        while stack:
            folder = stack.pop()
            try:
                with os.scandir(self._full(folder)) as entries:
                    for entry in entries:
                        path = (*folder, entry.name)
                        kind = self._kind(entry, path)
                        if kind == "folder":
                            stack.append(path)
                        elif kind == "page":
                            pages.append(path)
            except OSError as error:
                self.unread.append((folder, error.strerror or str(error)))
        return sorted(pages)

    def _full(self, path: Parts) -> bytes:
        return os.fsencode(os.sep).join((self.root, *path))

    def _kind(self, entry: os.DirEntry[bytes], path: Parts) -> str:
        """``"folder"``, ``"page"``, or nothing."""
        if entry.name.startswith(b"."):
            return ""
        try:
            if entry.is_dir(follow_symlinks=False):
                return "folder"
            if entry.is_symlink() and entry.is_dir():
                self._linked = True
                return ""
        except OSError:  # a symbolic link to itself
            return ""
        is_page = entry.name.lower().endswith(_SUFFIXES) and self._is_file(path)
        return "page" if is_page else ""

    def _is_file(self, path: Parts) -> bool:
        """Whether a path is a regular file inside."""
        try:
            real = os.path.realpath(self._full(path))
            inside = real.startswith(os.path.join(self.root, b""))
            return inside and os.path.isfile(real)
        except (OSError, ValueError):
            return False

    def given_page(self, name: str | bytes | os.PathLike[str]) -> Parts | None:
        """The path of a page that the caller names, or None if that is no file inside."""
        try:
            path = Path(os.fsdecode(name))
        except (TypeError, ValueError):
            return None
        parts = tuple(map(os.fsencode, path.parts))
        fits = parts and not path.is_absolute() and b".." not in parts
        return parts if fits and self._is_file(parts) else None

    def number(self, pages: list[Parts]) -> None:
        """Say which pages :meth:`find` knows, by their place in the list."""
        self._number = {path: k for k, path in enumerate(pages)}

    def find(self, path: Parts) -> int:
        """The number of the page at a path, of a folder that of its index page; -1 if none."""
        for one in (path, *((*path, index) for index in _INDEX)):
            if one in self._number:
                return self._number[one]
        if not self._linked:
            return -1
        try:
            real = os.path.realpath(self._full(path))
        except (OSError, ValueError):
            return -1
        base = os.path.join(self.root, b"")
        below = tuple(real[len(base) :].split(b"/")) if real.startswith(base) else path
        return self.find(below) if below != path else -1
