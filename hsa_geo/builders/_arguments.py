"""Checks of the arguments of builders: flags, choices, sizes; whatever is given, a typed error.

Arrays have no truth value, integers of more than 4300 digits no text, and some objects neither:
so nothing here compares or prints a value before it has looked at its type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hsa_geo.errors import BuilderError

__all__ = ["check_choice", "check_flags", "check_size", "shown", "text_of"]


def shown(value: Any, most: int = 200) -> str:
    """``repr`` of anything for a message, shortened; also of what has none.

    Example:
        >>> shown("a"), shown(10**5000), len(shown("a" * 1000))
        ("'a'", '<int>', 203)
    """
    try:
        text = repr(value)
    except Exception:  # such as an int of more than 4300 digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[:most]}..."


def text_of(value: Any) -> str:
    """A name: ``str`` of anything, also of what has none.

    Example:
        >>> text_of("a"), text_of(1.5), text_of(10**5000)
        ('a', '1.5', '<int>')
    """
    try:
        return str(value)
    except Exception:  # such as an int of more than 4300 digits
        return f"<{type(value).__name__}>"


def check_flags(**flags: Any) -> None:
    """Raise unless every flag is true or false, as 1 and 0 are.

    Raises:
        BuilderError: If one has no truth value; it names the argument.

    Example:
        >>> check_flags(names=True, collapse=0)
    """
    for name, value in flags.items():
        try:
            bool(value)
        except Exception:  # an array, or an object that refuses
            raise BuilderError(f"{name}={shown(value)} is neither True nor False.") from None


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of two or more strings.

    Raises:
        BuilderError: If not; it names the argument.

    Example:
        >>> check_choice("tables", "grid", ("sequence", "grid"))
    """
    if not isinstance(value, str) or value not in choices:
        *most, last = (f'"{choice}"' for choice in choices)
        raise BuilderError(f"{name}={shown(value)} is neither {', '.join(most)} nor {last}.")


def check_size(name: str, value: Any, least: int = 1, most: int = 2**62) -> None:
    """Raise unless a value is an integer within limits.

    Raises:
        BuilderError: If not; it names the argument.

    Example:
        >>> check_size("max_side", 64)
    """
    if not isinstance(value, (int, np.integer)):
        raise BuilderError(f"{name}={shown(value)} is no integer: give one of at least {least}.")
    if value < least:
        raise BuilderError(f"{name}={shown(value)} leaves nothing: give at least {least}.")
    if value > most:
        raise BuilderError(f"{name}={shown(value)} is out of range: give at most {most}.")
