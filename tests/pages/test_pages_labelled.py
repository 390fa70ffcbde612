from __future__ import annotations

import os

import pytest

from hsa_geo.errors import BuilderError, LabelError
from hsa_geo.pages import LabelledPage, find_labelled, labelled_pages


def write(folder, *names, text="<p>some words"):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(source):
    return [(page.path.name, page.label) for page in find_labelled(source)]


def test_folders_are_labels(tmp_path):
    write(tmp_path, "b/1.html", "a/deep/er/2.HTM", "a/1.xhtml", "a/.git/x.html", "a/x.css")
    write(tmp_path, ".hidden/1.html", "loose.html")
    (tmp_path / "c").mkdir()
    (tmp_path / "d").symlink_to(tmp_path / "a")
    assert found(tmp_path) == [("1.xhtml", "a"), ("2.HTM", "a"), ("1.html", "b")]


def test_links_out_of_a_label_are_refused(tmp_path):
    write(tmp_path, "web/a/1.html", "web/b/1.html", "other.html")
    (tmp_path / "web" / "a" / "2.html").symlink_to(tmp_path / "other.html")
    with pytest.raises(BuilderError, match="is a link out of"):
        find_labelled(tmp_path / "web")


@pytest.mark.parametrize(
    "table",
    [
        "1.html,a\nsub/2.html,b\n",
        "path,label\n1.html,a\n\nsub/2.html, b \n",
        "\ufeffid,label,path\r\n7,a,1.html\r\n8,b,sub/2.html\r\n",
        '"1.html","a"\n"sub/2.html","b"',
    ],
)
def test_tables(tmp_path, table):
    path = tmp_path / "pages.csv"
    path.write_text(table, encoding="utf-8")
    pages = find_labelled(path)
    assert [(page.path, page.label) for page in pages] == [
        *((tmp_path / "1.html", "a"), (tmp_path / "sub" / "2.html", "b")),
    ]


def test_names_in_tables_that_are_no_utf_8(tmp_path):
    path = tmp_path / "pages.csv"
    path.write_bytes(b"caf\xe9.html,a\nb.html,b\n")
    assert os.fsencode(find_labelled(path)[0].path.name) == b"caf\xe9.html"


def test_labels_of_any_language(tmp_path):
    """In UTF-8 and UTF-16, whatever wrote it; elsewhere a label that is not UTF-8 is an error."""
    path = tmp_path / "pages.csv"
    table = "path,label\r\nä.html,Bücher\r\nb.html,新聞\r\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_bytes(table.encode(encoding))
        assert found(path) == [("ä.html", "Bücher"), ("b.html", "新聞")]
    path.write_bytes("a.html,Bücher\nb.html,Spiele\n".encode("latin-1"))
    with pytest.raises(LabelError, match=r"line 1 .* b'B\\xfccher', which is not UTF-8: save"):
        found(path)
    path.write_bytes("a.html,a\nb.html,b\n".encode("utf-16-le"))
    with pytest.raises(LabelError, match="not UTF-8"):
        found(path)
    path.write_bytes(table.encode("utf-16")[:-1])
    with pytest.raises(LabelError, match="is no CSV file"):
        found(path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (b"", "0 pages of 0 labels"),
        (b"1.html,a\n2.html,a\n", "2 pages of 1 labels"),
        (b"1.html,a\n2.html\n", "line 2 of"),
        (b"1.html,a\n,b\n", "line 2 of"),
        (b"1.html,a\n2.html,\n", "line 2 of"),
        (b'1.html,"' + b"a" * 200_000, "is no CSV file"),
    ],
)
def test_what_is_no_table(tmp_path, table, says):
    path = tmp_path / "pages.csv"
    path.write_bytes(table)
    with pytest.raises(LabelError, match=says):
        find_labelled(path)


def test_pages_become_trees_and_are_split(tmp_path):
    write(tmp_path, *(f"{label}/{n}.html" for label in "ab" for n in range(20)))
    write(tmp_path, "a/empty.html", text="")
    pages = labelled_pages(find_labelled(tmp_path), share=0.25)
    assert pages.labels == ["a", "b"]
    assert [len(pages.train), len(pages.validation)] == [30, 10]
    for trees, each in ((pages.train, 15), (pages.validation, 5)):
        assert sorted(int(tree.y) for tree in trees) == [0] * each + [1] * each
    assert [path.name for path, _ in pages.failed] == ["empty.html"]


def test_too_few_labels_are_left(tmp_path):
    write(tmp_path, "a/1.html")
    write(tmp_path, "b/1.html", text="")
    with pytest.raises(LabelError, match="pages of 1 labels could be read, and 1 could not be"):
        labelled_pages(find_labelled(tmp_path))


@pytest.mark.parametrize("label", ["", "x" * 1001, "(none of these)", 5])
def test_labels_are_looked_at_before_a_page_is_read(tmp_path, label):
    def read(pages):
        pytest.fail("a page was read")

    pages = [LabelledPage(tmp_path / "missing.html", name) for name in ("a", label)]
    with pytest.raises(LabelError, match="give"):
        labelled_pages(pages, read=read)
    many = [LabelledPage(tmp_path / "missing.html", f"{n}") for n in range(10_001)]
    with pytest.raises(LabelError, match="10001 labels, 10001 different: give from 1 to 10000"):
        labelled_pages(many, read=read)


def test_names_that_no_file_can_have_are_pages_that_cannot_be_read(tmp_path):
    write(tmp_path, "1.html", "2.html")
    path = tmp_path / "pages.csv"
    path.write_bytes(b"1.html,a\n2.html,b\nnul\0.html,b\n")
    pages = labelled_pages(find_labelled(path))
    assert [path.name for path, _ in pages.failed] == ["nul\0.html"]
