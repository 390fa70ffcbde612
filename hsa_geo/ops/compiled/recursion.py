"""The dynamic program over the kept slots, compiled: means and scalars up, sums along paths down.

Kept slots are what remains of a tree when every group of leaves is taken for one leaf, its
parent: :mod:`hsa_geo.data.kept` says more.  A slot's children come behind it, so one loop over
the groups visits children before parents, or parents before children; there are no levels here.
Everything is separate by head, and each function works on the heads it is given.

The recursions are those of :mod:`hsa_geo.ops.dynamic`, where they stand for the other backends,
and :func:`scalars_backward` is their adjoint.
"""

from __future__ import annotations

import math
from typing import Any

from hsa_geo.ops.compiled.jit import jit
from hsa_geo.ops.compiled.layout import Array, Kept, Rows

__all__ = [
    "means_down",
    "means_up",
    "scalars",
    "scalars_backward",
]


@jit
def _head(x: Rows, row: int, h: int) -> Array:
    here = row * x.row + h * x.head
    return x.data[here : here + x.dim]


@jit
def _up(mean: Array, kept: Kept, g: int, h: int) -> None:
    """Mean of a group's rows, weighted by their leaves, to its parent's."""
    parent = kept.parent[g]
    total = mean[parent, h]
    for d in range(len(total)):
        total[d] = 0
    for c in range(kept.ptr[g], kept.ptr[g + 1]):
        share = mean.dtype.type(kept.size[c] / kept.size[parent])
        part = mean[c, h]
        for d in range(len(total)):
            total[d] += share * part[d]


@jit
def means_up(
    q: Rows,
    k: Rows,
    v: Rows,
    term: Array,
    pos: Rows,
    scale: Any,
    kept: Kept,
    h0: int,
    h1: int,
    mean_q: Array,
    mean_k: Array,
    mean_v: Array,
    mean_term: Array,
    key_term: Array,
    f: Array,
) -> None:
    """Mean query, key, value and term of every kept slot, and f of those that are leaves.

    Parents of groups of leaves have theirs already.  ``key_term`` is the term with ``log|B|``.
    """
    for h in range(h0, h1):
        for c in range(len(kept.leaf)):
            row = kept.leaf[c]
            if row < 0:
                continue
            query, key, value = _head(q, row, h), _head(k, row, h), _head(v, row, h)
            own = mean_q.dtype.type(0)
            for d in range(q.dim):
                mean_q[c, h, d] = query[d]
                mean_k[c, h, d] = key[d]
                own += query[d] * key[d]
            for d in range(v.dim):
                mean_v[c, h, d] = value[d]
            own *= scale
            if term.size > 0:
                mean_term[c, h] = term[row * len(f[0]) + h]
                own += mean_term[c, h]
            if pos.dim > 0 and kept.own[c] >= 0:
                e = _head(pos, kept.own[c], h)
                for d in range(pos.dim):
                    own += e[d] * e[d]
            f[c, h] = own
        for g in range(len(kept.parent) - 1, -1, -1):
            _up(mean_q, kept, g, h)
            _up(mean_k, kept, g, h)
            _up(mean_v, kept, g, h)
            if term.size > 0:
                total = mean_term.dtype.type(0)
                for c in range(kept.ptr[g], kept.ptr[g + 1]):
                    total += mean_term[c, h] * kept.size[c]
                mean_term[kept.parent[g], h] = total / kept.size[kept.parent[g]]
        for c in range(len(kept.leaf)):
            key_term[c, h] = math.log(kept.size[c])
            if term.size > 0:
                key_term[c, h] += mean_term[c, h]


@jit
def scalars(
    kept: Kept,
    v: Rows,
    own_mask: Array,
    h0: int,
    h1: int,
    f: Array,
    lse: Array,
    out: Array,
    z: Array,
    c_: Array,
    leave: Array,
    u: Array,
    result: Rows,
) -> None:
    """f and log Z up, c, u and the weight of each slot's siblings down; outputs of the leaves."""
    heads = len(f[0])
    for h in range(h0, h1):
        for g in range(len(kept.parent) - 1, -1, -1):
            parent = kept.parent[g]
            total = f.dtype.type(0)
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                top = max(f[c, h], lse[c, h])
                z[c, h] = top + math.log(math.exp(f[c, h] - top) + math.exp(lse[c, h] - top))
                total += z[c, h] * kept.size[c]
            f[parent, h] = total / kept.size[parent]
        for c in range(kept.trees):
            z[c, h] = 0  # here: log c, until the end of the loop below
            c_[c, h], leave[c, h] = 0, 0
            for d in range(v.dim):
                u[c, h, d] = 0
        # log c in c_, until all children have read it
        for g in range(len(kept.parent)):
            parent = kept.parent[g]
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                c_[c, h] = c_[parent, h] + f[c, h] - z[c, h]
                leave[c, h] = math.exp(c_[parent, h] - z[c, h] + lse[c, h])
                for d in range(v.dim):
                    u[c, h, d] = u[parent, h, d] + leave[c, h] * out[c, h, d]
        for c in range(len(kept.leaf)):
            c_[c, h] = math.exp(c_[c, h])
            row = kept.leaf[c]
            if row >= 0:
                own = c_[c, h]
                if own_mask.size > 0:
                    own *= own_mask[row * heads + h]
                target, value = _head(result, row, h), _head(v, row, h)
                for d in range(v.dim):
                    target[d] = u[c, h, d] + own * value[d]


