"""``hsa-geo explain``: pages for people, objects for machines, and what is refused."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys

import pytest
from test_cli_app import ROOT, command
from test_cli_predict import PAGE, place, saved  # noqa: F401

from hsa_geo.cli import run
from hsa_geo.errors import UnsupportedError


def test_a_page_in_a_process_of_its_own(place):  # noqa: F811
    saved(place / "m")
    process = command("explain", "page.html", "--model", "m", "-o", "why.html", cwd=place)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    lines = out.decode().splitlines()
    report = place / "why.html"
    assert lines[0] == f"why.html: {report.stat().st_size:,} bytes; open it in a browser"
    assert lines[1].startswith("page.html: shop")
    text = report.read_text(encoding="utf-8")
    assert "<title>page.html: explanation</title>" in text
    for word in ("Shop", "Buy", "shoes", "input[text] q"):
        assert f">{word}</i>" in text


def test_objects_for_machines(place, capsys):  # noqa: F811
    saved(place / "page-model")
    assert run(["explain", "page.html", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["report"] == "report.html"
    assert content["bytes"] == (place / "report.html").stat().st_size
    assert set(content["outputs"]) == {"news", "shop"}
    assert content["warnings"] == []
    for parts in content["parts"].values():
        assert all(part["adds"] > 0 and part["part"] for part in parts)


def test_forms(place, capsys):  # noqa: F811
    saved(place / "m", "form", ("login", "search"))
    (place / "two.html").write_text(
        "<h1>Shop</h1><form>Find <input name=q></form><form>Mail <input name=m></form>"
    )
    texts = []
    for more in ([], ["--form", "1"], ["--form", "2"]):
        assert run(["explain", "two.html", "-m", "m", "--json", *more]) == 0
        content = json.loads(capsys.readouterr().out)
        texts.append((place / "report.html").read_text(encoding="utf-8"))
        assert content["form"] == int(more[1]) if more else content["form"] in (1, 2)
        assert "(none of these)" in content["outputs"]
        other = {1: 2, 2: 1}[content["form"]]
        assert f"Form {content['form']} of 2 is explained" in content["remarks"][0]
        assert f": {other} {content['forms'][other - 1]['label']} (" in content["remarks"][0]
        assert content["remarks"][0] in html.unescape(texts[-1])
        assert "pictures it does not see" in texts[-1]
    assert "for the part" in texts[1]
    assert "form: Find input[text] q" in texts[1]
    assert texts[1] != texts[2]
    assert run(["explain", "two.html", "-m", "m", "--form", "3"]) == 2
    assert "shows 2 forms" in capsys.readouterr().err
    (place / "none.html").write_text("<p>No form")
    assert run(["explain", "none.html", "-m", "m"]) == 1
    assert "shows no form" in capsys.readouterr().err


def test_what_is_wrong_is_one_line_and_leaves_no_file(place, capsys):  # noqa: F811
    assert run(["explain", "page.html"]) == 1
    assert "there is no model" in capsys.readouterr().err
    saved(place / "page-model")
    (place / "empty.html").touch()
    os.mkfifo(place / "pipe")
    for arguments, code, says in (
        (["missing.html"], 1, "'missing.html' does not exist"),
        (["empty.html"], 1, "'empty.html' is empty"),
        (["page-model"], 1, "'page-model' is a folder: name a file"),
        (["page.html", "--out", "page.html"], 2, "is the page itself"),
        (["page.html", "--form", "1"], 2, "whole pages"),
        (["page.html", "--out", "no/folder.html"], 1, "needs a folder, make it first"),
        (["page.html", "--out", "page-model"], 1, "'page-model' is a folder"),
        (["page.html", "--out", "page-model/config.json"], 2, "is no report of hsa-geo"),
        (["page.html", "--out", "pipe"], 2, "is no regular file"),
    ):
        assert run(["explain", *arguments]) == code
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
        assert says in err
    assert not (place / "report.html").exists()
    assert (place / "page.html").read_text() == PAGE


def test_hostile_text_is_only_text(place, capsys):  # noqa: F811
    saved(place / "page-model")
    (place / "evil.html").write_text(
        '<title></title><input name="</script><script>alert(1)</script>\x1b[2J"><p>two words'
    )
    assert run(["explain", "evil.html"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    text = (place / "report.html").read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert "\x1b" not in text


def test_it_waits_for_torch_until_it_is_needed():
    told = subprocess.run(
        [sys.executable, "-c", "import sys, hsa_geo.cli.explain; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert told.stdout.strip() == "False"


def test_models_that_cannot_be_explained_are_an_error(place, monkeypatch, capsys):  # noqa: F811
    saved(place / "page-model")

    def refuse(*arguments, **options):
        raise UnsupportedError("not this one: give another.")

    monkeypatch.setattr("hsa_geo.explain.write_report", refuse)
    assert run(["explain", "page.html"]) == 1
    assert capsys.readouterr().err == "error: not this one: give another.\n"


def test_how_much_of_the_page_is_read(place, capsys):  # noqa: F811
    saved(place / "m", "form", ("login", "search"))
    (place / "long.html").write_text(
        "<p>One two three</p>" * 99 + "<form>Find <input name=q></form>"
    )
    assert run(["explain", "long.html", "-m", "m"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].startswith("long.html: search")
    assert "note: The model reads 10 of the page's 299 words and controls" in told.err
    assert "The model reads 10 of the page" in (place / "report.html").read_text(encoding="utf-8")


ENCODED = {
    "wide": "<p>Schöne Bücher über Käse".encode("utf-16"),
    "chinese": "<meta charset=gb2312><p>今天的新聞很多".encode("gbk"),
    "latin": "<meta charset=latin-1><p>Schöne Bücher über Käse".encode("latin-1"),
    "deep": b"<div>" * 1100 + b"deep words" + b"</div>" * 1100,
    "scripted": b"<script>alert('bad')</script><p>good words<noscript>none</noscript>",
}
WORDS = {"wide": "Bücher", "chinese": "新聞", "latin": "Käse", "deep": "deep", "scripted": "good"}


@pytest.mark.parametrize("name", ENCODED)
def test_odd_pages_are_predicted_and_explained(place, capsys, name):  # noqa: F811
    saved(place / "page-model")
    (place / "odd.html").write_bytes(ENCODED[name])
    assert run(["predict", "odd.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["shop"]
    assert run(["explain", "odd.html", "--json"]) == 0
    capsys.readouterr()
    text = (place / "report.html").read_text(encoding="utf-8")
    shown = re.findall(
        r"<i[^>]*>([^<]*)</i>", text.partition('id="page"')[2].partition("</section>")[0]
    )
    assert WORDS[name] in "".join(shown) if name == "chinese" else WORDS[name] in shown
    assert not {"bad", "alert", "none"} & set(shown)


@pytest.mark.parametrize(
    "data", [b" \n", b"\0\0", b"<!-- only a comment -->", b"<script>x</script>"]
)
def test_pages_with_nothing_in_them(place, capsys, data):  # noqa: F811
    saved(place / "page-model")
    (place / "odd.html").write_bytes(data)
    for name in ("predict", "explain"):
        assert run([name, "odd.html"]) == 1
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1
    assert not (place / "report.html").exists()


def test_a_report_is_replaced_by_the_next(place, capsys):  # noqa: F811
    saved(place / "page-model")
    (place / "report.html").touch()  # empty: nothing is lost
    for _ in range(2):
        assert run(["explain", "page.html"]) == 0
    assert "by these parts:" in capsys.readouterr().out
