"""Where the paragraphs and sentences of a text begin.

Both *tile* the text: each reaches to the beginning of the next, so that no character lies between
them.  The rules stand in :mod:`hsa_geo.builders.text`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hsa_geo._optional import require
from hsa_geo.builders._text_spans import Ints, guarded, quote, spans_of
from hsa_geo.errors import BuilderError, UnsupportedError

__all__ = ["Rule", "paragraph_starts", "sentence_starts"]

#: How a text is cut: a name, a function, or not at all.
Rule = str | Callable[[str], Any] | None

# Possessive throughout, so that no text makes them backtrack.
_LINE_BREAK = r"(?:\r\n?+|[\n\x0b\x85\u2028])"
_LINE = re.compile(rf"{_LINE_BREAK}|[\f\u2029]")
_BLANK_LINE = re.compile(
    rf"{_LINE_BREAK}(?:[^\S\n\r\x0b\f\x85\u2028\u2029]*+{_LINE_BREAK})++|[\f\u2029]"
)
# . ! ? and their like in Arabic, Urdu, Devanagari, Armenian, Ethiopic, Burmese, Khmer; small
# letters of Latin, Greek, Cyrillic.
_STOPS = ".!?…؟۔।॥։።፧။៕"
_SENTENCE = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]++[\"'”’)\]»]*+\s++(?![a-zß-öø-ÿάέ-ώа-џ])"
    r"|[。！？｡]++[”’」』）)\"]*+"
)
_WINDOW = 2**13


def paragraph_starts(text: str, rule: Rule) -> Ints:
    """Where paragraphs begin; the first at 0.

    Args:
        text: The text.
        rule: ``"blank"``, ``"line"``, or a function.

    Returns:
        ``[P]``, increasing.

    Example:
        >>> paragraph_starts("One.\\n\\nTwo.", "blank").tolist()
        [0, 6]
    """
    if callable(rule):
        return _increasing(spans_of(rule(text), text, "paragraphs")[0][1:].tolist(), len(text))
    if not isinstance(rule, str) or rule not in ("blank", "line"):
        raise BuilderError(
            f'paragraphs={quote(rule)} is neither "blank", "line", a function nor None.'
        )
    pattern = _BLANK_LINE if rule == "blank" else _LINE
    return _increasing([match.end() for match in pattern.finditer(text)], len(text))


def sentence_starts(text: str, paragraphs: Ints, rule: Rule, language: str | None) -> Ints:
    """Where sentences begin, the beginnings of paragraphs included.

    Args:
        text: The text.
        paragraphs: What :func:`paragraph_starts` found.
        rule: ``"plain"``, ``"sentencex"``, or a function.
        language: Code of the text's language, for ``"sentencex"``.

    Returns:
        ``[S]``, increasing.

    Example:
        >>> sentence_starts("To be. Or not", np.array([0]), "plain", None).tolist()
        [0, 7]
    """
    named = isinstance(rule, str)
    if language is not None and not (named and rule == "sentencex"):
        raise UnsupportedError(
            f"language={quote(language)} has no effect with sentences={quote(rule)}: pass "
            'sentences="sentencex", or no language.'
        )
    if callable(rule):
        cuts = _in_paragraphs(text, paragraphs, _by_function(rule))
    elif named and rule == "plain":
        cuts = [match.end() for match in _SENTENCE.finditer(text)]
    elif named and rule == "sentencex":
        cuts = _in_paragraphs(text, paragraphs, _Sentencex(language))
    else:
        raise BuilderError(
            f'sentences={quote(rule)} is neither "plain", "sentencex", a function nor None.'
        )
    return _increasing([*cuts, *paragraphs.tolist()], len(text))


def _increasing(cuts: list[int], n: int) -> Ints:
    array = np.unique(np.array([0, *cuts], dtype=np.int64))
    return array[array < n] if n else array


def _in_paragraphs(text: str, paragraphs: Ints, cutter: Callable[[str], list[int]]) -> list[int]:
    """Cuts of every paragraph that is not blank, which the cutter is given without its blanks."""
    cuts: list[int] = []
    bounds = [*paragraphs.tolist(), len(text)]
    for start, end in pairwise(bounds):
        piece = text[start:end].rstrip()
        start += len(piece)
        piece = piece.lstrip()
        if piece:
            start -= len(piece)
            cuts += [start + cut for cut in cutter(piece)]
    return cuts


def _by_function(rule: Callable[[str], Any]) -> Callable[[str], list[int]]:
    def cutter(paragraph: str) -> list[int]:
        return spans_of(rule(paragraph), paragraph, "sentences")[0][1:].tolist()

    return cutter


class _Sentencex:
    """Cuts by the library sentencex, in time linear in the text.

    The library looks through a paragraph again for every quotation mark that is not closed, so it
    is given at most ``_WINDOW`` characters, and goes on at the last sentence that it found there.
    """

    def __init__(self, language: str | None) -> None:
        code = "en" if language is None else language
        if not isinstance(code, str) or not re.match(r"[A-Za-z]{2,3}(?![A-Za-z])", code):
            raise BuilderError(
                f'language={quote(language)} is no language code: give one like "en".'
            )
        self.language = re.split(r"[^A-Za-z]", code)[0].lower()
        self.library = require("sentencex", extra="text", purpose='sentences="sentencex"')

    def __call__(self, paragraph: str) -> list[int]:
        clean, n = _without_rare_blanks(paragraph), len(paragraph)
        cuts: list[int] = []
        at = 0
        while n - at > _WINDOW:
            stop = at + _WINDOW
            stop = max(clean.rfind(" ", at, stop), clean.rfind("\n", at, stop)) + 1 or stop
            ends = self._ends(clean[at:stop])
            cuts += [at + end for end in ends[:-1]]
            at = at + ends[-2] if len(ends) > 1 else stop
        return cuts + [at + end for end in self._ends(clean[at:])[:-1]]

    def _ends(self, piece: str) -> list[int]:
        def call() -> list[str]:
            return list(self.library.segment(self.language, piece))

        remedy = 'pass sentences="plain"'
        sentences = guarded(call, f"sentencex, given {quote(piece)},", remedy)
        if "".join(sentences) != piece:
            raise BuilderError(
                f"sentencex did not give back the text {quote(piece)}: update it to 1.0 or later, "
                f"or {remedy}."
            )
        return list(accumulate(map(len, filter(None, sentences))))


def _without_rare_blanks(text: str) -> str:
    """A text of the same length that sentencex neither shortens nor fails on.

    Blanks become spaces, line breaks line feeds, and of several in a row only the first stays;
    lone surrogates become U+FFFD.
    """
    text = text.replace("\r\n", " \n").translate(_BLANK_OF)
    return re.sub(r"\n[ \n]++", lambda run: "\n".ljust(len(run[0])), text)


_BLANK_OF = {code: " " for code in range(0x3001) if chr(code).isspace()}
_BLANK_OF |= dict.fromkeys(map(ord, "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), "\n")
_BLANK_OF |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
