"""hsa_attention, its matrix, weights and energy against the oracle and the identities."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import BACKENDS, answer, assert_close, chain, comb, draw_case, error, inputs_for
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.ops import attention_matrix, attention_weights, hsa_attention, tree_energy
from hsa_geo.ops.inputs import dropout_mask
from hsa_geo.ops.reference import (
    flat_scores,
    reference_attention,
    reference_energy,
    reference_matrix,
)
from hsa_geo.testing import (
    SHAPES,
    assert_block_tied,
    assert_forest_equals_trees,
    assert_row_stochastic,
    assert_sibling_order_invariant,
    kl_to_flat,
    random_pos,
    random_qkv,
    random_tree,
    trees,
)

SEEDS = range(238)  # 34 trees of each of the seven shapes
ENERGIES = ("dot", "l2")

backends = pytest.mark.parametrize("backend", BACKENDS)
energies = pytest.mark.parametrize("energy", ENERGIES)
shapes = pytest.mark.parametrize("shape", SHAPES)


# The oracle ######################################################################################


@pytest.mark.parametrize("seed", SEEDS)
def test_agrees_with_the_oracle(seed):
    """Output, Theta, phi and the gradients of q, k, v, pos and bias.

    The error is max|a - b| / max(1, max|b|) of each tensor.  In float32 the oracle computes in
    float64 from the same rounded inputs.
    """
    case = draw_case(seed)
    expected = answer(case, None)
    rounded = case.to(torch.float32)
    expected_rounded = answer(rounded.to(torch.float64), None)
    for backend in BACKENDS:
        assert_close(answer(case, backend), expected, 1e-10)
        assert_close(answer(rounded, backend), expected_rounded, 1e-4)


def test_the_oracle_is_asked_about_everything():
    """The seeds above hold 200 trees and more, every shape and every option both ways."""
    cases = [draw_case(seed) for seed in SEEDS]
    assert len(cases) >= 200
    assert min(sum(s % len(SHAPES) == i for s in SEEDS) for i in range(len(SHAPES))) >= 20
    assert {case.energy for case in cases} == set(ENERGIES)
    assert {case.mask is None for case in cases} == {True, False}
    assert {case.scale is None for case in cases} == {True, False}
    for key in ("pos", "bias"):
        drawn = [(case.tensors.get(key), case.tensors["q"].size(1)) for case in cases]
        heads = {(0 if t is None else t.size(1), heads) for t, heads in drawn}
        assert {(0, 3), (1, 3), (3, 3)} <= heads
    trees_ = [case.tree for case in cases]
    sizes = [tree.tree_index[0].bincount() for tree in trees_ if tree.depth]
    assert max(tree.depth for tree in trees_) >= 12
    assert max(size.max() for size in sizes) > 12
    assert sum(tree.num_leaves == 1 for tree in trees_) >= 20
    assert sum(bool((size == 1).any()) for size in sizes) >= 50


@pytest.mark.parametrize("number", range(4))
def test_a_batch_agrees_with_its_trees_one_by_one(number):
    """200 trees in four batches: outputs, phi and gradients, of both backends and the oracle."""
    energy, heads = ENERGIES[number % 2], 2
    forest = [random_tree(1000 + 50 * number + i, max_leaves=16) for i in range(50)]
    parts = [inputs_for(t, heads, 3, 2, pos=2, bias=2, seed=i) for i, t in enumerate(forest)]
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    batch = Batch.from_data_list(forest)
    cotangent = torch.randn(batch.num_nodes, heads, 2, dtype=torch.float64)

    def run(tree, tensors, weight, function, energy_function, **options):
        leaf = {key: t.clone().requires_grad_() for key, t in tensors.items()}
        q, k, v = leaf["q"], leaf["k"], leaf["v"]
        options |= {"pos": leaf["pos"], "bias": leaf["bias"], "energy": energy}
        out, phi = function(q, k, v, tree, **options), energy_function(q, k, tree, **options)
        loss = (out * weight).sum() + phi.square().sum()
        grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
        filled = [torch.zeros_like(t) if g is None else g for t, g in zip(leaf.values(), grads)]
        return {"out": out, "phi": phi} | dict(zip(leaf, filled))

    def joined(*functions, **options):
        weights = cotangent.split([tree.num_nodes for tree in forest])
        each = [run(*args, *functions, **options) for args in zip(forest, parts, weights)]
        return {key: torch.cat([one[key] for one in each]) for key in each[0]}

    expected = joined(reference_attention, reference_energy)
    for backend in BACKENDS:
        fast = (hsa_attention, tree_energy)
        assert_close(run(batch, whole, cotangent, *fast, backend=backend), expected, 1e-10)
        assert_close(joined(*fast, backend=backend), expected, 1e-10)


@given(trees(max_nodes=14), st.sampled_from(ENERGIES), st.sampled_from([0, 1, 2]))
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_oracle_on_hypothesis_trees(tree, energy, pos):
    q, k, v = random_qkv(tree)
    e = random_pos(tree, pos) if pos else None
    options = {"energy": energy, "pos": e}
    expected = reference_attention(q, k, v, tree, **options)
    theta = reference_matrix(q, k, tree, **options)
    phi = reference_energy(q, k, tree, **options)
    for backend in BACKENDS:
        options["backend"] = backend
        assert error(hsa_attention(q, k, v, tree, **options), expected) < 1e-10
        assert error(attention_matrix(q, k, tree, **options), theta) < 1e-10
        assert error(tree_energy(q, k, tree, **options), phi) < 1e-10


@backends
@energies
def test_trees_whose_edges_and_ids_are_in_no_canonical_order(backend, energy):
    """Two interleaved trees given as bare tensors: rows are leaves by increasing id."""
    index = torch.tensor([[7, 3, 7, 0, 3, 0, 0], [2, 1, 0, 8, 4, 5, 6]])
    level = torch.tensor([1, 1, 1, 0, 1, 2, 2, 0, 2])
    tree = SignalTree(tree_index=index, tree_level=level, num_nodes=6)
    q, k, v = random_qkv(tree)
    ordered = index[:, index[0].argsort(stable=True)]
    same = SignalTree(tree_index=ordered, tree_level=level, num_nodes=6)
    plan = TreePlan.from_index(index, level)
    expected = reference_attention(q, k, v, same, energy=energy)
    assert plan.num_trees == 2
    assert error(hsa_attention(q, k, v, plan, energy=energy, backend=backend), expected) < 1e-10


# Identities of math.md on the fast paths #########################################################


@backends
def test_identity_1_depth_one_is_softmax_attention(backend):
    tree = SignalTree.from_parents([9] * 9 + [-1])
    q, k, v = random_qkv(tree, heads=3, dim=8)
    expected = scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)))
    assert error(hsa_attention(q, k, v, tree, backend=backend), expected.transpose(0, 1)) < 1e-12


@backends
@energies
def test_identity_1_with_positions(backend, energy):
    tree = SignalTree.from_parents([9] * 9 + [-1])
    q, k, _ = random_qkv(tree)
    pos = torch.randn(10, 2, 3, dtype=torch.float64)
    scores = flat_scores(q, k, tree, energy=energy, pos=pos)
    theta = attention_matrix(q, k, tree, energy=energy, pos=pos, backend=backend)
    assert error(theta, scores.softmax(-1)) < 1e-12


@backends
@shapes
def test_identity_2_gradient_of_the_l2_energy(backend, shape):
    """sqrt(d) N dphi(R)/dq_i = q_i - sum_j theta_ij k_j."""
    tree = random_tree(5, shape=shape)
    q, k, _ = random_qkv(tree, dim=3)
    q.requires_grad_()
    phi = tree_energy(q, k, tree, energy="l2", backend=backend)
    (grad,) = torch.autograd.grad(phi.sum(), q)
    theta = attention_matrix(q, k, tree, energy="l2", backend=backend)
    expected = q - torch.einsum("hij,jhd->ihd", theta, k)
    assert error(3**0.5 * tree.num_leaves * grad, expected) < 1e-11


@backends
@energies
@shapes
def test_identity_3_kl_to_flat_attention(backend, energy, shape):
    """N phi(R) + sum_i logsumexp_j s_ij is the divergence from flat attention."""
    tree = random_tree(6, shape=shape)
    q, k, _ = random_qkv(tree)
    pos = random_pos(tree)
    options = {"energy": energy, "pos": pos}
    scores = flat_scores(q, k, tree, **options)
    theta = attention_matrix(q, k, tree, backend=backend, **options)
    phi = tree_energy(q, k, tree, backend=backend, **options)[0]
    value = tree.num_leaves * phi + scores.logsumexp(-1).sum(-1)
    assert error(value, kl_to_flat(theta, scores)) < 1e-10


@backends
@energies
@shapes
def test_identity_4_single_children_and_sibling_order_change_nothing(backend, energy, shape):
    tree = random_tree(7, shape=shape)
    q, k, v = random_qkv(tree)
    out = hsa_attention(q, k, v, tree, energy=energy, backend=backend)
    m = tree.num_tree_nodes
    parents = torch.full((m,), -1)
    parents[tree.tree_index[1]] = tree.tree_index[0]
    longer = torch.cat([torch.arange(m) + m, parents])  # i hangs below a new node i + m
    stretched = SignalTree.from_parents(longer)
    assert stretched.num_leaves == tree.num_leaves
    assert stretched.depth > tree.depth
    assert error(hsa_attention(q, k, v, stretched, energy=energy, backend=backend), out) < 1e-12

    tree.q, tree.k, tree.v = q, k, v
    assert_sibling_order_invariant(
        lambda t: hsa_attention(t.q, t.k, t.v, t, energy=energy, backend=backend), tree
    )


@backends
@energies
def test_identity_5_a_forest_equals_its_trees(backend, energy):
    forest = [random_tree(seed) for seed in range(12)] + [random_tree(0, shape="single")]
    for seed, tree in enumerate(forest):
        tree.q, tree.k, tree.v = random_qkv(tree, seed=seed)
    options = {"energy": energy, "backend": backend}
    assert_forest_equals_trees(lambda t: hsa_attention(t.q, t.k, t.v, t, **options), forest)
    assert_forest_equals_trees(lambda t: tree_energy(t.q, t.k, t, **options), forest)
    assert_forest_equals_trees(lambda t: attention_weights(t.q, t.k, t, **options).pair, forest)


@backends
@shapes
def test_l2_equals_dot_where_norms_are_equal(backend, shape):
    """Theta is the same, phi differs by the constant (|q|^2 + |k|^2) / (2 sqrt d)."""
    tree = random_tree(8, shape=shape)
    q, k, _ = random_qkv(tree, dim=4)
    q, k = (2 * torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
    dot, l2 = (
        (
            attention_matrix(q, k, tree, energy=energy, backend=backend),
            tree_energy(q, k, tree, energy=energy, backend=backend),
        )
        for energy in ENERGIES
    )
    assert error(dot[0], l2[0]) < 1e-12
    assert error(l2[1] - dot[1], torch.full_like(dot[1], 4 / 2)) < 1e-12


@backends
@energies
@shapes
def test_theta_is_row_stochastic_block_tied_and_gives_the_output(backend, energy, shape):
    tree = random_tree(9, shape=shape)
    q, k, v = random_qkv(tree)
    theta = attention_matrix(q, k, tree, energy=energy, backend=backend)
    assert_row_stochastic(theta)
    assert_block_tied(theta, tree)
    out = torch.einsum("hij,jhd->ihd", theta, v)
    assert error(hsa_attention(q, k, v, tree, energy=energy, backend=backend), out) < 1e-12


def test_weights_are_of_the_pairs_they_name():
    tree = random_tree(10, max_leaves=12, shape="mixed")
    q, k, _ = random_qkv(tree, heads=1)
    weights = attention_weights(q, k, tree)
    theta = weights.to_dense()[0]
    under = torch.zeros(tree.num_tree_nodes, tree.num_leaves, dtype=torch.bool)
    under[: tree.num_leaves] = torch.eye(tree.num_leaves, dtype=torch.bool)
    for parent, child in tree.tree_index.t().tolist():  # canonical: children before parents
        under[parent] |= under[child]
    for (b, c), value in zip(weights.pair_nodes.t().tolist(), weights.pair[:, 0]):
        assert (theta[under[b]][:, under[c]] == value).all()
    assert torch.equal(theta.diagonal(), weights.leaf[:, 0])


# Gradients #######################################################################################


def gradient_case(seed: int, energy: str, heads: int) -> tuple[SignalTree, list[Tensor], dict]:
    tree = random_tree(seed, max_leaves=5, shape="mixed")
    tensors = inputs_for(tree, heads, 2, 1, pos=1, bias=heads, seed=seed)
    return tree, [t.requires_grad_() for t in tensors.values()], {"energy": energy}


@backends
@energies
def test_gradcheck(backend, energy):
    tree, tensors, options = gradient_case(3, energy, heads=2)

    def fn(q, k, v, pos, bias):
        given_ = options | {"pos": pos, "bias": bias, "backend": backend}
        return (
            hsa_attention(q, k, v, tree, **given_),
            tree_energy(q, k, tree, **given_),
            attention_weights(q, k, tree, **given_).pair,
        )

    assert torch.autograd.gradcheck(fn, tensors)


@backends
@energies
def test_gradgradcheck(backend, energy):
    tree, tensors, options = gradient_case(3, energy, heads=1)

    def fn(q, k, v, pos, bias):
        given_ = options | {"pos": pos, "bias": bias, "backend": backend}
        return hsa_attention(q, k, v, tree, **given_), tree_energy(q, k, tree, **given_)

    assert torch.autograd.gradgradcheck(fn, tensors)


@backends
@energies
def test_second_derivatives_agree_with_the_oracle(backend, energy):
    """The gradient of a gradient norm, on trees too large for gradgradcheck, with -inf biases."""
    for seed in range(14):
        tree = random_tree(seed, shape=SHAPES[seed % len(SHAPES)])
        tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=2, seed=seed)
        hidden = torch.rand(tensors["bias"].shape) < 0.3
        tensors["bias"] = tensors["bias"].masked_fill(hidden, -torch.inf)

        def second(function, tensors=tensors, tree=tree, **options):
            leaf = {key: t.clone().requires_grad_() for key, t in tensors.items()}
            q, k, v = leaf["q"], leaf["k"], leaf["v"]
            pos, bias = leaf["pos"], leaf["bias"]
            out = function(q, k, v, tree, pos=pos, bias=bias, energy=energy, **options)
            loss = out.square().sum()
            first = torch.autograd.grad(loss, (q, k, v), create_graph=True, allow_unused=True)
            loss = sum(g.square().sum() for g in first if g is not None)
            grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
            return {
                key: torch.zeros_like(t) if grad is None else grad
                for (key, t), grad in zip(leaf.items(), grads)
            }

        expected = second(reference_attention)
        actual = second(hsa_attention, backend=backend)
        for key in ("q", "k", "v", "pos"):
            assert error(actual[key], expected[key]) < 1e-9, (seed, key)


@backends
@pytest.mark.parametrize("wanted", ["q", "k", "v", "pos", "bias"])
def test_gradients_of_a_subset_of_the_inputs(backend, wanted):
    case = draw_case(6)
    tree = random_tree(6, shape="mixed")
    tensors = inputs_for(tree, 2, 3, 2, pos=1, bias=1, seed=0)
    leaf = {key: t.clone().requires_grad_(key == wanted) for key, t in tensors.items()}
    out = hsa_attention(tree=tree, backend=backend, energy=case.energy, **leaf)
    (grad,) = torch.autograd.grad(out.square().sum(), leaf[wanted])
    full = {key: t.clone().requires_grad_() for key, t in tensors.items()}
    expected = reference_attention(tree=tree, energy=case.energy, **full)
    (expected,) = torch.autograd.grad(expected.square().sum(), full[wanted])
    assert error(grad, expected) < 1e-10


@backends
def test_nothing_requires_gradients(backend):
    tree = random_tree(1)
    q, k, v = random_qkv(tree)
    assert not hsa_attention(q, k, v, tree, backend=backend).requires_grad


# Dropout #########################################################################################


@backends
@energies
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropout_is_the_oracle_under_the_same_mask(backend, energy, p):
    tree = random_tree(11, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, heads=3))
    torch.manual_seed(4)
    out = hsa_attention(q, k, v, tree, energy=energy, dropout=p, backend=backend)
    torch.manual_seed(4)
    mask = dropout_mask(tree.plan, 3, p, q)
    expected = reference_attention(q, k, v, tree, energy=energy, mask=mask)
    assert error(out, expected) < 1e-12
    actual = torch.autograd.grad(out.square().sum(), (q, k, v))
    for a, b in zip(actual, torch.autograd.grad(expected.square().sum(), (q, k, v))):
        assert error(a, b) < 1e-10


@backends
def test_dropout_of_everything_is_zero(backend):
    tree = random_tree(12, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))
    out = hsa_attention(q, k, v, tree, dropout=1.0, backend=backend)
    assert torch.equal(out, torch.zeros_like(out))
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in grads)


@backends
def test_dropout_keeps_the_expectation(backend):
    tree = random_tree(13, max_leaves=8, shape="mixed")
    q, k, v = random_qkv(tree)
    batch = Batch.from_data_list([tree] * 4000)
    many = [t.repeat(4000, 1, 1) for t in (q, k, v)]
    torch.manual_seed(0)
    out = hsa_attention(*many, batch, dropout=0.4, backend=backend).view(4000, *v.shape)
    expected = hsa_attention(q, k, v, tree, backend=backend)
    deviation = (out.mean(0) - expected).abs() / (out.std(0) / 4000**0.5 + 1e-12)
    assert out.std(0).max() > 0.1
    assert deviation.max() < 5  # standard errors, of tens of entries


# Numerics ########################################################################################


def finite_everywhere(result: Tensor, *inputs: Tensor) -> None:
    assert result.isfinite().all()
    for grad in torch.autograd.grad(result.square().sum(), inputs, allow_unused=True):
        assert grad is None or grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@backends
@energies
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e3, 1e5])
def test_huge_logits(backend, energy, dtype, size):
    """Logits of +-size: no overflow, and the largest wins as in the oracle."""
    for seed in range(7):
        tree = random_tree(seed, shape=SHAPES[seed])
        q, k, v = random_qkv(tree, dim=4, seed=seed, dtype=torch.float64)
        q, k = (t * size**0.5 for t in (q, k))
        q, k, v = (t.to(dtype).requires_grad_() for t in (q, k, v))
        with torch.autograd.detect_anomaly(check_nan=True):
            out = hsa_attention(q, k, v, tree, energy=energy, backend=backend)
            finite_everywhere(out, q, k, v)
        expected = reference_attention(q.double(), k.double(), v.double(), tree, energy=energy)
        # A logit of 1e5 is known to 1e5 eps, and so is the logarithm of a weight.
        assert error(out, expected) < 40 * size * torch.finfo(dtype).eps


@backends
@energies
@pytest.mark.parametrize("where", ["leaf", "all"])
def test_one_huge_logit(backend, energy, where):
    tree = random_tree(14, max_leaves=12, shape="mixed")
    for row in range(tree.num_leaves):
        q, k, v = random_qkv(tree, dtype=torch.float32)
        k[row, :, 0] = 3e4
        if where == "leaf":
            q[row, :, 0] = 10
        else:
            q[:, :, 0] = 10
        q, k, v = (t.requires_grad_() for t in (q, k, v))
        out = hsa_attention(q, k, v, tree, energy=energy, backend=backend)
        finite_everywhere(out, q, k, v)
        expected = reference_attention(q.double(), k.double(), v.double(), tree, energy=energy)
        assert error(out, expected) < 1e-3


@backends
@energies
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_are_finite_with_huge_and_hidden_scores(backend, energy, dtype):
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, dtype=dtype))
    bias = torch.tensor([[-torch.inf], [300.0], [-torch.inf], [-torch.inf], [1e5], [-1e5]])
    bias = bias.to(dtype).requires_grad_()
    out = hsa_attention(q, k, v, tree, bias=bias, energy=energy, backend=backend)
    first = torch.autograd.grad(out.square().sum(), (q, k, v, bias), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (q, k, v, bias))
    assert all(g.isfinite().all() for g in (*first, *second))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@backends
@energies
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_hidden_pairs(backend, energy, share):
    """-inf biases: some, and all siblings of everyone; a leaf then keeps all its weight."""
    for seed in range(14):
        tree = random_tree(seed, shape=SHAPES[seed % len(SHAPES)])
        tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=2, seed=seed)
        hidden = torch.rand(tensors["bias"].shape) < share
        tensors["bias"] = tensors["bias"].masked_fill(hidden, -torch.inf)
        leaf = {key: t.clone().requires_grad_() for key, t in tensors.items()}
        with torch.autograd.detect_anomaly(check_nan=True):
            out = hsa_attention(tree=tree, energy=energy, backend=backend, **leaf)
            finite_everywhere(out, *leaf.values())
        expected = reference_attention(tree=tree, energy=energy, **tensors)
        assert error(out, expected) < 1e-12
        theta = attention_weights(
            leaf["q"],
            leaf["k"],
            tree,
            pos=leaf["pos"],
            bias=leaf["bias"],
            energy=energy,
            backend=backend,
        )
        assert (theta.pair[hidden] == 0).all()
        finite_everywhere(theta.pair, leaf["q"], leaf["k"], leaf["bias"])
        if share == 1.0:
            assert torch.equal(out, leaf["v"])


@backends
@energies
def test_a_single_leaf_and_single_children(backend, energy):
    for parents in ([-1], chain(2), chain(7), [-1, 0, 1, 2, 2, 4, 4]):
        tree = SignalTree.from_parents(parents)
        q, k, v = (t.requires_grad_() for t in random_qkv(tree))
        pos = torch.randn(tree.num_tree_nodes, 2, 3, dtype=torch.float64).requires_grad_()
        out = hsa_attention(q, k, v, tree, pos=pos, energy=energy, backend=backend)
        finite_everywhere(out, q, k, v, pos)
        assert error(out, reference_attention(q, k, v, tree, pos=pos, energy=energy)) < 1e-12
        phi = tree_energy(q, k, tree, pos=pos, energy=energy, backend=backend)
        assert error(phi, reference_energy(q, k, tree, pos=pos, energy=energy)) < 1e-12
        if tree.num_leaves == 1:
            assert torch.equal(out, v)


@backends
@energies
def test_no_trees_at_all(backend, energy):
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    q, v = (torch.randn(0, 2, d, requires_grad=True) for d in (4, 3))
    pos, bias = torch.randn(0, 2, 5), torch.randn(0, 2)
    options = {"pos": pos, "bias": bias, "energy": energy, "backend": backend}
    out = hsa_attention(q, q, v, plan, dropout=0.5, **options)
    assert out.shape == (0, 2, 3)
    out.sum().backward()
    assert v.grad.shape == (0, 2, 3)
    assert tree_energy(q, q, plan, **options).shape == (0, 2)
    assert attention_matrix(q, q, plan, **options).shape == (2, 0, 0)
    assert attention_weights(q, q, plan, **options).pair.shape == (0, 2)


@backends
@energies
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inputs_are_computed_in_float32(backend, energy, dtype):
    """The oracle on the rounded inputs, up to the rounding of the output."""
    for seed in range(14):
        tree = random_tree(seed, shape=SHAPES[seed % len(SHAPES)])
        q, k, v = random_qkv(tree, dtype=dtype, seed=seed)
        q = q * 100  # exp(q.k) overflows float16
        leaf = [t.requires_grad_() for t in (q, k, v)]
        out = hsa_attention(*leaf, tree, energy=energy, backend=backend)
        assert out.dtype == dtype
        expected = reference_attention(*(t.double() for t in leaf), tree, energy=energy)
        assert torch.equal(out, expected.to(dtype)) or error(out, expected) < torch.finfo(dtype).eps
        finite_everywhere(out.float(), *leaf)
        phi = tree_energy(q, k, tree, energy=energy, backend=backend)
        assert phi.dtype == torch.float32
        assert error(phi, reference_energy(q.double(), k.double(), tree, energy=energy)) < 1e-5


@backends
@energies
def test_autocast_leaves_attention_in_float32(backend, energy):
    tree = random_tree(15, max_leaves=40, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, dim=16, dtype=torch.float32))
    pos = random_pos(tree, dtype=torch.float32)
    options = {"pos": pos, "energy": energy, "backend": backend}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = hsa_attention(q, k, v, tree, **options)
        theta = attention_matrix(q, k, tree, **options)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    wide = [t.double().detach().requires_grad_() for t in (q, k, v)]
    expected = reference_attention(*wide, tree, pos=pos.double(), energy=energy)
    assert out.dtype == theta.dtype == torch.float32
    assert error(out, expected) < 1e-5
    expected_theta = reference_matrix(*wide[:2], tree, pos=pos.double(), energy=energy)
    assert error(theta, expected_theta) < 1e-5
    for actual, exact in zip(grads, torch.autograd.grad(expected.square().sum(), wide)):
        assert error(actual, exact) < 1e-5


@backends
def test_l2_of_inputs_far_from_zero(backend):
    """The l2 energy sees differences only, so a common offset costs no accuracy."""
    tree = random_tree(16, shape="mixed")
    q, k, v = random_qkv(tree, dtype=torch.float32)
    q, k = q + 100, k + 100
    out = hsa_attention(q, k, v, tree, energy="l2", backend=backend)
    expected = reference_attention(q.double(), k.double(), v.double(), tree, energy="l2")
    assert error(out, expected) < 1e-5  # |q|^2 is 4e4, and eps of it 5e-3


# Size ############################################################################################


@backends
def test_a_chain_of_5000_levels(backend):
    tree = SignalTree.from_parents(chain(5000))
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, dtype=torch.float32))
    start = time.process_time()
    out = hsa_attention(q, k, v, tree, backend=backend)
    out.sum().backward()
    assert time.process_time() - start < 1.0  # contracted to one slot: a millisecond
    assert torch.equal(out, v)


@backends
def test_a_comb_of_5000_levels(backend):
    """A leaf and an inner node at each of 5,000 levels; against the oracle at 300."""
    tree = SignalTree.from_parents(comb(300))
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))
    out = hsa_attention(q, k, v, tree, backend=backend)
    expected = reference_attention(q, k, v, tree)
    assert error(out, expected) < 1e-10
    actual = torch.autograd.grad(out.square().sum(), (q, k, v))
    for a, b in zip(actual, torch.autograd.grad(expected.square().sum(), (q, k, v))):
        assert error(a, b) < 1e-10

    def seconds(levels: int) -> float:
        tree = SignalTree.from_parents(comb(levels))
        q, k, v = (t.requires_grad_() for t in random_qkv(tree, dtype=torch.float32))
        start = time.process_time()
        finite_everywhere(hsa_attention(q, k, v, tree, backend=backend), q, k, v)
        return time.process_time() - start

    seconds(10)
    assert seconds(5000) < 10 * seconds(1250)  # linear would be 4, quadratic 16


def test_a_document_of_100_000_leaves():
    """Ten to a sentence, ten to a paragraph, and so on; rows checked without the other rows."""
    n, parents, count, base = 100_000, [], 100_000, 0
    while count > 1:
        base += count
        parents += [base + i // 10 for i in range(count)]
        count = -(-count // 10)
    tree = SignalTree.from_parents([*parents, -1])
    q, k, v = (t.requires_grad_() for t in random_qkv(tree, heads=2, dim=8, dtype=torch.float32))
    start = time.process_time()
    out = hsa_attention(q, k, v, tree, backend="block")
    out.square().sum().backward()
    assert time.process_time() - start < 30
    assert q.grad.isfinite().all()
    # A constant value comes back as it is: rows of Theta sum to one.
    ones = hsa_attention(q, k, torch.ones(n, 2, 1), tree)
    assert (ones - 1).abs().max() < 1e-5
