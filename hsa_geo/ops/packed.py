"""Operators that make and read packed plans inside ``torch.compile``.

To the compiler they are opaque, so a plan can be made within the graph, from trees of any shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data.kept import PackedPlan, unpack_kept
from hsa_geo.data.plan import TreePlan
from hsa_geo.errors import ShapeError

__all__ = ["packed_plan", "tree_means", "within_compile"]


def within_compile(x: Any) -> bool:
    """Whether a graph is being compiled in which packed plans serve the tensor ``x``."""
    return torch.compiler.is_compiling() and HAS_NUMBA and x.device.type == "cpu"


def packed_plan(
    tree_index: Tensor, tree_level: Tensor, num_leaves: int, leaf_weight: Tensor | None = None
) -> PackedPlan:
    """The plan of a tree or batch, made within the graph.

    Args:
        tree_index: ``[2, E]``.
        tree_level: ``[M]``.
        num_leaves: Number of leaves, as far as the features say.
        leaf_weight: ``[N]``, how often every leaf counts. (default: once)

    Returns:
        The plan.

    Example:
        >>> plan = packed_plan(torch.tensor([[2, 2], [0, 1]]), torch.tensor([1, 1, 0]), 2)
        >>> plan.num_leaves, plan.num_nodes
        (2, 3)
    """
    return PackedPlan(_pack(tree_index, tree_level, leaf_weight), num_leaves, tree_level.size(0))


def tree_means(x: Tensor, plan: TreePlan | PackedPlan) -> Tensor:
    """For every leaf the mean over its own tree, without gradient: no tree touches another.

    Args:
        x: ``[N, ...]``.
        plan: The plan.

    Returns:
        ``[N, ...]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([2, 2, -1]).plan
        >>> tree_means(torch.tensor([[1.0], [3.0]]), plan).tolist()
        [[2.0], [2.0]]
    """
    if isinstance(plan, PackedPlan) or within_compile(x):
        return _packed_means(x, plan.packed)
    if plan.num_trees == 1:
        return x.mean(0, keepdim=True).expand_as(x)
    return _means(x, plan.leaf_tree, plan.count[: plan.num_trees])


def _means(x: Tensor, tree: Tensor, count: Tensor) -> Tensor:
    total = x.new_zeros((len(count), *x.shape[1:])).index_add_(0, tree, x)
    return (total / count.view(-1, *[1] * (x.dim() - 1))).index_select(0, tree)


@torch.library.custom_op("hsa_geo::packed_plan", mutates_args=(), device_types="cpu")
def _pack(tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None) -> Tensor:
    return TreePlan.from_index(tree_index, tree_level, leaf_weight).packed


@_pack.register_fake
def _(tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None) -> Tensor:
    return tree_index.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("hsa_geo::tree_means", mutates_args=(), device_types="cpu")
def _packed_means(x: Tensor, packed: Tensor) -> Tensor:
    from hsa_geo.ops.compiled.frame import trees
    from hsa_geo.ops.compiled.leaves import leaf_trees

    leaves = int(packed[4])
    if len(x) != leaves:  # nobody else can say so inside torch.compile, and kernels do not look
        raise ShapeError(
            f"q has shape {list(x.shape)}: the trees have {leaves} leaves, so give {leaves} rows."
        )
    groups, kept = trees(*unpack_kept(packed))
    tree = torch.empty(len(x), dtype=torch.int64)
    leaf_trees(groups, kept, tree.numpy())
    return _means(x, tree, torch.from_numpy(kept.size[: kept.trees]))


@_packed_means.register_fake
def _(x: Tensor, packed: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)
