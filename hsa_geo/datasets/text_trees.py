"""What the datasets of texts share: words, vocabulary and texts.

A subclass says which documents there are (:meth:`TextTrees.documents`), and how one becomes a
tree if not by :func:`hsa_geo.builders.from_text` (:meth:`TextTrees.structure`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import options_dict
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.datasets.text_documents import (
    OPTIONS,
    Document,
    check_options,
    document_tree,
    text_tree,
)
from hsa_geo.errors import ArchiveError, BuilderError

__all__ = ["TextTrees", "plain_review", "read_file"]

Ints = NDArray[np.int64]

_BREAKS = re.compile(r"(?:\s*<br\s*/?>\s*)+", re.IGNORECASE)
_TAGS = re.compile(r"<[/a-zA-Z!][^<>]{0,2000}>")


class TextTrees(StoredTrees):
    r"""Base of datasets of texts whose leaves are words.

    Each tree has

    ===============  =================  ======================================================
    ``word_x``       ``[N]`` int64      word of each leaf, place in :attr:`vocabulary`
    ``word_index``   ``[N]`` int64      row of its leaf: ``0..N-1``
    ``tree_span``    ``[M, 2]`` int64   characters of each node in :meth:`text`
    ``y``            ``[1]`` int64      class, place in :attr:`classes`
    ``doc_id``       ``[1]`` int64      number of the document, place in :attr:`names`
    ===============  =================  ======================================================

    and, where a dataset knows them, ``group_id [1]`` int64 (documents of one group belong on one
    side of a split), ``split [1]`` int64 (the set that it comes in: 0 training, 1 validation, 2
    test) and ``rating [1]`` float32.

    Args:
        root: Folder that holds ``raw`` and ``processed``.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing; may add tensors. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress and the report while building. (default: :obj:`True`)
        options: How a text becomes a tree; trees of different options are stored side by side.
            Of :func:`~hsa_geo.builders.from_text`: ``sentences`` (``"plain"``, ``"sentencex"`` or
            :obj:`None`), ``paragraphs``, ``language``, ``max_group``, ``punctuation``
            (:obj:`False`); besides ``max_words`` (keep so many first words), ``names`` (keep
            ``tree_name``, :obj:`False`), and ``hierarchy``: ``"given"``, or over the same words
            ``"windows"`` of sizes ``windows`` (``[16, 4]``), ``"flat"``, or ``"random"``: groups
            of the same sizes, words dealt out to them by ``seed`` (0).  (default: none)

    Raises:
        UnsupportedError: If an option is unknown or has no effect.
        BuilderError: If the value of an option is out of range.
        ArchiveError: If the source cannot be had, or is not what it should be.

    Example:
        >>> dataset = Brown("data/brown")  # doctest: +SKIP
        >>> train, validation, test = dataset.split(fold=0)  # doctest: +SKIP
        >>> dataset[train]  # doctest: +SKIP
    """

    noun = "documents"
    stored = ("vocabulary", "texts", "names")
    part_size = 256

    #: Options and their defaults.
    defaults: ClassVar[Mapping[str, Any]] = OPTIONS
    #: The words, from frequent to rare.
    vocabulary: list[str]
    #: The texts, by ``doc_id``.
    texts: list[str]
    #: The names of the documents, by ``doc_id``.
    names: list[str]

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
        self.settings = check_options(options_dict(options), self.defaults)
        #: What the report says of the source, besides the number of documents and words.
        self.counts: dict[str, Any] = {}
        super().__init__(root, transform, pre_transform, pre_filter, force_reload, log, options)

    # What a subclass says ###################################################

    def documents(self) -> list[Document]:
        """All documents, in a fixed order; :attr:`counts` may be filled on the way."""
        raise NotImplementedError

    def structure(self, document: Document) -> SignalTree:
        """The tree of a document, with ``tree_name`` and ``tree_span``, of all its words."""
        return text_tree(document.text, self.settings)

    # Building ###############################################################

    def items(self) -> Sequence[int]:
        """Numbers of the documents."""
        self._documents = self.documents()
        self.texts = [document.text for document in self._documents]
        self.names = [document.name for document in self._documents]
        return range(len(self._documents))

    def describe(self, item: int) -> str:
        """Name of a document."""
        return self.names[item]

    def build(self, items: Iterator[int]) -> tuple[list[SignalTree], dict[str, Any]]:
        """Trees of some documents, whose words have ids of their own."""
        ids, trees, failed = dict[str, int](), [], dict[str, str]()
        for item in items:
            document = self._documents[item]
            try:
                tree, words = document_tree(self.structure(document), self.settings)
            except BuilderError as error:
                failed[document.name] = f"{type(error).__name__}: {error}"
                continue
            n = len(words)
            tree.word_x = torch.tensor([ids.setdefault(word, len(ids)) for word in words])
            tree.word_index = torch.arange(n)
            tree.y = torch.tensor([document.label])
            tree.doc_id = torch.tensor([item])
            for key, value in document.values.items():
                tree[key] = torch.tensor([value])
            trees.append(tree)
        return trees, {"words": list(ids), "trees": len(trees), "failed": failed}

    def finish(
        self, items: Sequence[int], trees: list[SignalTree], extras: Sequence[Mapping[str, Any]]
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """All trees, with one vocabulary; what the report says."""
        ids, local, at = dict[str, int](), [], 0
        for extra in extras:
            own = torch.tensor([ids.setdefault(word, len(ids)) for word in extra["words"]])
            local += [own] * extra["trees"]
        used = [own.long()[tree.word_x] for own, tree in zip(local, trees)]
        count = torch.bincount(torch.cat(used), minlength=len(ids)) if used else torch.empty(0)
        words = list(ids)
        order = sorted(range(len(ids)), key=lambda i: (-int(count[i]), words[i]))
        self.vocabulary = [words[i] for i in order]
        rank = torch.empty(len(ids), dtype=torch.int64)
        rank[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(ids))
        for tree, own in zip(trees, used):
            tree.word_x = rank[own]
            at += tree.num_leaves
        failed = {name: why for extra in extras for name, why in extra["failed"].items()}
        report = {
            "documents": len(items),
            "words": at,
            "vocabulary": len(words),
            "failed": failed,
            **self.counts,
        }
        self._documents = []
        return trees, report

    # What one asks of the texts #############################################

    def text(self, i: int) -> str:
        """Text of document ``i``, to which ``tree_span`` refers.

        Example:
            >>> dataset.text(0)[:20]  # doctest: +SKIP
        """
        return self.texts[self._doc_id(i)]

    def name(self, i: int) -> str:
        """Name of document ``i``."""
        return self.names[self._doc_id(i)]

    def words(self, i: int) -> list[str]:
        """Words of the leaves of document ``i``, in reading order, in lower case.

        Example:
            >>> " ".join(dataset.words(0))  # doctest: +SKIP
        """
        ids = self.get(self.indices()[i]).word_x
        return [self.vocabulary[word] for word in ids.tolist()]

    def groups(self) -> Ints:
        """Group of every document: those of one group belong on one side of a split.

        Returns:
            ``[len(self)]`` int64; where a dataset knows no groups, each is its own.

        Example:
            >>> len(set(dataset.groups().tolist()))  # doctest: +SKIP
        """
        groups = self._groups()
        return self.column("doc_id").numpy() if groups is None else groups

    def _doc_id(self, i: int) -> int:
        return int(self._data.doc_id[self.indices()[i]])


def read_file(path: Path, counts: dict[str, Any], what: str = "the archive") -> str:
    """Text of a file in UTF-8; what is none is replaced and counted.

    Args:
        path: The file.
        counts: ``counts["undecodable"]`` goes up by one if the file is no UTF-8.
        what: What the file belongs to, for the message.

    Returns:
        The text, without a byte order mark.

    Raises:
        ArchiveError: If the file is not there or cannot be read.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> counts, _ = {}, path.write_bytes(b"caf\\xe9")
        >>> read_file(path, counts), counts
        ('caf\ufffd', {'undecodable': 1})
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArchiveError(
            f"'{path}' cannot be read ({error.strerror}), so {what} is not complete: remove "
            f"'{path.parent}' to make it anew."
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        counts["undecodable"] = counts.get("undecodable", 0) + 1
        return content.decode("utf-8-sig", "replace")


def plain_review(text: str) -> str:
    """Text of a review from the web: breaks end paragraphs, other markup goes.

    Example:
        >>> plain_review('Good.<br /><br />I &amp; my <a href="#">dog</a> <3 it')
        'Good.\\n\\nI & my dog <3 it'
    """
    return unescape(_TAGS.sub("", _BREAKS.sub("\n\n", text))).strip()
