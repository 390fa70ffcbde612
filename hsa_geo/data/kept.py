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

from hsa_geo.errors import TreeError

if TYPE_CHECKING:
    from hsa_geo.data.plan import TreePlan

__all__ = ["KeptSlots", "LeafGroups", "PackedPlan", "check_packed", "pack_kept", "unpack_kept"]

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


def check_packed(packed: Tensor) -> None:
    """Check that a packed tensor is one, and every id in it in range: kernels look at none.

    A tensor that was checked is checked again only after a change in place.

    Args:
        packed: From :func:`pack_kept`.

    Raises:
        TreeError: If it is none.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> check_packed(SignalTree.from_parents([2, 2, -1]).plan.packed)
    """
    version = None if packed.is_inference() else packed._version
    if version is not None and packed.__dict__.get("_checked") == version:
        return
    fits = packed.dim() == 1 and packed.dtype == torch.int64 and len(packed) >= _HEADER
    if not fits or not _sound(packed):
        raise TreeError(
            "the packed tensor of a plan was changed, or is none: build the plan anew, with "
            "TreePlan.from_index or tree.plan."
        )
    packed.__dict__["_checked"] = version


def _sound(packed: Tensor) -> bool:
    header = packed[:_HEADER].tolist()
    groups, members, kept_groups, slots, leaves, nodes, pairs = header
    length = _HEADER + 3 * groups + 3 * members + 3 * kept_groups + 4 * slots + 2
    if min(header) < 0 or length != len(packed) or leaves > members + slots:
        return False
    leaf, kept = unpack_kept(packed)
    ptr, row, top, own, pair, parent = (t.numpy() for t in leaf)
    kept_ptr, kept_pair, kept_parent, kept_leaf, kept_top, kept_own, size = (
        t.numpy() for t in kept
    )

    def inside(ids: np.ndarray, low: int, high: int) -> bool:
        return not ids.size or bool(ids.min() >= low and ids.max() < high)

    width, kept_width = np.diff(ptr), np.diff(kept_ptr)
    if ptr[0] != 0 or ptr[-1] != members or not inside(width, 1, members + 1):
        return False
    if not kept_ptr[0] >= 0 or kept_ptr[-1] != slots or not inside(kept_width, 1, slots + 1):
        return False
    ids = [(row, 0, leaves), (top, 0, nodes), (own, 0, nodes), (parent, 0, slots)]
    ids += [(kept_parent, 0, slots), (kept_leaf, -1, leaves), (kept_top, 0, nodes)]
    ids += [(kept_own, -1, nodes), (size, 1, 2**62), (pair, 0, pairs + 1)]
    ids += [(kept_pair, 0, pairs + 1)]
    if not all(inside(*of) for of in ids):
        return False
    ends = (pair + width * (width - 1), kept_pair + kept_width * (kept_width - 1))
    if not all(inside(end, 0, pairs + 1) for end in ends) or (kept_parent >= kept_ptr[:-1]).any():
        return False
    # Every leaf is one member or slot, and every slot is a leaf or the parent of one group.
    is_leaf = kept_leaf >= 0
    of_leaf = np.bincount(np.concatenate([row, kept_leaf[is_leaf]]), minlength=leaves)
    of_slot = np.bincount(np.concatenate([parent, kept_parent]), minlength=slots) + is_leaf
    return bool((of_leaf == 1).all() and (of_slot == 1).all())


def unpack_kept(packed: Tensor) -> tuple[LeafGroups, KeptSlots]:
    """The parts of a packed tensor, as views; see :func:`pack_kept`."""
    groups, members, kept_groups, kept, *_ = packed[:_HEADER].tolist()
    sizes = [groups + 1, members, members, members, groups, groups]
    sizes += [kept_groups + 1, kept_groups, kept_groups, kept, kept, kept, kept]
    parts = packed[_HEADER:].split(sizes)
    return LeafGroups(*parts[:6]), KeptSlots(*parts[6:])
