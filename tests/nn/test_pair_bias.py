"""Biases of sibling pairs by their offset."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import DomainError, ShapeError
from hsa_geo.nn import HSAConv, OffsetBias
from hsa_geo.testing import random_tree


def drawn(*args, **kwargs):
    bias = OffsetBias(*args, **kwargs)
    for table in bias.parameters():
        torch.nn.init.normal_(table)
    return bias


def expected(bias: OffsetBias, tree: SignalTree) -> torch.Tensor:
    """Pair by pair."""
    parent = dict(reversed(edge) for edge in tree.tree_index.t().tolist())
    rows = []
    for b, c in tree.plan.pair_nodes.t().tolist():
        domain = Domain(int(tree.tree_domain[parent[b]]))
        if domain.name not in bias.table:
            rows.append(torch.zeros(bias.heads))
            continue
        offsets = [
            max(
                -bias.reach,
                min(bias.reach, round(float(tree.tree_pos[c, i] - tree.tree_pos[b, i]))),
            )
            for i in range(2)
        ]
        side = 2 * bias.reach + 1
        at = offsets[0] + bias.reach
        if domain is Domain.GRID2D:
            at = at * side + offsets[1] + bias.reach
        rows.append(bias.table[domain.name][at])
    return torch.stack(rows) if rows else torch.zeros(0, bias.heads)


@pytest.mark.parametrize("seed", range(8))
def test_every_pair_has_the_bias_of_its_offset(seed):
    tree = random_tree(seed)
    m = tree.num_tree_nodes
    generator = torch.Generator().manual_seed(seed)
    tree.tree_domain = torch.where(
        tree.tree_domain < 0, tree.tree_domain, torch.randint(0, 4, (m,), generator=generator)
    )
    tree.tree_pos = torch.randint(0, 6, (m, 2), generator=generator).float()
    bias = drawn(3, heads=2)
    assert torch.allclose(bias(tree), expected(bias, tree))
    batch = Batch.from_data_list([tree, random_tree(seed + 100), tree])
    parts = [bias(part) for part in batch.to_data_list()]
    assert torch.allclose(bias(batch), torch.cat(parts))


def test_behind_differs_from_before():
    tree = SignalTree.from_parents([3, 3, 3, -1], domain=Domain.SEQUENCE, pos=[0, 1, 2, 0])
    bias = OffsetBias(1, heads=1)
    assert not bias(tree).any()  # zero at first
    with torch.no_grad():
        bias.table["SEQUENCE"].copy_(torch.tensor([[-1.0], [0.0], [2.0]]))
    assert bias(tree).flatten().tolist() == [2.0, 2.0, -1.0, 2.0, -1.0, -1.0]


def test_a_layer_learns_its_biases():
    torch.manual_seed(0)
    tree = SignalTree.from_parents([3, 3, 3, -1], domain=Domain.SEQUENCE, pos=[0, 1, 2, 0])
    x = torch.randn(3, 8)
    conv = HSAConv(8, 4, heads=2, pair_bias=drawn(2, heads=2))
    out = conv(x, tree)
    assert torch.allclose(out, conv(x, tree.plan, pair_bias=conv.pair_bias(tree)))
    out.square().sum().backward()
    assert (conv.pair_bias.table["SEQUENCE"].grad.abs().sum(1) > 0).tolist() == [
        True, True, False, True, True,
    ]  # fmt: skip
    conv.reset_parameters()
    assert not conv.pair_bias(tree).any()
    with pytest.raises(ShapeError, match=r"TreePlan, which holds no positions.*pair_bias"):
        conv(x, tree.plan)


def test_what_has_no_offsets_is_refused():
    with pytest.raises(DomainError, match="SET have no offsets"):
        OffsetBias(2, domains=[Domain.SET])
    with pytest.raises(ShapeError, match="reach=0"):
        OffsetBias(0)
    tree = SignalTree.from_parents([2, 2, -1])
    with pytest.raises(ShapeError, match="give a SignalTree"):
        OffsetBias(2)(tree.plan)
