"""Readouts: from leaves to whole trees or to any subtrees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.inputs import as_plan
from hsa_geo.ops.packed import leaves_under, within_compile
from hsa_geo.ops.segment import segment_sum

__all__ = ["SubtreeReadout", "check_readout", "subtree_mean", "weighted_sum"]


def subtree_mean(x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None) -> Tensor:
    """Mean of the leaf features under given nodes, with their weights if they have any.

    Args:
        x: Leaf features ``[N, ...]``.
        tree: A tree, a batch of trees, or a plan.
        nodes: Ids of tree nodes ``[K]``, inner nodes or leaves, in any order; in a batch such
            as its ``{name}_node``. (default: the root of every tree)

    Returns:
        ``[K, ...]``, or ``[B, ...]`` by default, in the dtype of ``x`` (integers: float32).

    Raises:
        ShapeError: If ``x`` is no tensor with a row per leaf or ``nodes`` holds no node ids.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> x = torch.tensor([[1.0], [3.0], [5.0], [9.0]])
        >>> subtree_mean(x, tree).tolist(), subtree_mean(x, tree, torch.tensor([4, 3])).tolist()
        ([[4.5]], [[2.0], [9.0]])
    """
    plan = check_readout(x, tree, nodes)
    if isinstance(plan, SignalTree):  # within a graph, where a plan cannot be asked
        return weighted_sum(x, *leaves_under(plan, nodes))
    slots = plan.slots_of(nodes)
    rows, ptr = plan.leaves_under(slots)
    wide = torch.promote_types(x.dtype, torch.float32)  # a sum overflows half precision
    leaves = x.index_select(0, rows).to(wide)
    if plan.leaf_weight is not None:
        leaves = leaves * plan.leaf_weight[rows].to(wide).view(-1, *[1] * (x.dim() - 1))
    total = segment_sum(leaves, ptr)
    mean = total / plan.mass[slots].to(wide).view(-1, *[1] * (x.dim() - 1))
    return mean.to(x.dtype) if x.is_floating_point() else mean


def check_readout(
    x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None
) -> SignalTree | TreePlan:
    """Check what a readout is given.

    Args:
        x: Leaf features ``[N, ...]``.
        tree: A tree, a batch of trees, or a plan.
        nodes: Ids of tree nodes ``[K]``, or None.

    Returns:
        The plan; within ``torch.compile`` the tree, whose plan cannot be asked there for what it
        has not computed.

    Raises:
        ShapeError: If ``x`` is no tensor with a row per leaf, or ``nodes`` neither a tensor nor
            None.
        UnsupportedError: For a plan within ``torch.compile``.

    Example:
        >>> check_readout(torch.zeros(2, 3), SignalTree.from_parents([2, 2, -1]), None).num_leaves
        2
    """
    for name, value in (("x", x), ("nodes", nodes)):
        if not isinstance(value, Tensor) and not (name == "nodes" and value is None):
            raise ShapeError(f"{name} is of type {type(value).__name__}: give a tensor.")
    if within_compile(x):
        if not isinstance(tree, SignalTree):
            raise UnsupportedError(
                "inside torch.compile a readout needs the tree or batch itself, not its plan: "
                "give subtree_mean(x, tree)."
            )
        return tree
    plan = as_plan(tree)
    if x.dim() < 1 or x.size(0) != plan.num_leaves:
        raise ShapeError(
            f"x has shape {list(x.shape)}: give a row for each of the N={plan.num_leaves} leaves."
        )
    return plan


def weighted_sum(x: Tensor, of: Tensor, row: Tensor, share: Tensor, k: int) -> Tensor:
    """Sum of the leaf features under nodes by their shares; see :func:`leaves_under`.

    Args:
        x: Leaf features ``[N, ...]``.
        of: Place of the node ``[T]``.
        row: Row of the leaf ``[T]``.
        share: Share of the leaf ``[T]``.
        k: Number of nodes K.

    Returns:
        ``[K, ...]`` in the dtype of ``x`` (integers: float32).

    Example:
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> of, row, share = torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0.5, 0.5])
        >>> weighted_sum(x, of, row, share, 1).tolist()
        [[2.0]]
    """
    wide = torch.promote_types(x.dtype, torch.float32)  # a sum overflows half precision
    leaves = x.index_select(0, row).to(wide) * share.to(wide).view(-1, *[1] * (x.dim() - 1))
    mean = leaves.new_zeros((k, *x.shape[1:])).index_add(0, of, leaves)
    return mean.to(x.dtype) if x.is_floating_point() else mean


class SubtreeReadout(nn.Module):
    """:func:`subtree_mean` as a module.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> SubtreeReadout()(torch.tensor([[1.0], [3.0]]), tree).tolist()
        [[2.0]]
    """

    def forward(
        self, x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None
    ) -> Tensor:
        """Mean over the leaves under each node, ``[K, ...]``; roots by default."""
        return subtree_mean(x, tree, nodes)
