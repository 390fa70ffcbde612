"""Graphs from files, as networkx reads them.

A graph that is a tree with edges from parents to children is taken as it is; of any other the
nodes are leaves in nested communities.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from hsa_geo.errors import BuilderError, HSAError

__all__ = ["graph_tree", "links_of", "node_link_tree"]


def graph_tree(data: bytes, path: Path) -> Any:
    """The tree of a file with a graph.

    Args:
        data: What the file holds.
        path: Its name, whose ending says the format; GraphML without one.

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Raises:
        BuilderError: If networkx cannot read it, it declares entities of XML, or there are no
            nodes.

    Example:
        >>> graph_tree(b"a b\\nb c", Path("a.edgelist")).num_leaves
        3
    """
    import networkx as nx

    # From memory, so that networkx opens and unpacks nothing; edges without Python literals.
    readers: dict[str, Any] = {
        ".gexf": nx.read_gexf,
        ".gml": lambda file: nx.read_gml(file, label=None),
        ".net": nx.read_pajek,
        ".edgelist": lambda file: nx.read_edgelist(file, data=False),
        ".adjlist": nx.read_adjlist,
    }
    read = readers.get(path.suffix.lower(), nx.read_graphml)
    if read in (nx.read_gexf, nx.read_graphml):
        _refuse_entities(data, path)
    return _grouped(_checked(path, read, io.BytesIO(data)))


def _refuse_entities(data: bytes, path: Path) -> None:
    """An entity of megabytes may be named a hundred times: files of graphs need none."""
    if any("<!ENTITY".encode(codec) in data for codec in ("ascii", "utf-16-le", "utf-16-be")):
        raise BuilderError(
            f"'{path.name}' declares entities of XML, which could make it grow without end: write "
            "out what they stand for."
        )


def links_of(content: Any) -> str | None:
    """What the edges of networkx' node-link format are called in JSON; None if it is another.

    Example:
        >>> links_of({"nodes": [], "links": []}), links_of({"nodes": 3})
        ('links', None)
    """
    if isinstance(content, dict) and isinstance(content.get("nodes"), list):
        for edges in ("edges", "links"):
            if isinstance(content.get(edges), list):
                return edges
    return None


def node_link_tree(content: dict[str, Any], edges: str, path: Path) -> Any:
    """The tree of a graph in networkx' node-link format.

    Args:
        content: The JSON.
        edges: The key of the edges, as :func:`links_of` says.
        path: The file's name.

    Returns:
        The :class:`~hsa_geo.data.SignalTree`.

    Raises:
        BuilderError: If it is no such graph.

    Example:
        >>> content = {"nodes": [{"id": 7}, {"id": 9}], "links": [{"source": 7, "target": 9}]}
        >>> node_link_tree(content, "links", Path("a.json")).num_leaves
        2
    """
    import networkx as nx

    return _grouped(_checked(path, lambda it: nx.node_link_graph(it, edges=edges), content))


def _grouped(graph: Any) -> Any:
    import networkx as nx

    from hsa_geo.builders import from_networkx

    labels = [label for _, label in graph.nodes(data="label")]
    # In GML and GEXF a node has a number, or an id, and what people call it besides.
    name = "label" if all(isinstance(label, str) and label for label in labels) else None
    if len(graph) and graph.is_directed() and nx.is_arborescence(graph):
        return from_networkx(graph, name=name)
    return from_networkx(graph, hierarchy="louvain", name=name)


def _checked(path: Path, read: Any, source: Any) -> Any:
    """A graph of networkx, whose readers raise what they like at what is none."""
    try:
        return read(source)
    except HSAError:
        raise
    except Exception as error:
        remedy = "give GraphML, GEXF, GML, Pajek, an edge list or an adjacency list"
        if path.suffix.lower() == ".gml" and "is duplicated" in str(error):
            remedy = "write `multigraph 1` behind `graph [` if edges may be parallel"
        raise BuilderError(
            f"'{path.name}' is no graph that networkx reads ({type(error).__name__}: {error}): "
            f"{remedy}."
        ) from error
