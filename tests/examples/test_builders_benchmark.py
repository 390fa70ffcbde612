"""The benchmark of the builders on small sources."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "builders.py"


def run(*args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_measures_every_builder_and_writes(tmp_path):
    done = run("--scale", "0.01", "--rounds", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "builders.json").read_text())
    assert {"text", "tree", "louvain, grid", "image", "video", "nested", "sequence"} <= {
        row["name"] for row in rows
    }
    assert all(row["median"] > 0 and row["n"] == 1 for row in rows)
    assert "| from_image, an array |" in (tmp_path / "builders.md").read_text()


def test_it_measures_what_it_is_asked_for(tmp_path):
    small = ("--scale", "0.01", "--rounds", "1")
    assert run("--only", "image,", *small).stdout.count("from_image, a ") == 2
    done = run("--only", "nothing", *small)
    assert done.returncode == 2
    assert "--only nothing" in done.stderr
