"""Scores of leaves, and their sums over the subtrees of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.inputs import as_plan

__all__ = ["LeafScores", "one_tree", "subtree_sum"]


def subtree_sum(leaf: Tensor, tree: SignalTree | TreePlan) -> Tensor:
    """Sums over the leaves under every node.

    Args:
        leaf: A score of every leaf ``[N]``, or several ``[N, ...]``.
        tree: A tree, a batch of trees, or a plan.

    Returns:
        ``[M, ...]`` in the dtype of ``leaf`` (integers and booleans: int64).

    Raises:
        ShapeError: If ``leaf`` does not have a row per leaf.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])  # (0 1) (2 (3)) under the root 6
        >>> subtree_sum(torch.tensor([1.0, 2.0, 4.0, 8.0]), tree).tolist()
        [1.0, 2.0, 4.0, 8.0, 3.0, 12.0, 15.0]
    """
    plan = as_plan(tree)
    if not isinstance(leaf, Tensor) or leaf.dim() < 1 or leaf.size(0) != plan.num_leaves:
        shape = list(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
        raise ShapeError(f"leaf is {shape}: give a row for each of the N={plan.num_leaves} leaves.")
    wide = torch.float64 if leaf.is_floating_point() else torch.int64
    # The leaves under a node are consecutive in depth-first order.
    running = leaf.index_select(0, plan.leaf_order).to(wide).cumsum(0)
    running = torch.cat([running.new_zeros(1, *leaf.shape[1:]), running])
    start = plan.leaf_start[plan.node_slot]
    total = running[start + plan.count[plan.node_slot]] - running[start]
    return total.to(leaf.dtype) if leaf.is_floating_point() else total


@dataclass(frozen=True)
class LeafScores:
    """What every leaf of a tree, and every node, is said to contribute.

    Attributes:
        leaf: ``[N]``, score of every leaf.
        node: ``[M]``, sum of the scores of the leaves under every node.
        method: How the scores were found.
        target: Number of the output that they explain; None for attention, which explains none.
        value: That output for the whole tree, or None.
        baseline: That output where no leaf says anything, or None.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 4, 4, -1])
        >>> scores = LeafScores.of(torch.tensor([0.5, -0.25, 2.0]), tree, "given")
        >>> scores.node.tolist(), scores.top(2)
        ([0.5, -0.25, 2.0, 0.25, 2.25], [2, 0])
    """

    leaf: Tensor
    node: Tensor
    method: str
    target: int | None = None
    value: float | None = None
    baseline: float | None = None

    @classmethod
    def of(cls, leaf: Tensor, tree: SignalTree | TreePlan, method: str, **about: Any) -> LeafScores:
        """Scores of the leaves with their sums.

        Args:
            leaf: ``[N]``.
            tree: The tree or its plan.
            method: How the scores were found.
            **about: ``target``, ``value`` and ``baseline``.

        Returns:
            The scores.
        """
        return cls(leaf, subtree_sum(leaf, tree), method, **about)

    @property
    def gap(self) -> float | None:
        """What the sum of the scores lacks of ``value - baseline``; None where these are unknown.

        Zero for exact integrated gradients, and of no meaning for a plain gradient.
        """
        if self.value is None or self.baseline is None:
            return None
        return float(self.value - self.baseline - self.leaf.double().sum())

    def top(self, k: int) -> list[int]:
        """The rows of the k leaves with the largest scores, largest first."""
        return torch.argsort(self.leaf, descending=True, stable=True)[:k].tolist()


def one_tree(tree: Any) -> SignalTree:
    """The tree, if it is one.

    Args:
        tree: What was given as a tree.

    Returns:
        The same.

    Raises:
        ShapeError: If it is no tree.
        UnsupportedError: If it is a batch.

    Example:
        >>> one_tree(SignalTree.from_parents([2, 2, -1])).num_leaves
        2
    """
    if not isinstance(tree, SignalTree):
        raise ShapeError(f"tree is a {type(tree).__name__}: give a SignalTree.")
    if tree.plan.num_trees != 1:
        raise UnsupportedError(
            f"the batch holds {tree.plan.num_trees} trees, but one is explained at a time: give "
            "one of batch.to_data_list()."
        )
    return tree
