"""A call's tensors as the compiled kernels take them, and its work in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data.kept import KeptSlots, LeafGroups, check_packed, unpack_kept
from hsa_geo.errors import ShapeError
from hsa_geo.ops.compiled.layout import Array, Groups, Kept, Rows, Scores
from hsa_geo.ops.wide import WideGroup

if TYPE_CHECKING:
    from hsa_geo.ops.compiled.attention import Saved

__all__ = [
    "PER_PIECE",
    "WIDE",
    "Call",
    "Frame",
    "first_time",
    "flat",
    "has_run",
    "rows",
    "trees",
]

#: Largest group that the compiled kernels take; matrix products are faster for wider ones.
WIDE = 256

#: Products (pairs times heads) for which one more thread pays.
PER_PIECE = 1 << 14


@dataclass(frozen=True)
class Call:
    """Inputs of an attention; tensors on the CPU, all float32 or all float64.

    Attributes:
        q: ``[N, H, D]``.
        k: ``[N, H, D]``.
        v: ``[N, H, Dv]``.
        packed: See :func:`hsa_geo.data.kept.pack_kept`.
        term: ``[N, H]``, added to the scores of each key (its mean, for inner slots), or None.
        pos: ``[M, H, P]`` or None.
        bias: ``[pairs, H or 1]`` or None.
        mask: ``[pairs, H]`` or None.
        own_mask: ``[N, H]`` or None.
        scale: Factor of q . k.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    packed: Tensor
    term: Tensor | None
    pos: Tensor | None
    bias: Tensor | None
    mask: Tensor | None
    own_mask: Tensor | None
    scale: float


def _check(call: Call) -> None:
    """The sizes once more: inside ``torch.compile`` nobody else can, and kernels check no index."""
    leaves, nodes, pairs = call.packed[4:7].tolist()
    heads, dim = call.q.size(1), call.q.size(2)
    expected = {
        "q": (leaves, heads, dim),
        "k": (leaves, heads, dim),
        "v": (leaves, heads, call.v.size(2)),
        "term": (leaves, heads),
        "pos": (nodes, heads, None if call.pos is None else call.pos.size(2)),
        "bias": (pairs, 1 if call.bias is not None and call.bias.size(1) == 1 else heads),
        "mask": (pairs, heads),
        "own_mask": (leaves, heads),
    }
    for name, shape in expected.items():
        x: Tensor | None = getattr(call, name)
        if x is not None and x.size(0) != shape[0]:
            raise ShapeError(
                f"{name} has shape {list(x.shape)}: the trees have {leaves} leaves, {nodes} nodes "
                f"and {pairs} ordered sibling pairs, so give {shape[0]} rows."
            )
        if x is not None and (tuple(x.shape) != shape or x.dtype != call.q.dtype):
            raise ShapeError(
                f"{name} has shape {list(x.shape)} and dtype {x.dtype}: beside q of shape "
                f"{list(call.q.shape)} give {list(shape)} and {call.q.dtype}."
            )


def check_saved(x: Frame, saved: Any, grad: Tensor, grad_phi: Tensor) -> None:
    """What the backward pass is given beside the inputs fits them, too.

    Raises:
        ShapeError: If a tensor has the wrong shape or dtype.
    """
    n, slots, heads, dim, dim_v = len(x.call.q), x.slots, x.heads, x.dim, x.dim_v
    expected = {
        "result": (n, heads, dim_v),
        "leaf_lse": (n, heads),
        "mean_q": (slots, heads, dim),
        "mean_k": (slots, heads, dim),
        "mean_v": (slots, heads, dim_v),
        "out": (slots, heads, dim_v),
        "u": (slots, heads, dim_v),
        "scalars": (6, slots, heads),
    }
    given = [(name, getattr(saved, name), shape) for name, shape in expected.items()]
    given += [("grad", grad, (n, heads, dim_v)), ("grad_phi", grad_phi, (x.kept.trees, heads))]
    for name, t, shape in given:
        if tuple(t.shape) != shape or t.dtype != x.call.q.dtype:
            raise ShapeError(
                f"{name} has shape {list(t.shape)} and dtype {t.dtype}: give {list(shape)} and "
                f"{x.call.q.dtype}, what the forward pass of the same inputs has."
            )


