"""Replaced layers within the pipelines of transformers."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.hf import Flat, Windows, replace_attention, restore_attention

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["the", "film", "was", "good", "bad", "long"]
TEXTS = ["the film was good", "bad", "the long long film was the bad long film the film was bad"]


@pytest.fixture
def classifier():
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *WORDS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.5,
    )
    return transformers.BertForSequenceClassification(config).eval(), tokenizer


@pytest.mark.parametrize("tie", ["key", "block"])
def test_text_classification(classifier, tie):
    """One by one or in padded batches; as without replacement where the tree is flat."""
    model, tokenizer = classifier
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    before = [answer["score"] for answer in pipe(TEXTS)]
    replace_attention(model, layers="all", hierarchy=Windows(2), tie=tie, tokenizer=tokenizer)
    alone = [pipe(text)[0] for text in TEXTS]
    together = pipe(TEXTS, batch_size=3)
    assert [a["label"] for a in alone] == [a["label"] for a in together]
    scores = [a["score"] for a in alone]
    assert scores == pytest.approx([a["score"] for a in together], abs=1e-5)
    assert scores != pytest.approx(before, abs=1e-4)
    restore_attention(model)
    replace_attention(model, layers="all", hierarchy=Flat(), tie=tie, tokenizer=tokenizer)
    assert [a["score"] for a in pipe(TEXTS)] == pytest.approx(before, abs=1e-5)


def test_feature_extraction(classifier):
    model, tokenizer = classifier
    replace_attention(model, layers="all", hierarchy=Windows(2), tokenizer=tokenizer)
    pipe = transformers.pipeline("feature-extraction", model=model.base_model, tokenizer=tokenizer)
    (rows,) = pipe(TEXTS[2])
    inputs = tokenizer(TEXTS[2], return_tensors="pt")
    with torch.no_grad():
        expected = model.base_model(**inputs).last_hidden_state[0]
    torch.testing.assert_close(torch.tensor(rows), expected, rtol=1e-4, atol=1e-5)
