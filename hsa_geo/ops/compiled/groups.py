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
from hsa_geo.ops.compiled.vectors import combine, dots, exp_rows

__all__ = ["group_backward", "group_forward"]


@jit
def pack(to: Array, x: Rows, row: Array, first: int, n: int, h0: int, h1: int, factor: Any) -> None:
    """``to[h - h0, j] = factor x[row[first+j], h]`` for n members and heads ``h0:h1``.

    Where they lie, the rows of one head are a power of two apart, so most of them compete for the
    same few places of the cache; packed, they are read many times at full speed.
    """
    for j in range(n):
        here, at = np.uint64(row[first + j] * x.row + h0 * x.head), np.uint64(j * x.dim)
        for _ in range(h0, h1):
            for d in range(x.dim):
                to[at + np.uint64(d)] = factor * x.data[here + np.uint64(d)]
            here += np.uint64(x.head)
            at += np.uint64(n * x.dim)


@jit
def unpack(
    target: Rows, x: Array, groups: Groups, g: int, h0: int, h1: int, mean: Array, factor: Any
) -> None:
    """The reverse of :func:`pack`, plus an equal share of what the parent's mean got, if any."""
    first = groups.ptr[g]
    n = groups.ptr[g + 1] - first
    share = x.dtype.type(1.0 / n)
    heads = target.row // target.dim if target.dim > 0 else 0
    for j in range(n):
        here = np.uint64(groups.row[first + j] * target.row + h0 * target.head)
        at = np.uint64(j * target.dim)
        base = np.uint64((groups.parent[g] * heads + h0) * target.dim)
        for _ in range(h0, h1):
            if mean.size > 0:
                for d in range(target.dim):
                    e = np.uint64(d)
                    target.data[here + e] = factor * x[at + e] + share * mean[base + e]
            else:
                for d in range(target.dim):
                    target.data[here + np.uint64(d)] = factor * x[at + np.uint64(d)]
            here += np.uint64(target.head)
            at += np.uint64(n * target.dim)
            base += np.uint64(target.dim)


@jit
def part(x: Array, h: int, size: int) -> Array:
    """The packed rows of the h-th head, n rows of ``size`` elements in all."""
    return x[h * size : (h + 1) * size]


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
    width, width_v = most * (h1 - h0) * q.dim, most * (h1 - h0) * v.dim
    queries, keys = np.empty(width, dtype), np.empty(width, dtype)
    values, results = np.empty(width_v, dtype), np.empty(width_v, dtype)
    nothing = np.empty(0, dtype)
    plain = x.diagonal and x.term.size == 0 and x.pos.dim == 0 and x.bias.size == 0
    for g in range(g0, g1):
        first = groups.ptr[g]
        n = groups.ptr[g + 1] - first
        if n > x.wide:
            continue
        pack(queries, q, groups.row, first, n, h0, h1, x.scale)
        pack(keys, k, groups.row, first, n, h0, h1, dtype.type(1))
        pack(values, v, groups.row, first, n, h0, h1, dtype.type(1))
        for h in range(h0, h1):
            query, key = part(queries, h - h0, n * q.dim), part(keys, h - h0, n * q.dim)
            value, result = part(values, h - h0, n * v.dim), part(results, h - h0, n * v.dim)
            for i in range(n):
                row = groups.row[first + i]
                dots(s, n, query, i, key, q.dim)
                if not plain:
                    add_terms(s, groups, x, g, i, h)
                top = dtype.type(np.finfo(dtype).min)
                for j in range(n):
                    top = max(top, s[j])
                total = exp_rows(s, n, top, bits)
                lse[row * x.heads + h] = top + math.log(total) if total != 0 else -np.inf
                if x.mask.size > 0:
                    apply_mask(s, groups, x, g, i, h)
                inverse = 1 / total if total != 0 else total
                for j in range(n):
                    s[j] *= inverse
                combine(part(result, i, v.dim), s, n, value, v.dim)
        unpack(out, results, groups, g, h0, h1, nothing, dtype.type(1))


