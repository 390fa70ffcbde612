"""The progress bar: shows on stderr, or nothing at all."""

import sys

import pytest

from hsa_geo.datasets import progress
from hsa_geo.datasets.progress import track


@pytest.mark.parametrize("rich", [True, False])
def test_track(capsys, monkeypatch, rich):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    assert list(track([3, 1, 2], "pages")) == [3, 1, 2]
    out, err = capsys.readouterr()
    assert out == ""
    assert "pages: 3/3" in err
    assert list(track([], "pages")) == []
    assert list(track([3], "pages", enabled=False)) == [3]
    assert capsys.readouterr() == ("", "")


def test_lines_are_rare(capsys, monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", iter(range(100)).__next__)
    assert len(list(track(range(12), "pages"))) == 12
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == [
        "5/12",
        "10/12",
        "12/12",
    ]


def test_bar_on_a_terminal(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(track([3, 1], "pages")) == [3, 1]
    assert "100%" in capsys.readouterr().err
