"""A check that labels are classes.

Example:
    >>> check_labels(torch.tensor([0, 1]), ["ham", "spam"])
    >>> check_labels(torch.tensor([0, 2]), ["ham", "spam"])
    Traceback (most recent call last):
    ...
    hsa_geo.errors.LabelError: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import LabelError

__all__ = ["check_labels"]


def check_labels(y: Any, classes: Sequence[str]) -> None:
    """Raise unless every label is a class.

    Args:
        y: Labels: integers, any shape, the place of a class in ``classes``; or ``[n, C]`` floats
            or bools, one for each of ``C`` classes; or None for no labels.
        classes: Names of the classes; if there are none, nothing is checked.

    Raises:
        LabelError: If an integer is below 0, or not below the number of classes; if there are not
            as many columns as classes; if labels of one class are no integers.

    Example:
        See the example of :mod:`hsa_geo.datasets.labels`.
    """
    if not classes or y is None:
        return
    count = len(classes)
    if not isinstance(y, Tensor):
        raise LabelError(f"y is a {type(y).__name__}, no tensor: make it torch.tensor([y]).")
    if y.is_floating_point() or y.dtype == torch.bool:
        if y.dim() != 2 or y.size(1) != count:
            raise LabelError(
                f"y has shape {list(y.shape)} and dtype {y.dtype}: give int64 places in the "
                f"{count} classes, or one column for each class."
            )
        return
    bad = ((y < 0) | (y >= count)).flatten().nonzero().flatten()
    if len(bad):
        where = int(bad[0])
        raise LabelError(
            f"y holds {int(y.flatten()[where])} (at place {where}), but there are {count} classes, "
            f"0 to {count - 1}."
        )
