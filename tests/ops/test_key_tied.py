"""Key-tied attention against its oracle, the flat scores and what must hold of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import BACKENDS, answer, assert_close, chain, comb, draw_case, error
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Batch

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data import SignalTree
from hsa_geo.data import reach as reach_module
from hsa_geo.ops import attention_matrix, attention_weights, hsa_attention, tree_energy
from hsa_geo.ops.reference import (
    flat_scores,
    reference_attention,
    reference_energy,
    reference_matrix,
)
from hsa_geo.testing import (
    SHAPES,
    assert_key_tied,
    assert_kl_optimal,
    assert_row_stochastic,
    assert_sibling_order_invariant,
    kl_to_flat,
    random_pos,
    random_qkv,
    random_tree,
    trees,
)

SEEDS = range(140)  # 20 trees of each of the seven shapes
ENERGIES = ("dot", "l2")

backends = pytest.mark.parametrize("backend", BACKENDS)
energies = pytest.mark.parametrize("energy", ENERGIES)
shapes = pytest.mark.parametrize("shape", SHAPES)


# The oracle itself ################################################################################


@energies
@pytest.mark.parametrize("seed", range(14))
def test_no_key_tied_matrix_is_closer_to_flat_attention(seed, energy):
    """Brute force finds the same matrix, and its divergence is N phi(R) + flat log-sum-exps."""
    tree = random_tree(seed, max_leaves=7, shape=SHAPES[seed % len(SHAPES)])
    q, k, _ = random_qkv(tree, 2, 3, seed=seed)
    options = {"energy": energy, "pos": random_pos(tree, 2, seed=seed)}
    theta = reference_matrix(q, k, tree, tie="key", **options)
    scores = flat_scores(q, k, tree, **options)
    assert_kl_optimal(theta, scores, tree, tie="key")
    phi = reference_energy(q, k, tree, tie="key", **options)[0]
    bound = tree.num_leaves * phi + scores.logsumexp(-1).sum(-1)
    torch.testing.assert_close(kl_to_flat(theta, scores), bound, rtol=1e-10, atol=1e-10)


@energies
@pytest.mark.parametrize("seed", range(14))
def test_it_is_at_least_as_close_as_block_tied_attention(seed, energy):
    tree = random_tree(seed, max_leaves=14, shape=SHAPES[seed % len(SHAPES)])
    q, k, _ = random_qkv(tree, 2, 3, seed=seed)
    scores = flat_scores(q, k, tree, energy=energy)
    key, block = (
        kl_to_flat(reference_matrix(q, k, tree, energy=energy, tie=tie), scores)
        for tie in ("key", "block")
    )
    assert (key <= block + 1e-12).all()
    assert (
        reference_energy(q, k, tree, energy=energy, tie="key")
        <= reference_energy(q, k, tree, energy=energy) + 1e-12
    ).all()


# Backends #########################################################################################


@pytest.mark.parametrize("seed", SEEDS)
def test_agrees_with_the_oracle(seed):
    """Output, Theta, phi and the gradients of q, k, v, pos and bias, of every backend."""
    case = draw_case(seed, tie="key")
    expected = answer(case, None)
    rounded = case.to(torch.float32)
    expected_rounded = answer(rounded.to(torch.float64), None)
    for backend in BACKENDS:
        assert_close(answer(case, backend), expected, 1e-10)
        assert_close(answer(rounded, backend), expected_rounded, 1e-4)


@given(trees(max_nodes=14), st.sampled_from(ENERGIES), st.sampled_from([0, 1, 2]))
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_oracle_on_hypothesis_trees(tree, energy, pos):
    q, k, v = random_qkv(tree)
    options = {"energy": energy, "pos": random_pos(tree, pos) if pos else None, "tie": "key"}
    expected = reference_attention(q, k, v, tree, **options)
    theta, phi = reference_matrix(q, k, tree, **options), reference_energy(q, k, tree, **options)
    assert error(attention_matrix(q, k, tree, **options), theta) < 1e-10
    for backend in BACKENDS:
        options["backend"] = backend
        assert error(hsa_attention(q, k, v, tree, **options), expected) < 1e-10
        assert error(tree_energy(q, k, tree, **options), phi) < 1e-10


@backends
@shapes
def test_a_forest_equals_its_trees(backend, shape):
    forest = [random_tree(seed, max_leaves=12, shape=shape) for seed in range(5)]

    batch = Batch.from_data_list(forest)
    parts = [random_qkv(tree, 2, 3, seed=i) for i, tree in enumerate(forest)]
    whole = [torch.cat(part) for part in zip(*parts)]
    out = hsa_attention(*whole, batch, tie="key", backend=backend)
    single = [
        hsa_attention(*part, tree, tie="key", backend=backend) for part, tree in zip(parts, forest)
    ]
    torch.testing.assert_close(out, torch.cat(single), rtol=1e-12, atol=1e-12)


@backends
def test_depth_one_is_softmax_attention(backend):
    tree = SignalTree.from_parents([-1] + [0] * 9)
    q, k, v = random_qkv(tree, 2, 4)
    out = hsa_attention(q, k, v, tree, tie="key", backend=backend)
    flat = scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v))).transpose(0, 1)
    torch.testing.assert_close(out, flat, rtol=1e-12, atol=1e-12)


@energies
@shapes
def test_theta_is_key_tied_and_stochastic(energy, shape):
    tree = random_tree(3, max_leaves=20, shape=shape)
    q, k, _ = random_qkv(tree, 2, 3)
    theta = attention_matrix(q, k, tree, tie="key", energy=energy)
    assert_row_stochastic(theta)
    assert_key_tied(theta, tree)


def test_theta_differs_between_the_leaves_of_a_block():
    """Block tying would give both leaves one weight."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    q, k, _ = random_qkv(tree, 1, 3)
    theta = attention_matrix(q, k, tree, tie="key")
    assert abs(float(theta[0, 0, 2] - theta[0, 1, 2])) > 1e-3
    assert theta[0, 0, 2] == theta[0, 0, 3]


