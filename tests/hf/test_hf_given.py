"""Trees of builders over tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders import from_text
from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf import Flat, given_trees, replace_attention, token_tree
from hsa_geo.ops import hsa_attention

transformers = pytest.importorskip("transformers")

TEXT = "Hello, big world! It's me.\n\nNew paragraph here."


def pieces(text, size=3):
    """Offsets of pieces of at most ``size`` letters, punctuation by itself, as tokenizers cut."""
    out, start = [(0, 0)], 0
    while start < len(text):
        if text[start].isspace():
            start += 1
            continue
        end = start + 1
        while (
            text[start].isalnum() and end < len(text) and text[end].isalnum() and end - start < size
        ):
            end += 1
        out.append((start, end))
        start = end
    return [*out, (0, 0)]


def ancestors(tree):
    """Leaves under every node, as sets of tokens."""
    rows, ptr = tree.plan.leaves_under(torch.arange(tree.plan.num_slots))
    return {frozenset(rows[a:b].tolist()) for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist())}


def test_tokens_find_their_words_sentences_and_paragraphs():
    tree, offsets = from_text(TEXT), pieces(TEXT)
    tokens = token_tree(tree, offsets)
    assert tokens.num_leaves == len(offsets)
    tokens.validate()
    covered = [TEXT[a:b] for a, b in offsets]
    found = {tuple(covered[i] for i in sorted(some)) for some in ancestors(tokens)}
    assert ("Hel", "lo") in found
    assert ("Hel", "lo", ",", "big", "wor", "ld", "!") in found  # the mark is the sentence's
    assert ("New", "par", "agr", "aph", "her", "e", ".") in found
    root = int(tokens.tree_level.argmin())
    of_root = tokens.tree_index[1][tokens.tree_index[0] == root].tolist()
    assert {0, len(offsets) - 1} <= set(of_root)


@given(st.text(alphabet="ab .!?,\n\u00e4", min_size=1, max_size=40), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_token_is_a_leaf_in_order(text, size):
    try:
        tree = from_text(text)
    except ValueError:
        return
    offsets = pieces(text, size)
    tokens = token_tree(tree, offsets)
    tokens.validate()
    assert tokens.num_leaves == len(offsets)
    spans = tree.tree_span.tolist()
    for some in ancestors(tokens):  # tokens of a node are those that some node of the tree covers
        if len(some) in (1, len(offsets)):
            continue
        begins = [offsets[i][0] for i in some]
        assert any(a <= min(begins) and max(begins) < b for a, b in spans)


def make():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 60}
    )
    return transformers.BertModel(config).eval()


def test_replaced_layers_attend_over_them():
    """The same as hsa_attention over the trees, padding or not."""
    forest = [
        SignalTree.from_parents([5, 6, 6, 6, 5, -1, 5], keep_leaf_order=True),
        SignalTree.from_parents([3, 3, 3, -1], keep_leaf_order=True),
    ]
    model = replace_attention(make(), layers=[0], hierarchy=Flat(), tie="block")
    ids = torch.randint(5, 60, (2, 5))
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2])
    layer, seen = model.encoder.layer[0].attention.self, {}
    layer.register_forward_hook(lambda m, a, k, o: seen.update(x=a[0], out=o[0]), with_kwargs=True)
    with torch.no_grad(), given_trees(model, (tree for tree in forest)):
        model(ids, attention_mask=mask)
    for row, tree in enumerate(forest):
        x = seen["x"][row, : tree.num_leaves]
        q, k, v = (f(x).view(-1, 2, 8) for f in (layer.query, layer.key, layer.value))
        expected = hsa_attention(q, k, v, tree).flatten(1)
        torch.testing.assert_close(
            seen["out"][row, : tree.num_leaves], expected, rtol=1e-5, atol=1e-6
        )
    refused = pytest.raises(ShapeError, match=r"\[5, 3\] leaves.*\[5, 5\] tokens")
    with torch.no_grad(), refused, given_trees(model, forest):
        model(ids)
    with torch.no_grad():
        model(ids)  # by the hierarchy again


def test_what_is_refused():
    plain = make()
    refused = pytest.raises(UnsupportedError, match="no layer of the model is replaced")
    with refused, given_trees(plain, []):
        plain(torch.tensor([[5]]))
    with pytest.raises(ShapeError, match="has no tree_span"):
        token_tree(SignalTree.from_parents([-1, 0, 0]), [(0, 1)])
    with pytest.raises(ShapeError, match="offsets has shape"):
        token_tree(from_text("a b"), [0, 1, 2])
    with pytest.raises(ShapeError, match="offsets has shape"):
        token_tree(from_text("a b"), [])
