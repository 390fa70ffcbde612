import re
import time
from html.parser import HTMLParser

import pytest
import torch
from html_cases import FRAGMENTS, KEYS, check, leaf_names
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.builders import Field, form_elements, from_html, parse_html
from hsa_geo.errors import BuilderError, HSAError, LimitError, TruncationWarning

# Pages with known text ########################################################

PAGES = {
    "article": """<!doctype html><html><head><title>On trees</title><style>p {}</style></head>
        <body><h1>On trees</h1><p>A tree <em>is</em> a graph. It has no cycles, e.g. a path.</p>
        <p>Trees don't close&nbsp;up &mdash; ever!</p><ol><li>one<li>two</ol>
        <script>var hidden = 1</script></body></html>""",
    "shop": """<title>Shop</title><body><nav><a href=/>Home</a> | <a href=/c>Cart (3)</a></nav>
        <table><tr><th>Item<th>Price<tr><td>Blue <b>sh</b>irt<td>$19.99</table>
        <noscript>Enable scripts</noscript><p>Sign-up<br>now&hellip;</body>""",
    "old": """<center><font size=2>Welcome to <b>my<i> home</b> page</i><hr>Visitors: 1,024
        <p>Mail <tt>me@example.com</tt> <!-- not me --><dl><dt>x<dd>y</dl></font></center>""",
}


