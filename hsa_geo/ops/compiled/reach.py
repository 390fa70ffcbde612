"""Key-tied attention, forward and backward, compiled by numba.

The leaves of one group reach the same slots (:class:`~hsa_geo.data.reach.ReachLists`), whose keys
and values are packed once for all of them.  For leaf i, entry j of its list, and one head::

    t_ij = scale q_i . kbar_j + term_j + e_A . e_j + bias

and in the leaf's own place, where kbar is its own key, ``t_ii = scale q_i . k_i + term_i + own_i``;
    p_ij = exp(t_ij - L_i),  L_i = log sum_j exp(t_ij),  out_i = sum_j m_ij p_ij vbar_j

with the dropout mask m.  Backward, with G_i the gradient of out_i and ``dL_i`` that of L_i::

    dt_ij = p_ij (m_ij G_i . vbar_j - G_i . out_i + dL_i)

Backward touches one head at a time, since a slot hears from the leaves of many groups, so results
do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hsa_geo.ops.compiled.jit import jit
from hsa_geo.ops.compiled.layout import Array, Rows
from hsa_geo.ops.compiled.vectors import combine, dots, exp_rows

#: Numbers of the keys of several heads that are packed together.
_TOGETHER = 1 << 18

__all__ = ["Lists", "ReachAdjoints", "ReachScores", "reach_backward", "reach_forward"]


class Lists(NamedTuple):
    """:class:`~hsa_geo.data.reach.ReachLists` as arrays, with the leaves of each list.

    Attributes:
        ptr: ``[L + 1]``, entries of each list.
        slot, branch, public: ``[T]``, of each entry.
        beside: ``[L]``, number of members of the list's own group, which come first.
        pair: ``[L]``, public place of the own group's first sibling pair.
        row: Rows of the leaves, list by list.
        part: ``[W + 1]``, leaves of each piece of work.
        part_list: ``[W]``, its list.
        rank, row_slot, row_ptr: ``[N]``, of each leaf by row: its place in its list, its slot, its
            first pair.
    """

    ptr: Array
    slot: Array
    branch: Array
    public: Array
    beside: Array
    pair: Array
    row: Array
    part: Array
    part_list: Array
    rank: Array
    row_slot: Array
    row_ptr: Array


class ReachScores(NamedTuple):
    """What the scores have beside q . k; empty arrays where there is nothing.

    Attributes:
        scale: Factor of q . k.
        own: ``[N, H]``, added to the scores of the leaves with themselves: |e|^2 of positions.
        term: ``[S, H]``, added to every score of a slot.
        pos: Position embeddings by slot.
        bias: ``[pairs, H or 1]`` by public pair.
        bias_heads: 1 or H.
        reach: ``[Q, H or 1]``, bias of each leaf and what it reaches.
        reach_heads: 1 or H.
        mask: ``[Q, H]``, factor of the weights.
        own_mask: ``[N, H]``, factor of the weight of a leaf on itself.
        heads: Number of heads H.
    """

    scale: Any
    own: Array
    term: Array
    pos: Rows
    bias: Array
    bias_heads: int
    reach: Array
    reach_heads: int
    mask: Array
    own_mask: Array
    heads: int


class ReachAdjoints(NamedTuple):
    """What the backward pass starts from and writes (all but ``q`` and ``own``: adds to).

    Attributes:
        out: Gradient of the outputs, by row.
        lse: ``[N, H]``, gradient of the log-sum-exps.
        q: ``[N, H, D]``; own: ``[N, H]`` or empty; key: ``[S, H, D]``; value: ``[S, H, Dv]``;
            term: ``[S, H]``; pos: ``[S, H, P]`` or empty; bias: ``[pairs, H]`` or empty;
            reach: ``[Q, H]`` or empty.
    """

    out: Rows
    lse: Array
    q: Rows
    own: Array
    key: Array
    value: Array
    term: Array
    pos: Array
    bias: Array
    reach: Array


@jit
def load(x: Array, to: int, rows: Rows, i: int, h: int, factor: Any) -> None:
    """``x[to:to+dim] = factor * rows[i, h]``."""
    at = i * rows.row + h * rows.head
    for d in range(rows.dim):
        x[to + d] = factor * rows.data[at + d]


@jit
def load_list(x: Array, rows: Rows, lists: Lists, g: int, h0: int, h1: int) -> None:
    """``x[h - h0, j] = rows[slot_j, h]`` for all entries j of a list and heads ``h0:h1``.

    The heads of a slot lie side by side, so reading several together is faster than one by one.
    """
    first = lists.ptr[g]
    n = lists.ptr[g + 1] - first
    for j in range(n):
        at, to = lists.slot[first + j] * rows.row, j * rows.dim
        for h in range(h0, h1):
            here = at + h * rows.head
            for d in range(rows.dim):
                x[to + d] = rows.data[here + d]
            to += n * rows.dim


@jit
def pos_dot(pos: Rows, a: int, b: int, h: int) -> Any:
    """``e_a . e_b`` of two slots."""
    at, to = a * pos.row + h * pos.head, b * pos.row + h * pos.head
    total = pos.data.dtype.type(0)
    for d in range(pos.dim):
        total += pos.data[at + d] * pos.data[to + d]
    return total


@jit
def list_terms(term: Array, lists: Lists, x: ReachScores, g: int, h: int) -> None:
    """What is added to the scores of each entry, whatever the leaf."""
    first = lists.ptr[g]
    for j in range(lists.ptr[g + 1] - first):
        slot, branch = lists.slot[first + j], lists.branch[first + j]
        term[j] = x.term[slot * x.heads + h]
        if branch >= 0:
            if x.pos.dim > 0:
                term[j] += pos_dot(x.pos, branch, slot, h)
            if x.bias.size > 0:
                at = lists.public[first + j] * x.bias_heads
                term[j] += x.bias[at + (h if x.bias_heads > 1 else 0)]


@jit
def leaf_terms(
    s: Array, term: Array, lists: Lists, x: ReachScores, g: int, row: int, h: int
) -> None:
    """Add to the scores of one leaf what they have beside q . k."""
    first, rank, beside = lists.ptr[g], lists.rank[row], lists.beside[g]
    for j in range(lists.ptr[g + 1] - first):
        s[j] += term[j]
    itself = s[rank]
    if x.own.size > 0:
        itself += x.own[row * x.heads + h]
    if x.pos.dim > 0:
        for j in range(beside):
            s[j] += pos_dot(x.pos, lists.row_slot[row], lists.slot[first + j], h)
    if x.bias.size > 0:
        at = (lists.pair[g] + rank * (beside - 1)) * x.bias_heads
        at += h if x.bias_heads > 1 else 0
        for j in range(beside):
            if j != rank:
                s[j] += x.bias[at]
                at += x.bias_heads
    if x.reach.size > 0:
        at = lists.row_ptr[row] * x.reach_heads + (h if x.reach_heads > 1 else 0)
        for j in range(lists.ptr[g + 1] - first):
            if j != rank:
                s[j] += x.reach[at]
                at += x.reach_heads
    s[rank] = itself


@jit
def leaf_mask(w: Array, n: int, lists: Lists, x: ReachScores, row: int, h: int) -> None:
    """Multiply the weights of one leaf by the dropout mask."""
    rank = lists.rank[row]
    at = lists.row_ptr[row] * x.heads + h
    for j in range(n):
        if j != rank:
            w[j] *= x.mask[at]
            at += x.heads
        else:
            w[j] *= x.own_mask[row * x.heads + h]


@jit
def longest(lists: Lists, w0: int, w1: int) -> int:
    """Entries of the longest list of some pieces of work."""
    most = 1
    for w in range(w0, w1):
        g = lists.part_list[w]
        most = max(most, lists.ptr[g + 1] - lists.ptr[g])
    return most


@jit
def reach_forward(
    q: Rows,
    key: Rows,
    value: Rows,
    lists: Lists,
    x: ReachScores,
    w0: int,
    w1: int,
    out: Rows,
    lse: Array,
) -> None:
    """Output and log-sum-exp ``[N, H]`` of the leaves of some pieces of work."""
    dtype = q.data.dtype
    one = dtype.type(1)
    most = longest(lists, w0, w1)
    # As many heads at once as fit a cache; of a long list one by one.
    together = min(x.heads, max(1, _TOGETHER // (most * max(q.dim, value.dim, 1))))
    every_key = np.empty(most * together * q.dim, dtype)
    every_value = np.empty(most * together * value.dim, dtype)
    s, term, bits = np.empty(most, dtype), np.empty(most, dtype), np.empty(most, np.int32)
    query, result = np.empty(q.dim, dtype), np.empty(value.dim, dtype)
    for w in range(w0, w1):
        g = lists.part_list[w]
        first = lists.ptr[g]
        n = lists.ptr[g + 1] - first
        for h in range(x.heads):
            at = h % together
            if at == 0:
                h1 = min(h + together, x.heads)
                load_list(every_key, key, lists, g, h, h1)
                load_list(every_value, value, lists, g, h, h1)
            keys = every_key[at * n * q.dim : (at + 1) * n * q.dim]
            values = every_value[at * n * value.dim : (at + 1) * n * value.dim]
            list_terms(term, lists, x, g, h)
            for m in range(lists.part[w], lists.part[w + 1]):
                row = lists.row[m]
                load(query, 0, q, row, h, x.scale)
                dots(s, n, query, 0, keys, q.dim)
                leaf_terms(s, term, lists, x, g, row, h)
                top = s[0]
                for j in range(n):
                    top = max(top, s[j])
                total = exp_rows(s, n, top, bits)
                lse[row * x.heads + h] = top + math.log(total)
                if x.mask.size > 0 or x.own_mask.size > 0:
                    leaf_mask(s, n, lists, x, row, h)
                inverse = one / total
                for j in range(n):
                    s[j] *= inverse
                combine(result, s, n, values, value.dim)
                at = row * out.row + h * out.head
                for d in range(value.dim):
                    out.data[at + d] = result[d]


@jit
def spread(
    ds: Array, lists: Lists, x: ReachScores, g: int, row: int, h: int, pos: Array, bias: Array
) -> None:
    """Gradients of positions and biases within the own group, of one leaf's scores."""
    first, rank, beside = lists.ptr[g], lists.rank[row], lists.beside[g]
    dim = x.pos.dim
    if pos.size > 0:
        mine = lists.row_slot[row]
        for j in range(beside):
            other = lists.slot[first + j]
            if j != rank:
                for d in range(dim):
                    to = x.pos.data[other * x.pos.row + h * x.pos.head + d]
                    of = x.pos.data[mine * x.pos.row + h * x.pos.head + d]
                    pos[(mine * x.heads + h) * dim + d] += ds[j] * to
                    pos[(other * x.heads + h) * dim + d] += ds[j] * of
    if bias.size > 0:
        at = (lists.pair[g] + rank * (beside - 1)) * x.heads + h
        for j in range(beside):
            if j != rank:
                bias[at] += ds[j]
                at += x.heads


