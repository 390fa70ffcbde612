"""What ``fit`` is given: checked before the first step, and blamed for what fails in one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import HSAError, LabelError, ShapeError, UnsupportedError
from hsa_geo.training.options import Options

__all__ = ["blamed_on_labels", "check_arguments", "check_classes", "check_labels", "check_trees"]


def check_arguments(model: Any, loss: Any, metric: Any, options: Any) -> None:
    """Check everything of ``fit`` but the trees.

    Raises:
        UnsupportedError: If one is of a kind that cannot be used.

    Example:
        >>> check_arguments(nn.Linear(2, 1), lambda model, batch: None, None, Options())
    """
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"{model!r:.60}"
        raise UnsupportedError(
            f"model is {what}: give a torch.nn.Module, an instance of its class."
        )
    of_torch = isinstance(loss, nn.Module) and type(loss).__module__ == "torch.nn.modules.loss"
    if not callable(loss) or of_torch or (isinstance(loss, type) and issubclass(loss, nn.Module)):
        raise UnsupportedError(
            f"loss={loss!r:.60} is not called as loss(model, batch): give a function, such as "
            "lambda model, batch: cross_entropy(model(batch), batch.y, reduction='none')."
        )
    if metric is not None and not callable(metric):
        raise UnsupportedError(
            f"metric={metric!r:.60} is no function: give metric(model, batches), or None for the "
            "accuracy."
        )
    if not isinstance(options, Options):
        raise UnsupportedError(f"options={options!r:.60} are none: give Options(epochs=10, ...).")


def check_trees(name: str, trees: Any, like: SignalTree | None = None) -> SignalTree | None:
    """Check the trees of a training by the first one, those of a list by all.

    Args:
        name: How they are called.
        trees: A dataset or a list.
        like: A tree whose features the first must have as wide, where it has them.
            (default: any)

    Returns:
        The first tree, or None if there is none.

    Raises:
        ShapeError: If they are no trees, or features are of another width.

    Example:
        >>> check_trees("train", [SignalTree.from_parents([2, 2, -1])]).num_leaves
        2
    """
    if isinstance(trees, (SignalTree, str, Mapping)) or not (
        hasattr(trees, "__len__") and hasattr(trees, "__getitem__")
    ):
        raise ShapeError(
            f"{name} is a {type(trees).__name__}: give a list of trees, or a dataset with a length."
        )
    if not len(trees):
        return None
    for number, tree in enumerate(trees if isinstance(trees, (list, tuple)) else [trees[0]]):
        if not isinstance(tree, SignalTree):
            raise ShapeError(
                f"{name}[{number}] is a {type(tree).__name__}, no SignalTree: make one with a "
                "builder, or attach a hierarchy to a graph with hsa_geo.transforms."
            )
    first: SignalTree = trees[0]
    if isinstance(trees, (list, tuple)):
        for number, tree in enumerate(trees):
            _check_widths(f"{name}[{number}]", tree, f"{name}[0]", first)
    if like is not None:
        _check_widths(f"{name}[0]", first, "train[0]", like)
    return first


def _check_widths(name: str, tree: SignalTree, other: str, like: SignalTree) -> None:
    """Refuse features of other widths, which no batch and no model could hold together."""
    for key in like.keys():  # noqa: SIM118  # of PyG's Data, not of a dict
        if (key == "x" or key.endswith("_x")) and key in tree:
            widths = [
                value.size(1) if isinstance(value, Tensor) and value.dim() == 2 else None
                for value in (tree[key], like[key])
            ]
            if None not in widths and widths[0] != widths[1]:
                raise ShapeError(
                    f"'{key}' of {name} has {widths[0]} columns, that of {other} {widths[1]}: "
                    "build both with the same options."
                )


def check_labels(batch: Any, what: str) -> Tensor:
    """The labels ``y`` of a batch.

    Raises:
        LabelError: If there are none, or they are no tensor.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1], y=torch.tensor([1]))
        >>> check_labels(tree, "accuracy")
        tensor([1])
    """
    y = getattr(batch, "y", None)
    if not isinstance(y, Tensor):
        raise LabelError(f"{what} needs labels, but {_labels(batch)}: {_REMEDY}.")
    return y


def check_classes(y: Tensor, classes: int) -> None:
    """Refuse labels that none of the outputs is for, of which none could ever be right.

    Args:
        y: The labels.
        classes: Number of outputs.

    Raises:
        LabelError: If one is not a whole number from 0 to ``classes`` - 1.

    Example:
        >>> check_classes(torch.tensor([0, 1]), 2)
    """
    if y.is_floating_point() or y.is_complex():
        raise LabelError(f"accuracy needs labels, but y is {y.dtype}: {_REMEDY}.")
    bad = y[(y < 0) | (y >= classes)]
    if bad.numel():
        raise LabelError(
            f"accuracy met the label {int(bad[0])}, which is none of the {classes} outputs: give "
            f"classes from 0 to {classes - 1}."
        )


@contextlib.contextmanager
def blamed_on_labels(batch: Any, place: str) -> Iterator[None]:
    """Say what the labels of a batch are where a loss or metric fails because of them.

    Other errors pass as they are, with a note that says where; so do those of labels that are
    classes, unless a loss of torch says that one is beyond the outputs.

    Args:
        batch: The batch.
        place: Which, in words.

    Raises:
        LabelError: If it failed, and there are no labels or they are none for the outputs.

    Example:
        >>> with blamed_on_labels(None, "step 1"):
        ...     pass
    """
    try:
        yield
    except HSAError:
        raise
    except (TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200].rstrip(".")
        y = getattr(batch, "y", None)
        fits = isinstance(y, Tensor) and y.dim() == 1 and y.dtype == torch.int64
        target = re.search(r"\btarget\b", said, re.I) is not None  # what torch's losses call labels
        beyond = target and re.search(r"out of bounds|batch_size", said) is not None
        blamed = beyond if fits else target or re.search(r"'y'", said) is not None
        if not blamed or isinstance(error, torch.OutOfMemoryError):
            error.add_note(f"It was raised in {place}; {_labels(batch)}.")
            raise
        remedy = "give classes from 0 to the number of outputs less one" if fits else _REMEDY
        raise LabelError(
            f"the loss failed in {place} ({type(error).__name__}: {said}), and {_labels(batch)}: "
            f"{remedy}."
        ) from error


_REMEDY = "give every tree y = torch.tensor([class]), a class from 0"


def _labels(batch: Any) -> str:
    """What the labels of a batch are, in words."""
    y = getattr(batch, "y", None)
    if y is None:
        return "its trees have no y"
    if not isinstance(y, Tensor):
        first = f", the first {y[0]!r:.40}" if isinstance(y, (list, tuple)) and y else ""
        return f"their y is a {type(y).__name__}{first}"
    numbers = ""
    if y.numel() and not y.is_complex():
        numbers = f" from {y.min().item():g} to {y.max().item():g}"
    return f"their y is {str(y.dtype).removeprefix('torch.')} {list(y.shape)}{numbers}"
