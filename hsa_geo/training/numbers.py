"""Whole numbers that are given as arguments.

Example:
    >>> whole_number("budget", 8)
    8
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from hsa_geo.errors import ShapeError

__all__ = ["whole_number"]


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number, of Python or of numpy, as one of Python.

    Args:
        name: What it is called.
        value: What was given.
        least: The smallest that is possible. (default: :obj:`1`)

    Returns:
        The number.

    Raises:
        ShapeError: If it is none, or smaller.

    Example:
        >>> whole_number("budget", 2.5)
        Traceback (most recent call last):
        ...
        hsa_geo.errors.ShapeError: budget=2.5 must be a whole number of at least 1.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or int(value) < least:
        raise ShapeError(f"{name}={value!r:.60} must be a whole number of at least {least}.")
    return int(value)
