"""``hsa-geo bench``: hierarchical against flat attention on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo.cli.files import read_bytes
from hsa_geo.cli.options import AsJson, Debug
from hsa_geo.cli.output import (
    caught_warnings,
    note,
    printable,
    progress,
    record,
    say,
    table,
    waiting,
)
from hsa_geo.cli.sources import Kind, read_site, read_tree
from hsa_geo.errors import BuilderError

__all__ = ["bench", "compare"]

SIZES = [256, 1024, 4096]
#: Children of a node of the generated trees.
WINDOW = 16
#: At least as many runs, however long they take.
FEWEST = 3


def bench(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Take the trees of these files instead."),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--as", metavar="KIND", help=f"What the files are: {', '.join(Kind)}; by their endings."
        ),
    ] = None,
    leaves: Annotated[
        list[int] | None,
        typer.Option(min=2, max=2**20, help="Leaves of a tree; several times.  256, 1024, 4096."),
    ] = None,
    heads: Annotated[int, typer.Option(min=1, max=2**10, help="Heads.")] = 4,
    head_dim: Annotated[int, typer.Option(min=1, max=2**10, help="Features of each head.")] = 16,
    seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="For each measurement; three runs at least.")
    ] = 0.5,
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Threads of torch; all cores by default.")
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
    if kind is not None and not files:
        raise typer.BadParameter("--as says what files are: give files, too.")
    # A file that cannot be read is said before anything is measured.
    contents = [(path, _content(path, kind)) for path in files or []]
    with waiting("loading PyTorch"):
        import torch

        from hsa_geo import _optional
    trees = _from_files(contents, kind) if files else _generated(leaves or SIZES)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    rows = []
    try:
        count = torch.get_num_threads()
        note(
            f"torch {torch.__version__}, {count} thread{'s' * (count != 1)}, kernels "
            f"{'compiled by numba' if _optional.HAS_NUMBA else 'of torch alone (no numba)'}"
        )
        with progress("comparing", len(trees), lines=as_json) as advance:
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


def _generated(sizes: list[int]) -> list[tuple[str, Any]]:
    import torch

    from hsa_geo.builders import from_sequence

    return [
        (f"{size:,} leaves", from_sequence(torch.zeros(size, 1), windows=WINDOW)) for size in sizes
    ]


def _content(path: Path, kind: Kind | None) -> bytes:
    """A file's bytes; a site is read later, when its builder is there."""
    if not path.is_dir():
        return read_bytes(path)
    if kind is not Kind.site:
        raise BuilderError(f"'{path}' is a folder: give files, or --as site for a folder of pages.")
    return b""


def _from_files(contents: list[tuple[Path, bytes]], kind: Kind | None) -> list[tuple[str, Any]]:
    trees = []
    for path, data in contents:
        with caught_warnings() as warned:
            site = kind is Kind.site and path.is_dir()
            tree = read_site(path) if site else read_tree(data, path, kind)
        for line in warned:
            note(f"warning: {printable(path)}: {line}")
        trees.append((path.name, tree))
    return trees


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
    cells = [
        [
            row["name"] if way == "forward" else "",
            f"{row['flat_pairs'] / row['pairs']:,.1f}" if way == "forward" else "",
            word,
            f"{1e3 * row[f'hsa_{way}']:,.2f}",
            f"{1e3 * row[f'flat_{way}']:,.2f}",
            _times(row[f"flat_{way}"] / row[f"hsa_{way}"]),
        ]
        for row in rows
        for way, word in (("forward", "forward"), ("train", "training"))
    ]
    columns = ["tree", "fewer pairs", "", "HSA", "flat", "HSA is"]
    title = f"milliseconds of one attention, {heads} heads of {head_dim} features"
    return table(columns, cells, title)


def _times(ratio: float) -> str:
    """How much faster something is that takes ``1 / ratio`` of the time.

    Example:
        >>> _times(4.0), _times(0.25), _times(1.01)
        ('4.0x faster', '4.0x slower', 'as fast')
    """
    if round(max(ratio, 1 / ratio), 1) == 1:
        return "as fast"
    return f"{ratio:,.1f}x faster" if ratio > 1 else f"{1 / ratio:,.1f}x slower"
