"""The tokens of a text: spans, ids and names, by whatever tokenizer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsa_geo.builders._text_spans import Ints, guarded, quote, spans_of
from hsa_geo.builders.tokens import HASH_BUCKETS, WORD, ids_of_words
from hsa_geo.errors import BuilderError, UnsupportedError

__all__ = ["Tokens", "read_tokens"]

_SURROGATE = re.compile("[\ud800-\udfff]")
# Joiner and variation selectors, which belong to what stands before them.
_JOINED = frozenset(map(chr, [0x200D, *range(0xFE00, 0xFE10)]))


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, in reading order.

    Attributes:
        start, end: ``[n]``, character spans, in order and disjoint.
        place: ``[n]``, where each begins; before ``start`` if that character is another's too.
        ids: ``[r]``, all ids.
        counts: ``[n]``, how many of them each token has.
        names: The tokens as text.
        special: ``[n]``, whether the tokenizer added it to the text.
    """

    start: Ints
    end: Ints
    place: Ints
    ids: Ints
    counts: Ints
    names: list[str]
    special: NDArray[np.bool_]

    def head(self, n: int) -> Tokens:
        """The first n tokens."""
        rows = int(self.counts[:n].sum())
        return Tokens(
            self.start[:n],
            self.end[:n],
            self.place[:n],
            self.ids[:rows],
            self.counts[:n],
            self.names[:n],
            self.special[:n],
        )


def read_tokens(
    text: str, tokenizer: Any, punctuation: bool, special_tokens: bool, buckets: int | None
) -> Tokens:
    """Cut a text into tokens; the arguments are those of :func:`from_text`.

    Example:
        >>> tokens = read_tokens("to be", "words", False, False, None)
        >>> tokens.names, tokens.start.tolist(), tokens.end.tolist()
        (['to', 'be'], [0, 3], [2, 5])
    """
    own = isinstance(tokenizer, str) and tokenizer == "words"
    if punctuation and not own:
        raise UnsupportedError(
            "punctuation=True goes with tokenizer='words' only: another tokenizer says itself "
            "what it keeps."
        )
    hugging_face = _hugging_face(tokenizer)
    if special_tokens and hugging_face is None:
        raise UnsupportedError(
            "special_tokens=True needs a tokenizer that has some: pass a Hugging Face fast "
            "tokenizer, or leave it out."
        )
    if hugging_face is not None:
        if buckets is not None:
            raise UnsupportedError(
                f"hash_buckets={quote(buckets)} has no effect with a Hugging Face tokenizer, whose "
                "own ids are kept: leave it out."
            )
        return _encode(text, hugging_face, special_tokens)
    if own:
        names, start = _words(text, punctuation)
        end = start + np.fromiter(map(len, names), np.int64, count=len(names))
    elif callable(tokenizer):
        start, end = spans_of(tokenizer(text), text, "the tokenizer")
        names = [text[s:e] for s, e in zip(start.tolist(), end.tolist())]
    else:
        raise BuilderError(
            f'tokenizer={quote(tokenizer)} is neither "words", a function nor a '
            "tokenizer: load one first, e.g. AutoTokenizer.from_pretrained(...)."
        )
    ids = ids_of_words(names, HASH_BUCKETS if buckets is None else buckets)
    counts = np.fromiter(map(len, ids), np.int64, count=len(ids))
    flat = np.fromiter(chain.from_iterable(ids), np.int64, count=int(counts.sum()))
    special = np.zeros(len(names), dtype=bool)
    return Tokens(start, end, start, flat, counts, names, special)


def _words(text: str, punctuation: bool) -> tuple[list[str], Ints]:
    """Words and where they start; with the runs of one mark between them on request."""
    names: list[str] = []
    starts: list[int] = []
    at = 0
    for match in WORD.finditer(text):
        if punctuation:
            _marks(text, at, match.start(), names, starts)
            at = match.end()
        names.append(match.group())
        starts.append(match.start())
    if punctuation:
        _marks(text, at, len(text), names, starts)
    return names, np.array(starts, dtype=np.int64)


