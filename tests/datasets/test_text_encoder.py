"""Vectors of words and texts against those that transformers computes itself."""

import numpy as np
import pytest
import torch

from hsa_geo.builders import from_text
from hsa_geo.datasets import TextEncoder
from hsa_geo.errors import ShapeError

TEXTS = [
    "The cat plays.",
    "",
    "cats sat playing, cat! The the the quick brown fox",
    "日本語 the Émile naïve",
    "a \U0001f600 b [SEP] cat [MASK]",
    "x",
]


def spans_of(text):
    if not text:
        return np.zeros((0, 2), dtype=np.int64)
    return from_text(text, punctuation=True).tree_span[
        : from_text(text, punctuation=True).num_nodes
    ]


@pytest.fixture(scope="module")
def parts(tiny_bert):
    """Gives model and tokenizer as transformers loads them."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    return model, transformers.AutoTokenizer.from_pretrained(tiny_bert)


def plain(parts, text, layer):
    """All pieces' vectors [P, 16], with special tokens, and offsets [P, 2]."""
    model, tokenizer = parts
    made = tokenizer(
        text,
        truncation=False,
        padding=False,
        return_offsets_mapping=True,
        split_special_tokens=True,
    )
    with torch.no_grad():
        out = model(input_ids=torch.tensor([made.input_ids]), output_hidden_states=True)
    return out.hidden_states[layer][0], made.offset_mapping


@pytest.mark.parametrize("layer", [-1, 3, 2, 1, -3])
def test_words_are_means_of_their_pieces(tiny_bert, parts, layer):
    encoder = TextEncoder(tiny_bert, layer=layer)
    assert (encoder.dim, encoder.window, encoder.stride) == (16, 30, 22)
    spans = [spans_of(text) for text in TEXTS]
    found = encoder.words(TEXTS, spans)
    assert len(found) == len(TEXTS)
    for text, words, (vectors, rows) in zip(TEXTS, spans, found):
        assert vectors.dtype == torch.float32
        assert rows.dtype == torch.int64
        if not text:
            assert vectors.shape == (0, 16)
            continue
        hidden, offsets = plain(parts, text, layer if layer > 0 else layer + 4)
        assert rows.tolist() == list(range(len(words)))
        for (start, end), vector in zip(words.tolist(), vectors):
            held = [k for k, (a, b) in enumerate(offsets) if a < end and b > start and b > a]
            assert held
            torch.testing.assert_close(vector, hidden[held].mean(0), rtol=1e-4, atol=1e-5)


def test_layer_zero_knows_no_context(tiny_bert, parts):
    encoder = TextEncoder(tiny_bert, layer=0)
    (vectors, _), (alone, _) = encoder.words(
        ["the cat sat the cats", "cat"], [[[0, 3], [4, 7], [12, 15], [16, 20]], [[0, 3]]]
    )
    table = parts[0].get_input_embeddings().weight
    ids = parts[1].convert_tokens_to_ids(["the", "cat", "##s"])
    assert torch.equal(vectors[0], table[ids[0]])
    assert torch.equal(vectors[0], vectors[2])
    assert torch.equal(alone[0], table[ids[1]])
    torch.testing.assert_close(vectors[3], table[ids[1:]].mean(0))
    context = TextEncoder(tiny_bert).words(["the cat the"], [[[0, 3], [4, 7], [8, 11]]])[0][0]
    assert not torch.allclose(context[0], context[2], atol=1e-2)


def test_texts_do_not_depend_on_their_company(tiny_bert):
    texts = [*TEXTS, "the cat " * 40, "cat " * 29]
    spans = [spans_of(text) for text in texts]
    together = TextEncoder(tiny_bert).words(texts, spans)
    for most in (1, 64):
        encoder = TextEncoder(tiny_bert, batch_pieces=most)
        for text, words, (vectors, rows) in zip(texts, spans, together):
            alone, alone_rows = encoder.words([text], [words])[0]
            torch.testing.assert_close(alone, vectors, rtol=1e-4, atol=1e-5)
            assert torch.equal(alone_rows, rows)


def test_long_texts_in_windows(tiny_bert, parts):
    words = [["the", "cat", "sat", "play"][i * i % 4] for i in range(57)]  # a piece each
    text = " ".join(words)
    spans = spans_of(text)
    assert len(spans) == 57
    vectors, rows = TextEncoder(tiny_bert, window=10, stride=6).words([text], [spans])[0]
    assert rows.tolist() == list(range(57))
    starts = [*range(0, 47, 6), 47]
    for k, vector in enumerate(vectors):
        start = min(starts, key=lambda s, k=k: (abs(k - s - 4.5), s))
        hidden, _ = plain(parts, " ".join(words[start : start + 10]), 3)
        torch.testing.assert_close(vector, hidden[1 + k - start], rtol=1e-4, atol=1e-5)


def test_short_texts_do_not_see_the_windows(tiny_bert):
    text = "the cat sat playing"  # 5 pieces
    spans = [spans_of(text)]
    wide = TextEncoder(tiny_bert).words([text], spans)[0][0]
    for window in (5, 6, 30):
        narrow = TextEncoder(tiny_bert, window=window, stride=1).words([text], spans)[0][0]
        torch.testing.assert_close(narrow, wide)
    cut = TextEncoder(tiny_bert, window=4, stride=1).words([text], spans)[0][0]
    assert not torch.allclose(cut, wide, atol=1e-2)


