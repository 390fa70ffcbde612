"""The backward pass by itself; with every option it is compared in test_compiled_attention.py."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

import torch
from call_cases import full_case, make_call
from op_cases import Case, error

from hsa_geo.data import SignalTree
from hsa_geo.ops import hsa_attention
from hsa_geo.ops.compiled import frame
from hsa_geo.ops.compiled.attention import forward
from hsa_geo.ops.compiled.gradient import _local, backward
from hsa_geo.ops.reference import reference_attention
from hsa_geo.testing import random_qkv, random_tree


@pytest.mark.parametrize("seed", range(5))
def test_gradients_are_linear_in_what_they_start_from(seed):
    """Of outputs and energies together, and each alone: one is the sum of the others."""
    call = make_call(full_case(random_tree(seed, shape="mixed")))
    phi, saved = forward(call)
    grad, grad_phi = torch.randn_like(saved.result), torch.randn_like(phi)
    both = backward(call, saved, grad, grad_phi)
    first = backward(call, saved, grad, torch.zeros_like(phi))
    second = backward(call, saved, torch.zeros_like(grad), grad_phi)
    for a, b, c in zip(both, first, second):
        if a is not None:
            assert error(a, b + c) < 1e-12


def test_a_group_that_keeps_hardly_any_weight(monkeypatch):
    """Dividing by c would lose its digits: what is inside is computed anew."""
    monkeypatch.setattr(frame, "WIDE", 2)
    tree = SignalTree.from_parents([4, 4, 4, 5, 5, -1])
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, heads=1, dim=1))
    with torch.no_grad():  # the inner node scores its sibling far above what is inside it
        q[:3], k[:3], k[3] = 1.0, 0.0, 12.0
    call = make_call(Case(tree, {"q": q.detach(), "k": k.detach(), "v": v.detach()}))
    _, saved = forward(call)
    parent = int(frame.Frame(call).leaves.parent[0])
    assert float(saved.scalars[3, parent]) < 1e-4
    assert _local(saved, torch.arange(3), parent) is None
    out = hsa_attention(q, k, v, tree, backend="numba")
    expected = reference_attention(q, k, v, tree)
    assert error(out, expected) < 1e-12
    for a, b in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, expected))):
        assert error(a, b) < 1e-12
