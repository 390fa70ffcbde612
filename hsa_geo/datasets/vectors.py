"""Pretrained vectors of words: looked up, and read from the usual text files.

Which vector a word gets, in this order:

1. that of the word as it is written;
2. that of the word in small letters, with a plain ``'`` for a typographic apostrophe;
3. the mean of the vectors of its parts, as far as they have some: the runs of letters and digits
   (``k-cup``: ``k`` + ``cup``), and the endings that GloVe's own tokenizer cuts off (``don't``:
   ``do`` + ``n't``; ``it's``: ``it`` + ``'s``);
4. zeros, and ``found`` is False.

Zeros are what users of pretrained vectors mostly expect: a word that nothing is known about adds
nothing to a sum.  With ``found`` one can put anything else there, a learned vector say.

Example:
    >>> table = WordVectors(["do", "n't", "paris"], torch.tensor([[1.0, 0], [0, 1], [2, 2]]))
    >>> vectors, found = table.vectors(["Paris", "don't", "qwx"])
    >>> vectors, found
    (tensor([[2.0000, 2.0000],
            [0.5000, 0.5000],
            [0.0000, 0.0000]]), tensor([ True,  True, False]))
"""

from __future__ import annotations

import gzip
import os
import re
import warnings
import zlib
from array import array
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.errors import FileFormatError, HSAWarning, ShapeError

__all__ = ["WordVectors", "read_vectors"]

_CLITIC = re.compile(r"(?<=.)(n't|'(?:s|m|d|re|ve|ll))$", re.DOTALL)
_BETWEEN = re.compile(r"[\W_]+")
_APOSTROPHES = str.maketrans("\u2019\u2018\u02bc\uff07", "''''")


class WordVectors:
    """A table of words and their vectors.

    Args:
        words: The words, each once.
        table: Their vectors ``[len(words), dim]`` float32, a tensor or an array (also one that is
            mapped from a file: only the rows that are asked for are read).

    Raises:
        ShapeError: If there is not one vector for each word, or a word comes twice.

    Example:
        See the example of :mod:`hsa_geo.datasets.vectors`.
    """

    def __init__(self, words: Sequence[str], table: Tensor | np.ndarray[Any, Any]) -> None:
        if isinstance(table, Tensor):
            table = table.detach().cpu().numpy()
        if table.ndim != 2 or len(table) != len(words):
            raise ShapeError(
                f"the table has the shape {list(table.shape)} for {len(words)} words: give one "
                "vector for each."
            )
        self.words = list(words)
        self.table = table
        self._rows = {word: row for row, word in enumerate(self.words)}
        if len(self._rows) < len(self.words):
            twice = next(w for i, w in enumerate(self.words) if self._rows[w] != i)
            raise ShapeError(f"the word {twice!r} comes twice: leave one of them out.")

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.table.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}(words={len(self)}, dim={self.dim})"

    def rows(self, word: str, split: bool = True) -> list[int]:
        """Rows of the table whose mean is the vector of a word; the rule is the module's.

        Args:
            word: Any word.
            split: Look for parts of the word if it has no vector itself. (default: :obj:`True`)

        Returns:
            One row, several of the parts, or none.

        Example:
            >>> WordVectors(["low", "fat"], torch.eye(2)).rows("Low-fat")
            [0, 1]
        """
        row = self._rows.get(word)
        if row is None:
            word = word.lower().translate(_APOSTROPHES)
            row = self._rows.get(word)
        if row is not None:
            return [row]
        if not split:
            return []
        clitics: list[str] = []
        while match := _CLITIC.search(word):
            clitics.insert(0, match.group())
            word = word[: match.start()]
        parts = [word] if word in self._rows else _BETWEEN.split(word)
        return [self._rows[part] for part in parts + clitics if part and part in self._rows]

    def vectors(self, words: Sequence[str], split: bool = True) -> tuple[Tensor, Tensor]:
        """Vectors of words, by the rule of the module.

        Args:
            words: Any words, such as the vocabulary of a dataset.
            split: Take the mean of a word's parts if it has no vector itself.
                (default: :obj:`True`)

        Returns:
            Vectors ``[len(words), dim]`` float32, zeros where there is none, and whether there is
            one ``[len(words)]`` bool.

        Raises:
            ShapeError: If ``words`` is a single string.

        Example:
            >>> table = WordVectors(["to", "be"], torch.eye(2))
            >>> table.vectors(["To", "or"])
            (tensor([[1., 0.],
                    [0., 0.]]), tensor([ True, False]))
        """
        if isinstance(words, str):
            raise ShapeError(f"words is the single string {words!r}: give a list of words.")
        rows = [self.rows(word, split) for word in words]
        counts = np.fromiter(map(len, rows), np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), np.int64, count=int(counts.sum()))
        distinct, place = np.unique(flat, return_inverse=True)
        # Sorted rows: a mapped table is read from front to back.
        values = torch.from_numpy(np.array(self.table[distinct], dtype=np.float32, order="C"))
        out = torch.zeros(len(rows), self.dim)
        owner = torch.from_numpy(np.repeat(np.arange(len(rows)), counts))
        out.index_add_(0, owner, values[torch.from_numpy(place)])
        found = torch.from_numpy(counts)
        return out / found.clamp(min=1).unsqueeze(1), found > 0


