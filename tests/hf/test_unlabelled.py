"""Batches of texts by tokens, and what a tokenizer and a model take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hsa_geo.hf.unlabelled import Inputs, Texts, unlabelled


class Letters:
    """A tokenizer whose ids are those of characters."""

    def __init__(self, **more):
        self.__dict__.update(more)

    def __call__(self, texts, truncation, max_length, **_):
        return {"input_ids": [[ord(letter) for letter in text][:max_length] for text in texts]}


def test_every_text_is_in_one_batch_within_the_budget():
    texts = Texts(["a" * (1 + 7 * i % 50) for i in range(200)], Letters(), 40)
    assert max(texts.lengths) == 40
    rows = list(range(3, 200))
    batches = texts.batches(rows, 128, seed=0)
    assert sorted(row for batch in batches for row in batch) == rows
    for batch in batches:
        assert len(batch) * max(texts.lengths[row] for row in batch) <= 128
    padded = sum(len(batch) * max(texts.lengths[row] for row in batch) for batch in batches)
    assert padded < 1.25 * sum(texts.lengths[row] for row in rows)
    lengths = [texts.lengths[batch[0]] for batch in batches]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))
    assert batches == texts.batches(rows, 128, seed=0) != texts.batches(rows, 128, seed=1)


def test_a_long_text_is_a_batch_of_its_own():
    texts = Texts(["a" * 50, "b", "c"], Letters(), 99)
    batches = texts.batches([0, 1, 2], 10, seed=0)
    assert sorted(sorted(batch) for batch in batches) == [[0], [1, 2]]


def test_ready_made_inputs():
    given = [{"input_ids": i, "labels": i} for i in range(9)]
    inputs = Inputs(given)
    batches = inputs.batches([1, 4, 7], 1, seed=0)
    assert sorted(batches) == [[1], [4], [7]]
    assert inputs.inputs([4]) == {"input_ids": 4}
    assert given[4] == {"input_ids": 4, "labels": 4}


@pytest.mark.parametrize(
    ("config", "tokenizer", "most"),
    [
        ({"model_type": "bert", "max_position_embeddings": 64}, {}, 64),
        ({"model_type": "bert", "max_position_embeddings": 64}, {"model_max_length": 32}, 32),
        ({"model_type": "roberta", "max_position_embeddings": 66, "pad_token_id": 1}, {}, 64),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, {}, 512),
        (
            {"model_type": "bert", "max_position_embeddings": 4096},
            {"model_max_length": 10**30},
            512,
        ),
    ],
)
def test_what_a_model_takes(config, tokenizer, most):
    texts = ["a" * 5000]
    made = unlabelled(texts, Letters(**tokenizer), SimpleNamespace(**config), False, None)
    assert made.lengths == [most]
    assert unlabelled(texts, Letters(), SimpleNamespace(**config), False, 7).lengths == [7]
