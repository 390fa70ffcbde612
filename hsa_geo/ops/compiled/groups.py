"""Attention within sibling groups, forward and backward, compiled by numba.

For the members i, j of one group and one head::

    s_ij = scale q_i . k_j + term_j + e_i . e_j + bias_ij
    p_ij = exp(s_ij - L_i),  L_i = log sum_j exp(s_ij),  out_i = sum_j m_ij p_ij v_j

with the dropout mask m.  In a group of leaves the sum includes j = i (ordinary attention); among
other slots it leaves it out.  Backward, with G_i the gradient of ``w_i out_i`` by the caller's
weight w_i and ``dL_i`` that of the log-sum-exp (through which the scores get gradient, too)::

    dS_ij = p_ij (w_i (m_ij G_i . v_j - G_i . out_i) + dL_i)

Scores are recomputed instead of stored.  Each function touches only the groups and heads that it
is given, in a fixed order, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hsa_geo.ops.compiled.jit import jit
from hsa_geo.ops.compiled.layout import Adjoints, Array, Groups, Rows, Scores

__all__ = ["group_backward", "group_forward", "leaf_reduce"]


@jit
def exp_rows(x: Array, n: int, top: Any, bits: Array) -> Any:
    """``x[:n] = exp(x[:n] - top)``; returns the sum.  -inf gives 0, nan stays nan."""
    total = x.dtype.type(0)
    if x.itemsize == 8:
        for j in range(n):
            x[j] = math.exp(x[j] - top)
            total += x[j]
        return total
    # exp(t ln 2) = 2^r * 2^f with integer r and |f| <= 1/2; 2^f by its Taylor polynomial, whose
    # error is 2e-8, and 2^r by writing the exponent's bits.  The loops below become SIMD code.
    for j in range(n):
        t = (x[j] - top) * np.float32(1.4426950408889634)
        t = np.float32(-200.0) if t < np.float32(-200.0) else t
        r = np.floor(t + np.float32(0.5))
        f = t - r
        y = np.float32(1.5403530393381609e-4)
        y = y * f + np.float32(1.3333558146428443e-3)
        y = y * f + np.float32(9.618129107628477e-3)
        y = y * f + np.float32(5.550410866482158e-2)
        y = y * f + np.float32(2.402265069591007e-1)
        y = y * f + np.float32(6.931471805599453e-1)
        y = y * f + np.float32(1.0)
        power = np.int32(r) + np.int32(127)
        bits[j] = (power if power > 0 else np.int32(0)) << np.int32(23)
        x[j] = y
    factor = bits.view(np.float32)
    for j in range(n):
        x[j] *= factor[j]
        total += x[j]
    return total


@jit
def dots(s: Array, n: int, x: Array, y: Array, at: Array, dim: int) -> None:
    """``s[j] = x . y[at[j]:at[j]+dim]``, four rows at a time."""
    j = 0
    while j + 4 <= n:
        y0, y1 = y[at[j] : at[j] + dim], y[at[j + 1] : at[j + 1] + dim]
        y2, y3 = y[at[j + 2] : at[j + 2] + dim], y[at[j + 3] : at[j + 3] + dim]
        s0 = s1 = s2 = s3 = x.dtype.type(0)
        for d in range(dim):
            s0 += x[d] * y0[d]
            s1 += x[d] * y1[d]
            s2 += x[d] * y2[d]
            s3 += x[d] * y3[d]
        s[j], s[j + 1], s[j + 2], s[j + 3] = s0, s1, s2, s3
        j += 4
    while j < n:
        y0 = y[at[j] : at[j] + dim]
        s0 = x.dtype.type(0)
        for d in range(dim):
            s0 += x[d] * y0[d]
        s[j] = s0
        j += 1


@jit
def combine(out: Array, w: Array, n: int, y: Array, at: Array, dim: int) -> None:
    """``out = sum_j w[j] y[at[j]:at[j]+dim]``, four rows at a time."""
    for d in range(dim):
        out[d] = 0
    j = 0
    while j + 4 <= n:
        y0, y1 = y[at[j] : at[j] + dim], y[at[j + 1] : at[j + 1] + dim]
        y2, y3 = y[at[j + 2] : at[j + 2] + dim], y[at[j + 3] : at[j + 3] + dim]
        w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
        for d in range(dim):
            out[d] += w0 * y0[d] + w1 * y1[d] + w2 * y2[d] + w3 * y3[d]
        j += 4
    while j < n:
        y0 = y[at[j] : at[j] + dim]
        w0 = w[j]
        for d in range(dim):
            out[d] += w0 * y0[d]
        j += 1


@jit
def places(at: Array, x: Rows, row: Array, first: int, n: int, h: int) -> None:
    """Where the rows of the members ``first:first+n`` begin for a head."""
    for j in range(n):
        at[j] = row[first + j] * x.row + h * x.head


@jit
def add_terms(s: Array, groups: Groups, x: Scores, g: int, i: int, h: int) -> None:
    """Add to row i of the scores what they have beside q . k; -inf where i attends not to i."""
    first = groups.ptr[g]
    n = groups.ptr[g + 1] - first
    if x.term.size > 0:
        for j in range(n):
            s[j] += x.term[groups.row[first + j] * x.heads + h]
    if x.pos.dim > 0:
        here = groups.top[first + i] * x.pos.row + h * x.pos.head
        e = x.pos.data[here : here + x.pos.dim]
        for j in range(n):
            there = groups.top[first + j] * x.pos.row + h * x.pos.head
            other = x.pos.data[there : there + x.pos.dim]
            if j == i:
                there = groups.own[first + i] * x.pos.row + h * x.pos.head
                other = x.pos.data[there : there + x.pos.dim]
            mine = other if j == i else e
            for d in range(x.pos.dim):
                s[j] += mine[d] * other[d]
    if x.bias.size > 0:
        at = (groups.pair[g] + i * (n - 1)) * x.bias_heads + (h if x.bias_heads > 1 else 0)
        for j in range(n):
            if j != i:
                s[j] += x.bias[at]
                at += x.bias_heads
    if not x.diagonal:
        s[i] = -np.inf


@jit
def apply_mask(w: Array, groups: Groups, x: Scores, g: int, i: int, h: int) -> None:
    """Multiply row i of the weights by the dropout mask."""
    if x.mask.size == 0 and x.own_mask.size == 0:
        return
    first = groups.ptr[g]
    n = groups.ptr[g + 1] - first
    at = (groups.pair[g] + i * (n - 1)) * x.heads + h
    for j in range(n):
        if j != i:
            w[j] *= x.mask[at]
            at += x.heads
        elif x.diagonal:
            w[j] *= x.own_mask[groups.row[first + i] * x.heads + h]


@jit
def largest(groups: Groups, g0: int, g1: int, wide: int) -> int:
    """Largest size of the groups that are not wide."""
    most = 1
    for g in range(g0, g1):
        n = groups.ptr[g + 1] - groups.ptr[g]
        if n <= wide:
            most = max(most, n)
    return most


@jit
def group_forward(
    q: Rows,
    k: Rows,
    v: Rows,
    groups: Groups,
    x: Scores,
    g0: int,
    g1: int,
    h0: int,
    h1: int,
    out: Rows,
    lse: Array,
) -> None:
    """Output and log-sum-exp ``[n, H]`` of the members of groups ``g0:g1``, heads ``h0:h1``."""
    dtype = q.data.dtype
    most = largest(groups, g0, g1, x.wide)
    s, bits = np.empty(most, dtype), np.empty(most, np.int32)
    mine, result = np.empty(max(q.dim, 1), dtype), np.empty(max(v.dim, 1), dtype)
    at_k, at_v = np.empty(most, np.int64), np.empty(most, np.int64)
    for g in range(g0, g1):
        first = groups.ptr[g]
        n = groups.ptr[g + 1] - first
        if n > x.wide:
            continue
        for h in range(h0, h1):
            places(at_k, k, groups.row, first, n, h)
            places(at_v, v, groups.row, first, n, h)
            for i in range(n):
                row = groups.row[first + i]
                query = q.data[row * q.row + h * q.head : row * q.row + h * q.head + q.dim]
                for d in range(q.dim):
                    mine[d] = query[d] * x.scale
                dots(s, n, mine, k.data, at_k, q.dim)
                add_terms(s, groups, x, g, i, h)
                top = dtype.type(np.finfo(dtype).min)
                for j in range(n):
                    top = max(top, s[j])
                total = exp_rows(s, n, top, bits)
                lse[row * x.heads + h] = top + math.log(total) if total != 0 else -np.inf
                apply_mask(s, groups, x, g, i, h)
                combine(result, s, n, v.data, at_v, v.dim)
                there = row * out.row + h * out.head
                target = out.data[there : there + v.dim]
                inverse = 1 / total if total != 0 else total
                for d in range(v.dim):
                    target[d] = result[d] * inverse


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
def write(target: Rows, row: int, h: int, x: Array, factor: Any, base: Array, at: int, n: int) -> None:
    """``target[row, h] = factor x``, plus an equal share of what the mean's row ``at`` got."""
    here = row * target.row + h * target.head
    out = target.data[here : here + target.dim]
    if base.size > 0:
        mean = base[at * target.dim : (at + 1) * target.dim]
        share = x.dtype.type(1.0 / n)
        for d in range(target.dim):
            out[d] = x[d] * factor + mean[d] * share
    else:
        for d in range(target.dim):
            out[d] = x[d] * factor