class Plain(HTMLParser):
    """An independent reading: text outside script, style, noscript; blocks and links split."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.silent = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.silent += tag in ("script", "style", "noscript")
        if tag not in ("b", "i", "em", "tt", "font"):
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "style", "noscript")
        if tag not in ("b", "i", "em", "tt", "font"):
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.parts.append(data)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_word_leaves_are_the_words_of_the_visible_text(page: str) -> None:
    text = "".join(Plain(page).parts)
    expected = re.findall(r"[A-Za-z0-9]+(?:['-][A-Za-z0-9]+|[.,][0-9]+)*", text)
    tree = from_html(page)
    check(tree)
    assert leaf_names(tree) == expected
    assert (tree.text_x[:, 1] == Field.TAG).sum() == tree.num_leaves


def test_the_same_page_gives_the_same_tree() -> None:
    first, second = from_html(PAGES["shop"]), from_html(PAGES["shop"].encode())
    for key in first.keys():  # noqa: SIM118
        same = first[key] == second[key]
        assert bool(same.all() if isinstance(same, torch.Tensor) else same), key


def test_batching(tmp_path) -> None:
    from PIL import Image

    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    sources = ["a b", "<form><input></form><form>x</form>", "<img src=a.png>x", *PAGES.values()]
    trees = [from_html(source, base=tmp_path) for source in sources]
    batch = Batch.from_data_list(trees)
    assert int(batch.text_index.max()) < batch.num_nodes
    assert [batch.tree_name[0][0]] == ["a"]
    for tree, back in zip(trees, batch.to_data_list()):
        check(back)
        for key in KEYS:
            assert torch.equal(tree[key], back[key]), key
        assert tree.tree_name == back.tree_name


def test_form_elements_are_those_that_form_order_counts() -> None:
    page = "<form></form><form>x</form><table><form><tr><td><input></table>"
    assert [element.tag for element in form_elements(parse_html(page))] == ["form", "form", "table"]
    tree = from_html(page)
    assert tree.form_order.tolist() == [1, 2]


def test_names_can_be_left_out() -> None:
    assert "tree_name" not in from_html("a b", names=False)


# Bad input ####################################################################


@pytest.mark.parametrize(
    "source",
    [
        "", " \n\t", "\0\0\0", "<!-- only a comment -->", "<html></html>", "<title></title>",
        "<div><div></div></div>", "<script>x</script>", "<noscript>x</noscript>", "!!! ... ***",
        "<input type=hidden>", "<p hidden>x</p>", "\ufffd", b"", b"\xef\xbb\xbf",
        "<", "</", "<!", "<!--", "&", "<form></form>", "<p a='b>c", b"\xff\xfe\xfa",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::hsa_geo.errors.DecodingWarning")
def test_a_page_that_shows_nothing(source: str | bytes) -> None:
    with pytest.raises(BuilderError, match=r"shows nothing: no word.*symbols are not words"):
        from_html(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("word", ["word"]),
        ("<title>only a title</title>", ["only", "a", "title"]),
        ("a\0b", ["ab"]),
        ("a\ud800b", ["a", "b"]),
        ("<p>a<p>b", ["a", "b"]),
        ("<div>a</span></p></b>b", ["a", "b"]),
        ("a<b", ["a"]),
        ("&lt;b&gt; &zzz; &not &#0; &#x110000;", ["b", "zzz"]),
        ("</html>a</body>b", ["ab"]),
        ("x" * 1_000_000, ["x" * 1_000_000]),
        ("<div>" * 1000 + "x", ["x"]),
        ("<div>" * 9_000 + "x", ["x"]),
        ("<b>" * 9_000 + "x", ["x"]),
    ],
    ids=range(13),
)
def test_odd_pages(source: str | bytes, words: list[str]) -> None:
    tree = from_html(source)
    check(tree)
    assert leaf_names(tree) == words


@pytest.mark.parametrize("depth", [1_000, 100_000, 1_000_000])
def test_nested_blocks_are_quick(depth: int) -> None:
    start = time.perf_counter()
    try:
        assert from_html("<div>" * depth + "x").num_leaves == 1
    except LimitError:
        assert depth > 10_000
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    "page",
    [
        "<a href=x>a" * 20_000,
        "<label for=q>a b</label><input id=q>" * 1_000,
        "<label>a " * 3_000 + "<input>" * 3_000,
        "<select>" + "<option>x y" * 50_000 + "</select>",
        "<form><div>" * 3_000 + "<input>" * 3_000,
        "<!--" * 100_000 + "-->x",
        "<p style='display:none'>x</p>" * 20_000 + "y",
        "<b>a</b>b " * 20_000,
        '<a "' * 50_000 + ">x",
        "<svg>" * 5_000 + "<text>a",
    ],
    ids=lambda page: page[:12],
)
@pytest.mark.filterwarnings("ignore::hsa_geo.errors.TruncationWarning")
def test_no_quadratic_time(page: str) -> None:
    start = time.perf_counter()
    from_html(page, form_tokens=True)
    assert time.perf_counter() - start < 8


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(FRAGMENTS, st.text(max_size=5)), max_size=40))
def test_any_markup_gives_a_valid_tree_or_a_typed_error(parts: list[str]) -> None:
    page = " ".join(parts)
    for options in ({}, {"include_hidden": True, "form_tokens": True}):
        try:
            tree = from_html(page, **options)
        except BuilderError:
            continue
        check(tree)
        forms = len(parse_html(page).css("form"))
        assert all(k < forms for k in tree.form_order.tolist())


@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore::hsa_geo.errors.DecodingWarning")
@given(st.binary(max_size=300), st.sampled_from([None, "utf-8", "gbk", "utf-16le", "iso-2022-jp"]))
def test_any_bytes_give_a_valid_tree_or_a_typed_error(data: bytes, charset: str | None) -> None:
    try:
        tree = from_html(data, charset=charset)
    except BuilderError:
        return
    check(tree)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), FRAGMENTS), max_size=30))
def test_words_keep_their_order(parts: list[tuple[str, str]]) -> None:
    """Whatever elements stand between, visible words come in the order of the source."""
    inline = re.compile(r"</?(b|p|div|ul|li|br|x-y|a|label|summary|details|img|input)>")
    page = " ".join(f"{word}{k} {tag if inline.fullmatch(tag) else ''}"
                    for k, (word, tag) in enumerate(parts))  # fmt: skip
    expected = [f"{word}{k}" for k, (word, _) in enumerate(parts)]
    if expected:
        assert leaf_names(from_html(page)) == expected


# Limits #######################################################################


def test_max_leaves() -> None:
    page = "<p>a b</p><form><input name=q></form><p>c d e</p><form><input></form>"
    assert from_html(page, max_leaves=7).num_leaves == 7
    with pytest.raises(LimitError, match=r"7 leaves, more than max_leaves=3"):
        from_html(page, max_leaves=3)
    with pytest.warns(TruncationWarning, match="the last 4 leaves"):
        tree = from_html(page, max_leaves=3, on_limit="truncate")
    check(tree)
    assert tree.tree_name[:3] == ["a", "b", "input[text] q"]
    assert tree.form_order.tolist() == [0]


def test_max_leaves_within_an_image(tmp_path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64), "red").save(tmp_path / "a.png")
    with pytest.warns(TruncationWarning, match="the last 57 leaves"):
        tree = from_html("a<img src=a.png>b", base=tmp_path, max_leaves=10, on_limit="truncate")
    check(tree)
    assert tree.image_x.shape == (8, 192)


def test_max_depth() -> None:
    page = "a<div>b<div>c<div>d e<form><input></form>"
    depth = from_html(page).depth
    assert from_html(page, max_depth=depth).depth == depth
    with pytest.raises(LimitError, match=rf"is {depth} levels deep, more than max_depth=2"):
        from_html(page, max_depth=2)
    with pytest.warns(TruncationWarning, match="the 4 of 6 leaves that lie deeper"):
        tree = from_html(page, max_depth=2, on_limit="truncate")
    check(tree)
    assert leaf_names(tree) == ["a", "b"]
    assert tree.depth <= 2
    assert tree.form_node.tolist() == []


@pytest.mark.filterwarnings("ignore::hsa_geo.errors.TruncationWarning")
def test_max_depth_that_leaves_nothing() -> None:
    with pytest.raises(LimitError, match="max_depth=1 leaves no leaf"):
        from_html("<p>a b<p>c d", max_depth=1, on_limit="truncate")


def test_depth_counts_the_tree_and_not_the_wrappers() -> None:
    assert from_html("<div>" * 500 + "x", max_depth=1).depth == 1


@pytest.mark.parametrize(
    "options",
    [
        {"on_limit": "ignore"},
        {"max_bytes": 0},
        {"max_nesting": 0},
        {"max_depth": 0},
        {"max_leaves": -1},
        {"patch_size": 0},
        {"max_side": 0},
        {"hash_buckets": 0},
        {"field_tokens": 0},
        {"base": "/no/such/folder"},
    ],
)
def test_arguments_out_of_range_are_named(options: dict) -> None:
    (name, value) = next(iter(options.items()))
    with pytest.raises(BuilderError, match=name) as caught:
        from_html("a", **options)
    assert isinstance(caught.value, HSAError)
    assert repr(value) in str(caught.value)


def test_limits_can_be_lifted() -> None:
    none = dict.fromkeys(("max_bytes", "max_nesting", "max_depth", "max_leaves"))
    assert from_html("<div>a" * 2000, **none).depth == 1999


# The package ##################################################################


def test_missing_parser_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from hsa_geo.errors import MissingPackageError

    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hsa_geo\[html\]'"):
        from_html("a")


def test_an_old_parser_says_what_to_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    from selectolax import lexbor

    from hsa_geo.errors import MissingPackageError

    def old(html: str) -> None:
        """Takes no further arguments."""

    monkeypatch.setattr(lexbor, "LexborHTMLParser", old)
    with pytest.raises(MissingPackageError, match=r"selectolax 1\.0\.1 or later"):
        from_html("a")


def test_builders_are_imported_when_used() -> None:
    import hsa_geo.builders as builders

    assert {"from_html", "from_networkx"} <= set(dir(builders))
    with pytest.raises(AttributeError, match="no attribute 'from_pdf'"):
        builders.from_pdf  # noqa: B018
