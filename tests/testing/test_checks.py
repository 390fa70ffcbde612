"""The checkers accept what is right and reject what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.ops.reference import reference_attention, reference_matrix
from hsa_geo.testing import (
    assert_batch_invariant,
    assert_block_tied,
    assert_forest_equals_trees,
    assert_row_stochastic,
    assert_sibling_order_invariant,
    random_qkv,
    random_tree,
)


def tree_with_x(seed: int, shape: str = "mixed") -> SignalTree:
    tree = random_tree(seed, max_leaves=12, shape=shape)
    tree.x = torch.randn(tree.num_nodes, 3, generator=torch.Generator().manual_seed(seed))
    return tree


def hsa(tree: SignalTree) -> torch.Tensor:
    x = tree.x.unsqueeze(1).double()
    return reference_attention(x, x, x, tree)


def theta_of(tree: SignalTree) -> torch.Tensor:
    q, k, _ = random_qkv(tree)
    return reference_matrix(q, k, tree)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_row_stochastic(dtype):
    theta = torch.randn(2, 5, 5, dtype=dtype).softmax(2)
    assert_row_stochastic(theta)
    assert_row_stochastic(theta[0])
    with pytest.raises(AssertionError, match=r"row \[0, 0\] of theta sums to"):
        assert_row_stochastic(theta * 1.0001)
    assert_row_stochastic(theta * 1.0001, atol=1e-3)
    negative = theta.clone()
    negative[1, 2, :2] += torch.tensor([1.0, -1.0])  # the sum stays
    with pytest.raises(AssertionError, match=r"theta\[1, 2, 1\] is -"):
        assert_row_stochastic(negative)
    missing = theta.clone()
    missing[0, 3, 4] = torch.nan
    with pytest.raises(AssertionError, match=r"theta\[0, 3, 4\] is nan"):
        assert_row_stochastic(missing)
    with pytest.raises(AssertionError, match="sums to"):  # columns are not rows
        assert_row_stochastic(theta.transpose(1, 2))


def test_block_tied():
    tree = SignalTree.from_parents([4, 3, 3, 4, -1])  # 0 beside A = {1, 2}
    theta = theta_of(tree)
    assert_block_tied(theta, tree)
    for i, j, b, c in ((0, 1, 0, 3), (2, 0, 3, 0)):
        wrong = theta.clone()
        wrong[1, i, j] += 1e-6
        with pytest.raises(AssertionError, match=f"under node {b} to those under node {c}"):
            assert_block_tied(wrong, tree)
        assert_block_tied(wrong, tree, atol=1e-5)
    free = theta.clone()  # a block of one pair of leaves, and the diagonal, are free
    free[:, 1, 2] += 1.0
    free[:, 2, 2] += 1.0
    assert_block_tied(free, tree)
    with pytest.raises(AssertionError):
        assert_block_tied(torch.randn(3, 3).softmax(1), tree)
    with pytest.raises(AssertionError, match="differs by nan"):
        assert_block_tied(torch.full_like(theta, torch.nan), tree)


def test_block_tied_keeps_trees_apart():
    batch = Batch.from_data_list([tree_with_x(0), tree_with_x(1)])
    theta = theta_of(batch)
    assert_block_tied(theta, batch)
    theta[0, 0, -1] = 0.01
    with pytest.raises(AssertionError, match="between two trees"):
        assert_block_tied(theta, batch)


def test_forest_equals_trees():
    forest = [tree_with_x(0), tree_with_x(1, "single"), tree_with_x(2, "chain")]
    assert_forest_equals_trees(hsa, forest)
    with pytest.raises(AssertionError, match="tree 0 of 3 in the batch: results differ"):
        assert_forest_equals_trees(lambda tree: tree.x - tree.x.mean(0), forest)
    with pytest.raises(AssertionError, match="the batch gives 1 rows, its trees 3"):
        assert_forest_equals_trees(lambda tree: tree.x.sum(0, keepdim=True), forest)
    first = forest[0].num_nodes  # right for the first tree of a batch only

    def shifts_later_trees(tree):
        return tree.x + (torch.arange(len(tree.x)) >= first).view(-1, 1)

    with pytest.raises(AssertionError, match="tree 1 of 3"):
        assert_forest_equals_trees(shifts_later_trees, forest)


def test_sibling_order_invariant():
    tree = tree_with_x(3)
    for seed in range(3):
        assert_sibling_order_invariant(hsa, tree, seed=seed)
    with pytest.raises(AssertionError, match="siblings shuffled with seed 0: results differ"):
        assert_sibling_order_invariant(lambda tree: tree.x.cumsum(0), tree)
    with pytest.raises(AssertionError, match="results differ by up to nan"):
        assert_sibling_order_invariant(lambda tree: tree.x * torch.nan, tree)
    with pytest.raises(AssertionError, match="fn gives 1 rows for"):
        assert_sibling_order_invariant(lambda tree: tree.x[:1], tree)
    first = tree.x[0, 0]
    with pytest.raises(AssertionError, match=r"shape \[\d+, 1\], not \[\d+, 3\]"):
        assert_sibling_order_invariant(
            lambda tree: tree.x if tree.x[0, 0] == first else tree.x[:, :1], tree, seed=1
        )


def test_whole_numbers_must_agree_exactly():
    forest = [tree_with_x(0), tree_with_x(1)]
    assert_forest_equals_trees(lambda tree: tree.tree_level, forest)
    with pytest.raises(AssertionError, match=r"tree 1 of 2 .* differ by up to [1-9]"):
        assert_forest_equals_trees(lambda tree: tree.tree_index[1], forest)  # ids shift


@pytest.mark.parametrize("offset", [1, 3])
def test_leaf_rows_of_the_wrong_tree_are_found(offset):
    """The classic fault of batching: one tree reads its neighbour's rows."""
    forest = [tree_with_x(3), tree_with_x(4)]

    def shifted(tree):
        x = tree.x.roll(offset, 0).unsqueeze(1).double()
        return reference_attention(x, x, x, tree)

    with pytest.raises(AssertionError, match="tree 0 of 2"):
        assert_forest_equals_trees(shifted, forest)


def test_the_check_of_batches_has_two_names():
    assert assert_batch_invariant is assert_forest_equals_trees
