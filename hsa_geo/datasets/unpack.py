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

import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hsa_geo.datasets.fetch import remove_stale
from hsa_geo.errors import ArchiveError

__all__ = ["unpack"]

_BAD_STREAM = (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


def unpack(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    prefix: str = "",
    patterns: Sequence[str] = ("*",),
    max_bytes: int = 1 << 30,
    max_files: int = 100_000,
) -> Path:
    """Unpack chosen regular files of a tar archive, all or nothing.

    Members are read and written one by one as plain files with default permissions; owners,
    modes, times, links and devices of the archive never reach the disk.

    Args:
        archive: The tar archive, compressed or not.
        folder: Folder to make; if it exists, it is taken for complete and left alone.
        prefix: Folder inside the archive that becomes ``folder``. (default: :obj:`""`)
        patterns: Which files below ``prefix``, as shell patterns in which ``*`` does not cross
            a ``/``. (default: :obj:`("*",)`)
        max_bytes: Most bytes to write. (default: 1 GiB)
        max_files: Most members to look at. (default: :obj:`100000`)

    Returns:
        Path of ``folder``.

    Raises:
        ArchiveError: If the archive cannot be read, has a member whose name is absolute or
            leaves its folder, has a link or device or the same name twice among the chosen
            ones, is larger than allowed, or holds none of the chosen files.

    Example:
        See the example of :mod:`hsa_geo.datasets.unpack`.
    """
    archive, folder = Path(archive), Path(folder)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(folder.parent, ".unpack-")
    temporary = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder.parent))
    try:
        inside = temporary / "files"
        inside.mkdir()
        try:
            with tarfile.open(archive) as tar:
                _extract(tar, archive, inside, prefix, patterns, max_bytes, max_files)
        except _BAD_STREAM as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's fault (full, read-only, ...), not the archive's
            raise ArchiveError(
                f"'{archive}' cannot be unpacked ({type(error).__name__}: {error}): remove it "
                "and download it again."
            ) from error
        try:
            os.replace(inside, folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _extract(
    tar: tarfile.TarFile,
    archive: Path,
    inside: Path,
    prefix: str,
    patterns: Sequence[str],
    max_bytes: int,
    max_files: int,
) -> None:
    left, seen = max_bytes, set[str]()
    for count, member in enumerate(tar):
        if count >= max_files:
            raise ArchiveError(f"'{archive}' has more than {max_files} members: raise max_files.")
        name = _chosen(member.name, archive, prefix, patterns)
        if name is None or member.isdir():
            continue
        if not member.isreg():
            raise ArchiveError(
                f"'{archive}': the member '{member.name}' is a link or a device, not a file, so "
                "nothing was unpacked: get the archive from its first source."
            )
        if name in seen:
            raise ArchiveError(f"'{archive}' holds '{member.name}' twice, so it is not trusted.")
        seen.add(name)
        left -= member.size
        if left < 0:
            raise ArchiveError(
                f"'{archive}' unpacks to more than {max_bytes} bytes (at '{member.name}'): raise "
                "max_bytes if that is right."
            )
        target = inside.joinpath(*name.split("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        assert source is not None
        with source, open(target, "xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        if target.stat().st_size != member.size:
            raise ArchiveError(f"'{archive}' ends inside '{member.name}': download it again.")
    if not seen:
        raise ArchiveError(f"'{archive}' holds no file '{prefix}/{patterns[0]}' to unpack.")


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
    for pattern in patterns:
        wanted = PurePosixPath(pattern).parts
        if len(wanted) == len(parts) > 0 and all(map(fnmatchcase, parts, wanted)):
            return "/".join(parts)
    return None
