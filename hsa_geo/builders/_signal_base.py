"""What all signals share, and how they are copied and pickled without recursion.

A signal is taken apart into records, children before parents, each with the places of its
children among the records before it (-1: an atom, which is copied or pickled as it is).
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from hsa_geo.builders._signal_checks import position_of, short
from hsa_geo.errors import BuilderError, NotATreeError

__all__ = ["Signal"]

_PLAIN = (list, tuple, set, frozenset, dict)
_NUMBERS = {int, float, bool}


class Signal:
    """What the five kinds of signals share; use one of them."""

    __slots__ = ()
    is_leaf: ClassVar[bool] = False
    name: str | None
    pos: Any

    def _check_name_and_pos(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise BuilderError(f"name={short(self.name)} is no string: give one, or None.")
        if self.pos is not None:
            object.__setattr__(self, "pos", position_of(self.pos))

    def _labels(self) -> str:
        text = "" if self.name is None else f", name={short(self.name)}"
        return text if self.pos is None else f"{text}, pos=({self.pos[0]:g}, {self.pos[1]:g})"

    def __copy__(self) -> Signal:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Signal:
        built = _build(_records(self), memo)
        memo[id(self)] = built
        return built

    def __reduce__(self) -> Any:
        return _build, (_records(self),)


def _is_nested(item: Any) -> bool:
    """Whether ``item`` may hold signals; leaves, arrays and lists of numbers do not."""
    if isinstance(item, Signal):
        return not item.is_leaf
    if type(item) not in _PLAIN:
        return False
    return not set(map(type, item.values() if type(item) is dict else item)) <= _NUMBERS


def _opened(item: Any) -> tuple[type, Any, tuple[str, Any], list[Any]]:
    """Its class, its other fields, the layout of its children, and these in one list."""
    inside, rest = item, None
    if isinstance(item, Signal):
        values = [getattr(item, field.name) for field in fields(item)]  # type: ignore[arg-type]
        inside, rest = values[0], values[1:]
    if isinstance(inside, (np.ndarray, Tensor)):
        return type(item), rest, ("array", None), [inside]
    if isinstance(inside, dict):
        return type(item), rest, ("keys", list(inside)), list(inside.values())
    if hasattr(item, "rows"):
        cells = [cell for row in inside for cell in row]
        return type(item), rest, ("rows", [len(row) for row in inside]), cells
    return type(item), rest, ("list", None), list(inside)


def _closed(kind: type, rest: Any, layout: tuple[str, Any], parts: list[Any]) -> Any:
    """What :func:`_opened` was given, made of ``parts``."""
    form, sizes = layout
    inside: Any = tuple(parts)
    if form == "array":
        inside = parts[0]
    elif form == "keys":
        inside = dict(zip(sizes, parts))
    elif form == "rows":
        ends = np.cumsum([0, *sizes]).tolist()
        inside = tuple(inside[start:end] for start, end in itertools.pairwise(ends))
    if rest is None:
        return kind(inside)
    signal: Any = object.__new__(kind)
    for field, value in zip(fields(kind), [inside, *rest]):
        object.__setattr__(signal, field.name, value)
    return signal


def _records(root: Signal) -> list[Any]:
    records: list[Any] = []
    place: dict[int, int] = {}
    opened: dict[int, Any] = {}
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        item, done = stack.pop()
        if done:
            kind, rest, layout, parts = opened.pop(id(item))
            places = [place.get(id(part), -1) for part in parts] if place else []
            atoms = [part for part, at in zip(parts, places) if at < 0] if places else parts
            place[id(item)] = len(records)
            records.append(
                (kind, rest, layout, places if max(places, default=-1) >= 0 else None, atoms)
            )
        elif id(item) in opened:
            raise NotATreeError(
                f"a {type(item).__name__} contains itself, so it cannot be copied: remove the "
                "cycle."
            )
        elif id(item) not in place:
            opened[id(item)] = _opened(item)
            stack.append((item, True))
            stack += [(part, False) for part in opened[id(item)][3] if _is_nested(part)]
    return records


def _build(records: list[Any], memo: dict[int, Any] | None = None) -> Any:
    """The signal of :func:`_records`; with the memo of a deep copy its atoms are copied, too."""
    built: list[Any] = []
    for kind, rest, layout, places, atoms in records:
        if memo is not None:
            atoms, rest = copy.deepcopy(atoms, memo), copy.deepcopy(rest, memo)
        if places is not None:
            left = iter(atoms)
            atoms = [next(left) if at < 0 else built[at] for at in places]
        built.append(_closed(kind, rest, layout, list(atoms)))
    return built[-1]
