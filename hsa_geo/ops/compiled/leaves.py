"""Between the leaves and the kept slots: sums over groups of leaves, and what they get back."""

from __future__ import annotations

import numpy as np

from hsa_geo.ops.compiled.jit import jit
from hsa_geo.ops.compiled.layout import Array, Groups, Kept, Rows

__all__ = ["leaf_adjoint", "leaf_finish", "leaf_reduce", "leaf_trees"]


@jit
def _row(x: Rows, row: int, h: int) -> Array:
    here = row * x.row + h * x.head
    return x.data[here : here + x.dim]


@jit
def leaf_reduce(
    x: Rows, groups: Groups, g0: int, g1: int, h0: int, h1: int, out: Array, share: bool
) -> None:
    """Mean (or sum) over the members of each group to its parent's row of ``out [R, H, dim]``."""
    heads = out.shape[1]
    for g in range(g0, g1):
        first = groups.ptr[g]
        n = groups.ptr[g + 1] - first
        factor = x.data.dtype.type(1.0 / n if share else 1.0)
        for h in range(h0, min(h1, heads)):
            total = out[groups.parent[g], h]
            for d in range(x.dim):
                total[d] = 0
            for j in range(n):
                here = groups.row[first + j] * x.row + h * x.head
                part = x.data[here : here + x.dim]
                for d in range(x.dim):
                    total[d] += part[d]
            for d in range(x.dim):
                total[d] *= factor


@jit
def leaf_finish(groups: Groups, g0: int, g1: int, c_: Array, u: Array, result: Rows) -> None:
    """``c_A local + u_A``, in place of ``local``, for the members of groups of leaves under A."""
    for g in range(g0, g1):
        parent = groups.parent[g]
        for j in range(groups.ptr[g], groups.ptr[g + 1]):
            for h in range(len(c_[0])):
                target = _row(result, groups.row[j], h)
                factor, base = c_[parent, h], u[parent, h]
                for d in range(result.dim):
                    target[d] = factor * target[d] + base[d]


@jit
def leaf_adjoint(
    groups: Groups,
    g0: int,
    g1: int,
    grad: Rows,
    result: Rows,
    u: Array,
    grad_u: Array,
    below: Array,
) -> None:
    """For parents A of groups of leaves, sums over these: of G, and the gradient of log c_A.

    That is the sum of ``G_i . c_A local_i``, where ``c_A local_i = o_i - u_A``.
    """
    heads = len(below[0])
    for g in range(g0, g1):
        parent = groups.parent[g]
        for h in range(heads):
            total, slope = grad_u[parent, h], below.dtype.type(0)
            for d in range(grad.dim):
                total[d] = 0
            for j in range(groups.ptr[g], groups.ptr[g + 1]):
                here, there = _row(grad, groups.row[j], h), _row(result, groups.row[j], h)
                for d in range(grad.dim):
                    total[d] += here[d]
                    slope += here[d] * there[d]
            for d in range(grad.dim):
                slope -= total[d] * u[parent, h, d]
            below[parent, h] = slope


@jit
def leaf_trees(groups: Groups, kept: Kept, tree: Array) -> None:
    """Number of the tree of every leaf, by row."""
    of_slot = np.empty(len(kept.leaf), np.int64)
    for c in range(kept.trees):
        of_slot[c] = c
    for g in range(len(kept.parent)):
        of_slot[kept.ptr[g] : kept.ptr[g + 1]] = of_slot[kept.parent[g]]
    for c in range(len(kept.leaf)):
        if kept.leaf[c] >= 0:
            tree[kept.leaf[c]] = of_slot[c]
    for g in range(len(groups.parent)):
        for j in range(groups.ptr[g], groups.ptr[g + 1]):
            tree[groups.row[j]] = of_slot[groups.parent[g]]
