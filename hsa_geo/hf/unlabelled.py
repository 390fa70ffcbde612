"""What a model is trained on without labels: texts that a tokenizer reads, or ready-made inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf.lengths import most_tokens

__all__ = ["Inputs", "Texts", "unlabelled"]

#: What trains nothing here.
_LABELS = ("label", "label_ids", "labels")


class Texts:
    """Texts; a batch is padded by the tokenizer.

    Args:
        texts: The texts.
        tokenizer: Of transformers.
        most: Tokens of a text at most, special ones included; longer texts are cut.

    Example:
        >>> class Letters:  # a tokenizer whose ids are those of characters
        ...     def __call__(self, texts, **options):
        ...         return {"input_ids": [[ord(letter) for letter in text] for text in texts]}
        >>> Texts(["to", "be", "or", "nothing"], Letters(), 8).batches([3, 0, 1], 6, seed=0)
        [[1, 0], [3]]
    """

    def __init__(self, texts: list[str], tokenizer: Any, most: int) -> None:
        self.texts, self.tokenizer = texts, tokenizer
        self.options = {"truncation": True, "max_length": most}
        self.lengths = [len(ids) for ids in tokenizer(texts, **self.options)["input_ids"]]

    def __len__(self) -> int:
        return len(self.texts)

    def batches(self, rows: Sequence[int], budget: int, seed: int) -> list[list[int]]:
        """Texts of like length together, in a random order.

        Args:
            rows: Which texts.
            budget: Tokens of a batch at most, padding included; a single text may have more.
            seed: Other seeds give other batches.

        Returns:
            The texts of each batch.
        """
        rng = np.random.default_rng(seed)
        lengths = np.array([self.lengths[row] for row in rows])
        like = lengths * rng.uniform(0.9, 1.1, len(rows))  # not the same neighbours every time
        batches: list[list[int]] = []
        longest = 0
        for at in np.argsort(like, kind="stable").tolist():
            longest = max(longest, int(lengths[at]))
            if not batches or (len(batches[-1]) + 1) * longest > budget:
                batches.append([])
                longest = int(lengths[at])
            batches[-1].append(rows[at])
        return [batches[at] for at in rng.permutation(len(batches))]

    def inputs(self, rows: list[int]) -> Mapping[str, Any]:
        """Inputs of a model for these texts."""
        chosen = [self.texts[row] for row in rows]
        made: Mapping[str, Any] = self.tokenizer(
            chosen, padding=True, return_tensors="pt", **self.options
        )
        return made


class Inputs:
    """Ready-made inputs of a model, each of them a batch.

    Args:
        given: The inputs.

    Example:
        >>> Inputs([{"pixel_values": 0}, {"pixel_values": 1}]).batches([0, 1], 64, seed=0)
        [[0], [1]]
    """

    def __init__(self, given: list[Mapping[str, Any]]) -> None:
        self.given = given

    def __len__(self) -> int:
        return len(self.given)

    def batches(self, rows: Sequence[int], budget: int, seed: int) -> list[list[int]]:
        """Each by itself, in a random order; the budget changes nothing."""
        return [[rows[at]] for at in np.random.default_rng(seed).permutation(len(rows))]

    def inputs(self, rows: list[int]) -> Mapping[str, Any]:
        """The inputs, without labels."""
        return {name: x for name, x in self.given[rows[0]].items() if name not in _LABELS}


def unlabelled(
    given: Any, tokenizer: Any, config: Any, pictures: bool, most: int | None
) -> Texts | Inputs:
    """Texts or inputs, if they are such.

    Args:
        given: Texts, or inputs of the model by name.
        tokenizer: Reads texts.
        config: Of the model.
        pictures: Whether the model reads pictures.
        most: Tokens of a text at most, or None for as many as tokenizer and model take.

    Returns:
        What batches are made of.

    Raises:
        ShapeError: If there is nothing, or it is neither.
        UnsupportedError: If texts come without a tokenizer or to a model of pictures, or an
            argument would have no effect.

    Example:
        >>> from types import SimpleNamespace
        >>> len(unlabelled([{"input_ids": 0}], None, SimpleNamespace(), False, None))
        1
    """
    if isinstance(given, (str, bytes, Tensor)) or not isinstance(given, Iterable):
        raise ShapeError(
            f"texts={given!r:.80}: give a list of str, or of inputs of the model by name."
        )
    items = [given] if isinstance(given, Mapping) else list(given)
    if not items:
        raise ShapeError("texts=[] leaves nothing to train on: give some.")
    if all(isinstance(item, Mapping) for item in items):
        if tokenizer is not None or most is not None:
            raise UnsupportedError(
                "tokenizer and max_tokens have no effect on inputs that are ready-made: leave them "
                "out, or give texts."
            )
        return Inputs(items)
    words = [item for item in items if isinstance(item, str)]
    if len(words) < len(items):
        kinds = sorted({type(item).__name__ for item in items})
        raise ShapeError(
            f"texts holds {', '.join(kinds)}: give str alone, or inputs of the model by name alone."
        )
    if pictures:
        raise UnsupportedError(
            "the model reads pictures, and texts holds str: give inputs by name, such as "
            "{'pixel_values': pixels}."
        )
    if not callable(tokenizer):
        raise UnsupportedError(
            f"tokenizer={tokenizer!r:.80} cannot read texts: give the model's tokenizer of "
            "transformers."
        )
    limit = most_tokens(config)
    if most is None:
        limits = (512, getattr(tokenizer, "model_max_length", 512), limit or 512)
        most = int(min(limits))
    elif limit is not None and most > limit:
        raise ShapeError(f"max_tokens={most}: the model takes {limit} tokens of a text at most.")
    return Texts(words, tokenizer, most)
