"""Data sets of an R package, from the two files in which R keeps them to load them lazily.

``.rdx`` is an index: the beginning and length of every variable in ``.rdb``.  There each stands
as its decompressed size in 4 bytes and a compressed serialisation, which the package ``rdata``
reads; R itself is not needed, and nothing in the files is run.

Example:
    >>> tables = read_lazy("modeldata/data/Rdata", ["testing_data"])  # doctest: +SKIP
    >>> tables["testing_data"]["score"]  # doctest: +SKIP
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hsa_geo._optional import require
from hsa_geo.errors import ArchiveError

__all__ = ["read_lazy"]

#: Largest variable, in bytes.
MAX_BYTES = 1 << 28


def read_lazy(stem: str | os.PathLike[str], variables: Sequence[str]) -> dict[str, Any]:
    """Read variables.

    Args:
        stem: Path of the two files without ``.rdx`` and ``.rdb``.
        variables: Their names.

    Returns:
        What ``rdata`` makes of each, e.g. a pandas table.

    Raises:
        ArchiveError: If a file or a variable is missing or damaged.
        MissingPackageError: If rdata is not installed.

    Example:
        See the example of :mod:`hsa_geo.datasets.r_lazy`.
    """
    require("rdata", extra="datasets", purpose="reading data sets of R")
    try:
        content = Path(f"{stem}.rdx").read_bytes()
        blob = Path(f"{stem}.rdb").read_bytes()
    except OSError as error:
        raise ArchiveError(
            f"'{error.filename}' cannot be read ({error.strerror}): remove "
            f"'{Path(stem).parent}' to make it anew."
        ) from error
    index = _convert(_index_bytes(content), f"{stem}.rdx")
    found = {}
    for name in variables:
        try:
            places = {str(key): value for key, value in index["variables"].items()}
            start, length = (int(number) for number in places[name])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArchiveError(
                f"'{stem}.rdx' has no variable '{name}' ({error!r}): use the pinned version."
            ) from None
        if start < 0 or length < 5 or start + length > len(blob):
            raise ArchiveError(
                f"'{name}' should be at bytes {start} to {start + length} of '{stem}.rdb', which "
                f"has {len(blob)}: remove '{Path(stem).parent}' to make it anew."
            )
        chunk = blob[start : start + length]
        found[name] = _convert(_chunk_bytes(chunk, name), f"{name} in {stem}.rdb")
    return found


def _index_bytes(content: bytes) -> bytes:
    """The index, decompressed: by zlib in files that R writes, or as gzip."""
    for decompress in (gzip.decompress, zlib.decompress):
        try:
            return decompress(content)
        except (OSError, EOFError, zlib.error):
            continue
    return content


def _chunk_bytes(chunk: bytes, name: str) -> bytes:
    """The serialisation in a chunk of the ``.rdb`` file.

    Example:
        >>> _chunk_bytes(struct.pack(">I", 3) + zlib.compress(b"abc"), "x")
        b'abc'
    """
    (size,) = struct.unpack(">I", chunk[:4])
    tag, body = chunk[4:5], chunk[4:]
    if size > MAX_BYTES:
        raise ArchiveError(f"'{name}' says it has {size} bytes: use the pinned version.")
    engine: Any
    if tag == b"2":
        engine, body = bz2.BZ2Decompressor(), body[1:]
    elif tag == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        engine, body = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters), body[1:]
    elif tag == b"0":
        engine, body = None, body[1:]
    else:
        engine = zlib.decompressobj()
    try:
        out = body if engine is None else engine.decompress(body, size + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise ArchiveError(f"'{name}' cannot be decompressed ({error}): unpack it anew.") from None
    if len(out) != size:
        raise ArchiveError(f"'{name}' has {len(out)} bytes, not {size}: unpack it anew.")
    return out


def _convert(content: bytes, what: str) -> Any:
    import rdata

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes of R that it reads as their parents
            return rdata.conversion.convert(rdata.parser.parse_data(content))
    except Exception as error:  # it raises errors of many types
        raise ArchiveError(
            f"{what} cannot be read ({type(error).__name__}: {error}): unpack it anew."
        ) from error
