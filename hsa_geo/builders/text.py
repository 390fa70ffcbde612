r"""Texts as signal trees: document, paragraphs, sentences, words.

The rules, once:

- Leaves are tokens.  The word splitter (:mod:`hsa_geo.builders.tokens` says what a word is) leaves
  punctuation out, as :func:`~hsa_geo.builders.from_html` does; ``punctuation=True`` keeps it: what
  stands between words, without blanks and what cannot be printed, one leaf for each run of one
  mark (``...``).
- A paragraph ends at a blank line (one with nothing but blanks), a form feed or U+2029; with
  ``"line"`` at every line break.  Line breaks are ``\n``, ``\r``, ``\r\n``, U+000B, U+0085,
  U+2028.
- A sentence ends where its paragraph ends.  Within it, the plain splitter cuts behind
  ``. ! ? …`` and their like in other scripts (with closing quotes and brackets) before a blank
  that no small letter follows, and behind the full stops of Chinese and Japanese, blank or not.
  So ``Dr. Smith`` is cut: the library ``sentencex`` knows abbreviations, in the text's language.
- A paragraph or sentence without tokens is no node.  Every other is one, even if it has a single
  child, so that all words are on one level (but for windows, see
  ``max_group``).
- ``tree_span`` of every node is its ``[start, end)`` in the given text, in characters (code
  points), so ``text[start:end]`` is what it stands for: of a leaf the token itself, of a sentence
  or paragraph all of it with its punctuation, without the blanks around it, of the root the whole
  text.  Siblings lie one behind the other and do not overlap, parents cover their children.
- A token that reaches over the end of a sentence belongs to the one in which its first character
  lies that is not blank, and one of blanks to that of the next such character; the span of this
  sentence grows by the token.
- Children of every node are a sequence; ``tree_pos[:, 0]`` is the index among siblings.

Example:
    >>> text = "To be, or not to be. That is the question!\n\nAye."
    >>> tree = from_text(text)
    >>> tree.num_leaves, tree.depth
    (11, 3)
    >>> for (start, end), name in zip(tree.tree_span[11:16].tolist(), tree.tree_name[11:16]):
    ...     print(f"{name}: {text[start:end]}")
    sentence: To be, or not to be.
    sentence: That is the question!
    sentence: Aye.
    paragraph: To be, or not to be. That is the question!
    paragraph: Aye.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from hsa_geo.builders._arguments import check_choice, check_flags, shown
from hsa_geo.builders._source import over_limit
from hsa_geo.builders._text_cuts import Rule, paragraph_starts, sentence_starts
from hsa_geo.builders._text_spans import Ints, quote
from hsa_geo.builders._text_tokens import Tokens, read_tokens
from hsa_geo.builders._text_tree import text_tree
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, HSAWarning, LimitError

__all__ = ["from_text"]

#: A single word with the ending of a file; with blanks it could be the end of a sentence.
_LIKE_A_PATH = re.compile(r"[^<>\s]{1,4096}\.(txt|text|md|rst|csv|tsv|json|pdf|docx?|html?)", re.I)


def from_text(
    text: str,
    *,
    tokenizer: str | Callable[[str], Any] | Any = "words",
    sentences: Rule = "plain",
    paragraphs: Rule = "blank",
    language: str | None = None,
    punctuation: bool = False,
    special_tokens: bool = False,
    max_group: int | None = None,
    hash_buckets: int | None = None,
    names: bool = True,
    max_leaves: int | None = 2**22,
    on_limit: str = "error",
) -> SignalTree:
    r"""Turn a text into a signal tree (the rules stand in the module's docstring).

    Args:
        text: One document.  Any characters will do, lone surrogates and NUL too.
        tokenizer: What makes the leaves. (default: ``"words"``)

            - ``"words"``: words of any language, see :mod:`hsa_geo.builders.tokens`.
            - A Hugging Face *fast* tokenizer, of ``transformers`` or ``tokenizers``: its ids and
              offsets, of the whole text at once, whatever truncation or padding it is set to.  A
              character that several tokens share (bytes of an emoji, say) is in the span of the
              first of them; those behind have an empty span.
            - A function: given the text, it returns strings, each found in the text behind the one
              before, or (start, end) pairs.  Empty ones are left out.
        sentences: How a paragraph is cut into sentences. (default: ``"plain"``)

            - ``"plain"``: at full stops and the like; fast.
            - ``"sentencex"``: by the library of that name, which knows the abbreviations of many
              languages.
            - A function: given a paragraph (without blanks around it), it returns strings or
              pairs, as a tokenizer does; what lies between two sentences belongs to the first.
            - :obj:`None`: no level of sentences.
        paragraphs: How the text is cut into paragraphs: ``"blank"`` at blank lines, ``"line"`` at
            line breaks, a function as for sentences, or :obj:`None` for no level of paragraphs.
            (default: ``"blank"``)
        language: Code of the text's language, such as ``"de"``, for ``sentences="sentencex"``,
            which takes a language that it does not know for English. (default: ``"en"``)
        punctuation: Keep what stands between words as leaves, with ``tokenizer="words"``.
            (default: :obj:`False`)
        special_tokens: Keep the tokens that a Hugging Face tokenizer adds, such as ``[CLS]``, as
            children of the root with an empty span at the beginning or end of the text; those
            written in the text are tokens like others. (default: :obj:`False`)
        max_group: Most children of a node: what has more (special tokens not counted) gets windows
            of about equal size above them, and windows of windows, as often as it takes; at least
            2. (default: :obj:`None`, no limit)
        hash_buckets: Number of buckets that words and tokens of a function are hashed into.
            (default: ``2**14``)
        names: Keep ``tree_name``. (default: :obj:`True`)
        max_leaves: Limit on the number of leaves. (default: 4,194,304)
        on_limit: ``"error"`` raises beyond the limit; ``"truncate"`` leaves out the last leaves
            and warns how many. (default: ``"error"``)

    Returns:
        The tree, with

        - ``tree_span [M, 2]`` int64: start and end of every node in the text, in characters.
        - ``text_x [T, 2]`` int64, ``text_index [T]``: id of every token (bucket, or the Hugging
          Face tokenizer's id) and :class:`~hsa_geo.builders.Field` (always ``WORD``), sorted by
          leaf; one row a leaf, and one more for each part of a hyphenated word.
        - ``tree_name``: ``document``, ``paragraph``, ``sentence``, ``window``; of a leaf its text,
          or the tokenizer's name of the token where its span is empty.

    Raises:
        BuilderError: If the text has no token, is no str, an argument is out of range, or what a
            function returned does not lie in the text.
        LimitError: If there are more than ``max_leaves`` leaves and ``on_limit`` is ``"error"``.
        MissingPackageError: If sentencex is needed and not installed.
        UnsupportedError: If the tokenizer is a slow one of Hugging Face, or an argument has no
            effect with the others.

    Warns:
        HSAWarning: If the text looks like the name of a file.
        TruncationWarning: If leaves are left out.

    Example:
        >>> text = "He said: \"Don't!\" Then left..."
        >>> tree = from_text(text)
        >>> tree.tree_name
        ['He', 'said', "Don't", 'Then', 'left', 'sentence', 'sentence', 'paragraph', 'document']
        >>> [text[start:end] for start, end in tree.tree_span[5:7].tolist()]
        ['He said: "Don\'t!"', 'Then left...']
        >>> from_text(text, tokenizer=str.split, sentences=None).tree_name[:3]
        ['He', 'said:', '"Don\'t!"']
    """
    check_flags(punctuation=punctuation, special_tokens=special_tokens, names=names)
    _check(text, max_group, hash_buckets, max_leaves, on_limit)
    if _LIKE_A_PATH.fullmatch(text):
        warnings.warn(
            f"{quote(text)} is read as the text itself, but looks like the name of a file: give "
            "pathlib.Path(...).read_text() to read the file.",
            HSAWarning,
            stacklevel=2,
        )
    tokens = read_tokens(text, tokenizer, punctuation, special_tokens, hash_buckets)
    if tokens.special.all():
        if isinstance(tokenizer, str) and not punctuation:
            what, remedy = "word", ", or pass punctuation=True if punctuation and symbols matter"
        else:
            what, remedy = "token", ""
        raise BuilderError(f"the text {quote(text)} has no {what}: skip it{remedy}.")
    tokens = _limit_leaves(tokens, max_leaves, on_limit)
    if tokens.special.all():
        raise LimitError(f"max_leaves={max_leaves} leaves special tokens alone: raise max_leaves.")
    levels: list[tuple[str, Ints]] = []
    cuts = np.zeros(1, dtype=np.int64)
    if paragraphs is not None:
        cuts = paragraph_starts(text, paragraphs)
        levels = [("paragraph", cuts)]
    if sentences is not None or language is not None:
        levels.insert(0, ("sentence", sentence_starts(text, cuts, sentences, language)))
    return text_tree(text, tokens, levels, max_group, names)


def _check(text: Any, max_group: Any, hash_buckets: Any, max_leaves: Any, on_limit: str) -> None:
    if isinstance(text, (bytes, bytearray, memoryview)):
        raise BuilderError(
            f"text is {type(text).__name__}: decode it first, e.g. text.decode('utf-8')."
        )
    if isinstance(text, (list, tuple)):
        raise BuilderError(
            f"text is a {type(text).__name__} of {len(text)}: call from_text for each "
            "document, and batch the trees with Batch.from_data_list."
        )
    if isinstance(text, os.PathLike):
        raise BuilderError(
            f"text is the path {str(text)!r:.80}: read the file first, "
            "path.read_text(encoding='utf-8')."
        )
    if not isinstance(text, str):
        raise BuilderError(f"text is a {type(text).__name__}: give a str.")
    check_choice("on_limit", on_limit, ("error", "truncate"))
    limits = {"max_group": (max_group, 2), "hash_buckets": (hash_buckets, 1)}
    limits["max_leaves"] = (max_leaves, 1)
    for name, (value, least) in limits.items():
        if value is None:
            continue
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise BuilderError(f"{name}={shown(value)} is no number of at least {least}: give one.")


def _limit_leaves(tokens: Tokens, limit: int | None, on_limit: str) -> Tokens:
    n = len(tokens.start)
    if limit is None or n <= limit:
        return tokens
    over_limit(
        on_limit,
        f"the text has {n} leaves, more than max_leaves={limit}",
        "raise max_leaves",
        f"the last {n - limit} leaves",
    )
    return tokens.head(limit)
