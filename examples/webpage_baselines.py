"""TF-IDF and logistic regression on the text of pages and of forms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from webpage_data import SKIPPED, Pages
from webpage_training import score, worker_pages

STRENGTHS = (1.0, 10.0, 100.0)  # inverse regularisation, chosen on validation pages
_WORD = re.compile(r"[^\W\d_]+|\d+")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def tfidf_pages(pages: Pages, texts: Sequence[str], fold: int) -> tuple[np.ndarray, np.ndarray]:
    """One classifier a label on the text of whole pages; test pages and their labels."""
    train, validation, test = pages.split(fold)
    train = train[pages.complete[train]]  # negatives of the others are not certain
    vectors = TfidfVectorizer(analyzer=_words, sublinear_tf=True, min_df=2)
    x = vectors.fit_transform([texts[i] for i in train])

    def labels(model: OneVsRestClassifier, chosen: np.ndarray) -> np.ndarray:
        return model.predict(vectors.transform([texts[i] for i in chosen]))

    models = [
        OneVsRestClassifier(LogisticRegression(C=c, class_weight="balanced", max_iter=1000)).fit(
            x, pages.y[train].astype(int)
        )
        for c in STRENGTHS
    ]
    best = max(models, key=lambda m: sum(score(pages.y[validation], labels(m, validation))))
    return test, labels(best, test)


def tfidf_forms(
    pages: Pages, texts: Sequence[Sequence[str]], fold: int
) -> tuple[np.ndarray, np.ndarray]:
    """One classifier on the text of forms, a page has the types of its forms."""
    train, validation, test = pages.split(fold)

    def forms(chosen: np.ndarray) -> tuple[list[str], np.ndarray]:
        label = [pages.trees[i].form_label.numpy() for i in chosen]
        return [t for i in chosen for t in texts[i]], np.concatenate(label)

    documents, label = forms(train)
    known = np.flatnonzero(label != -1)
    vectors = TfidfVectorizer(analyzer=_words, sublinear_tf=True, min_df=2)
    x = vectors.fit_transform([documents[i] for i in known])
    target = np.where(label[known] == -2, SKIPPED, label[known])

    def labels(model: LogisticRegression, chosen: np.ndarray) -> np.ndarray:
        out = np.zeros((len(chosen), SKIPPED + 1), dtype=int)
        page = np.repeat(np.arange(len(chosen)), [len(texts[i]) for i in chosen])
        out[page, model.predict(vectors.transform(forms(chosen)[0]))] = 1
        return out[:, :SKIPPED]

    models = [
        LogisticRegression(C=c, class_weight="balanced", max_iter=1000).fit(x, target)
        for c in STRENGTHS
    ]
    best = max(models, key=lambda m: sum(score(pages.y[validation], labels(m, validation))))
    return test, labels(best, test)


@cache
def _texts(root: Path, attributes: bool) -> tuple[list[str], list[list[str]]]:
    """Texts of all pages and of their forms, read once in every process."""
    pages = worker_pages(root)
    dataset, every = pages.dataset, range(len(pages.trees))
    return (
        [dataset.page_text(i, attributes=attributes) for i in every],
        [dataset.form_texts(i, attributes=attributes) for i in every],
    )


def run_baselines(
    root: Path, attributes: bool, fold: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Both baselines of one fold: by name, test pages and their labels."""
    pages, (whole, forms) = worker_pages(root), _texts(root, attributes)
    tail = "_attributes" if attributes else ""
    return {
        f"tfidf_page{tail}": tfidf_pages(pages, whole, fold),
        f"tfidf_form{tail}": tfidf_forms(pages, forms, fold),
    }
