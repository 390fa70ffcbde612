"""The oracle against numbers worked out by hand, and against the five identities."""

from __future__ import annotations

from math import exp, log
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.reference import (
    flat_scores,
    reference_attention,
    reference_energy,
    reference_matrix,
    reference_phi,
)
from hsa_geo.testing import (
    SHAPES,
    assert_block_tied,
    assert_forest_equals_trees,
    assert_row_stochastic,
    assert_sibling_order_invariant,
    closest_block_tied,
    kl_to_flat,
    random_pos,
    random_qkv,
    random_tree,
    trees,
)

ENERGIES = ("dot", "l2")
energies = pytest.mark.parametrize("energy", ENERGIES)
shapes = pytest.mark.parametrize("shape", SHAPES)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def small() -> SignalTree:
    # R = 4 -> leaf 0, A = 3 -> leaves 1, 2
    return SignalTree.from_parents([4, 3, 3, 4, -1])


def random_bias(tree: SignalTree, heads: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    pairs = PlainTree.of(tree).num_pairs
    return torch.randn(pairs, heads, dtype=torch.float64, generator=generator)


# By hand #########################################################################################


def test_dot_by_hand():
    # scale 1, q = (2, 1, 1), k = (log 3, log 2, log 4), so e^{s_ij} = (9, 4, 16), (3, 2, 4) twice.
    # A:  Z_1 = Z_2 = 2 + 4 = 6, phi(A) = -log 6
    # R:  leaf 0: e^{-phi} = 9; e^{-psi(0->A)} = sqrt(4 * 16) = 8, twice: Z_0 = 9 + 2 * 8 = 25
    #     A: e^{-phi(A)} = 6; e^{-psi(A->0)} = 3: Z_A = 9
    #     phi(R) = -(1/3 log 25 + 2/3 log 9)
    # Theta: row 0: 9/25, 8/25, 8/25; A keeps 6/9, so rows 1, 2: 3/9, 6/9 * 2/6, 6/9 * 4/6
    q, k, v = column(2, 1, 1), column(log(3), log(2), log(4)), column(25, 50, -25)
    tree = small()
    theta = torch.tensor([[[9 / 25, 8 / 25, 8 / 25], [1 / 3, 2 / 9, 4 / 9], [1 / 3, 2 / 9, 4 / 9]]])
    torch.testing.assert_close(reference_matrix(q, k, tree), theta.double())
    phi = reference_phi(q, k, tree).flatten()
    expected = column(-log(9), -log(2), -log(4), -log(6), -(log(25) + 2 * log(9)) / 3)
    torch.testing.assert_close(phi, expected.flatten())
    torch.testing.assert_close(reference_energy(q, k, tree), phi[4:].view(1, 1))
    # 9 + 16 - 8 = 17;  25/3 + 100/9 - 100/9 = 25/3
    out = reference_attention(q, k, v, tree)
    torch.testing.assert_close(out, column(17, 25 / 3, 25 / 3))


def test_l2_by_hand():
    # scale 2, so s = -(q - k)^2; q = (0, 1, 2), k = (1, 0, 0)
    # s_00 = -1, s_11 = -1, s_22 = -4; s_12 = -1, s_21 = -4; s_01 = s_02 = 0; s_10 = 0, s_20 = -1
    # A:  Z_1 = 2 e^-1, Z_2 = 2 e^-4, phi(A) = 2.5 - log 2
    # R:  Z_0 = e^-1 + 2 e^0;  Z_A = 2 e^-2.5 + e^-0.5
    q, k = column(0, 1, 2), column(1, 0, 0)
    phi = reference_phi(q, k, small(), energy="l2", scale=2.0).flatten()
    z_0, z_a = exp(-1) + 2, 2 * exp(-2.5) + exp(-0.5)
    expected = column(1, 1, 4, 2.5 - log(2), -(log(z_0) + 2 * log(z_a)) / 3).flatten()
    torch.testing.assert_close(phi, expected)
    theta = reference_matrix(q, k, small(), energy="l2", scale=2.0)[0]
    away, stay = exp(-0.5) / z_a, exp(-2.5) / z_a
    expected = [[exp(-1) / z_0, 1 / z_0, 1 / z_0], [away, stay, stay], [away, stay, stay]]
    torch.testing.assert_close(theta, torch.tensor(expected, dtype=torch.float64))


def test_siblings_use_the_top_of_a_chain_and_a_leaf_its_own_position():
    # R = 3 -> X = 2 -> leaf 0, and leaf 1; q = k = 0.  e_X = 1, e_0 = 2, e_1 = 3, e_R = 9 unused:
    # s_00 = 2 * 2, s_01 = s_10 = 1 * 3, s_11 = 3 * 3
    tree = SignalTree.from_parents([2, 3, 3, -1])
    zero, pos = column(0, 0), column(2, 3, 1, 9)
    expected = torch.tensor([[[4.0, 3.0], [3.0, 9.0]]], dtype=torch.float64)
    torch.testing.assert_close(flat_scores(zero, zero, tree, pos=pos), expected)
    theta = reference_matrix(zero, zero, tree, pos=pos)
    torch.testing.assert_close(theta, expected.softmax(dim=2))


@energies
def test_a_single_leaf_attends_to_itself(energy):
    tree = SignalTree.from_parents([-1])
    q, k, v = random_qkv(tree)
    pos = torch.full((1, 2, 3), 7.0, dtype=torch.float64)  # a root has no position
    torch.testing.assert_close(reference_attention(q, k, v, tree, pos=pos, energy=energy), v)
    assert reference_matrix(q, k, tree, pos=pos, energy=energy).flatten().tolist() == [1.0, 1.0]
    own = q[0] * k[0] if energy == "dot" else -((q[0] - k[0]) ** 2) / 2  # scale 1 / sqrt(4)
    phi = reference_energy(q, k, tree, pos=pos, energy=energy)
    torch.testing.assert_close(phi[0], -own.sum(dim=1) / 2)


def test_no_tree_at_all():
    tree = SimpleNamespace(
        tree_index=torch.empty(2, 0, dtype=torch.long), tree_level=torch.empty(0, dtype=torch.long)
    )
    q = torch.empty(0, 2, 4)
    assert reference_attention(q, q, torch.empty(0, 2, 3), tree).shape == (0, 2, 3)
    assert reference_matrix(q, q, tree).shape == (2, 0, 0)
    assert reference_energy(q, q, tree).shape == (0, 2)
    assert flat_scores(q, q, tree).shape == (2, 0, 0)


# The definitions on random trees #################################################################


@shapes
@energies
def test_interactions_are_means_of_leaf_scores(shape, energy):
    """phi from the dense s_ij alone: an independent way up, with log Z as a plain sum."""
    for seed in range(4):
        tree = random_tree(seed, max_leaves=12, shape=shape)
        q, k, _ = random_qkv(tree, seed=seed)
        options = {"pos": random_pos(tree), "bias": random_bias(tree), "energy": energy}
        scores = flat_scores(q, k, tree, **options)
        plain = PlainTree.of(tree)
        phi = [-scores[:, i, i] for i in range(len(plain.leaves))]
        for node in range(len(plain.leaves), len(plain.children)):
            total = torch.zeros(2, dtype=torch.float64)
            for b in plain.children[node]:
                z = (-phi[b]).exp()
                for c in plain.children[node]:
                    if c != b:
                        block = scores[:, plain.under[b]][:, :, plain.under[c]]
                        z = z + block.size(2) * block.mean(dim=(1, 2)).exp()
                total = total - plain.under[b].sum() / plain.under[node].sum() * z.log()
            phi.append(total)
        torch.testing.assert_close(reference_phi(q, k, tree, **options), torch.stack(phi))


@shapes
@energies
def test_output_is_theta_times_v(shape, energy):
    for seed in range(4):
        tree = random_tree(seed, max_leaves=16, shape=shape)
        q, k, v = random_qkv(tree, value_dim=3, seed=seed)
        options = {"pos": random_pos(tree), "bias": random_bias(tree), "energy": energy}
        theta = reference_matrix(q, k, tree, **options)
        assert_row_stochastic(theta)
        assert_block_tied(theta, tree)
        out = reference_attention(q, k, v, tree, **options)
        torch.testing.assert_close(out, torch.einsum("hij,jhd->ihd", theta, v))


# The five identities #############################################################################


@energies
@pytest.mark.parametrize("n", [1, 2, 7])
def test_identity_1_depth_one_is_flat_attention(n, energy):
    tree = SignalTree.from_parents([n] * n + [-1], domain=1)
    q, k, v = random_qkv(tree)
    options = {"pos": random_pos(tree), "bias": random_bias(tree), "energy": energy}
    flat = flat_scores(q, k, tree, **options).softmax(dim=2)
    torch.testing.assert_close(reference_matrix(q, k, tree, **options), flat)
    out = reference_attention(q, k, v, tree, **options)
    torch.testing.assert_close(out, torch.einsum("hij,jhd->ihd", flat, v))


def test_identity_1_against_scaled_dot_product_attention():
    tree = SignalTree.from_parents([5] * 5 + [-1])
    q, k, v = random_qkv(tree)
    flat = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    )
    torch.testing.assert_close(reference_attention(q, k, v, tree), flat.transpose(0, 1))


