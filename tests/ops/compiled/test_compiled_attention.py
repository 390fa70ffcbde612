"""The compiled passes against the oracle: every option, wide groups, any strides."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

import torch
from call_cases import forest, full_case, run
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import Case, answer, assert_close, draw_mask, error, inputs_for
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.ops import hsa_attention, wide
from hsa_geo.ops.attention import outputs
from hsa_geo.ops.compiled import frame
from hsa_geo.ops.reference import reference_attention
from hsa_geo.testing import SHAPES, random_pos, random_qkv, random_tree, trees

# Against the oracle ##############################################################################


@st.composite
def cases(draw) -> Case:
    """Trees and forests with any of the options."""
    parts = draw(st.lists(trees(max_nodes=14), min_size=1, max_size=3))
    tree = parts[0] if len(parts) == 1 else Batch.from_data_list(parts)
    heads, dim, value_dim = (draw(st.integers(1, most)) for most in (3, 5, 5))
    some = st.sampled_from([0, 1, heads])
    seed = draw(st.integers(0, 1000))
    tensors = inputs_for(tree, heads, dim, value_dim, pos=draw(some), bias=draw(some), seed=seed)
    if "bias" in tensors and draw(st.booleans()):
        hidden = torch.rand(tensors["bias"].shape, generator=torch.Generator().manual_seed(seed))
        tensors["bias"] = tensors["bias"].masked_fill(hidden < 0.3, -torch.inf)
    return Case(
        tree=tree,
        tensors=tensors,
        mask=draw_mask(tree.plan, heads, 0.3, seed) if draw(st.booleans()) else None,
        energy=draw(st.sampled_from(["dot", "l2"])),
        scale=draw(st.sampled_from([None, 0.0, 0.3, 2, -0.5])),
    )


def check(case: Case) -> None:
    assert_close(run(case), run(case, oracle=True), 1e-10)
    rounded = case.to(torch.float32)
    assert_close(run(rounded), run(rounded.to(torch.float64), oracle=True), 1e-4)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_any_tree_with_any_options(case):
    check(case)


@given(cases(), st.sampled_from([1, 2]), st.sampled_from([1, 12, 1 << 20]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_wide_groups(case, limit, at_once, fused):
    """Every group of more than one or two is wide; scores some rows at a time; both branches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "WIDE", limit)
        patch.setattr(wide, "_AT_ONCE", at_once)
        if not fused:
            patch.setattr(wide, "_FUSED", None)
        check(case)


@pytest.mark.parametrize("size", [frame.WIDE, frame.WIDE + 1])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_groups_around_the_limit(size, inner, plain):
    """The largest group that the kernels take and the next; of leaves, or with one inner node."""
    parents = [size] * size + [-1]
    if inner:
        parents = [*[size + 1] * 2, *[size + 2] * (size - 1), size + 2, size + 2, -1]
        parents = [size + 1, size + 1, *[size + 2] * (size - 1), size + 2, -1]
    tree = SignalTree.from_parents(parents)
    assert tree.plan.group_ptr.diff().max() == size
    if plain:
        check(Case(tree, inputs_for(tree, 2, 3, 4, pos=0, bias=0, seed=0)))
    else:
        check(full_case(tree))


@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_many_trees_of_every_kind(energy):
    """Chains, single leaves and windows between larger trees; with every option."""
    tree = forest(0, count=28, max_leaves=12)
    assert sum(t.num_leaves == 1 for t in tree.to_data_list()) >= 4
    check(full_case(tree, energy=energy))


def test_the_answers_of_op_cases_go_through_the_kernels(monkeypatch):
    """backend="numba" and "auto" run them; "block" does not."""
    from hsa_geo.ops.compiled import attention

    calls = []
    original = attention.forward
    monkeypatch.setattr(attention, "forward", lambda call: calls.append(call) or original(call))
    tree = random_tree(3)
    q, k, v = random_qkv(tree)
    for backend, count in (("auto", 1), ("numba", 2), ("block", 2), ("edge", 2)):
        hsa_attention(q, k, v, tree, backend=backend)
        assert len(calls) == count
    answer(Case(tree, {"q": q, "k": k, "v": v}), "numba")
    assert len(calls) == 3


