"""The plain baselines on texts, on small corpora whose answers are known."""

from types import SimpleNamespace

import language_baselines
import numpy as np
import pytest
import torch
from language_baselines import BASELINES, baseline, logistic, mean_of_tokens, tfidf

from hsa_geo.datasets import WordVectors

RNG = np.random.default_rng(0)
WORDS = ["good", "bad", "not", "film", "qwx"]
N = 90
TRAIN, VALIDATION, TEST = np.arange(50), np.arange(50, 70), np.arange(70, N)


@pytest.fixture
def corpus(monkeypatch, tmp_path):
    """Texts whose class hangs on a pair of words (``not good``), or on one word."""

    def make(pairs):
        y, texts = [], []
        for _ in range(N):
            word, negated = RNG.choice(["good", "bad"]), pairs and RNG.random() < 0.5
            other = ["film", "qwx"] * 2 + (["not"] if pairs and not negated else [])
            RNG.shuffle(other)
            at = int(RNG.integers(len(other) + 1))
            if at and other[at - 1] == "not":
                at -= 1
            text = [*other[:at], *(["not"] if negated else []), word, *other[at:]]
            texts.append(" ".join(text))
            y.append(int((word == "good") != negated))
        vectors = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
        glove = WordVectors(WORDS[:4], vectors)
        monkeypatch.setattr(language_baselines, "GloVe", lambda root, log: glove)
        trees = []
        for text in texts:
            ids = torch.tensor([WORDS.index(word) for word in text.split()])
            trees.append(SimpleNamespace(word_x=ids, token_x=torch.eye(5)[ids].half()))
        dataset = SimpleNamespace(vocabulary=WORDS)
        return SimpleNamespace(
            y=np.array(y), trees=trees, dataset=dataset, root=tmp_path, texts=lambda: texts
        )

    return make


@pytest.mark.parametrize("name", BASELINES)
def test_one_word_decides(corpus, name):
    some = corpus(pairs=False)
    predicted = baseline(name, some, TRAIN, VALIDATION, TEST)
    assert predicted.dtype == np.int64
    assert predicted.tolist() == some.y[TEST].tolist()
    assert baseline(name, some, TRAIN, VALIDATION, TEST).tolist() == predicted.tolist()


def test_pairs_of_words_are_features_of_tfidf_alone(corpus):
    some = corpus(pairs=True)
    right = {
        name: np.mean(baseline(name, some, TRAIN, VALIDATION, TEST) == some.y[TEST])
        for name in BASELINES
    }
    assert right["tfidf"] == 1
    assert max(right["glove_mean"], right["minilm_mean"]) < 0.9


def test_nothing_is_learned_from_test_texts(corpus):
    some = corpus(pairs=False)
    texts = list(some.texts())
    for i in TEST:
        texts[i] += " only here only here"
    first, check, test = tfidf(texts, TRAIN, VALIDATION, TEST)
    assert first.shape[1] == check.shape[1] == test.shape[1]
    want = baseline("tfidf", some, TRAIN, VALIDATION, TEST)
    y = some.y.copy()
    y[TEST] = -1
    blind = SimpleNamespace(**{**vars(some), "y": y})
    assert baseline("tfidf", blind, TRAIN, VALIDATION, TEST).tolist() == want.tolist()


def test_documents_without_features():
    empty = SimpleNamespace(token_x=torch.zeros(0, 3).half())
    one = SimpleNamespace(token_x=torch.tensor([[1.0, 2, 3], [3, 2, 1]]).half())
    assert mean_of_tokens([empty, one]).tolist() == [[0, 0, 0], [2, 2, 2]]


def test_the_validation_part_chooses(monkeypatch):
    """Strong regularisation where the training labels are noise but for one feature."""
    x = RNG.normal(size=(400, 60))
    y = (x[:, 0] + RNG.normal(size=400) > 0).astype(int)
    parts = (np.arange(80), np.arange(80, 280), np.arange(280, 400))
    features = [x[part] for part in parts]
    chosen = np.mean(logistic(features, y, *parts[:2]) == y[parts[2]])
    monkeypatch.setattr(language_baselines, "STRENGTHS", (1000.0,))
    assert chosen > np.mean(logistic(features, y, *parts[:2]) == y[parts[2]])


def test_unknown_name(corpus):
    with pytest.raises(ValueError, match="no baseline 'bm25': use one of tfidf"):
        baseline("bm25", corpus(pairs=False), TRAIN, VALIDATION, TEST)
