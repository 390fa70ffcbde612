"""Tables of a comparison: on the screen, as Markdown, as JSON."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from comparison import Record
from comparison_statistics import Difference, compare, hits
from rich.console import Console
from rich.table import Table

from hsa_geo._files import write_text

HEADINGS = (
    "model",
    "accuracy",
    "sd",
    "runs",
    "minus {other}",
    "p (items)",
    "parameters",
    "s / epoch",
    "peak GB",
)


@dataclass
class Row:
    """One variant: accuracies in percent points of 0..1, cost as medians over its runs."""

    variant: str
    title: str
    accuracy: float
    sd: float  # over runs, each fold and seed by itself; nan for one
    gap: Difference | None  # to the reference; None for the reference itself
    parameters: int
    seconds_per_epoch: float
    peak_gigabytes: float
    seeds: int
    runs: int
    by_seed: list[float] = field(default_factory=list)


def rows_of(
    records: Sequence[Record],
    titles: Mapping[str, str],
    reference: str,
    group: np.ndarray | None = None,
) -> list[Row]:
    """Summarise the records of each variant.

    Args:
        records: All records.
        titles: What to call each variant; variants without records are left out.
        reference: The variant that the others are compared with.
        group: Group of each test item, ids ascending; see
            :func:`comparison_statistics.compare`. (default: none)

    Returns:
        A row for each variant, in the order of ``titles``.
    """
    base = hits(records, reference)
    rows = []
    for variant, title in titles.items():
        own = [r for r in records if r.variant == variant]
        if not own:
            continue
        hit = hits(records, variant)
        gap = None if variant == reference else compare(hit, base, group)
        accuracy = hit.accuracy
        runs = [r.accuracy for r in own]
        rows.append(
            Row(
                variant,
                title,
                float(accuracy.mean()),
                float(np.std(runs, ddof=1)) if len(runs) > 1 else float("nan"),
                gap,
                int(np.median([r.parameters for r in own])),
                float(np.median([r.seconds_per_epoch for r in own])),
                float(np.median([r.peak_bytes for r in own])) / 1e9,
                len(accuracy),
                len(runs),
                accuracy.tolist(),
            )
        )
    return rows


def cells(row: Row) -> list[str]:
    """The row as text."""
    gap, p = "", ""
    if row.gap is not None:
        gap = f"{row.gap.mean:+.3f} [{row.gap.low:+.3f}, {row.gap.high:+.3f}]"
        p = "< 0.001" if row.gap.p < 0.001 else f"{row.gap.p:.3f}"
    return [
        row.title,
        f"{row.accuracy:.3f}",
        "" if np.isnan(row.sd) else f"{row.sd:.3f}",
        str(row.runs),
        gap,
        p,
        f"{row.parameters:,}" if row.parameters else "",
        "" if np.isnan(row.seconds_per_epoch) else f"{row.seconds_per_epoch:.1f}",
        f"{row.peak_gigabytes:.1f}",
    ]


def show(rows: Sequence[Row], title: str, console: Console) -> None:
    """Print the table."""
    other = next((row.title for row in rows if row.gap is None), "")
    table = Table(title=title)
    for heading in HEADINGS:
        left = heading == "model"
        table.add_column(heading.format(other=other), justify="left" if left else "right")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)


def markdown(rows: Sequence[Row]) -> str:
    """The table in Markdown."""
    other = next((row.title for row in rows if row.gap is None), "")
    lines = [
        "| " + " | ".join(h.format(other=other) for h in HEADINGS) + " |",
        "|---" + "|---:" * (len(HEADINGS) - 1) + "|",
    ]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def shown(options: Mapping[str, Any]) -> str:
    """Options as a line of a title: ``max_words=500, labels=groups``; nothing where there are none.

    What was cut from the data is so said wherever a table of them is read.
    """
    return ", ".join(f"{name}={value}" for name, value in options.items())


def wide_console(**options: Any) -> Console:
    """The terminal; a file or a pipe gets lines wide enough for a whole table."""
    console = Console(**options)
    if not console.is_terminal:
        console.width = 160
    return console


def save_report(
    path: Path, tables: Mapping[str, Sequence[Row]], seeds: Sequence[int], **more: Any
) -> None:
    """Write tables as JSON, with the date, the versions and the seeds.

    Args:
        path: The file.
        tables: By name.
        seeds: The seeds of the runs.
        **more: What else belongs to it, such as the settings.
    """
    packages = ("torch", "torch-geometric", "numpy", "scikit-learn", "hsa_geo")
    report = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "seeds": list(seeds),
        **more,
        "tables": {name: [asdict(row) for row in rows] for name, rows in tables.items()},
    }
    write_text(path, json.dumps(report, indent=1, default=str) + "\n")
