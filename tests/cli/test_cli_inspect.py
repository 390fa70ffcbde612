from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

import hsa_geo
from hsa_geo.builders import from_html
from hsa_geo.cli import run, sources
from hsa_geo.cli.inspect import measure
from hsa_geo.ops import attention_cost, flat_cost

ROOT = Path(hsa_geo.__file__).parents[1]
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


def test_a_folder_without_pages_between_others(capsys, pages, tmp_path):
    (tmp_path / "deep").mkdir()
    assert run(["inspect", str(tmp_path / "deep"), str(pages)]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert "holds no file of a known kind" in told.err
    assert told.err.endswith("2 files read, 1 could not be\n")


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


def test_a_site_is_one_tree(capsys, pages):
    (pages / "index.html").write_text("<p>See <a href=one.html>one</a> and <a href=two.html>two")
    (pages / "notes.css").write_text("p {}")
    assert run(["inspect", "--as", "site", str(pages), "--nodes", "2"]) == 0
    told = capsys.readouterr()
    size = sum(path.stat().st_size for path in pages.glob("*.html"))
    lines = told.out.splitlines()
    assert lines[0] == f"{pages}: site, 3 pages, 2 links, {size} bytes"
    assert lines[2] == "site: GRAPH of 3, 22 leaves"
    assert told.err == ""
    assert run(["inspect", "--as", "site", str(pages), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [content[key] for key in ("kind", "pages", "links", "leaves")] == ["site", 3, 2, 22]


def test_several_sites_and_what_is_none(capsys, pages, tmp_path):
    (pages / "empty.html").touch()
    (tmp_path / "nothing").mkdir()
    places = [str(pages), str(pages / "one.html"), str(tmp_path / "nothing"), str(pages)]
    assert run(["inspect", "--as", "site", *places]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert told.err.count("warning: ") == 2  # of the page that shows nothing
    assert "a site is a folder of pages" in told.err
    assert "holds no .html or .htm file" in told.err
    assert told.err.endswith("2 sites read, 2 could not be\n")


def test_tables_beside_pages_are_left_out(capsys, pages):
    (pages / "labels.csv").write_text("path,label\none.html,a\n")
    (pages / "steps.csv").write_text("1,2\n3,4\n")
    assert run(["inspect", str(pages)]) == 0
    assert capsys.readouterr().err == "2 files read, 0 could not be\n"
    assert run(["inspect", str(pages / "steps.csv")]) == 0
    assert "sequence: SEQUENCE of 2, 2 leaves" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["empty.html", "binary.html", "blank.html", "late.html"])
def test_a_bad_page_is_told_alike_by_all_commands(capsys, tmp_path, name):
    """What reads one page says the same of it."""
    from hsa_geo.nn import SubtreeClassifier
    from hsa_geo.pages import PageClassifier, PageReader

    content = {
        "binary.html": b"\xde\xad\xbe\xef",
        "blank.html": b" \n",
        "late.html": b"<p hidden>x",
    }
    page, model = tmp_path / name, str(tmp_path / "m")
    page.write_bytes(content.get(name, b""))
    network = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8, heads=2)
    PageClassifier(network, PageReader("page"), ["news", "shop"]).save(model)
    told = []
    for arguments in (["inspect"], ["predict", "-m", model], ["explain", "-m", model]):
        assert run([arguments[0], str(page), *arguments[1:]]) == 1
        told.append(capsys.readouterr().err)
    assert told[0].startswith("error: ")
    assert told == told[:1] * 3


def measured(folder, **options):
    """Seconds of the processor and the most memory, in KiB, of ``hsa-geo inspect``."""
    code = (
        "import resource, sys; from hsa_geo.cli import run; code = run(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print(code, used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    code, seconds, memory = told.stderr.splitlines()[-1].split()
    assert code == "0", told.stderr
    return len(told.stdout.splitlines()) - 1, float(seconds), int(memory)


def test_memory_and_time_of_1000_pages(tmp_path):
    """Of trees or pages that were kept, 900 more would take some 100 MiB."""
    page = "<title>Page</title>" + "<p>" + "<p>".join(f"word{k} and more" for k in range(200))
    for count in (100, 1000):
        (tmp_path / f"{count}").mkdir()
        for number in range(count):
            (tmp_path / f"{count}" / f"{number}.html").write_text(page)
    few, _, small = measured(tmp_path / "100")
    many, seconds, large = measured(tmp_path / "1000")
    assert (few, many) == (100, 1000)
    assert seconds < 20
    assert large - small < 48 * 1024, (small, large)


def test_a_line_comes_before_the_next_file_is_read(tmp_path):
    """The second file is a pipe into which nothing is written until the first line is there."""
    (tmp_path / "a.html").write_text(PAGE)
    os.mkfifo(tmp_path / "b.html")
    process = subprocess.Popen(
        [sys.executable, "-m", "hsa_geo", "inspect", "--json", "a.html", "b.html"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    try:
        assert json.loads(process.stdout.readline())["path"] == "a.html"
        with open(tmp_path / "b.html", "w") as pipe:
            pipe.write(PAGE)
        assert json.loads(process.stdout.readline())["path"] == "b.html"
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_loading_is_told_once_and_while_it_goes_on(pages):
    """On a terminal, which this is not."""
    code = (
        "import contextlib, sys; from hsa_geo.cli import inspect, run\n"
        "@contextlib.contextmanager\n"
        "def waiting(what):\n"
        "    there = 'hsa_geo.builders' in sys.modules or 'hsa_geo.ops' in sys.modules\n"
        "    yield\n"
        "    loaded = 'hsa_geo.builders' in sys.modules and 'hsa_geo.ops' in sys.modules\n"
        "    print(what, there, loaded, file=sys.stderr)\n"
        "sys.modules['hsa_geo.cli.inspect'].waiting = waiting\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(pages)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.stderr == "loading PyTorch False True\n2 files read, 0 could not be\n"


def test_an_option_that_some_files_have_is_no_mistake(capsys, pages):
    (pages / "a.txt").write_text("To be, or not?")
    (pages / "steps.csv").write_text("1,2\n" * 5)
    page, text, steps = (str(pages / name) for name in ("one.html", "a.txt", "steps.csv"))
    leaves = []
    for arguments in ([page, text], [page, text, "--punctuation"], [str(pages), "--punctuation"]):
        assert run(["inspect", *arguments, "--json"]) == 0
        records = map(json.loads, capsys.readouterr().out.splitlines())
        leaves += [found["leaves"] for found in records if found["path"] == text]
    assert leaves == [4, 6, 6]
    assert run(["inspect", page, steps, "--window", "2"]) == 0
    assert "steps.csv" in capsys.readouterr().out
