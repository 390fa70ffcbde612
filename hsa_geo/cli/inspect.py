"""``hsa-geo inspect``: what tree a file becomes, and what attention over it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo.cli.files import find_files, read_bytes
from hsa_geo.cli.options import AsJson, Debug, Paths
from hsa_geo.cli.output import (
    DATA_ERRORS,
    caught_warnings,
    counted,
    note,
    printable,
    progress,
    record,
    report,
    say,
    table,
)
from hsa_geo.cli.sources import Kind, kind_of, read_tree

__all__ = ["inspect", "measure"]

#: Of the stream of a folder: key in the record, head, width.
_COLUMNS = (
    ("leaves", "leaves", 9),
    ("nodes", "nodes", 9),
    ("depth", "depth", 6),
    ("pairs", "pairs", 12),
    ("flat_pairs", "flat pairs", 15),
)


def inspect(
    paths: Paths,
    kind: Annotated[
        Kind | None,
        typer.Option("--as", help="What the files are; by their endings, if not given."),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=0, help="Nodes of the tree to show, of a single file.")
    ] = 40,
    heads: Annotated[int, typer.Option(min=1, help="Heads of the attention that is counted.")] = 4,
    head_dim: Annotated[int, typer.Option(min=1, help="Features of each head.")] = 16,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the tree that a file becomes, and what attention over it costs.

    Reads web pages, texts, pictures, nested JSON and graphs.  Of a single file the tree and its
    figures are shown; of folders, or several files, a line for each as soon as it is read.  Files
    that cannot be read are reported, and the exit code is then 1.
    """
    single = len(paths) == 1 and not paths[0].is_dir()
    if single:
        content, tree, warned = measure(paths[0], kind, heads, head_dim)
        if as_json:
            record(content)
        else:
            _show(content, tree, nodes, heads, head_dim)
            for line in warned:
                note(f"warning: {line}")
        return 0
    if not as_json:
        say("".join(f"{head:>{width}}" for _, head, width in _COLUMNS) + "    flat/HSA  file")
    read = failed = 0
    with progress("files", lines=True) as advance:
        for path, error in find_files(paths, lambda path: kind is not None or bool(kind_of(path))):
            try:
                if error is not None:
                    raise error
                content, _, warned = measure(path, kind, heads, head_dim)
            except DATA_ERRORS as wrong:
                failed += 1
                report(path, wrong, as_json)
            else:
                read += 1
                if as_json:
                    record(content)
                else:
                    say(_line(content))
                    for line in warned:
                        note(f"warning: {printable(path)}: {line}")
            advance()
    note(counted("file", read, failed))
    return 1 if failed else 0


def measure(
    path: Path, kind: Kind | None = None, heads: int = 4, head_dim: int = 16
) -> tuple[dict[str, Any], Any, list[str]]:
    """A file's tree, and the record of it.

    Args:
        path: The file.
        kind: What it is. (default: by its ending)
        heads: Heads of the attention that is counted. (default: 4)
        head_dim: Features of each head. (default: 16)

    Returns:
        The record, the tree, and what the builder warned of.

    Raises:
        HSAError: If it cannot be read as a file of its kind.
        OSError: If it cannot be read.
    """
    data = read_bytes(path)
    with caught_warnings() as warned:
        tree = read_tree(data, path, kind)
    from hsa_geo.ops import attention_cost, flat_cost

    cost, flat = attention_cost(tree, heads, head_dim), flat_cost(tree, heads, head_dim)
    sizes = tree.plan.group_ptr.diff()
    content = {
        "path": str(path),
        "kind": str(kind or kind_of(path)),
        "leaves": tree.num_leaves,
        "nodes": tree.num_tree_nodes,
        "depth": tree.depth,
        "largest_group": int(sizes.max()) if len(sizes) else 1,
        "modalities": {
            key.removesuffix("_x"): len(tree[key])
            for key in sorted(tree.keys())
            if key.endswith("_x") and f"{key.removesuffix('_x')}_index" in tree
        },
        "pairs": cost.pairs,
        "flat_pairs": flat.pairs,
        "operations": cost.total,
        "flat_operations": flat.total,
        "bytes": len(data),
        "warnings": warned,
    }
    return content, tree, warned


def _ratio(content: dict[str, Any]) -> str:
    """Operations of flat attention over those of hierarchical attention."""
    return f"{content['flat_operations'] / content['operations']:,.1f}"


def _line(content: dict[str, Any]) -> str:
    figures = "".join(f"{content[key]:>{width},}" for key, _, width in _COLUMNS)
    return f"{figures}{_ratio(content):>12}  {printable(content['path'])}"


def _show(content: dict[str, Any], tree: Any, nodes: int, heads: int, head_dim: int) -> None:
    from hsa_geo.data.views import tree_text

    rows = ", ".join(f"{count:,} of {name}" for name, count in content["modalities"].items())
    say(f"{printable(content['path'])}: {content['kind']}, {content['bytes']:,} bytes")
    say(tree_text(tree, nodes))
    say()
    say(f"largest group of siblings: {content['largest_group']:,}")
    if rows:
        say(f"rows of features: {rows}")
    say(f"cost of one layer of attention, {heads} heads of {head_dim} features:")
    say(
        table(
            ["attention", "query-key pairs", "operations"],
            [
                [name, f"{content[f'{key}pairs']:,}", f"{content[f'{key}operations']:,}"]
                for name, key in (("hierarchical", ""), ("flat", "flat_"))
            ],
        )
    )
    say(f"flat attention takes {_ratio(content)} times the operations")
