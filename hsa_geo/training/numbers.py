"""Whole numbers and folders that are given as arguments.

Example:
    >>> whole_number("budget", 8)
    8
"""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path
from typing import Any

from hsa_geo.errors import PathError, ShapeError

__all__ = ["folder_path", "whole_number"]


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


def folder_path(value: Any) -> Path:
    """A path, whether or not it is there.

    Args:
        value: What was given.

    Returns:
        The path.

    Raises:
        PathError: If it is none.

    Example:
        >>> folder_path("runs").name
        'runs'
    """
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str) or "\0" in text:
        raise PathError(f"folder={value!r:.60} is no path: give the name of a folder as a str.")
    return Path(text)
