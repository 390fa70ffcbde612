"""Archives of all kinds, seen through one interface."""

import io
import tarfile
import zipfile

import pytest

from hsa_geo.datasets.members import ar_members, opened


def listed(path):
    with opened(path) as members:
        return [
            (m.name, m.kind, m.size, m.open().read() if m.kind == "file" else None) for m in members
        ]


def ar(*members):
    out = b"!<arch>\n"
    for name, content in members:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def test_the_kind_is_told_by_the_content(tmp_path):
    """Whatever the name of the file says."""
    path = tmp_path / "a.txt"
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz") as file:
        for name, kind in (("d", tarfile.DIRTYPE), ("l", tarfile.SYMTYPE), ("a", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, 3 * (name == "a")
            file.addfile(info, io.BytesIO(b"123"))
    want = [
        ("d", "folder", 0, None),
        ("l", "a link or a device", 0, None),
        ("a", "file", 3, b"123"),
    ]
    path.write_bytes(tar.getvalue())
    assert listed(path) == want
    path.write_bytes(
        ar(("debian-binary", b"2.0\n"), ("odd", b"1"), ("data.tar.xz", tar.getvalue()))
    )
    assert listed(path) == want
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("d/", b"")
        file.writestr("a", b"123")
    assert listed(path) == [("d/", "folder", 0, None), ("a", "file", 3, b"123")]
    with zipfile.ZipFile(path, "w"):
        pass
    assert listed(path) == []


def test_ar():
    members = [("a", b"123"), ("name with blank/", b""), ("b", b"12")]
    content = ar(*members)
    found = list(ar_members(io.BytesIO(content)))
    assert [name for name, _, _ in found] == ["a", "name with blank", "b"]
    assert [content[place : place + size] for _, place, size in found] == [b"123", b"", b"12"]
    assert list(ar_members(io.BytesIO(b"!<arch>\n"))) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin as an ar file"),
        (b"!<arch>\nhalf a header", "no header of a member at byte 8"),
        (ar(("a", b"123"))[:-3], "ends 2 bytes too early"),
        (ar(("a", b"123")).replace(b"`", b"'"), "no header of a member at byte 8"),
        (ar(("a", b"123")).replace(b"3         `", b"-1        `"), "no header of a member"),
    ],
)
def test_broken_ar(content, message):
    with pytest.raises(ValueError, match=message):
        list(ar_members(io.BytesIO(content)))
