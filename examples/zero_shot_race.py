"""Seconds of a model with layers that attend otherwise, against the model as it is."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from zero_shot_encoding import Setting, attending

import hsa_geo
from hsa_geo._files import write_text


@dataclass(frozen=True)
class Lap:
    """What a setting took, medians over the rounds.

    Attributes:
        setting: What was replaced, or None.
        seconds: Of the whole model.
        attention_seconds: Of the attention of all its layers.
        cpu_seconds: Of the processor, of all threads, for the whole model; on a machine that does
            other things, too, these say more than the seconds that pass.
        faster: The unmodified model's seconds over these, of the same round.
        low, high: The least and the greatest of these.
    """

    setting: Setting | None
    seconds: float
    attention_seconds: float
    cpu_seconds: float
    faster: float
    low: float
    high: float


def raced(
    model: Any,
    settings: Sequence[Setting],
    special: Sequence[int],
    run: Callable[[], Any],
    rounds: int,
) -> list[Lap]:
    """Time a model with every setting, in turns, so that all meet the same load.

    Args:
        model: Of transformers.
        settings: What is replaced.
        special: Ids of special tokens.
        run: Runs the model, on the same input every time.
        rounds: So many times, after one in which code is compiled and plans are made.

    Returns:
        A lap for the unmodified model, and one for each setting.
    """
    entries: list[Setting | None] = [None, *settings]
    whole, attention, cpu = np.zeros((3, rounds + 1, len(entries)))
    for turn in range(rounds + 1):
        for i, setting in enumerate(entries):
            with attending(model, setting, special) as timed, torch.inference_mode():
                run()  # makes the plans, which models that are left replaced keep
                before = sum(one.seconds for one in timed)
                begin, spent = time.perf_counter(), time.process_time()
                run()
                whole[turn, i] = time.perf_counter() - begin
                cpu[turn, i] = time.process_time() - spent
                attention[turn, i] = sum(one.seconds for one in timed) - before
    whole, attention, cpu = whole[1:], attention[1:], cpu[1:]
    faster = whole[:, :1] / whole
    return [
        Lap(
            setting,
            float(np.median(whole[:, i])),
            float(np.median(attention[:, i])),
            float(np.median(cpu[:, i])),
            float(np.median(faster[:, i])),
            float(faster[:, i].min()),
            float(faster[:, i].max()),
        )
        for i, setting in enumerate(entries)
    ]


HEADINGS = (
    "layers",
    "attention",
    "attention ms",
    "whole ms",
    "CPU ms",
    "times faster",
    "least to most",
)


def cells(lap: Lap, layers: int) -> list[str]:
    """A lap as text, of a model of so many layers."""
    changed = () if lap.setting is None else lap.setting.layers
    return [
        "all" if len(changed) == layers else " ".join(map(str, changed)),
        "unmodified" if lap.setting is None else lap.setting.title,
        f"{1000 * lap.attention_seconds:.1f}",
        f"{1000 * lap.seconds:.1f}",
        f"{1000 * lap.cpu_seconds:.1f}",
        f"{lap.faster:.2f}",
        f"{lap.low:.2f} to {lap.high:.2f}",
    ]


def show(laps: Sequence[Lap], title: str, layers: int, console: Console) -> None:
    """Print a table."""
    table = Table(title=title)
    for heading in HEADINGS:
        left = heading in ("layers", "attention")
        table.add_column(heading, justify="left" if left else "right")
    for lap in laps:
        table.add_row(*cells(lap, layers))
    console.print(table)


def save(path: Path, laps: Sequence[Lap], title: str, layers: int) -> None:
    """Keep a table as JSON and Markdown, with date, versions, threads and load."""
    names = ("torch", "transformers", "numpy")
    report = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in names} | {"hsa_geo": hsa_geo.__version__},
        "threads": torch.get_num_threads(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "title": title,
        "rows": [asdict(lap) for lap in laps],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(report, indent=1) + "\n")
    lines = [HEADINGS, ("---", "---", *["---:"] * (len(HEADINGS) - 2))]
    rows = "\n".join(
        "| " + " | ".join(x) + " |" for x in [*lines, *(cells(lap, layers) for lap in laps)]
    )
    write_text(path.with_suffix(".md"), f"{title}\n\n{rows}\n")
