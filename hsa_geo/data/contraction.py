"""Steps of a plan: is it a forest, what are its chains, how many leaves are under each slot."""

from __future__ import annotations

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError, TreeError

__all__ = ["check_index", "contract", "leaf_counts"]


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
    m = len(tree_level)
    if tree_index.numel() and (int(tree_index.min()) < 0 or int(tree_index.max()) >= m):
        bad = tree_index[(tree_index < 0) | (tree_index >= m)]
        raise TreeError(
            f"tree_index holds node {int(bad[0])}, but tree_level has {m} nodes: ids are "
            f"0..{m - 1}, and a root has no edge (no -1)."
        )
    parents = torch.bincount(tree_index[1], minlength=m)
    if bool((parents > 1).any()):
        node = int((parents > 1).nonzero()[0])
        raise TreeError(f"node {node} has {int(parents[node])} parents: a tree allows one.")
    expected = torch.zeros_like(tree_level)
    expected[tree_index[1]] = tree_level[tree_index[0]] + 1
    wrong = (expected != tree_level).nonzero()
    if wrong.numel():
        node = int(wrong[0])
        raise TreeError(
            f"node {node} has level {int(tree_level[node])} but its place in tree_index needs "
            f"level {int(expected[node])}: a root has 0, a child its parent's plus one."
        )


def contract(parent: Tensor, children: Tensor, tree_level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Contract chains of single children, by pointer doubling.

    Args:
        parent: ``[M]``, parent of every node, -1 at roots.
        children: ``[M]``, number of children of every node.
        tree_level: ``[M]``, level of every node.

    Returns:
        For every node the top of the single-child chain above it, its level without chains, and
        the bottom of the chain below it, ``[M]`` each.

    Example:
        >>> parent, children = torch.tensor([1, 2, -1]), torch.tensor([0, 1, 1])
        >>> [t.tolist() for t in contract(parent, children, torch.tensor([2, 1, 0]))]
        [[2, 2, 2], [0, 0, 0], [0, 0, 0]]
    """
    m = len(parent)
    nodes = torch.arange(m, device=parent.device)
    single = children == 1
    if not bool(single.any()):
        return nodes, tree_level, nodes
    up = torch.cat([torch.where(parent >= 0, parent, m), parent.new_tensor([m])])  # m: above roots
    has = parent >= 0
    over_single = torch.zeros(m, dtype=torch.bool, device=parent.device)
    over_single[has] = single[parent[has]]
    top = torch.where(over_single, up[:m], nodes)
    bottom = nodes.clone()
    bottom[parent[over_single]] = nodes[over_single]
    level = torch.nn.functional.pad((has & ~over_single).long(), (0, 1))
    for _ in range(int(tree_level.max()).bit_length() + 1):  # pointer doubling
        top, bottom, level, up = top[top], bottom[bottom], level + level[up], up[up]
    return top, level[:m], bottom


def leaf_counts(
    is_leaf: Tensor,
    level_slots: list[int],
    level_groups: list[int],
    group_ptr: Tensor,
    group_parent: Tensor,
) -> Tensor:
    """Number of leaves under every slot of a plan, level by level from the deepest.

    Args:
        is_leaf: ``[S]`` bool, slots that are leaves.
        level_slots: Slots of level l are ``level_slots[l]:level_slots[l+1]``.
        level_groups: Groups of level l, likewise.
        group_ptr: ``[G + 1]``, slots of every group.
        group_parent: ``[G]``, slot of the node whose children a group is.

    Returns:
        ``[S]`` int64.

    Example:
        >>> is_leaf = torch.tensor([False, True, True])
        >>> leaf_counts(is_leaf, [0, 1, 3], [0, 0, 1], torch.tensor([1, 3]), torch.tensor([0]))
        tensor([2, 1, 1])
    """
    count = is_leaf.long()
    for level in range(len(level_slots) - 2, 0, -1):
        first, last = level_groups[level], level_groups[level + 1]
        low = level_slots[level]
        total = torch.nn.functional.pad(count[low : level_slots[level + 1]].cumsum(0), (1, 0))
        ptr = group_ptr[first : last + 1] - low
        count[group_parent[first:last]] = total[ptr[1:]] - total[ptr[:-1]]
    return count
