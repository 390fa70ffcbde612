"""What the constructors of layers accept: sizes, shares, modules.

Example:
    >>> check_positive(heads=2)
    >>> check_positive(heads="2")
    Traceback (most recent call last):
        ...
    hsa_geo.errors.ShapeError: heads='2' is no positive whole number: give at least 1.
"""

from __future__ import annotations

import inspect
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.inputs import is_number

__all__ = [
    "check_maker",
    "check_multiple",
    "check_positive",
    "check_rows_module",
    "check_share",
    "check_tree",
    "check_tree_module",
    "check_widths",
    "is_size",
]

#: A module for each argument that takes one.
_EXAMPLES = {
    "position": "PositionEmbedding(...); tensors go to the call, conv(x, tree, pos=...)",
    "pair_bias": "OffsetBias(...); tensors go to the call, conv(x, tree, pair_bias=...)",
}


def is_size(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number, of Python or of numpy, of at least ``least``.

    Example:
        >>> is_size(3), is_size(0), is_size(2.0), is_size(True)
        (True, False, False, False)
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and int(value) >= least


def check_positive(**sizes: Any) -> None:
    """Check sizes by their names.

    Raises:
        ShapeError: If one is no positive whole number.

    Example:
        >>> check_positive(channels=8, heads=2)
    """
    for name, size in sizes.items():
        if not is_size(size):
            raise ShapeError(f"{name}={size!r} is no positive whole number: give at least 1.")


def check_multiple(channels: Any, heads: Any) -> None:
    """Check that every head gets as many channels.

    Raises:
        ShapeError: If not.

    Example:
        >>> check_multiple(channels=8, heads=2)
    """
    if not is_size(channels) or not is_size(heads) or channels % heads:
        raise ShapeError(
            f"channels={channels!r} is not a multiple of heads={heads!r}: give two positive "
            "numbers, one a multiple of the other."
        )


def check_widths(in_channels: Any, out_channels: Any, heads: Any) -> None:
    """Check the widths of a layer, of which the first may be ``-1``, to be inferred.

    Raises:
        ShapeError: If one is something else.

    Example:
        >>> check_widths(-1, out_channels=8, heads=2)
    """
    if not is_size(in_channels) and (not is_size(in_channels, -1) or in_channels != -1):
        raise ShapeError(
            f"in_channels={in_channels!r} is no size of features: give a positive whole number, "
            "or -1 to infer it."
        )
    if not is_size(heads) or not is_size(out_channels):
        raise ShapeError(
            f"heads={heads!r} and out_channels={out_channels!r} must be positive whole numbers."
        )


def check_share(**shares: Any) -> None:
    """Check probabilities by their names.

    Raises:
        ShapeError: If one is no number from 0 to 1.

    Example:
        >>> check_share(dropout=0.1)
    """
    for name, share in shares.items():
        if not is_number(share) or not 0 <= share <= 1:
            raise ShapeError(f"{name}={share!r} is no probability: give a number from 0 to 1.")


def check_tree(tree: Any) -> None:
    """Check that a model is given a tree or a batch of trees.

    Raises:
        ShapeError: If it is something else; the message says how to make one of it.

    Example:
        >>> check_tree(SignalTree.from_parents([2, 2, -1]))
    """
    if isinstance(tree, SignalTree):
        return
    if isinstance(tree, (list, tuple)):
        remedy = "join trees with Batch.from_data_list([...]) or a DataLoader"
    elif isinstance(tree, (str, bytes)):
        remedy = "make a tree of it with a builder, such as from_text or from_html"
    else:
        remedy = "give a SignalTree or a Batch of them"
    raise ShapeError(f"the model was given {_said(tree)}: {remedy}.")


def check_tree_module(name: str, module: Any) -> None:
    """Check what a layer will call with the tree: a module, or another function.

    Raises:
        UnsupportedError: If it cannot be called so; the message says what can.

    Example:
        >>> check_tree_module("position", lambda tree: None)
    """
    if module is None or (callable(module) and not isinstance(module, (type, Tensor))):
        return
    raise UnsupportedError(
        f"{name} is {_said(module)}, but the layer calls it with each tree: give a module, such as "
        f"{_EXAMPLES[name]}."
    )


def check_maker(name: str, make: Any) -> None:
    """Check a function that makes the module of a block.

    Raises:
        UnsupportedError: If it cannot be called without arguments.

    Example:
        >>> check_maker("position", lambda: None)
    """
    try:
        fits = not isinstance(make, nn.Module)
        inspect.signature(make).bind()
    except TypeError:  # nothing to call, or with arguments
        fits = False
    except ValueError:  # built in, without a signature
        pass
    if not fits:
        raise UnsupportedError(
            f"{name} is {_said(make)}, but every block needs a module of its own: give a function "
            "without arguments that makes it, lambda: ...."
        )


def check_rows_module(module: nn.Module, rows: Any, what: str) -> None:
    """Check that a module of one domain is given rows of numbers, and not the tree itself.

    Raises:
        ShapeError: If not.

    Example:
        >>> from torch import zeros
        >>> check_rows_module(nn.Identity(), zeros(3, 2), "positions [n, 2]")
    """
    if isinstance(rows, Tensor):
        return
    name = type(module).__name__
    remedy = (
        f"as the position= of a layer, give PositionEmbedding(domains={{domain: {name}(...)}})"
        if isinstance(rows, SignalTree)
        else "give a tensor"
    )
    raise ShapeError(f"{name} reads {what} and was given {_said(rows)}: {remedy}.")


def _said(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, (str, bytes, bool, int, float)):
        return f"{value!r:.60}"
    return f"a {type(value).__name__}"
