"""Groups of texts that belong on one side of a split, and what makes two texts the same.

Example:
    >>> linked_groups([["a", "b", "c", None], ["x", None, "x", None]])
    [0, 1, 0, 2]
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

__all__ = ["linked_groups", "same_text"]

_LETTERS = re.compile(r"[^\W\d_]+")


def linked_groups(keys: Sequence[Sequence[Hashable | None]]) -> list[int]:
    """Put things that share a key into one group, and so on along chains of shared keys.

    Args:
        keys: One sequence for each kind of key: a key of every thing, :obj:`None` where it has
            none.

    Returns:
        The group of each thing, numbered in the order of their first things.

    Example:
        >>> linked_groups([[1, 1, 2], [None, "a", "a"]])
        [0, 0, 0]
    """
    n = len(keys[0])
    above = list(range(n))

    def top(i: int) -> int:
        while above[i] != i:
            above[i] = i = above[above[i]]
        return i

    for column in keys:
        first = dict[Hashable, int]()
        for i, key in enumerate(column):
            if key is not None:
                a, b = top(first.setdefault(key, i)), top(i)
                above[max(a, b)] = min(a, b)
    number = dict[int, int]()
    return [number.setdefault(top(i), len(number)) for i in range(n)]


def same_text(text: str, least: int = 1) -> str | None:
    """What is equal for texts that differ in case, digits, punctuation and blanks alone.

    Args:
        text: Any text.
        least: Texts of fewer words are the same as no other. (default: :obj:`1`)

    Returns:
        Its words of letters, small, apart by blanks; :obj:`None` if there are too few.

    Example:
        >>> same_text("Buy 2, get 1!") == same_text("buy 3 GET 1"), same_text("Hello", least=2)
        (True, None)
    """
    found = _LETTERS.findall(text.lower())
    return " ".join(found) if len(found) >= least else None
