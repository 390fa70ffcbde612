"""A leaf of weight w counts as w equal leaves: judged by the oracle on the tree that has them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import ShapeError
from hsa_geo.nn import DeepSetConv, FlatConv, HSAConv, subtree_mean
from hsa_geo.ops import attention_matrix, hsa_attention, tree_energy
from hsa_geo.ops.attention import attend
from hsa_geo.ops.reference import reference_attention, reference_matrix, reference_phi
from hsa_geo.testing import assert_row_stochastic, random_parents, trees

BACKENDS = ["block", "edge"] + (["numba"] if HAS_NUMBA else [])


def copied(tree: SignalTree, weight: torch.Tensor) -> tuple[SignalTree, torch.Tensor, torch.Tensor]:
    """The tree with w equal leaves under a new node in place of each leaf of weight w, the row
    of each leaf's copies, and the node that stands for each of the old ones."""
    m, n = tree.num_tree_nodes, tree.num_leaves
    parent = torch.full((m,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    row = torch.repeat_interleave(torch.arange(n), weight)
    parents = torch.cat([parent, row])  # the copies' parent is the old leaf, now an inner node
    out, order = SignalTree.from_parents(parents, return_order=True)
    copies = order[: out.num_leaves] - m
    return out, row[copies], order


def drawn(tree: SignalTree, seed: int, high: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, high, (tree.num_leaves,), generator=generator)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(tree=trees(max_nodes=16), seed=st.integers(0, 99), energy=st.sampled_from(["dot", "l2"]))
def test_a_weight_counts_as_that_many_equal_leaves(
    backend: str, tree: SignalTree, seed: int, energy: str
) -> None:
    torch.manual_seed(seed)
    tree.leaf_weight = drawn(tree, seed)
    big, row, order = copied(tree, tree.leaf_weight)
    m, n = tree.num_tree_nodes, tree.num_leaves
    pos = torch.randn(m, 2, 3, dtype=torch.float64)
    # A copy keeps the leaf's own e in its own score, and copies have none for each other: so
    # positions of leaves are left out, those of inner nodes stay.
    pos[:n] = 0
    far = torch.cat([pos, pos.new_zeros(len(row), 2, 3)])[order]
    q, k, v = (t.requires_grad_() for t in torch.randn(3, n, 2, 4, dtype=torch.float64).unbind())
    options = {"energy": energy}
    out = hsa_attention(q, k, v, tree, pos=pos, backend=backend, **options)
    expected = reference_attention(q[row], k[row], v[row], big, pos=far, **options)
    torch.testing.assert_close(out[row], expected, atol=1e-10, rtol=1e-10)

    weight = torch.randn_like(out)
    theirs = torch.zeros_like(expected)
    first = torch.tensor([(row == i).nonzero()[0, 0].item() for i in range(n)])
    theirs[first] = weight
    given_to = {"inputs": (q, k, v), "allow_unused": True, "materialize_grads": True}
    ours_grad = torch.autograd.grad((out * weight).sum(), **given_to)
    their_grad = torch.autograd.grad((expected * theirs).sum(), **given_to)
    for a, b in zip(ours_grad, their_grad):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)

    phi = tree_energy(q, k, tree, pos=pos, backend=backend, **options)
    their_phi = reference_phi(q[row], k[row], big, pos=far, **options)
    roots = [node for node in range(big.num_tree_nodes) if big.tree_level[node] == 0]
    torch.testing.assert_close(phi[0], their_phi[roots[0]], atol=1e-9, rtol=1e-9)

    if backend != "numba":
        theta = attention_matrix(q, k, tree, pos=pos, backend=backend, **options)
        assert_row_stochastic(theta)
        full = reference_matrix(q[row], k[row], big, pos=far, **options)
        summed = torch.zeros(2, len(row), n, dtype=torch.float64).index_add_(2, row, full)
        torch.testing.assert_close(theta[:, row], summed, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_survive_batching_and_agree_with_single_trees(backend: str) -> None:
    torch.manual_seed(0)
    parts = [SignalTree.from_parents(random_parents(s, max_leaves=9)) for s in range(3)]
    for s, tree in enumerate(parts):
        tree.leaf_weight = drawn(tree, s, high=6)
        tree.x = torch.randn(tree.num_leaves, 8)
    conv = HSAConv(8, 4, heads=2, backend=backend)
    batch = Batch.from_data_list(parts)
    whole = conv(batch.x, batch)
    alone = torch.cat([conv(tree.x, tree) for tree in parts])
    torch.testing.assert_close(whole, alone)
    weighted = [(t.x * t.leaf_weight[:, None]).sum(0) / t.leaf_weight.sum() for t in parts]
    torch.testing.assert_close(subtree_mean(batch.x, batch), torch.stack(weighted))


def test_baselines_see_the_weights() -> None:
    torch.manual_seed(0)
    trees_ = [SignalTree.from_parents([n] * n + [-1], x=torch.randn(n, 8)) for n in (3, 5)]
    batch = Batch.from_data_list(trees_)
    batch.leaf_weight = torch.tensor([5, 1, 1, 2, 1, 1, 3, 1])
    flat, hsa = FlatConv(8, 4, heads=2), HSAConv(8, 4, heads=2)
    hsa.load_state_dict(flat.state_dict())
    out = flat(batch.x, batch)  # on trees of depth one both are softmax attention
    torch.testing.assert_close(out, hsa(batch.x, batch))
    deep = DeepSetConv(8, 4, heads=2)
    row = torch.repeat_interleave(torch.arange(8), batch.leaf_weight)
    pooled = deep(batch.x, batch)
    big = Batch.from_data_list([SignalTree.from_parents([n] * n + [-1]) for n in (7, 8)])
    torch.testing.assert_close(pooled[row], deep(batch.x[row], big))


def test_a_wide_group_and_a_single_leaf() -> None:
    torch.manual_seed(0)
    wide = SignalTree.from_parents([-1] + [0] * 300)
    wide.leaf_weight = torch.randint(1, 5, (300,))
    q, k, v = torch.randn(3, 300, 2, 4, dtype=torch.float64)
    score = torch.einsum("ihd,jhd->hij", q, k) / 2 + wide.leaf_weight.double().log()
    expected = torch.einsum("hij,jhd->ihd", score.softmax(-1), v)
    for backend in BACKENDS:
        out = hsa_attention(q, k, v, wide, backend=backend)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)
    one = SignalTree.from_parents([-1])
    one.leaf_weight = torch.tensor([5])
    out = hsa_attention(q[:1], k[:1], v[:1], one)
    torch.testing.assert_close(out, v[:1])
    expected = -(q[0] * k[0]).sum(-1) / 2 - torch.tensor(5.0).double().log()
    torch.testing.assert_close(tree_energy(q[:1], k[:1], one)[0], expected)


def test_ones_are_no_weights_and_a_changed_weight_is_seen() -> None:
    tree = SignalTree.from_parents([-1, 0, 0])
    tree.leaf_weight = torch.ones(2, dtype=torch.int64)
    assert tree.plan.leaf_weight is None
    q = torch.zeros(2, 1, 1)
    tree.leaf_weight[1] = 3
    theta = attention_matrix(q, q, tree)
    torch.testing.assert_close(theta, torch.tensor([[[0.25, 0.75]] * 2]).view(1, 2, 2))
    tree.leaf_weight = None
    assert attend(q, q, q, tree).own.tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.tensor([1, 0]), "leaf 1 has the weight 0"),
        (torch.tensor([1.0, 2.0]), "float32"),
        (torch.tensor([1, 2, 3]), r"\[3\]: give int64 \[2\]"),
        (torch.tensor([1, 2**62]), "scale it down"),
    ],
)
def test_weights_that_are_none_are_refused(weight: torch.Tensor, message: str) -> None:
    tree = SignalTree.from_parents([-1, 0, 0])
    with pytest.raises(ShapeError, match=message):
        TreePlan.from_index(tree.tree_index, tree.tree_level, weight)
    tree.leaf_weight = weight
    with pytest.raises(ShapeError, match=message):
        tree.validate()


@pytest.mark.skipif(not HAS_NUMBA, reason="the compiled kernels need numba")
def test_a_compiled_layer_sees_the_weights() -> None:
    torch.manual_seed(0)
    tree = SignalTree.from_parents([-1, 0, 0, 1, 1, 1])
    tree.leaf_weight = torch.tensor([1, 4, 2, 1])
    x = torch.randn(4, 8)
    conv = HSAConv(8, 4, heads=2, energy="l2")
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, tree), conv(x, tree))
    del tree.leaf_weight
    assert not torch.allclose(compiled(x, tree), conv(x, tree) + 1)
    torch.testing.assert_close(compiled(x, tree), conv(x, tree))
