"""Relative positions as biases of blocks: against dense means, and in attention."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.hf.relative import block_bias, distances, reach_bias, slot_intervals
from hsa_geo.ops import attention_matrix
from hsa_geo.testing import SHAPES, closest_block_tied, closest_key_tied, random_qkv, random_tree


def toeplitz(length, heads, seed=0):
    """``f [2 L - 1, H]`` and its matrices ``[H, L, L]``."""
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(2 * length - 1, heads, dtype=torch.float64, generator=generator)
    i = torch.arange(length)
    return f, f[i[None, :] - i[:, None] + length - 1].permute(2, 0, 1)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_distances(length):
    f, matrix = toeplitz(length, 3)
    assert torch.equal(distances(matrix), f)


@pytest.mark.parametrize("seed", range(14))
def test_means_over_blocks(seed):
    """Two texts that begin at different places of their padded rows."""
    tree = random_tree(seed, max_leaves=14, shape=SHAPES[seed % len(SHAPES)])
    plan, n = tree.plan, tree.num_leaves
    place = torch.arange(n) + 3
    f, matrix = toeplitz(n + 5, 2, seed)
    dense = matrix - f[n + 4][:, None, None]
    under = [plan.leaves_under(torch.tensor([s]))[0] for s in range(plan.num_slots)]
    pairs, means = plan.pairs, block_bias(f, plan, place)
    for b, c, public in zip(*(t.tolist() for t in (pairs.target, pairs.source, pairs.public))):
        part = dense[:, place[under[b]]][:, :, place[under[c]]]
        torch.testing.assert_close(means[public], part.mean((1, 2)), rtol=1e-10, atol=1e-10)
    reach, mine = plan.reach, reach_bias(f, plan, place)
    for number, (row, slot) in enumerate(zip(reach.row.tolist(), reach.slot.tolist())):
        part = dense[:, place[row]][:, place[under[slot]]]
        torch.testing.assert_close(mine[number], part.mean(1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tie", ["block", "key"])
def test_the_result_is_the_closest_to_attention_with_those_biases(tie):
    tree = random_tree(3, max_leaves=7)
    q, k, _ = random_qkv(tree, 2, 3)
    n = tree.num_leaves
    f, matrix = toeplitz(n, 2)
    place = torch.arange(n)
    name, function, closest = {
        "block": ("bias", block_bias, closest_block_tied),
        "key": ("reach_bias", reach_bias, closest_key_tied),
    }[tie]
    theta = attention_matrix(q, k, tree, tie=tie, **{name: function(f, tree.plan, place)})
    scores = torch.einsum("ihd,jhd->hij", q, k) / 3**0.5 + matrix
    torch.testing.assert_close(theta, closest(scores, tree), rtol=1e-6, atol=1e-8)


def test_tokens_apart_are_refused():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    with pytest.raises(UnsupportedError, match="not side by side"):
        slot_intervals(tree.plan, torch.tensor([0, 2, 1, 3]))
