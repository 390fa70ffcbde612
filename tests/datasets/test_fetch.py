"""Fetching: hashes, any client, what killed runs left."""

import os
import sys
import time

import pytest

from hsa_geo.datasets import fetch
from hsa_geo.datasets.fetch import check_sha256, remove_stale, sha256_of
from hsa_geo.errors import ArchiveError, DiskFullError, DownloadError

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


# Hashes #####################################################################


def test_sha256(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert sha256_of(file) == EMPTY
    check_sha256(file, EMPTY)
    file.write_bytes(b"x" * (3 << 20))
    with pytest.raises(ArchiveError, match=r"instead of e3b0c44.* download it again"):
        check_sha256(file, EMPTY)
    with pytest.raises(ArchiveError, match="is no file"):
        check_sha256(tmp_path / "none", EMPTY)


# Any client #################################################################


def copy(code, folder, sha256=EMPTY, program=sys.executable):
    """Fetch with a client that runs some Python in its temporary folder."""
    return fetch.fetch_with(
        "copy",
        "a thing",
        "a.txt",
        lambda temporary: [program, "-c", code],
        sha256=sha256,
        folder=folder,
        remedy="write it",
        failed=lambda said, by_hand: DownloadError(f"{fetch.last_words(said)}, {by_hand}"),
    )


def test_a_file_is_there_completely_or_not_at_all(tmp_path):
    folder = tmp_path / "raw"
    assert copy("open('a.txt', 'w').close()", folder) == folder / "a.txt"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert copy("raise ValueError", folder).exists()  # it is in place: no client is asked


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("open('a.txt', 'w').write('x')", ArchiveError, "damaged or altered"),
        ("open('b.txt', 'w').close()", DownloadError, r"not as 'a\.txt': or put 'a\.txt' into"),
        ("raise ValueError('no such thing')", DownloadError, "no such thing, or put"),
        ("raise OSError('No space left on device')", DiskFullError, "a.txt"),
    ],
)
def test_a_client_that_fails_leaves_nothing(tmp_path, code, error, message):
    with pytest.raises(error, match=message):
        copy(code, tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_a_client_that_is_missing(tmp_path):
    with pytest.raises(DownloadError, match="program 'no-such-client' is missing: write it, or"):
        copy("", tmp_path, program="no-such-client")


def test_old_leftovers_go_and_new_ones_stay(tmp_path):
    for name, age in ((".x-old", 2 * fetch.STALE_SECONDS), (".x-new", 10), ("x-old", 10**6)):
        (tmp_path / name).mkdir()
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    remove_stale(tmp_path, ".x-")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x-new", "x-old"]
