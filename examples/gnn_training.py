"""Training of all contenders on the same graphs, with the same steps, from the same seed."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gnn_layers import GNN, matched
from gnn_tasks import HIERARCHIES, Task, named, with_hierarchies
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

import hsa_geo


@dataclass(frozen=True)
class Settings:
    """How a model is made and trained; the last epoch counts, no test result is looked at before.

    Attributes:
        local: Message passing, ``"gin"`` or ``"gcn"``.
        channels, layers, heads: Sizes of the model.
        dropout: Dropout of every branch.
        epochs: Passes over the training graphs.
        batch_size: Graphs in a batch.
        lr: Highest learning rate of the one-cycle schedule of AdamW.
    """

    local: str = "gin"
    channels: int = 32
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0
    epochs: int = 15
    batch_size: int = 20
    lr: float = 1e-2


SETTINGS = {
    "ring": Settings(epochs=25, batch_size=50, lr=3e-3),
    "districts": Settings(epochs=10),
    "karate": Settings("gcn", layers=2, dropout=0.5, epochs=30),
}


@dataclass(frozen=True)
class Contender:
    """A line of the tables: its label, mixer and hierarchy, and whether it reaches by depth."""

    label: str
    mixer: str
    hierarchy: str = "communities"
    deep: bool = False


CONTENDERS = {
    "none": Contender("GNN", "none"),
    "deep": Contender("GNN, as many layers as steps to go", "none", deep=True),
    "virtual_node": Contender("GNN + virtual node", "virtual_node"),
    "gps": Contender("GPSConv, multihead", "gps"),
    "hsa": Contender("GNN + HSAConv, communities", "hsa"),
    "hsa_random": Contender("GNN + HSAConv, random hierarchy", "hsa", "random"),
}
#: Layers of the deep contender, where it takes part.
STEPS_TO_GO = {"ring": 16}


def settings_of(task: str, level: str = "node") -> Settings:
    """Settings of a task by name; of others those for one graph, or for many."""
    if task in SETTINGS:
        return SETTINGS[task]
    if level == "node" and not task.startswith("relay"):
        return Settings("gcn", channels=64, layers=2, dropout=0.5, epochs=100)
    return (
        Settings() if level == "node" else Settings(epochs=50, batch_size=32, dropout=0.1, lr=3e-3)
    )


def contenders_of(task: str) -> list[str]:
    """Names of the contenders that take part."""
    return [name for name, c in CONTENDERS.items() if not c.deep or task in STEPS_TO_GO]


def make_model(name: str, task: str, data: Task, settings: Settings) -> GNN:
    """A contender with as many parameters as the one with ``GPSConv``."""
    contender = CONTENDERS[name]
    return matched(
        contender.mixer,
        data.train[0].x.size(1),
        data.classes,
        level=data.level,
        local=settings.local,
        channels=settings.channels,
        layers=STEPS_TO_GO[task] if contender.deep else settings.layers,
        like_layers=settings.layers,
        heads=settings.heads,
        dropout=settings.dropout,
    )


def train(model: GNN, batches: list[Batch], settings: Settings, seed: int) -> float:
    """Train on batches, in another order in every epoch; returns the last loss."""
    generator = torch.Generator().manual_seed(seed)
    steps = settings.epochs * len(batches)
    optimizer = torch.optim.AdamW(model.parameters(), settings.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.lr, total_steps=steps)
    model.train()
    for _ in range(settings.epochs):
        for i in torch.randperm(len(batches), generator=generator).tolist():
            logits, y = answers(model, batches[i])
            loss = cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return loss.item()


def answers(model: GNN, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of what counts: graphs, or nodes under the mask."""
    logits = model(batch)
    return (
        (logits, batch.y) if model.level == "graph" else (logits[batch.mask], batch.y[batch.mask])
    )


@torch.no_grad()
def accuracy(model: GNN, batches: list[Batch]) -> float:
    """Share of right answers."""
    model.eval()
    pairs = [answers(model, batch) for batch in batches]
    return float(torch.cat([logits.argmax(1) == y for logits, y in pairs]).float().mean())


def run(
    task: str, seed: int, *, root: Path, local: str | None = None, epochs: int | None = None
) -> dict[str, Any]:
    """All contenders on one task with one seed.

    Batches are made once by the stock ``DataLoader``, and with them what HSAConv reads off a tree;
    the first steps of every contender compile and fill caches as in any use.

    Args:
        task: Name of the task.
        seed: Seed of graphs, split, initial weights and order of batches.
        root: Folder for what is fetched.
        local: ``"gin"`` or ``"gcn"``. (default: the task's own)
        epochs: Number of epochs. (default: the task's own)

    Returns:
        ``task``, ``seed``, processor ``seconds`` of it all, and for each contender accuracy, loss,
        parameters and seconds of its training.
    """
    begin = time.process_time()
    plain = named(task, root, np.random.default_rng(seed))
    settings = settings_of(task, plain.level)
    settings = replace(settings, local=local or settings.local, epochs=epochs or settings.epochs)
    trees = with_hierarchies(plain, seed)
    batches = {}
    for hierarchy in HIERARCHIES:
        order = torch.Generator().manual_seed(seed)
        data, size = trees[hierarchy], settings.batch_size
        batches[hierarchy] = (
            list(DataLoader(data.train, size, shuffle=True, generator=order)),
            list(DataLoader(data.test, size)),
        )
    results: dict[str, Any] = {}
    for name in contenders_of(task):
        for_training, for_test = batches[CONTENDERS[name].hierarchy]
        torch.manual_seed(seed)
        model = make_model(name, task, plain, settings)
        start = time.process_time()
        loss = train(model, for_training, settings, seed)
        seconds = time.process_time() - start
        results[name] = {
            "accuracy": accuracy(model, for_test),
            "loss": loss,
            "parameters": model.num_parameters,
            "seconds": seconds,
        }
    seconds = time.process_time() - begin
    return {"task": task, "seed": seed, "seconds": seconds, "results": results}


def kept(folder: Path, task: str, seed: int, **options: Any) -> dict[str, Any]:
    """:func:`run`, or what it said when it ran with this very code and options before.

    Args:
        folder: Where results are kept.
        task, seed: As in :func:`run`.
        **options: Further arguments of :func:`run`.
    """
    here = Path(__file__)
    recipe = [hsa_geo.__version__, torch.__version__, repr(sorted(options.items()))]
    recipe += [here.with_name(f"gnn_{name}.py").read_text() for name in ("layers", "tasks")]
    key = hashlib.sha256("\n".join([*recipe, here.read_text()]).encode()).hexdigest()[:8]
    file = folder / f"{task}_{seed}_{key}.json"
    if file.exists():
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    result = run(task, seed, **options)
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.replace(file)
    return result
