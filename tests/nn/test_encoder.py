"""The encoder: blocks, options, gradients, other layers in HSAConv's place."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import (
    DeepSetConv,
    EncoderBlock,
    FlatConv,
    HSAConv,
    HSAEncoder,
    PositionEmbedding,
)
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def tree_with(seed: int, channels: int = 16) -> SignalTree:
    tree = random_tree(seed, shape="mixed")
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = int(Domain.SET)
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, channels, generator=generator)
    return tree


def test_a_block_is_what_its_equation_says():
    tree = tree_with(0)
    block = EncoderBlock(HSAConv(16, 4, heads=4), 16, 24).eval()
    x = tree.x
    h = x + block.lin_out(block.conv(block.norm_conv(x), tree))
    expected = h + block.lin_down(torch.nn.functional.gelu(block.lin_up(block.norm_ffn(h))))
    assert torch.allclose(block(x, tree), expected)
    assert block.lin_up.out_features == 24


def test_the_encoder_is_its_blocks_and_a_norm():
    tree = tree_with(1)
    encoder = HSAEncoder(16, num_layers=3, heads=4).eval()
    x = tree.x
    for block in encoder.blocks:
        x = block(x, tree)
    assert len(encoder.blocks) == 3
    assert torch.allclose(encoder(tree.x, tree), encoder.norm(x))


@pytest.mark.parametrize("backend", ["edge", "block"])
@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_every_parameter_gets_a_gradient(backend, energy, qk_norm):
    batch = Batch.from_data_list([tree_with(seed) for seed in range(6)])
    assert {int(Domain.SEQUENCE), int(Domain.GRID2D)} <= set(batch.tree_domain.tolist())
    encoder = HSAEncoder(16, heads=2, energy=energy, qk_norm=qk_norm, backend=backend)
    encoder(batch.x, batch).square().sum().backward()
    without = [name for name, p in encoder.named_parameters() if p.grad is None]
    assert without == []
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


def test_options_reach_the_layers():
    encoder = HSAEncoder(
        12, heads=3, energy="l2", qk_norm=True, backend="edge", dropout=0.25, hidden_channels=7
    )
    for block in encoder.blocks:
        conv = block.conv
        assert (conv.in_channels, conv.out_channels, conv.heads) == (12, 4, 3)
        assert (conv.energy, conv.backend, conv.dropout) == ("l2", "edge", 0.25)
        assert conv.norm_q is not None
        assert conv.position.channels == 16
        assert block.lin_up.out_features == 7
        assert block.dropout.p == 0.25
    other = HSAEncoder(12, heads=3, dropout=0.25, attention_dropout=0.0, position_channels=8)
    assert other.blocks[0].conv.dropout == 0.0
    assert other.blocks[0].conv.position.channels == 8
    assert HSAEncoder(12, heads=3, position_channels=0).blocks[0].conv.position is None
    assert HSAEncoder(12, heads=3).blocks[0].lin_up.out_features == 48


def test_backends_agree():
    batch = Batch.from_data_list([tree_with(seed) for seed in range(4)])
    encoder = HSAEncoder(16, heads=2, backend="edge").double().eval()
    other = HSAEncoder(16, heads=2, backend="block").double().eval()
    other.load_state_dict(encoder.state_dict())
    x = batch.x.double()
    assert torch.allclose(encoder(x, batch), other(x, batch), atol=1e-11)


def test_a_forest_equals_its_trees():
    encoder = HSAEncoder(16).eval()
    trees = [tree_with(seed) for seed in range(5)]
    assert_forest_equals_trees(lambda t: encoder(t.x, t), trees, atol=1e-5)


def test_dropout_in_training_only():
    tree = tree_with(2)
    encoder = HSAEncoder(16, dropout=0.3)
    assert not torch.equal(encoder(tree.x, tree), encoder(tree.x, tree))
    encoder.eval()
    assert torch.equal(encoder(tree.x, tree), encoder(tree.x, tree))


@pytest.mark.parametrize(
    "make",
    [
        lambda: FlatConv(16, 4, heads=4),
        lambda: DeepSetConv(16, 4, heads=4),
        lambda: HSAConv(16, 16),
    ],
    ids=["flat", "deep set", "hsa"],
)
def test_other_layers_in_its_place(make):
    tree = tree_with(3)
    encoder = HSAEncoder(16, heads=4, conv=make)
    assert encoder(tree.x, tree).shape == tree.x.shape
    kinds = {type(block.conv) for block in encoder.blocks}
    assert kinds == {type(make())}
    assert encoder.blocks[0].conv is not encoder.blocks[1].conv


def test_flat_and_hsa_have_the_same_number_of_parameters():
    def size(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters())

    hsa = HSAEncoder(16, heads=4, position_channels=0)
    flat = HSAEncoder(16, heads=4, conv=lambda: FlatConv(16, 4, heads=4))
    deep = HSAEncoder(16, heads=4, conv=lambda: DeepSetConv(16, 4, heads=4))
    assert size(hsa) == size(flat) == size(deep)


@pytest.mark.parametrize(("channels", "heads"), [(10, 4), (8, 0), (8, -2), (0, 1), (-4, 2)])
def test_heads_must_divide_channels(channels, heads):
    with pytest.raises(ShapeError, match=f"channels={channels} .* heads={heads}"):
        HSAEncoder(channels, heads=heads)


@pytest.mark.parametrize(
    "sizes",
    [{"num_layers": -1}, {"hidden_channels": 0}, {"hidden_channels": -3, "num_layers": 0}],
)
def test_sizes_that_mean_nothing(sizes):
    name, value = next(iter(sizes.items()))
    with pytest.raises(ShapeError, match=f"{name}={value}"):
        HSAEncoder(8, **sizes)


def test_a_block_has_features():
    for channels, hidden in ((0, 4), (8, 0)):
        with pytest.raises(ShapeError, match=r"channels=0 is no positive whole number"):
            EncoderBlock(nn.Identity(), channels, hidden)


def test_no_layers_and_no_final_norm_is_the_identity():
    tree = tree_with(0)
    assert torch.equal(HSAEncoder(16, num_layers=0, final_norm=False)(tree.x, tree), tree.x)
    encoder = HSAEncoder(16, zero_init=True, final_norm=False)
    assert torch.equal(encoder(tree.x, tree), tree.x)


@pytest.mark.parametrize(
    "option",
    [
        {"energy": "l2"},
        {"qk_norm": True},
        {"backend": "edge"},
        {"position_channels": 16},
        {"position_channels": 0},
        {"attention_dropout": 0.0},
    ],
)
def test_options_of_a_layer_that_is_replaced_are_refused(option):
    with pytest.raises(UnsupportedError, match=next(iter(option))):
        HSAEncoder(16, conv=lambda: FlatConv(16, 4, heads=4), **option)


def test_reset_parameters():
    encoder = HSAEncoder(16)
    for parameter in encoder.parameters():
        nn.init.constant_(parameter, 0.123)
    encoder.reset_parameters()
    left = [name for name, p in encoder.named_parameters() if (p == 0.123).all()]
    assert left == []


def test_copies_state_and_repr():
    tree = tree_with(4)
    encoder = HSAEncoder(16).eval()
    out = encoder(tree.x, tree)
    other = HSAEncoder(16).eval()
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(tree.x, tree), out)
    assert torch.equal(copy.deepcopy(encoder)(tree.x, tree), out)
    assert repr(encoder) == "HSAEncoder(16, num_layers=2, heads=4)"


def test_it_learns_what_only_the_hierarchy_tells():
    """Targets are means of each leaf's own group.

    Who sees the other eight leaves and not the groups cannot do better than a variance of
    2 (1 - 2/8) / 9 = 1/6, that of the sum of two of eight drawn at random.
    """
    parents = [9 + i // 3 for i in range(9)] + [12, 12, 12, -1]
    batch = Batch.from_data_list([SignalTree.from_parents(parents)] * 64)

    def train(conv) -> float:
        torch.manual_seed(0)
        own = {} if conv else {"position_channels": 0}
        encoder = HSAEncoder(8, num_layers=1, heads=2, conv=conv, **own)
        head = nn.Linear(8, 1)
        optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.02)
        losses = []
        for _ in range(200):
            x = torch.randn(64 * 9, 8)
            target = x[:, :1].view(-1, 3, 1).mean(1, keepdim=True).expand(-1, 3, 1).reshape(-1, 1)
            loss = (head(encoder(x, batch)) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses[-20:]) / 20

    hsa, flat = train(None), train(lambda: FlatConv(8, 4, heads=2))
    assert hsa < 0.15
    assert flat > 0.16


def test_what_does_not_fit_is_named():
    tree = SignalTree.from_parents([2, 2, -1])
    encoder, conv = HSAEncoder(8, 1, heads=2), HSAConv(8, 4)
    for layer in (encoder, conv):
        with pytest.raises(ShapeError, match=r"x has dtype torch.float64 but .*float32"):
            layer(torch.zeros(2, 8, dtype=torch.float64), tree)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(torch.zeros(2, 8), tree).shape[0] == 2
        assert layer.double()(torch.zeros(2, 8, dtype=torch.float64), tree).dtype == torch.float64
    with pytest.raises(ShapeError, match=r"\[2, 7\]: give \[N, 8\]"):
        encoder(torch.zeros(2, 7), tree)
    with pytest.raises(UnsupportedError, match="is a PositionEmbedding, but every block"):
        HSAEncoder(8, position=PositionEmbedding(4))
    with pytest.raises(UnsupportedError, match="position_channels=4"):
        HSAEncoder(8, position_channels=4, position=lambda: None)
