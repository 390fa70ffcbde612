"""The progress bar: shows on stderr, or nothing at all."""

import sys
import time

import pytest

from hsa_geo.datasets import progress
from hsa_geo.datasets.progress import track, watching


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
    assert len(list(track(range(42), "pages"))) == 42
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == [
        "5/42",
        "15/42",  # later ones take longer
        "35/42",
        "42/42",
    ]


def test_bar_on_a_terminal(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(track([3, 1], "pages")) == [3, 1]
    assert "100%" in capsys.readouterr().err


# Bytes that come ############################################################


def fill(folder, seconds):
    (folder / "deep").mkdir()
    (folder / "a").write_bytes(b"0" * 1_500_000)
    (folder / "deep" / "b").write_bytes(b"0" * 1_000_000)
    time.sleep(seconds)


@pytest.mark.parametrize("rich", [True, False])
@pytest.mark.parametrize(("total", "said"), [(0, "Fetching x: 2.5 MB"), (10**7, "2.5 of 10.0 MB")])
def test_watching(tmp_path, capsys, monkeypatch, rich, total, said):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    with watching(tmp_path, "Fetching x", total):
        fill(tmp_path, 0)
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    with watching(tmp_path, "Fetching x", total, enabled=False):
        pass
    assert capsys.readouterr() == ("", "")


def test_watching_says_how_far_it_is_while_it_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.1)
    with watching(tmp_path, "Fetching x"):
        fill(tmp_path, 1.2)
        (tmp_path / "a").unlink()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Fetching x: 2.5 MB")
    assert lines[-1].startswith("Fetching x: 1.0 MB")


def test_watching_says_nothing_twice(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.1)
    with watching(tmp_path, "Fetching x", 2_000_000):
        fill(tmp_path, 1.6)  # more than was said to come, as of a client that copies
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_watching_ends_with_an_error(tmp_path, capsys):
    with pytest.raises(KeyError), watching(tmp_path, "Fetching x"):
        raise KeyError


def test_bytes_on_a_terminal(tmp_path, capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watching(tmp_path, "Fetching x", 5_000_000):
        fill(tmp_path, 0.7)
    assert "2.5/5.0 MB" in capsys.readouterr().err
