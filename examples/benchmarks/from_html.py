"""Time ``from_html`` over a folder of pages.

Usage::

    python examples/benchmarks/from_html.py FOLDER [--threads 1] [--limit N]

Reads every ``*.html`` file below FOLDER before the clock starts, so the disk is not measured;
tree construction is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from hsa_geo.builders import from_html, parse_html
from hsa_geo.errors import BuilderError


def with_progress(items: list[bytes], what: str) -> Iterable[bytes]:
    """A progress bar where rich is installed and somebody is looking, else the items alone."""
    try:
        from rich.progress import track
    except ImportError:
        return items
    return track(items, description=what, transient=True) if sys.stderr.isatty() else items


def main() -> None:
    """Read the pages, build the trees, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of *.html files")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default: 1)")
    parser.add_argument("--limit", type=int, help="only the first N pages")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    files = sorted(args.folder.rglob("*.html"))[: args.limit]
    pages = [file.read_bytes() for file in files]
    if not pages:
        raise SystemExit(f"no *.html files below {args.folder}")
    print(f"pages {len(pages)}, {sum(map(len, pages)) / 1e6:.1f} MB")

    start = time.perf_counter()
    for page in with_progress(pages, "parse only"):
        parse_html(page, max_bytes=None)
    print(f"parse only   {time.perf_counter() - start:6.2f} s")

    failures: Counter[str] = Counter()
    leaves = nodes = deepest = 0
    start = time.perf_counter()
    for page in with_progress(pages, "from_html"):
        try:
            tree = from_html(page)
        except BuilderError as error:
            failures[f"{type(error).__name__}: {error}"] += 1
            continue
        leaves += tree.num_leaves
        nodes += tree.num_tree_nodes
        deepest = max(deepest, tree.depth)
    seconds = time.perf_counter() - start
    print(f"from_html    {seconds:6.2f} s, {leaves} leaves, {nodes} nodes, depth up to {deepest}")
    for message, count in failures.most_common():
        print(f"{count} not built: {message}")


if __name__ == "__main__":
    main()
