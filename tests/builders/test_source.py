import time
import warnings
from pathlib import Path

import pytest

from hsa_geo.builders import from_html
from hsa_geo.builders._source import read_markup
from hsa_geo.errors import BuilderError, HSAWarning, LimitError, TruncationWarning

NONE = {"max_bytes": None, "max_nesting": None, "on_limit": "error"}


def test_bytes_text_and_files_are_the_same(tmp_path: Path) -> None:
    page = "<p>Grüße 東京"
    (tmp_path / "page.html").write_bytes(page.encode())
    data = page.encode()
    for source in (page, data, bytearray(data), memoryview(data), tmp_path / "page.html"):
        assert read_markup(source, None, **NONE) == page


def test_a_str_is_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.html").write_text("<p>secret")
    with pytest.warns(HSAWarning, match="looks like the name of a file"):
        assert from_html("page.html").tree_name[:2] == ["page", "html"]


def test_charset_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes("Привет".encode("koi8-r"))
    assert read_markup(tmp_path / "page.html", "koi8-r", **NONE) == "Привет"


def test_a_missing_file_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        from_html(tmp_path / "missing.html")


@pytest.mark.parametrize("source", [None, 3, ["<p>"], object()])
def test_other_sources_are_refused(source: object) -> None:
    with pytest.raises(BuilderError, match=type(source).__name__):
        from_html(source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "clean"),
    [("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "😀"), ("\ufeff<p>x", "<p>x"), ("a\0b", "a\0b")],
)
def test_surrogates_and_marks(text: str, clean: str) -> None:
    assert read_markup(text, None, **NONE) == clean


@pytest.mark.parametrize("as_bytes", [True, False])
def test_max_bytes(as_bytes: bool, tmp_path: Path) -> None:
    text = "é" * 50
    source = text.encode() if as_bytes else text
    limits = {"max_bytes": 31, "max_nesting": None}
    assert len(read_markup(source, None, max_bytes=100, max_nesting=None, on_limit="error")) == 50
    with pytest.raises(LimitError, match=r"100 bytes, more than max_bytes=31"):
        read_markup(source, None, on_limit="error", **limits)
    with pytest.warns(TruncationWarning, match="the last 69 bytes"):
        assert read_markup(source, None, on_limit="truncate", **limits) == "é" * 15
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with pytest.warns(TruncationWarning, match="the last 69 bytes"):
        cut = read_markup(tmp_path / "page.html", None, on_limit="truncate", **limits)
    assert cut == "é" * 15


NESTED = [
    "<div>{}",
    "<DIV class=x>{}",
    "<ul><li>{}",
    "<b>{}",
    "<my-tag>{}",
    "<div></b>{}",
    "<div><!-- </div> -->{}",
    "<div title='</div>'>{}",
    "<div><script></div></script>{}",
    "<div><br></br></p>{}",
]


@pytest.mark.parametrize("unit", NESTED)
def test_deep_nesting_is_found_before_parsing(unit: str) -> None:
    page = unit.format("") * 60_000 + "x"
    start = time.perf_counter()
    with pytest.raises(LimitError, match="more than max_nesting=10000"):
        from_html(page)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("unit", NESTED)
def test_deep_nesting_is_cut(unit: str) -> None:
    page = "head" + unit.format("a ") * 60_000 + "x"
    with pytest.warns(TruncationWarning, match="max_nesting=50 .* left out the last .* characters"):
        tree = from_html(page, max_nesting=50, on_limit="truncate")
    assert 25 <= tree.num_leaves <= 52


@pytest.mark.parametrize(
    "page",
    [
        "<div><p>a</div>" * 30_000,
        "<p>a" * 30_000,
        "a<br>" * 30_000,
        "<ul>" + "<li>a" * 30_000,
        "<table>" + "<tr><td>a" * 30_000,
        "<select>" + "<option>a" * 30_000,
        "<!-- <div> -->a" * 30_000,
    ],
)
def test_long_pages_are_not_deep(page: str) -> None:
    assert read_markup(page, None, max_bytes=None, max_nesting=10_000, on_limit="error") == page


@pytest.mark.parametrize("attribute", ["a{}=1", "a{}", 'a{}=">"', "a{}='<b'"])
def test_a_tag_of_very_many_attributes_is_refused_before_parsing(attribute):
    tag = "<input " + " ".join(attribute.format(i) for i in range(50_000)) + ">"
    with pytest.raises(LimitError, match=r"'input' of the page has 50000 attributes"):
        from_html(f"<p>Hi</p>{tag}<p>there</p>")
    with pytest.warns(TruncationWarning, match="50000 attributes"):
        tree = from_html(f"<p>Hi</p>{tag}<p>there</p>", on_limit="truncate")
    assert tree.tree_name[0] == "Hi"
    assert "there" not in tree.tree_name


def test_a_long_attribute_is_no_many_attributes():
    tree = from_html(f'<p>Hi</p><img alt="a picture" src="x.png?{"a=1 &" * 50_000}">')
    assert tree.num_leaves == 2


@pytest.mark.parametrize("name", ["PAGE.html", "other pages/a.htm", "/a/b.xhtml"])
def test_a_name_of_a_file_is_no_markup(name):
    with pytest.warns(HSAWarning, match="give pathlib.Path"):
        from_html(name)


@pytest.mark.parametrize("markup", ["<p>index.html", "see index.html\nand more", "html", "a.png"])
def test_markup_that_names_files_is_markup(markup):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_html(markup)