@jit
def side_gradients(ds: Array, n: int, groups: Groups, x: Scores, g: int, h: int, to: Adjoints) -> None:
    """Gradients of terms, positions and biases from those of the scores, ``ds[i*n + j]``."""
    first = groups.ptr[g]
    if to.term.size > 0:
        share = ds.dtype.type(0)
        if x.diagonal:
            share = to.mean_term[groups.parent[g] * x.heads + h] / ds.dtype.type(n)
        for j in range(n):
            total = share
            for i in range(n):
                total += ds[i * n + j]
            to.term[groups.row[first + j] * x.heads + h] = total
    if to.bias.size > 0:
        at = groups.pair[g] * x.heads + h
        for i in range(n):
            for j in range(n):
                if j != i:
                    to.bias[at] = ds[i * n + j]
                    at += x.heads
    if to.pos.size > 0:
        dim = x.pos.dim
        for i in range(n):
            here = (groups.top[first + i] * x.heads + h) * dim
            mine = to.pos[here : here + dim]
            for j in range(n):
                if j != i:
                    there = groups.top[first + j] * x.pos.row + h * x.pos.head
                    other = x.pos.data[there : there + dim]
                    both = ds[i * n + j] + ds[j * n + i]
                    for d in range(dim):
                        mine[d] += both * other[d]
            if x.diagonal:
                node = groups.own[first + i]
                mine = to.pos[(node * x.heads + h) * dim : (node * x.heads + h + 1) * dim]
                there = node * x.pos.row + h * x.pos.head
                other = x.pos.data[there : there + dim]
                for d in range(dim):
                    mine[d] += 2 * ds[i * n + i] * other[d]


