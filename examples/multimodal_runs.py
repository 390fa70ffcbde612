"""One run on pages or emojis: data of a fold, a model, training, predictions.

Kept apart from the command line, as runs happen in processes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import Job, Record
from torch import Tensor, nn

from hsa_geo.data import SignalTree
from hsa_geo.datasets import Emojis, GloVe, ManualPages
from hsa_geo.datasets.splits import stratified_split
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.nn import PatchConv, SignalClassifier, WordEmbedding
from hsa_geo.training import Batches, LeafBudgetBatchSampler, Options, fit

#: The models; ``told`` is flat attention that is told the hierarchy of the leaves.
ATTENTIONS = {
    "hsa": {"attention": "hsa"},
    "flat": {"attention": "flat"},
    "told": {"attention": "flat", "structure": True},
    "deep_set": {"attention": "deep_set"},
    "none": {"attention": "none"},
}
BASELINES = {
    "tfidf": "TF-IDF + logistic regression, words",
    "glove_mean": "mean of GloVe + logistic regression, words",
    "majority": "most common class",
}
MODALITIES = {"both": ("word", "image"), "text": ("word",), "image": ("image",)}


@dataclass(frozen=True)
class Settings:
    """What a run depends on, beside its variant, fold and seed."""

    data: str = "gimp-help"
    folds: int = 5
    limit: int | None = None  # use so many items only, for a trial
    max_words: int = 128  # of a page, from its start
    max_side: int = 32  # pixels that a picture is reduced to
    vectors: str = "learned"  # or "glove": frozen GloVe vectors through a linear layer
    channels: int = 64
    layers: int = 1
    heads: int = 4
    dropout: float = 0.3
    word_dropout: float = 0.3
    epochs: int = 20
    patience: int = 6
    budget: int = 2048  # leaves of a step
    weight_decay: float = 0.05


def load(root: str, settings: Settings) -> StoredTrees:
    """The dataset of the settings; built on first use, read afterwards."""
    options = {"max_side": settings.max_side}
    if settings.data == "emojis":
        return Emojis(Path(root, "emojis"), options=options)
    return ManualPages(Path(root, "manual_pages"), settings.data, options=options)


def split_of(data: StoredTrees, settings: Settings, fold: int) -> tuple[np.ndarray, ...]:
    """Training, validation and test items of a fold; groups stay together."""
    rows = np.sort(np.random.default_rng(0).permutation(len(data))[: settings.limit])
    labels, groups = (data.column(name).numpy()[rows] for name in ("y", "group_id"))
    parts = stratified_split(labels, groups, fold=fold, folds=settings.folds, validation=0.15)
    return tuple(rows[part] for part in parts)


def reduced(tree: SignalTree, modalities: Sequence[str], max_words: int) -> SignalTree:
    """A tree with the leaves of some modalities only, and its first words.

    An item without any of them stays, with one leaf that holds nothing.
    """
    keep = torch.zeros(tree.num_nodes, dtype=torch.bool)
    if "word" in modalities:
        rows = tree.word_index.unique()[:max_words]
        keep[rows] = True
    if "image" in modalities:
        keep[tree.image_index] = True
    if not keep.any():
        keep[0] = True
    tree = tree.restrict(keep)
    for key in ("tree_name", "leaf_kind"):
        if key in tree:
            del tree[key]
    return tree


def known_words(data: StoredTrees, rows: Sequence[int], least: int = 2) -> Tensor:
    """Number of each word among those of at least two training items; 0 stands for the others."""
    count = torch.zeros(len(data.vocabulary), dtype=torch.int64)
    for row in rows:
        count[data[int(row)].word_x.unique()] += 1
    known = count >= least
    return torch.where(known, known.cumsum(0), 0)


def with_words(trees: Sequence[SignalTree], number: Tensor) -> None:
    """Number the words of trees anew."""
    for tree in trees:
        tree.word_x = number[tree.word_x]


@lru_cache(maxsize=1)
def _glove(root: str, words: tuple[str, ...]) -> Tensor:
    return GloVe(Path(root, "glove")).vectors(list(words))[0]


def encoders(
    root: str, data: StoredTrees, number: Tensor, modalities: Sequence[str], settings: Settings
) -> dict[str, nn.Module]:
    """An encoder of each modality."""
    out: dict[str, nn.Module] = {}
    width, drop = settings.channels, settings.word_dropout
    if "word" in modalities and settings.vectors == "glove":
        table = _glove(root, tuple(data.vocabulary))
        out["word"] = WordEmbedding(len(table), width, table, dropout=drop)
    elif "word" in modalities:
        out["word"] = WordEmbedding(int(number.max()) + 1, width, dropout=drop)
    if "image" in modalities:
        out["image"] = PatchConv(8, width)
    return out


def run(job: Job, root: str, settings: Settings) -> Record:
    """Train and test ``<attention>-<modalities>@<rate>``, or a baseline, on one fold."""
    if job.variant in BASELINES:
        return baseline(job, root, settings)
    variant, rate = job.variant.split("@")
    attention, which = variant.split("-")
    modalities = MODALITIES[which]
    data = load(root, settings)
    train, validation, test = split_of(data, settings, job.fold)
    number = torch.arange(len(data.vocabulary))
    if settings.vectors != "glove":
        number = known_words(data, train)

    def trees_of(rows: np.ndarray) -> list[SignalTree]:
        trees = [reduced(data[int(row)], modalities, settings.max_words) for row in rows]
        with_words(trees, number)
        return trees

    torch.manual_seed(job.seed)
    model = SignalClassifier(
        encoders(root, data, number, modalities, settings),
        data.num_classes,
        settings.channels,
        settings.layers,
        settings.heads,
        2 * settings.channels,
        settings.dropout,
        **ATTENTIONS[attention],
    )
    options = Options(
        epochs=settings.epochs,
        patience=settings.patience,
        budget=settings.budget,
        bucketing=8,
        lr=float(rate),
        weight_decay=settings.weight_decay,
        seed=job.seed,
        device="cpu",
    )
    result = fit(
        model,
        trees_of(train),
        trees_of(validation),
        loss=lambda m, batch: nn.functional.cross_entropy(m(batch), batch.y, reduction="none"),
        options=options,
        log=False,
    )
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=test.tolist(),
        predicted=predict(model, trees_of(test), settings.budget),
        target=data.column("y")[test].tolist(),
        validation=float(result.metric if result.metric is not None else "nan"),
        parameters=result.parameters,
        epochs=len(result.history),
        seconds_per_epoch=result.seconds_per_epoch,
    )


def predict(model: nn.Module, trees: list[SignalTree], budget: int) -> list[int]:
    """The class that a model says of each tree."""
    sampler = LeafBudgetBatchSampler(trees, budget, shuffle=False)
    said: list[int] = []
    model.eval()
    with torch.no_grad():
        for batch in Batches(trees, sampler, torch.device("cpu"), 0, 0):
            said += model(batch).argmax(-1).tolist()
    return said


def baseline(job: Job, root: str, settings: Settings) -> Record:
    """TF-IDF of one and two words or mean word vectors with logistic regression, or the most common
    class.

    The words are those that the models see.  How strongly the regression is held back is chosen
    on the validation items.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    data = load(root, settings)
    parts = split_of(data, settings, job.fold)
    labels = [data.column("y")[part].numpy() for part in parts]
    score, parameters = float("nan"), 0
    if job.variant == "majority":
        said = np.full(len(parts[2]), np.bincount(labels[0]).argmax())
    else:
        table = _glove(root, tuple(data.vocabulary)) if job.variant == "glove_mean" else None

        def features() -> tuple[Any, ...]:
            if table is None:
                pairs = {"ngram_range": (1, 2), "min_df": 2, "sublinear_tf": True}
                return (TfidfVectorizer(token_pattern=r"\S+", **pairs),)
            return FunctionTransformer(np.asarray), StandardScaler()

        def given(row: int) -> Any:
            words = _words(data, row, settings.max_words)
            if table is None:
                return " ".join(data.vocabulary[word] for word in words)
            known = table[words][table[words].any(1)]  # words without a vector have zeros
            return (known.sum(0) / max(1, len(known))).numpy()

        inputs = [[given(row) for row in part] for part in parts]
        best: Any = None
        for strength in (0.01, 0.1, 1.0, 10.0, 100.0):
            regression = LogisticRegression(C=strength, max_iter=1000)
            model = make_pipeline(*features(), regression).fit(inputs[0], labels[0])
            value = float(model.score(inputs[1], labels[1]))
            if best is None or value > score:
                best, score = model, value
        said = best.predict(inputs[2])
        parameters = int(best[-1].coef_.size)
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=parts[2].tolist(),
        predicted=said.tolist(),
        target=labels[2].tolist(),
        validation=score,
        parameters=parameters,
    )


def _words(data: StoredTrees, row: int, max_words: int) -> list[int]:
    tree = data[int(row)]
    allowed = tree.word_index.unique()[:max_words]
    return tree.word_x[torch.isin(tree.word_index, allowed)].tolist()
