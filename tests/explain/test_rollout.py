"""Attention rollout: against the products of dense matrices."""

from __future__ import annotations

import pytest
import torch
from explain_cases import classifier
from torch import nn
from torch_geometric.nn import GCNConv

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain import attention_rollout, layer_weights, subtree_sum
from hsa_geo.explain.rollout import readout_shares
from hsa_geo.nn import HSAConv, HSAEncoder, OffsetBias, SubtreeClassifier
from hsa_geo.testing import SHAPES, random_tree


def tree_of(seed=3, shape="mixed", features=5):
    tree = random_tree(seed, shape=shape)
    tree.tree_domain[tree.tree_domain == Domain.GRAPH] = Domain.SEQUENCE
    torch.manual_seed(seed)
    tree.x = torch.randn(tree.num_leaves, features, dtype=torch.float64)
    return tree


def dense_shares(model, tree, node):
    """Shares of the leaves in the readout, by walking the tree."""
    n, kids = tree.num_leaves, {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)
    share = torch.zeros(n, dtype=torch.float64)
    under = subtree_sum(torch.eye(n, dtype=torch.float64), tree)[node]  # [N], 1 below
    name = model.config["readout"]
    if name == "mean":
        return under / under.sum()
    if name == "root":
        stack = [(node, 1.0)]
        while stack:
            one, part = stack.pop()
            if one < n:
                share[one] = part
            stack += [(kid, part / len(kids[one])) for kid in kids.get(one, [])]
        return share
    with torch.no_grad():
        h = model.leaves(tree)
        if name == "attention":
            score = h @ model.readout.lin.weight.t()
        else:
            key = model.readout.lin_kv(h)[:, :16].view(n, 4, 4)
            score = (key * model.readout.query[0]).sum(-1) / 2
        return score.masked_fill(under[:, None] == 0, -torch.inf).softmax(0).mean(1)


def dense_rollout(model, tree, node, residual=0.5, head=None):
    share = dense_shares(model, tree, node)
    for weights in reversed(layer_weights(model, tree)):
        theta = weights.to_dense()  # [H, N, N]
        theta = theta.mean(0) if head is None else theta[head]
        share = residual * share + (1 - residual) * share @ theta
    return share


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rollout_is_the_product_of_dense_matrices(shape, tie):
    tree, model = tree_of(shape=shape), classifier(tie=tie)
    scores = attention_rollout(model, tree)
    expected = dense_rollout(model, tree, tree.num_tree_nodes - 1)
    torch.testing.assert_close(scores.leaf, expected)
    torch.testing.assert_close(scores.node, subtree_sum(expected, tree))
    assert float(scores.leaf.min()) >= 0
    assert float(scores.node[-1]) == pytest.approx(1)
    assert scores.target is None
    assert scores.gap is None


@pytest.mark.parametrize("backend", ["auto", "block", "edge"])
@pytest.mark.parametrize("readout", ["mean", "root", "attention", "query"])
def test_every_readout_subtree_head_and_backend(readout, backend):
    tree = tree_of()
    model = classifier(readout=readout, backend=backend, energy="l2", qk_norm=True, values="keys")
    root = tree.num_tree_nodes - 1
    for node in (None, tree.num_leaves, 0):
        at = root if node is None else node
        scores = attention_rollout(model, tree, node=node, head=2, residual=0.25)
        torch.testing.assert_close(scores.leaf, dense_rollout(model, tree, at, 0.25, head=2))


def test_leaves_that_count_several_times():
    tree = tree_of()
    tree.leaf_weight = torch.randint(1, 4, (tree.num_leaves,))
    for readout in ("mean", "root", "attention", "query"):
        scores = attention_rollout(classifier(readout=readout), tree)
        assert float(scores.leaf.sum()) == pytest.approx(1)
        # A leaf of weight w is w leaves.
        parent = dict(tree.tree_index.flip(0).t().tolist())
        copies = torch.repeat_interleave(torch.arange(tree.num_leaves), tree.leaf_weight)
        inner = {node: len(copies) + k for k, node in enumerate(sorted(set(parent.values())))}
        ids = [inner[parent[i]] for i in copies.tolist()] + [
            inner.get(parent.get(node, -1), -1) for node in sorted(inner)
        ]
        many, order = SignalTree.from_parents(
            ids, x=tree.x[copies], keep_leaf_order=True, return_order=True
        )
        del order
        flat = classifier(readout=readout, position_channels=0)
        one, more = attention_rollout(flat, tree).leaf, attention_rollout(flat, many).leaf
        torch.testing.assert_close(one, torch.zeros_like(one).index_add(0, copies, more))


@pytest.mark.parametrize("structure", [False, True])
def test_flat_attention_is_rolled_out_as_well(structure):
    tree = tree_of(shape="mixed")
    model = classifier(attention="flat", structure=structure)
    scores = attention_rollout(model, tree)
    share = torch.full((tree.num_leaves,), 1 / tree.num_leaves, dtype=torch.float64)
    inputs = []
    for block in model.encoder.blocks:
        block.conv.register_forward_pre_hook(lambda module, args: inputs.append(args))
    model(tree)
    ones = torch.eye(tree.num_leaves, dtype=torch.float64)[:, None].expand(-1, 4, -1)
    for block, args in reversed(list(zip(model.encoder.blocks, inputs))):
        theta = block.conv.mixing(*args)(ones).detach().mean(1)
        torch.testing.assert_close(theta.sum(1), torch.ones(len(theta), dtype=torch.float64))
        share = (share + share @ theta) / 2
    torch.testing.assert_close(scores.leaf, share)


