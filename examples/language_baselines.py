"""What hierarchy and attention have to beat: logistic regression on plain features of texts.

Features: counts of words and of pairs of words (TF-IDF), the mean of the words' GloVe vectors, the
mean of the words' vectors from a frozen MiniLM.  The strength of the regularisation is chosen by
the accuracy on the validation part; the test part is predicted once.

Example:
    >>> from types import SimpleNamespace
    >>> texts = ["good good film", "bad bad film", "so good", "so bad"] * 4
    >>> corpus = SimpleNamespace(texts=lambda: texts, y=np.array([1, 0, 1, 0] * 4))
    >>> baseline("tfidf", corpus, np.arange(8), np.arange(8, 12), np.arange(12, 16))
    array([1, 0, 1, 0])
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from hsa_geo.data import SignalTree
from hsa_geo.datasets import GloVe

#: Names of the baselines and their titles.
BASELINES = {
    "tfidf": "TF-IDF 1+2-gram + LR",
    "glove_mean": "mean of GloVe + LR",
    "minilm_mean": "mean of MiniLM + LR",
}
#: Inverse strengths of the regularisation, from strong to weak.
STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)

Ints = NDArray[np.int64]
Features = Any  # [items, F], dense or sparse


class Corpus(Protocol):
    """What is known of the texts; each baseline uses some of it.

    Attributes:
        y: Class of every document.
        trees: With ``word_x`` for ``glove_mean``, with ``token_x`` for ``minilm_mean``.
        dataset: Its ``vocabulary`` says what ``word_x`` means, for ``glove_mean``.
        root: Its folder ``glove`` holds the vectors, for ``glove_mean``.
    """

    y: np.ndarray
    trees: Sequence[SignalTree]
    dataset: Any
    root: Path

    def texts(self) -> Sequence[str]:
        """Every document's words, apart by blanks, for ``tfidf``."""


def baseline(
    name: str, corpus: Corpus, train: Ints, validation: Ints, test: Ints
) -> NDArray[np.int64]:
    """Fit a baseline and predict the classes of the test documents.

    Args:
        name: One of :data:`BASELINES`.
        corpus: The documents.
        train: Those to fit on.
        validation: Those that choose the strength of the regularisation.
        test: Those to predict.

    Returns:
        A class for each document of ``test``.
    """
    parts = (np.asarray(train), np.asarray(validation), np.asarray(test))
    if name == "tfidf":
        features = tfidf(corpus.texts(), *parts)
    elif name == "glove_mean":
        features = scaled(mean_of_words(corpus), *parts)
    elif name == "minilm_mean":
        features = scaled(mean_of_tokens(corpus.trees), *parts)
    else:
        raise ValueError(f"there is no baseline {name!r}: use one of {', '.join(BASELINES)}.")
    return logistic(features, np.asarray(corpus.y), train, validation)


def tfidf(texts: Sequence[str], train: Ints, *others: Ints) -> list[Features]:
    """Weighted counts of words and of pairs of neighbours that come in two training texts."""
    vectors = TfidfVectorizer(
        token_pattern=r"\S+", ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float64
    )
    first = vectors.fit_transform([texts[i] for i in train])
    return [first, *(vectors.transform([texts[i] for i in part]) for part in others)]


def mean_of_words(corpus: Corpus) -> np.ndarray:
    """Mean of the GloVe vectors of a text's words, of those that have one ``[items, 50]``."""
    table, found = GloVe(corpus.root / "glove", log=False).vectors(corpus.dataset.vocabulary)
    rows = []
    for tree in corpus.trees:
        words = tree.word_x[found[tree.word_x]]
        rows.append(table[words].sum(0) / max(len(words), 1))
    return torch.stack(rows).numpy()


def mean_of_tokens(trees: Sequence[SignalTree]) -> np.ndarray:
    """Mean of the encoder's vectors of a text's words ``[items, 384]``."""
    rows = [tree.token_x.float().sum(0) / max(len(tree.token_x), 1) for tree in trees]
    return torch.stack(rows).numpy()


def scaled(features: np.ndarray, train: Ints, *others: Ints) -> list[Features]:
    """Features with mean 0 and variance 1 over the training texts."""
    scaler = StandardScaler().fit(features[train])
    return [scaler.transform(features[part]) for part in (train, *others)]


def logistic(
    features: Sequence[Features], y: np.ndarray, train: Ints, validation: Ints
) -> NDArray[np.int64]:
    """Logistic regression with the strength that is best on the validation part."""
    fit, check, test = features
    best, found = -1.0, None
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=500)
        with warnings.catch_warnings():  # almost there is near enough where nothing holds it
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(fit, y[train])
        accuracy = float(np.mean(model.predict(check) == y[validation]))
        if accuracy > best:  # of several alike the strongest
            best, found = accuracy, model
    assert found is not None
    return found.predict(test).astype(np.int64)
