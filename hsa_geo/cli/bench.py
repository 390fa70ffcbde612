"""``hsa-geo bench``: hierarchical against flat attention on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo.cli.files import read_bytes
from hsa_geo.cli.options import AsJson, Debug
from hsa_geo.cli.output import caught_warnings, note, printable, progress, record, say, table
from hsa_geo.cli.sources import read_tree

__all__ = ["bench", "compare"]

SIZES = [256, 1024, 4096]
#: Children of a node of the generated trees.
WINDOW = 16
#: At least as many runs, however long they take.
FEWEST = 3


def bench(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Take the trees of these files instead."),
    ] = None,
    leaves: Annotated[
        list[int] | None,
        typer.Option(min=2, max=2**20, help="Leaves of a tree; several times.  256, 1024, 4096."),
    ] = None,
    heads: Annotated[int, typer.Option(min=1, help="Heads.")] = 4,
    head_dim: Annotated[int, typer.Option(min=1, help="Features of each head.")] = 16,
    seconds: Annotated[
        float, typer.Option(min=0, help="For each measurement; three runs at least.")
    ] = 0.5,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; all cores, if not given.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Compare the speed of hierarchical and flat attention on this machine.

    Attention alone, from queries, keys and values in float32 on the CPU, without the projections
    that both have; flat attention is PyTorch's.  The trees have 16 children a node, or are
    those of files.  Shown are medians of runs that took turns.
    """
    if files and leaves:
        raise typer.BadParameter("give files or --leaves, not both.")
    trees = _from_files(files) if files else _generated(leaves or SIZES)
    import torch

    from hsa_geo import _optional

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    rows = []
    try:
        note(
            f"torch {torch.__version__}, {torch.get_num_threads()} threads, kernels "
            f"{'compiled by numba' if _optional.HAS_NUMBA else 'of torch alone (no numba)'}"
        )
        total = len(files or leaves or SIZES)
        with progress("comparing", total) as advance:
            for name, tree in trees:
                row = {"name": name} | compare(tree, heads, head_dim, seconds)
                if as_json:
                    record(row)
                rows.append(row)
                advance()
    finally:
        torch.set_num_threads(before)
    if not as_json:
        say(_table(rows, heads, head_dim))
    return 0


def _generated(sizes: list[int]) -> Iterator[tuple[str, Any]]:
    import torch

    from hsa_geo.builders import from_sequence

    for size in sizes:
        yield f"{size:,} leaves", from_sequence(torch.zeros(size, 1), windows=WINDOW)


def _from_files(files: list[Path]) -> Iterator[tuple[str, Any]]:
    for path in files:
        with caught_warnings() as warned:
            tree = read_tree(read_bytes(path), path)
        for line in warned:
            note(f"warning: {printable(path)}: {line}")
        yield path.name, tree


def compare(tree: Any, heads: int, head_dim: int, seconds: float = 0.5) -> dict[str, Any]:
    """Time both attentions over one tree.

    Args:
        tree: A :class:`~hsa_geo.data.SignalTree`.
        heads: Number of heads.
        head_dim: Features of each head.
        seconds: For each of four measurements; three runs at least. (default: 0.5)

    Returns:
        Leaves, pairs, and medians in seconds: ``hsa_forward``, ``flat_forward``, ``hsa_train``,
        ``flat_train`` (forward and backward).

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> row = compare(SignalTree.from_parents([2, 2, -1]), 1, 4, seconds=0)
        >>> row["leaves"], row["flat_pairs"], row["hsa_train"] > 0
        (2, 4, True)
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from hsa_geo.ops import count_pairs, hsa_attention

    n, generator = tree.num_leaves, torch.Generator().manual_seed(0)
    q, k, v, gradient = (torch.randn(n, heads, head_dim, generator=generator) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    plan = tree.plan

    def hsa() -> Any:
        return hsa_attention(q, k, v, plan)  # [N, H, D]

    def flat() -> Any:
        query, key, value = (x.transpose(0, 1)[None] for x in inputs)  # [1, H, N, D] each
        return scaled_dot_product_attention(query, key, value)[0].transpose(0, 1)

    def forward(attention: Callable[[], Any]) -> None:
        with torch.no_grad():
            attention()

    def train(attention: Callable[[], Any]) -> None:
        torch.autograd.grad(attention(), inputs, gradient)

    runs = {
        f"{name}_{way.__name__}": (way, attention)
        for way in (forward, train)
        for name, attention in (("hsa", hsa), ("flat", flat))
    }
    samples: dict[str, list[float]] = {key: [] for key in runs}
    for way, attention in runs.values():  # kernels are compiled, memory is taken
        way(attention)
    while open_runs := [
        key for key, times in samples.items() if len(times) < FEWEST or sum(times) < seconds
    ]:
        for key in open_runs:
            way, attention = runs[key]
            begin = time.perf_counter()
            way(attention)
            samples[key].append(time.perf_counter() - begin)
    medians = {key: statistics.median(times) for key, times in samples.items()}
    return {"leaves": n, "pairs": count_pairs(plan), "flat_pairs": n * n, **medians}


def _table(rows: list[dict[str, Any]], heads: int, head_dim: int) -> str:
    def cells(row: dict[str, Any]) -> list[str]:
        out = [row["name"], f"{row['flat_pairs'] / row['pairs']:,.1f}"]
        for way in ("forward", "train"):
            hsa, flat = row[f"hsa_{way}"], row[f"flat_{way}"]
            out += [f"{1e3 * hsa:,.2f}", f"{1e3 * flat:,.2f}", f"{flat / hsa:,.1f} x"]
        return out

    columns = ["tree", "fewer pairs"]
    for way in ("forward", "training"):
        columns += [f"{way}: HSA", "flat", "faster"]
    title = f"milliseconds of one attention, {heads} heads of {head_dim} features"
    return table(columns, [cells(row) for row in rows], title)
