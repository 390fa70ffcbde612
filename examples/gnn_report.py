"""Means, intervals and paired differences over seeds, and the tables that show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gnn_scaling import MODELS
from gnn_training import CONTENDERS
from scipy import stats

TITLES = {
    "ring": "Ring transfer: 32 nodes, 10 classes, 16 steps from source to target",
    "relay": "Relay: the colour of a far community, communities ask (12 communities, 4 colours)",
    "relay_each": "Relay, every node asks for itself",
    "districts": "Districts: classification of graphs of 9 communities",
    "karate": "KarateClub: node classification, half of the nodes to train on",
}


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of text; numbers are set to the right."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """As Markdown, with the title in bold."""
        align = ["---", *["---:"] * (len(self.header) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (self.header, align, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines]) + "\n"

    def show(self) -> None:
        """On the screen: by rich where it is installed, else as Markdown."""
        try:
            from rich import box, console, table
        except ImportError:
            print(self.markdown())
            return
        plain: dict[str, Any] = {"markup": False, "highlight": False, "emoji": False}
        screen = console.Console(**plain)
        if not screen.is_terminal:
            screen = console.Console(**plain, width=150)
        grid = table.Table(title=self.title, title_justify="left", box=box.SIMPLE)
        for number, name in enumerate(self.header):
            grid.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            grid.add_row(*row)
        screen.print(grid)


def interval(values: list[float]) -> tuple[float, float]:
    """Half of the 95% interval of a mean by Student's t, and the p-value of a mean of zero.

    Example:
        >>> half, p = interval([0.1, 0.2, 0.3])
        >>> round(half, 3), round(p, 3)
        (0.248, 0.074)
    """
    n, sd = len(values), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    if n < 2:
        return float("nan"), float("nan")
    if sd < 1e-12:  # all the same
        return 0.0, 1.0 if abs(values[0]) < 1e-12 else 0.0
    error = sd / n**0.5
    half = float(stats.t.ppf(0.975, n - 1)) * error
    return half, float(2 * stats.t.sf(abs(np.mean(values)) / error, n - 1))


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By task and contender: accuracy with interval, and HSA minus it on the same seeds."""
    out: dict[str, dict[str, Any]] = {}
    for task in dict.fromkeys(run["task"] for run in runs):
        mine = [run["results"] for run in runs if run["task"] == task]
        out[task] = {}
        for name in mine[0]:
            accuracy = [results[name]["accuracy"] for results in mine]
            gaps = [results["hsa"]["accuracy"] - results[name]["accuracy"] for results in mine]
            half, p = interval(gaps)
            out[task][name] = {
                "parameters": mine[0][name]["parameters"],
                "seeds": len(mine),
                "mean": float(np.mean(accuracy)),
                "sd": float(np.std(accuracy, ddof=1)) if len(mine) > 1 else float("nan"),
                "half": interval(accuracy)[0],
                "hsa_minus": float(np.mean(gaps)),
                "hsa_minus_half": half,
                "p": p,
                "seconds": float(np.mean([results[name]["seconds"] for results in mine])),
            }
    return out


def task_table(task: str, rows: dict[str, Any]) -> Table:
    """Accuracy of every contender on one task."""
    cells = []
    for name, at in rows.items():
        gap = ["", ""]
        if name != "hsa":
            gap = [_around(at["hsa_minus"], at["hsa_minus_half"]), _number(at["p"], ".2g")]
        cells.append(
            [
                CONTENDERS[name].label,
                f"{at['parameters']:,}",
                f"{at['mean']:.3f} ± {_number(at['half'], '.3f')}",
                _number(at["sd"], ".3f"),
                *gap,
                f"{at['seconds']:.1f}",
            ]
        )
    seeds = next(iter(rows.values()))["seeds"]
    header = ["model", "parameters", "accuracy", "sd", "HSA minus it", "p", "s"]
    count = "1 seed" if seeds == 1 else f"{seeds} seeds"
    return Table(f"{TITLES.get(task, task)}; {count}", header, cells)


def _number(value: float, how: str) -> str:
    """A number, or a question mark where one seed does not tell."""
    return "?" if np.isnan(value) else format(value, how)


def _around(mean: float, half: float) -> str:
    low, high = (_number(value, "+.3f") for value in (mean - half, mean + half))
    return f"{mean:+.3f} [{low}, {high}]"


def scaling_tables(scaling: dict[str, Any]) -> list[Table]:
    """Seconds and memory of a step by size, and what it takes to find the hierarchies."""
    limits, rows = scaling["limits"], scaling["rows"]
    sizes = [f"{row['nodes']:,}" for row in rows]
    tables = []
    for key, title in (
        ("seconds", "Processor seconds of a training step"),
        ("bytes", "Memory, MB"),
    ):
        cells = []
        for name, (label, _, _) in MODELS.items():
            found = [row["results"][name] for row in rows]
            cells.append([label, *(_cell(at, key, limits) for at in found)])
        tables.append(Table(f"{title}, by number of nodes", ["model", *sizes], cells))
    per_node = [f"{row['pairs'] / row['nodes']:.0f}" for row in rows]
    cells = [
        ["edges", *(f"{row['edges']:,}" for row in rows)],
        ["levels of communities", *(str(row["levels"] - 1) for row in rows)],
        ["pairs of siblings per node", *per_node],
        ["seconds to find the hierarchy", *(f"{row['hierarchy_seconds']:.2f}" for row in rows)],
    ]
    return [*tables, Table("The hierarchies, each found once", ["", *sizes], cells)]


def _cell(at: dict[str, Any], key: str, limits: dict[str, Any]) -> str:
    if "failed" in at:
        what = (
            f"{limits['gigabytes']:g} GB"
            if at["failed"] == "memory"
            else (f"{limits['seconds']:g} s")
        )
        return f"> {what}" if at.get("tried", True) else "-"
    value = at[key] if key == "seconds" else at[key] / 1e6
    return f"{value:.3f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def markdown(report: dict[str, Any]) -> str:
    """All tables with what one must know to read them."""
    lines = [task_table(task, rows).markdown() for task, rows in report["tasks"].items()]
    lines.append(
        "Accuracy is the mean over seeds ± half of its 95% interval (Student's t); a seed draws "
        "graphs, split, initial weights and order anew, for all models the same. Differences are "
        "paired by seed, with their 95% intervals and the p-value of a paired t-test. Seconds are "
        "processor seconds of one training. HSA is the line of communities.\n"
    )
    if report.get("scaling"):
        lines += [table.markdown() for table in scaling_tables(report["scaling"])]
        limits, counts = report["scaling"]["limits"], report["scaling"]["parameters"].values()
        lines.append(
            f"Two blocks of 64 channels with GCN, {min(counts):,} to {max(counts):,} parameters: "
            f"forward and backward of the whole graph on {limits['threads']} thread(s), each in a "
            "process of its own; the median of up to three steps, in processor seconds. Memory is "
            "by how much the process grew at most in its first step; it may grow by "
            f"{limits['gigabytes']:g} GB and take {limits['seconds']:g} s in all. A dash means "
            "that a smaller graph was too much already.\n"
        )
    what = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines.append(
        f"The trainings took {report['trained_seconds']:.0f} processor seconds, on {what}.\n"
    )
    return "\n".join(lines)
