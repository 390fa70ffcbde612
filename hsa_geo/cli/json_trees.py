"""JSON as nested signals, however deep it is.

An array is a sequence, an object a set of named children, anything else a leaf, also an empty
array or object.  The leaves have features if all of them are numbers that float32 can hold.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from hsa_geo.errors import BuilderError, LimitError

__all__ = ["MAX_DEPTH", "nested_tree", "read_json"]

#: Most levels of arrays and objects in each other.
MAX_DEPTH = 10_000
#: Beyond it float32 has infinity alone.
_LARGEST = (2 - 2**-23) * 2.0**127
_BLANKS = re.compile(r"[ \t\n\r]*")


def read_json(data: bytes, name: str) -> Any:
    """The content of a JSON file in UTF-8, UTF-16 or UTF-32.

    Args:
        data: What the file holds.
        name: What errors call it.

    Returns:
        Lists, dicts and scalars.

    Raises:
        BuilderError: If it is no JSON, or holds an integer of thousands of digits.
        LimitError: If it is nested deeper than :data:`MAX_DEPTH`.

    Example:
        >>> read_json(b'{"a": [1, null]}', "a.json")
        {'a': [1, None]}
    """
    try:
        try:
            return json.loads(data)
        except RecursionError:  # Python's reader calls itself for each level
            return _read_deep(data.decode(json.detect_encoding(data), "surrogatepass"), name)
    except LimitError:
        raise
    except (json.JSONDecodeError, UnicodeError) as error:
        raise BuilderError(f"'{name}' is no JSON ({error}): repair it.") from error
    except ValueError as error:  # Python's limit, against time that grows with the square
        raise BuilderError(
            f"'{name}' holds an integer of more than {sys.get_int_max_str_digits()} digits, which "
            "is not read: shorten it, or write it as a string."
        ) from error


def _read_deep(text: str, name: str) -> Any:
    """JSON without recursion: Python's reader is asked for scalars alone."""
    scalar = json.JSONDecoder().raw_decode
    top: list[Any] = []
    stack: list[Any] = [top]

    def skip(place: int) -> int:
        found = _BLANKS.match(text, place)
        assert found is not None
        return found.end()

    def wrong(what: str, place: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"Expecting {what}", text, place)

    place = skip(0)
    while True:
        holder, key = stack[-1], None
        if isinstance(holder, dict):
            if text[place : place + 1] != '"':
                raise wrong("property name enclosed in double quotes", place)
            key, place = scalar(text, place)
            place = skip(place)
            if text[place : place + 1] != ":":
                raise wrong("':' delimiter", place)
            place = skip(place + 1)
        opener = text[place : place + 1]
        if opener and opener in "[{":
            value: Any = [] if opener == "[" else {}
            place = skip(place + 1)
            inside = text[place : place + 1] != "]}"[opener == "{"]
            place += not inside
        else:
            value, place = scalar(text, place)
            inside = False
        if isinstance(holder, dict):
            holder[key] = value
        else:
            holder.append(value)
        if inside:
            stack.append(value)
            if len(stack) > MAX_DEPTH + 1:
                raise LimitError(
                    f"'{name}' is nested deeper than {MAX_DEPTH} levels: cut it into parts."
                )
            continue
        while True:  # behind a value: out of what ends here
            place = skip(place)
            if len(stack) == 1:
                if place < len(text):
                    raise json.JSONDecodeError("Extra data", text, place)
                return top[0]
            closer = "}" if isinstance(stack[-1], dict) else "]"
            found = text[place : place + 1]
            if found == ",":
                place = skip(place + 1)
                break
            if found != closer:
                raise wrong("',' delimiter", place)
            stack.pop()
            place += 1


def nested_tree(content: Any) -> Any:
    """The tree of JSON, whose leaves are named by what stands there.

    Args:
        content: As :func:`read_json` returns it; it is used up.

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Example:
        >>> nested_tree({"a": [1, None]}).tree_name
        ['1', 'null', 'a', '']
    """
    from hsa_geo.builders import from_nested

    return from_nested(_leaves_named(content), names=True)


def _leaves_named(content: Any) -> Any:
    """JSON with a leaf for every scalar, in place of it."""
    top = [content]
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [top]
    numbers = True
    while stack:
        holder = stack.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in items:
            if isinstance(value, (list, dict)) and value:
                stack.append(value)
            else:
                places.append((holder, key))
                numbers &= _is_number(value)
    from hsa_geo.builders import Leaf

    for holder, key in places:
        value = holder[key]
        text = json.dumps(value, ensure_ascii=False)
        name = f"{key}: {text}" if isinstance(holder, dict) else text
        holder[key] = Leaf(value if numbers else None, name=name)
    return top[0]


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST
    )
