"""Members of tar, zip (wheel) and Debian archives, one after the other, by one interface.

Which kind a file is says its content, not its name.  A Debian package is an ``ar`` file of three
members; the third, ``data.tar``, holds the files, which are what is given here.

Example:
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.zip"
    >>> with zipfile.ZipFile(path, "w") as file:
    ...     file.writestr("pkg/a.txt", "text")
    >>> with opened(path) as members:
    ...     for member in members:
    ...         print(member.name, member.size, member.kind, member.open().read())
    pkg/a.txt 4 file b'text'

A tar is read to its end, so that a wrong checksum of its compression is seen there, and its headers
are limited: 16 KiB each, 256 MiB in all.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from hsa_geo.errors import ArchiveError

__all__ = ["Member", "ar_members", "opened"]

_AR = b"!<arch>\n"
_AR_HEADER = 60
_BLOCK = 512
#: Longest header of a member of a tar, extended ones included, and of all of them.
_HEADER, _HEADERS = 16 << 10, 256 << 20
#: Most bytes behind the end of a compressed tar; tools fill it up with zeros.
_BEHIND = 64 << 20


@dataclass(frozen=True)
class Member:
    """One member of an archive.

    Args:
        name: As the archive has it.
        kind: ``"file"``, ``"folder"``, ``"a link or a device"`` or ``"encrypted"``.
        size: Bytes that it says it has.
        open: Gives its content.
    """

    name: str
    kind: str
    size: int
    open: Callable[[], IO[bytes]]


@contextlib.contextmanager
def opened(archive: str | os.PathLike[str]) -> Iterator[Iterator[Member]]:
    """Open an archive of any known kind.

    Args:
        archive: The file.

    Yields:
        Its members; each is to be read before the next is asked for.

    Raises:
        ArchiveError: If it is a Debian package without files that can be read.
        Exception: What :mod:`tarfile` and :mod:`zipfile` raise for damaged files.

    Example:
        See the example of :mod:`hsa_geo.datasets.members`.
    """
    with contextlib.ExitStack() as stack:
        file: BinaryIO = stack.enter_context(open(archive, "rb"))
        start = file.read(8)
        file.seek(0)
        if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            yield _zip(stack.enter_context(zipfile.ZipFile(file)))
            return
        if start == _AR:
            file = _deb_files(Path(archive), file)
        stream = _Limited(_decompressed(file))
        yield _tar(stack.enter_context(tarfile.open(fileobj=stream, mode="r:")), stream)


def _decompressed(file: BinaryIO) -> BinaryIO:
    """What a compressed file holds, or the file itself."""
    start = file.read(6)
    file.seek(0)
    if start[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if start[:3] == b"BZh":
        return bz2.BZ2File(file)  # type: ignore[return-value]
    if start == b"\xfd7zXZ\0" or start[:3] == b"]\0\0":
        return lzma.LZMAFile(file)  # type: ignore[return-value]
    return file


class _Limited(io.RawIOBase):
    """A stream whose headers, read while ``in_header`` is set, must be short."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.file, self.in_header, self.last, self._left = file, True, b"", _HEADERS

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if not self.in_header:
            return self.file.read(size)
        self._left -= size
        if not 0 <= size <= _HEADER or self._left < 0:
            raise tarfile.ReadError(
                f"a header of {size} bytes at byte {self.tell()}, but {_HEADER} are allowed for "
                f"one, and {_HEADERS} for all"
            )
        self.last = self.file.read(size)
        return self.last


def _tar(tar: tarfile.TarFile, stream: _Limited) -> Iterator[Member]:
    while True:
        stream.in_header = True
        info = tar.next()
        stream.in_header = False
        if info is None:
            break
        tar.members.clear()  # type: ignore[attr-defined]  # they would hold all headers
        if info.size < 0:
            raise tarfile.ReadError(f"the size of {info.name!r} is {info.size}")
        kind = "file" if info.isreg() else "folder" if info.isdir() else "a link or a device"

        def content(info: tarfile.TarInfo = info) -> IO[bytes]:
            source = tar.extractfile(info)
            assert source is not None
            return source

        yield Member(info.name, kind, info.size, content)
    if stream.last.strip(b"\0"):  # tarfile takes a broken header for the end
        raise tarfile.ReadError(f"no header of a member at byte {stream.tell() - len(stream.last)}")
    if isinstance(stream.file, gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile):
        left = _BEHIND
        while piece := stream.file.read(1 << 20):  # the checksum comes last
            left -= len(piece)
            if left < 0:
                raise tarfile.ReadError(f"more than {_BEHIND} bytes behind its end")


def _zip(file: zipfile.ZipFile) -> Iterator[Member]:
    for info in file.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)
        kind = "folder" if info.is_dir() else "file"
        if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a link or a device"
        elif info.flag_bits & 1:
            kind = "encrypted"
        # The name as written: zipfile cuts it at the first NUL.
        yield Member(info.orig_filename, kind, info.file_size, partial(file.open, info))


def ar_members(file: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """Members of an ``ar`` file.

    Args:
        file: The file, read from its start.

    Yields:
        Name, place of the first byte, and number of bytes, of each member.

    Raises:
        ValueError: If it is no ``ar`` file, or ends in the middle.

    Example:
        >>> head = "debian-binary   0           0     0     100644  4         `\\n"
        >>> list(ar_members(io.BytesIO(b"!<arch>\\n" + head.encode() + b"2.0\\n")))
        [('debian-binary', 68, 4)]
    """
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(0)
    if file.read(len(_AR)) != _AR:
        raise ValueError("it does not begin as an ar file")
    place = len(_AR)
    while place < end:
        file.seek(place)
        header = file.read(_AR_HEADER)
        digits = header[48:58].strip()
        if len(header) < _AR_HEADER or header[58:] != b"`\n" or not digits.isdigit():
            raise ValueError(f"no header of a member at byte {place}")
        place += _AR_HEADER
        size = int(digits)
        if place + size > end:
            raise ValueError(f"it ends {place + size - end} bytes too early")
        yield header[:16].decode("ascii", "replace").strip().rstrip("/"), place, size
        place += size + size % 2  # members begin at even places


def _deb_files(archive: Path, file: BinaryIO) -> BinaryIO:
    """The compressed tar of the files of a Debian package."""
    for name, place, size in ar_members(file):
        if name in ("data.tar.zst", "data.tar.zstd"):
            raise ArchiveError(
                f"'{archive}' is compressed with zstd, which Python cannot read: take the package "
                "of Debian, which uses xz, not that of Ubuntu."
            )
        if name == "data.tar" or name.startswith("data.tar."):
            return io.BufferedReader(_Window(file, place, size))
    raise ArchiveError(f"'{archive}' is an ar file without data.tar, so no Debian package.")


class _Window(io.RawIOBase):
    """Some bytes of a file as a file of their own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._place = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        wanted = min(len(buffer), max(0, self._size - self._place))
        self._file.seek(self._start + self._place)
        piece = self._file.read(wanted)
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)