def rows(x: Tensor) -> Rows:
    """A tensor ``[n, H, dim]`` where it lies, or a copy if its last dimension is not dense."""
    x = x.detach()
    if x.numel() == 0:
        return Rows(x.new_empty(0).numpy(), 0, 0, x.size(2))
    if x.size(2) > 1 and x.stride(2) != 1:
        x = x.contiguous()
    (n, heads, dim), (row, head, _) = x.shape, x.stride()
    span = (n - 1) * row + (heads - 1) * head + dim
    return Rows(x.as_strided((span,), (1,)).numpy(), row, head, dim)


def flat(x: Tensor) -> Array:
    """A tensor's elements in order, where they lie if it is contiguous."""
    return x.detach().reshape(-1).numpy()


def trees(leaf: LeafGroups, kept: KeptSlots) -> tuple[Groups, Kept]:
    """The parts of a packed plan as the kernels take them."""
    ptr, _, parent, row, _, own, size = (t.numpy() for t in kept)
    return Groups(*(t.numpy() for t in leaf)), Kept(ptr, parent, row, size, own, int(ptr[0]))


#: Passes that have run, so that their kernels are compiled: name and dtype.
_ready: set[tuple[str, torch.dtype]] = set()


def first_time(name: str, dtype: torch.dtype) -> bool:
    """Whether a pass is yet to run.

    The first of a name and dtype is not split into pieces: its kernels are still to be compiled,
    which takes more of the stack than a thread of OpenMP may have.

    Example:
        >>> first_time("nothing", torch.float32)
        True
    """
    return (name, dtype) not in _ready


def has_run(name: str, dtype: torch.dtype) -> None:
    """Say that a pass has run.

    Example:
        >>> has_run("an example", torch.float32)
        >>> first_time("an example", torch.float32)
        False
    """
    _ready.add((name, dtype))


