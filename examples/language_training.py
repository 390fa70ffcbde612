"""One run of the comparison on texts: train a variant on a fold, predict its test documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from comparison import Job, Record
from language_baselines import BASELINES, baseline
from language_data import TASKS, Corpus
from torch import Tensor, nn
from torch_geometric.data import Batch

from hsa_geo.nn import SignalClassifier
from hsa_geo.training import LeafBudgetBatchSampler, Options, fit


@dataclass(frozen=True)
class Settings:
    """Chosen on validation documents; the same for all variants of a task."""

    channels: int = 64
    num_layers: int = 2
    heads: int = 4
    hidden_channels: int = 128
    dropout: float = 0.1
    word_dropout: float = 0.1
    readout: str = "mean"
    epochs: int = 10
    budget: int = 4096
    lr: float = 3e-3
    weight_decay: float = 0.05
    ema: float = 0.98


@dataclass(frozen=True)
class Variant:
    """A model, over a hierarchy, trained on a share of the documents.

    Attributes:
        title: What tables call it.
        attention: Of :class:`~hsa_geo.nn.SignalClassifier`.
        hierarchy: ``"given"``, ``"windows"``, ``"random"`` or ``"flat"``.
        model: Other arguments of the model.
        settings: Settings that differ.
        share: Of the training documents.
    """

    title: str
    attention: str = "hsa"
    hierarchy: str = "given"
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0


MODELS = {
    "hsa": Variant("HSA, sentences"),
    "hsa_windows": Variant("HSA, windows of 16 and 4", hierarchy="windows"),
    "hsa_random": Variant("HSA, random groups", hierarchy="random"),
    "flat": Variant("flat attention", "flat"),
    "deep_set": Variant("DeepSet", "deep_set"),
    "none": Variant("no attention", "none"),
}

#: Slow, so only run when asked for: the way between any two words is looked up.
SLOW = {
    "flat_structure": Variant("flat, told the hierarchy", "flat", model={"structure": True}),
}

#: What is varied, one thing at a time, for HSA and where it applies for flat attention.
ABLATIONS = {
    f"{attention}_{name}": Variant(f"{title}, {what}", attention, **change)
    for attention, title in (("hsa", "HSA"), ("flat", "flat"))
    for name, what, change in (
        ("positions0", "no positions", {"model": {"position_channels": 0}}),
        ("l2", "energy l2", {"model": {"energy": "l2"}}),
        ("keys", "values are keys", {"model": {"values": "keys"}}),
        ("l2_keys", "energy l2, values are keys", {"model": {"energy": "l2", "values": "keys"}}),
        ("layers1", "1 layer", {"settings": {"num_layers": 1}}),
        ("layers4", "4 layers", {"settings": {"num_layers": 4}}),
        ("width32", "width 32", {"settings": {"channels": 32, "hidden_channels": 64}}),
        ("width128", "width 128", {"settings": {"channels": 128, "hidden_channels": 256}}),
        ("query", "readout by learned queries", {"settings": {"readout": "query"}}),
        ("share10", "10% of the training data", {"share": 0.1}),
        ("share30", "30% of the training data", {"share": 0.3}),
    )
}

#: What only HSA has.
ABLATIONS["hsa_tie_key"] = Variant("HSA, tied to the keys alone", model={"tie": "key"})

VARIANTS = MODELS | SLOW | ABLATIONS

#: HSA over the hierarchies that one may choose among: what a text says, or windows.
HIERARCHIES = tuple(
    name for name, v in MODELS.items() if v.attention == "hsa" and v.hierarchy != "random"
)


def settings_of(task: str, variant: Variant, base: Settings, quick: bool = False) -> Settings:
    """Settings of a variant on a task; two epochs if quick (and a tenth of the documents)."""
    changes = {**TASKS[task].settings, **variant.settings}
    return replace(base, **(changes | ({"epochs": 2} if quick else {})))


def item_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of every document."""
    return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")


@torch.no_grad()
def predict(model: nn.Module, trees: list[Any], budget: int) -> list[int]:
    """Class of every tree."""
    model.eval()
    out = torch.empty(len(trees), dtype=torch.int64)
    for rows in LeafBudgetBatchSampler(trees, budget, shuffle=False):
        out[rows] = model(Batch.from_data_list([trees[i] for i in rows])).argmax(-1)
    return out.tolist()


def run(
    job: Job,
    root: Path,
    task: str,
    features: str,
    folds: int,
    settings: Settings,
    quick: bool = False,
) -> Record:
    """Train and test one variant, ``name`` or ``name@rate``; the record of :mod:`comparison`."""
    if job.variant in BASELINES:
        return run_baseline(job, root, task, folds, quick)
    name, _, rate = job.variant.partition("@")
    variant = VARIANTS[name]
    settings = settings_of(task, variant, settings, quick)
    if rate:
        settings = replace(settings, lr=float(rate))
    corpus = Corpus.read(root, task, features, variant.hierarchy)
    share = variant.share / 10 if quick else variant.share
    train, validation, test = corpus.split(job.fold, folds, share)

    torch.manual_seed(1000 * job.seed + job.fold)
    model = SignalClassifier(
        corpus.encoder(settings.channels, settings.word_dropout),
        len(corpus.classes),
        channels=settings.channels,
        num_layers=settings.num_layers,
        heads=settings.heads,
        hidden_channels=settings.hidden_channels,
        dropout=settings.dropout,
        attention=variant.attention,
        readout=settings.readout,
        **variant.model,
    )
    result = fit(
        model,
        [corpus.trees[i] for i in train],
        [corpus.trees[i] for i in validation],
        loss=item_loss,
        options=Options(
            epochs=settings.epochs,
            budget=settings.budget,
            bucketing=8,
            lr=settings.lr,
            weight_decay=settings.weight_decay,
            ema=settings.ema,
            seed=1000 * job.seed + job.fold,
        ),
        log=False,
    )
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=test.tolist(),
        predicted=predict(model, [corpus.trees[i] for i in test], settings.budget),
        target=corpus.y[test].tolist(),
        validation=float(result.metric or 0.0),
        parameters=result.parameters,
        epochs=len(result.history),
        seconds_per_epoch=result.seconds_per_epoch,
    )


def run_baseline(job: Job, root: Path, task: str, folds: int, quick: bool = False) -> Record:
    """A baseline that scikit-learn fits."""
    features = "minilm" if job.variant == "minilm_mean" else "glove"
    corpus = Corpus.read(root, task, features)
    train, validation, test = corpus.split(job.fold, folds, 0.1 if quick else 1.0)
    predicted = baseline(job.variant, corpus, train, validation, test)
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=test.tolist(),
        predicted=[int(p) for p in predicted],
        target=corpus.y[test].tolist(),
    )
