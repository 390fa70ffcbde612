"""Readouts: from leaves to whole trees or to any subtrees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.ops.inputs import as_plan
from hsa_geo.ops.segment import segment_sum

__all__ = ["SubtreeReadout", "subtree_mean"]


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
    plan = as_plan(tree)
    for name, value in (("x", x), ("nodes", nodes)):
        if not isinstance(value, Tensor) and not (name == "nodes" and value is None):
            raise ShapeError(f"{name} is of type {type(value).__name__}: give a tensor.")
    if x.dim() < 1 or x.size(0) != plan.num_leaves:
        raise ShapeError(
            f"x has shape {list(x.shape)}: give a row for each of the N={plan.num_leaves} leaves."
        )
    if nodes is None:
        slots = torch.arange(plan.num_trees, device=plan.device)
    else:
        if nodes.dim() != 1 or nodes.dtype != torch.int64:
            raise ShapeError(
                f"nodes has shape {list(nodes.shape)} and dtype {nodes.dtype}: give int64 [K]."
            )
        out = (nodes < 0) | (nodes >= plan.num_nodes)
        if bool(out.any()):
            raise ShapeError(
                f"nodes holds {int(nodes[out][0])}, but the ids are 0..{plan.num_nodes - 1}."
            )
        slots = plan.node_slot[nodes]
    # The leaves under a node are consecutive in depth-first order.
    count = plan.count[slots]
    ptr = torch.nn.functional.pad(count.cumsum(0), (1, 0))
    shift = plan.leaf_start[slots] - ptr[:-1]
    place = torch.arange(int(ptr[-1]), device=plan.device) + torch.repeat_interleave(shift, count)
    rows = plan.leaf_order[place]
    wide = torch.promote_types(x.dtype, torch.float32)  # a sum overflows half precision
    leaves = x.index_select(0, rows).to(wide)
    if plan.leaf_weight is not None:
        leaves = leaves * plan.leaf_weight[rows].to(wide).view(-1, *[1] * (x.dim() - 1))
    total = segment_sum(leaves, ptr)
    mean = total / plan.mass[slots].to(wide).view(-1, *[1] * (x.dim() - 1))
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