def read_vectors(
    path: str | os.PathLike[str],
    *,
    dim: int | None = None,
    only: Collection[str] | None = None,
    limit: int | None = None,
) -> WordVectors:
    r"""Read the vectors of a text file: GloVe's or word2vec's ``.txt`` or ``.vec``, also ``.gz``.

    A line is a word and the numbers of its vector, between single blanks or tabs.  A word may hold
    blanks (some files of GloVe have such): the vector is the last ``dim`` fields.  A first line
    of two whole numbers is taken for the header of word2vec, the numbers of words and of
    dimensions.  A word that comes again keeps its first vector, with a warning.

    Args:
        path: The file, UTF-8; a byte order mark at its start is left out.
        dim: Length of a vector. (default: as the header or the first line says)
        only: Keep the vectors of these words, and of their small-letter forms; all lines are
            checked. (default: all words)
        limit: Read the first so many vectors only; files mostly begin with the most frequent
            words. (default: :obj:`None`)

    Returns:
        The vectors.

    Raises:
        FileFormatError: If a line does not hold ``dim`` finite numbers or is no UTF-8 (the
            message says which line), the file ends before what its header says, holds no
            vector, or is no text (such as word2vec's ``.bin``).
        OSError: If the file cannot be read.

    Warns:
        HSAWarning: If words come more than once.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/vectors.txt"
        >>> _ = open(path, "w").write("to 0.5 1\nbe -1 2e-1\n")
        >>> read_vectors(path).vectors(["be"])
        (tensor([[-1.0000,  0.2000]]), tensor([True]))
    """
    path = Path(path)
    if dim is not None and dim < 1:
        raise ShapeError(f"dim={dim} is no length of a vector: give at least 1.")
    if limit is not None and limit < 1:
        raise ShapeError(f"limit={limit} leaves no vector: give at least 1.")
    wanted = None if only is None else {form for word in only for form in (word, word.lower())}
    words: dict[str, None] = {}
    values = array("f")
    promised, read, twice = None, 0, 0
    for number, line in _lines(path):
        if number == 1 and (header := _header(path, line, dim)) is not None:
            promised, dim = header
            continue
        word, numbers, dim = _vector(path, number, line, dim)
        read += 1
        if word in words:
            twice += 1
        elif wanted is None or word in wanted:
            words[word] = None
            values.extend(numbers)
        if read == limit:
            break
    if not read or dim is None:
        raise FileFormatError(f"'{path}' holds no vector: each line is a word and its numbers.")
    if promised is not None and read != promised and read != limit:
        raise FileFormatError(
            f"'{path}' says that it holds {promised} vectors, but has {read}: get it again."
        )
    table = np.frombuffer(values, dtype=np.float32).reshape(-1, dim)
    if not np.isfinite(table).all():
        bad = list(words)[int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])]
        raise FileFormatError(f"'{path}': the vector of {bad!r} is beyond the range of float32.")
    if twice:
        warnings.warn(
            f"'{path}' holds {twice} words again; the first vector of each counts.",
            HSAWarning,
            stacklevel=2,
        )
    return WordVectors(list(words), table)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, from 1 on; only a line feed ends one."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip(b"\r\n").removeprefix(BOM_UTF8 if number == 1 else b"")
                if line:
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(f"'{path}' is damaged ({error}): get it again.") from None


def _header(path: Path, line: bytes, dim: int | None) -> tuple[int, int] | None:
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields) or dim == 1:
        return None
    if len(line) > 40:  # no number of words has so many digits
        raise FileFormatError(f"'{path}', line 1 is {line[:40]!r}..., no header: get it again.")
    count, found = map(int, fields)
    return None if found < 1 or (dim is not None and dim != found) else (count, found)


def _vector(
    path: Path, number: int, line: bytes, dim: int | None
) -> tuple[str, tuple[float, ...], int]:
    line = line.replace(b"\t", b" ").rstrip(b" ")
    fields = line.split(b" ") if dim is None else line.rsplit(b" ", dim)
    dim = len(fields) - 1 if dim is None else dim
    what = "the length of the first line's vector" if number > 1 else "dim"
    if dim < 1 or len(fields) != dim + 1:
        raise FileFormatError(
            f"'{path}', line {number}: {max(len(fields) - 1, 0)} numbers instead of {dim or 'some'}"
            f" ({what}): is it the text format 'word v1 ... vd'?"
        )
    try:
        word = fields[0].decode("utf-8")
        if b"_" in line[len(fields[0]) :]:  # which float would leave out
            raise ValueError("'_' in a number")
        numbers = tuple(map(float, fields[1:]))
    except UnicodeDecodeError:
        raise FileFormatError(
            f"'{path}', line {number}: {fields[0][:40]!r} is no UTF-8: is the file binary (.bin) "
            "or in another charset? Convert it to UTF-8 text."
        ) from None
    except ValueError as error:
        raise FileFormatError(
            f"'{path}', line {number}: {str(error)[:80]}, but the last {dim} fields are the vector."
        ) from None
    if not all(map(_finite, numbers)):
        raise FileFormatError(f"'{path}', line {number}: the vector of {word!r} is not finite.")
    return word, numbers, dim


def _finite(value: float) -> bool:
    return value - value == 0
