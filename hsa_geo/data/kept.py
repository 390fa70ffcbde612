"""Kept slots: what remains of a plan when each group of leaves is taken for one leaf.

Almost all slots are leaves in groups of leaves alone.  Such a group is ordinary attention, and
the rest of the tree sees only its parent: a mean query, key and value and an energy.  So the
dynamic program runs over the *kept* slots, which are all others: roots, inner slots, and leaves
beside inner slots or leaves that count several times.

Everything is packed into one int64 tensor, which passes through ``torch.compile`` as a single
input whose size alone varies, and which compiled kernels read without copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
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
        size: ``[R]``, number of leaves under the slot, as often as their weights say.
    """

    ptr: Tensor
    pair: Tensor
    parent: Tensor
    leaf: Tensor
    top: Tensor
    own: Tensor
    size: Tensor


@torch.compiler.disable  # the compiler would take numpy arrays for tensors
def pack_kept(plan: TreePlan) -> Tensor:
    """Groups of leaves and kept slots of a plan on the CPU, packed.

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
    # numpy, since the kernels are for the CPU, and small arrays take half the time there.
    first, groups = plan.num_trees, plan.num_groups
    ptr, owner, slot_group = (
        t.numpy() for t in (plan.group_ptr, plan.group_parent, plan.slot_group)
    )
    top, size, pair = (t.numpy() for t in (plan.slot_top, plan.mass, plan.pair_start))
    leaf_slot, leaf_row = plan.leaf_slot.numpy(), plan.leaf_row.numpy()
    width = np.diff(ptr)
    inner = np.zeros(groups + 1, dtype=bool)
    inner[slot_group[owner]] = True  # of roots: the last, which is no group
    if plan.leaf_weight is not None:  # such leaves are kept, too
        inner[slot_group[first:][size[first:] > plan.count.numpy()[first:]]] = True
    inner = inner[:-1]  # groups with a member that is no leaf, or counts several times
    leaves = ~inner
    is_kept = np.ones(plan.num_slots, dtype=bool)
    is_kept[first:] = np.repeat(inner, width)
    kept, member = np.flatnonzero(is_kept), np.flatnonzero(~is_kept)
    row = np.full(plan.num_slots, -1)
    row[leaf_slot] = leaf_row
    own = plan.slot_bottom.numpy().copy()
    own[leaf_slot[plan.leaf_is_root.numpy()[leaf_row]]] = -1
    parent = (np.cumsum(is_kept) - 1)[owner]
    numbers = [int(leaves.sum()), len(member), int(inner.sum()), len(kept)]
    numbers += [plan.num_leaves, plan.num_nodes, plan.num_pairs]
    parts = [
        *(numbers, [0], np.cumsum(width[leaves]), row[member], top[member], own[member]),
        *(pair[leaves], parent[leaves]),
        *([first], first + np.cumsum(width[inner]), pair[inner], parent[inner]),
        *(row[kept], top[kept], own[kept], size[kept]),
    ]
    return torch.from_numpy(np.concatenate(parts).astype(np.int64, copy=False))


def unpack_kept(packed: Tensor) -> tuple[LeafGroups, KeptSlots]:
    """The parts of a packed tensor, as views; see :func:`pack_kept`."""
    groups, members, kept_groups, kept, *_ = packed[:_HEADER].tolist()
    sizes = [groups + 1, members, members, members, groups, groups]
    sizes += [kept_groups + 1, kept_groups, kept_groups, kept, kept, kept, kept]
    parts = packed[_HEADER:].split(sizes)
    return LeafGroups(*parts[:6]), KeptSlots(*parts[6:])
