"""Lazy-load files of R, written without R."""

import bz2
import gzip
import lzma
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np


def serialise(value):
    """R's serialisation of lists, dicts and arrays."""
    import rdata

    if isinstance(value, dict):
        value = {key: np.array(v) if isinstance(v, list) else v for key, v in value.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.rds")
        rdata.write_rds(path, value)
        return gzip.decompress(path.read_bytes())


def chunk(content, kind="Z"):
    """A value of an ``.rdb`` file, compressed by zlib (""), bz2 ("2"), LZMA ("Z"), or not ("0")."""
    if kind == "Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        body = b"Z" + lzma.compress(content, lzma.FORMAT_RAW, filters=filters)
    elif kind == "2":
        body = b"2" + bz2.compress(content)
    elif kind == "0":
        body = b"0" + content
    else:
        body = zlib.compress(content)
    return struct.pack(">I", len(content)) + body


def lazy_files(values, kind="Z", compress=gzip.compress):
    """Contents of the ``.rdx`` and ``.rdb`` files of some values."""
    blob, places = b"", {}
    for name, value in values.items():
        piece = chunk(serialise(value), kind)
        places[name] = np.array([len(blob), len(piece)], dtype=np.int32)
        blob += piece
    return compress(serialise({"variables": places})), blob
