"""How long may documents be?  A step of training, HSA against flat attention, by length.

    python examples/benchmarks/training_length.py             # table, JSON and Markdown in --out
    python examples/benchmarks/training_length.py --check     # only that both train, no times

A whole model (embedding, two blocks, readout, loss, backward, AdamW) takes steps on documents of
one length, with paragraphs of about 5 sentences of about 20 words.  HSA and flat attention take
turns in one run, each length in a process of its own for each model's memory.  A length at which a
step of a model takes longer than ``--limit`` seconds ends that model's part.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import platform
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.nn import SignalClassifier, WordEmbedding
from hsa_geo.training.memory import peak_memory, reset_peak_memory

LENGTHS = (75, 300, 600, 1200, 2300, 4600, 9200, 32768)
#: A step holds at least so many words.
WORDS = 2300
MODELS = ("hsa", "flat")
#: Of the weights; documents are drawn with their number of words as a seed.
SEED = 0


def document(words: int, rng: np.random.Generator) -> SignalTree:
    """A document: paragraphs of 1 to 9 sentences of 5 to 35 words."""
    sentence: list[int] = []  # words of each
    while sum(sentence) < words:
        sentence.append(int(rng.integers(5, 36)))
    sentence[-1] -= sum(sentence) - words
    paragraph: list[int] = []  # sentences of each
    while sum(paragraph) < len(sentence):
        paragraph.append(int(rng.integers(1, 10)))
    paragraph[-1] -= sum(paragraph) - len(sentence)
    first_sentence, first_paragraph = words, words + len(sentence)
    root = first_paragraph + len(paragraph)
    parents = np.concatenate(
        [
            np.repeat(first_sentence + np.arange(len(sentence)), sentence),
            np.repeat(first_paragraph + np.arange(len(paragraph)), paragraph),
            np.full(len(paragraph), root),
            [-1],
        ]
    )
    place = np.zeros((root + 1, 2), np.float32)
    sizes = [*sentence, *paragraph, len(paragraph)]
    place[:root, 0] = np.concatenate([np.arange(size) for size in sizes])
    return SignalTree.from_parents(
        parents,
        domain=Domain.SEQUENCE,
        pos=torch.from_numpy(place),
        word_x=torch.from_numpy(rng.integers(0, 10_000, words)),
        word_index=torch.arange(words),
        y=torch.tensor([int(rng.integers(0, 2))]),
    )


class Trainer:
    """A model that takes steps."""

    def __init__(self, attention: str, channels: int) -> None:
        torch.manual_seed(SEED)
        words = WordEmbedding(10_000, channels, table=torch.randn(10_000, 50))
        self.model = SignalClassifier(
            {"word": words}, 2, channels, hidden_channels=2 * channels, attention=attention
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, trees: list[SignalTree]) -> tuple[float, float]:
        """Seconds and loss of a step, the batch and its plan included."""
        begin = time.perf_counter()
        batch = Batch.from_data_list(trees)
        loss = nn.functional.cross_entropy(self.model(batch), batch.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - begin, float(loss.detach())


def batches(words: int, steps: int) -> list[list[SignalTree]]:
    """Documents of that length, new ones for every step."""
    rng = np.random.default_rng(words)
    count = max(1, round(WORDS / words))
    return [[document(words, rng) for _ in range(count)] for _ in range(steps)]


def interleaved(words: int, models: list[str], channels: int, steps: int) -> dict[str, list[float]]:
    """Seconds of the steps of every model, taken in turns, the first step left out."""
    trainers = {name: Trainer(name, channels) for name in models}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for trees in batches(words, steps + 1):
        for name, trainer in trainers.items():
            taken, loss = trainer.step([tree.clone() for tree in trees])
            if not np.isfinite(loss):
                raise ArithmeticError(f"the loss of {name} is {loss} at {words} words.")
            seconds[name].append(taken)
    return {name: values[1:] for name, values in seconds.items()}


def peak_bytes(words: int, name: str, channels: int) -> int:
    """Memory that a step adds to what the process held before it."""
    trees, trainer = batches(words, 1)[0], Trainer(name, channels)
    trainer.step(batches(64, 1)[0][:1])  # code and threads are there
    cpu = torch.device("cpu")
    reset_peak_memory(cpu)  # not what the parent, or a step before, held at most
    before = peak_memory(cpu)
    trainer.step(trees)
    return peak_memory(cpu) - before


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for every length."""
    rows, alive = [], list(MODELS)
    context = multiprocessing.get_context("spawn")

    def alone(function: Any, *arguments: Any) -> Any:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(function, *arguments).result()

    for words in args.lengths:
        seconds = alone(interleaved, words, alive, args.channels, args.steps)
        row: dict[str, Any] = {"words": words, "documents": max(1, round(WORDS / words))}
        for name in alive:
            low, middle, high = statistics.quantiles(seconds[name], n=4, method="inclusive")
            memory = alone(peak_bytes, words, name, args.channels)
            row[name] = {"seconds": middle, "quartiles": [low, high], "bytes": memory}
        rows.append(row)
        print(text_of(row, args.limit), flush=True)
        alive = [name for name in alive if row[name]["seconds"] <= args.limit]
    return rows


def cells(row: dict[str, Any], limit: float) -> list[str]:
    """A row of the table; a model that took longer than the limit before was not run."""
    out = [f"{row['words']:,}", str(row["documents"])]
    for name in MODELS:
        one = row.get(name)
        if one is None:
            out += [f"not run: over {limit:g} s", ""]
        else:
            low, high = one["quartiles"]
            out.append(f"{one['seconds']:.3f} [{low:.3f}, {high:.3f}]")
            out.append(f"{one['bytes'] / 2**20:,.0f}")
    both = all(name in row for name in MODELS)
    out.append(f"{row['flat']['seconds'] / row['hsa']['seconds']:.1f}x" if both else "")
    return out


def text_of(row: dict[str, Any], limit: float) -> str:
    """A row for the screen."""
    return " | ".join(cells(row, limit))


def markdown(rows: list[dict[str, Any]], limit: float) -> str:
    """The table."""
    head = ["words", "documents a step"]
    for name in ("HSA", "flat"):
        head += [f"{name}, s / step", f"{name}, MiB"]
    head.append("flat / HSA")
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return "\n".join(lines + [f"| {text_of(row, limit)} |" for row in rows])


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--steps", type=int, default=7, help="timed steps of each model")
    parser.add_argument("--limit", type=float, default=30.0, help="most seconds of a step")
    parser.add_argument("--out", type=Path, default=Path("runs/training_length"))
    parser.add_argument("--check", action="store_true", help="train a few steps, time nothing")
    args = parser.parse_args()
    if args.check:
        for words in (30, 300):
            interleaved(words, list(MODELS), 16, 2)
        print("both models train")
        return 0
    rows = measure(args)
    args.out.mkdir(parents=True, exist_ok=True)
    report = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "hsa_geo")},
        "seeds": {"weights": SEED, "documents": {str(words): words for words in args.lengths}},
        "threads": torch.get_num_threads(),
        "channels": args.channels,
        "steps": args.steps,
        "limit": args.limit,
        "rows": rows,
    }
    (args.out / "training_length.json").write_text(json.dumps(report, indent=1) + "\n")
    (args.out / "training_length.md").write_text(markdown(rows, args.limit) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
