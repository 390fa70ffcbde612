"""How kernels are compiled: once for a dtype, whatever the strides; infinities and nan count."""

from __future__ import annotations

import os
from importlib import import_module

import pytest
import torch

from hsa_geo._optional import HAS_NUMBA

if os.environ.get("HSA_GEO_REQUIRE_NUMBA") != "1":
    pytest.importorskip("numba")

import numpy as np

from hsa_geo.data import SignalTree
from hsa_geo.ops import hsa_attention, tree_energy
from hsa_geo.ops.compiled.jit import jit
from hsa_geo.testing import random_qkv

KERNELS = ("groups", "leaves", "reach", "recursion", "vectors")


def test_numba_is_there_where_it_must_be():
    """With HSA_GEO_REQUIRE_NUMBA=1 its absence is a failure and no skip."""
    assert HAS_NUMBA
    import numba

    assert numba.__version__


def compiled_versions() -> dict[str, int]:
    """Number of versions of every compiled function."""
    versions = {}
    for name in KERNELS:
        module = import_module(f"hsa_geo.ops.compiled.{name}")
        for key, value in vars(module).items():
            if hasattr(value, "signatures"):
                versions[f"{name}.{key}"] = len(value.signatures)
    return versions


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_kernel_is_compiled_anew_for_other_strides(dtype, tie):
    """Compiling takes seconds: a caller's layout must never cause it."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 7, 7, 7, -1])
    n, h, d = tree.num_leaves, 2, 4
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, h, d, dtype=dtype))

    def call(q, k, v, grad, grad_phi, **options):
        options |= {"backend": "numba", "tie": tie}
        hsa_attention(q, k, v, tree, **options).backward(grad)
        tree_energy(q, k, tree, **options).backward(grad_phi)

    m, pairs = tree.plan.num_nodes, tree.plan.num_pairs
    pos, bias = torch.randn(m, h, 3, dtype=dtype), torch.randn(pairs, h, dtype=dtype)
    every = {"pos": pos, "bias": bias}
    call(q, k, v, torch.randn(n, h, d, dtype=dtype), torch.randn(1, h, dtype=dtype))
    before = compiled_versions()
    assert set(before.values()) - {0}

    one, row = torch.ones((), dtype=dtype), torch.ones(n, dtype=dtype)
    for grad, grad_phi in (
        (one.expand(n, h, d), one.expand(1, h)),
        (row[:, None, None].expand(n, h, d), torch.ones(h, 1, dtype=dtype).t()),
        (
            torch.ones(d, h, n, dtype=dtype).permute(2, 1, 0),
            torch.ones(1, 2 * h, dtype=dtype)[:, ::2],
        ),
    ):
        call(q, k, v, grad, grad_phi)
        call(*(t.transpose(0, 1).contiguous().transpose(0, 1) for t in (q, k, v)), grad, grad_phi)
        call(*(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)), grad, grad_phi)
        call(q, k, v, grad, grad_phi, **every, energy="l2")
        wide = torch.randn(m, 3, 1, dtype=dtype).transpose(1, 2), bias.t().contiguous().t()
        call(q, k, v, grad, grad_phi, pos=wide[0], bias=wide[1])
        call(q, k, v, grad, grad_phi, bias=bias[:, :1].expand(pairs, h), scale=2)
    assert compiled_versions() == before


def test_infinities_and_nan_mean_what_they_say():
    """Reordered sums are allowed, but no assumption that every number is finite."""

    @jit
    def probe(x):
        top = x[0]
        for value in x:
            top = max(top, value)
        total = x[0] - x[0]
        for value in x:
            total += value
        return top == -np.inf, total != total, x[1] - x[1]

    inf, nan = np.inf, np.nan
    hidden, lost, difference = probe(np.array([-inf, -inf, -inf]))
    assert (hidden, lost) == (True, True)
    assert np.isnan(difference)
    assert probe(np.array([1.0, 2.0, nan]))[1]
    assert probe(np.array([1.0, 2.0, 3.0])) == (False, False, 0.0)


def test_division_by_zero_is_that_of_arrays():
    @jit
    def divide(a, b):
        return a / b

    assert divide(1.0, 0.0) == np.inf
    assert np.isnan(divide(0.0, 0.0))
