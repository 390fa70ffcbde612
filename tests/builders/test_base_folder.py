import os
from pathlib import Path

import pytest

from hsa_geo.builders._base_folder import BaseFolder, data_uri_bytes
from hsa_geo.errors import LimitError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """base/ with files and links, and secrets around it."""
    base = tmp_path / "base"
    (base / "img").mkdir(parents=True)
    (base / "img" / "a b.png").write_bytes(b"inside")
    (base / "ü.png").write_bytes(b"umlaut")
    (base / "big.png").write_bytes(b"x" * 101)
    (base / "to_inside.png").symlink_to(base / "img" / "a b.png")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "base_evil").mkdir()
    (tmp_path / "base_evil" / "x.png").write_bytes(b"secret")
    (base / "file_link.png").symlink_to(tmp_path / "secret.png")
    (base / "relative_link.png").symlink_to("../secret.png")
    (base / "folder_link").symlink_to(tmp_path)
    (base / "loop").symlink_to("loop")
    os.mkfifo(base / "pipe.png")
    return base


@pytest.mark.parametrize(
    ("reference", "data"),
    [
        ("img/a%20b.png", b"inside"),
        ("img/a b.png", b"inside"),
        ("./img/../img/a b.png", b"inside"),
        ("img/a%20b.png?v=1#top", b"inside"),
        (" img/a%20b.png\n", b"inside"),
        ("to_inside.png", b"inside"),
        ("%C3%BC.png", b"umlaut"),
        ("img//a%20b.png", b"inside"),
    ],
)
def test_files_inside_are_read(site: Path, reference: str, data: bytes) -> None:
    assert BaseFolder(site, 100).read(reference) == data


@pytest.mark.parametrize(
    "reference",
    [
        "../secret.png",
        "img/../../secret.png",
        "..%2fsecret.png",
        "%2e%2e/secret.png",
        "%2e%2e%2fsecret.png",
        "..\\secret.png",
        "img%5c..%5c..%5csecret.png",
        "../base_evil/x.png",
        "file_link.png",
        "relative_link.png",
        "folder_link/secret.png",
        "folder_link/base/img/../../secret.png",
        "loop",
        "pipe.png",
        "img",
        ".",
        "",
        "missing.png",
        "img/a b.png/x",
        "img/a b.png\0",
        "img/a%00b.png",
        "/etc/passwd",
        "//etc/passwd",
        "%2Fetc/passwd",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "file%3A///etc/passwd",
        "http://localhost/x.png",
        "javascript:x",
        "C:/x.png",
        "x" * 100_000,
        "\ud800.png",
    ],
)
def test_everything_else_is_refused(site: Path, reference: str) -> None:
    assert BaseFolder(site, 100).read(reference) is None


def test_absolute_path_of_a_file_inside_is_refused(site: Path) -> None:
    assert BaseFolder(site, 100).read(str(site / "img" / "a b.png")) is None


def test_base_may_itself_be_a_link(site: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(site)
    assert BaseFolder(tmp_path / "link", 100).read("img/a%20b.png") == b"inside"


def test_a_folder_swapped_for_a_link_is_not_followed(site: Path, tmp_path: Path) -> None:
    folder = BaseFolder(site, 100)
    parts = folder._inside("img/a b.png")
    assert parts == ("img", "a b.png")
    (site / "img").rename(site / "old")
    (tmp_path / "a b.png").write_bytes(b"secret")
    (site / "img").symlink_to(tmp_path)  # between resolving and reading
    with pytest.raises(OSError, match=r".*"):
        folder._file(parts)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")
def test_no_file_stays_open(site: Path) -> None:
    folder = BaseFolder(site, 100)
    count = len(os.listdir("/proc/self/fd"))
    for reference in ("img/a b.png", "img/missing", "missing/x", "pipe.png", "img"):
        folder.read(reference)
    with pytest.raises(LimitError, match="101 bytes"):
        folder.read("big.png")
    assert len(os.listdir("/proc/self/fd")) == count


@pytest.mark.parametrize(
    ("uri", "data"),
    [
        ("data:image/gif;base64,R0lG", b"GIF"),
        ("DATA:image/GIF;BASE64,R0lG", b"GIF"),
        ("data:image/png;charset=x;base64,R0 lG\n", b"GIF"),
        ("data:image/gif;base64,R0lGOA", b"GIF8"),
        ("data:image/gif;base64,R0lG%4FA==", b"GIF8"),
        ("data:image/gif,GIF", b"GIF"),
        ("data:text/html;base64,R0lG", None),
        ("data:image/gif;base64,R0l!", None),
        ("data:image/gif;base64", None),
        ("image.gif", None),
    ],
)
def test_data_uris(uri: str, data: bytes | None) -> None:
    assert data_uri_bytes(uri, 10) == data


@pytest.mark.parametrize("size", [11, 1000])
def test_large_data_uris(size: int) -> None:
    with pytest.raises(LimitError, match="limit is 10"):
        data_uri_bytes("data:image/gif," + "x" * size, 10)
