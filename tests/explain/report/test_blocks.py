"""What is said of blocks, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.explain import subtree_sum
from hsa_geo.explain.report.blocks import MAX_MEMBERS, block_shares, group_matrices, top_blocks
from hsa_geo.explain.report.outline import Outline
from hsa_geo.ops import attention_weights
from hsa_geo.testing import SHAPES, random_tree


def weights_of(tree, tie):
    torch.manual_seed(0)
    q, k = torch.randn(2, tree.num_leaves, 2, 4, dtype=torch.float64)
    return attention_weights(q, k, tree, tie=tie)


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_shares_are_means_of_the_dense_matrix(shape, tie, weighted):
    tree = random_tree(1, shape=shape)
    if weighted:
        tree.leaf_weight = torch.randint(1, 4, (tree.num_leaves,))
    weights = weights_of(tree, tie)
    shares, stays = block_shares(weights)
    theta = weights.to_dense()
    count = tree.leaf_weight.double() if weighted else torch.ones(tree.num_leaves).double()
    under = subtree_sum(torch.eye(tree.num_leaves, dtype=torch.float64), tree)  # [M, N]
    mean = under * count / (under * count).sum(1, keepdim=True)
    between = torch.einsum("bi,hij,cj->bch", mean, theta, under)  # from B to C
    b, c = tree.plan.pair_nodes
    torch.testing.assert_close(shares, between[b, c])
    nodes = torch.arange(tree.num_tree_nodes)
    torch.testing.assert_close(stays, between[nodes, nodes])


@pytest.mark.parametrize("tie", ["block", "key"])
def test_matrices_of_groups(tie):
    tree = random_tree(5, shape="mixed")
    outline = Outline.of(tree)
    layers = [tuple(part.numpy() for part in block_shares(weights_of(tree, tie))) for _ in range(2)]
    groups, data = group_matrices(tree, outline, layers, np.ones(tree.num_tree_nodes), 10**6)
    assert len(groups) == tree.plan.num_groups
    theta = weights_of(tree, tie).to_dense()
    under = subtree_sum(torch.eye(tree.num_leaves, dtype=torch.float64), tree)
    at = 0
    for above, members in groups:
        m = len(members)
        values = np.frombuffer(data[at : at + 2 * 2 * m * (m + 1)], dtype=np.uint8)
        at += len(values)
        got = (values.reshape(2, 2, m, m + 1) / 255.0) ** 2
        nodes = outline.node[members]
        mean = under[nodes] / under[nodes].sum(1, keepdim=True)
        expected = torch.einsum("bi,hij,cj->hbc", mean, theta, under[nodes])
        expected = expected / expected.sum(-1, keepdim=True)
        for layer in got:
            assert np.abs(layer[..., :-1] - expected.numpy()).max() < 0.01
            assert np.abs(layer[..., -1]).max() < 0.01
        below = outline.node[above : above + outline.size[above]]
        assert set(nodes) <= set(below)
    assert at == len(data)


def test_large_groups_and_small_budgets():
    tree = SignalTree.from_parents([50] * 50 + [-1])
    layer = [part.numpy() for part in block_shares(weights_of(tree, "block"))]
    importance = np.zeros(51)
    chosen = [3, *range(20, 20 + MAX_MEMBERS - 1)]
    importance[chosen] = -1.0
    groups, data = group_matrices(tree, Outline.of(tree), [layer], importance, 10**6)
    ((above, members),) = groups
    assert above == 0
    assert Outline.of(tree).node[members].tolist() == chosen
    rest = (np.frombuffer(data, np.uint8).reshape(2, MAX_MEMBERS, -1) / 255.0) ** 2
    assert np.abs(rest.sum(-1) - 1).max() < 0.05
    assert rest[..., -1].min() > 0.3  # what goes to the 34 others
    assert group_matrices(tree, Outline.of(tree), [layer], importance, 10) == ([], b"")
    assert group_matrices(tree, Outline.of(tree), [], importance, 10**6) == ([], b"")


def test_top_blocks_are_apart_and_positive():
    #        8 (root): 6 (leaves 0, 1, and 5: leaves 2, 3), 7: leaf 4 ...
    tree = SignalTree.from_parents([7, 7, 6, 6, 8, 9, 7, 9, 9, -1])
    leaf = torch.tensor([1.0, 1.0, 5.0, 5.0, 2.0, -1.0])
    node = subtree_sum(leaf, tree).numpy()
    parts = top_blocks(tree, node, 5)
    assert len(parts) == len(set(parts))
    under = subtree_sum(torch.eye(6, dtype=torch.int64), tree)[parts]
    assert int(under.sum(0).max()) == 1  # no leaf in two of them
    assert [float(node[p]) for p in parts] == sorted((float(node[p]) for p in parts), reverse=True)
    assert all(node[p] > 0 for p in parts)
    assert top_blocks(tree, -np.abs(node), 5) == []
    assert top_blocks(SignalTree.from_parents([-1]), np.array([1.0]), 5) == [0]