class Frame:
    """A call's tensors as arrays.

    Args:
        call: The tensors.
        name: Name of a pass, see :func:`first_time`. (default: always split)

    Attributes:
        q: Queries; ``k`` and ``v`` likewise.
        leaves: Groups of leaves.
        siblings: Groups of kept slots.
        kept: Kept slots.
        scores: What the scores of leaves have beside q . k.
        leaf_pieces: Ranges of groups of leaves, of about equal work.
        head_pieces: Ranges of heads.
        wide_leaves: Groups of leaves that are wide; ``wide_kept`` likewise.
    """

    def __init__(self, call: Call, name: str | None = None) -> None:
        self.call = call
        check_packed(call.packed)
        self.leaf_index, self.kept_index = leaf, kept = unpack_kept(call.packed)
        self.slots = len(kept.leaf)
        _check(call)
        self.heads, self.dim, self.dim_v = call.q.size(1), call.q.size(2), call.v.size(2)
        self.leaves, self.kept = trees(leaf, kept)
        ptr, pair, parent, _, top, _, _ = (t.numpy() for t in kept)
        self.siblings = Groups(ptr, np.arange(self.slots), top, top, pair, parent)
        self.q, self.k, self.v = rows(call.q), rows(call.k), rows(call.v)
        nothing = call.q.new_empty(0)

        def array(x: Tensor | None) -> Array:
            return flat(nothing if x is None else x)

        self.pos = rows(nothing.view(0, 0, 0) if call.pos is None else call.pos)
        self.scores = Scores(
            self.q.data.dtype.type(call.scale),
            array(call.term),
            self.pos,
            array(call.bias),
            1 if call.bias is None else call.bias.size(1),
            array(call.mask),
            array(call.own_mask),
            self.heads,
            True,
            WIDE,
        )
        self.leaf_pieces = _group_pieces(self.leaves.ptr, self.heads)
        self.head_pieces = _head_pieces(ptr, self.heads)
        self._key = (name, call.q.dtype)
        if name is not None and first_time(name, call.q.dtype):
            self.leaf_pieces = [(0, len(self.leaves.parent))]
            self.head_pieces = [(0, self.heads)]
        self.wide_leaves = np.flatnonzero(np.diff(self.leaves.ptr) > WIDE).tolist()
        self.wide_kept = np.flatnonzero(np.diff(ptr) > WIDE).tolist()

    def done(self) -> None:
        """Say that the pass has run."""
        name, dtype = self._key
        if name is not None:
            has_run(name, dtype)

    def members(self, g: int) -> Tensor:
        """Rows of the members of a group of leaves."""
        return self.leaf_index.row[int(self.leaves.ptr[g]) : int(self.leaves.ptr[g + 1])]

    def kept_range(self, g: int) -> slice:
        """Kept slots of a group of them."""
        return slice(int(self.kept.ptr[g]), int(self.kept.ptr[g + 1]))

    def wide_leaf_group(self, g: int) -> WideGroup:
        """A group of leaves for :mod:`hsa_geo.ops.wide`."""
        call, row = self.call, self.members(g)
        at = slice(int(self.leaves.ptr[g]), int(self.leaves.ptr[g + 1]))
        top, own = self.leaf_index.top[at], self.leaf_index.own[at]
        return WideGroup(
            *(call.q[row], call.k[row], call.v[row], call.scale, True),
            term=None if call.term is None else call.term[row],
            top=None if call.pos is None else call.pos[top],
            own=None if call.pos is None else call.pos[own],
            own_mask=None if call.own_mask is None else call.own_mask[row],
            **self._pairs(int(self.leaves.pair[g]), len(row)),
        )

    def wide_kept_group(self, g: int, saved: Saved) -> WideGroup:
        """A group of kept slots for :mod:`hsa_geo.ops.wide`."""
        call, at = self.call, self.kept_range(g)
        return WideGroup(
            *(saved.mean_q[at], saved.mean_k[at], saved.mean_v[at], call.scale, False),
            term=saved.scalars[5, at],
            top=None if call.pos is None else call.pos[self.kept_index.top[at]],
            **self._pairs(int(self.siblings.pair[g]), at.stop - at.start),
        )

    def pair_range(self, start: int, n: int) -> slice:
        """The public pairs of a group of n members."""
        return slice(start, start + n * (n - 1))

    def _pairs(self, start: int, n: int) -> dict[str, Any]:
        at = self.pair_range(start, n)
        bias, mask = self.call.bias, self.call.mask
        return {
            "bias": None if bias is None else bias[at],
            "mask": None if mask is None else mask[at],
        }


def _group_pieces(ptr: Array, heads: int) -> list[tuple[int, int]]:
    """Ranges of groups with about the same number of pairs, several for each thread."""
    size = np.diff(ptr)
    if len(size) == 0:
        return []
    work = np.cumsum(np.where(size > WIDE, size, size * (size + 8))) * heads
    most = torch.get_num_threads() * 4 if torch.get_num_threads() > 1 else 1
    pieces = int(min(most, work[-1] // PER_PIECE + 1))
    cuts = np.searchsorted(work, work[-1] * np.arange(1, pieces) / pieces)
    bounds = np.unique(np.concatenate([[0], cuts, [len(size)]])).tolist()
    return list(pairwise(bounds))


def _head_pieces(ptr: Array, heads: int) -> list[tuple[int, int]]:
    """Ranges of heads, one for each thread."""
    size = np.diff(ptr)
    work = int((size * (size + 8)).sum()) * heads
    pieces = int(min(torch.get_num_threads(), heads, work // PER_PIECE + 1))
    bounds = [heads * i // max(pieces, 1) for i in range(pieces + 1)]
    return list(pairwise(bounds))