@shapes
def test_identity_2_gradient_of_the_l2_energy(shape):
    for seed in range(4):
        tree = random_tree(seed, max_leaves=16, shape=shape)
        n = tree.num_nodes
        q, k, _ = random_qkv(tree, seed=seed, requires_grad=True)
        options = {"pos": random_pos(tree), "bias": random_bias(tree), "energy": "l2"}
        energy = reference_energy(q, k, tree, **options).sum()
        (grad,) = torch.autograd.grad(energy, q)
        theta = reference_matrix(q, k, tree, **options)
        expected = q - torch.einsum("hij,jhd->ihd", theta, k)
        torch.testing.assert_close(q.size(2) ** 0.5 * n * grad, expected)


@shapes
@energies
def test_identity_3_theta_is_closest_to_flat_attention(shape, energy):
    """Theorem 3.2, by brute force, and the value of the minimum."""
    for seed in range(6):
        tree = random_tree(seed, max_leaves=10, shape=shape)
        q, k, _ = random_qkv(tree, seed=seed)
        options = {"pos": random_pos(tree), "bias": random_bias(tree), "energy": energy}
        theta = reference_matrix(q, k, tree, **options)
        scores = flat_scores(q, k, tree, **options)
        best = closest_block_tied(scores, tree)
        torch.testing.assert_close(theta, best, rtol=1e-8, atol=1e-9)
        kl = kl_to_flat(theta, scores)
        torch.testing.assert_close(kl, kl_to_flat(best, scores), rtol=1e-10, atol=1e-10)
        phi = reference_energy(q, k, tree, **options)[0]
        value = tree.num_nodes * phi + scores.logsumexp(dim=2).sum(dim=1)
        torch.testing.assert_close(kl, value, rtol=1e-10, atol=1e-10)


