"""Hierarchies over the tokens of an encoder: windows, sentences, squares of patches, given trees.

Special tokens (class tokens, separators) are children of the root: each of them sees, and is seen
by, whole subtrees, and never shares its weights with neighbours in a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.clusters import Clusters
from hsa_geo.hf.labels import Tokens, grid_labels, runs, several_runs, window_labels

__all__ = ["Clusters", "Flat", "Hierarchy", "Sentences", "Squares", "Windows", "hierarchy_from"]


#: Largest window, and largest id of a token.
_MOST = 2**31


def _check_window(window: object, why: str) -> None:
    if type(window) is not int or not 2 <= window < _MOST:
        raise ShapeError(f"window={window!r}: {why}, and at most {_MOST - 1}.")


class Hierarchy(Protocol):
    """Anything that labels tokens; a dataclass of plain values, so that a config can hold it."""

    def labels(self, tokens: Tokens) -> list[Tensor]:
        """Labels ``[N]`` of each level, lowest first; see :mod:`hsa_geo.hf.labels`."""


@dataclass(frozen=True)
class Flat:
    """All tokens of a text are children of its root: softmax attention.

    Example:
        >>> Flat().labels(None)
        []
    """

    def labels(self, tokens: Tokens) -> list[Tensor]:
        """No levels."""
        return []


@dataclass(frozen=True)
class Windows:
    """Windows of tokens, windows of windows, and so on, within each run between special tokens.

    The texts of a pair are subtrees of their own.

    Args:
        window: Members of a window, at least 2. (default: ``4``)
        special: Whether special tokens lie in windows like all others, as in the paper, instead
            of being children of the root. (default: :obj:`False`)

    Raises:
        ShapeError: If ``window`` is smaller than 2.

    Example:
        >>> import torch
        >>> special = torch.tensor([True, False, False, False, True])
        >>> zero = torch.zeros(5, dtype=torch.int64)
        >>> tokens = Tokens(zero, torch.arange(5), special, None, None, 1)
        >>> [label.tolist() for label in Windows(2).labels(tokens)]
        [[-1, 1, 1, 2, -1]]
    """

    window: int = 4
    special: bool = False

    def __post_init__(self) -> None:
        _check_window(self.window, "a window has at least 2 tokens")
        if not isinstance(self.special, bool):
            raise ShapeError(f"special={self.special!r}: give True or False.")

    def labels(self, tokens: Tokens) -> list[Tensor]:
        """Windows, then the runs of texts that have several."""
        group = tokens.text if self.special else runs(tokens)
        labels = window_labels(group, self.window)
        return labels if self.special else labels + several_runs(tokens, group)


@dataclass(frozen=True)
class Sentences:
    """Sentences of tokens, windows within each sentence, and windows of sentences above.

    A sentence ends with a token of ``ends``, such as the ids of ".", "!" and "?"; see
    :func:`sentence_ends`.

    Args:
        ends: Ids of the tokens that end a sentence.
        window: Members of a window, of tokens and of sentences. (default: ``4``)

    Raises:
        ShapeError: If ``window`` is smaller than 2 or ``ends`` is empty.

    Example:
        >>> import torch
        >>> ids = torch.tensor([0, 5, 6, 9, 7, 8, 9, 1])
        >>> special = (ids < 2)
        >>> zero = torch.zeros(8, dtype=torch.int64)
        >>> tokens = Tokens(zero, torch.arange(8), special, ids, None, 1)
        >>> [label.tolist() for label in Sentences((9,), 2).labels(tokens)][-1]
        [-1, 1, 1, 1, 2, 2, 2, -1]
    """

    ends: tuple[int, ...]
    window: int = 4

    def __post_init__(self) -> None:
        ends = tuple(self.ends) if isinstance(self.ends, (list, tuple)) else ()
        if not ends or not all(type(i) is int and 0 <= i < _MOST for i in ends):
            raise ShapeError(
                f"ends={self.ends!r} names no tokens that end a sentence: give a list of their ids."
            )
        object.__setattr__(self, "ends", ends)
        _check_window(self.window, "a window has at least 2 members")

    def labels(self, tokens: Tokens) -> list[Tensor]:
        """Windows in sentences, sentences, windows of sentences, runs."""
        if tokens.ids is None:
            raise UnsupportedError(
                "Sentences(...) reads token ids, and the model was given inputs_embeds: give "
                "input_ids, or use Windows(...)."
            )
        group = runs(tokens)
        last = torch.isin(tokens.ids, torch.tensor(self.ends, device=tokens.ids.device))
        # A sentence begins a run, and after every token that ends one.
        begins = torch.ones_like(last)
        begins[1:] = last[:-1] & ~last[1:] | (group[1:] != group[:-1])
        sentence = torch.where(group >= 0, begins.cumsum(0) - 1, -1)
        labels = window_labels(sentence, self.window)
        labels.append(sentence)
        labels += _windows_of(sentence, group, self.window)
        return labels + several_runs(tokens, group)


def _windows_of(part: Tensor, group: Tensor, window: int) -> list[Tensor]:
    """Windows of parts, such as sentences, within each group."""
    inside = part >= 0
    value, place = torch.unique(part[inside], return_inverse=True)  # parts lie in reading order
    of = torch.empty_like(value)
    of[place] = group[inside]
    return [
        torch.full_like(part, -1).masked_scatter(inside, label[place])
        for label in window_labels(of, window)
    ]


@dataclass(frozen=True)
class Squares:
    """Squares of patches, squares of squares, and so on, for pictures.

    Args:
        window: Side of a square, at least 2. (default: ``4``)

    Raises:
        ShapeError: If ``window`` is smaller than 2.

    Example:
        >>> import torch
        >>> special = torch.tensor([True] + [False] * 16)
        >>> zero = torch.zeros(17, dtype=torch.int64)
        >>> tokens = Tokens(zero, torch.arange(17), special, None, (4, 4), 1)
        >>> Squares(2).labels(tokens)[0].tolist()
        [-1, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    """

    window: int = 4

    def __post_init__(self) -> None:
        _check_window(self.window, "a square has at least 2 patches a side")

    def labels(self, tokens: Tokens) -> list[Tensor]:
        """Squares within each picture."""
        if tokens.grid is None:
            raise UnsupportedError(
                "Squares(...) groups the patches of pictures, and this model reads texts: use "
                "Windows(...)."
            )
        rows, columns = tokens.grid
        patch = ~tokens.special
        number = torch.cumsum(patch, 0) - 1
        number = torch.where(patch, number % (rows * columns), -1)
        row = torch.where(patch, number // columns, -1)
        return grid_labels(row, number % columns, tokens.text, self.window)


def sentence_ends(tokenizer: Any, marks: Sequence[str] = (".", "!", "?")) -> tuple[int, ...]:
    """Ids of the tokens that end a sentence, for :class:`Sentences`.

    Args:
        tokenizer: Of transformers.
        marks: What ends a sentence. (default: full stop, exclamation and question mark)

    Returns:
        The ids of those marks that the vocabulary has, after a word and after a blank.

    Raises:
        UnsupportedError: If the vocabulary has none of them.

    Example:
        >>> class Letters:  # a tokenizer whose ids are those of characters
        ...     def __call__(self, text, add_special_tokens):
        ...         return {"input_ids": [ord(letter) for letter in text]}
        ...     def decode(self, ids):
        ...         return "".join(map(chr, ids))
        >>> sentence_ends(Letters())
        (33, 46, 63)
    """
    known = set()
    for mark in marks:
        for text in (mark, "a" + mark, "a " + mark):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            if ids and tokenizer.decode(ids[-1:]).strip() == mark:
                known.add(int(ids[-1]))
    if not known:
        raise UnsupportedError(
            f"the vocabulary has no token for any of {list(marks)}: give other marks."
        )
    return tuple(sorted(known))


_KINDS: dict[str, type[Any]] = {
    "flat": Flat,
    "windows": Windows,
    "sentences": Sentences,
    "squares": Squares,
    "clusters": Clusters,
}


def to_config(hierarchy: Any) -> dict[str, Any]:
    """A hierarchy as plain values.

    Example:
        >>> to_config(Windows(8))
        {'kind': 'windows', 'window': 8, 'special': False}
    """
    for name, kind in _KINDS.items():
        if type(hierarchy) is kind:
            values = {
                k: list(v) if isinstance(v, tuple) else v for k, v in asdict(hierarchy).items()
            }
            return {"kind": name, **values}
    raise UnsupportedError(
        f"{hierarchy!r} cannot be kept in a model's config: only {sorted(_KINDS)} can."
    )


def hierarchy_from(spec: Any) -> Hierarchy:
    """A hierarchy from an object, from a number (windows of so many), or from plain values.

    Args:
        spec: A hierarchy, an integer of at least 2, or a dict as a config holds it.

    Returns:
        The hierarchy.

    Raises:
        UnsupportedError: If ``spec`` is something else, or names what does not exist.

    Example:
        >>> hierarchy_from(8)
        Windows(window=8, special=False)
        >>> hierarchy_from({"kind": "squares", "window": 3})
        Squares(window=3)
    """
    if isinstance(spec, int) and not isinstance(spec, bool):
        return Windows(spec)
    if isinstance(spec, dict):
        values = dict(spec)
        kind = values.pop("kind", None)
        if isinstance(kind, str) and kind in _KINDS:
            try:
                made: Hierarchy = _KINDS[kind](**values)
            except TypeError as error:
                raise UnsupportedError(f"{spec} describes no hierarchy: {error}.") from error
            return made
        raise UnsupportedError(
            f"{spec} describes no hierarchy: its kind is one of {sorted(_KINDS)}."
        )
    if hasattr(spec, "labels"):
        result: Hierarchy = spec
        return result
    raise UnsupportedError(
        f"hierarchy={spec!r:.80} is no hierarchy: give Windows(4), Sentences(...), Squares(4), "
        "Clusters(...), Flat(), or a number of tokens to a window, at least 2."
    )
