"""TreePlan: a batch of trees as the index tensors that the dynamic program runs on.

A plan numbers the nodes anew as *slots*, so that everything the program touches together is
contiguous:

- Chains of single children are contracted to one slot, since a node with one child changes
  nothing (math: ``phi(A) = phi(B)``, ``w_B = 1``).  A slot has a *bottom* node (a leaf or a
  branching node) and a *top* node, whose position counts among its siblings.
- Slots are ordered by level, roots first; the slots of one level by group; a *group* is the
  set of children of one node, in sibling order.  Groups of level l are the children at level l.

Everything is computed by sorting and prefix sums (:mod:`hsa_geo.data.indexing`); the only loop
runs over levels.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data.indexing import plan_fields
from hsa_geo.data.kept import pack_kept
from hsa_geo.data.plan_layout import PlanLayout, lasting
from hsa_geo.errors import ShapeError

__all__ = ["Pairs", "TreePlan"]


@dataclass(frozen=True)
class Pairs:
    """The ordered sibling pairs (B, C), C != B, of all groups, sorted by group, B, C.

    Attributes:
        target: ``[P]``, slot of B, the sibling that attends.
        source: ``[P]``, slot of C, the sibling that is attended to.
        ptr: ``[S - B + 1]``, the pairs of the i-th non-root slot are ``ptr[i]:ptr[i+1]``.
        public: ``[P]``, place of each pair in the public order (see :class:`TreePlan`).
    """

    target: Tensor
    source: Tensor
    ptr: Tensor
    public: Tensor


@dataclass(frozen=True, eq=False)
class TreePlan(PlanLayout):
    """Index tensors of a batch of trees; build with :meth:`from_index` or ``tree.plan``.

    The *public order* of the ordered sibling pairs, in which a pair bias is given and pair
    weights are returned, is that of ``tree_index``: groups by increasing parent id, within a
    group B in sibling order, within B every C != B in sibling order (:attr:`pair_nodes`).

    Attributes:
        num_nodes: Number of tree nodes M.
        num_leaves: Number of leaves N.
        num_trees: Number of trees B.
        num_pairs: Number of ordered sibling pairs P.
        level_slots: Slots of level l are ``level_slots[l]:level_slots[l+1]``.
        level_groups: Groups of level l are ``level_groups[l]:level_groups[l+1]``.
        level_leaves: ``leaf_slot``/``leaf_row`` entries of level l, likewise.
        slot_bottom: ``[S]``, node id of the slot's leaf or branching node.
        slot_top: ``[S]``, node id whose position counts among the siblings.
        slot_group: ``[S]``, group of the slot, -1 at roots.
        group_ptr: ``[G + 1]``, the slots of group g are ``group_ptr[g]:group_ptr[g+1]``.
        group_parent: ``[G]``, slot of the node whose children the group is.
        pair_start: ``[G]``, public place of the group's first pair.
        leaf_slot: ``[N]``, slots that are leaves, increasing.
        leaf_row: ``[N]``, row (of x, q, k, v) of each of them.
        leaf_place: ``[N]``, inverse of ``leaf_row``: place of each row among ``leaf_slot``.
        leaf_is_root: ``[N]`` bool by row, whether the leaf is a whole tree.
        node_slot: ``[M]``, slot of every node; the nodes of a contracted chain share one.
        count: ``[S]``, number of leaves under the slot.
        mass: ``[S]``, the same where a leaf counts as often as its weight says: ``|B|`` in all
            formulas.
        leaf_weight: ``[N]``, weights of the leaves by row, or None if all are 1.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
        >>> plan
        TreePlan(trees=1, leaves=4, nodes=7, groups=3, levels=3, pairs=6)
        >>> plan.pair_nodes.tolist()
        [[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]]
    """

    num_nodes: int
    num_leaves: int
    num_trees: int
    num_pairs: int
    level_slots: tuple[int, ...]
    level_groups: tuple[int, ...]
    level_leaves: tuple[int, ...]
    slot_bottom: Tensor
    slot_top: Tensor
    slot_group: Tensor
    group_ptr: Tensor
    group_parent: Tensor
    pair_start: Tensor
    leaf_slot: Tensor
    leaf_row: Tensor
    leaf_place: Tensor
    leaf_is_root: Tensor
    node_slot: Tensor
    count: Tensor
    mass: Tensor
    leaf_weight: Tensor | None = None
    group_sizes: tuple[int, ...] = dataclasses.field(repr=False, default=())
    _packed: Tensor | None = dataclasses.field(init=False, repr=False, default=None)
    _flat: TreePlan | None = dataclasses.field(init=False, repr=False, default=None)

    @classmethod
    @lasting
    def from_index(
        cls, tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None = None
    ) -> Self:
        """The plan of a tree or forest given by its edges and levels.

        Args:
            tree_index: ``[2, E]`` int64, parent and child of every edge; siblings in column
                order.  Every node without a parent is a root of its own tree.
            tree_level: ``[M]`` int64, level of every node, root 0.
            leaf_weight: ``[N]`` int64, a leaf counts as that many equal ones, at least one.
                (default: one each)

        Returns:
            The plan, on the device of ``tree_index``.

        Raises:
            ShapeError: If a tensor has the wrong shape or dtype.
            TreeError: If ids are out of range, a node has two parents, or a level is not its
                parent's plus one; the message names the node.

        Example:
            >>> index = torch.tensor([[2, 2], [0, 1]])
            >>> TreePlan.from_index(index, torch.tensor([1, 1, 0])).num_leaves
            2
        """
        fields = plan_fields(tree_index, tree_level, leaf_weight)
        device = tree_index.device
        for name, value in fields.items():
            fields[name] = value.to(device) if isinstance(value, Tensor) else value
        plan = cls(**fields)
        if HAS_NUMBA and device.type == "cpu":  # now, since torch.compile cannot do it later
            _ = plan.packed
        return plan

    @property
    def num_slots(self) -> int:
        """Number of nodes after contraction, S."""
        return len(self.slot_bottom)

    @property
    def num_groups(self) -> int:
        """Number of sibling groups with at least two members, G."""
        return len(self.group_parent)

    @property
    def num_levels(self) -> int:
        """Number of levels after contraction."""
        return max(len(self.level_slots) - 1, 0)

    @property
    def device(self) -> torch.device:
        """Device of the index tensors."""
        return self.slot_bottom.device

    @cached_property
    @lasting
    def share(self) -> Tensor:
        """``[S]`` float64, ``|B|/|A|`` (of masses) of slot B under its parent A; 1 at roots."""
        share = torch.ones(self.num_slots, dtype=torch.float64, device=self.device)
        kids = slice(self.num_trees, None)
        parent = self.group_parent[self.slot_group[kids]]
        share[kids] = self.mass[kids].double() / self.mass[parent].double()
        return share

    @cached_property
    @lasting
    def leaf_start(self) -> Tensor:
        """``[S]``, first leaf under every slot, in depth-first order of the leaves."""
        start = torch.zeros_like(self.count)
        root = self.count[: self.num_trees]
        start[: self.num_trees] = root.cumsum(0) - root
        for level in range(1, self.num_levels):
            low, high = self.level_slots[level], self.level_slots[level + 1]
            count, group = self.count[low:high], self.slot_group[low:high]
            before = count.cumsum(0) - count  # leaves of earlier slots of the level
            before = before - before[self.group_ptr[group] - low]
            start[low:high] = start[self.group_parent[group]] + before
        return start

    @cached_property
    @lasting
    def leaf_order(self) -> Tensor:
        """``[N]``, rows of the leaves in depth-first order; of canonical trees ``0..N-1``."""
        order = torch.empty_like(self.leaf_row)
        order[self.leaf_start[self.leaf_slot]] = self.leaf_row
        return order

    @cached_property
    @lasting
    def leaf_tree(self) -> Tensor:
        """``[N]``, number of the tree of every leaf by row."""
        roots = torch.arange(self.num_trees, device=self.device)
        tree = torch.empty_like(self.leaf_row)
        tree[self.leaf_order] = torch.repeat_interleave(
            roots, self.count[: self.num_trees], output_size=self.num_leaves
        )
        return tree

    @cached_property
    @lasting
    def pairs(self) -> Pairs:
        """The ordered sibling pairs as slots; as many as there are, so large for wide groups."""
        group = self.slot_group[self.num_trees :]
        size = self.group_ptr.diff()[group]  # of each non-root slot's group
        ptr = torch.nn.functional.pad((size - 1).cumsum(0), (1, 0))
        slot = torch.arange(self.num_trees, self.num_slots, device=self.device)
        target = torch.repeat_interleave(slot, size - 1)
        kid = target - self.num_trees
        first = self.group_ptr[:-1][group][kid]
        rank = target - first
        # The (size - 1) others of B in order: places below B's rank, then those above.
        place = torch.arange(len(target), device=self.device) - ptr[kid]
        source = first + place + (place >= rank)
        public = self.pair_start[group][kid] + rank * (size[kid] - 1) + place
        return Pairs(target, source, ptr, public)

    @cached_property
    @lasting
    def pair_nodes(self) -> Tensor:
        """``[2, P]``, node ids of B and C of every ordered sibling pair, in public order.

        Where a chain of single children was contracted, the id is that of its top node.
        """
        pairs = self.pairs
        out = torch.empty(2, self.num_pairs, dtype=torch.int64, device=self.device)
        out[0, pairs.public] = self.slot_top[pairs.target]
        out[1, pairs.public] = self.slot_top[pairs.source]
        return out

    @property
    def packed(self) -> Tensor:
        """Groups of leaves and all other slots in one tensor; see :mod:`hsa_geo.data.kept`."""
        if self._packed is None:  # no cached_property, which torch.compile does not read
            object.__setattr__(self, "_packed", lasting(pack_kept)(self))
        return self._packed  # type: ignore[return-value]

    @property
    def flat(self) -> TreePlan:
        """The plan of trees of depth one over the same leaves, on which HSA is flat attention.

        Leaves keep their rows and weights; their ids are ``0..N-1``, the roots follow.
        """
        if self._flat is None:  # no cached_property: a moved plan makes its own
            object.__setattr__(self, "_flat", lasting(_depth_one)(self))
        assert self._flat is not None
        return self._flat

    def slots_of(self, nodes: Tensor | None) -> Tensor:
        """Slots of tree nodes.

        Args:
            nodes: Ids ``[K]`` int64, or None for the root of every tree.

        Returns:
            ``[K]``.

        Raises:
            ShapeError: If ``nodes`` holds no node ids.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> SignalTree.from_parents([2, 2, -1]).plan.slots_of(torch.tensor([1])).tolist()
            [2]
        """
        if nodes is None:
            return torch.arange(self.num_trees, device=self.device)
        if nodes.dim() != 1 or nodes.dtype != torch.int64:
            raise ShapeError(
                f"nodes has shape {list(nodes.shape)} and dtype {nodes.dtype}: give int64 [K]."
            )
        out = (nodes < 0) | (nodes >= self.num_nodes)
        if bool(out.any()):
            raise ShapeError(
                f"nodes holds {int(nodes[out][0])}, but the ids are 0..{self.num_nodes - 1}."
            )
        return self.node_slot[nodes]

    def leaves_under(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the leaves under slots ``[K]``, one slot after the other, in reading order.

        Args:
            slots: Slots ``[K]``.

        Returns:
            Rows ``[T]``, and ``ptr [K + 1]``: those of slot k are ``ptr[k]:ptr[k+1]``.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> plan = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]).plan
            >>> [t.tolist() for t in plan.leaves_under(plan.slots_of(torch.tensor([5, 0])))]
            [[2, 3, 0], [0, 2, 3]]
        """
        # The leaves under a node are consecutive in depth-first order.
        count = self.count[slots]
        ptr = torch.nn.functional.pad(count.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.leaf_start[slots] - ptr[:-1], count)
        place = torch.arange(len(shift), device=self.device) + shift
        return self.leaf_order[place], ptr

    def to(self, device: Any, non_blocking: bool = False) -> TreePlan:
        """A copy on another device, with everything already computed moved along.

        Raises:
            ShapeError: If ``device`` is none, such as a dtype.
        """
        if isinstance(device, torch.dtype):
            raise ShapeError(f"a plan holds indices, which stay int64: {device} is no device.")
        return self._map(lambda x: x.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> TreePlan:
        """A copy in pinned memory."""
        return self._map(lambda x: x.pin_memory())

    def _map(self, fn: Any) -> TreePlan:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        out = TreePlan(**{k: fn(v) if isinstance(v, Tensor) else v for k, v in fields.items()})
        if self._packed is not None:
            object.__setattr__(out, "_packed", fn(self._packed))
        for key in self.__dict__:
            if isinstance(getattr(TreePlan, key, None), cached_property):
                out.__dict__[key] = _map_tensors(fn, self.__dict__[key])
        return out

    def __repr__(self) -> str:
        return (
            f"TreePlan(trees={self.num_trees}, leaves={self.num_leaves}, nodes={self.num_nodes}, "
            f"groups={self.num_groups}, levels={self.num_levels}, pairs={self.num_pairs})"
        )


def _depth_one(plan: TreePlan) -> TreePlan:
    parent = plan.num_leaves + plan.leaf_tree  # [N]
    child = torch.sort(parent, stable=True).indices
    level = torch.ones(plan.num_leaves + plan.num_trees, dtype=torch.int64, device=plan.device)
    level[plan.num_leaves :] = 0
    return TreePlan.from_index(torch.stack([parent[child], child]), level, plan.leaf_weight)


def _map_tensors(fn: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, tuple):
        return tuple(_map_tensors(fn, item) for item in value)
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return type(value)(**{k: fn(v) if isinstance(v, Tensor) else v for k, v in fields.items()})
