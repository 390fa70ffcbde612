"""Unpack chosen files of an archive whose author is not trusted.

Members are read one by one and written as plain files under names that were looked at first:
no absolute names, no ``..``, no links, no devices, nothing twice, within limits.  The folder
appears in one step, so it is either complete or not there.

Example:
    >>> import tarfile, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("text")
    >>> with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
    ...     tar.add(folder / "a.txt", "pkg-1.0/data/a.txt")
    >>> target = unpack(
    ...     folder / "a.tar.gz", folder / "out", prefix="pkg-1.0/data", patterns=["*.txt"]
    ... )
    >>> (target / "a.txt").read_text()
    'text'
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from hsa_geo.datasets.disk import alone, remove_stale, telling_when_full
from hsa_geo.datasets.members import Member, opened
from hsa_geo.errors import ArchiveError

__all__ = ["unpack"]

_BAD_STREAM = (
    *(tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError, zlib.error),
    *(lzma.LZMAError, NotImplementedError, RecursionError),
)
#: What the system says of a name that it cannot make, or that is another member's.
_BAD_NAME = (
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL),
)

#: Most bytes of members that are looked at, wanted or not, where max_bytes is less.
_LOOKED_AT = 8 << 30


def unpack(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    prefix: str = "",
    patterns: Sequence[str] = ("*",),
    inner: str = "",
    max_bytes: int = 1 << 30,
    max_files: int = 100_000,
) -> Path:
    """Unpack chosen regular files of a tar, zip (wheel) or Debian archive, all or nothing.

    Members are read and written one by one as plain files with default permissions; owners,
    modes, times, links and devices of the archive never reach the disk.

    Args:
        archive: The archive: tar, compressed or not, zip, or a Debian package, of which the files
            in its ``data.tar`` count.
        folder: Folder to make; if it exists, it is taken for complete and left alone.
        prefix: Folder inside the archive that becomes ``folder``. (default: :obj:`""`)
        patterns: Which files below ``prefix``, as shell patterns in which ``*`` does not cross
            a ``/``; a part ``**`` stands for any number of folders. (default: :obj:`("*",)`)
        inner: Member of the archive that is an archive itself; ``prefix`` and ``patterns`` then
            speak of its members. (default: :obj:`""`, none)
        max_bytes: Most bytes to write. (default: 1 GiB)
        max_files: Most members to look at. (default: :obj:`100000`)

    Returns:
        Path of ``folder``.

    Raises:
        ArchiveError: If the archive cannot be read, has a member whose name is absolute or
            leaves its folder, has a link or device or the same name twice among the chosen
            ones, has a name that cannot be made here (too long, or below another file), is
            larger than allowed, or holds none of the chosen files; or if something that is no
            folder is in the way of ``folder``.
        DiskFullError: If there is no room.

    Example:
        See the example of :mod:`hsa_geo.datasets.unpack`.
    """
    archive, folder = Path(archive), Path(folder)
    if folder.is_dir():
        return folder
    with telling_when_full(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise _in_the_way(error.filename) from None
        if os.path.lexists(folder) and not folder.is_dir():
            raise _in_the_way(folder)
        remove_stale(folder.parent, ".unpack-")
        with alone(folder.parent / f".lock-{folder.name}") as sure:
            if folder.is_dir():  # it came while we were waiting
                return folder
            start = f".unpack-{folder.name}-"
            if sure:  # what is there was left by a run that was killed
                remove_stale(folder.parent, start, age=0)
            temporary = Path(tempfile.mkdtemp(prefix=start, dir=folder.parent))
            try:
                source = archive
                if inner:
                    parent, _, name = inner.rpartition("/")
                    _extract(archive, temporary / "outer", parent, (name,), max_bytes, max_files)
                    source = temporary / "outer" / name
                inside = temporary / "files"
                _extract(source, inside, prefix, patterns, max_bytes, max_files, shown=archive)
                try:
                    os.replace(inside, folder)
                except OSError:  # another process was faster
                    if not folder.is_dir():
                        raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _in_the_way(path: object) -> ArchiveError:
    return ArchiveError(
        f"'{path}' is a file or a broken link where a folder is to be: remove it, or give another."
    )


def _extract(
    archive: Path,
    inside: Path,
    prefix: str,
    patterns: Sequence[str],
    max_bytes: int,
    max_files: int,
    shown: Path | None = None,
) -> None:
    """Write the chosen members below a new folder."""
    inside.mkdir()
    shown = shown or archive
    try:
        _write_members(archive, inside, prefix, patterns, max_bytes, max_files, shown)
    except _BAD_STREAM as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault (full, read-only, ...), not the archive's
        raise ArchiveError(
            f"'{shown}' cannot be unpacked ({type(error).__name__}: {error}): remove it and "
            "download it again."
        ) from error


def _write_members(
    archive: Path,
    inside: Path,
    prefix: str,
    patterns: Sequence[str],
    max_bytes: int,
    max_files: int,
    shown: Path,
) -> None:
    left, looked_at, seen = max_bytes, max(max_bytes, _LOOKED_AT), set[str]()
    with opened(archive) as members:
        for count, member in enumerate(members):
            if count >= max_files:
                raise ArchiveError(f"'{shown}' has more than {max_files} members: raise max_files.")
            name = _chosen(member.name, shown, prefix, patterns)
            looked_at -= member.size
            if looked_at < 0:
                raise ArchiveError(
                    f"'{shown}' holds more than {max(max_bytes, _LOOKED_AT)} bytes, wanted or not: "
                    "raise max_bytes if that is right."
                )
            if name is None or member.kind == "folder":
                continue
            if member.kind != "file":
                raise ArchiveError(
                    f"'{shown}': the member '{member.name}' is {member.kind}, not a plain file, so "
                    "nothing was unpacked: get the archive from its first source."
                )
            if name in seen:
                raise ArchiveError(f"'{shown}' holds '{member.name}' twice, so it is not trusted.")
            seen.add(name)
            left -= member.size
            if left < 0:
                raise ArchiveError(
                    f"'{shown}' unpacks to more than {max_bytes} bytes (at '{member.name}'): raise "
                    "max_bytes if that is right."
                )
            written = _write(member, inside.joinpath(*name.split("/")), shown)
            if written != member.size:
                raise ArchiveError(f"'{shown}' ends inside '{member.name}': download it again.")
    if not seen:
        raise ArchiveError(f"'{shown}' holds no file '{prefix}/{patterns[0]}' to unpack.")


def _write(member: Member, target: Path, shown: Path) -> int:
    """Write a member as a new file; how many bytes it has, one more than it says at most."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = open(target, "xb")  # noqa: SIM115
    except OSError as error:
        if error.errno not in _BAD_NAME:
            raise
        raise ArchiveError(
            f"'{shown}': the member {_short(member.name)} cannot be made here ({error.strerror}), "
            "so nothing was unpacked: get the archive from its first source."
        ) from None
    with file, member.open() as source:
        return _copy(source, file, member.size + 1)


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:76]}...")


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> int:
    """Copy at most so many bytes."""
    done = 0
    while done < most and (piece := source.read(min(1 << 20, most - done))):
        target.write(piece)
        done += len(piece)
    return done


def _chosen(name: str, archive: Path, prefix: str, patterns: Sequence[str]) -> str | None:
    """Path of a member below ``prefix`` if it is wanted, after a look at its name."""
    path = PurePosixPath(name)
    bad = path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name
    if bad or any(":" in part for part in path.parts[:1]):
        raise ArchiveError(
            f"'{archive}': the member {name!r} would leave the folder, so nothing was unpacked: "
            "get the archive from its first source."
        )
    top = PurePosixPath(prefix).parts
    if path.parts[: len(top)] != top:
        return None
    parts = path.parts[len(top) :]
    if parts and any(_fits(parts, PurePosixPath(pattern).parts) for pattern in patterns):
        return "/".join(parts)
    return None


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path matches a pattern, part by part."""
    if "**" not in wanted:
        return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))
    place = list(wanted).index("**")
    head, tail = wanted[:place], wanted[place + 1 :]
    if len(parts) < place or not all(map(fnmatchcase, parts, head)):
        return False
    return any(_fits(parts[k:], tail) for k in range(place, len(parts) + 1))
