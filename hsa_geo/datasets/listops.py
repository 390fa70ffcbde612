"""ListOps: nested lists of operations and digits, generated; the label is the value.

After `"ListOps: A Diagnostic Dataset for Latent Tree Learning"
<https://arxiv.org/abs/1804.06028>`_ (Nangia and Bowman, 2018).  There models have to find the tree;
here it is given.  Files of the original data, and of the Long Range Arena, are read by
:func:`read_listops`.

Example:
    >>> import tempfile
    >>> dataset = ListOps(tempfile.mkdtemp(), options={"sizes": [40, 10, 10]}, log=False)
    >>> train, validation, test = dataset.split()
    >>> dataset.column("y")[test].bincount().tolist()
    [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import options_dict
from hsa_geo.datasets.disk import write_bytes
from hsa_geo.datasets.listops_notation import CLOSE, Expressions, draw_expressions
from hsa_geo.datasets.listops_trees import expression_trees
from hsa_geo.datasets.parts import Part
from hsa_geo.datasets.splits import check_generated
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import BuilderError, FileFormatError, LabelError, UnsupportedError

__all__ = ["ListOps", "draw_splits", "read_listops", "write_listops"]

#: Expressions drawn at a time; part of what a seed means.
CHUNK = 8192
#: Draws in a row that may bring nothing new.
PATIENCE = 50


def draw_splits(
    sizes: Sequence[int],
    *,
    seed: int = 0,
    min_leaves: int = 10,
    max_leaves: int = 100,
    max_depth: int = 4,
    max_args: int = 5,
    nested: float = 0.3,
) -> list[Expressions]:
    """Sets of random expressions without a common one, the ten values equally often in each.

    The last set is filled first, so that a larger first set leaves the others as they are.

    Args:
        sizes: Number of expressions of each set.
        seed: The same seed and options give the same expressions everywhere. (default: ``0``)
        min_leaves: Least number of operators and digits. (default: ``10``)
        max_leaves: Largest number of them. (default: ``100``)
        max_depth: Largest number of lists around an argument. (default: ``4``)
        max_args: Largest number of arguments, the least is 2. (default: ``5``)
        nested: Probability that an argument is a list. (default: ``0.3``)

    Returns:
        The sets, each in random order.

    Raises:
        BuilderError: If so many expressions cannot be found.
        ShapeError: If an option makes no sense.

    Example:
        >>> train, test = draw_splits([20, 10], max_leaves=12)
        >>> len(train), len(set(train.encoded() + test.encoded()))
        (20, 30)
        >>> np.bincount(test.values()).tolist()
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    rng = np.random.default_rng([seed, 0])
    quota = np.array([[n // 10 + (value < n % 10) for value in range(10)] for n in sizes])
    quota = quota.reshape(len(sizes), 10)
    found: list[list[bytes]] = [[] for _ in range(10)]
    seen: set[bytes] = set()
    wanted, idle = quota.sum(0), 0
    while any(len(found[value]) < wanted[value] for value in range(10)):
        drawn = draw_expressions(CHUNK, rng, max_depth=max_depth, max_args=max_args, nested=nested)
        leaves = np.diff(np.append(0, np.cumsum(drawn.tokens != CLOSE))[drawn.ptr])
        drawn = drawn[np.flatnonzero((leaves >= min_leaves) & (leaves <= max_leaves))]
        before = len(seen)
        for key, value in zip(drawn.encoded(), drawn.values().tolist()):
            if len(found[value]) < wanted[value] and key not in seen:
                seen.add(key)
                found[value].append(key)
        idle = 0 if len(seen) > before else idle + 1
        if idle == PATIENCE:
            raise BuilderError(
                f"of {sum(sizes)} expressions with {min_leaves} to {max_leaves} leaves, max_depth="
                f"{max_depth} and max_args={max_args} only {len(seen)} turned up: ask for fewer, "
                "or allow more leaves, depth or arguments."
            )
    out: list[Expressions] = []
    used = np.zeros(10, dtype=np.int64)
    for number in range(len(sizes) - 1, -1, -1):
        keys = [
            key
            for value in range(10)
            for key in found[value][used[value] : used[value] + quota[number, value]]
        ]
        used += quota[number]
        order = np.random.default_rng([seed, 1, number]).permutation(len(keys))
        out.insert(0, from_keys([keys[i] for i in order]))
    return out


def from_keys(keys: Sequence[bytes]) -> Expressions:
    """Expressions from what :meth:`Expressions.encoded` gives.

    Example:
        >>> from_keys(Expressions.parse(["[SM 1 2 ]"]).encoded()).text(0)
        '[SM 1 2 ]'
    """
    ptr = np.append(0, np.cumsum([len(key) for key in keys], dtype=np.int64))
    return Expressions(np.frombuffer(b"".join(keys), dtype=np.uint8), ptr)


class ListOps(StoredTrees):
    r"""Trees of nested lists, see :mod:`hsa_geo.datasets.listops`.

    Trees hold ``symbol_x``, ``symbol_index``, the value ``y``, every list with its value
    (``list_node``, ``list_y``; see :func:`~hsa_geo.datasets.listops_trees.expression_trees`), and
    ``split [1]``: 0 for training, 1 for validation, 2 for test.  No expression is in two of them.

    Args:
        root: Folder that holds ``processed``.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress. (default: :obj:`True`)
        options: ``sizes`` (default: ``[20000, 2000, 2000]``), and the arguments of
            :func:`draw_splits`. (default: none)

    Raises:
        UnsupportedError: If there is no such option.
        BuilderError: If there are not so many expressions.

    Example:
        See the example of :mod:`hsa_geo.datasets.listops`.
    """

    file_name, noun, part_size = "listops", "expressions", 4096
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
        check_generated(options_dict(options), {*(draw_splits.__kwdefaults__ or {})})
        super().__init__(root, transform, pre_transform, pre_filter, force_reload, log, options)

    def items(self) -> list[tuple[int, bytes]]:
        """All expressions as split and tokens."""
        options = dict(self.options)
        sets = draw_splits(options.pop("sizes", [20000, 2000, 2000]), **options)
        return [(split, key) for split, some in enumerate(sets) for key in some.encoded()]

    def build(self, items: Iterator[tuple[int, bytes]]) -> Part:
        """Trees of some expressions at once."""
        some = list(items)
        trees = expression_trees(from_keys([key for _, key in some]))
        for tree, (split, _) in zip(trees, some):
            tree.split = torch.tensor([split])
        return trees, {}


def write_listops(
    path: str | os.PathLike[str], expressions: Expressions, layout: str = "original"
) -> None:
    """Write expressions and their values to a file of lines.

    Args:
        path: The file; an old one is replaced.
        expressions: What to write.
        layout: ``"original"``: value, tab, expression; or ``"lra"`` (Long Range Arena): a line
            of names, then expression, tab, value. (default: ``"original"``)

    Raises:
        UnsupportedError: If the layout is unknown.
        DiskFullError: If there is no room.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/train.tsv"
        >>> write_listops(path, Expressions.parse(["[MAX 1 2 ]"]))
        >>> open(path).read(), read_listops(path).text(0)
        ('2\\t[MAX 1 2 ]\\n', '[MAX 1 2 ]')
    """
    if layout not in ("original", "lra"):
        raise UnsupportedError(f"layout={layout!r}: use 'original' or 'lra'.")
    lines = []
    for i, value in enumerate(expressions.values().tolist()):
        pair = (str(value), expressions.text(i))
        lines.append("\t".join(pair if layout == "original" else pair[::-1]) + "\n")
    head = "" if layout == "original" else "Source\tTarget\n"
    write_bytes(path, (head + "".join(lines)).encode())


def read_listops(path: str | os.PathLike[str]) -> Expressions:
    """Read a file of the original data or of the Long Range Arena, of either layout.

    Args:
        path: Lines of value, tab, expression, or of expression, tab, value; parentheses among the
            tokens are skipped, and so is a first line ``Source``, tab, ``Target``.

    Returns:
        The expressions; :func:`~hsa_geo.datasets.listops_trees.expression_trees` makes trees.

    Raises:
        FileFormatError: If a line is something else; the message says which.
        LabelError: If a value is not that of the expression.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/train.tsv"
        >>> write_listops(path, Expressions.parse(["[MAX 1 2 ]", "[MIN 1 2 ]"]))
        >>> read_listops(path).values().tolist()
        [2, 1]
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"'{path}' is no text in UTF-8 ({error}).") from None
    texts, values, numbers = [], [], []
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split("\t")]
        if not line.strip() or (number == 1 and fields == ["Source", "Target"]):
            continue
        if len(fields) == 2 and not fields[0].isdecimal():
            fields.reverse()
        if len(fields) != 2 or fields[0] not in tuple("0123456789"):
            raise FileFormatError(
                f"line {number} of '{path}' is {line[:60]!r}: a digit, a tab and an expression "
                "are needed."
            )
        numbers.append(number)
        values.append(int(fields[0]))
        texts.append(fields[1])
    try:
        found = Expressions.parse(texts)
    except BuilderError as error:
        raise FileFormatError(f"'{path}' holds no list operations: {error}") from None
    wrong = np.flatnonzero(found.values() != np.array(values, dtype=np.int64))
    if wrong.size:
        i = int(wrong[0])
        raise LabelError(
            f"line {numbers[i]} of '{path}' says {values[i]}, but the value of "
            f"{texts[i][:60]!r} is {found.values()[i]}: get the file again."
        )
    return found
