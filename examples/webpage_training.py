"""Training of the web page classifier: one run, with early stopping on validation pages."""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from webpage_data import READER, SKIPPED, Pages, targets

from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages import PageClassifier
from hsa_geo.pages.forms import page_labels, page_of_form


@dataclass(frozen=True)
class Settings:
    """Chosen on validation pages inside the training folds; the same for all attentions."""

    channels: int = 64
    num_layers: int = 1
    heads: int = 4
    dropout: float = 0.3
    token_dropout: float = 0.5
    epochs: int = 10
    patience: int = 4
    batch_size: int = 32
    learning_rate: float = 2e-3
    embedding_factor: float = 5.0  # of the learning rate
    weight_decay: float = 0.05
    averaging: float = 0.97  # decay of the moving average of the weights, which is what is used


def build(settings: Settings, attention: str) -> SubtreeClassifier:
    """An untrained model."""
    return SubtreeClassifier(
        num_ids=READER.hash_buckets,
        num_classes=SKIPPED + 1,
        channels=settings.channels,
        num_layers=settings.num_layers,
        heads=settings.heads,
        dropout=settings.dropout,
        token_dropout=settings.token_dropout,
        attention=attention,
    )


@torch.no_grad()
def predict(model: SubtreeClassifier, pages: Pages, chosen: np.ndarray) -> np.ndarray:
    """Labels of pages ``[pages, 8]``."""
    model.eval()
    out = [
        page_labels(model(batch, batch.form_node), page_of_form(batch), batch.num_graphs)[0]
        for _, batch in pages.batches(chosen, 64)
    ]
    return torch.cat(out).numpy()


def score(y: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Macro- and micro-F1."""
    macro = f1_score(y, labels, average="macro", zero_division=0)
    return float(macro), float(f1_score(y, labels, average="micro", zero_division=0))


def train(
    pages: Pages, attention: str, fold: int | None, seed: int, settings: Settings
) -> tuple[SubtreeClassifier, dict[str, Any]]:
    """Train on a fold's training pages; returns the best epoch's model and a record."""
    begin = time.perf_counter()
    train_pages, validation, _ = pages.split(fold)
    torch.manual_seed(1000 * seed + (99 if fold is None else fold))
    rng = np.random.default_rng([seed, 99 if fold is None else fold])
    model = build(settings, attention)

    tables = model.embedding_parameters()
    others = [p for p in model.parameters() if all(p is not t for t in tables)]
    groups = [
        {"params": tables, "factor": settings.embedding_factor},
        {"params": [p for p in others if p.dim() > 1], "factor": 1.0},
        {"params": [p for p in others if p.dim() <= 1], "factor": 1.0, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)

    label = targets(torch.cat([pages.trees[i].form_label for i in train_pages]))
    count = torch.bincount(label[label >= 0], minlength=SKIPPED + 1).clamp(min=1).float()
    weight = count.mean() / count
    loss_of = nn.CrossEntropyLoss(weight / (weight * count).sum() * count.sum(), ignore_index=-1)

    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(settings.averaging))

    total = settings.epochs * math.ceil(len(train_pages) / settings.batch_size)
    best: tuple[float, int, dict[str, Any]] = (-1.0, 0, {})
    step = 0
    for epoch in range(settings.epochs):
        model.train()
        for _, batch in pages.batches(train_pages, settings.batch_size, rng):
            target = targets(batch.form_label)
            if not bool((target >= 0).any()):
                continue
            rate = min(1.0, (step + 1) / 30) * (1 + math.cos(math.pi * step / total)) / 2
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * group["factor"] * rate
            loss = loss_of(model(batch, batch.form_node), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(model)
            step += 1
        value = sum(score(pages.y[validation], predict(average.module, pages, validation))) / 2
        if value > best[0]:
            best = (value, epoch, copy.deepcopy(average.module.state_dict()))
        elif epoch - best[1] >= settings.patience:
            break
    model.load_state_dict(best[2])
    record = {
        "attention": attention,
        "fold": fold,
        "seed": seed,
        "validation": best[0],
        "epoch": best[1] + 1,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - begin,
    }
    return model.eval(), record


def run(
    root: Path, out: Path, attention: str, fold: int | None, seed: int, settings: Settings
) -> dict[str, Any]:
    """One run in a process of its own; a finished run is read, not repeated.

    Its record, test labels included, is ``out/<attention>-fold<k>-seed<s>.json``; a run without
    a test fold saves its model to ``out/model`` instead.
    """
    name = f"{attention}-{'all' if fold is None else f'fold{fold}'}-seed{seed}.json"
    path = out / name
    model_kept = fold is not None or (out / "model" / "config.json").is_file()
    if path.is_file() and model_kept:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    pages = worker_pages(root)
    model, record = train(pages, attention, fold, seed, settings)
    if fold is None:
        about = asdict(settings)
        PageClassifier(model, READER, pages.dataset.classes, about).save(out / "model")
    else:
        test = pages.split(fold)[2]
        record["pages"] = test.tolist()
        record["labels"] = predict(model, pages, test).astype(int).tolist()
    del model
    release_memory()
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record), encoding="utf-8")
    part.replace(path)
    return record


def release_memory() -> None:
    """Give freed memory back to the system, where the C library can: runs would add up."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


_pages: dict[Path, Pages] = {}


def worker_pages(root: Path) -> Pages:
    """The pages, loaded once in every process."""
    if root not in _pages:
        _pages[root] = Pages.read(root)
    return _pages[root]
