"""Files that are complete or not there, and one process at a time."""

import errno
import multiprocessing
import os
import shutil
import threading
import time

import pytest

from hsa_geo.datasets.disk import alone, remove_stale, telling_when_full, write_bytes
from hsa_geo.errors import DiskFullError, HSAError

fcntl = pytest.importorskip("fcntl")


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EFBIG"])
def test_full_disks_are_told(tmp_path, code):
    number = getattr(errno, code)
    message = r"to write '.*file' \(\d+ MB are free\)"
    with (
        pytest.raises(DiskFullError, match=message) as caught,
        telling_when_full(tmp_path / "file"),
    ):
        raise OSError(number, "what the system says")
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, HSAError)
    assert caught.value.errno == number
    nowhere = telling_when_full(tmp_path / "none" / "file")
    with pytest.raises(DiskFullError, match="the disk or the quota is full"), nowhere:
        raise OSError(number, "what the system says")


def test_other_errors_pass(tmp_path):
    with pytest.raises(PermissionError), telling_when_full(tmp_path):
        raise PermissionError(errno.EACCES, "no")
    with pytest.raises(DiskFullError, match="of the inner"), telling_when_full(tmp_path):
        raise DiskFullError(errno.ENOSPC, "of the inner")


def test_write_on_a_full_disk(tiny_disk):
    write_bytes(tiny_disk / "file", b"old")
    with pytest.raises(DiskFullError, match=r"No space left to write '.*file'"):
        write_bytes(tiny_disk / "file", b"0" * (3 << 20))
    assert [p.name for p in tiny_disk.iterdir()] == ["file"]
    assert (tiny_disk / "file").read_bytes() == b"old"


def test_names_are_not_patterns(tmp_path):
    for name in (".download-a[1]-x", ".download-a1-x"):
        (tmp_path / name).mkdir()
    remove_stale(tmp_path, ".download-a[1]-", age=0)
    assert [p.name for p in tmp_path.iterdir()] == [".download-a1-x"]


# Locks ######################################################################


def test_alone(tmp_path, capfd):
    with alone(tmp_path / "new" / "lock", "waiting") as sure:
        assert sure
        assert (tmp_path / "new" / "lock").exists()
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(KeyError), alone(tmp_path / "lock"):
        raise KeyError
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
    with alone(tmp_path / "new" / "lock", "waiting"):
        shutil.rmtree(tmp_path / "new")
    assert capfd.readouterr() == ("", "")


def test_without_locks_nobody_waits(tmp_path, monkeypatch):
    def flock(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with alone(tmp_path / "lock") as sure:
        assert not sure


def work(folder, entered):
    """Go in and out, often; a second one inside would find the file."""
    for i in range(40):
        with alone(folder / "sub" / "lock") as sure:
            assert sure
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            time.sleep(0.002)
            os.unlink(folder / "inside")
            entered.put(i)
            if i % 3 == 0:
                shutil.rmtree(folder / "sub")


def die_inside(folder, entered):
    with alone(folder / "lock"):
        entered.put(0)
        time.sleep(60)


def start(what, folder):
    """A process of its own; forked, as that takes no time."""
    context = multiprocessing.get_context("fork")
    entered = context.Queue()
    process = context.Process(target=what, args=(folder, entered), daemon=True)
    process.start()
    return process, entered


def test_never_two_inside_even_if_the_lock_is_removed(tmp_path):
    workers = [start(work, tmp_path) for _ in range(3)]
    for worker, entered in workers:
        assert [entered.get(timeout=120) for _ in range(40)] == list(range(40))
        worker.join(60)
        assert worker.exitcode == 0


def test_who_dies_lets_the_next_one_in(tmp_path):
    worker, entered = start(die_inside, tmp_path)
    entered.get(timeout=120)
    worker.kill()
    begin = time.monotonic()
    with alone(tmp_path / "lock") as sure:
        assert sure
    assert time.monotonic() - begin < 30
    assert list(tmp_path.iterdir()) == []


def test_who_waits_says_so(tmp_path, capfd):
    worker, entered = start(die_inside, tmp_path)
    entered.get(timeout=120)
    threading.Timer(0.2, worker.kill).start()
    with alone(tmp_path / "lock", "waiting for the other one"):
        assert capfd.readouterr() == ("", "waiting for the other one\n")
