"""Checks of the arguments of transforms: numbers, names, flags, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from hsa_geo.builders._arguments import shown
from hsa_geo.errors import BuilderError

__all__ = ["attribute", "attribute_or_none", "attributes", "counts", "flag", "seed_or_none"]


def counts(values: Any, name: str, least: int = 1) -> tuple[int, ...]:
    """Whole numbers from ``least`` on.

    Args:
        values: One number, or several.
        name: Name of the argument.
        least: The smallest that fits.

    Raises:
        BuilderError: If it is something else.

    Example:
        >>> counts([8, 2], "sizes")
        (8, 2)
    """
    try:
        found = tuple(values)
    except TypeError:
        found = (values,)
    for value in found:
        if not _is_whole(value) or value < least:
            raise BuilderError(
                f"{name} has the value {shown(value)}: give whole numbers from {least}."
            )
    return tuple(map(int, found))


def attribute(value: Any, name: str) -> str:
    """The name of an attribute.

    Raises:
        BuilderError: If it is no string.

    Example:
        >>> attribute("pos", "attr")
        'pos'
    """
    if not isinstance(value, str):
        raise BuilderError(f"{name}={shown(value)} is no string: give the name of an attribute.")
    return value


def attribute_or_none(value: Any, name: str) -> str | None:
    """The name of an attribute, or None.

    Raises:
        BuilderError: If it is something else.

    Example:
        >>> attribute_or_none(None, "weight")
    """
    if value is not None and not isinstance(value, str):
        raise BuilderError(
            f"{name}={shown(value)} is no string: give the name of an attribute, or None."
        )
    return value


def attributes(values: Any, name: str) -> tuple[str, ...]:
    """Names of attributes, given as one or several.

    Raises:
        BuilderError: If they are something else.

    Example:
        >>> attributes("x", "attrs"), attributes(["x", "y"], "attrs")
        (('x',), ('x', 'y'))
    """
    try:
        found = (values,) if isinstance(values, str) else tuple(values)
    except TypeError:
        found = (None,)
    if not all(isinstance(value, str) for value in found):
        raise BuilderError(
            f"{name}={shown(values)}: give the name of an attribute, or a sequence of names."
        )
    return found


def flag(value: Any, name: str) -> bool:
    """True or False.

    Raises:
        BuilderError: If it is something else, even if it has a truth value: ``"no"`` is true.

    Example:
        >>> flag(True, "add_links")
        True
    """
    if not isinstance(value, (bool, np.bool_)):
        raise BuilderError(f"{name}={shown(value)}: give True or False.")
    return bool(value)


def seed_or_none(value: Any, bits: int = 64) -> int | None:
    """A seed of a generator, from 0 and below ``2**bits``, or None.

    Raises:
        BuilderError: If it is something else.

    Example:
        >>> seed_or_none(5)
        5
    """
    if value is None:
        return None
    if not _is_whole(value) or not 0 <= value < 2**bits:
        raise BuilderError(f"seed={shown(value)}: give a whole number from 0 and below 2**{bits}.")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
