"""Unpacking: only what is wanted, all or nothing, and nothing outside."""

import io
import os
import tarfile

import pytest

from hsa_geo.datasets.unpack import unpack
from hsa_geo.errors import ArchiveError


def make_tar(path, members, mode="w:gz"):
    """A tar of (name, content or TarInfo) pairs."""
    with tarfile.open(path, mode) as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                tar.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def special(kind, target=""):
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]


GOOD = [
    ("pkg-1", special(tarfile.DIRTYPE)),
    ("pkg-1/data/index.json", b"{}"),
    ("pkg-1/data/html/0.html", b"<p>0"),
    ("pkg-1/data/html/deep/1.html", b"<p>1"),
    ("pkg-1/data/model.joblib", b"never read"),
    ("pkg-1/docs/link", special(tarfile.SYMTYPE, "/etc/passwd")),  # not wanted: not touched
]
WANT = {"prefix": "pkg-1/data", "patterns": ("index.json", "html/*.html")}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_unpack(tmp_path, mode):
    archive = make_tar(tmp_path / "a.tar", GOOD, mode)
    folder = unpack(archive, tmp_path / "x" / "out", **WANT)
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert files == {"index.json": b"{}", os.path.join("html", "0.html"): b"<p>0"}
    assert leftovers(folder.parent) == []
    (folder / "html" / "0.html").write_bytes(b"changed")
    unpack(archive, folder, **WANT)  # complete: left alone
    assert (folder / "html" / "0.html").read_bytes() == b"changed"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("/etc/evil", b"x")], "would leave the folder"),
        ([("pkg-1/data/html/../../../evil.html", b"x")], "would leave the folder"),
        ([("..", special(tarfile.DIRTYPE))], "would leave the folder"),
        ([("pkg-1\\..\\evil", b"x")], "would leave the folder"),
        ([("C:/evil", b"x")], "would leave the folder"),
        ([("pkg-1/data/html/2.html", special(tarfile.SYMTYPE, "/etc/passwd"))], "is a link"),
        ([("pkg-1/data/html/2.html", special(tarfile.LNKTYPE, "pkg-1/x"))], "is a link"),
        ([("pkg-1/data/html/2.html", special(tarfile.FIFOTYPE))], "is a link or a device"),
        ([("pkg-1/data/html/2.html", special(tarfile.CHRTYPE))], "is a link or a device"),
        ([("pkg-1/data/html/0.html", b"again")], "twice"),
        ([("./pkg-1/data/html/0.html", b"again")], "twice"),
        ([("pkg-1/data/html/2.html", b"x" * 2000)], "more than 1000 bytes"),
    ],
)
def test_unpack_refuses(tmp_path, members, message):
    archive = make_tar(tmp_path / "a.tar.gz", GOOD + members)
    with pytest.raises(ArchiveError, match=message):
        unpack(archive, tmp_path / "in" / "out", **WANT, max_bytes=1000)
    assert list((tmp_path / "in").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "in"]


def test_unpack_through_a_linked_folder_is_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    members = [
        ("pkg-1/data/html", special(tarfile.SYMTYPE, str(outside))),
        ("pkg-1/data/html/0.html", b"x"),
    ]
    folder = unpack(make_tar(tmp_path / "a.tar", members), tmp_path / "out", **WANT)
    assert list(outside.iterdir()) == []  # the link was not made
    assert (folder / "html" / "0.html").read_bytes() == b"x"


def test_unpack_limits_members(tmp_path):
    archive = make_tar(tmp_path / "a.tar.gz", GOOD)
    with pytest.raises(ArchiveError, match="more than 3 members"):
        unpack(archive, tmp_path / "out", **WANT, max_files=3)


def test_unpack_wants_something(tmp_path):
    archive = make_tar(tmp_path / "a.tar.gz", GOOD)
    with pytest.raises(ArchiveError, match="holds no file 'pkg-2/"):
        unpack(archive, tmp_path / "out", prefix="pkg-2")


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "missing"])
def test_unpack_damaged(tmp_path, damage):
    archive = make_tar(tmp_path / "a.tar.gz", [("pkg-1/data/index.json", os.urandom(200_000))])
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "garbage":
        content = bytearray(os.urandom(5000))
    elif damage == "empty":
        content = bytearray()
    archive.write_bytes(content)
    if damage == "missing":
        archive.unlink()
        with pytest.raises(FileNotFoundError):
            unpack(archive, tmp_path / "out", **WANT)
        return
    with pytest.raises(ArchiveError, match=r"cannot be unpacked|ends inside|holds no file"):
        unpack(archive, tmp_path / "out", **WANT)
    assert not (tmp_path / "out").exists()
