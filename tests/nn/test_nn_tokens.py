"""Leaves of hashed tokens as vectors."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn import TokenEncoder
from hsa_geo.nn.tokens import token_bags
from hsa_geo.testing import assert_forest_equals_trees, random_tree

NUM_IDS = 32


def tokens_of(seed: int, shape: str = "any", per_leaf: int = 3, shuffle: bool = True) -> SignalTree:
    """A random tree with a random number of tokens at every leaf, often none."""
    tree = random_tree(seed, shape=shape)
    generator = torch.Generator().manual_seed(seed)
    count = torch.randint(0, per_leaf + 1, (tree.num_leaves,), generator=generator)
    index = torch.repeat_interleave(torch.arange(tree.num_leaves), count)
    if shuffle:
        index = index[torch.randperm(len(index), generator=generator)]
    number = torch.randint(0, NUM_IDS, (len(index),), generator=generator)
    field = torch.randint(0, 12, (len(index),), generator=generator)
    tree.text_x, tree.text_index = torch.stack([number, field], 1), index
    return tree


def pair_id(number: int, field: int) -> int:
    return NUM_IDS + (number * 40503 + (field + 1) * 2654435761) % NUM_IDS


def by_hand(tree: SignalTree) -> list[list[int]]:
    """Ids of every leaf, token by token in the order of rows."""
    out: list[list[int]] = [[] for _ in range(tree.num_leaves)]
    for (number, field), leaf in zip(tree.text_x.tolist(), tree.text_index.tolist()):
        out[leaf] += [number, pair_id(number, field)]
    return out


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_bags_by_hand(seed, shuffle):
    tree = tokens_of(seed, shuffle=shuffle)
    bags, expected = token_bags(tree, NUM_IDS), by_hand(tree)
    assert bags.offsets.shape == (tree.num_leaves + 1,)
    ends = bags.offsets.tolist()
    assert [bags.ids[a:b].tolist() for a, b in pairwise(ends)] == expected
    assert bags.lengths.tolist() == [len(ids) // 2 for ids in expected]
    assert ends[-1] == len(bags.ids) == 2 * len(tree.text_x)


@pytest.mark.parametrize("seed", range(6))
def test_vectors_by_hand(seed):
    tree = tokens_of(seed)
    encoder = TokenEncoder(NUM_IDS, 8)
    weight = encoder.embed.weight
    for row, ids in zip(encoder(tree), by_hand(tree)):
        expected = sum((weight[i] for i in ids), torch.zeros(8)) / math.sqrt(max(len(ids) // 2, 1))
        assert torch.allclose(row, expected, atol=1e-7)


def test_bags_and_trees_give_the_same():
    tree = tokens_of(0)
    encoder = TokenEncoder(NUM_IDS, 8)
    assert torch.equal(encoder(encoder.bags(tree)), encoder(tree))


def test_order_of_tokens_does_not_matter():
    tree = tokens_of(1, shape="mixed")
    encoder = TokenEncoder(NUM_IDS, 8)
    expected = encoder(tree)
    order = torch.randperm(len(tree.text_x))
    tree.text_x, tree.text_index = tree.text_x[order], tree.text_index[order]
    assert torch.allclose(encoder(tree), expected, atol=1e-7)


def test_field_and_id_both_count():
    """The same word in two fields shares a part, and differs in another."""
    tree = SignalTree.from_parents(
        [3, 3, 3, -1],
        text_x=torch.tensor([[5, 0], [5, 1], [6, 0]]),
        text_index=torch.tensor([0, 1, 2]),
    )
    (a, x), (b, y), (c, z) = token_bags(tree, 1024).ids.view(3, 2).tolist()
    assert (a, b, c) == (5, 5, 6)
    assert len({x, y, z}) == 3
    assert all(1024 <= i < 2048 for i in (x, y, z))


def test_pairs_spread_over_the_buckets():
    number, field = torch.meshgrid(torch.arange(1024), torch.arange(8), indexing="ij")
    rows = torch.stack([number.flatten(), field.flatten()], 1)
    tree = SignalTree.from_parents(
        [1, -1], text_x=rows, text_index=torch.zeros(len(rows), dtype=torch.int64)
    )
    pair = token_bags(tree, 1024).ids[1::2] - 1024
    held = torch.bincount(pair, minlength=1024)
    assert int(held.min()) >= 1
    assert int(held.max()) <= 16  # 8 if they were dealt out evenly


def test_leaves_without_tokens_are_zero():
    tree = SignalTree.from_parents(
        [3, 3, 3, -1], text_x=torch.tensor([[1, 0]]), text_index=torch.tensor([1])
    )
    out = TokenEncoder(NUM_IDS, 8)(tree)
    assert bool((out[[0, 2]] == 0).all())
    assert bool((out[1] != 0).any())


def test_a_tree_without_a_token():
    tree = SignalTree.from_parents(
        [2, 2, -1],
        text_x=torch.empty(0, 2, dtype=torch.int64),
        text_index=torch.empty(0, dtype=torch.int64),
    )
    out = TokenEncoder(NUM_IDS, 8)(tree)
    assert out.tolist() == [[0.0] * 8] * 2
    out.sum().backward()


# Dropout ####################################################################


def many_tokens(count: int = 20_000) -> SignalTree:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 2, (count,), generator=generator)
    number = torch.randint(0, NUM_IDS, (count,), generator=generator)
    rows = torch.stack([number, torch.zeros_like(number)], 1)
    return SignalTree.from_parents([2, 2, -1], text_x=rows, text_index=index)


def test_dropout_keeps_its_share_of_whole_tokens():
    tree = many_tokens()
    torch.manual_seed(0)
    bags = token_bags(tree, NUM_IDS, dropout=0.3)
    share = bags.lengths.sum() / len(tree.text_x)
    assert abs(float(share) - 0.7) < 5 * math.sqrt(0.3 * 0.7 / len(tree.text_x))
    assert len(bags.ids) == 2 * int(bags.lengths.sum()) == int(bags.offsets[-1])
    pairs = bags.ids.view(-1, 2).tolist()  # an id and its pair stay together
    assert all(pair == pair_id(number, 0) for number, pair in pairs)


def test_dropout_of_none_and_of_all():
    tree = tokens_of(0, shape="mixed")
    for a, b in zip(token_bags(tree, NUM_IDS, 0.0), token_bags(tree, NUM_IDS)):
        assert torch.equal(a, b)
    bags = token_bags(tree, NUM_IDS, 1.0)
    assert bags.lengths.tolist() == [0] * tree.num_leaves
    assert bags.ids.numel() == 0
    encoder = TokenEncoder(NUM_IDS, 8, dropout=1.0).train()
    out = encoder(tree)
    assert bool((out == 0).all())
    out.sum().backward()
    assert bool((encoder.embed.weight.grad == 0).all())


def test_dropout_only_in_training():
    tree = many_tokens(200)
    encoder = TokenEncoder(NUM_IDS, 8, dropout=0.5)
    plain = TokenEncoder(NUM_IDS, 8)
    plain.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder.eval()(tree), plain(tree))
    assert not torch.equal(encoder.train()(tree), plain(tree))


@pytest.mark.parametrize(("num_ids", "channels"), [(0, 8), (-1, 8), (8, 0)])
def test_sizes_are_positive(num_ids, channels):
    with pytest.raises(ShapeError, match=r"=(0|-1) is no positive whole number"):
        TokenEncoder(num_ids, channels)


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_dropout_is_a_probability(dropout):
    with pytest.raises(ShapeError, match="is no probability"):
        TokenEncoder(NUM_IDS, 8, dropout=dropout)
    with pytest.raises(ShapeError, match="is no probability"):
        token_bags(tokens_of(0), NUM_IDS, dropout)


# What does not fit ##########################################################


def broken(**changes: torch.Tensor) -> SignalTree:
    tree = SignalTree.from_parents(
        [2, 2, -1], text_x=torch.tensor([[5, 0], [7, 1]]), text_index=torch.tensor([0, 1])
    )
    for key, value in changes.items():
        tree[key] = value
    return tree


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_x": torch.tensor([[5, 0], [NUM_IDS, 1]])}, f"ids 5 to {NUM_IDS}"),
        ({"text_x": torch.tensor([[-1, 0], [3, 1]])}, "ids -1 to 3"),
        ({"text_x": torch.tensor([5, 7])}, r"shape \[2\]"),
        ({"text_x": torch.zeros(2, 3, dtype=torch.int64)}, r"shape \[2, 3\]"),
        ({"text_x": torch.tensor([[5.0, 0.0], [7.0, 1.0]])}, "dtype torch.float32"),
        ({"text_index": torch.tensor([0])}, r"text_index has shape \[1\]"),
        ({"text_index": torch.tensor([[0], [1]])}, r"text_index has shape \[2, 1\]"),
        ({"text_index": torch.tensor([0.0, 1.0])}, "dtype torch.float32"),
        ({"text_index": torch.tensor([0, 2])}, "rows 0 to 2, but the tree has 2 leaves"),
        ({"text_index": torch.tensor([-1, 0])}, "rows -1 to 0"),
    ],
)
def test_tokens_that_do_not_fit(changes, message):
    with pytest.raises(ShapeError, match=message):
        TokenEncoder(NUM_IDS, 8)(broken(**changes))


@pytest.mark.parametrize("missing", ["text_x", "text_index"])
def test_missing_modality(missing):
    tree = broken()
    del tree[missing]
    with pytest.raises(ShapeError, match="no text_x and text_index"):
        token_bags(tree, NUM_IDS)


# Batches, gradients #########################################################


def test_a_batch_equals_its_trees():
    trees = [tokens_of(seed) for seed in range(12)] + [tokens_of(0, "single", per_leaf=0)]
    encoder = TokenEncoder(NUM_IDS, 8)
    assert_forest_equals_trees(encoder, trees, atol=1e-7)
    assert_forest_equals_trees(lambda t: token_bags(t, NUM_IDS).lengths, trees)
    assert_forest_equals_trees(lambda t: token_bags(t, NUM_IDS).ids, trees)


def test_gradient_is_that_of_the_sum():
    batch = Batch.from_data_list([tokens_of(seed, "mixed") for seed in range(3)])
    encoder = TokenEncoder(NUM_IDS, 4).double()
    factor = torch.randn(batch.num_leaves, 4, dtype=torch.float64)
    (encoder(batch) * factor).sum().backward()
    expected = torch.zeros_like(encoder.embed.weight)
    for ids, f in zip(by_hand(batch), factor):
        for i in ids:
            expected[i] += f / math.sqrt(len(ids) // 2)
    assert torch.allclose(encoder.embed.weight.grad, expected)


def test_reset_draws_anew():
    encoder = TokenEncoder(NUM_IDS, 8)
    before = encoder.embed.weight.clone()
    encoder.reset_parameters()
    assert not torch.equal(before, encoder.embed.weight)
    assert float(encoder.embed.weight.detach().std()) == pytest.approx(0.02, rel=0.2)
