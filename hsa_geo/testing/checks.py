"""Checks of the properties that attention over a hierarchy must have.

Each raises an ``AssertionError`` that names the first place where the property fails, and
returns nothing.  They take plain tensors and functions, so that any layer or model can be
checked, not only those of hsa_geo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from hsa_geo.data import SignalTree
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing.trees import shuffle_siblings

__all__ = [
    "assert_batch_invariant",
    "assert_block_tied",
    "assert_forest_equals_trees",
    "assert_key_tied",
    "assert_row_stochastic",
    "assert_sibling_order_invariant",
]


def tolerance(like: Tensor, atol: float | None) -> float:
    """``atol``, or what rounding explains: about 2e-12 in float64, 6e-6 in float32, 0 in ints.

    Example:
        >>> tolerance(torch.zeros(1), 0.1), tolerance(torch.zeros(1, dtype=torch.int64), None)
        (0.1, 0.0)
    """
    if atol is not None:
        return atol
    return torch.finfo(like.dtype).eps ** 0.75 if like.is_floating_point() else 0.0


def assert_row_stochastic(theta: Tensor, *, atol: float | None = None) -> None:
    """Check that no entry is negative or NaN and every row sums to 1.

    Args:
        theta: [..., N, N].
        atol: Largest error. (default: what rounding in the dtype explains)

    Raises:
        AssertionError: If an entry or a sum is wrong.

    Example:
        >>> assert_row_stochastic(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    """
    limit = tolerance(theta, atol)
    bad = ~(theta >= -limit)  # NaN too
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(f"theta{list(at)} is {theta[at].item()}, which is no probability.")
    total = theta.sum(dim=-1)
    bad = ~((total - 1).abs() <= limit)
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(f"row {list(at)} of theta sums to {total[at].item()} instead of 1.")


def assert_block_tied(theta: Tensor, tree: Data, *, atol: float | None = None) -> None:
    """Check that theta_ij is one value for all leaves i under B and j under C, for every
    ordered pair of siblings B, C, and zero between different trees.

    Args:
        theta: [..., N, N].
        tree: The tree or batch.
        atol: Largest difference. (default: what rounding in the dtype explains)

    Raises:
        AssertionError: If a block is not constant; the message names B and C.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 0, 2, 2])
        >>> theta = torch.tensor([[0.4, 0.3, 0.3], [0.2, 0.7, 0.1], [0.2, 0.6, 0.2]])
        >>> assert_block_tied(theta, tree)
    """
    limit = tolerance(theta, atol)
    plain = PlainTree.of(tree)
    for b, c in plain.pairs():
        block = theta[..., plain.under[b], :][..., plain.under[c]].flatten(-2)
        spread = (block.amax(dim=-1) - block.amin(dim=-1)).max().item()
        if not spread <= limit:
            raise AssertionError(
                f"theta is not tied: it differs by {spread} from the leaves under node {b} to "
                f"those under node {c}."
            )
    _assert_apart(theta, plain, limit)


def assert_key_tied(theta: Tensor, tree: Data, *, atol: float | None = None) -> None:
    """Check that theta_ij is one value for all leaves j under C, for every leaf i and every sibling
    C of it or of one of its ancestors, and zero between different trees.

    Args:
        theta: [..., N, N].
        tree: The tree or batch.
        atol: Largest difference. (default: what rounding in the dtype explains)

    Raises:
        AssertionError: If the weights on the leaves under a node differ; the message names it.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 0, 2, 2])
        >>> theta = torch.tensor([[0.4, 0.3, 0.3], [0.2, 0.7, 0.1], [0.3, 0.5, 0.2]])
        >>> assert_key_tied(theta, tree)
    """
    limit = tolerance(theta, atol)
    plain = PlainTree.of(tree)
    for b, c in plain.pairs():
        block = theta[..., plain.under[b], :][..., plain.under[c]]
        spread = (block.amax(dim=-1) - block.amin(dim=-1)).max().item()
        if not spread <= limit:
            raise AssertionError(
                f"theta is not tied: the weights of a leaf under node {b} on those under node {c} "
                f"differ by {spread}."
            )
    _assert_apart(theta, plain, limit)


def _assert_apart(theta: Tensor, plain: PlainTree, limit: float) -> None:
    apart = theta[..., plain.entry() == plain.num_pairs + len(plain.leaves)]
    if apart.numel() and not apart.abs().max() <= limit:
        raise AssertionError(f"theta is {apart.abs().max().item()} between two trees, not 0.")


def assert_batch_invariant(
    fn: Callable[[Data], Tensor], trees: Sequence[SignalTree], *, atol: float | None = None
) -> None:
    """Check that a batch of trees gives what its trees give one by one.

    Args:
        fn: Takes a tree or batch (with its features as attributes); its result has one row per
            leaf, per tree node, per pair or per tree, so that those of the trees concatenate.
        trees: The trees.
        atol: Largest difference. (default: what rounding in the dtype explains, relative to the
            largest entry)

    Raises:
        AssertionError: If they differ; the message names the tree.

    Example:
        >>> trees = [SignalTree.from_parents([-1, 0, 0], x=torch.rand(2, 3)) for _ in range(2)]
        >>> assert_batch_invariant(lambda tree: 2 * tree.x, trees)
    """
    parts = [fn(tree) for tree in trees]
    together = fn(Batch.from_data_list(list(trees)))
    rows = sum(len(part) for part in parts)
    if len(together) != rows:
        raise AssertionError(f"the batch gives {len(together)} rows, its trees {rows}.")
    for number, (part, of_batch) in enumerate(
        zip(parts, together.split([len(part) for part in parts]))
    ):
        _assert_equal(of_batch, part, f"tree {number} of {len(trees)} in the batch", atol)


#: The same check by its other name.
assert_forest_equals_trees = assert_batch_invariant


def assert_sibling_order_invariant(
    fn: Callable[[Data], Tensor], tree: SignalTree, *, seed: int = 0, atol: float | None = None
) -> None:
    """Check that the order of siblings does not matter: the leaves only change places.

    Args:
        fn: Takes a tree (with its features as attributes) and returns one row per leaf.
        tree: The tree; nodes keep their ``tree_pos`` wherever they go.
        seed: Seed of the shuffling. (default: ``0``)
        atol: Largest difference. (default: what rounding in the dtype explains, relative to the
            largest entry)

    Raises:
        AssertionError: If a leaf's result changes.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 0], x=torch.rand(2, 3))
        >>> assert_sibling_order_invariant(lambda tree: tree.x - tree.x.mean(0), tree)
    """
    shuffled, row = shuffle_siblings(tree, seed=seed)
    before, after = fn(tree), fn(shuffled)
    if len(before) != len(row):
        raise AssertionError(f"fn gives {len(before)} rows for {len(row)} leaves: give one each.")
    _assert_equal(after, before[row], f"siblings shuffled with seed {seed}", atol)


def _assert_equal(actual: Tensor, expected: Tensor, what: str, atol: float | None) -> None:
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {list(actual.shape)}, not {list(expected.shape)}.")
    limit = tolerance(expected, atol)
    if atol is None and expected.numel():
        limit *= max(1.0, expected.abs().max().item())
    off = (actual.double() - expected.double()).abs()
    if not bool((off <= limit).all()):  # NaN too
        raise AssertionError(f"{what}: results differ by up to {off.max().item()}.")
