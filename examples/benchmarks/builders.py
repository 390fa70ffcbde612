"""Time every builder on one thread, beside what it must reach.

Usage::

    python examples/benchmarks/builders.py [--only text tree] [--rounds 5] [--out FOLDER]

Sources are made before the clock starts: Python's own reference as text, generated graphs,
pictures and nested lists.  Builders take turns; given are medians and, in brackets, quartiles.
``from_html.py`` times real pages.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are imported

import networkx as nx
import numpy as np
import torch
from attention_measure import quartiles
from attention_report import Table, milliseconds, number

from hsa_geo.builders import (
    from_image,
    from_nested,
    from_networkx,
    from_sequence,
    from_text,
    from_video,
    to_nested,
)


@dataclass(frozen=True)
class Case:
    """Something to build: its title, the call, its size, and the most seconds it may take."""

    title: str
    run: Callable[[], Any]
    size: str
    limit: float | None = None
    megabytes: float | None = None  # of text


def text_cases(scale: float) -> dict[str, Case]:
    """Texts of some megabytes."""
    text = "\n\n".join(topics[key] for key in sorted(topics))
    text = (text * (1 + int(6 * scale)))[: int(len(text) * 6 * scale) + 1000]
    size = len(text.encode()) / 1e6
    cases = {
        "text": Case("from_text, plain", lambda: from_text(text), f"{size:.2g} MB", size, size),
        "text, punctuation": Case(
            "from_text, with punctuation",
            lambda: from_text(text, punctuation=True),
            f"{size:.2g} MB",
            None,
            size,
        ),
    }
    try:
        import sentencex  # noqa: F401
    except ImportError:
        return cases
    cases["text, library"] = Case(
        "from_text, sentences of sentencex",
        lambda: from_text(text, sentences="sentencex", language="en"),
        f"{size:.2g} MB",
        None,
        size,
    )
    return cases


def graph_cases(scale: float) -> dict[str, Case]:
    """A tree of 100,000 nodes, and a graph of 50,000 edges."""
    nodes, edges = int(1e5 * scale) + 10, int(5e4 * scale) + 20
    tree = nx.random_labeled_rooted_tree(nodes, seed=0)
    directed = nx.bfs_tree(tree, tree.graph["root"])
    graph = nx.gnm_random_graph(edges // 5, edges, seed=0)
    side = int((edges / 2) ** 0.5) + 1
    blocks = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side))
    return {
        "tree": Case(
            "from_networkx, a tree", lambda: from_networkx(directed), f"{nodes:,} nodes", 2.0
        ),
        "louvain, random": Case(
            "from_networkx, Louvain, a random graph",
            lambda: from_networkx(graph, hierarchy="louvain", resolutions=1),
            f"{graph.number_of_edges():,} edges",
            8.0,
        ),
        "louvain, grid": Case(
            "from_networkx, Louvain, a grid",
            lambda: from_networkx(blocks, hierarchy="louvain", resolutions=1),
            f"{blocks.number_of_edges():,} edges",
            8.0,
        ),
    }


def picture_cases(scale: float) -> dict[str, Case]:
    """A picture of 1024 x 1024, as an array and as files, and a short video."""
    from PIL import Image

    side = max(16, int(1024 * scale))
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8)
    picture = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture)
    files = {}
    for kind in ("PNG", "JPEG"):
        file = io.BytesIO()
        picture.save(file, kind)
        files[kind] = file.getvalue()
    frames = rng.integers(0, 256, (max(2, int(64 * scale)), 224, 224, 3), dtype=np.uint8)
    size = f"{side} x {side}, patches of 16"
    cases = {
        "image": Case("from_image, an array", lambda: from_image(pixels), size, 0.05),
    }
    for kind, data in files.items():
        cases[f"image, {kind}"] = Case(
            f"from_image, a {kind} file", lambda data=data: from_image(data), size, 0.05
        )
    cases["video"] = Case(
        "from_video, an array", lambda: from_video(frames), f"{len(frames)} frames of 224 x 224"
    )
    return cases


def nested_cases(scale: float) -> dict[str, Case]:
    """A million leaves, nested and in windows."""
    n = int(1e6 * scale) + 100
    rows = np.arange(n, dtype=np.float32)
    nested = [list(part) for part in np.array_split(rows[:, None], n // 100)]
    tree = from_nested(nested)
    steps = torch.zeros(n, 1)
    size = f"{n:,} leaves"
    return {
        "nested": Case("from_nested, lists of arrays", lambda: from_nested(nested), size),
        "nested, back": Case("to_nested", lambda: to_nested(tree), size),
        "sequence": Case("from_sequence, windows of 4", lambda: from_sequence(steps, 4), size),
    }


def measure(cases: dict[str, Case], rounds: int) -> list[dict[str, Any]]:
    """Seconds of every case, in turns; the first round is for warming up."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            start = time.perf_counter()
            case.run()
            if turn:
                samples[name].append(time.perf_counter() - start)
    rows = []
    for name, case in cases.items():
        row = {"name": name, "title": case.title, "size": case.size, "limit": case.limit}
        rows.append({**row, "megabytes": case.megabytes, **quartiles(samples[name])})
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """Milliseconds of every builder, what it must reach, and megabytes a second of texts."""
    cells = []
    for row in rows:
        speed = number(row["megabytes"] / row["median"]) if row["megabytes"] else ""
        limit, verdict = "", ""
        if row["limit"] is not None:
            limit = number(1000 * row["limit"])
            verdict = "met" if row["median"] <= row["limit"] else "missed"
        cells.append([row["title"], row["size"], milliseconds(row), speed, limit, verdict])
    return Table(
        "Builders on one thread, milliseconds",
        ["builder", "source", "ms", "MB/s", "at most", ""],
        cells,
        ["Medians with quartiles.  A limit of a text is one second for each megabyte."],
    )


def main() -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", help="names, or how they begin (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the sources (1)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (5)")
    parser.add_argument("--out", type=Path, help="folder for builders.json and builders.md")
    args = parser.parse_args()
    if args.rounds < 1 or not 0 < args.scale <= 100:
        parser.error(f"--rounds {args.rounds} --scale {args.scale}: give at least one round")
    torch.set_num_threads(1)
    cases: dict[str, Case] = {}
    for make in (text_cases, graph_cases, picture_cases, nested_cases):
        cases |= make(args.scale)
    if args.only:
        wanted = tuple(args.only)
        cases = {name: case for name, case in cases.items() if name.startswith(wanted)}
        if not cases:
            parser.error(f"--only {' '.join(wanted)}: no builder has such a name")
    rows = measure(cases, args.rounds)
    table(rows).show()
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "builders.json").write_text(json.dumps(rows, indent=1) + "\n")
        (args.out / "builders.md").write_text(table(rows).markdown())


if __name__ == "__main__":
    main()
