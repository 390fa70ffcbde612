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
def _softplus(x: Any) -> Any:
    """``log(1 + exp(x))``."""
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


@jit
def _sigmoid(x: Any) -> Any:
    """``1 / (1 + exp(-x))``."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x))


@jit
def _up(mean: Array, kept: Kept, g: int, h0: int, h1: int) -> None:
    """Mean of a group's rows, weighted by their leaves, to its parent's."""
    parent = kept.parent[g]
    for h in range(h0, h1):
        total = mean[parent, h]
        for d in range(len(total)):
            total[d] = 0
    for c in range(kept.ptr[g], kept.ptr[g + 1]):
        share = mean.dtype.type(kept.size[c] / kept.size[parent])
        for h in range(h0, h1):
            total, part = mean[parent, h], mean[c, h]
            for d in range(len(total)):
                total[d] += share * part[d]


@jit
def _down(mean: Array, kept: Kept, g: int, h0: int, h1: int) -> None:
    """The transpose of :func:`_up`: to each row of a group its share of the parent's."""
    parent = kept.parent[g]
    for c in range(kept.ptr[g], kept.ptr[g + 1]):
        share = mean.dtype.type(kept.size[c] / kept.size[parent])
        for h in range(h0, h1):
            total, part = mean[parent, h], mean[c, h]
            for d in range(len(total)):
                part[d] += share * total[d]


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
    heads = len(f[0])
    for c in range(len(kept.leaf)):
        row = kept.leaf[c]
        if row < 0:
            continue
        for h in range(h0, h1):
            query, key, value = _head(q, row, h), _head(k, row, h), _head(v, row, h)
            to_q, to_k, to_v = mean_q[c, h], mean_k[c, h], mean_v[c, h]
            own = mean_q.dtype.type(0)
            for d in range(q.dim):
                to_q[d] = query[d]
                to_k[d] = key[d]
                own += query[d] * key[d]
            for d in range(v.dim):
                to_v[d] = value[d]
            own *= scale
            own += mean_q.dtype.type(math.log(kept.size[c]))  # as often as the leaf counts
            if term.size > 0:
                mean_term[c, h] = term[row * heads + h]
                own += mean_term[c, h]
            if pos.dim > 0 and kept.own[c] >= 0:
                e = _head(pos, kept.own[c], h)
                for d in range(pos.dim):
                    own += e[d] * e[d]
            f[c, h] = own
    for g in range(len(kept.parent) - 1, -1, -1):
        _up(mean_q, kept, g, h0, h1)
        _up(mean_k, kept, g, h0, h1)
        _up(mean_v, kept, g, h0, h1)
        if term.size > 0:
            _up(mean_term[..., None], kept, g, h0, h1)
    for c in range(len(kept.leaf)):
        log_size = math.log(kept.size[c])
        for h in range(h0, h1):
            key_term[c, h] = log_size
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
    for g in range(len(kept.parent) - 1, -1, -1):
        parent = kept.parent[g]
        for h in range(h0, h1):
            total = 0.0
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                top = max(f[c, h], lse[c, h])
                z[c, h] = top + math.log(math.exp(f[c, h] - top) + math.exp(lse[c, h] - top))
                total += z[c, h] * kept.size[c]
            f[parent, h] = total / kept.size[parent]
    for c in range(kept.trees):
        for h in range(h0, h1):
            z[c, h], c_[c, h], leave[c, h] = 0, 0, 0
            u[c, h, :] = 0
    for g in range(len(kept.parent)):  # log c in c_, until all children have read it
        parent = kept.parent[g]
        for c in range(kept.ptr[g], kept.ptr[g + 1]):
            for h in range(h0, h1):
                # What stays and what leaves add up to one even where log Z has no digits left.
                c_[c, h] = c_[parent, h] - _softplus(lse[c, h] - f[c, h])
                leave[c, h] = math.exp(c_[parent, h] - _softplus(f[c, h] - lse[c, h]))
                here, above, gain = u[c, h], u[parent, h], out[c, h]
                for d in range(v.dim):
                    here[d] = above[d] + leave[c, h] * gain[d]
    for c in range(len(kept.leaf)):
        row = kept.leaf[c]
        for h in range(h0, h1):
            c_[c, h] = math.exp(c_[c, h])
            if row >= 0:
                own = c_[c, h]
                if own_mask.size > 0:
                    own *= own_mask[row * heads + h]
                target, value, here = _head(result, row, h), _head(v, row, h), u[c, h]
                for d in range(v.dim):
                    target[d] = here[d] + own * value[d]


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
    for c in range(len(kept.leaf)):
        row = kept.leaf[c]
        if row < 0:
            continue
        for h in range(h0, h1):
            here, value, slope = _head(grad, row, h), _head(v, row, h), f.dtype.type(0)
            total = grad_u[c, h]
            for d in range(v.dim):
                total[d] = here[d]
                slope += here[d] * value[d]
            if own_mask.size > 0:
                slope *= own_mask[row * heads + h]
            below[c, h] = c_[c, h] * slope
    for g in range(len(kept.parent) - 1, -1, -1):
        parent = kept.parent[g]
        for h in range(h0, h1):
            total, slope = grad_u[parent, h], f.dtype.type(0)
            for d in range(v.dim):
                total[d] = 0
            for c in range(kept.ptr[g], kept.ptr[g + 1]):
                dot, part, gain = f.dtype.type(0), grad_u[c, h], out[c, h]
                for d in range(v.dim):
                    total[d] += part[d]
                    dot += part[d] * gain[d]
                delta[c, h] = dot
                slope += below[c, h] + leave[c, h] * dot
            below[parent, h] = slope
    for c in range(kept.trees):
        for h in range(h0, h1):
            grad_f[c, h] = -grad_phi[c, h]
    for g in range(len(kept.parent)):
        parent = kept.parent[g]
        for c in range(kept.ptr[g], kept.ptr[g + 1]):
            share = f.dtype.type(kept.size[c] / kept.size[parent])
            for h in range(h0, h1):
                r = leave[c, h] * delta[c, h]
                x = share * grad_f[parent, h] - r - below[c, h]
                grad_f[c, h] = below[c, h] + _sigmoid(f[c, h] - lse[c, h]) * x
                grad_lse[c, h] = r + _sigmoid(lse[c, h] - f[c, h]) * x


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
    for c in range(kept.trees):
        for h in range(h0, h1):
            mean_q[c, h, :] = 0
            mean_k[c, h, :] = 0
            mean_v[c, h, :] = 0
            if to_term.size > 0:
                mean_term[c, h] = 0
    for g in range(len(kept.parent)):
        _down(mean_q, kept, g, h0, h1)
        _down(mean_k, kept, g, h0, h1)
        _down(mean_v, kept, g, h0, h1)
        if to_term.size > 0:
            _down(mean_term[..., None], kept, g, h0, h1)
    for c in range(len(kept.leaf)):
        row = kept.leaf[c]
        if row < 0:
            continue
        for h in range(h0, h1):
            slope, own = grad_f[c, h] * scale, c_[c, h]
            if own_mask.size > 0:
                own *= own_mask[row * heads + h]
            query, key, here = _head(q, row, h), _head(k, row, h), _head(grad, row, h)
            in_q, in_k, in_v = _head(to_q, row, h), _head(to_k, row, h), _head(to_v, row, h)
            of_q, of_k, of_v = mean_q[c, h], mean_k[c, h], mean_v[c, h]
            for d in range(to_q.dim):
                in_q[d] = of_q[d] + slope * key[d]
                in_k[d] = of_k[d] + slope * query[d]
            for d in range(to_v.dim):
                in_v[d] = of_v[d] + own * here[d]
            if to_term.size > 0:
                to_term[row * heads + h] = mean_term[c, h] + grad_f[c, h]
            if to_pos.size > 0 and kept.own[c] >= 0:
                node = kept.own[c]
                e = _head(pos, node, h)
                at = (node * heads + h) * pos.dim
                for d in range(pos.dim):
                    to_pos[at + d] += 2 * grad_f[c, h] * e[d]
