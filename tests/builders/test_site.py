"""Web sites: pages of a folder, and the links between them."""

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from html_cases import FRAGMENTS, KEYS, check, shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch_geometric.data import Batch

from hsa_geo.builders import from_html, from_site
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import (
    BuilderError,
    DecodingWarning,
    HSAError,
    HSAWarning,
    LimitError,
    TruncationWarning,
)
from hsa_geo.nn import HSAConv

SITE_KEYS = {*KEYS, "page_node", "tree_link", "tree_link_weight"}
Write = Callable[[dict[str, str | bytes]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the files of a site; returns its folder."""

    def files(contents: dict[str, str | bytes]) -> Path:
        root = tmp_path / "site"
        root.mkdir(exist_ok=True)
        for name, content in contents.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = content.encode() if isinstance(content, str) else content
            path.write_bytes(data)
        return root

    return files


def links(tree: SignalTree) -> dict[tuple[str, str], int]:
    """Links by the names of their pages."""
    ends = [tuple(tree.tree_name[node] for node in pair) for pair in tree.tree_link.t().tolist()]
    assert len(set(ends)) == len(ends)
    return dict(zip(ends, tree.tree_link_weight.int().tolist()))


def page_names(tree: SignalTree) -> list[str]:
    return [tree.tree_name[node] for node in tree.page_node.tolist()]


def check_site(tree: SignalTree) -> None:
    tree.validate()
    assert set(tree.keys()) >= SITE_KEYS
    root = tree.num_tree_nodes - 1
    assert tree.tree_domain[root] == Domain.GRAPH
    assert torch.equal(tree.tree_index[1, tree.tree_index[0] == root], tree.page_node)
    assert not tree.tree_pos[tree.page_node].any()
    assert torch.isin(tree.tree_link, tree.page_node).all()
    assert (tree.tree_link[0] != tree.tree_link[1]).all()
    assert (tree.tree_link_weight >= 1).all()
    assert tree.tree_link_weight.dtype == torch.float32
    assert (tree.text_index.diff() >= 0).all()


SITE = {
    "index.html": "<title>Home</title><nav><a href=news.html>News</a> <a href='a b/'>Shop</a>"
    " <a href='/news.html#x'>again</a> <a href=index.html>here</a></nav><p>Hello there. Welcome!",
    "news.html": "<p>No news. <a href=./>back</a> <a href=http://host/index.html>away</a>",
    "a b/index.htm": "<form><input name=q></form><a href=../index.html>up</a> <img src=../x.png>"
    "<a href=c%20d.html?x=1>more</a> <a hidden href=../news.html>no</a>",
    "a b/c d.html": "<img src=/x.png alt='a box'><a href='../../out.html'>out</a>",
}


@pytest.fixture
def site(write: Write) -> Path:
    root = write(SITE)
    Image.new("RGB", (20, 20), "red").save(root / "x.png")
    return root


def test_a_site(site: Path) -> None:
    tree = from_site(site)
    check_site(tree)
    assert page_names(tree) == ["a b/c d.html", "a b/index.htm", "index.html", "news.html"]
    assert tree.tree_name[-1] == "site"
    assert links(tree) == {
        ("index.html", "news.html"): 2,
        ("index.html", "a b/index.htm"): 1,
        ("news.html", "index.html"): 1,
        ("a b/index.htm", "index.html"): 1,
        ("a b/index.htm", "a b/c d.html"): 1,
    }
    assert len(tree.image_x) == 8  # two images of four patches


@pytest.mark.parametrize(
    "options",
    [{}, {"tables": "grid", "sets": "boxes", "sectioning": True}, {"collapse": False},
     {"form_tokens": True, "include_hidden": True, "patch_size": 4}, {"images": False}],
)  # fmt: skip
def test_a_page_is_what_from_html_makes_of_it(site: Path, options: dict) -> None:
    tree = from_site(site, **options)
    level, first = tree.tree_level, 0
    for path, node in zip(["a b/c d.html", "a b/index.htm", "index.html", "news.html"],
                          tree.page_node.tolist()):  # fmt: skip
        # An absolute src of an image is resolved in the site only.
        text = (site / path).read_text().replace("../x.png", "x.png").replace("/x.png", "x.png")
        page = from_html(text, base=site, **options)
        rows = slice(first, first + page.num_leaves)
        first += page.num_leaves
        parent = torch.full_like(level, -1)
        parent[tree.tree_index[1]] = tree.tree_index[0]
        name = shape(tree)
        mine = next(kid for kid in name[1:] if kid[0] == path)
        assert [path, *shape(page)[1:]] == mine
        assert torch.equal(tree.leaf_kind[rows], page.leaf_kind)
        inside = (tree.text_index >= rows.start) & (tree.text_index < rows.stop)
        assert torch.equal(tree.text_x[inside], page.text_x)
        inside = (tree.image_index >= rows.start) & (tree.image_index < rows.stop)
        assert torch.equal(tree.image_x[inside], page.image_x)
        assert torch.equal(level[rows], page.tree_level[: page.num_leaves] + 1)
        assert torch.equal(tree.tree_pos[rows], page.tree_pos[: page.num_leaves])
        assert tree.tree_domain[node] == page.tree_domain[-1]
    assert first == tree.num_leaves


def test_forms_of_pages(site: Path) -> None:
    tree = from_site(site)
    assert tree.form_order.tolist() == [0]
    assert tree.tree_name[tree.form_node] == "form"


def test_a_site_of_one_page(write: Write) -> None:
    tree = from_site(write({"only.html": "<a href=only.html>word</a>"}))
    check_site(tree)
    assert page_names(tree) == ["only.html"]
    assert tree.tree_link.shape == (2, 0)
    assert tree.tree_link.dtype == torch.int64
    assert tree.tree_link_weight.shape == (0,)


def test_batching(write: Write, site: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    (one / "a.html").write_text("word")
    trees = [from_site(site), from_site(one), from_site(site, pages=["news.html", "index.html"])]
    batch = Batch.from_data_list(trees)
    for tree, back in zip(trees, batch.to_data_list()):
        check_site(back)
        assert tree.tree_name == back.tree_name
        for key in SITE_KEYS:
            assert torch.equal(tree[key], back[key]), key
    torch.manual_seed(0)
    conv = HSAConv(8, 8, heads=2)
    x = [torch.randn(tree.num_leaves, 8) for tree in trees]
    alone = torch.cat([conv(one, tree) for one, tree in zip(x, trees)])
    torch.testing.assert_close(conv(torch.cat(x), batch), alone)


def test_restricting_a_site_keeps_the_links_of_what_stays(site: Path) -> None:
    tree = from_site(site, pages=["index.html", "news.html", "a b/index.htm"])
    gone = from_html(site / "index.html").num_leaves
    rest = tree.clone()
    rest.page_node = rest.page_node[1:]
    small = rest.restrict(torch.arange(gone, tree.num_leaves))
    small.validate()
    assert page_names(small) == ["news.html", "a b/index.htm"]
    assert links(small) == {}
    assert links(tree.restrict(torch.arange(tree.num_leaves - 1))) == links(tree)


def test_names_can_be_left_out(site: Path) -> None:
    tree = from_site(site, names=False)
    assert "tree_name" not in tree
    assert len(tree.page_node) == 4


# Links ########################################################################


@pytest.mark.parametrize(
    ("base", "found"),
    [
        ("", {"sub/b.html"}),
        ("<base href=../>", {"b.html"}),
        ("<base href='../x.html?a/b'>", {"b.html"}),
        ("<base href=/other/>", {"other/b.html"}),
        ("<base href=/>", {"b.html"}),
        ("<base href=deep/page.html>", {"sub/deep/b.html"}),
        ("<base target=x><base href=/><base href=deep/>", {"b.html"}),
        ("<base href='http://host/'>", set()),
        ("<base href='//host/'>", set()),
        ("<base href='http://host'>", set()),
        ("<base href='../../'>", set()),
        ("<base href='#x'>", {"sub/b.html"}),
    ],
)
def test_base_href(write: Write, base: str, found: set) -> None:
    others = ("b.html", "sub/b.html", "sub/deep/b.html", "other/b.html")
    root = write({"sub/a.html": f"{base}<a href=b.html>x</a>", **dict.fromkeys(others, "x")})
    assert {target for _, target in links(from_site(root))} == found


def test_images_follow_base_href(write: Write) -> None:
    root = write({"sub/a.html": "<base href=/pics/>x<img src=x.png>",
                  "sub/b.html": "<base href=http://host/>x<img src=x.png>",
                  "sub/c.html": "x<img src=../../secret.png><img src=http:x.png>"})  # fmt: skip
    (root / "pics").mkdir()
    for path in (root / "pics" / "x.png", root / "sub" / "x.png", root.parent / "secret.png"):
        Image.new("RGB", (8, 8), "red").save(path)
    tree = from_site(root)
    assert len(tree.image_x) == 1
    assert int(tree.image_index) < tree.num_leaves - 4


def test_an_image_of_many_pages_is_decoded_once(write: Write, monkeypatch) -> None:
    from hsa_geo.builders import _page_reader

    root = write({f"{k}/p.html": "x<img src=../x.png><img src='/./x.png'>" for k in range(5)})
    Image.new("RGB", (8, 8), "red").save(root / "x.png")
    calls, real = [], _page_reader.image_patches
    monkeypatch.setattr(
        _page_reader, "image_patches", lambda *a, **k: calls.append(1) or real(*a, **k)
    )
    assert len(from_site(root).image_x) == 10
    assert len(calls) == 1


def test_links_of_every_page_to_every_page(write: Write) -> None:
    n = 60
    text = " ".join(f"<a href={k}.html>go {k}</a>" for k in range(n)) * 3
    tree = from_site(write({f"{k}.html": text for k in range(n)}))
    check_site(tree)
    assert tree.tree_link.shape == (2, n * (n - 1))
    assert (tree.tree_link_weight == 3).all()


def test_many_links(write: Write) -> None:
    page = "<a href=b.html>x</a>" * 30_000
    other = "".join(f"<a href='{k}/../b.html'>x</a>" for k in range(20_000))
    tree = from_site(write({"a.html": page, "b.html": other, "c.html": other}))
    assert links(tree) == {("a.html", "b.html"): 30_000, ("c.html", "b.html"): 20_000}


# Which pages ##################################################################


def test_given_pages_in_their_order(site: Path) -> None:
    tree = from_site(site, pages=["news.html", Path("index.html")])
    assert page_names(tree) == ["news.html", "index.html"]
    assert links(tree) == {("news.html", "index.html"): 1, ("index.html", "news.html"): 2}
    check_site(tree)


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        (["none.html"], "'none.html', which is no file"),
        (["../site/news.html"], "which is no file"),
        (["/etc/hostname"], "which is no file"),
        ([3], "names 3, which"),
        (["a\0"], "which is no file"),
        ("news.html", "is no list of paths"),
        (5, "is no list of paths"),
        ([], "empty or names a page twice"),
        (["news.html", "./news.html"], "empty or names a page twice"),
    ],
)
def test_bad_pages_are_refused(site: Path, pages: object, message: str) -> None:
    with pytest.raises(BuilderError, match=message):
        from_site(site, pages=pages)


def test_pages_that_show_nothing(write: Write) -> None:
    root = write({"a.html": "word", "b.html": "", "c.html": "<a href=a.html></a>",
                  "d.html": b"%PDF-1.4", "e.html": "x <a href=b.html>b</a> <a href=a.html>a</a>",
                  "f.html": "!!!"})  # fmt: skip
    with pytest.warns(HSAWarning, match=r"left out 4 of 6 pages.*'b\.html' \(the page shows.*"
                                        r"'c.html'.*'d.html' \(.*PDF.*and 1 more"):  # fmt: skip
        tree = from_site(root)
    check_site(tree)
    assert page_names(tree) == ["a.html", "e.html"]
    assert links(tree) == {("e.html", "a.html"): 1}
    with pytest.raises(BuilderError, match=r"page 'b\.html': the page shows nothing"):
        from_site(root, on_error="raise")
    with pytest.raises(BuilderError, match=r"none of 2 pages of the site is left: 'b\.html'"), \
            pytest.warns(HSAWarning):  # fmt: skip
        from_site(root, pages=["b.html", "f.html"])


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_pages_that_may_not_be_read(write: Write) -> None:  # pragma: no cover
    root = write({"a.html": "word", "b.html": "word", "c/d.html": "x"})
    (root / "b.html").chmod(0)
    (root / "c").chmod(0)
    with pytest.warns(HSAWarning, match=r"left out 2 of .*'c/'.*Permission"):
        assert page_names(from_site(root)) == ["a.html"]
    (root / "c").chmod(0o700)


def test_a_page_that_vanishes(write: Write, monkeypatch) -> None:
    from hsa_geo.builders._site_folder import SiteFolder

    root = write({"a.html": "word", "b.html": "x"})
    real = SiteFolder.list_pages
    monkeypatch.setattr(
        SiteFolder, "list_pages", lambda self: (real(self), os.remove(root / "b.html"))[0]
    )
    with pytest.warns(HSAWarning, match=r"left out 1 of 2.*'b.html' \(No such file"):
        assert page_names(from_site(root)) == ["a.html"]


def test_warnings_come_once_for_all_pages(write: Write) -> None:
    root = write({f"{k}.html": b"<meta charset=utf-8>caf\xe9" for k in range(5)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_site(root)
    assert [one.category for one in caught] == [DecodingWarning]
    assert re.search(r"5 warnings: '0.html' \(.*'2.html' \(.*and 2 more", str(caught[0].message))
    assert caught[0].filename == __file__


@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX")
def test_names_of_any_bytes(write: Write, tmp_path: Path) -> None:
    root = write({"a.html": "<a href=caf%E9.html>x</a> <a href='%00.html'>y</a>"})
    with open(os.path.join(os.fsencode(root), b"caf\xe9.html"), "w") as file:
        file.write("x")
    with open(os.path.join(os.fsencode(root), b"a:b\\c\n.html"), "w") as file:
        file.write("x")
    tree = from_site(root)
    assert page_names(tree) == ["a.html", "a:b\\c\n.html", "caf\ufffd.html"]
    assert links(tree) == {("a.html", "caf\ufffd.html"): 1}
    tree.save(tmp_path / "tree.safetensors")
    assert SignalTree.load(tmp_path / "tree.safetensors").tree_name == tree.tree_name


def test_links_of_the_file_system(write: Write) -> None:
    root = write({"a.html": "<a href=loop/sub/b.html>x</a> <a href=out/secret.html>y</a>",
                  "sub/b.html": "x"})  # fmt: skip
    (root.parent / "secret.html").write_text("secret")
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(root.parent)
    (root / "self.html").symlink_to("self.html")
    (root / "out.html").symlink_to(root.parent / "secret.html")
    os.mkfifo(root / "pipe.html")
    tree = from_site(root)
    assert page_names(tree) == ["a.html", "sub/b.html"]
    assert links(tree) == {("a.html", "sub/b.html"): 1}


# Limits and arguments #########################################################


PAGES = {f"{k}.html": f"one two three {k} <a href=0.html>x</a>" for k in range(6)}


@pytest.mark.parametrize(
    ("limit", "message", "left"),
    [
        ({"max_pages": 4}, "the site has 6 pages, more than max_pages=4", 4),
        ({"max_site_bytes": 100}, "up to '2.html' have more than max_site_bytes=100 bytes", 2),
        ({"max_site_leaves": 15}, "up to '3.html' have more than max_site_leaves=15 leaves", 3),
    ],
)
def test_limits_of_the_site(write: Write, limit: dict, message: str, left: int) -> None:
    root = write(PAGES)
    with pytest.raises(LimitError, match=message):
        from_site(root, **limit)
    with pytest.warns(TruncationWarning, match=message) as caught:
        tree = from_site(root, **limit, on_limit="truncate")
    assert caught[0].filename == __file__
    check_site(tree)
    assert len(tree.page_node) == left
    assert len(tree.tree_link_weight) == left - 1


def test_limits_of_the_site_that_leave_nothing(write: Write) -> None:
    with pytest.raises(BuilderError, match="none of 6 pages"), pytest.warns(TruncationWarning):
        from_site(write(PAGES), max_site_leaves=2, on_limit="truncate")


@pytest.mark.parametrize(
    "limit", [{"max_leaves": 4}, {"max_bytes": 30}, {"max_depth": 1}, {"max_nesting": 1}]
)
def test_limits_of_a_page(write: Write, limit: dict) -> None:
    text = "zero <b><i>one two three four five six <a>seven eight</a>"
    root = write({"a.html": "one", "b.html": text})
    with pytest.raises(LimitError, match=r"page 'b\.html': .*more than max_"):
        from_site(root, **limit)
    with pytest.warns(TruncationWarning, match=r"'b.html' \(.*left out"):
        tree = from_site(root, **limit, on_limit="truncate")
    check_site(tree)
    assert tree.num_leaves < 10
    if "max_bytes" in limit:
        with pytest.raises(LimitError, match=f"has {len(text)} bytes, more than max_bytes=30"):
            from_site(root, **limit)


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "ignore"},
        {"on_limit": "ignore"},
        {"max_pages": 0},
        {"max_site_bytes": -1},
        {"max_site_leaves": 0},
        {"max_leaves": 0},
        {"patch_size": 0},
        {"tables": "x"},
        {"sets": "x"},
    ],
)
def test_arguments_out_of_range_are_named(site: Path, options: dict) -> None:
    (name, value) = next(iter(options.items()))
    with pytest.raises(BuilderError, match=name) as caught:
        from_site(site, **options)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("folder", ["/no/such/folder", "", 3, None, "a\0b", Path("/etc/hostname")])
def test_no_folder(folder: object) -> None:
    with pytest.raises(BuilderError, match=r"folder=.* is not a folder"):
        from_site(folder)


def test_a_folder_without_pages(tmp_path: Path) -> None:
    with pytest.raises(BuilderError, match=r"holds no \.html or \.htm file"):
        from_site(tmp_path)


def test_a_folder_given_as_a_link_or_relative(site: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "link").symlink_to(site)
    assert len(from_site(tmp_path / "link").page_node) == 4
    monkeypatch.chdir(site)
    assert len(from_site(".").page_node) == 4


# Anything #####################################################################

NAMES = ["a.html", "b.htm", "sub/index.html", "sub/c d.html"]
LINKS = [f"<a href='{href}'>x" for href in (*NAMES, "sub", "../a.html", "c%20d.html", "//", "%")]
PARTS = st.one_of(FRAGMENTS, st.sampled_from([*LINKS, "<base href=sub/>", "<td>", "<h2>"]))
CONTENT = st.lists(PARTS, max_size=12).map(" ".join)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.filterwarnings("ignore::hsa_geo.errors.HSAWarning")
@given(
    st.dictionaries(st.sampled_from(NAMES), CONTENT, min_size=1),
    st.sampled_from(["sequence", "grid"]),
    st.booleans(),
)
def test_any_site(tmp_path_factory, contents: dict, tables: str, sectioning: bool) -> None:
    root = tmp_path_factory.mktemp("site")
    for name, content in contents.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    options = {"tables": tables, "sectioning": sectioning}
    alone = {}
    for name in sorted(contents, key=lambda name: name.split("/")):
        try:
            alone[name] = from_html(root / name, **options)
        except HSAError:
            continue
    if not alone:
        with pytest.raises(BuilderError, match="none of"):
            from_site(root, **options)
        return
    tree = from_site(root, **options)
    check_site(tree)
    assert page_names(tree) == list(alone)
    assert tree.num_leaves == sum(one.num_leaves for one in alone.values())
    assert torch.equal(tree.text_x, torch.cat([one.text_x for one in alone.values()]))
    back = Batch.from_data_list([tree, tree]).to_data_list()[1]
    assert all(torch.equal(tree[key], back[key]) for key in SITE_KEYS)
    for one in alone.values():
        check(one)