@energies
@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree=trees(max_nodes=14))
def test_identity_3_value_on_hypothesis_trees(tree, energy):
    q, k, _ = random_qkv(tree)
    theta = reference_matrix(q, k, tree, energy=energy)
    scores = flat_scores(q, k, tree, energy=energy)
    phi = reference_energy(q, k, tree, energy=energy)[0]
    value = tree.num_nodes * phi + scores.logsumexp(dim=2).sum(dim=1)
    torch.testing.assert_close(kl_to_flat(theta, scores), value, rtol=1e-10, atol=1e-10)


@shapes
@energies
def test_identity_4_a_single_child_changes_nothing(shape, energy):
    for seed in range(6):
        tree = random_tree(seed, max_leaves=12, shape=shape)
        q, k, v = random_qkv(tree, seed=seed)
        pos = random_pos(tree)
        parents = torch.full((len(tree.tree_level),), -1)
        parents[tree.tree_index[1]] = tree.tree_index[0]
        node = seed % len(parents)
        above = torch.cat([parents, parents[node : node + 1]])
        above[node] = len(parents)
        longer, order = SignalTree.from_parents(above, return_order=True)
        # the new node takes the position of the one below, whose own counts only if it is a leaf
        pos_above = torch.cat([pos, pos[node : node + 1]])
        if node >= tree.num_nodes:
            pos_above[node] = 5.0
        for here, there in ((None, None), (pos, pos_above[order])):
            out = reference_attention(q, k, v, tree, pos=here, energy=energy)
            same = reference_attention(q, k, v, longer, pos=there, energy=energy)
            torch.testing.assert_close(same, out)
            phi = reference_energy(q, k, tree, pos=here, energy=energy)
            same = reference_energy(q, k, longer, pos=there, energy=energy)
            torch.testing.assert_close(same, phi)


@shapes
@energies
def test_identity_4_sibling_order_does_not_matter(shape, energy):
    for seed in range(4):
        tree = random_tree(seed, max_leaves=16, shape=shape)
        tree.q, tree.k, tree.v = random_qkv(tree, seed=seed)
        assert_sibling_order_invariant(
            lambda tree: reference_attention(tree.q, tree.k, tree.v, tree, energy=energy), tree
        )


