from __future__ import annotations

import io
import json
import sys
import warnings

import pytest

from hsa_geo.cli import output
from hsa_geo.errors import HSAWarning, TruncationWarning


def test_nothing_drives_the_terminal():
    assert output.printable("a\x1b[31m\u202eb\tc\udcff\ud800") == (
        "a\\x1b[31m\\u202eb\\tc\\xff\\ud800"
    )
    assert output.printable("日本 é") == "日本 é"


def test_records_are_one_line_whatever_is_in_them(capsys):
    output.record({"path": "a\nb\udce9", "n": 1})
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line) == {"path": "a\nb\udce9", "n": 1}


def test_errors_are_one_line():
    assert output.error_line(ValueError("a\n  b")) == "a b"
    assert output.error_line(MemoryError()) == "MemoryError"


def test_warnings_are_collected_and_others_are_quiet(capsys):
    with output.caught_warnings() as lines:
        warnings.warn("left\nout", TruncationWarning, stacklevel=1)
        warnings.warn("left out", HSAWarning, stacklevel=1)
        warnings.warn("not ours", DeprecationWarning, stacklevel=1)
        assert lines == []
    assert lines == ["left out", "left out"]
    assert capsys.readouterr().err == ""


def test_an_encoding_that_lacks_characters(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="replace"))
    before = warnings.showwarning
    with output.set_up():
        output.say("café ─")
    assert warnings.showwarning is before
    assert raw.getvalue() == b"caf\\xe9 \\u2500\n"
    assert sys.stdout.errors == "replace"  # of a program that goes on


def test_streams_that_are_closed_meanwhile(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with output.set_up():
        stream.close()


def test_a_closed_output(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(output.OutputClosedError):
        output.say("to be")
    monkeypatch.setattr(sys, "stderr", Closed())
    output.note("not to be")  # nobody to tell


def test_tables_are_as_wide_as_they_need_to_be():
    text = output.table(["label", "p"], [["x" * 300, 1], ["\x1b[2J[red]", 2]], title="All")
    lines = text.splitlines()
    assert "All" in lines[0]
    assert "x" * 300 in text
    assert "\\x1b[2J[red]" in text
    assert all(line.endswith(end) for line, end in zip(lines[-2:], "12"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("terminals", "lines", "shown"),
    [
        *(("", False, False), ("e", False, True), ("eo", False, True)),
        *(("e", True, True), ("eo", True, False)),
    ],
)
def test_bars_are_for_terminals(monkeypatch, terminals, lines, shown):
    err = Terminal() if "e" in terminals else io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", Terminal() if "o" in terminals else io.StringIO())
    with output.progress("pages [1]", 3, lines=lines) as advance:
        advance()
        advance()
    assert ("pages [1]" in err.getvalue()) == shown
    assert sys.stdout.getvalue() == ""