@shapes
def test_the_order_of_siblings_does_not_matter(shape):
    tree = random_tree(5, max_leaves=15, shape=shape)
    tree.q, tree.k, tree.v = random_qkv(tree, 2, 3)
    assert_sibling_order_invariant(
        lambda t: hsa_attention(t.q, t.k, t.v, t, tie="key", backend="block"), tree
    )


@backends
@pytest.mark.parametrize("parents", [[-1], chain(5), comb(30), [-1, 0, 0, 1, 3, 3]])
def test_odd_trees(backend, parents):
    tree = SignalTree.from_parents(parents)
    q, k, v = random_qkv(tree, 2, 3)
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    out = hsa_attention(q, k, v, tree, tie="key", backend=backend)
    expected = reference_attention(q, k, v, tree, tie="key")
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), (q, k, v), allow_unused=True)
    wanted = torch.autograd.grad((expected * weight).sum(), (q, k, v), allow_unused=True)
    assert error(out, expected) < 1e-12
    for grad, right in zip(grads, wanted):
        zero = torch.zeros_like(q)
        assert error(zero if grad is None else grad, zero if right is None else right) < 1e-12


@backends
def test_a_forest_of_single_leaves(backend):
    forest = Batch.from_data_list([SignalTree.from_parents([-1])] * 3).plan
    q = torch.randn(3, 2, 3)
    torch.testing.assert_close(hsa_attention(q, q, q, forest, tie="key", backend=backend), q)


@pytest.mark.parametrize("threads", [2, 3])
def test_many_threads_give_the_same_bits(use_threads, threads):
    """A wide group in several pieces, heads in several threads; forward and backward."""
    if not HAS_NUMBA:
        pytest.skip("numba is not installed")
    tree = SignalTree.from_parents([-1, 0, 0, 0, *[1] * 200, *[2] * 70, *[3] * 3])
    inputs = [t.requires_grad_() for t in random_qkv(tree, 5, 16, dtype=torch.float32)]

    def call():
        out = hsa_attention(*inputs, tree, tie="key", backend="numba")
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    use_threads(1)
    call()  # compiles
    expected = call()
    use_threads(threads)
    for found, right in zip(call(), expected):
        assert torch.equal(found, right)
    for found, right in zip(call(), _by_blocks(inputs, tree)):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def _by_blocks(inputs, tree):
    out = hsa_attention(*inputs, tree, tie="key", backend="block")
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


@backends
@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("name", ["q", "k", "v", "bias", "pos"])
@pytest.mark.parametrize("parents", [[4, 4, 5, 5, 6, 6, -1], [-1]])
def test_second_derivatives_of_one_input_alone(backend, tie, name, parents):
    tree = SignalTree.from_parents(parents)
    q, k, v = random_qkv(tree, 2, 3)
    given = {"q": q, "k": k, "v": v, "pos": random_pos(tree, 2)}
    given["bias"] = torch.randn(tree.plan.num_pairs, 2, dtype=q.dtype)
    given[name].requires_grad_()
    out = hsa_attention(**given, tree=tree, tie=tie, backend=backend)
    if not out.requires_grad:  # a leaf alone gives its value, whatever the others are
        assert parents == [-1]
        return
    (first,) = torch.autograd.grad(out.exp().sum(), given[name], create_graph=True)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.square().sum(), given[name], allow_unused=True)
        assert second is None or second.isfinite().all()
    jacobian = torch.autograd.functional.jacobian(
        lambda x: hsa_attention(**given | {name: x}, tree=tree, tie=tie, backend=backend),
        given[name].detach(),
        vectorize=True,
    )
    assert jacobian.isfinite().all()


