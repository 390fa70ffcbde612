"""Records: a table of records and a question, generated; the label is the answer.

Every record has some keys and a value; one more record, the question, has the keys of one of them
and a ``?`` for the value.  The others share keys with the question, so that no key alone tells
which record is meant: all keys of *one* record have to fit.  As in forms, tables and nested
dictionaries, what a leaf means is said by its siblings.

Example:
    >>> import tempfile
    >>> options = {"sizes": [40, 10, 10], "records": [2, 3]}
    >>> dataset = Records(tempfile.mkdtemp(), options=options, log=False)
    >>> train, validation, test = dataset.split()
    >>> dataset.column("y")[test].bincount().tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hsa_geo.data import Domain, SignalTree
from hsa_geo.datasets.arguments import options_dict
from hsa_geo.datasets.parts import Part
from hsa_geo.datasets.splits import check_generated
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import BuilderError, ShapeError

__all__ = ["Records", "draw_table", "table_key", "table_tree"]

#: Number of values, which are the classes.
VALUES = 10
#: A table that a later split has, too, is drawn anew at most so many times.
PATIENCE = 1000

Ints = NDArray[np.int64]


def draw_table(
    rng: np.random.Generator,
    answer: int,
    *,
    records: Sequence[int] = (4, 10),
    keys: int = 2,
    words: int = 16,
    shared: float = 0.5,
) -> Ints:
    """A random table with a question.

    Args:
        rng: Where randomness comes from.
        answer: Value of the record that is asked for.
        records: Least and largest number of records beside the question. (default: ``(4, 10)``)
        keys: Number of keys of a record. (default: ``2``)
        words: Number of words that a key may be. (default: ``16``)
        shared: Probability that a record has all keys of the question but one; the others have
            random ones, and at least one that differs. (default: ``0.5``)

    Returns:
        ``[records + 1, keys + 1]`` words and values; the value of the question is ``VALUES``.

    Raises:
        ShapeError: If an option makes no sense.

    Example:
        >>> table = draw_table(np.random.default_rng(0), answer=7, records=(3, 3))
        >>> asked = table[table[:, 2] == VALUES][0]
        >>> table[(table[:, :2] == asked[:2]).all(1), 2].tolist() in ([7, 10], [10, 7])
        True
    """
    if not (len(records) == 2 and 1 <= records[0] <= records[1]) or keys < 1 or words < 2:
        raise ShapeError(
            f"records={tuple(records)}, keys={keys}, words={words}: from 1, 1 and 2 on are needed."
        )
    if not 0 <= shared <= 1 or not 0 <= answer < VALUES:
        raise ShapeError(f"shared={shared} or answer={answer} is out of range.")
    others = int(rng.integers(records[0], records[1] + 1)) - 1
    asked = rng.integers(0, words, keys)
    near = rng.random((others, 1)) < shared
    key = np.where(near, asked, rng.integers(0, words, (others, keys)))
    rows, column = np.arange(others), rng.integers(0, keys, others)
    key[rows, column] = (asked[column] + rng.integers(1, words, others)) % words
    value = rng.integers(0, VALUES, (others, 1))
    table = np.concatenate([np.concatenate([key, value], 1), [[*asked, answer], [*asked, VALUES]]])
    return rng.permutation(table)


def table_tree(table: Ints, words: int = 16) -> SignalTree:
    """The tree of a table: a set of records, each a sequence of keys and a value.

    Args:
        table: What :func:`draw_table` gives.
        words: Number of words that a key may be. (default: ``16``)

    Returns:
        A tree with ``symbol_x [N]`` (ids below ``keys * words + VALUES + 1``; every key has words
        of its own), ``symbol_index [N]``, the answer ``y [1]``, and the leaf that asks,
        ``question_node [1]``, in a record of its own.

    Example:
        >>> tree = table_tree(np.array([[3, 7], [5, 2], [5, 10]]))
        >>> tree.symbol_x.tolist(), tree.question_node.tolist(), tree.y.tolist()
        ([3, 23, 5, 18, 5, 26], [5], [2])
    """
    rows, width = table.shape
    leaves = rows * width
    parent = np.concatenate(
        [leaves + np.repeat(np.arange(rows), width), np.full(rows, leaves + rows), [-1]]
    )
    pos = np.concatenate([np.tile(np.arange(width), rows), np.zeros(rows + 1, np.int64)])
    domain = np.full(len(parent), int(Domain.SEQUENCE))
    domain[-1] = int(Domain.SET)
    question = int(np.flatnonzero(table[:, -1] == VALUES)[0])
    fits = (table[:, :-1] == table[question, :-1]).all(1) & (table[:, -1] < VALUES)
    symbol = (table + np.arange(width) * words).reshape(-1)
    tree: SignalTree = SignalTree.from_parents(
        parent,
        domain=domain,
        pos=pos,
        symbol_x=torch.from_numpy(symbol.astype(np.int64)),
        symbol_index=torch.arange(leaves),
        question_node=torch.tensor([question * width + width - 1]),
        y=torch.tensor([int(table[fits, -1][0])]),
    )
    return tree


def table_key(table: Ints) -> bytes:
    """What two tables have in common that are the same but for the order of their records.

    Args:
        table: What :func:`draw_table` gives.

    Returns:
        Bytes that differ where a record does.

    Example:
        >>> table = np.array([[3, 7], [5, 2], [5, 10]])
        >>> table_key(table) == table_key(table[::-1])
        True
        >>> table_key(table) == table_key(np.array([[3, 2], [5, 7], [5, 10]]))
        False
    """
    return table[np.lexsort(table.T)].tobytes()


class Records(StoredTrees):
    r"""Trees of tables, see :mod:`hsa_geo.datasets.records`.

    Trees hold what :func:`table_tree` says, and ``split [1]``: 0 for training, 1 for validation, 2
    for test.  The ten answers are equally frequent in each, to within one, and no table is in two
    of them, whatever the order of its records: one for training or validation that a later split
    has, too, is drawn anew, which ``report["redrawn"]`` counts.  Within a split a table may come
    twice.

    Args:
        root: Folder that holds ``processed``.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress. (default: :obj:`True`)
        options: ``sizes`` (default: ``[4000, 1000, 2000]``), ``seed`` (default: ``0``), and the
            options of :func:`draw_table`. (default: none)

    Raises:
        UnsupportedError: If there is no such option.
        ShapeError: If an option makes no sense.
        BuilderError: If there are not so many different tables.

    Example:
        See the example of :mod:`hsa_geo.datasets.records`.
    """

    file_name, noun, part_size = "records", "tables", 2048
    build_version = 2  # tables that two splits have are drawn anew, not left out
    classes = tuple("0123456789")
    validation_given = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[SignalTree], Any] | None = None,
        pre_transform: Callable[[SignalTree], SignalTree] | None = None,
        pre_filter: Callable[[SignalTree], bool] | None = None,
        force_reload: bool = False,
        log: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_generated(options_dict(options), {"seed", *(draw_table.__kwdefaults__ or {})})
        super().__init__(root, transform, pre_transform, pre_filter, force_reload, log, options)

    @property
    def num_symbols(self) -> int:
        """Number of ids of ``symbol_x``."""
        return int(self.options.get("keys", 2) * self._words + VALUES + 1)

    @property
    def _words(self) -> int:
        return int(self.options.get("words", 16))

    def items(self) -> list[tuple[int, int, int]]:
        """Split, number and answer of every table."""
        sizes = self.options.get("sizes", [4000, 1000, 2000])
        return [(split, i, i % VALUES) for split, n in enumerate(sizes) for i in range(n)]

    def build(self, items: Iterator[tuple[int, int, int]]) -> Part:
        """Trees of some tables, each drawn from a seed of its own."""
        return [self._tree(item[0], self._table(*item)) for item in items], {}

    def finish(
        self, items: Sequence[Any], trees: list[SignalTree], extras: Sequence[Mapping[str, Any]]
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """Draw tables for training and validation anew that a later split has, too."""
        later, redrawn = set[bytes](), 0
        for split in (2, 1, 0):
            places = [place for place, item in enumerate(items) if item[0] == split]
            for place in places:
                tries = 0
                while self._key(trees[place]) in later:
                    tries += 1
                    if tries > PATIENCE:
                        raise BuilderError(
                            f"options={self.options} leave too few tables with the answer "
                            f"{items[place][2]} that no later split has: ask for fewer, or allow "
                            "more records, keys or words."
                        )
                    trees[place] = self._tree(split, self._table(*items[place], tries))
                redrawn += tries > 0
            later |= {self._key(trees[place]) for place in places}
        return trees, {"failed": {}, "redrawn": redrawn}

    def _key(self, tree: SignalTree) -> bytes:
        return table_key(tree.symbol_x.view(-1, self.options.get("keys", 2) + 1).numpy())

    def _table(self, split: int, number: int, answer: int, *again: int) -> Ints:
        options = {k: v for k, v in self.options.items() if k not in ("sizes", "seed")}
        rng = np.random.default_rng([self.options.get("seed", 0), split, number, *again])
        return draw_table(rng, answer, **options)

    def _tree(self, split: int, table: Ints) -> SignalTree:
        tree = table_tree(table, self._words)
        tree.split = torch.tensor([split])
        return tree