@jit
def scalars_backward(
    kept: Kept,
    grad: Rows,
    v: Rows,
    own_mask: Array,
    grad_phi: Array,
    h0: int,
    h1: int,
    f: Array,
    lse: Array,
    out: Array,
    z: Array,
    c_: Array,
    leave: Array,
    grad_u: Array,
    delta: Array,
    below: Array,
    grad_f: Array,
    grad_lse: Array,
) -> None:
    """Adjoint of :func:`scalars`: gradients of f and of the siblings' log-sum-exp.

    With r_B the gradient of log leave_B and l_B ("below") that of log c_B, which gathers from
    the leaves up, those of f go down::

        X_B = |B|/|A| df_A - r_B - l_B,  df_B = l_B + w_B X_B,  dL_B = r_B + (1 - w_B) X_B
    """
    heads = len(f[0])
    for h in range(h0, h1):
        for c in range(len(kept.leaf)):
            row = kept.leaf[c]
            if row >= 0:
                here, value, total = _head(grad, row, h), _head(v, row, h), f.dtype.type(0)
                for d in range(v.dim):
                    grad_u[c, h, d] = here[d]
                    total += here[d] * value[d]
                if own_mask.size > 0:
                    total *= own_mask[row * heads + h]
                below[c, h] = c_[c, h] * total
        for g in range(len(kept.parent) - 1, -1, -1):
            parent = kept.parent[g]
            total_u, total = grad_u[parent, h], f.dtype.type(0)
            for d in range(v.dim):
                total_u[d] = 0
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                dot = f.dtype.type(0)
                for d in range(v.dim):
                    total_u[d] += grad_u[c, h, d]
                    dot += grad_u[c, h, d] * out[c, h, d]
                delta[c, h] = dot
                total += below[c, h] + leave[c, h] * dot
            below[parent, h] = total
        for c in range(kept.trees):
            grad_f[c, h] = -grad_phi[c, h]
        for g in range(len(kept.parent)):
            parent = kept.parent[g]
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                r = leave[c, h] * delta[c, h]
                share = f.dtype.type(kept.size[c] / kept.size[parent])
                x = share * grad_f[parent, h] - r - below[c, h]
                grad_f[c, h] = below[c, h] + math.exp(f[c, h] - z[c, h]) * x
                grad_lse[c, h] = r + math.exp(lse[c, h] - z[c, h]) * x


@jit
def means_down(
    q: Rows,
    k: Rows,
    pos: Rows,
    scale: Any,
    own_mask: Array,
    kept: Kept,
    h0: int,
    h1: int,
    grad: Rows,
    c_: Array,
    grad_f: Array,
    mean_q: Array,
    mean_k: Array,
    mean_v: Array,
    mean_term: Array,
    to_q: Rows,
    to_k: Rows,
    to_v: Rows,
    to_term: Array,
    to_pos: Array,
) -> None:
    """Adjoint of :func:`means_up`: from the gradients of the means to those of the leaves."""
    heads = len(c_[0])
    for h in range(h0, h1):
        for c in range(kept.trees):
            mean_q[c, h] = 0
            mean_k[c, h] = 0
            mean_v[c, h] = 0
            if to_term.size > 0:
                mean_term[c, h] = 0
        for g in range(len(kept.parent)):
            parent = kept.parent[g]
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                share = c_.dtype.type(kept.size[c] / kept.size[parent])
                for d in range(to_q.dim):
                    mean_q[c, h, d] += share * mean_q[parent, h, d]
                    mean_k[c, h, d] += share * mean_k[parent, h, d]
                for d in range(to_v.dim):
                    mean_v[c, h, d] += share * mean_v[parent, h, d]
                if to_term.size > 0:
                    mean_term[c, h] += share * mean_term[parent, h]
        for c in range(len(kept.leaf)):
            row = kept.leaf[c]
            if row < 0:
                continue
            slope, own = grad_f[c, h] * scale, c_[c, h]
            if own_mask.size > 0:
                own *= own_mask[row * heads + h]
            query, key, here = _head(q, row, h), _head(k, row, h), _head(grad, row, h)
            in_q, in_k, in_v = _head(to_q, row, h), _head(to_k, row, h), _head(to_v, row, h)
            for d in range(to_q.dim):
                in_q[d] = mean_q[c, h, d] + slope * key[d]
                in_k[d] = mean_k[c, h, d] + slope * query[d]
            for d in range(to_v.dim):
                in_v[d] = mean_v[c, h, d] + own * here[d]
            if to_term.size > 0:
                to_term[row * heads + h] = mean_term[c, h] + grad_f[c, h]
            if to_pos.size > 0 and kept.own[c] >= 0:
                node = kept.own[c]
                e = _head(pos, node, h)
                at = (node * heads + h) * pos.dim
                for d in range(pos.dim):
                    to_pos[at + d] += 2 * grad_f[c, h] * e[d]
