"""Which files are pages, and what a reference names."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.builders._site_folder import SiteFolder, resolve, shown


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("b.html", "sub/b.html"),
        ("./b.html", "sub/b.html"),
        ("../b.html", "b.html"),
        ("/b.html", "b.html"),
        ("/", ""),
        ("./", "sub"),
        ("..", ""),
        ("x/../y//z.html", "sub/y/z.html"),
        (" \n b\t.html ", "sub/b.html"),
        ("b%20c.html", "sub/b c.html"),
        ("b+c.html", "sub/b+c.html"),
        ("%2e%2E/b.html", "b.html"),
        ("b.html?x=../../y#z", "sub/b.html"),
        ("b.html#a/../../../c", "sub/b.html"),
        ("caf\u00e9.html", "sub/caf\u00e9.html"),
        ("caf%C3%A9.html", "sub/caf\u00e9.html"),
        ("%", "sub/%"),
        ("a\\..\\b", "sub/a\\..\\b"),
        # What names nothing inside.
        ("../../b.html", None),
        ("/../b.html", None),
        ("%2e%2e/../b.html", None),
        ("http://host/b.html", None),
        ("HTTPS:b.html", None),
        ("//host/b.html", None),
        ("mailto:a@b.c", None),
        ("javascript:void(0)", None),
        ("file:///etc/passwd", None),
        ("a%2Fb.html", None),
        ("a%00.html", None),
        ("a\0.html", None),
        ("", None),
        ("  ", None),
        ("#top", None),
        ("?page=2", None),
    ],
)
def test_resolve(reference: str, path: str | None) -> None:
    found = resolve(reference, (b"sub",))
    expected = None if path is None else tuple(p.encode() for p in path.split("/") if p)
    assert found == expected
    assert resolve(reference, None) is None


@given(st.text(), st.lists(st.binary(min_size=1), max_size=3))
def test_nothing_climbs_out(reference: str, folder: list) -> None:
    folder = [name for name in folder if name not in (b".", b"..")]
    found = resolve(reference, tuple(folder))
    if found is not None:
        assert not {b"", b".", b".."} & set(found[len(folder) :])
        assert b"\0" not in b"".join(found[len(folder) :])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "outside.html").write_text("secret")
    root = tmp_path / "site"
    for name in ("b.html", "a.HTM", "a.txt", ".hidden.html", "sub/index.html", "sub/deep/c.htm",
                 ".git/d.html", "sub-2/e.html", "folder.html/f.html"):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "loop").symlink_to(root)
    (root / "sub" / "up").symlink_to("..")
    (root / "self.html").symlink_to("self.html")
    (root / "out.html").symlink_to(tmp_path / "outside.html")
    (root / "etc.html").symlink_to("/etc/hostname")
    (root / "gone.html").symlink_to("nothing")
    (root / "same.html").symlink_to("b.html")
    os.mkfifo(root / "pipe.html")
    return root


def test_pages_are_listed(site: Path) -> None:
    found = [shown(path) for path in SiteFolder(str(site)).list_pages()]
    assert found == ["a.HTM", "b.html", "folder.html/f.html", "same.html", "sub/deep/c.htm",
                     "sub/index.html", "sub-2/e.html"]  # fmt: skip


def test_pages_are_found(site: Path) -> None:
    folder = SiteFolder(str(site))
    pages = folder.list_pages()
    folder.number(pages)

    def find(path: str) -> str | None:
        k = folder.find(tuple(part.encode() for part in path.split("/") if part))
        return None if k < 0 else shown(pages[k])

    assert find("b.html") == "b.html"
    assert find("sub") == "sub/index.html"
    assert find("loop/sub/up/b.html") == "b.html"  # through links to folders
    assert find("loop") is find("") is find("out.html") is find(".git/d.html") is None
    assert find("a.htm") is None
    assert find("x" * 5000) is None
    assert find("\0") is None


@pytest.mark.parametrize(("depth", "name"), [(1050, "d"), (25, "d" * 200)])
def test_deep_folders(tmp_path: Path, depth: int, name: str) -> None:
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(depth):
            os.mkdir(name)
            os.chdir(name)
        Path("a.html").write_text("x")
        site = SiteFolder(str(tmp_path))
        found = site.list_pages()
        os.remove("a.html")
        for _ in range(depth):
            os.chdir("..")
            os.rmdir(name)
    finally:
        os.chdir(here)
    if len(name) == 1:
        assert len(found) == 1
    else:  # a path that is too long for the system
        assert not found
        assert len(site.unread) == 1


def test_a_given_page(site: Path) -> None:
    folder = SiteFolder(str(site))
    assert folder.given_page("sub/../b.html") is None
    assert folder.given_page("a.txt") == (b"a.txt",)
    assert folder.given_page("./sub/index.html") == (b"sub", b"index.html")
    for bad in ("", ".", "/etc/hostname", str(site / "b.html"), "out.html", "sub", "x\0y", 3, None,
                "pipe.html", "../outside.html"):  # fmt: skip
        assert folder.given_page(bad) is None


@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX")
def test_names_of_any_bytes(tmp_path: Path) -> None:
    name = b"caf\xe9.html"
    with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
        file.write("x")
    folder = SiteFolder(str(tmp_path))
    pages = folder.list_pages()
    folder.number(pages)
    assert pages == [(name,)]
    assert shown(pages[0]) == "caf\ufffd.html"
    assert folder.find(resolve("caf%E9.html", ())) == 0
    assert folder.given_page(name) == folder.given_page(os.fsdecode(name)) == (name,)
