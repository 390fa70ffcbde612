"""Sentences of reviews, editorials and tweets, rated by many people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import unescape
from itertools import groupby
from typing import Any, ClassVar

import torch

from hsa_geo.builders import from_text
from hsa_geo.data import SignalTree
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.text_documents import OPTIONS, Document, text_tree
from hsa_geo.datasets.text_groups import linked_groups, same_text
from hsa_geo.datasets.text_trees import TextTrees, read_file
from hsa_geo.errors import ArchiveError, BuilderError, UnsupportedError

__all__ = ["SOURCES", "MovieSentences"]

#: The file of each source, and whether it says which sentences are of one document.
SOURCES: dict[str, tuple[str, bool]] = {
    "movies": ("movieReviewSnippets", False),
    "amazon": ("amazonReviewSnippets", True),
    "editorials": ("nytEditorialSnippets", True),
    "tweets": ("tweets", False),
}
_LIMIT = 4.0


class MovieSentences(TextTrees):
    r"""10,605 sentences of movie reviews, rated from -4 to 4; other sources on request.

    From the source distribution of ``vaderSentiment`` 3.3.2 (2.5 MB; MIT licence): the ground
    truth of C. J. Hutto and E. Gilbert, `VADER (2014)
    <https://doi.org/10.1609/icwsm.v8i1.14550>`_, means of about 20 raters.  ``y`` says whether
    the mean is above 0.

    ================  ============================  ==========================================
    ``source``        what there is                 items
    ================  ============================  ==========================================
    ``"movies"``      sentences                     10,605
    ``"amazon"``      reviews of their sentences    300 reviews, 3,708 sentences
    ``"editorials"``  editorials, likewise          498 editorials, 5,190 sentences
    ``"tweets"``      tweets                        4,200
    ================  ============================  ==========================================

    Where the source says which sentences are of one document, an item is a document: its rating
    is the mean of its sentences', ``sentence_node [S]`` are the tree nodes of the sentences and
    ``sentence_rating [S]`` their ratings (both only with ``hierarchy="given"`` and without
    ``max_words``).  With ``unit="sentence"`` each sentence is an item, and ``group_id`` that of its
    document.  Equal texts are in one group, too.

    Besides what every dataset of texts has (see :class:`TextTrees`), a tree has ``rating [1]``
    float32 and ``group_id [1]``.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log: As in :class:`TextTrees`.
        options: As there, and ``source`` (``"movies"``), and ``unit``: ``"document"`` or
            ``"sentence"`` (``"document"`` where there are some). (default: none)

    Raises:
        DownloadError: If the distribution cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.

    Example:
        >>> dataset = MovieSentences("data/movies")  # doctest: +SKIP
        >>> reviews = MovieSentences("data/movies", options={"source": "amazon"})  # doctest: +SKIP
    """

    file_name = "movie_sentences"
    part_size = 1024
    classes = ("negative", "positive")
    archives = (
        Archive(
            "pip-sdist",
            "vaderSentiment",
            "3.3.2",
            "vaderSentiment-3.3.2.tar.gz",
            "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
            inner="vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz",
            prefix="hutto_ICWSM_2014",
            patterns=("*_GroundTruth.txt",),
            max_bytes=64 << 20,
            size=2466783,
        ),
    )
    defaults: ClassVar[dict[str, Any]] = {**OPTIONS, "source": "movies", "unit": None}

    def documents(self) -> list[Document]:
        """The items of the source, in its order."""
        source, whole = self._source()
        path = self.raw() / f"{SOURCES[source][0]}_GroundTruth.txt"
        rows = _rows(read_file(path, self.counts), path.name)
        self.counts["sentences"] = len(rows)
        owners = [name.partition("_")[0] for name, _, _ in rows]
        self.counts["originals"] = len(set(owners))
        if not whole:
            given = owners if SOURCES[source][1] else [None] * len(rows)
            groups = linked_groups([given, [same_text(text) for *_, text in rows]])
            return [
                _item(name, text, rating, group)
                for (name, rating, text), group in zip(rows, groups)
            ]
        items = []
        for owner, some in groupby(zip(owners, rows), key=lambda pair: pair[0]):
            sentences = [row for _, row in some]
            text = "\n".join(text for *_, text in sentences)
            ratings = [rating for _, rating, _ in sentences]
            mean = sum(ratings) / len(ratings)
            items.append((owner, text, mean, ratings))
        groups = linked_groups([[same_text(text) for _, text, _, _ in items]])
        return [_item(*item[:3], group, item[3]) for item, group in zip(items, groups)]

    def structure(self, document: Document) -> SignalTree:
        """The sentences as they are given; one alone may be cut into several."""
        if document.parts is None:
            return text_tree(document.text, self.settings)
        tree: SignalTree = from_text(
            document.text,
            paragraphs=None,
            sentences=lambda text: text.split("\n"),
            punctuation=self.settings["punctuation"],
            max_group=self.settings["max_group"],
            max_leaves=None,
        )
        if self.settings["hierarchy"] == "given" and self.settings["max_words"] is None:
            nodes = [i for i, name in enumerate(tree.tree_name) if name == "sentence"]
            tree.sentence_node = torch.tensor([i for i in nodes if i >= tree.num_leaves])
            starts = tree.tree_span[tree.sentence_node, 0]
            lengths = torch.tensor([len(line) + 1 for line in document.text.split("\n")])
            place = torch.searchsorted(lengths.cumsum(0), starts, right=True)
            tree.sentence_rating = torch.tensor(document.parts)[place]
        return tree

    def _source(self) -> tuple[str, bool]:
        """The source, and whether its items are whole documents."""
        source, unit = self.settings["source"], self.settings["unit"]
        if source not in SOURCES:
            raise BuilderError(f"source={source!r}: use one of {', '.join(SOURCES)}.")
        if unit not in (None, "document", "sentence"):
            raise BuilderError(f"unit={unit!r}: use 'document' or 'sentence'.")
        whole = SOURCES[source][1] and unit != "sentence"
        if unit == "document" and not whole:
            raise UnsupportedError(
                f"unit='document' goes with the sources 'amazon' and 'editorials': '{source}' does "
                "not say which sentences are of one document."
            )
        changed = [k for k in ("sentences", "paragraphs", "language") if k in self.options]
        if whole and changed:
            raise UnsupportedError(
                f"{changed[0]}={self.options[changed[0]]!r} has no effect where sentences are "
                "given: leave it out, or pass unit='sentence'."
            )
        return source, whole


def _item(
    name: str, text: str, rating: float, group: int, parts: Sequence[Any] | None = None
) -> Document:
    values = {"rating": float(rating), "group_id": group}
    return Document(name, text, int(rating > 0), values, parts)


def _rows(content: str, name: str) -> list[tuple[str, float, str]]:
    """Id, rating and text of every line.

    Example:
        >>> _rows("1_1\\t-0.5\\tSo so &amp; so.\\r\\n", "a.txt")
        [('1_1', -0.5, 'So so & so.')]
    """
    rows = []
    for number, line in enumerate(content.split("\n"), 1):
        line = line.rstrip("\r")
        if not line:
            continue
        parts = line.split("\t", 2)
        try:
            rating = float(parts[1])
            text = " ".join(unescape(parts[2]).split())
        except (IndexError, ValueError):
            raise ArchiveError(
                f"line {number} of '{name}' is {line[:60]!r}, not an id, a rating and a text: use "
                "the pinned version."
            ) from None
        if not math.isfinite(rating) or abs(rating) > _LIMIT:
            raise ArchiveError(
                f"line {number} of '{name}' has the rating {rating}, which is not between -4 and "
                "4: use the pinned version."
            )
        rows.append((parts[0], rating, text))
    return rows
