"""Scores by the way between two leaves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn import AncestorBias, FlatConv
from hsa_geo.nn.leaf_paths import leaf_paths
from hsa_geo.testing import SHAPES, assert_forest_equals_trees, random_tree


@pytest.mark.parametrize("levels", [1, 2, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_ways_against_a_walk(shape, levels):
    for seed in range(4):
        tree = random_tree(seed, shape=shape, max_leaves=14)
        n = tree.num_leaves
        full = leaf_paths(tree, n + 1)
        paths = [[int(s) for s in line if s >= 0] for line in full.low]
        steps, level = AncestorBias.ways(tree, torch.arange(n)[None], levels)
        for i in range(n):
            for j in range(n):
                up = next(k for k, slot in enumerate(paths[i]) if slot in paths[j])
                assert steps[0, i, j] == min(up, levels + 1)
                above = max(up, 1) if len(paths[i]) > 1 else 0  # a leaf's own level is its parent's
                assert level[0, i, j] == min(len(paths[i]) - 1 - above, levels)


def with_tables(bias: AncestorBias) -> AncestorBias:
    torch.manual_seed(0)
    for table in bias.parameters():
        nn.init.normal_(table)
    return bias


def test_flat_attention_by_hand():
    tree = random_tree(1, shape="mixed")
    x = torch.randn(tree.num_leaves, 6)
    bias = with_tables(AncestorBias(2, levels=2))
    conv = FlatConv(6, 4, heads=2, pair_bias=bias)
    q, k, v = conv.lin_qkv(x).view(-1, 3, 2, 4).unbind(1)
    score = torch.einsum("ihd,jhd->hij", q, k) / 2
    score = score + bias(tree, torch.arange(tree.num_leaves)[None])[0]
    expected = torch.einsum("hij,jhd->ihd", score.softmax(-1), v).flatten(1)
    assert torch.allclose(conv(x, tree), expected, atol=1e-5)


def test_a_forest_equals_its_trees():
    trees = [random_tree(seed) for seed in range(10)]
    for tree in trees:
        tree.x = torch.randn(tree.num_leaves, 6)
    conv = FlatConv(6, 4, heads=2, pair_bias=with_tables(AncestorBias(2)))
    assert_forest_equals_trees(lambda tree: conv(tree.x, tree), trees, atol=1e-5)


def test_weighted_leaves():
    """A leaf of weight 2 is as two equal siblings."""
    torch.manual_seed(0)
    bias = with_tables(AncestorBias(1, levels=2))
    # The way to oneself differs from that to a sibling, unless the table says the same.
    bias.way.data[0, 0] = bias.way.data[0, 5]
    conv = FlatConv(3, 4, pair_bias=bias)
    x = torch.randn(3, 3)
    twice = SignalTree.from_parents([4, 4, 5, 5, 5, -1])
    once = SignalTree.from_parents([3, 3, 4, 4, -1], leaf_weight=torch.tensor([1, 1, 2]))
    out = conv(torch.stack([x[0], x[1], x[2], x[2]]), twice)
    assert torch.allclose(conv(x, once), out[:3], atol=1e-5)


def test_without_slope_it_starts_without_effect_and_learns():
    tree = random_tree(2, shape="mixed")
    x = torch.randn(tree.num_leaves, 6)
    plain = FlatConv(6, 4, heads=2)
    conv = FlatConv(6, 4, heads=2, pair_bias=AncestorBias(2, slope=0.0))
    conv.load_state_dict(plain.state_dict(), strict=False)
    assert torch.allclose(conv(x, tree), plain(x, tree), atol=1e-6)
    conv(x, tree).square().sum().backward()
    assert all(p.grad.abs().sum().item() > 0 for p in conv.pair_bias.parameters())


def test_the_first_head_starts_under_the_parent():
    """A head of a steep slope sees what its parent holds alone, the last one everything."""
    tree = random_tree(3, shape="mixed")
    bias = AncestorBias(2, slope=50.0)
    near, far = bias(tree, torch.arange(tree.num_leaves)[None])[0].softmax(-1)
    paths = leaf_paths(tree, 20).low
    mine = (paths[:, 1][:, None, None] == paths[None]).any(2).float()
    assert torch.allclose(near, mine / mine.sum(1, keepdim=True), atol=1e-6)
    assert torch.allclose(far, torch.full_like(far, 1 / tree.num_leaves))


def test_leaves_that_interleave():
    """Rows follow the order that FlatConv gives."""
    a, b = random_tree(4, shape="mixed", max_leaves=6), random_tree(5, shape="mixed", max_leaves=9)
    batch = Batch.from_data_list([a, b])
    bias = with_tables(AncestorBias(1))
    rows = torch.full((2, max(a.num_leaves, b.num_leaves)), -1)
    rows[0, : a.num_leaves] = torch.randperm(a.num_leaves)
    rows[1, : b.num_leaves] = torch.randperm(b.num_leaves) + a.num_leaves
    out = bias(batch, rows)
    alone = bias(a, rows[:1, : a.num_leaves])
    assert torch.allclose(out[0, :, : a.num_leaves, : a.num_leaves], alone[0])
    assert not out[0, :, a.num_leaves :].any()


def test_deep_trees():
    parent = [-1]
    for i in range(1000):
        parent += [2 * i, 2 * i]
    tree = SignalTree.from_parents(parent)
    steps, level = AncestorBias.ways(tree, torch.tensor([[0, 500, 1000, -1]]), 4)
    assert steps[0, 0].tolist()[:3] == [0, 1, 1]
    assert steps[0, 1].tolist()[:3] == [5, 0, 1]
    assert level[0, 2].tolist()[:2] == [0, 4]


def test_what_is_refused_and_repr():
    with pytest.raises(ShapeError, match="levels=0"):
        AncestorBias(levels=0)
    with pytest.raises(ShapeError, match="slope=-1"):
        AncestorBias(slope=-1)
    assert repr(AncestorBias(2, levels=3)) == "AncestorBias(heads=2, levels=3)"
