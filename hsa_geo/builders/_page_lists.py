"""The nodes of a page as flat lists, filled while the page is walked.

Inner nodes are made only when their first leaf appears, so elements that show nothing leave
nothing behind, and a parent's id is always smaller than its children's.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import repeat
from typing import Any

from hsa_geo.builders.patches import PatchGrid
from hsa_geo.builders.tokens import (
    WORD,
    Field,
    attribute_tokens,
    count_tokens,
    hash_token,
    sentence_pieces,
    word_ids,
)

__all__ = ["Frame", "LeafKind", "PageLists"]


class LeafKind(IntEnum):
    """What a leaf of a page is: ``leaf_kind``.

    ===========  ===================================================================
    ``WORD``       a word of text
    ``CONTROL``    input (not hidden), select, textarea or button
    ``IMAGE``      img or svg, with the tokens of its alternative text
    ``PATCH``      a square of a decoded picture; features in ``image_x``
    ``MEDIA``      audio, video, canvas, iframe, frame, embed, meter or progress
    ===========  ===================================================================

    Example:
        >>> [kind.name for kind in LeafKind]
        ['WORD', 'CONTROL', 'IMAGE', 'PATCH', 'MEDIA']
    """

    WORD = 0
    CONTROL = 1
    IMAGE = 2
    PATCH = 3
    MEDIA = 4


_INNER = -1


class Frame:
    """An open element that text can fall into; its node is made when its first leaf comes."""

    __slots__ = ("flat", "form", "id", "inline", "name", "owner", "sentence", "up")

    def __init__(
        self,
        name: str,
        up: Frame | None,
        flat: bool = False,
        inline: bool = False,
        form: Any = None,
    ) -> None:
        self.name = name
        self.up = up
        self.flat = flat  # words are children of the node itself, not of a sentence
        self.inline = inline  # the node stands in a sentence
        self.form = form  # the <form> element that the node stands for, if any
        # The form around it.
        self.owner: Any = form if form is not None or up is None else up.owner
        self.id = -1
        self.sentence = -1  # the open sentence's node


class PageLists:
    """Flat lists of a page's nodes and tokens, and the ways to add to them.

    Args:
        buckets: Hash buckets of the tokens.
        field_tokens: At most that many tokens of each field of a leaf that is no word.

    Attributes:
        parent, name, kind: Per node: parent id, name, :class:`LeafKind` or -1 for inner nodes.
        sentence: Ids of the sentence nodes.
        pinned: Ids of the nodes that are never collapsed away.
        cells: Ids of the nodes whose children are the cells of a table.
        cell_pos: Per cell: its id, row and column.
        words, tags: Per word leaf, in order: the word and the nearest element's tag.
        extra: Tokens of the other leaves: lists of node, field and id.
        patches: The grid of each decoded image; ``grid`` its node, ``patch_node`` its first leaf.
        form_node, form_order: Per form with a leaf: its node and ordinal among all forms.
        left_out: Number of tokens of fields beyond ``field_tokens``.
        frame: The innermost open element.
    """

    def __init__(self, buckets: int, field_tokens: int) -> None:
        self.buckets, self.field_tokens = buckets, field_tokens
        self.parent: list[int] = [-1]
        self.name: list[str] = ["html"]
        self.kind: list[int] = [_INNER]
        self.sentence: list[int] = []
        self.pinned: list[int] = [0]
        self.cells: list[int] = []
        self.cell_pos: list[tuple[int, int, int]] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.extra: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.patches: list[PatchGrid] = []
        self.grid: list[int] = []
        self.patch_node: list[int] = []
        self.form_node: list[int] = []
        self.form_order: list[int] = []
        self.form_ordinal: dict[int, int] = {}  # of a form element's mem_id
        self.form_ids: dict[int, list[int]] = {}  # tokens of a form element, by its mem_id
        self.left_out = 0
        self.frame = Frame("html", None)
        self.frame.id = 0

    # Nodes ##################################################################

    def add_inner(self, parent: int, name: str) -> int:
        """Make an inner node; returns its id."""
        self.parent.append(parent)
        self.name.append(name)
        self.kind.append(_INNER)
        return len(self.parent) - 1

    def add_leaf(self, parent: int, name: str, kind: LeafKind) -> int:
        """Make a leaf that is no word; returns its id."""
        self.parent.append(parent)
        self.name.append(name)
        self.kind.append(kind)
        return len(self.parent) - 1

    def node_of(self, frame: Frame) -> int:
        """The node of an open element, made now if it has none, with those above it."""
        pending = []
        top: Frame | None = frame
        while top is not None and top.id < 0:
            pending.append(top)
            top = top.up
        for one in reversed(pending):
            assert one.up is not None
            above = self.slot(one.up) if one.inline else one.up.id
            one.id = self.add_inner(above, one.name)
            if one.form is not None:
                self.register_form(one)
        return frame.id

    def register_form(self, frame: Frame) -> None:
        """Note that a node stands for a form."""
        self.pinned.append(frame.id)
        self.form_node.append(frame.id)
        self.form_order.append(self.form_ordinal[frame.form.mem_id])

    def slot(self, frame: Frame) -> int:
        """Where inline things go: the open sentence, or the node itself in a link."""
        if frame.flat:
            return frame.id if frame.id >= 0 else self.node_of(frame)
        if frame.sentence < 0:
            node = frame.id if frame.id >= 0 else self.node_of(frame)
            frame.sentence = self.add_inner(node, "sentence")
            self.sentence.append(frame.sentence)
        return frame.sentence

    # Text ###################################################################

    def add_words(self, words: list[str], tag: str) -> None:
        """Word leaves, in the open sentence."""
        if words:
            n = len(words)
            self.parent.extend(repeat(self.slot(self.frame), n))
            self.name += words
            self.kind.extend(repeat(0, n))
            self.words += words
            self.tags.extend(repeat(tag, n))

    def add_line(self, run: list[str], tags: list[str]) -> None:
        """Cut a line of text, gathered over inline elements, into sentences of words.

        Args:
            run: The texts of the line, in order.
            tags: The nearest element's tag of each; a word has the tag of its first letter.
        """
        frame, text, tag = self.frame, "".join(run), tags[0]
        sentences = [text] if frame.flat else sentence_pieces(text)
        if len(run) == 1 or tags.count(tag) == len(tags):
            for k, sentence in enumerate(sentences):
                if k:
                    frame.sentence = -1
                self.add_words(WORD.findall(sentence), tag)
            return
        piece, end, start = 0, len(run[0]), 0
        for k, sentence in enumerate(sentences):
            if k:
                frame.sentence = -1
            start = text.index(sentence, start)
            for match in WORD.finditer(sentence):
                while start + match.start() >= end:
                    piece += 1
                    end += len(run[piece])
                self.add_words([match.group()], tags[piece])
            start += len(sentence)

    # Tokens of leaves that are not words ####################################

    def add_tokens(self, leaf: int, field: Field, ids: list[int]) -> None:
        """Tokens of one field of a leaf, at most ``field_tokens``."""
        nodes, fields, tokens = self.extra
        self.left_out += max(0, len(ids) - self.field_tokens)
        ids = ids[: self.field_tokens]
        nodes.extend(repeat(leaf, len(ids)))
        fields.extend(repeat(int(field), len(ids)))
        tokens += ids

    def add_token(self, leaf: int, field: Field, token: str) -> None:
        """One token of a leaf, whole."""
        self.add_tokens(leaf, field, [hash_token(token, self.buckets)])

    def text_limit(self) -> int:
        """How many characters of a text are looked at to find ``field_tokens`` words."""
        return 64 * self.field_tokens + 64

    def _head(self, text: str) -> str:
        """What of a text is looked at; the words behind it are counted."""
        limit = self.text_limit()
        if len(text) <= limit:
            return text
        self.left_out += count_tokens(text, limit)
        return text[:limit]

    def text_ids(self, text: str | None) -> list[int]:
        """Ids of the words of an attribute that is shown, such as ``placeholder``."""
        if not text:
            return []
        return self.word_list_ids(WORD.findall(self._head(text)))

    def word_list_ids(self, words: list[str]) -> list[int]:
        """Ids of the first ``field_tokens`` words of a list."""
        self.left_out += max(0, len(words) - self.field_tokens)
        return [i for word in words[: self.field_tokens] for i in word_ids(word, self.buckets)]

    def key_ids(self, text: str | None) -> list[int]:
        """Ids of the parts of an attribute that is not shown, such as ``name``."""
        if not text:
            return []
        found = attribute_tokens(self._head(text))
        return [hash_token(token, self.buckets) for token in found]
