"""How a plan is made from the edges and levels of a batch of trees.

In numpy, on the CPU: the arrays are small, and operations that wake several threads take longer
there than they compute, many times so when other programs use the cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data.contraction import Array, check_index, check_weights, contract, leaf_counts

__all__ = ["plan_fields"]


@torch.compiler.disable  # the compiler would take numpy arrays for tensors
def plan_fields(
    tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None = None
) -> dict[str, Any]:
    """The fields of a :class:`~hsa_geo.data.TreePlan`, tensors on the CPU.

    Args:
        tree_index: ``[2, E]`` int64, parent and child of every edge; siblings in column order.
        tree_level: ``[M]`` int64, level of every node, root 0.
        leaf_weight: ``[N]`` int64, how often every leaf counts; None for once.

    Returns:
        Values by name.

    Raises:
        ShapeError: If a tensor has the wrong shape or dtype.
        TreeError: If the edges and levels make no forest.

    Example:
        >>> fields = plan_fields(torch.tensor([[2, 2], [0, 1]]), torch.tensor([1, 1, 0]))
        >>> fields["num_leaves"], fields["group_ptr"].tolist()
        (2, [1, 3])
    """
    check_index(tree_index, tree_level)
    (parent_of_edge, child_of_edge), level_of = tree_index.cpu().numpy(), tree_level.cpu().numpy()
    if (np.diff(parent_of_edge) < 0).any():
        order = np.argsort(parent_of_edge, kind="stable")
        parent_of_edge, child_of_edge = parent_of_edge[order], child_of_edge[order]
    m = len(level_of)
    parent = np.full(m, -1)
    parent[child_of_edge] = parent_of_edge
    column = np.arange(m)  # of a root: its id, so that roots keep their order
    column[child_of_edge] = np.arange(len(child_of_edge))
    children = np.bincount(parent_of_edge, minlength=m)

    # Contract chains: keep leaves and branching nodes; top climbs over single-child parents.
    bottom = np.flatnonzero(children != 1)
    top, level, down = contract(parent, children, level_of)
    top, level = top[bottom], level[bottom]
    above = parent[top]  # branching, or -1

    order = np.argsort(level * max(m, 1) + column[top])
    bottom, top, level, above = bottom[order], top[order], level[order], above[order]
    slots = len(bottom)
    slot_of = np.full(m + 1, -1)
    slot_of[bottom] = np.arange(slots)
    trees = int((above < 0).sum())

    # Groups: runs of equal `above` behind the roots.
    kids = above[trees:]
    head = np.ones(len(kids), dtype=bool)
    head[1:] = kids[1:] != kids[:-1]
    starts = np.flatnonzero(head)
    group_ptr = np.append(starts, len(kids)) + trees
    slot_group = np.full(slots, -1)
    slot_group[trees:] = np.cumsum(head) - 1
    owner = kids[starts]
    size = np.diff(group_ptr)
    pairs = size * (size - 1)
    by_id = np.argsort(owner)
    pair_start = np.empty_like(pairs)
    pair_start[by_id] = np.cumsum(pairs[by_id]) - pairs[by_id]

    # Leaves: rows are leaf node ids in increasing order.
    is_leaf = children[bottom] == 0
    row_of = np.cumsum(children == 0) - 1
    leaf_slot = np.flatnonzero(is_leaf)
    leaf_row = row_of[bottom[leaf_slot]]
    leaf_place = np.empty_like(leaf_row)
    leaf_place[leaf_row] = np.arange(len(leaf_row))
    leaf_is_root = np.empty(len(leaf_row), dtype=bool)
    leaf_is_root[leaf_row] = parent[bottom[leaf_slot]] < 0

    num_levels = int(level[-1]) + 1 if slots else 0
    bounds = np.arange(num_levels + 1)
    level_slots = np.searchsorted(level, bounds).tolist()
    level_groups = np.searchsorted(level[trees:][starts], bounds).tolist()
    level_leaves = np.searchsorted(level[leaf_slot], bounds).tolist()

    group_parent = slot_of[owner]
    levels = (level_slots, level_groups, group_ptr, group_parent)
    count = mass = leaf_counts(is_leaf.astype(np.int64), *levels)
    weights = None if leaf_weight is None else check_weights(leaf_weight, len(leaf_row))
    if weights is not None:
        of_slot = np.zeros(slots, dtype=np.int64)
        of_slot[leaf_slot] = weights[leaf_row]
        mass = leaf_counts(of_slot, *levels)
    return {
        "num_nodes": m,
        "num_leaves": len(leaf_row),
        "num_trees": trees,
        "num_pairs": int(pairs.sum()),
        "level_slots": tuple(level_slots),
        "level_groups": tuple(level_groups),
        "level_leaves": tuple(level_leaves),
        "slot_bottom": _tensor(bottom),
        "slot_top": _tensor(top),
        "slot_group": _tensor(slot_group),
        "group_ptr": _tensor(group_ptr),
        "group_parent": _tensor(group_parent),
        "pair_start": _tensor(pair_start),
        "leaf_slot": _tensor(leaf_slot),
        "leaf_row": _tensor(leaf_row),
        "leaf_place": _tensor(leaf_place),
        "leaf_is_root": torch.from_numpy(leaf_is_root),
        "node_slot": _tensor(slot_of[down]),
        "count": _tensor(count),
        "mass": _tensor(mass),
        "leaf_weight": None if weights is None else _tensor(weights),
        "group_sizes": tuple(size.tolist()),
    }


def _tensor(x: Array) -> Tensor:
    return torch.from_numpy(x.astype(np.int64, copy=False))
