"""Which builder reads a file: by its ending, or as the caller says.

JSON is a nested signal: an array a sequence, an object a set of named children, anything else a
leaf, also an empty array or object.  The leaves have features if all of them are numbers.  JSON
with ``nodes``, and ``edges`` or ``links``, is a graph (the node-link format of networkx).  A graph
that is a tree with edges from parents to children is taken as it is; of any other the nodes are
leaves in nested communities.
"""

from __future__ import annotations

import io
import json
from enum import StrEnum
from pathlib import Path
from typing import Any

from hsa_geo.errors import BuilderError, HSAError

__all__ = ["Kind", "kind_of", "read_tree"]


class Kind(StrEnum):
    """What a file is."""

    html = "html"
    text = "text"
    image = "image"
    json = "json"
    graph = "graph"


_ENDINGS = {
    Kind.html: "html htm xhtml",
    Kind.text: "txt text md rst",
    Kind.image: "png jpg jpeg gif webp bmp tif tiff ppm pgm",
    Kind.json: "json",
    Kind.graph: "graphml gexf gml net edgelist adjlist",
}
_KINDS = {f".{ending}": kind for kind, endings in _ENDINGS.items() for ending in endings.split()}


def kind_of(path: Path) -> Kind | None:
    """The kind of a file by its ending.

    Example:
        >>> kind_of(Path("a.HTM")), kind_of(Path("a.exe"))
        (<Kind.html: 'html'>, None)
    """
    return _KINDS.get(path.suffix.lower())


def read_tree(data: bytes, path: Path, kind: Kind | None = None) -> Any:
    """The tree of a file.

    Args:
        data: What it holds.
        path: Its name; only the ending is looked at.
        kind: What it is. (default: by its ending)

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Raises:
        BuilderError: If it is nothing of this kind, or of no known one.
        MissingPackageError: If the kind needs a package that is not there.

    Warns:
        HSAWarning: If something was left out or could not be decoded.

    Example:
        >>> read_tree(b"[[1, 2], [3]]", Path("a.json")).num_leaves
        3
    """
    kind = kind_of(path) if kind is None else kind
    if kind is None:
        raise BuilderError(
            f"'{path.name}' has no ending that says what it is: give --as "
            f"{', '.join(Kind)}, whichever it is."
        )
    if not data:
        raise BuilderError(f"'{path.name}' is empty: there is nothing to make a tree of.")
    if kind is Kind.html:
        from hsa_geo.builders import from_html

        return from_html(data, on_limit="truncate")
    if kind is Kind.text:
        from hsa_geo.builders import from_text

        return from_text(data.decode("utf-8-sig", "replace"), on_limit="truncate")
    if kind is Kind.image:
        from hsa_geo.builders import from_image

        return from_image(data, names=True)
    if kind is Kind.json:
        return _nested(data, path)
    return _grouped(_graph(data, path))


# Nested JSON ################################################################


def _nested(data: bytes, path: Path) -> Any:
    from hsa_geo.builders import from_nested

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BuilderError(f"'{path.name}' is no JSON ({error}): repair it.") from error
    if isinstance(content, dict) and isinstance(content.get("nodes"), list):
        for edges in ("edges", "links"):
            if isinstance(content.get(edges), list):
                return _grouped(_checked(path, _node_link, content, edges))
    return from_nested(_leaves_named(content), names=True)


def _leaves_named(content: Any) -> Any:
    """JSON with a leaf for every scalar, in place of it: JSON may be as deep as it likes."""
    top = [content]
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [top]
    numbers = True
    while stack:
        holder = stack.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, value in items:
            if isinstance(value, (list, dict)) and value:
                stack.append(value)
            else:
                places.append((holder, key))
                numbers &= isinstance(value, (int, float)) and not isinstance(value, bool)
    from hsa_geo.builders import Leaf

    for holder, key in places:
        value = holder[key]
        text = json.dumps(value, ensure_ascii=False)
        name = f"{key}: {text}" if isinstance(holder, dict) else text
        holder[key] = Leaf(value if numbers else None, name=name)
    return top[0]


# Graphs #####################################################################


def _grouped(graph: Any) -> Any:
    import networkx as nx

    from hsa_geo.builders import from_networkx

    if len(graph) and graph.is_directed() and nx.is_arborescence(graph):
        return from_networkx(graph)
    return from_networkx(graph, hierarchy="louvain")


def _node_link(content: dict[str, Any], edges: str) -> Any:
    import networkx as nx

    return nx.node_link_graph(content, edges=edges)


def _graph(data: bytes, path: Path) -> Any:
    import networkx as nx

    ending = path.suffix.lower()
    # From memory, so that networkx opens and unpacks nothing; edges without Python literals.
    readers: dict[str, Any] = {
        ".gexf": nx.read_gexf,
        ".gml": lambda file: nx.read_gml(file, label=None),
        ".net": nx.read_pajek,
        ".edgelist": lambda file: nx.read_edgelist(file, data=False),
        ".adjlist": nx.read_adjlist,
    }
    return _checked(path, readers.get(ending, nx.read_graphml), io.BytesIO(data))


def _checked(path: Path, read: Any, *arguments: Any) -> Any:
    """A graph of networkx, whose readers raise what they like at what is none."""
    try:
        return read(*arguments)
    except HSAError:
        raise
    except Exception as error:
        raise BuilderError(
            f"'{path.name}' is no graph that networkx reads ({type(error).__name__}: {error}): "
            "give GraphML, GEXF, GML, Pajek, an edge list or an adjacency list."
        ) from error
