"""Data sets of R packages, read without R."""

import struct
import sys
import zlib

import numpy as np
import pytest

from hsa_geo.errors import ArchiveError, MissingPackageError

pytest.importorskip("rdata")

from r_files import chunk, lazy_files, serialise

from hsa_geo.datasets.r_lazy import read_lazy

VALUES = {"words": {"a": ["to", "be"], "b": ["ß", ""]}, "numbers": np.arange(3, dtype=np.int32)}


def write(folder, index, blob):
    (folder / "R.rdx").write_bytes(index)
    (folder / "R.rdb").write_bytes(blob)
    return folder / "R"


@pytest.mark.parametrize("kind", ["Z", "2", "0", ""])
def test_values(tmp_path, kind):
    stem = write(tmp_path, *lazy_files(VALUES, kind))
    found = read_lazy(stem, ["numbers", "words"])
    assert found["numbers"].tolist() == [0, 1, 2]
    assert {key: list(value) for key, value in found["words"].items()} == VALUES["words"]


def test_index_by_zlib(tmp_path):
    stem = write(tmp_path, *lazy_files(VALUES, compress=zlib.compress))
    assert read_lazy(stem, ["numbers"])["numbers"].tolist() == [0, 1, 2]


def test_missing(tmp_path):
    with pytest.raises(ArchiveError, match=r"R.rdx' cannot be read \(No such file"):
        read_lazy(tmp_path / "R", ["a"])
    stem = write(tmp_path, *lazy_files(VALUES))
    with pytest.raises(ArchiveError, match="no variable 'others'"):
        read_lazy(stem, ["others"])


def _place(start, length):
    return {"variables": {"a": np.array([start, length], dtype=np.int32)}}


@pytest.mark.parametrize(
    ("index", "blob", "message"),
    [
        (b"no R", b"", "cannot be read"),
        (serialise(_place(0, 99)), b"abc", r"bytes 0 to 99 of .*, which has 3"),
        (serialise(_place(-1, 2)), b"abc", "bytes -1 to 1"),
        (serialise(_place(0, 10)), struct.pack(">I", 9) + b"Zabcde", "cannot be decompressed"),
        (serialise(_place(0, 10)), struct.pack(">I", 9) + b"xabcde", "cannot be decompressed"),
        (serialise(_place(0, 10)), struct.pack(">I", 2**31) + b"Zabcde", "2147483648 bytes"),
        (serialise(_place(0, 8)), struct.pack(">I", 9) + b"0abc", "has 3 bytes, not 9"),
        (serialise(_place(0, 8)), struct.pack(">I", 3) + b"0abc", "a in .*R.rdb cannot be read"),
        (serialise({"a": [1, 2]}), b"", "no variable 'a'"),
        (
            serialise(_place(0, 18)),
            chunk(bytes(range(256)), "")[:18],
            "has .* bytes, not 256",
        ),
    ],
)
def test_damaged(tmp_path, index, blob, message):
    with pytest.raises(ArchiveError, match=message):
        read_lazy(write(tmp_path, index, blob), ["a"])


def test_a_bomb_is_not_unpacked(tmp_path):
    piece = struct.pack(">I", 1000) + zlib.compress(bytes(1 << 28))
    index = serialise(_place(0, len(piece)))
    with pytest.raises(ArchiveError, match="has 1001 bytes, not 1000"):
        read_lazy(write(tmp_path, index, piece), ["a"])


def test_without_rdata(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(MissingPackageError, match=r"hsa_geo\[datasets\]"):
        read_lazy(tmp_path / "R", ["a"])
