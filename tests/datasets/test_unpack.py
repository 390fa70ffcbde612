"""Unpacking: only what is wanted, all or nothing, and nothing outside."""

import errno
import gzip
import io
import multiprocessing
import os
import stat
import subprocess
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib

import pytest

from hsa_geo.datasets import members as members_module
from hsa_geo.datasets import unpack as module
from hsa_geo.datasets.unpack import unpack
from hsa_geo.errors import ArchiveError, DiskFullError


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


def make_zip(path, members, **kwargs):
    """A zip of the same pairs; special members get the mode that unzip would look at."""
    kinds = {tarfile.SYMTYPE: stat.S_IFLNK, tarfile.FIFOTYPE: stat.S_IFIFO}
    kinds[tarfile.CHRTYPE] = stat.S_IFCHR
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", **kwargs) as file:
        warnings.simplefilter("ignore", UserWarning)  # of names that come twice
        for name, content in members:
            if not isinstance(content, tarfile.TarInfo):
                file.writestr(name, content)
            elif content.type == tarfile.DIRTYPE:
                file.writestr(name + "/", b"")
            else:
                info = zipfile.ZipInfo(name)
                info.external_attr = (kinds[content.type] | 0o777) << 16
                file.writestr(info, content.linkname)
    return path


def make_ar(path, members):
    out = b"!<arch>\n"
    for name, content in members:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    path.write_bytes(out)
    return path


def make_deb(path, members, mode="w:xz"):
    data = make_tar(path.with_suffix(".data"), members, mode)
    end = mode.partition(":")[2]
    parts = [("debian-binary", b"2.0\n"), ("control.tar.xz", b"never read.")]
    parts.append(("data.tar" + (end and f".{end}"), data.read_bytes()))
    data.unlink()
    return make_ar(path, parts)


MAKERS = {"tar": make_tar, "zip": make_zip, "deb": make_deb}


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


def by_names(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        *[(make_tar, [mode]) for mode in ("w", "w:gz", "w:bz2", "w:xz")],
        *[(make_deb, [mode]) for mode in ("w", "w:gz", "w:xz")],
        (make_zip, []),
    ],
)
def test_unpack(tmp_path, make, arguments):
    archive = make(tmp_path / "a.x", GOOD, *arguments)
    folder = unpack(archive, tmp_path / "x" / "out", **WANT)
    assert by_names(folder) == {"index.json": b"{}", os.path.join("html", "0.html"): b"<p>0"}
    assert leftovers(folder.parent) == []
    (folder / "html" / "0.html").write_bytes(b"changed")
    unpack(archive, folder, **WANT)  # complete: left alone
    assert (folder / "html" / "0.html").read_bytes() == b"changed"


@pytest.mark.parametrize("kind", MAKERS)
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
def test_unpack_refuses(tmp_path, kind, members, message):
    if kind == "zip" and getattr(members[0][1], "type", None) == tarfile.LNKTYPE:
        members = [(members[0][0], special(tarfile.SYMTYPE, "x"))]  # zip has no hard links
    if kind == "zip" and members[0][0] == "./pkg-1/data/html/0.html":
        members = [("pkg-1//data/./html/0.html", b"again")]
    archive = MAKERS[kind](tmp_path / "a.x", GOOD + members)
    with pytest.raises(ArchiveError, match=message):
        unpack(archive, tmp_path / "in" / "out", **WANT, max_bytes=1000)
    assert list((tmp_path / "in").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.x", "in"]


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


@pytest.mark.parametrize("kind", MAKERS)
def test_unpack_limits_members(tmp_path, kind, monkeypatch):
    archive = MAKERS[kind](tmp_path / "a.x", GOOD)
    with pytest.raises(ArchiveError, match="more than 3 members"):
        unpack(archive, tmp_path / "out", **WANT, max_files=3)


@pytest.mark.parametrize("kind", MAKERS)
def test_unpack_does_not_look_at_more_than_it_may(tmp_path, kind, monkeypatch):
    bomb = ("pkg-1/unwanted", b"0" * 300_000)
    archive = MAKERS[kind](tmp_path / "a.x", [*GOOD, bomb])
    assert by_names(unpack(archive, tmp_path / "out", **WANT, max_bytes=1000))
    monkeypatch.setattr(module, "_LOOKED_AT", 100_000)
    with pytest.raises(ArchiveError, match="more than 100000 bytes, wanted or not"):
        unpack(archive, tmp_path / "more", **WANT, max_bytes=1000)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("kind", MAKERS)
def test_unpack_wants_something(tmp_path, kind):
    archive = MAKERS[kind](tmp_path / "a.x", GOOD)
    with pytest.raises(ArchiveError, match="holds no file 'pkg-2/"):
        unpack(archive, tmp_path / "out", prefix="pkg-2")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("damage", ["cut", "cut at the end", "garbage", "empty", "missing"])
def test_unpack_damaged(tmp_path, kind, damage):
    archive = MAKERS[kind](tmp_path / "a.x", [("pkg-1/data/index.json", os.urandom(200_000))])
    content = bytearray(archive.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "cut at the end":
        content = content[:-400]  # a tar ends with many zeros, which are nothing compressed
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
    assert leftovers(tmp_path) == []


# Patterns ###################################################################


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["*"], ["index.json", "model.joblib"]),
        (["**"], ["html/0.html", "html/deep/1.html", "index.json", "model.joblib"]),
        (["**/*.html"], ["html/0.html", "html/deep/1.html"]),
        (["html/**/1.*"], ["html/deep/1.html"]),
        (["**/deep/**"], ["html/deep/1.html"]),
        (["h*/[0-9].html"], ["html/0.html"]),
    ],
)
def test_patterns(tmp_path, patterns, names):
    archive = make_tar(tmp_path / "a.tar", GOOD)
    folder = unpack(archive, tmp_path / "out", prefix="pkg-1/data", patterns=patterns)
    assert sorted(name.replace(os.sep, "/") for name in by_names(folder)) == names


