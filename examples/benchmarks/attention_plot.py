"""The picture of the attention benchmark: time against leaves, both logarithmic."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from attention_rivals import CONTENDERS

from hsa_geo._optional import require

#: Colours that the colour-blind can tell (Okabe and Ito), and markers besides.
STYLES = {
    "numba": ("#D55E00", "o", "-"),
    "block": ("#E69F00", "s", "-"),
    "edge": ("#F0C430", "^", "-"),
    "flat": ("#000000", "D", "-"),
    "gps": ("#0072B2", "v", "-"),
    "performer": ("#56B4E9", "P", "-"),
    "transformer_conv": ("#009E73", "X", "-"),
    "propagate": ("#009E73", "x", "--"),
    "h_transformer": ("#CC79A7", "*", "-"),
    "h_transformer_bare": ("#CC79A7", "+", "--"),
    "projection": ("#808080", "", "--"),
    "copy": ("#808080", "", ":"),
}


def need_matplotlib() -> None:
    """MissingPackageError where there is no matplotlib; to be asked before hours of work."""
    require("matplotlib", extra="examples", purpose="the plot of --out")


def plot(report: dict[str, Any], path: Path) -> None:
    """Write a PNG of the documents: forward, and forward with backward."""
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    works = sorted(
        (work for work in report["works"] if work["shape"] == "document"),
        key=lambda work: work["leaves"],
    )
    figure = Figure(figsize=(11, 5.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    lines: dict[str, Any] = {}
    for panel, mode, title in zip(
        panels, ("forward", "train"), ("forward", "forward and backward"), strict=True
    ):
        for key, (colour, marker, dash) in STYLES.items():
            points = [
                (work["leaves"], work["results"][key][mode])
                for work in works
                if mode in work["results"].get(key, {})
            ]
            if not points:
                continue
            leaves = [n for n, _ in points]
            low, middle, high = (
                [1e3 * at[name] for _, at in points] for name in ("q1", "median", "q3")
            )
            ours = key == "numba"
            (lines[key],) = panel.plot(
                leaves,
                middle,
                color=colour,
                marker=marker,
                linestyle=dash,
                linewidth=2.6 if ours else 1.4,
                markersize=6,
                zorder=3 if ours else 2,
                label=CONTENDERS[key].label,
            )
            panel.fill_between(leaves, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set(xscale="log", yscale="log", title=title, xlabel="leaves of the document")
        panel.grid(which="major", color="#dddddd", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xticks([work["leaves"] for work in works])
        panel.set_xticks([], minor=True)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,g}"))
    panels[0].set_ylabel("milliseconds, median and quartiles")
    shown = [lines[key] for key in STYLES if key in lines]
    figure.legend(handles=shown, loc="outside right center", frameon=False, handlelength=3)
    settings = report["settings"]
    figure.suptitle(
        f"Attention over one document: {settings['heads']} heads of {settings['dim']}, "
        f"float32, threads: {settings['threads']}, device: {settings['device']}"
    )
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """As a small PNG of few colours; matplotlib brings pillow along."""
    from PIL import Image

    picture = io.BytesIO()
    figure.savefig(picture)
    Image.open(picture).convert("RGB").quantize(128).save(path, optimize=True)
