"""The dynamic program: what its solution holds, and its careful logarithms."""

from __future__ import annotations

import pytest
import torch
from op_cases import BACKENDS, comb, draw_mask, error, inputs_for

from hsa_geo.data import SignalTree
from hsa_geo.ops.attention import attend
from hsa_geo.ops.dynamic import _log_add
from hsa_geo.ops.edge import EdgePasses, sibling_shares
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.reference import reference_attention, reference_energy, reference_matrix
from hsa_geo.testing import SHAPES, random_qkv, random_tree

backends = pytest.mark.parametrize("backend", BACKENDS)
shapes = pytest.mark.parametrize("shape", SHAPES)


@backends
@shapes
def test_what_a_solution_holds(backend, shape):
    tree = random_tree(20, shape=shape)
    plan = tree.plan
    tensors = inputs_for(tree, 2, 3, 4, pos=2, bias=2, seed=1)
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    options = {"pos": tensors["pos"], "bias": tensors["bias"]}
    mask = draw_mask(plan, 2, 0.4, 2)
    solution = attend(q, k, v, tree, mask=mask, backend=backend, **options)
    kids = plan.num_slots - plan.num_trees
    assert solution.out.shape == v.shape
    assert solution.phi.shape == (1, 2)
    assert solution.leave.shape == (kids, 2)
    assert solution.own.shape == (plan.num_leaves, 2)
    theta = reference_matrix(q, k, tree, **options)
    masked = reference_matrix(q, k, tree, mask=mask, **options)
    assert error(solution.own, masked.diagonal(dim1=1, dim2=2).t()) < 1e-12
    assert error(solution.phi, reference_energy(q, k, tree, **options)) < 1e-12
    assert error(solution.out, reference_attention(q, k, v, tree, mask=mask, **options)) < 1e-12
    # leave: what B gives to its siblings, before dropout; shares say to which.
    under = PlainTree.of(tree).under
    shares, _ = sibling_shares(solution.sibling, plan)
    for number in range(0, plan.num_pairs, 5):
        b, c = plan.pair_nodes[:, plan.pairs.public[number]]
        slot = plan.pairs.target[number] - plan.num_trees
        weight = shares[number] * solution.leave[slot] / under[c].sum()
        i, j = under[b].nonzero()[0], under[c].nonzero()[0]
        assert error(weight, theta[:, i, j].squeeze(1)) < 1e-12


@shapes
def test_passes_of_the_callers_own(shape):
    tree = random_tree(21, shape=shape)
    q, k, v = random_qkv(tree)
    own = attend(q, k, v, tree, passes=EdgePasses())
    assert torch.equal(own.out, attend(q, k, v, tree, backend="edge").out)


@backends
def test_without_values(backend):
    tree = random_tree(22, shape="mixed")
    q, k, v = random_qkv(tree)
    with_values, without = (attend(q, k, t, tree, backend=backend) for t in (v, None))
    assert without.out.shape == (tree.num_leaves, 2, 0)
    assert torch.equal(with_values.phi, without.phi)
    assert torch.equal(with_values.leave, without.leave)


@backends
def test_dropout_is_drawn_or_given(backend):
    tree = random_tree(23, shape="mixed")
    q, k, v = random_qkv(tree)
    zero = attend(q, k, v, tree, dropout=1.0, backend=backend)
    assert zero.out.abs().max() == 0
    phi = attend(q, k, v, tree, backend=backend).phi
    assert torch.equal(zero.phi, phi)  # energies know nothing of dropout
    ones = (torch.ones(tree.plan.num_pairs, 2), torch.ones(tree.num_leaves, 2))
    given = attend(q, k, v, tree, mask=ones, dropout=1.0, backend=backend)
    assert error(given.out, attend(q, k, v, tree, backend=backend).out) < 1e-14


@backends
def test_weights_of_deep_leaves_do_not_underflow_too_early(backend):
    """c is a product of 300 factors; the sum of its logarithms is as exact as the oracle."""
    tree = SignalTree.from_parents(comb(300))
    q, k, v = random_qkv(tree)
    own = attend(q * 0.1, k * 0.1, v, tree, backend=backend).own.clamp(min=1e-300).log()
    theta = reference_matrix(q * 0.1, k * 0.1, tree)
    expected = theta.diagonal(dim1=1, dim2=2).t().clamp(min=1e-300).log()
    assert error(own, expected) < 1e-12


def test_log_add():
    a = torch.tensor([0.0, 1e5, -1e5, 3.0, 2.0, -1e30], dtype=torch.float64)
    b = torch.tensor([0.0, -1e5, 1e5, -torch.inf, 2.5, 1.0], dtype=torch.float64)
    assert torch.allclose(_log_add(a, b), torch.logaddexp(a, b))
    a, b = a.requires_grad_(), b.requires_grad_()
    first = torch.autograd.grad(_log_add(a, b).sum(), (a, b), create_graph=True)
    expected = torch.autograd.grad(torch.logaddexp(a, b).sum(), (a, b))
    assert all(torch.allclose(x, y) for x, y in zip(first, expected))
    second = torch.autograd.grad(first[0].sum(), (a, b))
    assert all(g.isfinite().all() for g in second)
    w = first[0].detach()
    assert torch.allclose(second[0], w * (1 - w))
