"""Logits of any size, many gradients at once, and what refuses to be transformed."""

from __future__ import annotations

import pytest
import torch

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import HSAConv
from hsa_geo.ops import attention_matrix, hsa_attention, tree_energy
from hsa_geo.ops.reference import reference_attention
from hsa_geo.testing import assert_row_stochastic, random_tree

BACKENDS = ["block", "edge"] + (["numba"] if HAS_NUMBA else [])
TREES = {
    "flat": [2, 2, -1],
    "two levels": [4, 4, 5, 5, 6, 6, -1],
    "mixed": [5, 5, 5, 6, 6, 7, 7, -1],
    "wide": [*[300] * 300, -1],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("shape", TREES)
def test_equal_logits_of_any_size_leave_rows_that_sum_to_one(shape, size, backend):
    tree = SignalTree.from_parents(TREES[shape])
    n = tree.num_leaves
    q = torch.full((n, 1, 1), size**0.5)
    v = torch.ones(n, 1, 1, requires_grad=True)
    out = hsa_attention(q, q, v, tree, backend=backend)
    assert torch.allclose(out, torch.ones_like(out), atol=1e-5)
    # Columns of the matrix sum to n in all, which is what the gradient of the sum adds up to.
    out.sum().backward()
    assert v.grad.sum().item() == pytest.approx(n, rel=1e-5)
    if backend != "numba" and n < 50:
        assert_row_stochastic(attention_matrix(q, q, tree, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(4))
def test_large_random_logits(seed, backend):
    torch.manual_seed(seed)
    tree = random_tree(seed)
    n = tree.num_leaves
    q, k = 100 * torch.randn(2, n, 2, 4)
    v = torch.randn(n, 2, 3)
    out = hsa_attention(q, k, torch.ones_like(v), tree, backend=backend)
    assert torch.allclose(out, torch.ones_like(out), atol=1e-5)
    expected = reference_attention(q.double(), k.double(), v.double(), tree)
    actual = hsa_attention(q, k, v, tree, backend=backend)
    assert torch.allclose(actual.double(), expected, atol=0.02)  # scores have an error of 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_many_gradients_at_once(backend, energy):
    tree = SignalTree.from_parents(TREES["mixed"])
    q = torch.randn(5, 2, 3, dtype=torch.float64)

    def attend(q):
        return hsa_attention(q, q.flip(0), q, tree, backend=backend, energy=energy)

    jacobian = torch.autograd.functional.jacobian
    at_once, one_by_one = jacobian(attend, q, vectorize=True), jacobian(attend, q)
    assert torch.allclose(at_once, one_by_one, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_transforms_are_refused_and_leave_the_plan_whole(backend):
    tree = SignalTree.from_parents(TREES["two levels"])
    q = torch.randn(4, 2, 3)
    conv, x = HSAConv(4, 4, backend=backend), torch.randn(4, 4)
    parameters = dict(conv.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(conv, parameters, (x, tree)).sum()

    for run in (
        lambda: torch.func.grad(lambda q: hsa_attention(q, q, q, tree, backend=backend).sum())(q),
        lambda: torch.func.vmap(lambda q: hsa_attention(q, q, q, tree))(torch.stack([q, q])),
        lambda: torch.func.grad(loss)(parameters),
    ):
        with pytest.raises(UnsupportedError, match=r"torch\.autograd\.grad"):
            run()
    assert hsa_attention(q, q, q, tree, backend=backend).isfinite().all()
    assert loss(parameters).isfinite()


def test_what_is_no_input_is_named():
    tree = SignalTree.from_parents(TREES["flat"])
    q = torch.randn(2, 1, 2)
    with pytest.raises(ShapeError, match="v is a NoneType"):
        hsa_attention(q, q, None, tree)
    with pytest.raises(UnsupportedError, match="dropout="):
        tree_energy(q, q, tree, dropout=torch.tensor([0.0, 0.5]))
    with pytest.raises(UnsupportedError, match="dropout="):
        tree_energy(q, q, tree, dropout=0.5)
    assert tree_energy(q, q, tree, dropout=0.0).isfinite().all()
    with pytest.raises(ShapeError, match="layout"):
        hsa_attention(q.to_sparse(), q, q, tree)
    with pytest.raises(ShapeError, match="indices"):
        tree.plan.to(torch.float32)
