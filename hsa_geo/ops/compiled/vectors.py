"""The inner loops of attention on packed rows: scores, exponentials, weighted sums.

Row i of a packed array ``x`` with rows of ``dim`` elements is ``x[i * dim : (i + 1) * dim]``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hsa_geo.ops.compiled.jit import jit
from hsa_geo.ops.compiled.layout import Array

__all__ = ["combine", "dots", "exp_rows"]


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
def dots(s: Array, n: int, x: Array, i: int, y: Array, dim: int) -> None:
    """``s[j] = x_i . y_j`` for packed rows, four at a time."""
    j, at, mine, step = 0, np.uint64(0), np.uint64(i * dim), np.uint64(dim)
    while j + 4 <= n:
        s0 = s1 = s2 = s3 = x.dtype.type(0)
        for d in range(dim):
            e = np.uint64(d)
            a = x[mine + e]
            s0 += a * y[at + e]
            s1 += a * y[at + step + e]
            s2 += a * y[at + step + step + e]
            s3 += a * y[at + step + step + step + e]
        s[j], s[j + 1], s[j + 2], s[j + 3] = s0, s1, s2, s3
        at += np.uint64(4 * dim)
        j += 4
    while j < n:
        s0 = x.dtype.type(0)
        for d in range(dim):
            s0 += x[mine + np.uint64(d)] * y[at + np.uint64(d)]
        s[j] = s0
        at += step
        j += 1


@jit
def combine(out: Array, w: Array, n: int, y: Array, dim: int) -> None:
    """``out = sum_j w[j] y_j`` for packed rows, four at a time."""
    for d in range(dim):
        out[d] = 0
    j, at, step = 0, np.uint64(0), np.uint64(dim)
    while j + 4 <= n:
        w0, w1, w2, w3 = w[j], w[j + 1], w[j + 2], w[j + 3]
        for d in range(dim):
            e = at + np.uint64(d)
            out[d] += (
                w0 * y[e]
                + w1 * y[e + step]
                + w2 * y[e + step + step]
                + (w3 * y[e + step + step + step])
            )
        at += np.uint64(4 * dim)
        j += 4
    while j < n:
        w0 = w[j]
        for d in range(dim):
            out[d] += w0 * y[at + np.uint64(d)]
        at += step
        j += 1
