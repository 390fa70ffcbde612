"""``hsa-geo inspect``: what tree a file becomes, and what attention over it costs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hsa_geo._folders import Found, walk
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
    waiting,
)
from hsa_geo.cli.sources import Kind, Reading, kind_of, read_site, read_tree

__all__ = ["inspect", "measure"]

#: Of the stream of a folder: key in the record, head, width.
_COLUMNS = (
    ("leaves", "leaves", 9),
    ("nodes", "nodes", 9),
    ("depth", "depth", 6),
    ("pairs", "pairs", 12),
    ("flat_pairs", "flat pairs", 15),
)


#: Options that some kinds alone have, and these kinds.
_OWN = {
    "--include-hidden": (Kind.html, Kind.site),
    "--punctuation": (Kind.text,),
    "--window": (Kind.sequence,),
}
#: What is read of folders.  Tables beside pages are lists of them more often than sequences; sites
#: and videos are told by no ending.
_OF_FOLDERS = tuple(kind for kind in Kind if kind not in (Kind.sequence, Kind.site, Kind.video))


def inspect(
    paths: Paths,
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help=f"What the files are: {', '.join(Kind)}; by their endings, if not given.  A site "
            "is a folder of pages that is read as one tree; a sequence is a table with a row of "
            "numbers for each step, or a .npy array.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=0, help="Nodes of the tree to show, of a single file or site; 40."),
    ] = None,
    include_hidden: Annotated[
        bool, typer.Option("--include-hidden", help="Read what pages hide, too.")
    ] = False,
    punctuation: Annotated[
        bool, typer.Option("--punctuation", help="Keep the punctuation of texts.")
    ] = False,
    window: Annotated[
        int | None,
        typer.Option(min=2, help="Of sequences: steps in a window, windows in a larger one; 16."),
    ] = None,
    heads: Annotated[
        int, typer.Option(min=1, max=2**20, help="Heads of the attention that is counted.")
    ] = 4,
    head_dim: Annotated[int, typer.Option(min=1, max=2**20, help="Features of each head.")] = 16,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Show the tree that a file becomes, and what attention over it costs.

    Reads web pages, whole sites, texts, pictures, videos, nested JSON, graphs and sequences.  Of a
    single file, or a site, the tree and its figures are shown; of folders, or several files, a line
    for each as soon as it is read.  Files that cannot be read are reported, and the exit code is
    then 1.  Tables and arrays in folders are read with --as sequence only.
    """
    reading = Reading(include_hidden, punctuation, 16 if window is None else window)
    single = len(paths) == 1 and (kind is Kind.site or not paths[0].is_dir())
    given = {
        "--include-hidden": include_hidden,
        "--punctuation": punctuation,
        "--window": window is not None,
    }
    _check_options([name for name, is_there in given.items() if is_there], paths, kind)
    if nodes is not None and (as_json or not single):
        where = "--json" if as_json else "folders or several files"
        raise typer.BadParameter(f"--nodes has no effect with {where}: leave one of them out.")
    if single:
        content, tree, warned = measure(paths[0], kind, heads, head_dim, reading)
        if as_json:
            record(content)
        else:
            _show(content, tree, 40 if nodes is None else nodes, heads, head_dim)
            for line in warned:
                note(f"warning: {line}")
        return 0
    _load()
    if not as_json:
        say("".join(f"{head:>{width}}" for _, head, width in _COLUMNS) + "    flat/HSA  file")
    read = failed = 0
    with progress("files", lines=True) as advance:
        for path, error in _found(paths, kind):
            try:
                if error is not None:
                    raise error
                content, _, warned = measure(path, kind, heads, head_dim, reading)
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
    note(counted("site" if kind is Kind.site else "file", read, failed))
    return 1 if failed else 0


def _check_options(given: list[str], paths: list[Path], kind: Kind | None) -> None:
    """Refuse an option that would have no effect on any of the files."""
    known: dict[str, tuple[Kind, ...]] = {}  # what is read, and the kinds that it may be of
    for path in paths:
        if kind is not None:
            known[kind] = (kind,)
        elif path.is_dir():
            known["folders, in which these are read with --as alone"] = _OF_FOLDERS
        elif (one := kind_of(path)) is not None:
            known[one] = (one,)
        else:  # of no kind, which is told when it is read
            return
    for option in given:
        if not any(one in _OWN[option] for kinds in known.values() for one in kinds):
            raise typer.BadParameter(
                f"{option} is for {' and '.join(_OWN[option])}, not for {' and '.join(known)}: "
                "leave it out, or give --as."
            )


def _found(paths: list[Path], kind: Kind | None) -> Iterator[Found]:
    """Files, or the sites themselves."""
    if kind is Kind.site:
        return ((path, None) for path in paths)

    def wanted(path: Path) -> bool:
        return kind is not None or kind_of(path) in _OF_FOLDERS

    return find_files(paths, wanted)


@functools.cache  # else it would be told for every file
def _load() -> None:
    with waiting("loading PyTorch"):
        import hsa_geo.builders
        import hsa_geo.ops  # noqa: F401


def measure(
    path: Path,
    kind: Kind | None = None,
    heads: int = 4,
    head_dim: int = 16,
    reading: Reading | None = None,
) -> tuple[dict[str, Any], Any, list[str]]:
    """A file's tree, and the record of it.

    Args:
        path: The file; the folder of a site.
        kind: What it is. (default: by its ending)
        heads: Heads of the attention that is counted. (default: 4)
        head_dim: Features of each head. (default: 16)
        reading: How to read it. (default: as :class:`~hsa_geo.cli.sources.Reading` says)

    Returns:
        The record, the tree, and what the builder warned of.

    Raises:
        HSAError: If it cannot be read as a file of its kind.
        OSError: If it cannot be read.
    """
    site = kind is Kind.site
    if site and path.is_dir():
        size = sum(page.stat().st_size for page, error in walk(path, _is_page) if error is None)
        _load()
        with caught_warnings() as warned:
            tree = read_site(path, reading)
    else:
        data = read_bytes(path)
        size = len(data)
        if kind is not None or kind_of(path) is not None:
            _load()
        with caught_warnings() as warned:
            tree = read_tree(data, path, kind, reading)
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
        "bytes": size,
        "warnings": warned,
    }
    if site:
        content |= {"pages": len(tree.page_node), "links": tree.tree_link.size(1)}
    return content, tree, warned


def _is_page(path: Path) -> bool:
    return path.suffix.lower() in (".html", ".htm")


def _ratio(content: dict[str, Any]) -> str:
    """Operations of flat attention over those of hierarchical attention."""
    return f"{content['flat_operations'] / content['operations']:,.1f}"


def _line(content: dict[str, Any]) -> str:
    figures = "".join(f"{content[key]:>{width},}" for key, _, width in _COLUMNS)
    return f"{figures}{_ratio(content):>12}  {printable(content['path'])}"


def _show(content: dict[str, Any], tree: Any, nodes: int, heads: int, head_dim: int) -> None:
    from hsa_geo.data.views import tree_text

    rows = ", ".join(f"{count:,} of {name}" for name, count in content["modalities"].items())
    size = f"{content['bytes']:,} bytes"
    if "pages" in content:
        size = f"{content['pages']:,} pages, {content['links']:,} links, {size}"
    say(f"{printable(content['path'])}: {content['kind']}, {size}")
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
