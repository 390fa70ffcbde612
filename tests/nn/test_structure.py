"""Features and positions that tell a leaf where it stands in the hierarchy."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn import FlatConv, PathPosition, StructureFeatures
from hsa_geo.nn.leaf_paths import leaf_paths
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def chain(levels: int) -> SignalTree:
    """At each level a leaf and an inner node."""
    parent = [-1]
    for i in range(levels):
        parent += [2 * i, 2 * i]
    return SignalTree.from_parents(parent)


def only_codes(position: PathPosition) -> PathPosition:
    """The products of codes alone: no place, depth or order."""
    for wave in (position.place, position.depth, position.order):
        nn.init.constant_(wave.log_strength, -100.0)
    return position


def test_fields_tell_paths_apart():
    """Two leaves of a tree have the same fields only if they are the same leaf."""
    for seed in range(20):
        tree = random_tree(seed, shape="mixed")
        if tree.depth > 4:
            continue
        fields = StructureFeatures(8, levels=4, places=32).fields(tree)
        assert len(fields.unique(dim=0)) == tree.num_leaves


def test_fields_by_hand():
    #        root: leaf 0, inner (leaves 1, 2)
    tree = SignalTree.from_parents([4, 3, 3, 4, -1])
    fields = StructureFeatures(8, levels=2, places=5).fields(tree)
    ended = 5
    assert fields.tolist() == [
        # depth, place/behind of leaf, parent ; of ancestor at level 1, 2
        [1, 0, 0, 1, 0, 0, ended, 1, ended],
        [2, 0, 1, 1, 0, 1, 0, 0, 1],
        [2, 1, 1, 0, 0, 1, 1, 0, 0],
    ]


@pytest.mark.parametrize("make", [StructureFeatures, PathPosition])
def test_a_forest_equals_its_trees(make):
    torch.manual_seed(0)
    trees = [random_tree(seed) for seed in range(12)]
    module = make(16)
    assert_forest_equals_trees(lambda tree: module(tree), trees, atol=1e-5)


def test_codes_count_common_ancestors():
    for seed in range(8):
        tree = random_tree(seed, shape="mixed", max_leaves=16)
        position = only_codes(PathPosition(64, heads=2, levels=3))
        nn.init.zeros_(position.top_gain)
        gains = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 2.0]])
        position.low_gain.data.copy_(gains)
        paths = leaf_paths(tree, 3).low[:, 1:]
        same = (paths[:, None, :, None] == paths[None, :, None, :]) & (paths >= 0)[:, None, :, None]
        for head, gain in enumerate(gains):
            expected = (same * gain[:, None] * gain).sum((2, 3))
            e = position(tree)[:, head]
            assert torch.allclose(e @ e.t(), expected, atol=1e-4)


def test_siblings_are_closest_from_the_start():
    tree = SignalTree.from_parents([6, 6, 7, 7, 8, 8, 9, 9, 10, 10, -1])
    score = torch.einsum("ihp,jhp->ij", *[PathPosition(64)(tree)] * 2)
    for i in range(6):
        others = [j for j in range(6) if j != i]
        assert max(others, key=lambda j: score[i, j].item()) == i ^ 1


def test_codes_of_many_nodes_differ():
    tree = chain(300)
    position = only_codes(PathPosition(16, levels=1))
    nn.init.zeros_(position.top_gain)
    nn.init.ones_(position.low_gain)
    e = position(tree)[:300, 0]
    product = e @ e.t()
    assert torch.allclose(product.diagonal(), torch.ones(300), atol=1e-4)
    assert float((product - torch.eye(300)).max()) < 0.999


def test_flat_attention_finds_siblings():
    """Values of siblings alone, by positions alone: what flat attention has to be able to do."""
    torch.manual_seed(0)
    tree = random_tree(3, shape="mixed", max_leaves=24)
    position = PathPosition(64, levels=2)
    conv = FlatConv(4, 4, position=position, bias=False)
    only_codes(position)
    nn.init.zeros_(position.top_gain)
    position.low_gain.data.copy_(torch.tensor([[6.0, 0.0]]))
    nn.init.zeros_(conv.lin_qkv.weight)
    conv.lin_qkv.weight.data[8:] = torch.eye(4)
    x = torch.randn(tree.num_leaves, 4)
    parent = leaf_paths(tree, 1).low[:, 1]
    mine = (parent[:, None] == parent).float()
    expected = mine @ x / mine.sum(1, keepdim=True)
    assert torch.allclose(conv(x, tree), expected, atol=1e-4)


def test_deep_trees():
    tree = chain(5000)
    assert StructureFeatures(8)(tree).shape == (5001, 8)
    assert PathPosition(16)(tree).isfinite().all()


def test_gradients_reach_everything():
    batch = Batch.from_data_list([random_tree(seed, shape="mixed") for seed in range(4)])
    for module in (StructureFeatures(8), PathPosition(32, heads=2)):
        module(batch).square().mul(torch.rand(1)).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_instances_share_their_codes():
    first, second = PathPosition(16), PathPosition(16)
    assert torch.equal(first.codes, second.codes)
    assert not any("codes" in key for key in first.state_dict())


def test_what_is_refused():
    for channels in (0, 6, 9, 2.0):
        with pytest.raises(ShapeError, match=f"channels={channels}"):
            PathPosition(channels)
    with pytest.raises(ShapeError, match="levels=0"):
        StructureFeatures(8, levels=0)


def test_reset_and_repr():
    position, features = PathPosition(16, heads=2), StructureFeatures(8)
    for module in (position, features):
        for parameter in module.parameters():
            nn.init.constant_(parameter, 0.123)
        module.reset_parameters()
        assert not any((p == 0.123).all() for p in module.parameters())
    assert repr(position) == "PathPosition(16, heads=2, levels=4)"
    assert repr(features) == "StructureFeatures(8, levels=4)"
