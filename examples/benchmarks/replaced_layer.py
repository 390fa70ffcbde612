"""Is attention of a replaced layer faster than that of the model?  By length and batch size.

    python examples/benchmarks/replaced_layer.py             # table, JSON and Markdown in --out
    python examples/benchmarks/replaced_layer.py --check     # only that all agree in shape

One layer's attention with 12 heads of 64 features, from the queries, keys and values of a padded
batch to its outputs: what a layer of a pretrained encoder does through ``replace_attention``,
against PyTorch's fused attention.  The trees of a batch are made once for all layers of a pass, and
kept for batches of the same lengths: making them is timed by itself.  All take turns in one run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import hsa_geo
from hsa_geo.hf import Windows
from hsa_geo.hf.plans import Plans
from hsa_geo.hf.replace import Hierarchical

LENGTHS = (128, 256, 512, 1024, 2048)
BATCHES = (1, 16)
HEADS, HEAD_DIM = 12, 64
SETTINGS = [(tie, window) for tie in ("block", "key") for window in (4, 8)]


def flat(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the model does; ``[B, H, L, D]`` to ``[B, L, H, D]``."""
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous()


def replaced(tie: str, window: int) -> Callable[..., Tensor]:
    """What a replaced layer does."""
    handler = Hierarchical(Plans(Windows(window)), tie)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return handler(handler.begin(None, None), None, q, k, v, None)[0]

    return attend


def trees(tie: str, window: int, k: Tensor) -> None:
    """What the first replaced layer does once for a batch of new lengths: the plan, whole."""
    plan = Plans(Windows(window)).begin(None, None).batch(None, k).plan
    _ = plan.reach_lists if tie == "key" else plan.packed


@torch.inference_mode()
def measure(batch: int, length: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each, in turns, for so many rounds or seconds."""
    generator = torch.Generator().manual_seed(0)
    # As a model makes them: heads beside each other, then seen as [B, H, L, D].
    q, k, v = (
        torch.randn(batch, length, HEADS, HEAD_DIM, generator=generator).transpose(1, 2)
        for _ in range(3)
    )
    functions = {"flat": flat} | {f"{t} {w}": replaced(t, w) for t, w in SETTINGS}
    names = [*functions, *(f"trees, {t} {w}" for t, w in SETTINGS)]
    taken: dict[str, list[float]] = {name: [] for name in names}
    begin = time.perf_counter()
    for turn in range(rounds + 2):
        for name, function in functions.items():
            start = time.perf_counter()
            out = function(q, k, v)
            if turn >= 2:
                taken[name].append(time.perf_counter() - start)
            if out.shape != (batch, length, HEADS, HEAD_DIM):
                raise ArithmeticError(f"{name} gave {list(out.shape)}.")
        for t, w in SETTINGS:
            start = time.perf_counter()
            trees(t, w, k)
            if turn >= 2:
                taken[f"trees, {t} {w}"].append(time.perf_counter() - start)
        if turn >= 6 and time.perf_counter() - begin > seconds:
            break
    return taken


def row_of(batch: int, length: int, taken: dict[str, list[float]]) -> dict[str, Any]:
    """Medians and quartiles, and how many times faster each is than flat in the median round."""
    row: dict[str, Any] = {"batch": batch, "length": length}
    for name, values in taken.items():
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        ratio = statistics.median(f / value for f, value in zip(taken["flat"], values))
        row[name] = {"seconds": middle, "quartiles": [low, high], "times faster": ratio}
    return row


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table: times faster, and in brackets what the trees of a new batch take once."""
    names = [f"{tie} {window}" for tie, window in SETTINGS]
    head = ["texts", "tokens", "flat, ms", *(f"{name.replace(' ', '-tied, ')}" for name in names)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    for row in rows:
        cells = [str(row["batch"]), f"{row['length']:,}", f"{1000 * row['flat']['seconds']:.2f}"]
        for name in names:
            made = 1000 * row[f"trees, {name}"]["seconds"]
            cells.append(f"{row[name]['times faster']:.2f}x (+ {made:.1f} ms)")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for a row")
    parser.add_argument("--out", type=Path, default=Path("runs/replaced_layer"))
    parser.add_argument("--check", action="store_true", help="run all once, time nothing")
    args = parser.parse_args(arguments)
    if args.check:
        for batch in (1, 2):
            measure(batch, 40, 1, 0.0)
        print("all attend")
        return 0
    rows = []
    for batch in args.batches:
        for length in args.lengths:
            rows.append(row_of(batch, length, measure(batch, length, args.rounds, args.limit)))
            print(markdown(rows[-1:]).splitlines()[-1], flush=True)
    report = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in ("torch", "numba", "transformers")},
        "hsa_geo": hsa_geo.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "heads": [HEADS, HEAD_DIM],
        "rows": rows,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "replaced_layer.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    (args.out / "replaced_layer.md").write_text(markdown(rows) + "\n", "utf-8")
    print(f"written to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