# An archive in an archive ###################################################


@pytest.mark.parametrize("outer", MAKERS)
@pytest.mark.parametrize("kind", MAKERS)
def test_inner(tmp_path, outer, kind):
    inner = MAKERS[kind](tmp_path / "inner", GOOD).read_bytes()
    members = [("top/more/inner.x", inner), ("top/more/other.x", b"no")]
    archive = MAKERS[outer](tmp_path / "a.x", members)
    folder = unpack(archive, tmp_path / "in" / "out", **WANT, inner="top/more/inner.x")
    assert set(by_names(folder)) == {"index.json", os.path.join("html", "0.html")}
    assert leftovers(folder.parent) == []
    for wrong, message in (("top/inner.x", "holds no file"), ("top/more/other.x", "a.x' cannot")):
        with pytest.raises(ArchiveError, match=message):
            unpack(archive, tmp_path / "in" / "other", **WANT, inner=wrong)
    assert [p.name for p in folder.parent.iterdir()] == ["out"]


# What only zip or deb can get wrong #########################################


def test_zip_whose_sizes_lie(tmp_path):
    """A member that holds more than it says: nothing beyond what was said is read."""
    archive = make_zip(
        tmp_path / "a.zip", [("pkg-1/data/index.json", b"0" * 100_000)],
        compression=zipfile.ZIP_DEFLATED,
    )  # fmt: skip
    content = archive.read_bytes()
    said = (100_000).to_bytes(4, "little")
    assert content.count(said) == 2  # before the member, and in the list at the end
    archive.write_bytes(content.replace(said, (10).to_bytes(4, "little")))
    with pytest.raises(ArchiveError, match=r"cannot be unpacked.*CRC"):
        unpack(archive, tmp_path / "out", **WANT, max_bytes=1000)
    assert not (tmp_path / "out").exists()


