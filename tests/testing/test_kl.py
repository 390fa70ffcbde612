"""The divergence from flat attention, and its smallest value under block tying."""

from __future__ import annotations

from math import inf, log

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.ops import attention_matrix
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.reference import flat_scores
from hsa_geo.testing import (
    assert_block_tied,
    assert_kl_optimal,
    assert_row_stochastic,
    closest_block_tied,
    kl_to_flat,
    random_qkv,
    random_tree,
)


def matrix(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_kl_by_hand():
    # flat rows (1/4, 3/4) and (1/2, 1/2) against (1/2, 1/2) and (1, 0):
    # 1/2 log 2 + 1/2 log 2/3 + log 2
    scores = matrix([0, log(3)], [5, 5])
    theta = matrix([0.5, 0.5], [1, 0])
    expected = 0.5 * log(2) + 0.5 * log(2 / 3) + log(2)
    assert kl_to_flat(theta, scores).item() == pytest.approx(expected)
    assert kl_to_flat(scores.softmax(1), scores).item() == pytest.approx(0, abs=1e-12)


def test_kl_with_masked_scores():
    scores = matrix([0, -inf], [0, 0])
    assert kl_to_flat(matrix([1, 0], [0.5, 0.5]), scores).item() == pytest.approx(0)
    assert kl_to_flat(matrix([0.9, 0.1], [0.5, 0.5]), scores).item() == inf


def test_kl_adds_up_rows_and_keeps_heads():
    scores = torch.randn(3, 4, 4, dtype=torch.float64)
    theta = torch.randn(3, 4, 4, dtype=torch.float64).softmax(2)
    expected = torch.nn.functional.kl_div(
        scores.log_softmax(2), theta, reduction="none", log_target=False
    ).sum(dim=(1, 2))
    torch.testing.assert_close(kl_to_flat(theta, scores), expected)


def test_closest_is_flat_attention_where_that_is_tied():
    tree = SignalTree.from_parents([4, 4, 4, 4, -1])
    scores = 3 * torch.randn(2, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(closest_block_tied(scores, tree), scores.softmax(2))


def test_closest_is_feasible_and_no_neighbour_is_closer():
    generator = torch.Generator().manual_seed(0)
    for seed in range(8):
        tree = random_tree(seed, max_leaves=8, shape="mixed")
        n = tree.num_nodes
        scores = torch.randn(1, n, n, dtype=torch.float64, generator=generator)
        best = closest_block_tied(scores, tree)
        assert_row_stochastic(best)
        assert_block_tied(best, tree)
        least = kl_to_flat(best, scores)
        plain = PlainTree.of(tree)
        for b, c in plain.pairs():
            for step in (-1e-3, 1e-3):  # move mass between one block and the diagonal
                block = torch.outer(plain.under[b].double(), plain.under[c].double())
                moved = best + step * (block - block.sum(dim=1).diag())
                if moved.min() >= 0:
                    assert kl_to_flat(moved, scores) > least


def test_forgotten_leaf_counts_are_found():
    """Counting a sibling once and not once per leaf gives a valid matrix that is not closest."""
    tree = SignalTree.from_parents([4, 3, 3, 4, -1])  # 0 beside A = {1, 2}
    scores = torch.zeros(1, 3, 3, dtype=torch.float64)
    wrong = matrix([1 / 2, 1 / 4, 1 / 4], [1 / 2, 1 / 4, 1 / 4], [1 / 2, 1 / 4, 1 / 4])
    assert_row_stochastic(wrong)
    assert_block_tied(wrong, tree)
    best = closest_block_tied(scores, tree)
    torch.testing.assert_close(best, torch.full_like(best, 1 / 3))
    assert kl_to_flat(wrong, scores[0]) > 0.1 > kl_to_flat(best, scores).abs()


def test_closest_of_a_single_leaf_and_of_masked_pairs():
    single = SignalTree.from_parents([-1])
    assert closest_block_tied(torch.zeros(2, 1, 1), single).tolist() == [[[1.0]], [[1.0]]]
    pair = SignalTree.from_parents([-1, 0, 0])
    masked = torch.tensor([[[0.0, -inf], [0.0, 0.0]]])
    expected = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64)
    torch.testing.assert_close(closest_block_tied(masked, pair), expected)


def test_too_few_steps_are_reported():
    pair = SignalTree.from_parents([-1, 0, 0])
    with pytest.raises(RuntimeError, match="max_iter=1"):
        closest_block_tied(torch.tensor([[[0.0, 3.0], [0.0, 0.0]]]), pair, max_iter=1)


def test_hsa_is_optimal_and_others_are_not():
    for seed in range(6):
        tree = random_tree(seed, max_leaves=8, shape="mixed")
        q, k, _ = random_qkv(tree, seed=seed)
        scores = flat_scores(q, k, tree)
        theta = attention_matrix(q, k, tree)
        assert_kl_optimal(theta, scores, tree)
        assert_kl_optimal(theta.float(), scores.float(), tree)
    tree = SignalTree.from_parents([4, 3, 3, 4, -1])  # 0 beside A = {1, 2}
    q, k, _ = random_qkv(tree)
    scores = flat_scores(q, k, tree)
    theta = attention_matrix(q, k, tree)
    with pytest.raises(AssertionError, match="not tied"):
        assert_kl_optimal(scores.softmax(2), scores, tree)
    with pytest.raises(AssertionError, match="sums to"):
        assert_kl_optimal(theta / 2, scores, tree)
    with pytest.raises(AssertionError, match=r"not \[H, N, N\]"):
        assert_kl_optimal(theta[0], scores, tree)
    mean = torch.full_like(theta, 1 / 3)  # tied and stochastic, but not the closest
    with pytest.raises(AssertionError, match="head 0 of theta has the divergence"):
        assert_kl_optimal(mean, scores, tree)
    mixed = torch.cat([theta[:1], mean[1:]])
    with pytest.raises(AssertionError, match="head 1 of theta"):
        assert_kl_optimal(mixed, scores, tree)
    assert_kl_optimal(mixed, scores, tree, atol=10.0)


def test_a_small_error_of_the_counts_is_found():
    tree = SignalTree.from_parents([4, 3, 3, 4, -1])
    scores = torch.zeros(1, 3, 3, dtype=torch.float64)
    best = closest_block_tied(scores, tree)
    assert_kl_optimal(best, scores, tree)
    moved = best.clone()
    moved[0, 0] += torch.tensor([-2e-3, 1e-3, 1e-3])
    with pytest.raises(AssertionError, match="another block-tied matrix"):
        assert_kl_optimal(moved, scores, tree)


def test_weight_on_a_forced_zero_is_never_optimal():
    pair = SignalTree.from_parents([-1, 0, 0])
    scores = torch.tensor([[[0.0, -inf], [0.0, 0.0]]])
    assert_kl_optimal(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), scores, pair)
    with pytest.raises(AssertionError, match="the divergence inf"):
        assert_kl_optimal(torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]), scores, pair)
