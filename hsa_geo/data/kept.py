"""Kept slots: what remains of a plan when each group of leaves is taken for one leaf.

Almost all slots are leaves in groups of leaves alone.  Such a group is ordinary attention, and
the rest of the tree sees only its parent: a mean query, key and value and an energy.  So the
dynamic program runs over the *kept* slots, which are all others: roots, inner slots, and leaves
beside inner slots.

Everything is packed into one int64 tensor, which passes through ``torch.compile`` as a single
input whose size alone varies, and which compiled kernels read without copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hsa_geo.errors import UnsupportedError

if TYPE_CHECKING:
    from hsa_geo.data.plan import TreePlan

__all__ = ["KeptSlots", "LeafGroups", "PackedPlan", "pack_kept", "unpack_kept"]

_HEADER = 7


class LeafGroups(NamedTuple):
    """Groups whose members are all leaves.

    Attributes:
        ptr: ``[G + 1]``, the members of group g are ``ptr[g]:ptr[g+1]``.
        row: Row of each member in x, q, k, v.
        top: Node of each member whose position counts among the siblings.
        own: Node of each member whose position counts in its own score.
        pair: ``[G]``, public place of each group's first ordered pair.
        parent: ``[G]``, kept slot of each group's parent.
    """

    ptr: Tensor
    row: Tensor
    top: Tensor
    own: Tensor
    pair: Tensor
    parent: Tensor


class PackedPlan(NamedTuple):
    """A plan inside ``torch.compile``: what :func:`pack_kept` gives, made within the graph.

    Attributes:
        packed: The packed tensor.
        num_leaves: Number of leaves N, as far as the features say; kernels check it.
        num_nodes: Number of tree nodes M.
    """

    packed: Tensor
    num_leaves: int
    num_nodes: int

    @property
    def device(self) -> torch.device:
        """Device of the tensor."""
        return self.packed.device

    @property
    def num_pairs(self) -> int:
        """Unknown: only the tensor's contents say how many ordered sibling pairs there are."""
        raise UnsupportedError(
            "inside torch.compile a tree does not tell its number of sibling pairs, which dropout "
            "and pair biases need: give its plan, tree.plan, made outside."
        )


class KeptSlots(NamedTuple):
    """All other groups, whose members are kept slots; R kept slots, roots first.

    Attributes:
        ptr: ``[G + 1]``, the members of group g are the kept slots ``ptr[g]:ptr[g+1]``.
        pair: ``[G]``, public place of each group's first ordered pair.
        parent: ``[G]``, kept slot of each group's parent.
        leaf: ``[R]``, row of the leaf that the slot is, or -1.
        top: ``[R]``, node whose position counts among the siblings.
        own: ``[R]``, node whose position counts in a leaf's own score; -1 for a leaf that is a
            whole tree, which has no position.
        size: ``[R]``, number of leaves under the slot.
    """

    ptr: Tensor
    pair: Tensor
    parent: Tensor
    leaf: Tensor
    top: Tensor
    own: Tensor
    size: Tensor


def pack_kept(plan: TreePlan) -> Tensor:
    """Groups of leaves and kept slots of a plan, packed.

    Returns:
        int64 ``[7 + ...]``: numbers of groups of leaves, of their members, of kept groups, of
        kept slots, of leaves, of nodes and of ordered sibling pairs, then the fields of
        :class:`LeafGroups` and :class:`KeptSlots`.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> leaves, kept = unpack_kept(pack_kept(plan))
        >>> leaves.ptr.tolist(), leaves.parent.tolist(), kept.ptr.tolist(), kept.leaf.tolist()
        ([0, 2, 4], [1, 2], [1, 3], [-1, -1, -1])
    """
    first, group = plan.num_trees, plan.slot_group[plan.num_trees :]
    size = plan.group_ptr.diff()
    inner = torch.zeros(plan.num_groups + 1, dtype=torch.bool, device=plan.device)
    inner[plan.slot_group[plan.group_parent]] = True  # of roots: the last, which is no group
    inner = inner[:-1]  # groups with a member that is no leaf
    leaves = ~inner
    is_kept = torch.ones(plan.num_slots, dtype=torch.bool, device=plan.device)
    is_kept[first:] = inner[group]
    place = is_kept.cumsum(0) - 1  # of kept slots
    row = torch.full_like(plan.slot_bottom, -1)
    row[plan.leaf_slot] = plan.leaf_row
    own = plan.slot_bottom.clone()
    own[plan.leaf_slot[plan.leaf_is_root[plan.leaf_row]]] = -1
    parent = place[plan.group_parent]
    kept, member = is_kept.nonzero().squeeze(1), (~is_kept).nonzero().squeeze(1)
    zero = size.new_zeros(1)
    leaf_ptr = torch.cat([zero, size[leaves].cumsum(0)])
    kept_ptr = torch.cat([zero, size[inner].cumsum(0)]) + first
    parts = [
        *(leaf_ptr, row[member], plan.slot_top[member], own[member]),
        *(plan.pair_start[leaves], parent[leaves]),
        *(kept_ptr, plan.pair_start[inner], parent[inner]),
        *(row[kept], plan.slot_top[kept], own[kept], plan.count[kept]),
    ]
    numbers = [len(parts[4]), len(parts[1]), len(parts[7]), len(parts[9])]
    numbers += [plan.num_leaves, plan.num_nodes, plan.num_pairs]
    return torch.cat([torch.tensor(numbers, device=plan.device), *parts])


def unpack_kept(packed: Tensor) -> tuple[LeafGroups, KeptSlots]:
    """The parts of a packed tensor, as views; see :func:`pack_kept`."""
    groups, members, kept_groups, kept, *_ = packed[:_HEADER].tolist()
    sizes = [groups + 1, members, members, members, groups, groups]
    sizes += [kept_groups + 1, kept_groups, kept_groups, kept, kept, kept, kept]
    parts = packed[_HEADER:].split(sizes)
    return LeafGroups(*parts[:6]), KeptSlots(*parts[6:])