def test_encrypted_zip(tmp_path):
    archive = make_zip(tmp_path / "a.zip", [("pkg-1/data/index.json", b"{}")])
    content = bytearray(archive.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(content)
    with pytest.raises(ArchiveError, match="json' is encrypted"):
        unpack(archive, tmp_path / "out", **WANT)


def test_zip_with_nul_in_a_name(tmp_path):
    archive = make_zip(tmp_path / "a.zip", [("pkg-1/data/index.json?x", b"{}")])
    archive.write_bytes(archive.read_bytes().replace(b"?", b"\0"))
    with pytest.raises(ArchiveError, match="would leave the folder"):
        unpack(archive, tmp_path / "out", **WANT)


@pytest.mark.parametrize("name", ["data.tar.zst", "data.tar.zstd"])
def test_deb_with_zstd(tmp_path, name):
    archive = make_ar(tmp_path / "a.deb", [("debian-binary", b"2.0\n"), (name, b"x")])
    with pytest.raises(ArchiveError, match=r"compressed with zstd.*take the package of Debian"):
        unpack(archive, tmp_path / "out")


def test_ar_that_is_no_deb(tmp_path):
    archive = make_ar(tmp_path / "a.a", [("object.o/", b"x")])
    with pytest.raises(ArchiveError, match=r"without data\.tar"):
        unpack(archive, tmp_path / "out")


@pytest.mark.skipif(not os.path.exists("/usr/bin/dpkg-deb"), reason="needs dpkg-deb")
def test_deb_of_the_real_tool(tmp_path):
    (tmp_path / "pkg" / "DEBIAN").mkdir(parents=True)
    control = "Package: pkg\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b>\nDescription: d\n"
    (tmp_path / "pkg" / "DEBIAN" / "control").write_text(control)
    (tmp_path / "pkg" / "usr" / "share").mkdir(parents=True)
    (tmp_path / "pkg" / "usr" / "share" / "a.txt").write_bytes(os.urandom(300_001))
    for how in ("xz", "gzip"):
        line = ["dpkg-deb", f"-Z{how}", "--build", str(tmp_path / "pkg"), str(tmp_path / how)]
        subprocess.run(line, check=True, capture_output=True)
        folder = unpack(tmp_path / how, tmp_path / f"out-{how}", prefix="usr/share")
        assert len(by_names(folder)["a.txt"]) == 300_001


# A full disk ################################################################


def unpack_small_files_only(archive, folder, said):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        unpack(archive, folder)
    except DiskFullError as error:
        said.put((error.errno, str(error)))


def test_a_file_larger_than_allowed(tmp_path):
    pytest.importorskip("resource")
    archive = make_tar(tmp_path / "a.tar.gz", [("small", b"0"), ("large", b"0" * 200_000)])
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    arguments = (archive, tmp_path / "in" / "out", said)
    process = context.Process(target=unpack_small_files_only, args=arguments)
    process.start()
    number, text = said.get(timeout=300)
    process.join()
    assert number == errno.EFBIG
    assert "No space left to write" in text
    assert "free some, or give another root" in text
    assert list((tmp_path / "in").iterdir()) == []


def test_full_disk(tiny_disk):
    archive = make_tar(tiny_disk.parent / "a.tar.gz", [("a", b"0"), ("b", b"0" * (3 << 20))])
    with pytest.raises(DiskFullError, match=r"No space left to write '.*out' \(2 MB are free"):
        unpack(archive, tiny_disk / "out")
    assert list(tiny_disk.iterdir()) == []


# What tar lets pass #########################################################


@pytest.mark.parametrize("wrap", [None, make_deb])
def test_wrong_checksum_behind_the_members(tmp_path, wrap):
    """Contents that another tar's checksum belongs to: nobody reads so far but us."""
    name, text = "pkg-1/data/index.json", b"label 1\n" * 4
    right = gzip.decompress(make_tar(tmp_path / "a.tgz", [(name, text)]).read_bytes())
    packed = bytearray(gzip.compress(right.replace(b"label 1", b"label 0")))
    packed[-8:-4] = zlib.crc32(right).to_bytes(4, "little")
    archive = tmp_path / "b.tgz"
    if wrap is None:
        archive.write_bytes(packed)
    else:
        make_ar(archive, [("debian-binary", b"2.0\n"), ("data.tar.gz", bytes(packed))])
    with pytest.raises(ArchiveError, match=r"cannot be unpacked.*CRC"):
        unpack(archive, tmp_path / "out", **WANT)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_broken_header_is_not_the_end(tmp_path, mode):
    archive = make_tar(tmp_path / "a.tar", [("a", b"1"), ("b", b"2")], mode)
    content = archive.read_bytes() if mode == "w" else gzip.decompress(archive.read_bytes())
    content = bytearray(content)
    content[1024 + 150] ^= 1  # in the checksum of the second header
    archive.write_bytes(content if mode == "w" else gzip.compress(content))
    with pytest.raises(ArchiveError, match="no header of a member at byte 1024"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("length", [10_000, 20_000, 100 << 20])
def test_long_headers(tmp_path, length):
    """Extended headers are read into memory, so they must be short."""
    archive = tmp_path / "a.tgz"
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT, compresslevel=1) as tar:
        info = tarfile.TarInfo("a")
        info.pax_headers, info.size = {"comment": "x" * length}, 1
        tar.addfile(info, io.BytesIO(b"1"))
    if length == 10_000:
        assert by_names(unpack(archive, tmp_path / "out")) == {"a": b"1"}
        return
    tracemalloc.start()
    with pytest.raises(ArchiveError, match="a header of"):
        unpack(archive, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_headers_in_all(tmp_path, monkeypatch):
    archive = make_tar(tmp_path / "a.tar", [(str(i), b"1") for i in range(9)], "w")
    monkeypatch.setattr(members_module, "_HEADERS", 4000)
    with pytest.raises(ArchiveError, match="and 4000 for all"):
        unpack(archive, tmp_path / "out")


def test_headers_without_end(tmp_path):
    """One extended header after the other, which tarfile follows by calling itself."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 512
    one = info.tobuf(tarfile.USTAR_FORMAT) + b"13 comment=x\n".ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(one * 3000)
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    "names", [("a", "a/b"), ("a/b", "a"), ("a" * 300,), ("/".join(["a" * 200] * 30),)]
)
def test_names_that_cannot_be_made(tmp_path, kind, names):
    archive = MAKERS[kind](tmp_path / "a.x", [(name, b"1") for name in names])
    with pytest.raises(ArchiveError, match=r"the member '.*' cannot be made here") as caught:
        unpack(archive, tmp_path / "in" / "out", patterns=["**"])
    assert len(str(caught.value)) < 400 + len(str(tmp_path))
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("below", ["", "more"])
@pytest.mark.parametrize("kind", ["file", "broken link"])
def test_something_in_the_way(tmp_path, kind, below):
    archive = make_tar(tmp_path / "a.tar", GOOD)
    if kind == "file":
        (tmp_path / "out").write_text("x")
    else:
        (tmp_path / "out").symlink_to("nowhere")
    with pytest.raises(ArchiveError, match=r"out' is a file or a broken link .*: remove it"):
        unpack(archive, tmp_path / "out" / below, **WANT)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "out"]