@jit
def side_gradients(
    ds: Array, n: int, groups: Groups, x: Scores, g: int, h: int, to: Adjoints
) -> None:
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
    one = dtype.type(1)
    most = largest(groups, g0, g1, x.wide)
    s, bits = np.empty(most, dtype), np.empty(most, np.int32)
    ds, kept = np.empty(most * most, dtype), np.empty(most * most, dtype)  # [n, n], by row
    turned = np.empty(most, dtype)
    width, width_v = most * (h1 - h0) * q.dim, most * (h1 - h0) * v.dim
    queries, keys = np.empty(width, dtype), np.empty(width, dtype)
    values, grads = np.empty(width_v, dtype), np.empty(width_v, dtype)
    to_queries, to_keys = np.empty(width, dtype), np.empty(width, dtype)
    to_values = np.empty(width_v, dtype)
    plain = x.diagonal and x.term.size == 0 and x.pos.dim == 0 and x.bias.size == 0
    masked = x.mask.size > 0
    for g in range(g0, g1):
        first = groups.ptr[g]
        n = groups.ptr[g + 1] - first
        if n > x.wide:
            continue
        pack(queries, q, groups.row, first, n, h0, h1, x.scale)
        pack(keys, k, groups.row, first, n, h0, h1, one)
        pack(values, v, groups.row, first, n, h0, h1, one)
        pack(grads, to.out, groups.row, first, n, h0, h1, one)
        for h in range(h0, h1):
            query, key = part(queries, h - h0, n * q.dim), part(keys, h - h0, n * q.dim)
            value, grad = part(values, h - h0, n * v.dim), part(grads, h - h0, n * v.dim)
            for i in range(n):
                row = groups.row[first + i]
                dots(s, n, query, i, key, q.dim)
                if not plain:
                    add_terms(s, groups, x, g, i, h)
                level = lse[row * x.heads + h]
                level = dtype.type(np.finfo(dtype).max) if level == -np.inf else level
                total = exp_rows(s, n, level, bits)  # p_ij; 1, up to the rounding of lse
                inverse = one / total if total > 0 else one
                for j in range(n):
                    s[j] *= inverse
                p, score = kept[i * n : (i + 1) * n], ds[i * n : (i + 1) * n]
                dots(score, n, grad, i, value, v.dim)
                if masked:
                    apply_mask(score, groups, x, g, i, h)
                which = groups.parent[g] if x.diagonal else row
                weight, slope = to.weight[which * x.heads + h], to.lse[which * x.heads + h]
                slope = slope / dtype.type(n) if x.diagonal else slope
                delta = dtype.type(0)  # G_i . out_i
                for j in range(n):
                    delta += s[j] * score[j]
                for j in range(n):
                    score[j] = s[j] * (weight * (score[j] - delta) + slope)
                    p[j] = weight * s[j]
                if masked:
                    apply_mask(p, groups, x, g, i, h)
            to_query, to_key = part(to_queries, h - h0, n * q.dim), part(to_keys, h - h0, n * q.dim)
            to_value = part(to_values, h - h0, n * v.dim)
            for i in range(n):
                combine(part(to_query, i, q.dim), ds[i * n : (i + 1) * n], n, key, q.dim)
                for j in range(n):
                    turned[j] = ds[j * n + i]
                combine(part(to_key, i, q.dim), turned, n, query, q.dim)
                for j in range(n):
                    turned[j] = kept[j * n + i]
                combine(part(to_value, i, v.dim), turned, n, grad, v.dim)
            if to.term.size > 0 or to.pos.size > 0 or to.bias.size > 0:
                side_gradients(ds, n, groups, x, g, h, to)
        unpack(to.q, to_queries, groups, g, h0, h1, to.mean_q, x.scale)
        unpack(to.k, to_keys, groups, g, h0, h1, to.mean_k, one)
        unpack(to.v, to_values, groups, g, h0, h1, to.mean_v, one)
