"""A small encoder with hierarchical attention against the same encoder with flat attention.

Usage::

    python examples/benchmarks/encoder.py [--words 32 64 ...] [--out FOLDER]

Two pre-norm blocks of 256 channels and 4 heads, once with ``HSAConv`` and once with ``FlatConv``
(the same parameters; documents padded to the longest of the batch and masked), one training step
on a batch of documents: forward, loss, backward.  Document lengths vary by half around the number
given, as lengths do, and a batch has about 8,192 words.  Everything takes turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from attention_measure import quartiles
from attention_report import Table, milliseconds, number
from attention_shapes import document
from torch_geometric.data import Batch

from hsa_geo.nn import FlatConv, HSAEncoder

CHANNELS, HEADS, LAYERS = 256, 4, 2


def make_batch(words: int, total: int, rng: np.random.Generator) -> Batch:
    """Documents of ``words`` words on average, about ``total`` in all, with features."""
    low, high = max(2, words // 2), words + words // 2
    lengths = rng.integers(low, high + 1, max(1, total // words))
    batch = Batch.from_data_list([document(int(length), rng) for length in lengths])
    batch.x = torch.randn(batch.num_nodes, CHANNELS)
    return batch


def encoders() -> dict[str, HSAEncoder]:
    """The contenders, with the same parameters."""
    torch.manual_seed(0)
    plain = {"num_layers": LAYERS, "heads": HEADS}
    hsa = HSAEncoder(CHANNELS, position_channels=0, **plain)
    block = HSAEncoder(CHANNELS, position_channels=0, backend="block", **plain)
    flat = HSAEncoder(CHANNELS, conv=lambda: FlatConv(CHANNELS, CHANNELS // HEADS, HEADS), **plain)
    for other in (block, flat):
        other.load_state_dict(hsa.state_dict())
    return {"hsa": hsa, "hsa, block": block, "flat": flat}


def seconds(step: Callable[[], None]) -> float:
    """How long a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure(words: int, total: int, rounds: int, rng: np.random.Generator) -> dict:
    """Training steps in turns: quartiles of seconds, and of the plan alone."""
    batch = make_batch(words, total, rng)
    models = encoders()

    def step(model: HSAEncoder) -> None:
        model.zero_grad()
        model(batch.x, batch).square().mean().backward()

    def plan() -> None:
        type(batch.plan).from_index(batch.tree_index, batch.tree_level)

    runs = {name: lambda model=model: step(model) for name, model in models.items()}
    runs["plan"] = plan
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for number_ in range(rounds + 1):
        for name, run in runs.items():
            took = seconds(run)
            if number_:  # the first is for warming up
                samples[name].append(took)
    return {
        "words": words,
        "documents": batch.num_graphs,
        "leaves": batch.num_nodes,
        "results": {name: quartiles(times) for name, times in samples.items()},
    }


def table(rows: list[dict]) -> Table:
    """Milliseconds of a step, and how many times longer flat attention takes."""
    cells = []
    for row in rows:
        at = row["results"]
        times = [milliseconds(at[name]) for name in ("hsa", "hsa, block", "flat", "plan")]
        ratio = at["flat"]["median"] / (at["hsa"]["median"] + at["plan"]["median"])
        cells.append([f"{row['words']} ({row['documents']} documents)", *times, number(ratio)])
    return Table(
        "One training step of a small encoder, milliseconds",
        ["words in a document", "HSA", "HSA, block", "flat", "plan", "flat / (HSA + plan)"],
        cells,
        ["Medians with quartiles; the plan is built once for a batch and shared by all layers."],
    )


def main() -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--words", type=int, nargs="+", default=[32, 64, 128, 256, 600, 2300])
    parser.add_argument("--total", type=int, default=8192, help="words in a batch (8192)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds (9)")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's own)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for encoder.json and encoder.md")
    args = parser.parse_args()
    if min(args.words) < 2 or args.total < 1 or args.rounds < 1:
        parser.error(f"--words {args.words} --total {args.total} --rounds {args.rounds}: too small")
    if args.threads:
        torch.set_num_threads(args.threads)
    rows = []
    for words in args.words:
        rows.append(measure(words, args.total, args.rounds, np.random.default_rng(args.seed)))
        print(f"{words} words: done", flush=True)
    table(rows).show()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "encoder.json").write_text(json.dumps(rows, indent=1) + "\n")
        (args.out / "encoder.md").write_text(table(rows).markdown())


if __name__ == "__main__":
    main()
