"""The table and the picture of a zero-shot replacement.

    python examples/zero_shot_table.py runs/zero_shot/*.json --out zero_shot.svg

draws several kept tables into one picture.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison_statistics import Difference, Hits, compare
from rich.console import Console
from rich.table import Table
from zero_shot_encoding import Outcome, Setting

import hsa_geo
from hsa_geo._files import write_text

HEADINGS = ("layers", "attention", "accuracy", "minus unmodified", "same neighbour", "cosine")
HEADINGS += ("operations", "of replaced", "attention ms", "whole ms")
#: Colours that the colour-blind can tell apart, and markers.
LOOKS = {
    "block": ("#0072B2", "s", "HSA, block-tied"),
    "key": ("#D55E00", "o", "HSA, key-tied"),
    "clusters": ("#CC79A7", "D", "HSA, key-tied, by content"),
    "local": ("#555555", "x", "local windows"),
    "pooled": ("#009E73", "^", "pooled keys"),
}


@dataclass(frozen=True)
class Row:
    """One setting.

    Attributes:
        setting: What was replaced, or None.
        accuracy: Of the probes.
        gap: Minus that of the unmodified model.
        same: How often the nearest other text stays the same.
        cosine: Mean cosine with the unmodified vectors.
        share: Operations of all attention, as a share of the unmodified model's.
        replaced: Those of the replaced layers, as a share of what they were.
        seconds, attention_seconds: Of a text, or None.
    """

    setting: Setting | None
    accuracy: float
    gap: Difference
    same: float
    cosine: float
    share: float
    replaced: float
    seconds: float | None = None
    attention_seconds: float | None = None

    @property
    def title(self) -> str:
        """What the table calls it."""
        return "unmodified" if self.setting is None else self.setting.title


def row_of(
    setting: Setting | None,
    found: Outcome,
    base: Outcome,
    hit: Hits,
    right: Hits,
    near: np.ndarray,
    nearest: np.ndarray,
    layers: int,
) -> Row:
    """One row of the table.

    Args:
        setting: What was replaced.
        found: What came out.
        base: What came out of the unmodified model.
        hit: Which texts were got right.
        right: Those that the unmodified model got right.
        near: The nearest other text of each.
        nearest: The same of the unmodified model.
        layers: Layers of the model.

    Returns:
        The row.
    """
    changed = 0 if setting is None else len(setting.layers)
    before = changed * base.flat
    return Row(
        setting,
        float(hit.right.mean()),
        compare(hit, right),
        float((near == nearest).mean()),
        float((found.vectors * base.vectors).sum(1).mean()),
        ((layers - changed) * base.flat + found.replaced) / (layers * base.flat),
        found.replaced / before if before else 1.0,
    )


def cells(row: Row) -> list[str]:
    """A row as text."""
    gap, setting = row.gap, row.setting
    return [
        "" if setting is None else " ".join(map(str, setting.layers)),
        row.title,
        f"{row.accuracy:.3f}",
        f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]" if setting else "",
        f"{row.same:.2f}",
        f"{row.cosine:.3f}",
        f"{row.share:.3f}",
        f"{row.replaced:.3f}",
        "" if row.attention_seconds is None else f"{1000 * row.attention_seconds:.2f}",
        "" if row.seconds is None else f"{1000 * row.seconds:.2f}",
    ]


def show(rows: Sequence[Row], title: str, console: Console) -> None:
    """Print the table."""
    table = Table(title=title)
    for heading in HEADINGS:
        left = heading in ("layers", "attention")
        table.add_column(heading, justify="left" if left else "right")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)


def markdown(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    lines = [HEADINGS, ("---", "---", *["---:"] * (len(HEADINGS) - 2))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, *map(cells, rows)])


def save(path: Path, rows: Sequence[Row], task: str, title: str, seconds: float) -> None:
    """Keep the table as JSON and Markdown, with date, versions and settings."""
    names = ("torch", "transformers", "scikit-learn", "numpy")
    report: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "versions": {name: version(name) for name in names} | {"hsa_geo": hsa_geo.__version__},
        "threads": torch.get_num_threads(),
        "task": task,
        "title": title,
        "seconds": round(seconds, 1),
        "rows": [asdict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(report, indent=1) + "\n")
    write_text(path.with_suffix(".md"), f"{title}\n\n{markdown(rows)}\n")


def read(path: Path) -> tuple[str, list[Row]]:
    """Title and rows of a kept table."""
    report = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for one in report["rows"]:
        setting = one.pop("setting")
        gap = Difference(**one.pop("gap"))
        if setting is not None:
            setting = Setting(**{**setting, "layers": tuple(setting["layers"])})
        rows.append(Row(setting=setting, gap=gap, **one))
    return report["title"], rows


def draw(tables: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Accuracy lost over operations left in the replaced layers, as a picture.

    Args:
        tables: Rows by title: a row of panels each, and in it a panel for each set of layers.
        path: Of the picture, whose ending says its format.
    """
    from matplotlib.figure import Figure

    sets = sorted(
        {r.setting.layers for rows in tables.values() for r in rows if r.setting}, key=len
    )
    figure = Figure(figsize=(4.6 * len(sets), 3.1 * len(tables)), layout="constrained")
    panels = figure.subplots(len(tables), len(sets), squeeze=False, sharex=True, sharey=True)
    for (title, rows), line in zip(tables.items(), panels):
        for layers, panel in zip(sets, line):
            _panel(panel, [row for row in rows if row.setting and row.setting.layers == layers])
            panel.set_title(f"{title.split(':')[0]}; {len(layers)} layers", fontsize=9)
        line[0].set_ylabel("accuracy minus unmodified, points")
    for panel in panels[-1]:
        panel.set_xlabel("operations of replaced layers, % of flat")
    panels[0, 0].set_xlim(left=0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(panel: Any, rows: Sequence[Row]) -> None:
    panel.axhline(0, color="#999999", linewidth=0.8)
    for name, (colour, marker, label) in LOOKS.items():
        some = [row for row in rows if row.setting and _look(row.setting) == name]
        if not some:
            continue
        some.sort(key=lambda row: row.replaced)
        mean = np.array([100 * row.gap.mean for row in some])
        low = mean - [100 * row.gap.low for row in some]
        high = np.array([100 * row.gap.high for row in some]) - mean
        x = [100 * row.replaced for row in some]
        options = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1}
        panel.errorbar(x, mean, yerr=(low, high), capsize=2, label=label, **options)


def _look(setting: Setting) -> str:
    return "clusters" if setting.grouping == "clusters" else setting.kind


def main(arguments: list[str] | None = None) -> int:
    """Draw kept tables."""
    parser = argparse.ArgumentParser(description="Draw tables of zero-shot replacements.")
    parser.add_argument("tables", type=Path, nargs="+", help="what zero_shot.py has written")
    parser.add_argument("--out", type=Path, required=True, help="picture, such as a.svg or a.png")
    given = parser.parse_args(arguments)
    draw(dict(map(read, given.tables)), given.out)
    print(f"picture in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
