"""What the tests of datasets share."""

import os
import shutil
import subprocess

import pytest


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 2 MB of its own, where the tests may make one."""
    if shutil.which("mount") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can make a small file system")
    folder = tmp_path / "tiny"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small file system here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