def test_windows_without_words_are_not_read(tiny_bert, monkeypatch):
    text = "the cat " * 60
    spans = spans_of(text)
    encoder = TextEncoder(tiny_bert)
    whole = encoder.words([text], [spans])[0][0]
    rows = []
    forward = encoder._forward
    monkeypatch.setattr(
        encoder, "_forward", lambda batch: rows.append(len(batch)) or forward(batch)
    )
    some = encoder.words([text, text, ""], [spans[:10], spans[110:], []])
    assert sum(rows) == 2
    for (vectors, held), k in zip(some, (0, 110)):
        torch.testing.assert_close(vectors, whole[k : k + len(held)], rtol=1e-4, atol=1e-5)


def test_a_word_longer_than_a_window(tiny_bert):
    text = "a" * 90
    vectors, rows = TextEncoder(tiny_bert).words([text], [[[0, 90]]])[0]
    assert (vectors.shape, rows.tolist()) == ((1, 16), [0])
    assert vectors.isfinite().all()


def test_words_without_pieces_have_no_vector(tiny_bert):
    text = "the \x01 cat \ud800"
    vectors, rows = TextEncoder(tiny_bert).words(
        [text], [[[0, 3], [4, 5], [5, 5], [6, 9], [10, 11]]]
    )[0]
    assert 1 not in rows.tolist()  # a control character
    assert 2 not in rows.tolist()  # no text at all
    assert {0, 3} <= set(rows.tolist())
    assert len(vectors) == len(rows)


def test_progress_counts_texts(tiny_bert):
    seen = []
    texts = ["the cat " * 40, "", "cat", "cat sat"]
    TextEncoder(tiny_bert, batch_pieces=40).words(
        texts, [spans_of(text) for text in texts], done=seen.append
    )
    assert sum(seen) == 4


def test_sentences(tiny_bert, parts):
    encoder = TextEncoder(tiny_bert)
    vectors = encoder.sentences(TEXTS, normalise=False)
    for text, vector in zip(TEXTS, vectors):
        want = plain(parts, text, 3)[0].mean(0) if text else torch.zeros(16)
        torch.testing.assert_close(vector, want, rtol=1e-4, atol=1e-5)
    unit = encoder.sentences(TEXTS)
    torch.testing.assert_close(unit, torch.nn.functional.normalize(vectors))
    assert unit[1].tolist() == [0.0] * 16
    assert encoder.sentences([]).shape == (0, 16)
    long = encoder.sentences(["the cat " * 40])
    torch.testing.assert_close(long.norm(dim=1), torch.ones(1))
    assert TextEncoder(tiny_bert, layer=0).sentences(["cat"]).shape == (1, 16)


def test_progress_of_sentences(tiny_bert, capsys):
    TextEncoder(tiny_bert).sentences(["cat", ""], log=True)
    out, err = capsys.readouterr()
    assert (out, "Encoding texts: 2/2" in err) == ("", True)


def test_half_the_bits(tiny_bert):
    text = "the cat sat playing"
    spans = [spans_of(text)]
    full = TextEncoder(tiny_bert)
    half = TextEncoder(tiny_bert, dtype=torch.bfloat16)
    a, b = (e.words([text], spans)[0][0] for e in (full, half))
    assert b.dtype == torch.float32
    torch.testing.assert_close(a, b, rtol=0.1, atol=0.1)
    assert not torch.equal(a, b)
    assert full.settings["digest"] != half.settings["digest"]


def test_settings_and_repr(tiny_bert):
    encoder = TextEncoder(tiny_bert, layer=-2, window=8)
    settings = encoder.settings
    assert settings.pop("digest") == TextEncoder(tiny_bert).settings["digest"]
    assert settings == {
        "model": tiny_bert.name,
        "layer": 2,
        "window": 8,
        "stride": 6,
        "dtype": "float32",
        "dim": 16,
    }
    assert repr(encoder).endswith("dim=16, layer=2, window=8, stride=6, dtype=float32)")
    assert not any(p.requires_grad for p in encoder.encoder.module.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, "layer=4 is none of the 3 layers"),
        ({"layer": -4}, "layer=-4"),
        ({"window": 31}, "window=31 is more than the 30 pieces"),
        ({"window": 0}, "windows of 0 pieces"),
        ({"window": 8, "stride": 9}, "windows of 8 pieces every 9"),
        ({"stride": 0}, "every 0"),
        ({"batch_pieces": 0}, "batch_pieces=0"),
    ],
)
def test_bad_options(tiny_bert, options, message):
    with pytest.raises(ShapeError, match=message):
        TextEncoder(tiny_bert, **options)


def test_bad_texts(tiny_bert):
    encoder = TextEncoder(tiny_bert)
    with pytest.raises(ShapeError, match="2 texts and spans of 1"):
        encoder.words(["a", "b"], [[]])
    with pytest.raises(ShapeError, match="a text is a bytes"):
        encoder.words([b"a"], [[]])
    with pytest.raises(ShapeError, match="out of order or overlap"):
        encoder.words(["the cat"], [[[4, 7], [0, 3]]])