@jit
def group_backward(
    q: Rows,
    k: Rows,
    v: Rows,
    groups: Groups,
    x: Scores,
    g0: int,
    g1: int,
    h0: int,
    h1: int,
    lse: Array,
    to: Adjoints,
) -> None:
    """Gradients of everything the groups ``g0:g1`` attended with, heads ``h0:h1``."""
    dtype = q.data.dtype
    most = largest(groups, g0, g1, x.wide)
    s, bits = np.empty(most, dtype), np.empty(most, np.int32)
    ds, kept = np.empty(most * most, dtype), np.empty(most * most, dtype)  # [n, n], by row
    turned = np.empty(most, dtype)
    mine, result = np.empty(max(q.dim, 1), dtype), np.empty(max(q.dim, v.dim, 1), dtype)
    at_q, at_k = np.empty(most, np.int64), np.empty(most, np.int64)
    at_v, at_o = np.empty(most, np.int64), np.empty(most, np.int64)
    one = dtype.type(1)
    for g in range(g0, g1):
        first = groups.ptr[g]
        n = groups.ptr[g + 1] - first
        if n > x.wide:
            continue
        for h in range(h0, h1):
            places(at_q, q, groups.row, first, n, h)
            places(at_k, k, groups.row, first, n, h)
            places(at_v, v, groups.row, first, n, h)
            places(at_o, to.out, groups.row, first, n, h)
            for i in range(n):
                row = groups.row[first + i]
                query = q.data[at_q[i] : at_q[i] + q.dim]
                for d in range(q.dim):
                    mine[d] = query[d] * x.scale
                dots(s, n, mine, k.data, at_k, q.dim)
                add_terms(s, groups, x, g, i, h)
                level = lse[row * x.heads + h]
                level = dtype.type(np.finfo(dtype).max) if level == -np.inf else level
                exp_rows(s, n, level, bits)  # p_ij
                p, grad = kept[i * n : (i + 1) * n], ds[i * n : (i + 1) * n]
                dots(grad, n, to.out.data[at_o[i] : at_o[i] + v.dim], v.data, at_v, v.dim)
                apply_mask(grad, groups, x, g, i, h)
                which = groups.parent[g] if x.diagonal else row
                weight, slope = to.weight[which * x.heads + h], to.lse[which * x.heads + h]
                slope = slope / dtype.type(n) if x.diagonal else slope
                delta = to.delta[row * x.heads + h]
                for j in range(n):
                    grad[j] = s[j] * (weight * (grad[j] - delta) + slope)
                    p[j] = weight * s[j]
                apply_mask(p, groups, x, g, i, h)
            base = groups.parent[g] * x.heads + h if x.diagonal else 0
            for i in range(n):
                row = groups.row[first + i]
                combine(result, ds[i * n : (i + 1) * n], n, k.data, at_k, q.dim)
                write(to.q, row, h, result, x.scale, to.mean_q, base, n)
                for j in range(n):
                    turned[j] = ds[j * n + i]
                combine(result, turned, n, q.data, at_q, q.dim)
                write(to.k, row, h, result, x.scale, to.mean_k, base, n)
                for j in range(n):
                    turned[j] = kept[j * n + i]
                combine(result, turned, n, to.out.data, at_o, v.dim)
                write(to.v, row, h, result, one, to.mean_v, base, n)
            side_gradients(ds, n, groups, x, g, h, to)
