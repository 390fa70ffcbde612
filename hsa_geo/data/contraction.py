"""Steps of a plan: is it a forest, what are its chains, how many leaves are under each slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.errors import ShapeError, TreeError

__all__ = ["check_index", "check_weights", "contract", "leaf_counts"]

Array = np.ndarray[Any, np.dtype[Any]]


def check_index(tree_index: Tensor, tree_level: Tensor) -> None:
    """Check that edges and levels make a forest.

    Args:
        tree_index: ``[2, E]`` int64, parent and child of every edge.
        tree_level: ``[M]`` int64, level of every node, root 0.

    Raises:
        ShapeError: If a tensor has the wrong shape, dtype or device.
        TreeError: If ids are out of range, a node has two parents, or a level is not its parent's
            plus one, which also rules out cycles; the message names the node.

    Example:
        >>> check_index(torch.tensor([[2, 2], [0, 1]]), torch.tensor([1, 1, 0]))
    """
    for name, value in (("tree_index", tree_index), ("tree_level", tree_level)):
        if not isinstance(value, Tensor):
            raise ShapeError(f"{name}={value!r:.80} is no tensor: give int64, as SignalTree holds.")
    if tree_index.dim() != 2 or tree_index.size(0) != 2 or tree_index.dtype != torch.int64:
        raise ShapeError(
            f"tree_index has shape {list(tree_index.shape)} and dtype {tree_index.dtype}: give "
            "int64 [2, E], parents above children."
        )
    if tree_level.dim() != 1 or tree_level.dtype != torch.int64:
        raise ShapeError(
            f"tree_level has shape {list(tree_level.shape)} and dtype {tree_level.dtype}: give "
            "int64 [M], one level for every tree node."
        )
    if tree_index.device != tree_level.device:
        raise ShapeError(
            f"tree_index is on {tree_index.device} but tree_level on {tree_level.device}: move "
            "both to one device."
        )
    index, level = tree_index.cpu().numpy(), tree_level.cpu().numpy()
    m = len(level)
    if index.size and not 0 <= index.min() <= index.max() < m:
        bad = index[(index < 0) | (index >= m)]
        raise TreeError(
            f"tree_index holds node {bad[0]}, but tree_level has {m} nodes: ids are "
            f"0..{m - 1}, and a root has no edge (no -1)."
        )
    parents = np.bincount(index[1], minlength=m)
    if (parents > 1).any():
        node = np.flatnonzero(parents > 1)[0]
        raise TreeError(f"node {node} has {parents[node]} parents: a tree allows one.")
    expected = np.zeros_like(level)
    expected[index[1]] = level[index[0]] + 1
    wrong = np.flatnonzero(expected != level)
    if len(wrong):
        node = wrong[0]
        raise TreeError(
            f"node {node} has level {level[node]} but its place in tree_index needs "
            f"level {expected[node]}: a root has 0, a child its parent's plus one."
        )


def check_weights(leaf_weight: Tensor, leaves: int) -> Array | None:
    """Weights of the leaves by row, or None if all are 1.

    Args:
        leaf_weight: ``[N]`` integers, at least 1.
        leaves: Number of leaves N.

    Returns:
        ``[N]`` int64.

    Raises:
        ShapeError: If the weights have the wrong shape or dtype, or one is less than 1.

    Example:
        >>> check_weights(torch.tensor([1, 3]), 2).tolist(), check_weights(torch.ones(2).long(), 2)
        ([1, 3], None)
    """
    whole = isinstance(leaf_weight, Tensor) and leaf_weight.dtype == torch.int64
    if not whole or leaf_weight.shape != (leaves,):
        kind = type(leaf_weight).__name__
        if isinstance(leaf_weight, Tensor):
            kind = f"{leaf_weight.dtype} {list(leaf_weight.shape)}"
        raise ShapeError(
            f"leaf_weight is {kind}: give int64 [{leaves}], how often each leaf counts."
        )
    weight = leaf_weight.detach().cpu().numpy()
    bad = np.flatnonzero(weight < 1)
    if len(bad):
        raise ShapeError(
            f"leaf {bad[0]} has the weight {weight[bad[0]]}: give at least 1, and drop leaves that "
            "should not count with restrict(leaves)."
        )
    if weight.sum(dtype=np.float64) > 2.0**53:
        raise ShapeError(f"leaf_weight sums to {weight.sum(dtype=np.float64):g}: scale it down.")
    return None if (weight == 1).all() else weight


def contract(parent: Array, children: Array, tree_level: Array) -> tuple[Array, Array, Array]:
    """Contract chains of single children, by pointer doubling.

    Args:
        parent: ``[M]``, parent of every node, -1 at roots.
        children: ``[M]``, number of children of every node.
        tree_level: ``[M]``, level of every node.

    Returns:
        For every node the top of the single-child chain above it, its level without chains, and
        the bottom of the chain below it, ``[M]`` each.

    Example:
        >>> parent, children, level = np.array([[1, 2, -1], [0, 1, 1], [2, 1, 0]])
        >>> [t.tolist() for t in contract(parent, children, level)]
        [[2, 2, 2], [0, 0, 0], [0, 0, 0]]
    """
    m = len(parent)
    nodes = np.arange(m)
    single = children == 1
    if not single.any():
        return nodes, tree_level, nodes
    has = parent >= 0
    up = np.append(np.where(has, parent, m), m)  # m: above roots
    over_single = np.zeros(m, dtype=bool)
    over_single[has] = single[parent[has]]
    top = np.where(over_single, up[:m], nodes)
    bottom = nodes.copy()
    bottom[parent[over_single]] = nodes[over_single]
    level = np.append((has & ~over_single).astype(np.int64), 0)
    for _ in range(int(tree_level.max()).bit_length() + 1):  # pointer doubling
        top, bottom, level, up = top[top], bottom[bottom], level + level[up], up[up]
    return top, level[:m], bottom


def leaf_counts(
    weight: Array,
    level_slots: list[int],
    level_groups: list[int],
    group_ptr: Array,
    group_parent: Array,
) -> Array:
    """Sums over the leaves under every slot of a plan, level by level from the deepest.

    Args:
        weight: ``[S]`` int64, what every leaf counts; 0 at inner slots.
        level_slots: Slots of level l are ``level_slots[l]:level_slots[l+1]``.
        level_groups: Groups of level l, likewise.
        group_ptr: ``[G + 1]``, slots of every group.
        group_parent: ``[G]``, slot of the node whose children a group is.

    Returns:
        ``[S]`` int64.

    Example:
        >>> ptr, owner = np.array([1, 3]), np.array([0])
        >>> leaf_counts(np.array([0, 1, 1]), [0, 1, 3], [0, 0, 1], ptr, owner).tolist()
        [2, 1, 1]
    """
    count = weight.copy()
    for level in range(len(level_slots) - 2, 0, -1):
        first, last = level_groups[level], level_groups[level + 1]
        if first < last:
            low, high = level_slots[level], level_slots[level + 1]
            starts = group_ptr[first:last] - low
            count[group_parent[first:last]] = np.add.reduceat(count[low:high], starts)
    return count
