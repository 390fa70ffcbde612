"""Embeddings of positions, by domain."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree, TreePlan
from hsa_geo.errors import DomainError, ShapeError
from hsa_geo.nn import (
    FlatConv,
    FourierPosition,
    GraphPosition,
    HSAConv,
    HSAEncoder,
    PositionEmbedding,
    ReadingOrder,
    register_position,
    unregister_position,
)
from hsa_geo.testing import random_tree


def sequence(*positions: float, domain: Domain = Domain.SEQUENCE) -> SignalTree:
    n = len(positions)
    return SignalTree.from_parents([n] * n + [-1], domain=domain, pos=[*positions, 0])


def grid(rows: int, columns: int) -> SignalTree:
    n = rows * columns
    places = [[i // columns, i % columns] for i in range(n)]
    return SignalTree.from_parents([n] * n + [-1], domain=Domain.GRID2D, pos=[*places, [0, 0]])


# PositionEmbedding ###############################################################################


def test_a_shifted_sequence_scores_the_same():
    embed = PositionEmbedding(16, heads=2)
    e, shifted = (embed(sequence(*(i + by for i in (0, 1, 4, 9))))[:4] for by in (0, 50))
    products = [torch.einsum("ihp,jhp->hij", t, t) for t in (e, shifted)]
    assert torch.allclose(*products, atol=1e-4)
    assert not torch.allclose(e, shifted, atol=0.1)


def test_sets_and_roots_are_nowhere():
    embed = PositionEmbedding(16, heads=2)
    tree = sequence(0, 1, 2, domain=Domain.SET)
    tree.tree_pos += 1  # there may be numbers, but they mean nothing
    assert embed(tree).abs().max() == 0
    tree = sequence(0, 1, 2)
    tree.tree_pos += 1
    out = embed(tree)
    assert out[-1].abs().max() == 0
    assert (out[:-1].abs().amax((1, 2)) > 0).all()


def test_a_node_lies_in_its_parents_domain():
    """root (sequence) -> set of leaves, grid of leaves."""
    parents = [4, 4, 5, 5, 6, 6, -1]
    domain = [-1, -1, -1, -1, Domain.SET, Domain.GRID2D, Domain.SEQUENCE]
    pos = [[1, 1], [2, 2], [0, 1], [1, 0], [0, 0], [1, 0], [0, 0]]
    tree = SignalTree.from_parents(parents, domain=domain, pos=pos)
    embed = PositionEmbedding(8, heads=2)
    out = embed(tree)
    assert out.shape == (7, 2, 8)
    sequence_, grid_ = embed.embed["SEQUENCE"], embed.embed["GRID2D"]
    assert torch.equal(out[[4, 5]], sequence_(tree.tree_pos[[4, 5]]))
    assert torch.equal(out[[2, 3]], grid_(tree.tree_pos[[2, 3]]))
    assert out[[0, 1, 6]].abs().max() == 0


def test_a_grid_uses_both_coordinates():
    embed = PositionEmbedding(64)
    tree = grid(3, 4)
    e = embed(tree)[:12, 0].view(3, 4, 64)
    assert not torch.allclose(e[0, 0], e[0, 1], atol=0.05)
    assert not torch.allclose(e[0, 0], e[1, 0], atol=0.05)
    here = e[1, 1] @ e[1, 1]
    assert e[1, 1] @ e[1, 2] < here
    assert e[1, 1] @ e[2, 1] < here
    # The same offset anywhere scores the same.
    assert torch.allclose(e[0, 0] @ e[1, 2], e[1, 1] @ e[2, 3], atol=1e-5)


def test_parameters_of_the_domains_that_occur_get_gradients():
    embed = PositionEmbedding(8, heads=2)
    for tree, name in ((sequence(0, 1, 2), "SEQUENCE"), (grid(2, 2), "GRID2D")):
        embed.zero_grad()
        e = embed(tree)
        torch.einsum("ihp,jhp->hij", e, e).square().sum().backward()
        for parameter in embed.embed[name].parameters():
            assert (parameter.grad.abs() > 0).all()


def test_graphs_need_a_module():
    tree = sequence(0, 1, 2, domain=Domain.GRAPH)
    with pytest.raises(DomainError, match=r"GRAPH.*domains=\{Domain\.GRAPH: module\}"):
        PositionEmbedding(8)(tree)
    given = nn.Sequential(nn.Linear(2, 8), nn.Unflatten(1, (1, 8)))
    embed = PositionEmbedding(8, heads=3, domains={Domain.GRAPH: given})
    out = embed(tree)
    assert out.shape == (4, 3, 8)
    assert torch.equal(out[:3, 0], given(tree.tree_pos[:3])[:, 0])
    out.sum().backward()
    assert given[0].weight.grad.abs().max() > 0
    nothing = PositionEmbedding(8, domains={Domain.GRAPH: None})
    assert nothing(tree).abs().max() == 0
    assert PositionEmbedding(8, domains={3: None})(tree).abs().max() == 0


def test_a_module_of_the_wrong_width():
    tree = sequence(0, 1, 2, domain=Domain.GRAPH)
    embed = PositionEmbedding(8, heads=3, domains={Domain.GRAPH: nn.Linear(2, 8)})
    with pytest.raises(ShapeError, match=r"GRAPH gives \[3, 8\]"):
        embed(tree)
    embed = PositionEmbedding(8, domains={Domain.GRAPH: FourierPosition(2, 6)})
    with pytest.raises(ShapeError, match=r"\[3, 1, 6\]: \[3, 1, 8\] is needed"):
        embed(tree)


def test_a_domain_can_be_replaced():
    embed = PositionEmbedding(8, domains={Domain.SEQUENCE: None})
    assert embed(sequence(0, 1, 2)).abs().max() == 0
    assert list(embed.embed) == ["GRID2D"]


def test_a_tree_without_positions():
    tree = SignalTree.from_parents([2, 2, -1])
    bare = SignalTree(tree_index=tree.tree_index, tree_level=tree.tree_level, num_nodes=2)
    with pytest.raises(ShapeError, match="tree_pos"):
        PositionEmbedding(8)(bare)


def test_batches():
    embed = PositionEmbedding(8, heads=2, domains={Domain.GRAPH: None})
    trees = [random_tree(seed) for seed in range(8)]
    together = embed(Batch.from_data_list(trees))
    assert torch.allclose(together, torch.cat([embed(tree) for tree in trees]), atol=1e-6)


def test_dtypes_and_reset():
    tree = sequence(0, 1, 2)
    assert PositionEmbedding(8).double()(tree).dtype == torch.float64
    assert PositionEmbedding(8).bfloat16()(tree).dtype == torch.float32
    embed = PositionEmbedding(8)
    before = embed(tree)
    embed.reset_parameters()
    assert not torch.allclose(embed(tree), before)


def test_encodings_of_a_graph_are_read_where_siblings_form_one():
    """root (graph) -> graph of leaves, sequence of leaves."""
    domain = [-1, -1, -1, -1, Domain.GRAPH, Domain.SEQUENCE, Domain.GRAPH]
    pe = torch.randn(7, 5)
    tree = SignalTree.from_parents(
        [4, 4, 5, 5, 6, 6, -1], domain=domain, pos=[0, 0, 0, 1, 0, 0, 0], tree_pe=pe
    )
    graph = GraphPosition(5, channels=8, heads=2)
    embed = PositionEmbedding(8, heads=2, domains={Domain.GRAPH: graph})
    out = embed(tree)
    assert torch.equal(out[[0, 1, 4, 5]], graph(pe[[0, 1, 4, 5]]))
    assert torch.equal(out[[2, 3]], embed.embed["SEQUENCE"](tree.tree_pos[[2, 3]]))
    assert not out[6].any()
    x = torch.randn(4, 16)
    layer = HSAEncoder(16, 1, heads=2, position=lambda: embed)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(x, tree), layer(x, tree))
    del tree.tree_pe
    with pytest.raises(ShapeError, match=r"reads tree_pe.*AddTreePE"):
        embed(tree)


def test_what_is_registered_is_the_default():
    class Constant(nn.Module):
        def __init__(self, channels, heads):
            super().__init__()
            self.shape = (heads, channels)

        def forward(self, position):
            return torch.ones(len(position), *self.shape)

    tree = sequence(0, 1, domain=Domain.GRAPH)
    with pytest.raises(DomainError, match=r"GRAPH.*GraphPosition"):
        PositionEmbedding(4, heads=2)(tree)
    older = PositionEmbedding(4, heads=2)
    assert register_position(Domain.GRAPH, Constant) is None
    try:
        assert PositionEmbedding(4, heads=2)(tree)[:2].eq(1).all()
        assert not PositionEmbedding(4, domains={Domain.GRAPH: None})(tree).any()
        with pytest.raises(DomainError):  # what exists stays
            older(tree)
    finally:
        assert unregister_position(Domain.GRAPH) is Constant
    with pytest.raises(DomainError, match="GRAPH"):
        PositionEmbedding(4)(tree)
    with pytest.raises(DomainError, match="domain=9 is none"):
        register_position(9, None)


def test_a_layer_with_a_position_module_of_its_own():
    tree = sequence(0, 1, 2)
    conv = HSAConv(4, 4, position=PositionEmbedding(4, domains={Domain.SEQUENCE: None}))
    x = torch.randn(3, 4)
    assert torch.equal(conv(x, tree), conv(x, tree, pos=torch.zeros(4, 1, 4)))


# ReadingOrder ####################################################################################


def test_reading_order_counts_the_leaves_of_each_tree():
    embed = ReadingOrder(8, heads=2)
    trees = [random_tree(seed) for seed in range(6)]
    places = torch.cat([torch.arange(tree.num_leaves) for tree in trees])
    expected = embed.embed(places[:, None].float())
    assert torch.allclose(embed(Batch.from_data_list(trees)), expected, atol=1e-6)


def test_reading_order_of_trees_whose_leaves_interleave():
    index = torch.tensor([[4, 4, 5, 5], [2, 0, 1, 3]])  # rows 2, 0 and rows 1, 3
    plan = TreePlan.from_index(index, torch.tensor([1, 1, 1, 1, 0, 0]))
    embed = ReadingOrder(8)
    expected = embed.embed(torch.tensor([[1.0], [0.0], [0.0], [1.0]]))
    assert torch.equal(embed(plan), expected)


def test_reading_order_tells_leaves_apart_in_flat_attention():
    tree = sequence(0, 0, 0, 0)
    x = torch.ones(4, 4)
    x[1] += 1
    out = FlatConv(4, 4)(x, tree)
    assert torch.allclose(out[0], out[3])
    conv = FlatConv(4, 4, position=ReadingOrder())
    out = conv(x, tree)
    assert not torch.allclose(out[0], out[3], atol=1e-4)
    out.square().sum().backward()
    assert all(p.grad is not None for p in conv.parameters())


def test_reading_order_reset_repr_and_refusals():
    embed = ReadingOrder(8, heads=2)
    before = embed(sequence(0, 1))
    embed.reset_parameters()
    assert not torch.allclose(embed(sequence(0, 1)), before)
    assert repr(embed) == "ReadingOrder(8, heads=2)"
    assert embed.bfloat16()(sequence(0, 1)).dtype == torch.float32
    with pytest.raises(ShapeError, match="channels=7"):
        ReadingOrder(7)
    with pytest.raises(ShapeError, match="Tensor"):
        embed(torch.arange(3))


def test_what_was_registered_and_forgotten_leaves_no_trace():
    def weights() -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return PositionEmbedding(8).state_dict()

    before = weights()
    register_position(Domain.SEQUENCE, None)
    unregister_position(Domain.SEQUENCE)
    after = weights()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
