from __future__ import annotations

import gc
import json
import os
import weakref

import pytest

from hsa_geo.builders import from_html
from hsa_geo.cli import run, sources
from hsa_geo.cli.inspect import measure
from hsa_geo.ops import attention_cost, flat_cost

PAGE = "<title>Library</title><p>Find a book. We open at ten.</p><form><input name=q></form>"


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.html").write_text(PAGE)
    return folder


def test_a_file(capsys, pages):
    assert run(["inspect", str(pages / "one.html"), "--nodes", "3"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    tree = from_html(PAGE)
    lines = told.out.splitlines()
    assert lines[0] == f"{pages / 'one.html'}: html, {len(PAGE)} bytes"
    assert lines[1] == f"SignalTree: {tree.num_leaves} leaves, 15 nodes, depth 4"
    assert f"... and {15 - 3} more nodes" in told.out
    cost, flat = attention_cost(tree, 4, 16), flat_cost(tree, 4, 16)
    for row, value in (("hierarchical", cost), ("flat", flat)):
        line = next(line for line in lines if line.split()[:1] == [row])
        assert line.split()[1:] == [f"{value.pairs:,}", f"{value.total:,}"]
    assert f"flat attention takes {flat.total / cost.total:.1f} times the operations" in told.out


def test_the_record_of_a_file(capsys, pages):
    path = pages / "one.html"
    assert run(["inspect", str(path), "--json", "--heads", "2", "--head-dim", "8"]) == 0
    content = json.loads(capsys.readouterr().out)
    tree = from_html(PAGE)
    assert content["path"] == str(path)
    assert content["kind"] == "html"
    assert (content["leaves"], content["nodes"], content["depth"]) == (9, 15, 4)
    assert content["largest_group"] == 4
    assert content["modalities"] == {"image": 0, "text": len(tree.text_x)}
    assert content["operations"] == attention_cost(tree, 2, 8).total
    assert content["flat_pairs"] == 81
    assert content["warnings"] == []


def test_a_folder_streams_and_goes_on(capsys, pages):
    (pages / "a_bad.html").write_bytes(b"")
    (pages / "b_bad.html").write_text("<script>only()</script>")
    (pages / "c_gone.html").symlink_to("/etc/hostname")
    (pages / "notes.css").write_text("p {}")
    (pages / "z.txt").write_text("To be, or not to be.")
    assert run(["inspect", str(pages)]) == 1
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].split() == [
        *("leaves", "nodes", "depth", "pairs", "flat", "pairs", "flat/HSA", "file"),
    ]
    assert [line.split()[-1] for line in lines[1:]] == [
        str(pages / name) for name in ("one.html", "two.html", "z.txt")
    ]
    errors = told.err.splitlines()
    assert [line.partition(":")[0] for line in errors] == ["error"] * 3 + [
        "3 files read, 3 could not be"
    ]
    assert "c_gone.html' is a link out of" in errors[2]


def test_the_stream_as_json(capsys, pages):
    (pages / "a_bad.html").write_bytes(b"")
    assert run(["inspect", "--json", str(pages), str(pages / "missing.html")]) == 1
    told = capsys.readouterr()
    records = [json.loads(line) for line in told.out.splitlines()]
    assert [record.get("error") for record in records] == [
        *("BuilderError", None, None, "FileNotFoundError"),
    ]
    assert records[0]["message"] == "'a_bad.html' is empty: there is nothing to make a tree of."
    assert records[1]["leaves"] == 9
    assert told.err == "2 files read, 2 could not be\n"


def test_trees_are_let_go(capsys, pages, monkeypatch):
    """Whatever the number of files, one tree is there at a time."""
    for number in range(30):
        (pages / f"{number}.html").write_text(PAGE)
    alive, most = [], []
    read = sources.read_tree

    def watched(*arguments):
        tree = read(*arguments)
        gc.collect()
        alive.append(weakref.ref(tree))
        most.append(sum(one() is not None for one in alive))
        return tree

    monkeypatch.setattr("hsa_geo.cli.inspect.read_tree", watched)
    assert run(["inspect", str(pages)]) == 0
    assert len(most) == 32
    assert max(most) <= 2  # this one, and perhaps the one before


def test_a_folder_without_pages(capsys, tmp_path):
    assert run(["inspect", str(tmp_path)]) == 1
    assert "holds no file of a known kind" in capsys.readouterr().err


def test_names_that_are_no_utf_8(capsys, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9\n.html"
    with open(path, "w") as file:
        file.write(PAGE)
    assert run(["inspect", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("/caf\\xe9\\n.html")
    assert run(["inspect", os.fsdecode(path), "--json"]) == 0
    assert os.fsencode(json.loads(capsys.readouterr().out)["path"]) == path


def test_page_text_does_not_drive_the_terminal(capsys, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('["\\u001b[2J", "\\u202e"]')
    assert run(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert told.isprintable() or all(c.isprintable() or c == "\n" for c in told)


def test_what_is_left_out_is_said(capsys, tmp_path):
    path = tmp_path / "deep.html"
    path.write_text("<div>a " * 1100 + "end")
    assert run(["inspect", str(path), "--nodes", "0"]) == 0
    assert capsys.readouterr().err.startswith("warning: ")
    assert run(["inspect", str(tmp_path)]) == 0
    assert f"warning: {path}: " in capsys.readouterr().err
    assert measure(path)[0]["warnings"]


def test_other_endings(capsys, tmp_path):
    (tmp_path / "saved-page").write_text(PAGE)
    assert run(["inspect", str(tmp_path / "saved-page")]) == 1
    assert "--as" in capsys.readouterr().err
    assert run(["inspect", "--as", "html", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] == 9
