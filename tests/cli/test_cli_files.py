from __future__ import annotations

import inspect
import os
import sys

import pytest

from hsa_geo.cli.files import find_files, read_bytes
from hsa_geo.errors import BuilderError, LimitError


def names(found):
    return [(path.name, None if error is None else type(error)) for path, error in found]


def html(path):
    return path.suffix == ".html"


def test_folders_in_order_without_what_is_hidden(tmp_path):
    for name in ("b.html", "a/z.html", "a/.git/x.html", ".hidden.html", "c.css", "d.html/e.html"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    os.mkfifo(tmp_path / "pipe.html")
    assert names(find_files([tmp_path], html)) == [
        *(("z.html", None), ("b.html", None), ("e.html", None)),
    ]


def test_links(tmp_path):
    folder, outside = tmp_path / "pages", tmp_path / "outside.html"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "a.html").touch()
    (folder / "b.html").symlink_to("a.html")
    (folder / "c.html").symlink_to(outside)
    (folder / "d.html").symlink_to("nowhere")
    (folder / "loop").symlink_to(folder)
    (folder / "pages2").symlink_to(tmp_path)
    assert names(find_files([folder], html)) == [
        *(("a.html", None), ("b.html", None), ("c.html", BuilderError)),
    ]
    # A sibling whose name begins alike is outside, too.
    sibling = tmp_path / "pages-2"
    sibling.mkdir()
    (sibling / "x.html").touch()
    (folder / "x.html").symlink_to(sibling / "x.html")
    assert names(find_files([folder], html))[-1] == ("x.html", BuilderError)
    # A folder that is named may be a link itself, and so may a file.
    (tmp_path / "named").symlink_to(folder)
    assert len(names(find_files([tmp_path / "named"], html))) == 4
    assert names(find_files([folder / "c.html"], html)) == [("c.html", None)]


def test_a_folder_without_pages(tmp_path):
    (tmp_path / "a.css").touch()
    [(path, error)] = find_files([tmp_path], html)
    assert path == tmp_path
    assert isinstance(error, BuilderError)
    assert "holds no file of a known kind" in str(error)
    page = tmp_path / "a.html"  # and the others are found
    assert names(find_files([tmp_path, page], html))[1:] == [("a.html", None)]


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    (tmp_path / "z.html").touch()
    listdir = os.listdir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)  # root may read everything
    assert names(find_files([tmp_path], html)) == [("shut", PermissionError), ("z.html", None)]


def test_a_deep_folder(tmp_path):
    """No recursion: of the limit is left only what this needs whatever the depth."""
    path = tmp_path.joinpath(*"d" * 300)
    path.mkdir(parents=True)
    (path / "a.html").touch()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        found = names(find_files([tmp_path], html))
    finally:
        sys.setrecursionlimit(before)
    assert found == [("a.html", None)]


def test_the_limit_on_bytes(tmp_path):
    path = tmp_path / "a.html"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(LimitError, match="more than 4 bytes"):
        read_bytes(path, 4)
