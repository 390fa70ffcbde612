from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from hsa_geo.cli import run
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages import PageClassifier, PageReader

PAGE = "<title>Shop</title><p>Buy shoes</p><form><input name=q></form>"


def saved(folder: Path, unit: str = "page", labels=("news", "shop")) -> Path:
    """A classifier that is sure of the last label."""
    torch.manual_seed(0)
    outputs = len(labels) + (unit == "form")
    model = SubtreeClassifier(num_ids=2**14, num_classes=outputs, channels=8, heads=2)
    with torch.no_grad():
        model.lin.bias[len(labels) - 1] = 20.0
    PageClassifier(model, PageReader(unit), labels).save(folder)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").write_text(PAGE)
    return tmp_path


def test_a_page(place, capsys):
    saved(place / "page-model")
    assert run(["predict", "page.html"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "page.html: shop"
    assert [line.split() for line in lines[3:]] == [["shop", "1.000"], ["news", "0.000"]]
    assert run(["predict", "page.html", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["path"], content["labels"], content["warnings"]) == ("page.html", ["shop"], [])
    assert sum(content["probabilities"].values()) == pytest.approx(1)


def test_the_forms_of_a_page(place, capsys):
    saved(place / "m", "form", ("login", "search"))
    assert run(["predict", "page.html", "--model", "m"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "page.html: search"
    assert lines[-1] == "form 1 of 1: search (1.000)"
    (place / "none.html").write_text("<p>No form here")
    assert run(["predict", "none.html", "--model", "m"]) == 0
    assert capsys.readouterr().out.startswith("none.html: no form of a known type\n")
    assert run(["predict", "page.html", "-m", "m", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [form["label"] for form in content["forms"]] == ["search"]


def test_a_folder_streams_and_goes_on(place, capsys):
    saved(place / "page-model")
    pages = place / "pages"
    pages.mkdir()
    for name in ("a.html", "b.html"):
        (pages / name).write_text(PAGE)
    (pages / "empty.html").touch()
    (pages / "notes.txt").write_text("no page")
    assert run(["predict", "pages"]) == 1
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [
        ["1.000", "shop", f"pages/{name}"] for name in ("a.html", "b.html")
    ]
    assert told.err.startswith("error: pages/empty.html: 'empty.html' is empty")
    assert told.err.endswith("2 pages read, 1 could not be\n")
    assert run(["predict", "pages", "--json", "--all"]) == 1
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["path"], r.get("error")) for r in records] == [
        *(("pages/a.html", None), ("pages/b.html", None), ("pages/empty.html", "BuilderError")),
        ("pages/notes.txt", None),
    ]


def test_no_page_or_no_model(place, capsys):
    assert run(["predict", "page.html"]) == 1
    assert "hsa-geo train form-pages" in capsys.readouterr().err
    assert run(["predict", "missing.html"]) == 1  # said before the missing model
    assert capsys.readouterr().err == "error: 'missing.html' does not exist: check the name.\n"
    assert run(["predict", "max_a=1.html"]) == 1
    assert capsys.readouterr().err == "error: 'max_a=1.html' does not exist: check the name.\n"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_model_that_is_a_pickle(place, capsys, monkeypatch, name):
    saved(place / "page-model")
    (place / "page-model" / name).write_bytes(pickle.dumps({"a": 1}))
    monkeypatch.setattr(pickle, "Unpickler", None)
    monkeypatch.setattr(pickle, "loads", None)
    assert run(["predict", "page.html"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: page-model does not hold a saved SubtreeClassifier")
    assert err.count("\n") == 1


def test_labels_do_not_drive_the_terminal(place, capsys):
    saved(place / "page-model", labels=("a", "\x1b[2J[red]"))
    assert run(["predict", "page.html"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("page.html: \\x1b[2J[red]\n")
    assert "\x1b" not in out


def test_how_much_of_a_page_is_read(place, capsys):
    saved(place / "m", "form", ("login", "search"))
    (place / "long.html").write_text("<p>One two</p>" * 99 + "<form>Find <input name=q></form>")
    assert run(["predict", "long.html", "-m", "m"]) == 0
    assert "note: the model reads 10 of the page's 200 words" in capsys.readouterr().err
    assert run(["predict", "long.html", "-m", "m", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["leaves"], content["leaves_of_page"]) == (10, 200)