def test_models_of_ones_own():
    tree = tree_of()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = HSAConv(5, 4, heads=2), HSAConv(8, 8, tie="key")
            self.first.pair_bias = OffsetBias(2, heads=2)

        def forward(self, x, tree):
            self.seen = [x, self.first(x, tree)]
            return self.second(self.seen[1], tree)

    torch.manual_seed(0)
    net = Net().double()
    for table in net.first.pair_bias.parameters():
        nn.init.normal_(table)
    share = torch.rand(tree.num_leaves, dtype=torch.float64)
    scores = attention_rollout(
        net, tree, residual=0, shares=share, run=lambda model, tree: model(tree.x, tree)
    )
    for conv, x in ((net.second, net.seen[1]), (net.first, net.seen[0])):
        theta = conv(x, tree, return_attention_weights=True)[1].to_dense().mean(0)
        share = share @ theta
    torch.testing.assert_close(scores.leaf, share.detach())
    encoder = HSAEncoder(5, 2, heads=1).double()
    torch.testing.assert_close(
        attention_rollout(encoder, tree).leaf,
        attention_rollout(encoder, tree, run=lambda model, tree: model(tree.x, tree)).leaf,
    )


def test_subtree_classifiers_and_single_leaves():
    tree = SignalTree.from_parents(
        [3, 3, 4, 4, -1],
        text_x=torch.tensor([[5, 0], [7, 1], [7, 0]]),
        text_index=torch.tensor([0, 1, 2]),
    )
    model = SubtreeClassifier(num_ids=16, num_classes=2)
    whole = attention_rollout(model, tree)
    part = attention_rollout(model, tree, node=3)
    assert whole.leaf.tolist() != part.leaf.tolist()
    assert float(part.leaf.sum()) == pytest.approx(1)
    lone = SignalTree.from_parents([-1], x=torch.randn(1, 5, dtype=torch.float64))
    assert attention_rollout(classifier(), lone).leaf.tolist() == [1.0]


def test_a_large_tree_needs_no_matrix():
    """20,000 leaves: a dense matrix would take 1.6 GB a head in float32."""
    n = 20_000
    boxes = n + torch.arange(200)
    parent = torch.cat([boxes.repeat_interleave(100), torch.full((200,), n + 200)])
    tree = SignalTree.from_parents([*parent.tolist(), -1], x=torch.randn(n, 5))
    scores = attention_rollout(classifier(dtype=torch.float32), tree)
    assert float(scores.node[-1]) == pytest.approx(1, abs=1e-4)


def test_dropout_is_off_and_modes_come_back():
    tree, model = tree_of(), classifier(dropout=0.5, attention_dropout=0.5)
    model.train()
    model.lin.eval()
    first, second = attention_rollout(model, tree), attention_rollout(model, tree)
    assert torch.equal(first.leaf, second.leaf)
    assert model.training
    assert model.encoder.training
    assert not model.lin.training
    flat = classifier(attention="flat", attention_dropout=0.5).train()
    assert torch.equal(attention_rollout(flat, tree).leaf, attention_rollout(flat, tree).leaf)


def test_what_cannot_be_followed_is_refused():
    tree = tree_of()

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.graph, self.conv = GCNConv(5, 5), HSAConv(5, 5)

    for model, what in (
        (classifier(attention="deep_set"), "DeepSetConv"),
        (classifier(attention="none"), "no attention layer"),
        (Mixed(), "GCNConv"),
        (nn.MultiheadAttention(4, 1), "MultiheadAttention"),
    ):
        with pytest.raises(UnsupportedError, match=what):
            attention_rollout(model, tree)
    model = classifier()
    for options, error in (
        ({"residual": 1.5}, ShapeError),
        ({"residual": "half"}, ShapeError),
        ({"head": 4}, ShapeError),
        ({"head": -1}, ShapeError),
        ({"node": tree.num_tree_nodes}, ShapeError),
        *(({"shares": shares}, ShapeError) for shares in shares_that_are_none(tree.num_leaves)),
        ({"node": 0, "run": lambda model, tree: model(tree)}, UnsupportedError),
    ):
        with pytest.raises(error):
            attention_rollout(model, tree, **options)


def shares_that_are_none(n):
    ones = torch.ones(n)
    yield from (torch.ones(3), torch.ones(n, 1), torch.tensor(1.0), [1.0] * n, 1.0, "mean")
    yield from (-ones, ones * float("nan"), ones / 0, 0 * ones, ones * 1j)


def test_shares_may_be_counts_and_errors_say_what_is_wrong():
    tree, model = tree_of(), classifier()
    counts = torch.arange(tree.num_leaves)
    found = attention_rollout(model, tree, shares=counts)
    assert torch.equal(found.leaf, attention_rollout(model, tree, shares=counts.double()).leaf)
    counts[3] = -7
    with pytest.raises(ShapeError, match="shares hold -7: give finite numbers"):
        attention_rollout(model, tree, shares=counts)
    with pytest.raises(ShapeError, match="shares is a list: give a number for each of the N="):
        attention_rollout(model, tree, shares=[1.0])


def test_shares_of_a_plain_mean():
    tree = tree_of()
    shares = readout_shares(None, tree.x, tree)
    assert shares.tolist() == pytest.approx([1 / tree.num_leaves] * tree.num_leaves)
