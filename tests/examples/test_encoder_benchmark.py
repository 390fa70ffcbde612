"""The encoder benchmark on a few words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "encoder.py"


def run(*args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_measures_and_writes(tmp_path):
    small = ("--total", "60", "--rounds", "1", "--threads", "1")
    done = run("--words", "4", "20", *small, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "encoder.json").read_text())
    assert [row["words"] for row in rows] == [4, 20]
    for row in rows:
        assert set(row["results"]) == {"hsa", "hsa, block", "flat", "plan"}
        assert all(at["median"] > 0 and at["n"] == 1 for at in row["results"].values())
    assert "| 20 (3 documents) |" in (tmp_path / "encoder.md").read_text()


def test_it_refuses_documents_of_one_word():
    done = run("--words", "1")
    assert done.returncode == 2
    assert "--words [1]" in done.stderr