@energies
def test_identity_5_a_forest_equals_its_trees(energy):
    forest = []
    for seed, shape in enumerate(SHAPES):
        tree = random_tree(seed, max_leaves=8, shape=shape)
        tree.q, tree.k, tree.v = random_qkv(tree, seed=seed)
        tree.embedding = random_pos(tree, seed=seed)
        tree.beta = random_bias(tree, seed=seed)
        forest.append(tree)

    def inputs(tree):
        return {"pos": tree.embedding, "bias": tree.beta, "energy": energy}

    assert_forest_equals_trees(
        lambda tree: reference_attention(tree.q, tree.k, tree.v, tree, **inputs(tree)), forest
    )
    assert_forest_equals_trees(
        lambda tree: reference_energy(tree.q, tree.k, tree, **inputs(tree)), forest
    )
    batch = Batch.from_data_list(forest)
    for dense in (reference_matrix, flat_scores):
        together = dense(batch.q, batch.k, batch, **inputs(batch))
        apart = torch.full_like(together, 0.0 if dense is reference_matrix else -torch.inf)
        start = 0
        for tree in forest:
            stop = start + tree.num_nodes
            apart[:, start:stop, start:stop] = dense(tree.q, tree.k, tree, **inputs(tree))
            start = stop
        torch.testing.assert_close(together, apart)


# Bias, masks, dropout ############################################################################


def test_bias_follows_the_pair_order():
    tree, zero = small(), column(0, 0, 0)
    bias = torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    scores = flat_scores(zero, zero, tree, bias=bias)  # pairs (1,2), (2,1), (0,A), (A,0)
    assert scores[0].tolist() == [[0, 3, 3], [4, 0, 1], [4, 2, 0]]


@energies
def test_masked_pairs_get_nothing(energy):
    for seed in range(12):
        tree = random_tree(seed, max_leaves=10)
        inputs = random_qkv(tree, seed=seed, requires_grad=True)
        bias = random_bias(tree)
        bias[::3] = -torch.inf
        bias.requires_grad_()
        theta = reference_matrix(*inputs[:2], tree, bias=bias, energy=energy)
        assert_row_stochastic(theta)
        scores = flat_scores(*inputs[:2], tree, bias=bias, energy=energy)
        assert torch.equal(theta == 0, scores == -torch.inf)
        best = closest_block_tied(scores, tree)
        torch.testing.assert_close(theta, best, rtol=1e-8, atol=1e-9)
        out = reference_attention(*inputs, tree, bias=bias, energy=energy)
        grads = torch.autograd.grad(  # a single leaf's output does not depend on q and k
            out.square().sum(), (*inputs, bias), materialize_grads=True
        )
        assert all(grad.isfinite().all() for grad in grads)
        assert (grads[3][::3] == 0).all()


@energies
def test_all_siblings_masked(energy):
    tree = random_tree(3, max_leaves=10, shape="mixed")
    q, k, v = random_qkv(tree, requires_grad=True)
    bias = torch.full_like(random_bias(tree), -torch.inf).requires_grad_()
    out = reference_attention(q, k, v, tree, bias=bias, energy=energy)
    assert torch.equal(out, v)
    phi = reference_energy(q, k, tree, bias=bias, energy=energy)
    grads = torch.autograd.grad(out.sum() + phi.sum(), (q, k, v, bias), create_graph=True)
    assert all(grad.isfinite().all() for grad in grads)
    again = torch.autograd.grad(sum(grad.square().sum() for grad in grads[:2]), (q, k, bias))
    assert all(grad.isfinite().all() for grad in again)


@energies
def test_dropout_multiplies_the_blocks_of_theta(energy):
    tree = random_tree(5, max_leaves=12, shape="mixed")
    q, k, v = random_qkv(tree)
    plain = PlainTree.of(tree)
    generator = torch.Generator().manual_seed(0)
    pairs, leaves = (
        (torch.rand(count, 2, generator=generator) < 0.6).double() / 0.6
        for count in (plain.num_pairs, len(plain.leaves))
    )
    factor = torch.ones(2, len(leaves), len(leaves), dtype=torch.float64)
    for number, (b, c) in enumerate(plain.pairs()):
        factor[:, plain.under[b].unsqueeze(1) & plain.under[c]] = pairs[number].unsqueeze(1)
    factor.diagonal(dim1=1, dim2=2).copy_(leaves.t())
    mask = (pairs, leaves)
    theta = reference_matrix(q, k, tree, energy=energy) * factor
    masked = reference_matrix(q, k, tree, energy=energy, mask=mask)
    torch.testing.assert_close(masked, theta)
    out = reference_attention(q, k, v, tree, energy=energy, mask=mask)
    torch.testing.assert_close(out, torch.einsum("hij,jhd->ihd", theta, v))


