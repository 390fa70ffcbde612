"""Texts for the comparison: tasks, hierarchies over their words, features of the words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from hsa_geo import datasets
from hsa_geo.data import SignalTree
from hsa_geo.datasets import GloVe, MiniLM, make_token_features, with_features
from hsa_geo.datasets.text_trees import TextTrees
from hsa_geo.nn import LinearFeatures, WordEmbedding

#: Of six: the one whose mean vectors a logistic regression tells validation documents of the food
#: reviews apart best by (0: 0.784, 2: 0.809, 4: 0.826, 6: 0.779, over five folds).
MINILM_LAYER = 4

#: Frozen GloVe, or frozen MiniLM; and the settings of training that differ, chosen on validation
#: documents of the food reviews.
FEATURES: dict[str, dict[str, Any]] = {
    "glove": {},
    "minilm": {
        "channels": 128,
        "hidden_channels": 128,
        "dropout": 0.3,
        "lr": 1e-3,
        "weight_decay": 0.5,
    },
}


@dataclass(frozen=True)
class Task:
    """What is asked of which texts.

    Attributes:
        title: Heading of its table.
        dataset: Class of :mod:`hsa_geo.datasets`.
        options: Of the dataset, beside the hierarchy.
        settings: Settings of the training that differ from the usual ones.
        seeds: How many seeds a comparison takes: more where a run takes less than a minute.
    """

    title: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3

    @property
    def made_by(self) -> dict[str, Any]:
        """What a record depends on: all but the number of seeds."""
        return {name: value for name, value in asdict(self).items() if name != "seeds"}


TASKS = {
    "food": Task("Food reviews: great or other", "FoodReviews"),
    "movie": Task("Movie-review sentences: positive or negative", "MovieSentences", seeds=5),
    "brown4": Task(
        "Brown, four groups",
        "Brown",
        {"labels": "groups", "max_words": 1000},
        {"budget": 8192, "epochs": 14},
        seeds=5,
    ),
    "brown15": Task(
        "Brown, fifteen genres",
        "Brown",
        {"max_words": 1000},
        {"budget": 8192, "epochs": 20},
        seeds=5,
    ),
    "spam": Task("E-mails: spam or ham", "SpamMails", {"max_words": 500}, {"budget": 8192}, 5),
}


@dataclass
class Corpus:
    """The documents of a task, as trees of a hierarchy."""

    dataset: TextTrees
    trees: list[SignalTree]
    y: np.ndarray  # [documents]
    features: str
    root: Path

    @classmethod
    def read(
        cls, root: Path, task: str, features: str, hierarchy: str = "given", log: bool = False
    ) -> Corpus:
        """Fetch, build and load (the first time), or load."""
        what = TASKS[task]
        options = dict(what.options)
        if hierarchy != "given":
            options["hierarchy"] = hierarchy
        make = getattr(datasets, what.dataset)
        dataset = make(root / make.file_name, options=options, log=log)
        if features == "minilm":
            dataset = with_features(dataset, features_folder(root, what))
        trees = [dataset[i] for i in range(len(dataset))]
        for tree in trees:  # not needed any more, and long
            del tree.tree_span
        return cls(dataset, trees, dataset.column("y").numpy().reshape(-1), features, root)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.dataset.classes

    def split(self, fold: int, folds: int, share: float = 1.0) -> tuple[np.ndarray, ...]:
        """Documents to train on (a share of them), to validate on, and to test on."""
        train, validation, test = self.dataset.split(fold=fold, folds=folds)
        if share < 1:
            order = np.random.default_rng(fold).permutation(len(train))
            train = np.sort(train[order[: max(1, round(share * len(train)))]])
        return train, validation, test

    def texts(self) -> list[str]:
        """The text of every document, as far as its words are leaves."""
        return [" ".join(self.dataset.words(i)) for i in range(len(self.trees))]

    def encoder(self, channels: int, word_dropout: float) -> dict[str, nn.Module]:
        """A fresh encoder of the words, for a SignalClassifier."""
        words = self.dataset.vocabulary
        if self.features == "minilm":
            return {"token": LinearFeatures(384, channels, norm=True)}
        table, _ = GloVe(self.root / "glove").vectors(words)
        table = table / table.square().mean().sqrt()  # of size one, as a linear layer expects
        return {"word": WordEmbedding(len(words), channels, table, dropout=word_dropout)}


def features_folder(root: Path, task: Task) -> Path:
    """Where the token features of a task's texts are kept."""
    make = getattr(datasets, task.dataset)
    return root / make.file_name / "features" / f"minilm-layer{MINILM_LAYER}"


def prepare(
    root: Path, task: str, features: str, hierarchies: Iterable[str], tokens: bool = False
) -> Corpus:
    """Fetch, build and featurise all that the runs of a comparison read.

    Args:
        root: Where data are kept.
        task: Of :data:`TASKS`.
        features: One of :data:`FEATURES`.
        hierarchies: Those that are used.
        tokens: Whether MiniLM's features are used besides.

    Returns:
        The documents with their given hierarchy.
    """
    what = TASKS[task]
    if tokens or features == "minilm":
        make = getattr(datasets, what.dataset)
        dataset = make(root / make.file_name, options=dict(what.options), log=True)
        encoder = MiniLM(root / "minilm", layer=MINILM_LAYER)
        make_token_features(dataset, encoder, features_folder(root, what))
    if features == "glove":
        GloVe(root / "glove")
    corpus = Corpus.read(root, task, features, log=True)
    for hierarchy in set(hierarchies) - {"given"}:
        Corpus.read(root, task, features, hierarchy, log=True)
    return corpus
