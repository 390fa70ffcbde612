"""Character spans ``[start, end)``: checked, found for given strings, and mapped to the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsa_geo.builders._arguments import shown
from hsa_geo.errors import BuilderError

__all__ = ["Blanks", "Ints", "guarded", "quote", "spans_of"]

Ints = NDArray[np.int64]
_T = TypeVar("_T")
_LAST_BLANK = 0x3000


class Blanks:
    """Where a text is not blank.

    Args:
        text: Any text.

    Attributes:
        next: ``[n + 1]``, the first place from each on that is not blank; n where there is none.
        last: ``[n + 1]``, the end of the last such place before each; 0 where there is none.

    Example:
        >>> blanks = Blanks(" a ")
        >>> blanks.next.tolist(), blanks.last.tolist()
        ([1, 1, 3, 3], [0, 0, 2, 2])
    """

    def __init__(self, text: str) -> None:
        if text.isascii():
            codes = np.frombuffer(text.encode(), dtype=np.uint8)
        else:
            codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
            codes = np.minimum(codes, _LAST_BLANK + 1)
        blank = _blank_table()[codes]
        n = len(codes)
        places = np.arange(n)
        solid = places[~blank]
        # As many places as lie between two that are not blank have the second as their next.
        gaps = np.diff(solid, prepend=-1, append=n)
        self.next = np.repeat(np.append(solid, n), gaps)
        self.last = np.repeat(np.append(0, solid + 1), gaps)


@lru_cache(maxsize=1)
def _blank_table() -> NDArray[np.bool_]:
    table = [chr(code).isspace() for code in range(_LAST_BLANK + 1)]
    return np.array([*table, False])


def quote(value: Any, length: int = 40) -> str:
    """What a message says of a value: its repr, shortened.

    Example:
        >>> quote("to be or not to be", 5), quote(None)
        ("'to be'...", 'None')
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= length else f"{value[:length]!r}..."
    return shown(value, length)


def guarded(call: Callable[[], _T], what: str, remedy: str) -> _T:
    """The result of a call into a compiled library, whose failures become BuilderError.

    Example:
        >>> guarded(lambda: 1, "the tokenizer", "use another")
        1
    """
    try:
        return call()
    except BaseException as error:
        # A Rust library's panic is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BuilderError(f"{what} failed ({type(error).__name__}: {error}): {remedy}.") from error


def spans_of(pieces: Any, text: str, source: str) -> tuple[Ints, Ints]:
    """The spans of what a caller's function returned, checked.

    Args:
        pieces: Strings found in order in the text, or (start, end) pairs.
        text: The text that the function was given.
        source: What returned them, for messages, e.g. ``"the tokenizer"``.

    Returns:
        start ``[n]`` and end ``[n]``, in order and disjoint; empty ones are left out.

    Raises:
        BuilderError: If they are anything else, or do not lie in the text.

    Example:
        >>> [part.tolist() for part in spans_of(["to", "be"], "to  be", "the tokenizer")]
        [[0, 4], [2, 6]]
    """
    if not isinstance(pieces, np.ndarray) or not pieces.ndim:
        try:
            pieces = list(pieces)
        except TypeError:
            raise BuilderError(
                f"{source} returned {quote(pieces)}, which is no list: return strings as "
                "they stand in the text, or (start, end) pairs."
            ) from None
    if len(pieces) and all(isinstance(piece, str) for piece in pieces):
        start = _find(pieces, text, source)
        end = start + np.fromiter(map(len, pieces), np.int64, count=len(pieces))
    else:
        start, end = _pairs(pieces, source)
    wrong = (start < 0) | (end < start) | (end > len(text))
    wrong[1:] |= start[1:] < end[:-1]
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        behind = f", behind the one that ends at {end[i - 1]}" if i else ""
        raise BuilderError(
            f"{source} returned the span ({start[i]}, {end[i]}) as number {i} of a text of "
            f"{len(text)} characters{behind}: give ordered spans that do not overlap."
        )
    full = end > start
    return start[full], end[full]


def _find(pieces: Any, text: str, source: str) -> Ints:
    starts, at = [], 0
    for i, piece in enumerate(pieces):
        place = text.find(piece, at)
        if place < 0:
            raise BuilderError(
                f"{source} returned {quote(piece)} as number {i}, which does not stand in the "
                f"text behind character {at}: return strings as they stand there, in order, or "
                "(start, end) pairs."
            )
        starts.append(place)
        at = place + len(piece)
    return np.array(starts, dtype=np.int64)


def _pairs(pieces: Any, source: str) -> tuple[Ints, Ints]:
    if not len(pieces):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    try:
        array = np.asarray(pieces)
    except Exception:  # ragged, or objects that refuse
        array = np.asarray(None)
    if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 2:
        raise BuilderError(
            f"{source} returned {quote(pieces[0])} as number 0 of {len(pieces)}: return "
            "only strings as they stand in the text, or only (start, end) pairs of integers."
        )
    # Beyond any text, so that an unsigned number cannot wrap around.
    if array.dtype.kind == "u":
        array = np.minimum(array, np.uint64(2**62))
    array = array.astype(np.int64)
    return array[:, 0], array[:, 1]
