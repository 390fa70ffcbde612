r"""What attention costs: query-key pairs and floating point operations, counted, not estimated.

Two ways to count (a multiplication and an addition are two operations):

- ``"exact"``: what is computed.  Pairs are the ordered pairs of siblings (or, for ``tie="key"``,
  of a leaf and what it reaches) and every leaf with itself; each is a product of a query with a
  key and of a weight with a value.  The means on the way up and the sums on the way down are
  counted beside them; exponentials, and the scalars of the recursion, are not.
- ``"paper"``: four operations per pair and feature, where a group of b siblings has b\ :sup:`2`
  pairs, the inner nodes' own among them, and a node without siblings has one: so the table of the
  paper's experiment with RoBERTa was counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.reach import num_reached
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.inputs import TIES, as_plan

__all__ = ["CONVENTIONS", "AttentionCost", "attention_cost", "count_pairs", "flat_cost"]

#: Names accepted by ``convention=``.
CONVENTIONS = ("exact", "paper")


@dataclass(frozen=True)
class AttentionCost:
    """The cost of one attention over all its trees and heads.

    Attributes:
        pairs: Query-key pairs, of each head.
        scores: Operations of the products q . k.
        values: Operations of the weighted sums of values.
        means: Operations of the means of queries, keys and values under inner nodes.
        paths: Operations of the sums along the paths to the leaves.

    Example:
        >>> AttentionCost(4, 64, 64, 0, 0).total
        128
    """

    pairs: int
    scores: int
    values: int
    means: int
    paths: int

    @property
    def total(self) -> int:
        """All operations."""
        return self.scores + self.values + self.means + self.paths


def count_pairs(tree: Any, tie: str = "block", convention: str = "exact") -> int:
    """Query-key pairs of an attention over a tree or a batch.

    Args:
        tree: A :class:`~hsa_geo.data.SignalTree`, a ``Batch`` of them, or a
            :class:`~hsa_geo.data.TreePlan`.
        tie: As in :func:`~hsa_geo.ops.hsa_attention`. (default: ``"block"``)
        convention: ``"exact"`` or ``"paper"``. (default: ``"exact"``)

    Returns:
        Their number, of each head.

    Raises:
        UnsupportedError: If an option is unknown, or the paper's convention is asked for with
            ``tie="key"``, which the paper does not know.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])  # three groups of two
        >>> count_pairs(tree), count_pairs(tree, convention="paper"), count_pairs(tree, tie="key")
        (10, 12, 12)
    """
    plan = as_plan(tree)
    _check(tie, convention)
    if tie == "key":
        return num_reached(plan) + plan.num_leaves
    if convention == "exact":
        return plan.num_pairs + plan.num_leaves
    alone = plan.num_nodes - plan.num_slots  # nodes with one child, contracted
    return int(plan.group_ptr.diff().square().sum()) + alone


def attention_cost(
    tree: Any,
    heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    tie: str = "block",
    convention: str = "exact",
) -> AttentionCost:
    """Operations of hierarchical attention over a tree or a batch.

    Args:
        tree: As in :func:`count_pairs`.
        heads: Number of heads H.
        head_dim: Features D of a query, of each head.
        value_dim: Features of a value. (default: ``head_dim``)
        tie: As in :func:`~hsa_geo.ops.hsa_attention`. (default: ``"block"``)
        convention: ``"exact"`` or ``"paper"``. (default: ``"exact"``)

    Returns:
        The cost.

    Raises:
        ShapeError: If a size is not positive.
        UnsupportedError: As in :func:`count_pairs`.

    Example:
        >>> from hsa_geo.builders import from_sequence
        >>> import torch
        >>> tree = from_sequence(torch.zeros(264, 1), windows=4)  # a review of the paper's IMDB
        >>> cost = attention_cost(tree, heads=12, head_dim=64, convention="paper")
        >>> round(cost.total / 1e6, 3), round(flat_cost([264], 12, 64).total / 1e6, 1)
        (4.307, 214.1)
    """
    plan = as_plan(tree)
    dim, dim_v = _sizes(heads, head_dim, value_dim)
    pairs = count_pairs(plan, tie, convention)
    means = paths = 0
    if convention == "exact":
        below = plan.num_slots - plan.num_trees  # each is added to its parent's mean
        means = below * (dim_v + (dim if tie == "key" else 2 * dim))
        if tie == "block":  # from slot to slot down to the leaves: a product and a sum
            paths = below * 2 * dim_v
    return AttentionCost(pairs, 2 * pairs * dim, 2 * pairs * dim_v, means, paths)


def flat_cost(
    lengths: Any, heads: int, head_dim: int, *, value_dim: int | None = None
) -> AttentionCost:
    """Operations of softmax attention among all leaves of each tree, or all tokens of each text.

    Args:
        lengths: Numbers of leaves, or a tree, batch or plan.
        heads: Number of heads H.
        head_dim: Features D of a query, of each head.
        value_dim: Features of a value. (default: ``head_dim``)

    Returns:
        The cost; both conventions agree on it.

    Raises:
        ShapeError: If a size is not positive.

    Example:
        >>> flat_cost([3, 4], heads=2, head_dim=8)
        AttentionCost(pairs=25, scores=800, values=800, means=0, paths=0)
    """
    if not isinstance(lengths, (list, tuple)):
        plan: TreePlan = as_plan(lengths)
        lengths = plan.count[: plan.num_trees].tolist()
    dim, dim_v = _sizes(heads, head_dim, value_dim)
    if not all(isinstance(length, int) and length >= 0 for length in lengths):
        raise ShapeError(f"lengths={lengths!r}: give numbers of leaves, none of them negative.")
    pairs = sum(length * length for length in lengths)
    return AttentionCost(pairs, 2 * pairs * dim, 2 * pairs * dim_v, 0, 0)


def _sizes(heads: int, head_dim: int, value_dim: int | None) -> tuple[int, int]:
    """Features of queries and of values, of all heads."""
    value_dim = head_dim if value_dim is None else value_dim
    if not all(isinstance(n, int) and n >= 1 for n in (heads, head_dim, value_dim)):
        raise ShapeError(
            f"heads={heads!r}, head_dim={head_dim!r} and value_dim={value_dim!r}: give positive "
            "whole numbers."
        )
    return heads * head_dim, heads * value_dim


def _check(tie: str, convention: str) -> None:
    if tie not in TIES:
        raise UnsupportedError(f"tie={tie!r} is unknown: use one of {TIES}.")
    if convention not in CONVENTIONS:
        raise UnsupportedError(f"convention={convention!r} is unknown: use one of {CONVENTIONS}.")
    if tie == "key" and convention == "paper":
        raise UnsupportedError(
            "convention='paper' counts block-tied attention alone: use convention='exact' for "
            "tie='key'."
        )
