"""What training pages say of their labels, looked at before the training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError

__all__ = ["check_targets"]


def check_targets(
    trees: Iterable[SignalTree], unit: str, classes: int, name: str, scored: bool = False
) -> None:
    """Raise unless every tree says what it is an example of.

    Args:
        trees: The trees.
        unit: ``"page"``: ``y [1]`` int64, a place among the labels; ``"form"``: ``form_label [K]``
            int64, a place for each of the K forms, -1 or -2.
        classes: Number of labels C.
        name: What the trees are called in the error.
        scored: Of forms the pages are looked at as well: ``y [1, C]``, 0 or 1.
            (default: :obj:`False`)

    Raises:
        ShapeError: If one does not.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1], y=torch.tensor([1]))
        >>> check_targets([tree], "page", 2, "train")
        >>> check_targets([tree], "page", 1, "train")
        Traceback (most recent call last):
            ...
        hsa_geo.errors.ShapeError: train[0] has y=[1]: give int64 [1], a place from 0 to 0.
    """
    for number, tree in enumerate(trees):
        if not isinstance(tree, SignalTree):
            raise ShapeError(f"{name}[{number}] is a {type(tree).__name__}: give a SignalTree.")
        if unit == "page":
            if not _places(tree.get("y"), 1, 0, classes):
                raise ShapeError(
                    f"{name}[{number}] has y={_shown(tree.get('y'))}: give int64 [1], a place from "
                    f"0 to {classes - 1}."
                )
            continue
        forms = tree.get("form_node")
        if not isinstance(forms, Tensor) or not _places(
            tree.get("form_label"), forms.numel(), -2, classes
        ):
            raise ShapeError(
                f"{name}[{number}] has form_label={_shown(tree.get('form_label'))} and "
                f"form_node={_shown(forms)}: give int64 [K], for each of the K forms a place from "
                f"0 to {classes - 1}, -1 if it is not annotated, or -2 if it is of no type."
            )
        y = tree.get("y")
        if scored and not (
            isinstance(y, Tensor) and y.shape == (1, classes) and bool(((y == 0) | (y == 1)).all())
        ):
            raise ShapeError(
                f"{name}[{number}] has y={_shown(y)}: give [1, {classes}], 1 for each label that "
                "the page has, 0 for the others."
            )


def _places(value: Any, count: int, least: int, classes: int) -> bool:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != (count,):
        return False
    return not count or (least <= int(value.min()) and int(value.max()) < classes)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        small = value.numel() <= 8
        return str(value.tolist()) if small else f"{value.dtype} of shape {list(value.shape)}"
    return f"{value!r:.80}"
