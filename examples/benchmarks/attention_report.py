"""What the attention benchmark says: tables on the screen and in Markdown, bars met or missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attention_goals import goals, scaling_ratio
from attention_rivals import CONTENDERS

Report = dict[str, Any]  # what is written as JSON; see attention.py

#: Mode of a measurement by its key in the results.
MODES = {"forward": "forward", "train": "forward + backward"}


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of text; numbers are set to the right."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]

    def markdown(self) -> str:
        """As Markdown, without the title."""
        align = ["---", *["---:"] * (len(self.header) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (self.header, align, *self.rows)]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]).rstrip() + "\n"

    def show(self) -> None:
        """On the screen: by rich where it is installed, else as plain text."""
        try:
            from rich import box, console, table
        except ImportError:
            print(f"\n{self.title}\n")
            widths = [max(map(len, column)) for column in zip(self.header, *self.rows)]
            for row in (self.header, ["-" * width for width in widths], *self.rows):
                first, *others = (c.ljust(w) for c, w in zip(row, widths))
                cells = [c.strip().rjust(w) for c, w in zip(others, widths[1:])]
                print("  ".join([first, *cells]))
            print("".join(f"- {note}\n" for note in self.notes), end="")
            return
        screen = console.Console(markup=False, highlight=False, emoji=False)
        if not screen.is_terminal:
            screen = console.Console(markup=False, highlight=False, emoji=False, width=200)
        grid = table.Table(title=self.title, title_justify="left", box=box.SIMPLE)
        for number, name in enumerate(self.header):
            grid.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            grid.add_row(*row)
        screen.print(grid)
        for note in self.notes:
            screen.print(f"- {note}")


def number(value: float) -> str:
    """Three digits, and no exponent.

    >>> number(0.01234), number(1.2345), number(123456.0)
    ('0.0123', '1.23', '123,456')
    """
    if value >= 100:
        return f"{value:,.0f}"
    digits = 1 if value >= 10 else 2 if value >= 1 else 3 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def milliseconds(at: dict[str, Any]) -> str:
    """Median and quartiles."""
    median, q1, q3 = (number(1e3 * at[name]) for name in ("median", "q1", "q3"))
    return f"{median} [{q1}, {q3}]"


def work_title(work: dict[str, Any]) -> str:
    """Shape and size of one measurement."""
    trees = f" in {work['trees']} trees" if work["trees"] > 1 else ""
    return f"{work['shape']}, {work['leaves']:,} leaves{trees}"


def work_table(work: dict[str, Any]) -> Table:
    """Everything measured on one shape at one size."""
    results, rows = work["results"], []
    own = _reference(work)
    for key, result in results.items():
        row = [CONTENDERS[key].label]
        for mode in MODES:
            at = result.get(mode)
            row += ["-", "-"] if at is None else [milliseconds(at), number(_ratio(work, key, mode))]
        for mode in MODES:
            peak = result.get(mode, {}).get("peak")
            row.append("-" if peak is None else number(peak / work["qkvo_bytes"]))
        rows.append(row)
    label = CONTENDERS[own].label if own else "nothing"
    times = f"× {label}"
    header = ["", "forward, ms", times, "forward + backward, ms", times]
    header += ["memory, forward", "memory, both"]
    title = f"{work_title(work)}: {work['text']}; {work['levels']} levels, {work['pairs']:,} pairs"
    notes = [f"left out: {CONTENDERS[k].label}: {why}" for k, why in work["skipped"].items()]
    return Table(title, header, rows, notes)


def overview(works: list[dict[str, Any]], mode: str) -> Table:
    """How many times as long everything takes as our default backend."""
    keys = [k for k in CONTENDERS if any(mode in w["results"].get(k, {}) for w in works)]
    rows = []
    for work in works:
        own = _reference(work)
        row = [work_title(work)]
        row.append(number(1e3 * work["results"][own][mode]["median"]) if own else "-")
        for key in keys[1:]:
            known = own and mode in work["results"].get(key, {})
            row.append(number(_ratio(work, key, mode)) if known else "-")
        rows.append(row)
    labels = [CONTENDERS[key].label for key in keys]
    header = ["", *(f"{label}, ms" for label in labels[:1]), *(f"{x}, ×" for x in labels[1:])]
    return Table(f"{MODES[mode]}: times as long as the first", header, rows, [])


def _reference(work: dict[str, Any]) -> str | None:
    """Our backend that others are compared with."""
    return next((key for key in CONTENDERS if key in work["results"]), None)


def _ratio(work: dict[str, Any], key: str, mode: str) -> float:
    results, own = work["results"], _reference(work)
    return results[key][mode]["median"] / results[str(own)][mode]["median"]


def goals_table(report: Report) -> Table:
    """The goals: measured, wanted, met or missed."""
    rows = []
    for goal in goals(report):
        shown = "-" if goal.value is None else number(goal.value)
        sign = "at least" if goal.at_least else "at most"
        rows.append([goal.what, shown, f"{sign} {goal.bar:g}", goal.verdict])
    return Table("goals", ["", "measured", "goal", "verdict"], rows, [])


def scaling_table(scaling: dict[str, Any]) -> Table:
    """Growth of the time of a document."""
    small, large = scaling["small"], scaling["large"]
    rows = [
        [
            CONTENDERS[key].label,
            *(milliseconds(at[size]) for size in ("small", "large")),
            number(scaling_ratio(scaling, key)),
        ]
        for key, at in scaling["results"].items()
    ]
    title = f"forward of a document, {large // small} times as long"
    header = ["", f"{small:,} leaves, ms", f"{large:,} leaves, ms", "ratio"]
    return Table(title, header, rows, [])


def memory_table(memory: list[dict[str, Any]]) -> Table:
    """Peaks of fresh processes."""
    rows = [
        [
            CONTENDERS[m["key"]].label,
            f"{m['leaves']:,}",
            number(m["median"] / 1e6),
            number(m["qkvo_bytes"] / 1e6),
            number(m["ratio"]),
            str(m["n"]),
        ]
        for m in memory
    ]
    header = ["", "leaves", "rise of the peak, MB", "q + k + v + out, MB", "ratio", "processes"]
    return Table("memory of one forward pass of a document in a fresh process", header, rows, [])


def million_table(answer: dict[str, Any], leaves: int) -> Table:
    """One forward pass of a very long document."""
    rows = [
        ["tree and inputs, s", number(answer["made"])],
        ["plan, s", number(answer["plan"])],
        ["forward, s", number(answer["forward"])],
        ["q + k + v + out, MB", number(answer["qkvo_bytes"] / 1e6)],
    ]
    if answer["rise"] is not None:
        rows.append(["rise of the peak in forward, MB", number(answer["rise"] / 1e6)])
        rows.append(
            ["the same over q + k + v + out", number(answer["rise"] / answer["qkvo_bytes"])]
        )
        rows.append(["peak of the process, MB", number(answer["total"] / 1e6)])
    return Table(f"one document of {leaves:,} leaves, HSA numba", ["", "measured"], rows, [])


def markdown(report: Report) -> str:
    """The whole report as Markdown, to be included in a page below a heading of level 1."""
    machine = "; ".join(f"{name} {value}" for name, value in report["machine"].items())
    settings = ", ".join(f"{name} {value}" for name, value in report["settings"].items())
    minutes = number(report["seconds"] / 60)
    parts = [f"Measured by `{report['command']}` in {minutes} minutes.  {machine}.  {settings}.\n"]
    sections = [("Goals", goals_table(report))]
    sections += [(f"Overview: {MODES[m]}", overview(report["works"], m)) for m in MODES]
    if report.get("scaling"):
        sections.append(("Growth", scaling_table(report["scaling"])))
    if report.get("memory"):
        sections.append(("Memory of fresh processes", memory_table(report["memory"])))
    parts += [f"## {title}\n\n{table.markdown()}" for title, table in sections]
    parts.append("## All measurements\n")
    for work in report["works"]:
        table = work_table(work)
        parts.append(f"### {work_title(work)}\n\n{table.title}.\n\n{table.markdown()}")
    parts.append("## What each line measures\n")
    parts.append("".join(f"- **{c.label}**: {c.text}.\n" for c in CONTENDERS.values()))
    return "\n".join(parts)