# Inputs ##########################################################################################

LAYOUTS = {
    "qkv": lambda q, k, v: torch.stack([q, k, v], 1).unbind(1),
    "interleaved": lambda q, k, v: torch.stack([q, k, v], 3).unbind(3),
    "heads first": lambda *x: [t.transpose(0, 1).contiguous().transpose(0, 1) for t in x],
    "channels outside heads": lambda *x: [t.mT.contiguous().mT for t in x],
    "rows inside": lambda *x: [t.permute(2, 1, 0).contiguous().permute(2, 1, 0) for t in x],
    "every second row": lambda *x: [t.repeat_interleave(2, 0)[::2] for t in x],
    "a slice": lambda *x: [torch.nn.functional.pad(t, (3, 2), value=1e9)[..., 3:-2] for t in x],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("limit", [2, 256])
@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_inputs_where_they_lie(monkeypatch, layout, limit, energy):
    """Strides change nothing: not the values, and not the gradients."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = forest(1)
    case = Case(tree, inputs_for(tree, 3, 4, 4, pos=3, bias=3, seed=1), energy=energy)
    expected = run(case)
    q, k, v = LAYOUTS[layout](*(case.tensors[name] for name in "qkv"))
    pos, bias = (
        case.tensors["pos"].permute(2, 0, 1).contiguous().permute(1, 2, 0),
        case.tensors["bias"],
    )
    laid = {"q": q, "k": k, "v": v, "pos": pos, "bias": bias.t().contiguous().t()}
    assert not q.is_contiguous() or layout == "every second row"
    leaf = {name: t.detach().requires_grad_() for name, t in laid.items()}
    for name, t in leaf.items():
        assert t.stride() == laid[name].stride()
        assert torch.equal(t, case.tensors[name])
    options = case.options | {"backend": "numba", "energies": True}
    out, phi = outputs(tree=tree, **leaf, **options)
    assert error(out, expected["out"]) < 1e-13
    assert error(phi, expected["phi"]) < 1e-13
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in (out, phi)]
    # The gradient of the outputs arrives in strides, too.
    weights[0] = weights[0].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    grads = torch.autograd.grad((out, phi), list(leaf.values()), weights)
    for name, grad in zip(leaf, grads):
        assert error(grad, expected[f"grad {name}"]) < 1e-12


@pytest.mark.parametrize("limit", [2, 256])
def test_expanded_gradients_and_inputs(monkeypatch, limit):
    """out.sum() sends one number to all; a key may be the same for all leaves or heads."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = forest(2)
    q, _, v = random_qkv(tree, 3, 4)
    for shape in ([1, 3, 4], [tree.num_nodes, 1, 4], [1, 1, 1]):
        k = torch.randn(shape, dtype=torch.float64).expand(q.shape)
        found = []
        for backend in ("numba", "block"):
            leaf = [t.detach().requires_grad_() for t in (q, k, v)]
            out = hsa_attention(*leaf, tree, backend=backend)
            found.append([out, *torch.autograd.grad(out.sum(), leaf)])
        for a, b in zip(*found):
            assert error(a, b) < 1e-12


@pytest.mark.parametrize("limit", [1, 256])
@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize(
    ("heads", "dim", "value_dim"), [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 0, 0)]
)
def test_sizes_of_zero(monkeypatch, limit, energy, heads, dim, value_dim):
    """No heads, queries without channels (equal scores), values without any."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = forest(3)
    tensors = inputs_for(tree, heads, dim, value_dim, pos=1, bias=1, seed=0)
    for names in (("q", "k", "v"), ("q", "k", "v", "pos", "bias")):
        case = Case(tree, {name: tensors[name] for name in names}, energy=energy, scale=1.0)
        found = []
        for backend in ("numba", "block"):
            leaf = {name: t.clone().requires_grad_() for name, t in case.tensors.items()}
            options = case.options | {"backend": backend, "energies": True}
            out, phi = outputs(tree=tree, **leaf, **options)
            loss = out.sum() + phi.square().sum()
            grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
            filled = [torch.zeros_like(t) if g is None else g for t, g in zip(leaf.values(), grads)]
            found.append([out, phi, *filled])
        for a, b in zip(*found):
            assert a.shape == b.shape
            assert error(a, b) < 1e-12


def test_positions_of_no_channels():
    tree = forest(3)
    q, k, v = random_qkv(tree)
    pos = torch.zeros(tree.plan.num_nodes, 2, 0, dtype=torch.float64)
    assert torch.equal(
        hsa_attention(q, k, v, tree, pos=pos, backend="numba"),
        hsa_attention(q, k, v, tree, backend="numba"),
    )


def test_inputs_are_left_as_they_are():
    case = full_case(forest(4))
    before = {name: t.clone() for name, t in case.tensors.items()}
    packed = case.tree.plan.packed.clone()
    run(case)
    assert all(torch.equal(case.tensors[name], t) for name, t in before.items())
    assert torch.equal(case.tree.plan.packed, packed)


# Numbers that are not #############################################################################


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("limit", [2, 256])
def test_nan_poisons_what_it_does_elsewhere(monkeypatch, dtype, energy, name, limit):
    """One nan in one tree of two: outputs and energies are nan where "block" says so."""
    monkeypatch.setattr(frame, "WIDE", limit)
    for seed in range(6):
        tree = Batch.from_data_list([random_tree(s, shape=SHAPES[s % 7]) for s in (seed, seed + 3)])
        tensors = dict(zip("qkv", random_qkv(tree, dtype=dtype)))
        tensors[name][seed % tree.num_nodes, 0, 1] = torch.nan
        options = {"energy": energy, "energies": True}
        found = [outputs(tree=tree, **tensors, backend=b, **options) for b in ("numba", "block")]
        for a, b in zip(*found):
            assert torch.equal(a.isnan(), b.isnan())
            assert not a.isinf().any()
        poisoned = found[0][0].isnan().any() or found[0][1].isnan().any()  # one leaf: only phi
        assert poisoned
        assert not found[0][0][:, 1].isnan().any()  # the other head


@pytest.mark.parametrize("limit", [2, 256])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_gradients_of_nan_stay_in_their_tree_and_head(monkeypatch, limit, name):
    monkeypatch.setattr(frame, "WIDE", limit)
    for seed in range(6):
        parts = [random_tree(s, max_leaves=12, shape="mixed") for s in (seed, seed + 10)]
        tree, first = Batch.from_data_list(parts), parts[0].num_nodes
        tensors = dict(zip("qkv", random_qkv(tree)))
        tensors[name][0, 0, 1] = torch.nan
        leaf = {key: t.requires_grad_() for key, t in tensors.items()}
        out = hsa_attention(tree=tree, backend="numba", **leaf)
        grads = torch.autograd.grad(out.sum(), list(leaf.values()))
        for grad in grads:
            assert grad[first:].isfinite().all()
            assert grad[:, 1].isfinite().all()
        if name != "v" and first > 1:
            assert any(grad[:first, 0].isnan().any() for grad in grads)


@pytest.mark.parametrize("limit", [2, 256])
def test_infinite_bias_is_not_hidden(monkeypatch, limit):
    """+inf is no score: nan at the leaves below that node, nowhere else."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = SignalTree.from_parents([6, 6, 6, 7, 7, 7, 8, 8, -1])
    q, k, v = random_qkv(tree)
    bias = torch.zeros(tree.plan.num_pairs, 1, dtype=torch.float64)
    bias[0] = torch.inf  # leaf 0 to leaf 1
    out = hsa_attention(q, k, v, tree, bias=bias, backend="numba")
    assert out[0].isnan().all()
    assert out[3:].isfinite().all()
    block = hsa_attention(q, k, v, tree, bias=bias, backend="block")
    assert torch.equal(out.isnan(), block.isnan())