def test_dropout_of_everything_gives_zeros():
    tree = small()
    q, k, v = random_qkv(tree, requires_grad=True)
    mask = (torch.zeros(4, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64))
    out = reference_attention(q, k, v, tree, mask=mask)
    assert (out == 0).all()
    assert all((grad == 0).all() for grad in torch.autograd.grad(out.sum(), (q, k, v)))


# Gradients, size, types ##########################################################################


@energies
def test_first_and_second_gradients(energy):
    tree = SignalTree.from_parents([6, 7, 5, 5, 7, 6, 7, -1], domain=1)  # a group of three, mixed
    q, k, v = random_qkv(tree, 1, 2, requires_grad=True)
    pos = random_pos(tree, 1, 2).requires_grad_()
    bias = random_bias(tree, 1).requires_grad_()

    def fn(q, k, v, pos, bias):
        out = reference_attention(q, k, v, tree, pos=pos, bias=bias, energy=energy)
        return out, reference_energy(q, k, tree, pos=pos, bias=bias, energy=energy)

    assert torch.autograd.gradcheck(fn, (q, k, v, pos, bias))
    assert torch.autograd.gradgradcheck(fn, (q, k, v, pos, bias))


@energies
def test_scale_replaces_the_root_of_d(energy):
    tree = random_tree(1, max_leaves=8, shape="mixed")
    q, k, v = random_qkv(tree)
    out = reference_attention(q, k, v, tree, energy=energy)
    same = reference_attention(2 * q, 2 * k, v, tree, energy=energy, scale=0.125)  # 1/2 / 4
    torch.testing.assert_close(same, out)


@energies
def test_huge_scores_neither_overflow_nor_vanish(energy):
    tree = random_tree(2, max_leaves=10, shape="mixed")
    q, k, v = random_qkv(tree, requires_grad=True)
    big_q, big_k = (300 * x.detach().requires_grad_() for x in (q, k))
    out = reference_attention(big_q, big_k, v, tree, energy=energy)
    assert out.isfinite().all()
    assert_row_stochastic(reference_matrix(big_q, big_k, tree, energy=energy))
    grads = torch.autograd.grad(out.sum(), (big_q, big_k, v))
    assert all(grad.isfinite().all() for grad in grads)


@energies
def test_computes_in_the_dtype_given(energy):
    tree = random_tree(4, max_leaves=20, shape="mixed")
    inputs = random_qkv(tree)
    out = reference_attention(*inputs, tree, energy=energy)
    for dtype, rtol in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        low = reference_attention(*(x.to(dtype) for x in inputs), tree, energy=energy)
        assert low.dtype is dtype
        assert (low - out).abs().max() < rtol * out.abs().max()


def test_a_chain_of_5000_levels():
    depth = 5000
    tree = SignalTree.from_parents([-1, *range(depth), depth, depth])  # two leaves at the end
    q, k, v = random_qkv(tree, 1, 2, requires_grad=True)
    out = reference_attention(q, k, v, tree)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    flat = SignalTree.from_parents([-1, 0, 0])
    expected = reference_attention(q, k, v, flat)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grads, torch.autograd.grad(expected.sum(), (q, k, v)))


def test_what_does_not_fit_is_refused():
    tree = small()
    q, k, v = random_qkv(tree)
    with pytest.raises(ShapeError, match=r"q \[2, 2, 4\].*must both be \[3, H, D\]"):
        reference_attention(q[:2], k, v, tree)
    with pytest.raises(ShapeError, match=r"v \[1, 2, 4\]"):
        reference_attention(q, k, v[:1], tree)
    with pytest.raises(ShapeError, match=r"pos \[3, 2, 3\] must be \[5, 2 or 1, P\]"):
        reference_matrix(q, k, tree, pos=random_pos(tree)[:3])
    with pytest.raises(ShapeError, match=r"bias \[3, 2\] must be \[4, 2 or 1\]"):
        reference_energy(q, k, tree, bias=random_bias(tree)[:3])
    with pytest.raises(UnsupportedError, match="energy='cosine'"):
        flat_scores(q, k, tree, energy="cosine")