@backends
@energies
def test_second_derivatives(backend, energy):
    tree = random_tree(8, max_leaves=7)
    inputs = [t.requires_grad_() for t in random_qkv(tree, 1, 2)]

    def call(*qkv):
        return hsa_attention(*qkv, tree, tie="key", backend=backend, energy=energy)

    assert torch.autograd.gradgradcheck(call, inputs)


@backends
def test_hidden_pairs(backend):
    """A bias of -inf hides a pair; what is left of each leaf is itself."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    q, k, v = random_qkv(tree, 2, 3)
    bias = torch.full((6, 1), -torch.inf, dtype=q.dtype)
    out = hsa_attention(q, k, v, tree, tie="key", bias=bias, backend=backend)
    torch.testing.assert_close(out, v)


@backends
def test_leaves_that_count_several_times(backend):
    """A leaf of weight w is w equal leaves."""
    one = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    one.leaf_weight = torch.tensor([1, 3, 2, 1])
    many = SignalTree.from_parents([7, 7, 7, 7, 8, 8, 8, 9, 9, -1])
    q, k, v = random_qkv(one, 2, 3)
    of = torch.tensor([0, 1, 1, 1, 2, 2, 3])
    options = {"tie": "key", "energy": "l2"}
    few = hsa_attention(q, k, v, one, backend=backend, **options)
    all_ = reference_attention(q[of], k[of], v[of], many, **options)
    torch.testing.assert_close(few[of], all_, rtol=1e-12, atol=1e-12)
    phi = tree_energy(q, k, one, backend=backend, **options)
    torch.testing.assert_close(phi, reference_energy(q[of], k[of], many, **options))


@pytest.mark.parametrize("most", [1, 40, 300])
def test_wide_groups_are_split(monkeypatch, most):
    """Blocks of few scores give what one block gives, and their gradients."""
    parents = [-1, 0, 0, *[1] * 30, *[2] * 5]
    tree = SignalTree.from_parents(parents)
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, 2, 3))

    def call(some):
        out = hsa_attention(q, k, v, some, tie="key", backend="block")
        return [out, *torch.autograd.grad(out.square().sum(), (q, k, v))]

    expected = call(tree)
    monkeypatch.setattr(reach_module, "MAX_PAIRS", most)
    other = SignalTree.from_parents(parents)
    assert len(other.plan.reach_blocks) > len(tree.plan.reach_blocks)
    for found, right in zip(call(other), expected):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-12)


def test_weights_are_those_of_leaves_and_what_they_reach():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    q, k, _ = random_qkv(tree, 2, 3)
    weights = attention_weights(q, k, tree, tie="key")
    assert weights.pair_nodes.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3], [1, 5, 0, 5, 3, 4, 2, 4]]
    assert weights.pair.shape == (8, 2)
    theta = weights.to_dense()
    torch.testing.assert_close(theta[:, 0, 2], weights.pair[1])
    torch.testing.assert_close(theta.sum(-1), torch.ones(2, 4, dtype=q.dtype))


@backends
def test_half_precision(backend):
    tree = random_tree(2, max_leaves=30)
    q, k, v = (t.bfloat16() for t in random_qkv(tree, 2, 8))
    out = hsa_attention(q, k, v, tree, tie="key", backend=backend)
    assert out.dtype == torch.bfloat16
    expected = reference_attention(q.double(), k.double(), v.double(), tree, tie="key")
    assert error(out, expected) < 1e-2


@backends
def test_large_scores_do_not_overflow(backend):
    tree = random_tree(4, max_leaves=20)
    q, k, v = (t.float() for t in random_qkv(tree, 1, 4))
    out = hsa_attention(100 * q, 100 * k, v, tree, tie="key", backend=backend)
    expected = reference_attention(100 * q.double(), 100 * k.double(), v.double(), tree, tie="key")
    assert out.isfinite().all()
    assert error(out, expected) < 1e-3


def test_compiled_models_may_use_it():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    q, k, v = random_qkv(tree, 2, 4, dtype=torch.float32)

    def call(q, k, v):
        return hsa_attention(q * 2, k, v, tree, tie="key") + 1

    torch.testing.assert_close(torch.compile(call, backend="eager")(q, k, v), call(q, k, v))
