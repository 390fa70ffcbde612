"""Words and tokens of a page: how text is cut, and how a token becomes a number.

A *word* is a maximal run of letters, digits, combining marks and pictographs, with single
apostrophes and hyphens inside it (``don't``, ``e-mail``) and points or commas between digits
(``9.99``).  Everything else separates words: blanks, punctuation, symbols such as ``$`` or
``|``, control characters, U+FFFD.  So punctuation makes no words of its own and is left out of
the signal, on purpose.  Chinese and Japanese characters are words one by one; other scripts
written without spaces (Thai, ...) give one word a run.

A token is normalised (NFKC, case folded, without apostrophes, hyphens and invisible characters:
``E-Mail`` is ``email``) and hashed by CRC-32 into a fixed number of buckets: the same number in
every process and on every machine.

Example:
    >>> words("Sign-up: don't pay $9.99!")
    ['Sign-up', "don't", 'pay', '9.99']
    >>> attribute_tokens("user_passwordConfirm2")
    ['user', 'password', 'confirm', '2']
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from enum import IntEnum
from functools import lru_cache
from itertools import repeat

__all__ = [
    "HASH_BUCKETS",
    "WORD",
    "Field",
    "attribute_tokens",
    "count_tokens",
    "hash_token",
    "ids_of_words",
    "normalise",
    "sentence_pieces",
    "word_ids",
    "words",
]

_CACHED_LENGTH = 64
#: Default number of hash buckets.
HASH_BUCKETS = 2**14


class Field(IntEnum):
    """What a token says about its leaf: column 1 of ``text_x``.

    ===============  ==============================================================
    ``WORD``           the leaf's own word (normalised; parts of a hyphenated word too)
    ``TAG``            the nearest element's tag
    ``TYPE``           ``type`` of an input or button
    ``NAME``           ``name``, split at punctuation, camelCase and digits
    ``ID``             ``id``, split alike
    ``PLACEHOLDER``    ``placeholder``
    ``LABEL``          text of an associated ``<label>``, and ``aria-label``
    ``VALUE``          what the control shows: a button's text, a prefilled value
    ``ALT``            ``alt`` of an image
    ``OPTION``         texts of a select's options
    ``TITLE``          ``title`` (the tooltip)
    ``FORM``           id, name, class and action of the control's form (on request)
    ===============  ==============================================================

    Example:
        >>> Field(2).name, int(Field.NAME)
        ('TYPE', 3)
    """

    WORD = 0
    TAG = 1
    TYPE = 2
    NAME = 3
    ID = 4
    PLACEHOLDER = 5
    LABEL = 6
    VALUE = 7
    ALT = 8
    OPTION = 9
    TITLE = 10
    FORM = 11


# Characters that are no part of a word: ASCII and Latin-1 punctuation, symbols and controls,
# general punctuation, arrows ... box drawing and stars, CJK punctuation, full-width punctuation,
# the commas and full stops of other scripts, specials.
_SEPARATORS = (
    r"\s\x00-/:-@\[-`{-\x9f\xa0-\xa9\xab\xac\xae-\xb1\xb4\xb6-\xb8\xbb\xbf\xd7\xf7"
    r"\u037e\u0387\u055a-\u055f\u0589\u058a\u05be\u05c0\u05c3\u060c\u061b\u061f\u066a-\u066d\u06d4"
    r"\u0964\u0965\u0e2f\u0e5a\u0e5b\u104a-\u104f\u1361-\u1368\u17d4-\u17da"
    r"\u2000-\u200b\u200e-\u205f\u2061-\u206f\u20a0-\u20cf\u2190-\u25ff\u2605\u2606\u2768-\u2775"
    r"\u2794-\u27bf\u27c0-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d\u30fb\uff01-\uff0f"
    r"\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\ufe10-\ufe1f\ufe30-\ufe6f\ufff9-\ufffd\ud800-\udfff"
)
_CJK = (
    r"\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff\uff66-\uff9f"
)
_INVISIBLE = r"\xad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff"
_MARKS = r"\u3099\u309a\ufe00-\ufe0f"
_START = rf"[^{_SEPARATORS}{_CJK}{_INVISIBLE}]"
_RUN = rf"{_START}[^{_SEPARATORS}{_CJK}]*"
#: The words of a text, in order: ``WORD.findall(text)``.
WORD = re.compile(rf"{_RUN}(?:(?:['’‐‑-]|(?<=[0-9])[.,](?=[0-9])){_RUN})*|[{_CJK}][{_MARKS}]*")
# Possessive and anchored, so that no text makes it backtrack.
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’)\]»]*+\s++(?![a-zß-öø-ÿ])|[。！？]++[”’」』）]*+"
)
_DROPPED = re.compile(rf"['’ʼ‐‑{_INVISIBLE}-]")
_HYPHEN = re.compile(r"[‐‑-]")
_SMALL = rf"[^{_SEPARATORS}A-Z0-9]"  # letters of any alphabet, except ASCII capitals
_ATTRIBUTE = re.compile(rf"[A-Z]+(?!{_SMALL})|[A-Z]?{_SMALL}+|[0-9]+")


def words(text: str) -> list[str]:
    """The words of a text as they stand, in order (see the module's rule).

    Args:
        text: Any text.

    Returns:
        The words, not normalised.

    Example:
        >>> words("E-mail: anna@example.com, 東京")
        ['E-mail', 'anna', 'example', 'com', '東', '京']
    """
    return WORD.findall(text)


def sentence_pieces(text: str) -> list[str]:
    """Cut a text behind every sentence end.

    A sentence ends at ``. ! ? …`` (and closing quotes or brackets) before a blank that no small
    letter follows, and at the full stops of Chinese and Japanese.

    Args:
        text: Any text.

    Returns:
        The pieces; a last piece without words means that the text closed its last sentence.

    Example:
        >>> sentence_pieces("Log in. Or, e.g. by mail, sign up! ")
        ['Log in', 'Or, e.g. by mail, sign up', '']
    """
    return _SENTENCE_END.split(text)


def normalise(word: str) -> str:
    """A word as it is hashed: NFKC, case folded, without hyphens and apostrophes.

    Args:
        word: A word.

    Returns:
        The token; the word itself if nothing would be left.

    Example:
        >>> normalise("E-Mail"), normalise("ＬＯＧ")
        ('email', 'log')
    """
    if word.isascii() and word.isalnum():
        return word.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())
    return _DROPPED.sub("", folded) or word


def attribute_tokens(value: str) -> list[str]:
    """The tokens of an attribute's value: split at punctuation, camelCase and digits.

    Args:
        value: A ``name``, ``id`` or the like.

    Returns:
        Normalised tokens.

    Example:
        >>> attribute_tokens("login[userEMail]"), attribute_tokens("ctl00_txtURL2")
        (['login', 'user', 'e', 'mail'], ['ctl', '00', 'txt', 'url', '2'])
    """
    return [normalise(part) for part in _ATTRIBUTE.findall(value)]


def hash_token(token: str, buckets: int = HASH_BUCKETS) -> int:
    """The bucket of a normalised token, the same in every process.

    Args:
        token: A normalised token.
        buckets: Number of buckets. (default: ``2**14``)

    Returns:
        ``crc32(token in UTF-8) mod buckets``.

    Example:
        >>> hash_token("password"), hash_token("password", 10)
        (1749, 5)
    """
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % buckets


def word_ids(word: str, buckets: int = HASH_BUCKETS) -> tuple[int, ...]:
    """The ids of a word: of its token, and of the parts of a hyphenated word behind it.

    Args:
        word: A word as it stands.
        buckets: Number of buckets. (default: ``2**14``)

    Returns:
        At least one id.

    Example:
        >>> word_ids("E-Mail") == tuple(hash_token(t) for t in ("email", "e", "mail"))
        True
    """
    return ids_of_words([word], buckets)[0]


def ids_of_words(words: list[str], buckets: int = HASH_BUCKETS) -> list[tuple[int, ...]]:
    """:func:`word_ids` of many words at once.

    Args:
        words: Words as they stand.
        buckets: Number of buckets. (default: ``2**14``)

    Returns:
        The ids of each word.

    Example:
        >>> [len(ids) for ids in ids_of_words(["to", "log-in"])]
        [1, 3]
    """
    if max(map(len, words), default=0) <= _CACHED_LENGTH:
        return list(map(_word_ids, words, repeat(buckets)))
    uncached = _word_ids.__wrapped__  # the cache must not hold megabytes
    return [
        _word_ids(word, buckets) if len(word) <= _CACHED_LENGTH else uncached(word, buckets)
        for word in words
    ]


def count_tokens(text: str, start: int = 0) -> int:
    """How many words or parts of an attribute follow a place in a text, without keeping them.

    Args:
        text: Any text.
        start: Where to begin. (default: 0)

    Returns:
        The number of words; of a text without blanks that is one name, as good as its parts.

    Example:
        >>> count_tokens("one two three", 4)
        2
    """
    return sum(1 for _ in WORD.finditer(text, start))


@lru_cache(maxsize=2**17)
def _word_ids(word: str, buckets: int) -> tuple[int, ...]:
    ids = [hash_token(normalise(word), buckets)]
    if not word.isalnum():
        parts = [part for part in _HYPHEN.split(word) if part]
        if len(parts) > 1:
            ids += [hash_token(normalise(part), buckets) for part in parts]
    return tuple(ids)
