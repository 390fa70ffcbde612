"""Scores of leaves and their sums over subtrees."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain import LeafScores, subtree_sum
from hsa_geo.explain.scores import one_tree
from hsa_geo.testing import SHAPES, random_tree


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_those_of_the_children(shape):
    tree = random_tree(2, shape=shape)
    leaf = torch.randn(tree.num_leaves, 2, dtype=torch.float64)
    node = subtree_sum(leaf, tree)
    assert torch.equal(node[: tree.num_leaves], leaf) or torch.allclose(
        node[: tree.num_leaves], leaf, atol=1e-12
    )
    parent, child = tree.tree_index
    sums = torch.zeros_like(node).index_add(0, parent, node[child])
    torch.testing.assert_close(node[tree.num_leaves :], sums[tree.num_leaves :])


def test_rows_that_are_no_reading_order_and_batches():
    tree = SignalTree.from_parents([4, 3, 4, -1, 3], keep_leaf_order=True)
    other = SignalTree.from_parents([2, 2, -1])
    leaf = torch.tensor([1, 10, 100, 1000, 10000])
    node = subtree_sum(leaf, Batch.from_data_list([tree, other]))
    assert node.dtype == torch.int64
    assert node.tolist() == [1, 10, 100, 101, 111, 1000, 10000, 11000]
    assert subtree_sum(leaf[:3], tree.plan).tolist() == node[:5].tolist()


def test_a_sum_of_half_precision_is_added_in_more():
    tree = SignalTree.from_parents([5000] * 5000 + [-1])
    leaf = torch.ones(5000, dtype=torch.float16)
    assert float(subtree_sum(leaf, tree)[-1]) == 5000


def test_the_gap_is_what_the_scores_lack():
    tree = SignalTree.from_parents([2, 2, -1])
    scores = LeafScores.of(torch.tensor([1.0, 2.0]), tree, "given", value=5.0, baseline=1.0)
    assert scores.gap == 1.0
    assert scores.top(1) == [1]
    assert LeafScores.of(torch.tensor([1.0, 2.0]), tree, "given").gap is None


def test_wrong_inputs_are_refused():
    tree = SignalTree.from_parents([2, 2, -1])
    for leaf in (torch.zeros(3), torch.tensor(1.0), [1.0, 2.0]):
        with pytest.raises(ShapeError, match="N=2"):
            subtree_sum(leaf, tree)
    with pytest.raises(ShapeError, match="Tensor"):
        one_tree(torch.zeros(2))
    with pytest.raises(UnsupportedError, match="2 trees"):
        one_tree(Batch.from_data_list([tree, tree]))
