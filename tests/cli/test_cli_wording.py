"""Nothing that the command says names an argument of Python alone."""

from __future__ import annotations

import re

import pytest

from hsa_geo.cli import run
from hsa_geo.cli.wording import in_words

#: As arguments are written: ``name=value``, and names with an underscore.
PYTHON = re.compile(r"\b\w+=|\b[a-z]+_[a-z_]+\b(?<!hsa_geo)")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "the page has 9 leaves, more than max_leaves=8: left out the last 1 leaves.",
            "the page has 9 leaves, more than the limit of 8: left out the last 1 leaves.",
        ),
        (
            "the page has more than max_nesting=7 elements open at once: left out the last 2",
            "the page has more than 7 elements open at once: left out the last 2",
        ),
        (
            "page 'a': left out 3 tokens of controls and images beyond field_tokens=64",
            "page 'a': left out 3 tokens of controls and images beyond 64 of each",
        ),
        (
            "max_depth=1024 leaves no leaf of the page: raise max_depth.",
            "the limit of 1024 leaves no leaf of the page: cut it into parts (limits can be raised "
            "in Python, by the functions of hsa_geo.builders).",
        ),
        ("'a' has 3 columns=x, said the file", "'a' has 3 columns=x, said the file"),
        (
            "the page's file 'it's max_a=1.html' has 9 leaves, more than max_leaves=8",
            "the page's file 'it's max_a=1.html' has 9 leaves, more than the limit of 8",
        ),
        (
            """no "max_a=1's", the terminals' max_b=2 of 'raise max_c': raise it, or pass """
            """on_limit="truncate".""",
            """no "max_a=1's", the terminals' the limit of 2 of 'raise max_c': raise it.""",
        ),
    ],
)
def test_words(message, says):
    assert in_words(message) == says


FILES = {
    "hidden.html": b"<p hidden>to be",
    "symbols.txt": b"!!! ...",
    "lost.html": b"<meta charset=utf-8><p>caf\xe9",
    "deep.html": b"<div>a " * 1100,
    "nested.html": b"<p>a" + b"<i>" * 10_100 + b"b",
    "long.html": b"<p>a <input placeholder='" + b"b " * 100 + b"'>",
    "wide.ppm": b"P6 40000 40000 255\n",
    "thin.pgm": b"P5 1 2200000 255\n" + bytes(2_200_000),
    "words.html": b"<p>" + b"a " * 132_000,
}


@pytest.mark.parametrize("name", FILES)
def test_errors_and_warnings_of_files(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(FILES[name])
    run(["inspect", name, "--json"])
    told = capsys.readouterr()
    line = told.err or told.out.partition('"warnings": ')[2]
    assert len(line) > 10  # an error or a warning
    assert not PYTHON.search(line), line


def test_the_remedies_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hidden.html").write_bytes(FILES["hidden.html"])
    (tmp_path / "symbols.txt").write_bytes(FILES["symbols.txt"])
    assert run(["inspect", "hidden.html"]) == 1
    assert "`hsa-geo inspect --include-hidden`" in capsys.readouterr().err
    assert run(["inspect", "hidden.html", "--include-hidden"]) == 0
    assert "  to at 0" in capsys.readouterr().out
    assert run(["inspect", "symbols.txt"]) == 1
    assert "give --punctuation to `hsa-geo inspect`" in capsys.readouterr().err
    assert run(["inspect", "symbols.txt", "--punctuation"]) == 0
    assert "!!! at 0" in capsys.readouterr().out


def test_pages_without_any_are_sought_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", ".", "--as", "site"]) == 1
    told = capsys.readouterr().err
    assert told.endswith("holds no .html or .htm file: give another, or name them so.\n")
