"""Modalities become leaf features."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import MixedKeysError, ShapeError
from hsa_geo.nn import LeafFeatures, LinearFeatures, Symbols, TokenEncoder
from hsa_geo.testing import assert_forest_equals_trees, random_tree


def furnished(seed: int, shape: str = "mixed") -> SignalTree:
    """Words and pictures on random leaves, some with several, some with none; a token each."""
    tree = random_tree(seed, shape=shape)
    generator = torch.Generator().manual_seed(seed)
    n = tree.num_leaves

    def rows(count: int) -> torch.Tensor:
        return torch.randint(0, n, (count,), generator=generator)

    words, pictures = seed % 5, 2 * (seed % 3)
    tree.word_x = torch.randint(0, 9, (words,), generator=generator)
    tree.word_index = rows(words)
    tree.image_x = torch.randn(pictures, 4, generator=generator)
    tree.image_index = rows(pictures)
    tree.text_x = torch.stack([torch.randint(0, 9, (n,), generator=generator), rows(n) % 3], 1)
    tree.text_index = torch.arange(n)
    return tree


def encoders() -> dict[str, nn.Module]:
    return {"word": Symbols(9, 6), "image": LinearFeatures(4, 6)}


@pytest.mark.parametrize("seed", range(5))
def test_by_hand(seed):
    tree, features = furnished(seed), LeafFeatures(encoders(), 6)
    expected = []
    for leaf in range(tree.num_leaves):
        x = torch.zeros(6)
        for m, kind in zip(("word", "image"), features.kind):
            on = getattr(tree, f"{m}_index") == leaf
            if on.any():
                x = x + features.encoders[m](getattr(tree, f"{m}_x")[on]).mean(0) + kind
        expected.append(x)
    assert torch.allclose(features(tree), torch.stack(expected), atol=1e-5)


def test_a_batch_equals_its_trees():
    features = LeafFeatures(encoders() | {"text": TokenEncoder(9, 6)}, 6)
    trees = [furnished(seed) for seed in range(7)] + [furnished(5, "single")]
    assert_forest_equals_trees(features, trees, atol=1e-5)


def test_hashed_tokens_and_features_of_all_leaves():
    tree = furnished(1)
    tree.x = torch.randn(tree.num_leaves, 5)
    tokens, lin = TokenEncoder(9, 6), LinearFeatures(5, 6)
    features = LeafFeatures({"text": tokens, "x": lin}, 6)
    expected = tokens(tree) + lin(tree.x) + features.kind.sum(0)
    assert torch.allclose(features(tree), expected, atol=1e-6)


def test_gradients_reach_everything():
    features = LeafFeatures(encoders(), 6)
    batch = Batch.from_data_list([furnished(seed) for seed in range(5)])
    features(batch).square().sum().backward()
    assert all((p.grad != 0).any() for p in features.parameters())


def test_nothing_of_a_modality():
    tree, features = furnished(0), LeafFeatures({"word": Symbols(9, 6)}, 6)
    assert len(tree.word_x) == 0
    out = features(tree)
    assert torch.equal(out, torch.zeros(tree.num_leaves, 6))
    out.sum().backward()
    assert (features.kind.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    features = LeafFeatures(encoders(), 6)
    tree = furnished(4)
    expected = features(tree)
    out = features.to(dtype)(tree)
    assert out.dtype == dtype
    assert torch.allclose(out.float(), expected, atol=0.05)


def test_under_autocast():
    features = LeafFeatures(encoders(), 6)
    tree = furnished(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = features(tree)
    assert torch.allclose(out.float(), features(tree), atol=0.05)


def test_compiled_in_parts():
    """Hashed tokens are counted outside of the graph."""
    pytest.importorskip("numba")
    features = LeafFeatures({"word": Symbols(9, 6), "text": TokenEncoder(9, 6)}, 6)
    torch._dynamo.reset()
    compiled = torch.compile(features, dynamic=True, backend="aot_eager")
    for seed in (3, 8):
        batch = Batch.from_data_list([furnished(seed), furnished(seed + 1)])
        assert torch.allclose(compiled(batch), features(batch), atol=1e-6)
    torch._dynamo.reset()


@pytest.mark.parametrize("missing", ["word_x", "word_index", "image_x"])
def test_missing_modalities(missing):
    tree = furnished(4)
    del tree[missing]
    with pytest.raises(MixedKeysError, match=f"no {missing} for the encoder of"):
        LeafFeatures(encoders(), 6)(tree)
    with pytest.raises(MixedKeysError, match="no x for the encoder of 'x'"):
        LeafFeatures({"x": LinearFeatures(4, 6)}, 6)(furnished(4))


@pytest.mark.parametrize(
    ("index", "quote"),
    [
        ([0, 1, 2, 99], "holds rows 0 to 99"),
        ([0, 1, 2, -1], "holds rows -1 to 2"),
        ([0, 1, 2], r"shape \[3\]"),
        ([0.0, 1.0, 2.0, 0.0], r"dtype torch\.float32"),
    ],
)
def test_leaf_rows_that_do_not_fit(index, quote):
    tree = furnished(4)
    tree.word_index = torch.tensor(index)
    with pytest.raises(ShapeError, match=quote):
        LeafFeatures(encoders(), 6)(tree)


class Wrong(nn.Module):
    def __init__(self, answer) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


@pytest.mark.parametrize(
    ("answer", "quote"),
    [
        (lambda x: torch.zeros(len(x), 5), r"gives \[4, 5\]"),
        (lambda x: torch.zeros(len(x)), r"gives \[4\]"),
        (lambda x: None, "gives NoneType"),
        (lambda x: torch.zeros(7, 6), "gives 7 rows for 4"),
    ],
)
def test_encoders_that_do_not_fit(answer, quote):
    with pytest.raises(ShapeError, match=quote):
        LeafFeatures({"word": Wrong(answer)}, 6)(furnished(4))


@pytest.mark.parametrize(
    ("given", "quote"),
    [
        ({}, "at least one encoder"),
        ([Symbols(9, 6)], "at least one encoder"),
        ({"a.b": Symbols(9, 6)}, "cannot be called 'a.b'"),
        ({"keys": Symbols(9, 6)}, "cannot be called 'keys'"),
        ({3: Symbols(9, 6)}, "cannot be called 3"),
        ({"word": Symbols(9, 5)}, "has channels=5, but channels=6"),
        ({"word": len}, "encoder of 'word' is <built-in"),
    ],
)
def test_what_is_refused(given, quote):
    with pytest.raises(ShapeError, match=quote):
        LeafFeatures(given, 6)


def test_reset_and_repr():
    features = LeafFeatures(encoders(), 6)
    for parameter in features.parameters():
        nn.init.constant_(parameter, 0.123)
    features.reset_parameters()
    assert not any((p == 0.123).all() for p in features.parameters())
    assert repr(features) == "LeafFeatures(['word', 'image'], 6)"
