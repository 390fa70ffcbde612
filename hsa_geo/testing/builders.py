"""Checks for builders: functions that turn a source into a signal tree.

:func:`assert_valid_builder` is for sources that the builder must take,
:func:`assert_builds_or_refuses` for hostile ones, which it may refuse with a typed error.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from hsa_geo.data import SignalTree
from hsa_geo.data.canonical import leaf_spans
from hsa_geo.errors import HSAError, HSAWarning
from hsa_geo.ops import hsa_attention
from hsa_geo.testing.checks import assert_batch_invariant

__all__ = [
    "assert_builds_or_refuses",
    "assert_reading_order",
    "assert_trees_equal",
    "assert_valid_builder",
]


def assert_trees_equal(actual: Data, expected: Data) -> None:
    """Check that two trees have the same attributes, bit by bit (NaN equals NaN).

    Args:
        actual: A tree.
        expected: The tree that it must be.

    Raises:
        AssertionError: If a key, type, shape or value differs; the message names the attribute.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 0], x=torch.rand(2, 3))
        >>> assert_trees_equal(tree.clone(), tree)
    """
    have, want = actual.to_dict(), expected.to_dict()
    if have.keys() != want.keys():
        raise AssertionError(f"attributes differ: {sorted(have.keys() ^ want.keys())}.")
    for key, value in want.items():
        same = have[key]
        if not isinstance(value, Tensor) or not isinstance(same, Tensor):
            if type(same) is not type(value) or same != value:
                raise AssertionError(f"{key!r} differs.")
            continue
        what = f"{same.dtype} {list(same.shape)}, not {value.dtype} {list(value.shape)}"
        if same.dtype != value.dtype or same.shape != value.shape:
            raise AssertionError(f"{key!r} is {what}.")
        differ = (same != value) & ~((same != same) & (value != value))
        if differ.any():
            where = differ.nonzero()[0].tolist()
            raise AssertionError(f"{key!r} differs at {where}.")


def assert_reading_order(tree: SignalTree) -> None:
    """Check that the leaves of a tree stand in reading order: those below a node have
    consecutive ids.

    Args:
        tree: One tree.

    Raises:
        AssertionError: If the leaves of a node are not consecutive; the message names it.

    Example:
        >>> assert_reading_order(SignalTree.from_parents([-1, 0, 0, 1, 1]))
    """
    parent = np.full(tree.num_tree_nodes, -1)
    parent[tree.tree_index[1].numpy()] = tree.tree_index[0].numpy()
    first, last, count = leaf_spans(parent, tree.tree_level.numpy())
    bad = np.flatnonzero(last - first + 1 != count)
    if bad.size:
        node = int(bad[0])
        raise AssertionError(
            f"node {node} has {count[node]} leaves between {first[node]} and {last[node]}: they "
            "are not in reading order."
        )


def assert_valid_builder(
    build: Callable[[Any], SignalTree], sources: Iterable[Any], *, same_keys: bool = True
) -> list[SignalTree]:
    """Check that a builder keeps the promises of every builder.

    Of each source a valid tree with its leaves in reading order, the same tree when built again,
    and also after pickling; all trees with the same attributes, so that they batch; a batch that
    gives its trees back, and HSA over the batch equal to HSA over each tree.

    Args:
        build: Takes a source, which it must not change, and returns a tree.
        sources: Sources that it must take, at least one.
        same_keys: Check that trees have the same attributes, and batch them. (default:
            :obj:`True`)

    Returns:
        The trees.

    Raises:
        AssertionError: If a promise is broken; the message names the source by its number.
        HSAError: Whatever a tree that is not valid, or a source that is refused, raises.

    Example:
        >>> from hsa_geo.builders import from_text
        >>> trees = assert_valid_builder(from_text, ["To be.", "Or not to be!"])
        >>> len(trees)
        2
    """
    trees: list[SignalTree] = []
    for number, source in enumerate(sources):
        tree = build(source)
        if not isinstance(tree, SignalTree):
            raise AssertionError(f"source {number} gives a {type(tree).__name__}, no SignalTree.")
        tree.validate()
        with _named(f"source {number}"):
            assert_reading_order(tree)
        with _named(f"source {number}, built again"):
            assert_trees_equal(build(source), tree)
        with _named(f"source {number}, pickled"):
            assert_trees_equal(pickle.loads(pickle.dumps(tree)), tree)
        trees.append(tree)
    if not trees:
        raise AssertionError("there are no sources: give at least one.")
    if not same_keys:
        return trees
    keys = set(trees[0].keys())
    for number, tree in enumerate(trees):
        if set(tree.keys()) != keys:
            raise AssertionError(
                f"source {number} has other attributes than source 0: "
                f"{sorted(set(tree.keys()) ^ keys)}."
            )
    batch = Batch.from_data_list(trees)
    batch.validate()
    for number, (tree, again) in enumerate(zip(trees, batch.to_data_list())):
        with _named(f"source {number}, out of a batch"):
            assert_trees_equal(again, tree)
    assert_batch_invariant(_attention, [_with_probe(tree, k) for k, tree in enumerate(trees)])
    return trees


def assert_builds_or_refuses(
    build: Callable[[], SignalTree], *, allowed: type[Exception] | tuple[type[Exception], ...] = ()
) -> SignalTree | None:
    """Check that a builder makes a valid tree of a source, however hostile, or refuses it with
    one of the errors of hsa_geo.

    Args:
        build: Calls the builder.
        allowed: Other errors that the builder documents, such as ``OSError``. (default: none)

    Returns:
        The tree, or :obj:`None` if the builder refused.

    Raises:
        AssertionError: If anything else is raised, or a warning is none of hsa_geo, or the result
            is no valid tree in reading order.

    Example:
        >>> from hsa_geo.builders import from_text
        >>> assert_builds_or_refuses(lambda: from_text("...")) is None  # no word
        True
    """
    more = allowed if isinstance(allowed, tuple) else (allowed,)
    refusals: tuple[type[Exception], ...] = (HSAError, *more)
    refused = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tree = build()
        except refusals as error:
            _check_message(error)
            refused = True
        except Exception as error:
            name = type(error).__name__
            raise AssertionError(f"an untyped error: {name}: {str(error)[:500]}") from error
    for warning in caught:
        if not issubclass(warning.category, HSAWarning):
            raise AssertionError(
                f"an untyped warning: {warning.category.__name__}: {str(warning.message)[:500]}"
            )
    if refused:
        return None
    if not isinstance(tree, SignalTree):
        raise AssertionError(f"the builder gives a {type(tree).__name__}, no SignalTree.")
    try:
        tree.validate()
    except HSAError as error:
        raise AssertionError(f"the tree is not valid: {error}") from error
    assert_reading_order(tree)
    return tree


def _check_message(error: Exception) -> None:
    """A message can be printed, and is no page long."""
    if not isinstance(error, HSAError):
        return
    message = str(error)
    if not 10 <= len(message) <= 4000:
        raise AssertionError(f"a message of {len(message)} characters: {message[:200]!r}")


class _named:
    """Says in an AssertionError which source is meant."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AssertionError):
            raise AssertionError(f"{self.what}: {error}") from error


def _with_probe(tree: SignalTree, seed: int) -> SignalTree:
    tree = tree.clone()
    generator = torch.Generator().manual_seed(seed)
    n = int(tree.num_nodes or 0)
    tree.probe = torch.randn(n, 1, 4, dtype=torch.float64, generator=generator)
    return tree


def _attention(tree: Data) -> Tensor:
    return hsa_attention(tree.probe, tree.probe, tree.probe, tree)
