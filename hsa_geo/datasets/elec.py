"""Elec: Amazon reviews of electronics, for users who have the files."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from hsa_geo.builders import from_text
from hsa_geo.builders.tokens import WORD
from hsa_geo.data import SignalTree
from hsa_geo.datasets.text_documents import GIVEN_OPTIONS, OPTIONS, Document, text_tree
from hsa_geo.datasets.text_groups import linked_groups, same_text
from hsa_geo.datasets.text_trees import TextTrees, read_file
from hsa_geo.errors import ArchiveError, BuilderError, LabelError, UnsupportedError

__all__ = ["Elec"]

_HOW = (
    "get elec2.tar.gz from http://riejohnson.com/cnn_data.html and unpack it there, so that there "
    "are elec-25k-train.txt.tok, elec-25k-train.cat, elec-test.txt.tok and elec-test.cat"
)
#: Label of a review in a ``.cat`` file.
_LABELS = {"1": 0, "2": 1}
#: The training sets are in this many parts, whose products differ.
_PARTS = 5
# A sentence ends behind tokens of full stops and the like, and the quotes that follow them.
_END = re.compile(r"(?<!\S)[.!?…]++(?!\S)(?:\s++(?:[.!?…]++|''|[\"'”’)\]»])(?!\S))*+\s*+")


class Elec(TextTrees):
    r"""Amazon reviews of electronics, good or bad: 25,000 training and 25,000 test reviews.

    R. Johnson and T. Zhang, `Effective use of word order for text categorization
    <https://aclanthology.org/N15-1011>`_ (2015).  No package holds it, so put the folder ``elec``
    into ``root/raw`` (a link will do)::

        root/raw/elec/elec-25k-train.txt.tok      a review a line, tokens apart by blanks
        root/raw/elec/elec-25k-train.cat          a label a line, 1 bad, 2 good
        root/raw/elec/elec-test.txt.tok
        root/raw/elec/elec-test.cat

    The tree is review, sentence, token: a leaf is a token that holds a letter or digit (with
    ``punctuation=True`` every token is one), a sentence ends behind a token ``.``, ``!`` or ``?``.
    With ``tokens=False`` the files ``.txt`` are read instead, and cut as any text.

    Besides what every dataset of texts has (see :class:`TextTrees`), a tree has ``split [1]`` (0
    training, 2 test), ``group_id [1]``, equal for equal texts, and ``part [1]``: the fifth of the
    training set, 0 to 4, or 5 for the test set.  The products of the parts differ, so hold out a
    part where a validation set should be of other products, too.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log: As in :class:`TextTrees`.
        options: As there for ``tokens=False``; else ``punctuation``, ``max_words``, ``names``,
            ``hierarchy``, ``windows``, ``seed``.  And ``size``: which training set, ``"25k"`` or
            another of which there is a file. (default: none)

    Raises:
        ArchiveError: If the folder is not there or not complete.
        LabelError: If a label is neither 1 nor 2.

    Example:
        >>> dataset = Elec("data/elec")  # doctest: +SKIP
        >>> train, validation, test = dataset.split()  # doctest: +SKIP
    """

    file_name = "elec"
    noun = "reviews"
    part_size = 1024
    build_version = 2  # split is 2 for test, not 1
    classes = ("negative", "positive")
    defaults: ClassVar[dict[str, Any]] = {**OPTIONS, "tokens": True, "size": "25k"}

    def documents(self) -> list[Document]:
        """The reviews: training, test, as they are in the files."""
        tokens, size = self.settings["tokens"], self.settings["size"]
        if not isinstance(tokens, bool) or not re.fullmatch(r"\w+", str(size)):
            raise BuilderError(f"tokens={tokens!r}, size={size!r}: give True or False, and '25k'.")
        changed = [key for key in OPTIONS if key in self.options and key not in GIVEN_OPTIONS]
        if tokens and changed:
            raise UnsupportedError(
                f"{changed[0]}={self.options[changed[0]]!r} has no effect where tokens are given: "
                "leave it out, or pass tokens=False."
            )
        folder = Path(self.raw_dir, "elec")
        found = []
        for split, stem in enumerate((f"elec-{size}-train", "elec-test")):
            texts = self._lines(folder / f"{stem}.txt{'.tok' if tokens else ''}")
            labels = self._lines(folder / f"{stem}.cat")
            if len(texts) != len(labels):
                raise ArchiveError(
                    f"'{stem}' has {len(texts)} reviews but {len(labels)} labels in '{folder}': "
                    "see that the files belong together."
                )
            for line, (text, label) in enumerate(zip(texts, labels)):
                if label.strip() not in _LABELS:
                    raise LabelError(
                        f"line {line + 1} of '{stem}.cat' is {label[:20]!r}, but labels are 1 "
                        "(bad) and 2 (good)."
                    )
                part = _PARTS if split else line * _PARTS // len(texts)
                text = " ".join(text.split())
                found.append((f"{stem}:{line + 1}", text, _LABELS[label.strip()], split, part))
        groups = linked_groups([[same_text(text, 5) for _, text, *_ in found]])
        return [
            Document(name, text, label, {"split": 2 * split, "part": part, "group_id": group})
            for (name, text, label, split, part), group in zip(found, groups)
        ]

    def structure(self, document: Document) -> SignalTree:
        """Sentences of the tokens that are given, or what the rules for texts find."""
        if not self.settings["tokens"]:
            return text_tree(document.text, self.settings)
        keep_all, tokens, at = self.settings["punctuation"], [], 0
        for token in document.text.split(" "):
            if keep_all or WORD.search(token):
                tokens.append((at, at + len(token)))
            at += len(token) + 1
        return from_text(
            document.text,
            tokenizer=lambda _: tokens,
            sentences=_sentences,
            paragraphs=None,
            max_leaves=None,
        )

    def _lines(self, path: Path) -> list[str]:
        if not path.is_file():
            raise ArchiveError(f"'{path}' is not there: {_HOW}.")
        lines = read_file(path, self.counts, "the data set").split("\n")
        return lines[:-1] if lines[-1] == "" else lines


def _sentences(text: str) -> list[tuple[int, int]]:
    """Spans of the sentences of a text of tokens apart by blanks.

    Example:
        >>> text = "it 's a no . 1 ! i 'd buy it"
        >>> [text[start:end] for start, end in _sentences(text)]
        ["it 's a no . ", '1 ! ', "i 'd buy it"]
    """
    cuts = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    return [(start, end) for start, end in pairwise(cuts) if end > start]