@pytest.mark.parametrize("limit", [2, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_levels_of_different_sizes_of_logits(monkeypatch, limit, dtype, energy):
    """One level's scores are 100 larger, by a bias: levels are combined by log-sum-exp."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = random_tree(4, max_leaves=20, shape="mixed")
    q, k, v = random_qkv(tree, dtype=dtype)
    nodes = tree.plan.pair_nodes[0]
    level = tree.tree_level[nodes]
    for shift in (100.0, -100.0, 1e5, -1e5):
        for at in range(1, int(level.max()) + 1):
            bias = torch.where(level == at, shift, 0.0)[:, None].to(dtype)
            case = Case(tree, {"q": q, "k": k, "v": v, "bias": bias}, energy=energy)
            actual, expected = run(case), run(case.to(torch.float64), oracle=True)
            limit_ = 1e-9 if dtype == torch.float64 else 40 * max(abs(shift), 1e2) * 1.2e-7
            assert_close(actual, expected, limit_)


@pytest.mark.parametrize("limit", [2, 256])
def test_one_bias_hides_all_siblings(monkeypatch, limit):
    """Every group's members keep all weight: outputs are the values, and gradients finite."""
    monkeypatch.setattr(frame, "WIDE", limit)
    tree = forest(5)
    tensors = inputs_for(tree, 2, 3, 4, pos=1, bias=1, seed=0)
    tensors["bias"].fill_(-torch.inf)
    found = run(Case(tree, tensors))
    assert torch.equal(found["out"], tensors["v"])
    assert all(t.isfinite().all() for t in found.values())
    own = found["grad bias"]
    assert (own == 0).all()


def test_edges_in_no_canonical_order():
    """Two interleaved trees given as bare tensors: rows are leaves by increasing id."""
    index = torch.tensor([[7, 3, 7, 0, 3, 0, 0], [2, 1, 0, 8, 4, 5, 6]])
    level = torch.tensor([1, 1, 1, 0, 1, 2, 2, 0, 2])
    plan = TreePlan.from_index(index, level)
    ordered = index[:, index[0].argsort(stable=True)]
    same = SignalTree(tree_index=ordered, tree_level=level, num_nodes=6)
    q, k, v = random_qkv(same)
    pos = torch.randn(9, 2, 3, dtype=torch.float64)
    out = hsa_attention(q, k, v, plan, pos=pos, backend="numba")
    assert error(out, reference_attention(q, k, v, same, pos=pos)) < 1e-12


def test_padded_and_single():
    """Three texts of 3, 50 and 500 words together and alone: the same bits."""
    parts, base = [], 0
    for count in (3, 50, 500):
        windows = -(-count // 8)
        parents = [count + i // 8 for i in range(count)] + [count + windows] * windows + [-1]
        parts.append(SignalTree.from_parents(parents))
    batch = Batch.from_data_list(parts)
    q, k, v = random_qkv(batch, dtype=torch.float32)
    together = hsa_attention(q, k, v, batch, backend="numba")
    for part in parts:
        here = slice(base, base + part.num_nodes)
        base = here.stop
        alone = hsa_attention(q[here], k[here], v[here], part, backend="numba")
        assert torch.equal(together[here], alone)


def test_positions_at_roots_and_along_chains():
    """The root's position is no one's; a chain's top counts among siblings, its leaf for itself."""
    tree = SignalTree.from_parents([-1, 0, 1, 1, 2, 3, 5, 5, 0, 8, 9])
    tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=0, seed=0)
    tensors["pos"] = torch.randn(tree.num_tree_nodes, 2, 3, dtype=torch.float64)
    check(Case(tree, tensors))
    assert random_pos(tree).shape == tensors["pos"].shape
