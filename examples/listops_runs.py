"""One run of the comparison of structures: the data, a model or a baseline, its record."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison import Job, Record
from torch import Tensor, nn
from torch_geometric.loader import DataLoader

from hsa_geo.datasets import ListOps, Records
from hsa_geo.datasets.listops_trees import SYMBOLS
from hsa_geo.nn import SignalClassifier, Symbols
from hsa_geo.training import Options, fit

#: Variants, their titles, and the arguments of their models; None for baselines without one.
MODELS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "hsa": ("HSA", {"attention": "hsa"}),
    "hsa_told": ("HSA, told depth and path", {"attention": "hsa", "structure": True}),
    "flat": ("flat attention", {"attention": "flat"}),
    "flat_told": ("flat attention, told the hierarchy", {"attention": "flat", "structure": True}),
    "flat_told_deep": (
        "flat attention, told the hierarchy, 4 layers",
        {"attention": "flat", "structure": True, "num_layers": 4},
    ),
    "deep_set": ("DeepSet, told depth and path", {"attention": "deep_set", "structure": True}),
    "none": ("no attention, told depth and path", {"attention": "none", "structure": True}),
    "bag": ("bag of symbols + logistic regression", None),
}
#: Inverse strengths of the regularisation of the bag of symbols, from strong to weak.
STRENGTHS = (0.003, 0.03, 0.3, 3.0, 30.0, 300.0)


@dataclass(frozen=True)
class Settings:
    """A task, its size, and how the models are trained.

    Attributes:
        task: ``"listops"`` or ``"records"``.
        sizes: Numbers of training, validation and test trees.
        data: Further options of the dataset.
        channels, layers: Size of the models; the feed-forward networks are twice as wide.
        epochs, budget: Of training; the budget is in leaves per batch.
    """

    task: str
    sizes: tuple[int, int, int]
    data: dict[str, Any] = field(default_factory=dict)
    channels: int = 64
    layers: int = 2
    epochs: int = 10
    budget: int = 1024


def load(settings: Settings, root: Path) -> Any:
    """The dataset, generated once."""
    options = {"sizes": list(settings.sizes), **settings.data}
    kind = {"listops": ListOps, "records": Records}[settings.task]
    return kind(root / settings.task, options=options, log=False)


def num_symbols(dataset: Any) -> int:
    """Number of ids of ``symbol_x``."""
    return len(SYMBOLS) if isinstance(dataset, ListOps) else dataset.num_symbols


def build(arguments: dict[str, Any], dataset: Any, settings: Settings) -> SignalClassifier:
    """A model for a dataset."""
    return SignalClassifier(
        {"symbol": Symbols(num_symbols(dataset), settings.channels)},
        dataset.num_classes,
        settings.channels,
        hidden_channels=2 * settings.channels,
        zero_init=False,
        **{"num_layers": settings.layers, **arguments},
    )


def run(job: Job, root: Path, settings: Settings) -> Record:
    """Train one variant, given as ``name@rate``, with one seed, and predict the test trees."""
    variant, _, rate = job.variant.partition("@")
    torch.manual_seed(job.seed)
    dataset = load(settings, root)
    train, validation, test = dataset.split()
    arguments = MODELS[variant][1]
    if arguments is None:
        return bag_of_symbols(job, dataset, train, validation, test)
    model = build(arguments, dataset, settings)

    def logits(batch: Any) -> Tensor:
        # ListOps is read from all leaves, the answer of a table from the leaf that asks.
        return model(batch, batch.get("question_node"))

    def loss(_: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(logits(batch), batch.y, reduction="none")

    def metric(_: nn.Module, batches: Any) -> float:
        right = [(logits(batch).argmax(-1) == batch.y).float() for batch in batches]
        return float(torch.cat(right).mean())

    result = fit(
        model,
        dataset[torch.from_numpy(train)],
        dataset[torch.from_numpy(validation)],
        loss=loss,
        metric=metric,
        options=Options(
            epochs=settings.epochs,
            budget=settings.budget,
            bucketing=16,
            lr=float(rate),
            seed=job.seed,
        ),
        log=False,
    )
    model.eval()
    predicted: list[int] = []
    with torch.no_grad():
        for batch in DataLoader(dataset[torch.from_numpy(test)], batch_size=128):
            predicted += logits(batch).argmax(-1).tolist()
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=test.tolist(),
        predicted=predicted,
        target=dataset.column("y")[test].tolist(),
        validation=float(result.metric),
        parameters=result.parameters,
        epochs=settings.epochs,
        seconds_per_epoch=result.seconds_per_epoch,
    )


def bag_of_symbols(
    job: Job, dataset: Any, train: np.ndarray, validation: np.ndarray, test: np.ndarray
) -> Record:
    """Logistic regression of how often each symbol occurs; its strength by validation."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    width = num_symbols(dataset)
    counts = torch.stack([tree.symbol_x.bincount(minlength=width) for tree in dataset]).numpy()
    y = dataset.column("y").numpy()
    best, chosen = -1.0, None
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=2000)
        with warnings.catch_warnings():  # almost there is near enough where nothing holds it
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(counts[train], y[train])
        score = float(model.score(counts[validation], y[validation]))
        if score > best:  # of several alike the strongest
            best, chosen = score, model
    assert chosen is not None
    return Record(
        job.variant,
        job.fold,
        job.seed,
        items=test.tolist(),
        predicted=chosen.predict(counts[test]).tolist(),
        target=y[test].tolist(),
        validation=best,
        parameters=int(chosen.coef_.size + chosen.intercept_.size),
    )