def _marks(text: str, start: int, end: int, names: list[str], starts: list[int]) -> None:
    while start < end:
        mark, first = text[start], start
        start += 1
        if mark.isspace() or not mark.isprintable() or mark in _JOINED:
            continue
        while start < end and (text[start] == mark or text[start] in _JOINED):
            start += 1
        names.append(text[first:start])
        starts.append(first)


# Hugging Face ##############################################################


def _hugging_face(tokenizer: Any) -> Any:
    """The ``tokenizers.Tokenizer`` of a fast tokenizer; None if it is of another kind."""
    modules = {kind.__module__.partition(".")[0] for kind in type(tokenizer).__mro__}
    if "transformers" in modules:
        if not getattr(tokenizer, "is_fast", False):
            raise UnsupportedError(
                f"the tokenizer {type(tokenizer).__name__} is a slow one and knows no offsets: "
                "load the fast one (AutoTokenizer.from_pretrained(..., use_fast=True)), or pass a "
                "function that returns (start, end) pairs."
            )
        return tokenizer.backend_tokenizer
    if "tokenizers" in modules and hasattr(tokenizer, "encode"):
        return getattr(tokenizer, "_tokenizer", tokenizer)  # of tokenizers.implementations
    return None


def _encode(text: str, tokenizer: Any, special_tokens: bool) -> Tokens:
    clean = _SURROGATE.sub("\ufffd", text)  # which it does not take

    def call() -> tuple[Any, ...]:
        made = tokenizer.encode(clean, add_special_tokens=special_tokens)
        return made.ids, made.offsets, made.tokens, made.special_tokens_mask

    truncation, padding = tokenizer.truncation, tokenizer.padding
    try:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids, offsets, names, mask = guarded(call, "the tokenizer", "check its vocabulary")
    finally:
        if truncation is not None:
            tokenizer.enable_truncation(**truncation)
        if padding is not None:
            tokenizer.enable_padding(**padding)

    n = len(ids)
    flat = np.fromiter(chain.from_iterable(offsets), np.int64, count=2 * n).reshape(n, 2)
    special = np.array(mask, dtype=bool) if special_tokens else np.zeros(n, dtype=bool)
    regular = np.flatnonzero(~special)
    if regular.size and special[regular[0] : regular[-1]].any():
        raise UnsupportedError(
            "the tokenizer adds special tokens in the midst of the text: pass special_tokens=False."
        )
    start, end, place = np.zeros((3, n), dtype=np.int64)
    start[regular], end[regular], place[regular] = _disjoint(flat[regular], len(text))
    if regular.size:
        start[regular[-1] + 1 :] = end[regular[-1] + 1 :] = len(text)
    names = [text[s:e] or name for s, e, name in zip(start.tolist(), end.tolist(), names)]
    ids = np.array(ids, dtype=np.int64)
    return Tokens(start, end, place, ids, np.ones(n, dtype=np.int64), names, special)


def _disjoint(offsets: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """Spans in order, start, end, and where their tokens begin, from a tokenizer's offsets.

    A character belongs to the first token that touches it, e.g. to the first of its bytes.

    Example:
        >>> [part.tolist() for part in _disjoint(np.array([[0, 1], [1, 2], [1, 2], [1, 3]]), 3)]
        [[0, 1, 2, 2], [1, 2, 2, 3], [0, 1, 1, 1]]
    """
    start, end = np.clip(offsets, 0, n).T
    empty = end <= start
    taken = np.append(0, np.maximum.accumulate(np.where(empty, 0, end)))[:-1]
    ahead = np.minimum.accumulate(np.where(empty, n, start)[::-1])[::-1]
    # One without characters stands between those around it, whatever its offset.
    first = np.maximum(np.where(empty, np.minimum(start, ahead), start), taken)
    first = np.maximum.accumulate(first)
    last = np.maximum(np.where(empty, 0, end), first)
    return first, last, np.maximum.accumulate(np.where(empty, first, np.minimum(start, first)))