@jit
def reach_backward(
    q: Rows,
    key: Rows,
    value: Rows,
    lists: Lists,
    x: ReachScores,
    h0: int,
    h1: int,
    lse: Array,
    to: ReachAdjoints,
) -> None:
    """Gradients of everything that the leaves attended with, of heads ``h0:h1``."""
    dtype = q.data.dtype
    one = dtype.type(1)
    dim, dim_v, works = q.dim, value.dim, len(lists.part_list)
    most = longest(lists, 0, works)
    keys, values = np.empty(most * dim, dtype), np.empty(most * dim_v, dtype)
    to_keys, to_values = np.empty(most * dim, dtype), np.empty(most * dim_v, dtype)
    s, term, bits = np.empty(most, dtype), np.empty(most, dtype), np.empty(most, np.int32)
    ds, dterm = np.empty(most, dtype), np.empty(most, dtype)
    query, grad, result = np.empty(dim, dtype), np.empty(dim_v, dtype), np.empty(dim, dtype)
    masked = x.mask.size > 0 or x.own_mask.size > 0
    for w in range(works):
        g = lists.part_list[w]
        first = lists.ptr[g]
        n = lists.ptr[g + 1] - first
        for h in range(h0, h1):
            for j in range(n):
                load(keys, j * dim, key, lists.slot[first + j], h, one)
                load(values, j * dim_v, value, lists.slot[first + j], h, one)
            list_terms(term, lists, x, g, h)
            to_keys[: n * dim] = 0
            to_values[: n * dim_v] = 0
            dterm[:n] = 0
            for m in range(lists.part[w], lists.part[w + 1]):
                row = lists.row[m]
                rank = lists.rank[row]
                load(query, 0, q, row, h, x.scale)
                load(grad, 0, to.out, row, h, one)
                dots(s, n, query, 0, keys, dim)
                leaf_terms(s, term, lists, x, g, row, h)
                total = exp_rows(s, n, lse[row * x.heads + h], bits)
                inverse = one / total  # 1, up to the rounding of lse
                for j in range(n):
                    s[j] *= inverse
                dots(ds, n, grad, 0, values, dim_v)
                if masked:
                    leaf_mask(ds, n, lists, x, row, h)
                shift = to.lse[row * x.heads + h]
                for j in range(n):
                    shift -= s[j] * ds[j]
                for j in range(n):
                    ds[j] = s[j] * (ds[j] + shift)
                if masked:
                    leaf_mask(s, n, lists, x, row, h)
                if to.own.size > 0:
                    to.own[row * x.heads + h] = ds[rank]
                combine(result, ds, n, keys, dim)
                at = row * to.q.row + h * to.q.head
                for d in range(dim):
                    to.q.data[at + d] = x.scale * result[d]
                for j in range(n):
                    dterm[j] += ds[j]
                    a, b = ds[j], s[j]
                    for d in range(dim):
                        to_keys[j * dim + d] += a * query[d]
                    for d in range(dim_v):
                        to_values[j * dim_v + d] += b * grad[d]
                if to.reach.size > 0:
                    at = lists.row_ptr[row] * x.heads + h
                    for j in range(n):
                        if j != rank:
                            to.reach[at] = ds[j]
                            at += x.heads
                if to.pos.size > 0 or to.bias.size > 0:
                    spread(ds, lists, x, g, row, h, to.pos, to.bias)
            for j in range(n):
                slot, branch = lists.slot[first + j], lists.branch[first + j]
                at = slot * x.heads + h
                to.term[at] += dterm[j]
                for d in range(dim):
                    to.key[at * dim + d] += to_keys[j * dim + d]
                for d in range(dim_v):
                    to.value[at * dim_v + d] += to_values[j * dim_v + d]
                if branch >= 0 and to.bias.size > 0:
                    to.bias[lists.public[first + j] * x.heads + h] += dterm[j]
                if branch >= 0 and to.pos.size > 0:
                    size = x.pos.dim
                    here = slot * x.pos.row + h * x.pos.head
                    there = branch * x.pos.row + h * x.pos.head
                    for d in range(size):
                        to.pos[at * size + d] += dterm[j] * x.pos.data[there + d]
                        to.pos[(branch * x.heads + h) * size + d] += dterm[j] * x.pos.data[here + d]
