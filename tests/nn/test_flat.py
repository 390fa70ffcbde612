"""Flat attention, the baseline."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.errors import ShapeError
from hsa_geo.nn import AncestorBias, DeepSetConv, FlatConv, HSAConv, LeafConv, ReadingOrder
from hsa_geo.ops.inputs import is_fused
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def tree_with(seed: int, shape: str = "mixed") -> SignalTree:
    tree = random_tree(seed, shape=shape)
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, 6, generator=generator)
    return tree


def by_hand(conv: FlatConv, x: torch.Tensor, e: torch.Tensor | None = None) -> torch.Tensor:
    parts = conv.lin_qkv(x).view(len(x), -1, conv.heads, conv.out_channels).unbind(1)
    q, k, v = parts if len(parts) == 3 else (*parts, parts[1])
    if conv.norm_q is not None:
        q, k = conv.norm_q(q), conv.norm_k(k)
        v = k if len(parts) == 2 else v
    if conv.energy == "dot":
        score = torch.einsum("ihd,jhd->hij", q, k) * conv.out_channels**-0.5
    else:
        away = (q[:, None] - k).square().sum(-1)  # [i, j, h]
        score = -away.permute(2, 0, 1) / 2 * conv.out_channels**-0.5
    if e is not None:
        score = score + torch.einsum("ihp,jhp->hij", e, e)
    out = torch.einsum("hij,jhd->ihd", score.softmax(-1), v)
    return (out.flatten(1) if conv.concat else out.mean(1)) + conv.bias


@pytest.fixture(autouse=True, params=["kernels", "padded"])
def way(request, monkeypatch):
    """Both ways to compute it, where there are two."""
    if request.param == "padded":
        monkeypatch.setattr(FlatConv, "_is_fused", lambda self, q: False)
    elif not is_fused("auto", torch.empty(0)):
        pytest.skip("there are no kernels here")
    return request.param


@pytest.mark.parametrize("concat", [True, False])
def test_by_hand(concat):
    tree = tree_with(0)
    conv = FlatConv(6, 4, heads=2, concat=concat)
    nn.init.normal_(conv.bias)
    assert torch.allclose(conv(tree.x, tree), by_hand(conv, tree.x), atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
def test_positions_by_hand(heads):
    tree = tree_with(0)
    position = ReadingOrder(8, heads)
    conv = FlatConv(6, 4, heads=2, position=position)
    expected = by_hand(conv, tree.x, position(tree))
    assert torch.allclose(conv(tree.x, tree), expected, atol=1e-5)


def test_who_runs_kernels(way):
    q = torch.empty(0)
    conv = FlatConv(6, 4, dropout=0.5)
    assert conv.eval()._is_fused(q) == (way == "kernels")
    if way == "kernels":
        assert conv._is_fused(q.double())
        assert not conv._is_fused(q.bfloat16())
        assert not conv.train()._is_fused(q)
        assert not FlatConv(6, 4, pair_bias=AncestorBias())._is_fused(q)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_ways_agree(way, weighted):
    """Outputs and gradients, in float64, on trees of many sizes."""
    trees = [tree_with(seed) for seed in range(6)] + [tree_with(9, "chain")]
    if weighted:
        for tree in trees:
            tree.leaf_weight = torch.randint(1, 5, (tree.num_leaves,))
    batch = Batch.from_data_list(trees)
    conv = FlatConv(6, 4, heads=2, position=ReadingOrder(8, 2), energy="l2").double()
    found = []
    for ask in (conv._is_fused, lambda q: False):
        conv._is_fused = ask
        x = batch.x.double().requires_grad_()
        out = conv(x, batch)
        grads = torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])
        found.append([out, *grads])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


OPTIONS = [
    {},
    {"energy": "l2"},
    {"values": "keys"},
    {"qk_norm": True},
    {"energy": "l2", "values": "keys", "qk_norm": True},
]
options = pytest.mark.parametrize("options", OPTIONS, ids=str)


@options
def test_options_by_hand(options):
    tree = tree_with(0)
    position = ReadingOrder(8, 2)
    conv = FlatConv(6, 4, heads=2, position=position, **options)
    if conv.norm_q is not None:
        nn.init.normal_(conv.norm_k.weight)
    expected = by_hand(conv, tree.x, position(tree))
    assert torch.allclose(conv(tree.x, tree), expected, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = conv(tree.x, tree)
    assert torch.allclose(half.float(), expected, atol=0.1)
    narrow = copy.deepcopy(conv).to(torch.bfloat16)(tree.x.bfloat16(), tree)
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(narrow.float(), expected, atol=0.1)


@options
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_hsa_conv_at_depth_one(options, weighted):
    trees = [tree_with(seed, shape="flat") for seed in (1, 2)]
    batch = Batch.from_data_list(trees)
    if weighted:
        batch.leaf_weight = torch.arange(batch.num_nodes) % 3 + 1
    flat, hsa = FlatConv(6, 4, heads=2, **options), HSAConv(6, 4, heads=2, **options)
    hsa.load_state_dict(flat.state_dict())
    assert torch.allclose(flat(batch.x, batch), hsa(batch.x, batch), atol=1e-5)


def test_keys_far_from_the_origin():
    """|k|^2 of 1e8 beside differences of 1, in float32."""
    tree = tree_with(0)
    conv = FlatConv(6, 4, heads=2, energy="l2")
    near, far = conv(tree.x, tree), FlatConv(6, 4, heads=2, energy="l2")
    far.lin_qkv.register_forward_hook(
        lambda lin, args, out: out + torch.tensor([4096.0] * 16 + [0.0] * 8)
    )
    far.load_state_dict(conv.state_dict())
    assert torch.allclose(far(tree.x, tree), near, atol=2e-2)


def test_a_forest_equals_its_trees():
    trees = [tree_with(seed) for seed in range(6)] + [tree_with(0, "single")]
    conv = FlatConv(6, 4, heads=2)
    assert_forest_equals_trees(lambda tree: conv(tree.x, tree), trees, atol=1e-5)


def test_trees_whose_leaves_interleave():
    """Leaves 0, 2 belong to one tree, 1, 3 to another."""
    index = torch.tensor([[4, 4, 5, 5], [0, 2, 1, 3]])
    plan = TreePlan.from_index(index, torch.tensor([1, 1, 1, 1, 0, 0]))
    conv = FlatConv(6, 4, heads=2)
    x = torch.randn(4, 6)
    out = conv(x, plan)
    one = SignalTree.from_parents([2, 2, -1])
    assert torch.allclose(out[[0, 2]], conv(x[[0, 2]], one), atol=1e-6)
    assert torch.allclose(out[[1, 3]], conv(x[[1, 3]], one), atol=1e-6)


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_dropout_in_training_only(p):
    tree = tree_with(2)
    conv = FlatConv(6, 4, heads=2, dropout=p)
    out = conv(tree.x, tree)
    assert out.isfinite().all()
    assert not torch.allclose(out, by_hand(conv, tree.x), atol=1e-3)
    if p == 1.0:
        assert torch.equal(out, torch.zeros_like(out))
    conv.eval()
    assert torch.allclose(conv(tree.x, tree), by_hand(conv, tree.x), atol=1e-5)


def test_gradients_reach_everything():
    batch = Batch.from_data_list([tree_with(seed) for seed in range(3)])
    conv = FlatConv(6, 4, heads=2, position=ReadingOrder())
    conv(batch.x, batch).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in conv.parameters())


def test_no_trees_and_lazy_sizes():
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    assert FlatConv(6, 4, heads=2)(torch.randn(0, 6), plan).shape == (0, 8)
    assert FlatConv(6, 4, heads=2, concat=False)(torch.randn(0, 6), plan).shape == (0, 4)
    tree = tree_with(3)
    assert FlatConv(-1, 4, heads=2)(tree.x, tree).shape == (tree.num_leaves, 8)


def test_what_is_refused():
    tree = tree_with(3)
    with pytest.raises(ShapeError, match=r"give \[N, 6\]"):
        FlatConv(6, 4)(torch.randn(tree.num_leaves, 5), tree)
    with pytest.raises(ShapeError, match=rf"N={tree.num_leaves} leaves"):
        FlatConv(6, 4)(torch.randn(tree.num_leaves + 1, 6), tree)


@pytest.mark.parametrize("wrong", [{"energy": "l3"}, {"values": "queries"}])
def test_unknown_options(wrong):
    with pytest.raises(ShapeError, match=f"{next(iter(wrong))}=.* is unknown"):
        FlatConv(6, 4, **wrong)


@pytest.mark.parametrize("layer", [FlatConv, HSAConv, DeepSetConv, LeafConv])
def test_no_outputs(layer):
    for out_channels, heads in ((4, 0), (0, 1), (4, -1)):
        with pytest.raises(ShapeError, match=f"heads={heads} and out_channels={out_channels} must"):
            layer(4, out_channels, heads)


@pytest.mark.parametrize("dropout", [2, -0.1, float("nan"), "0.5", None])
def test_dropout_is_a_probability(dropout):
    with pytest.raises(ShapeError, match=r"dropout=.* is no probability"):
        FlatConv(6, 4, dropout=dropout)


def test_reset_and_repr():
    conv = FlatConv(6, 4, heads=2, position=ReadingOrder())
    for parameter in conv.parameters():
        nn.init.constant_(parameter, 0.123)
    conv.reset_parameters()
    assert not any((p == 0.123).all() for p in conv.parameters())
    assert repr(conv) == "FlatConv(6, 4, heads=2)"


def test_mixing_is_what_the_layer_does_to_its_values():
    torch.manual_seed(0)
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
    for bias in (None, AncestorBias(2)):  # by kernels, and padded
        conv = FlatConv(16, 8, heads=2, pair_bias=bias, position=ReadingOrder(8, heads=2)).eval()
        values = conv.lin_qkv(tree.x).view(4, 3, 2, 8)[:, 2]
        torch.testing.assert_close(conv.mixing(tree.x, tree)(values).flatten(1), conv(tree.x, tree))
        wide = torch.randn(4, 2, 40)
        out = conv.mixing(tree.x, tree)(wide)
        assert out.shape == wide.shape
        torch.testing.assert_close(out[..., :1], conv.mixing(tree.x, tree)(wide[..., :1]))
