"""What is replaced in a model: layers, each with a hierarchy and a tie, in and out of a config.

A config comes from a file, which may come from anywhere, so nothing in it is taken on trust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.hierarchies import Sentences, Squares, hierarchy_from, to_config
from hsa_geo.ops.inputs import TIES

__all__ = ["Setting", "check_special_ids", "kept_special_ids", "layer_numbers", "setting_from"]

#: Largest id of a token.
_MOST = 2**31


@dataclass(frozen=True)
class Setting:
    """What is replaced.

    Attributes:
        options: By number of a layer its hierarchy and tie.
        special_ids: Ids of special tokens.
    """

    options: dict[int, tuple[Any, str]]
    special_ids: tuple[int, ...]

    def config(self) -> dict[str, Any]:
        """As plain values; hierarchy and tie are lists where layers differ.

        Example:
            >>> from hsa_geo.hf import Windows
            >>> Setting({1: (Windows(8), "key")}, (0, 2)).config()["layers"]
            [1]
        """
        layers = sorted(self.options)
        hierarchies = [to_config(self.options[number][0]) for number in layers]
        ties = [self.options[number][1] for number in layers]
        alike = all(h == hierarchies[0] for h in hierarchies) and len(set(ties)) == 1
        return {
            "layers": layers,
            "hierarchy": hierarchies[0] if alike else hierarchies,
            "tie": ties[0] if alike else ties,
            "special_ids": list(self.special_ids),
        }

    def check(self, pictures: bool) -> None:
        """Whether the hierarchies suit a model of pictures, or of texts.

        Args:
            pictures: Whether the model reads pictures.

        Raises:
            UnsupportedError: If one does not.

        Example:
            >>> from hsa_geo.hf import Windows
            >>> Setting({1: (Windows(8), "key")}, ()).check(pictures=False)
        """
        for hierarchy, _ in self.options.values():
            if isinstance(hierarchy, Squares) and not pictures:
                raise UnsupportedError(
                    f"{hierarchy} groups the patches of pictures, and this model reads texts: use "
                    "Windows(...)."
                )
            if isinstance(hierarchy, Sentences) and pictures:
                raise UnsupportedError(
                    f"{hierarchy} reads sentences, and this model reads pictures: use Squares(...)."
                )


def setting_from(kept: Any, count: int) -> dict[str, Any]:
    """What a config's ``hsa_attention`` says, as arguments of ``replace_attention``.

    Args:
        kept: The value, from a file.
        count: Layers of the model.

    Returns:
        ``layers`` (a dict of layers), and ``special_ids``; nothing if ``kept`` is None.

    Raises:
        UnsupportedError: If it is no setting.
        ShapeError: If it is one of another model.

    Example:
        >>> setting_from({"layers": [0], "hierarchy": 4, "tie": "key", "special_ids": []}, 2)
        {'layers': {0: (Windows(window=4, special=False), 'key')}, 'special_ids': ()}
    """
    if kept is None:
        return {}
    names = {"layers", "hierarchy", "tie", "special_ids"}
    if not isinstance(kept, Mapping) or set(kept) != names:
        raise UnsupportedError(
            f"hsa_attention={kept!r} in the model's config is no setting, which has the keys "
            f"{sorted(names)}: give layers=[...], or take it out."
        )
    numbers = layer_numbers(kept["layers"], count)
    hierarchies, ties = kept["hierarchy"], kept["tie"]
    hierarchies = hierarchies if isinstance(hierarchies, list) else [hierarchies] * len(numbers)
    ties = ties if isinstance(ties, list) else [ties] * len(numbers)
    if len(hierarchies) != len(numbers) or len(ties) != len(numbers):
        raise UnsupportedError(
            f"hsa_attention in the model's config has {len(numbers)} layers, {len(hierarchies)} "
            f"hierarchies and {len(ties)} ties: give layers=[...]."
        )
    options = {
        number: (hierarchy_from(hierarchy), check_tie(tie))
        for number, hierarchy, tie in zip(numbers, hierarchies, ties)
    }
    return {"layers": options, "special_ids": check_special_ids(kept["special_ids"])}


def kept_special_ids(kept: Any) -> tuple[int, ...] | None:
    """Special tokens of a config's ``hsa_attention`` all else of which is about to be replaced.

    Args:
        kept: The value, from a file.

    Returns:
        Their ids; None if it names none.

    Example:
        >>> kept_special_ids({"layers": [9], "special_ids": [0, 2]}), kept_special_ids("none")
        ((0, 2), None)
    """
    try:
        return check_special_ids(kept["special_ids"])
    except (KeyError, TypeError, ShapeError):
        return None


def layer_numbers(layers: Any, count: int) -> list[int]:
    """Numbers of layers, ascending.

    Args:
        layers: ``"all"``, or numbers.
        count: Layers of the model.

    Returns:
        The numbers.

    Raises:
        ShapeError: If they are none, out of range, or named twice.

    Example:
        >>> layer_numbers([5, 1], 6), layer_numbers("all", 2)
        ([1, 5], [0, 1])
    """
    if isinstance(layers, str) and layers == "all":
        return list(range(count))
    if isinstance(layers, (str, bytes)) or not isinstance(layers, (Sequence, Mapping, range)):
        raise ShapeError(f"layers={layers!r}: give a list of numbers, or 'all'.")
    for number in layers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise ShapeError(f"layers={layers!r} holds {number!r}: give whole numbers.")
        if not 0 <= number < count:
            raise ShapeError(f"layers={layers!r} holds {number}, but layers are 0 to {count - 1}.")
    if len(set(layers)) != len(layers):
        raise ShapeError(f"layers={layers!r} holds a layer twice: name every layer once.")
    return sorted(layers)


def check_tie(tie: Any) -> str:
    """The tie, if it is one.

    Raises:
        UnsupportedError: If it is none.

    Example:
        >>> check_tie("key")
        'key'
    """
    if not isinstance(tie, str) or tie not in TIES:
        raise UnsupportedError(f"tie={tie!r} is unknown: use one of {TIES}.")
    return tie


def check_special_ids(ids: Any) -> tuple[int, ...]:
    """Ids of special tokens, if they are ids.

    Raises:
        ShapeError: If they are none.

    Example:
        >>> check_special_ids([0, 2])
        (0, 2)
    """
    fits = isinstance(ids, (Sequence, set, frozenset)) and not isinstance(ids, (str, bytes))
    if not fits or not all(
        isinstance(i, int) and not isinstance(i, bool) and 0 <= i < _MOST for i in ids
    ):
        raise ShapeError(f"special_ids={ids!r}: give a list of ids of tokens.")
    return tuple(sorted(ids))
