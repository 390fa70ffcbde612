"""Edges of a networkx graph as arrays, and its parts as graphs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np

from hsa_geo.builders._graph_attrs import numbers, shown
from hsa_geo.builders._louvain import Ints, Reals
from hsa_geo.errors import BuilderError

__all__ = ["Edges", "parts_of"]

_MISSING = object()
_LARGEST = float(np.finfo(np.float32).max)  # weights are float32 in the tree


@dataclass(frozen=True)
class Edges:
    """Edges by the places of their ends, both directions if undirected (loops once).

    Attributes:
        index: ``[2, E]``, sources and targets.
        weight: ``[E]``; 1 if the graph is taken without weights.
        directed: Whether the graph is.

    Example:
        >>> graph = nx.Graph([("a", "b"), ("b", "b")])
        >>> Edges.of(graph, {"a": 0, "b": 1}, None).index.tolist()
        [[0, 1, 1], [1, 1, 0]]
    """

    index: Ints
    weight: Reals
    directed: bool

    @classmethod
    def of(cls, graph: nx.Graph, place: Mapping[Hashable, int], weight: Any) -> Edges:
        """The edges of a graph.

        Args:
            graph: Any networkx graph.
            place: Number of every node.
            weight: Attribute with the weights, :obj:`None` if every edge counts 1.

        Raises:
            BuilderError: If a weight is missing, no number, negative or not finite; the message
                names the edge.
        """
        if weight is None:
            ends = np.fromiter(
                (place[node] for node in chain.from_iterable(graph.edges())), dtype=np.int64
            ).reshape(-1, 2)
            values = np.ones(len(ends))
        else:
            if isinstance(weight, bool):  # which mean something else to networkx
                found = graph.edges(data=True)
                edges = [(u, v, data.get(weight, _MISSING)) for u, v, data in found]
            else:
                edges = list(graph.edges(data=weight, default=_MISSING))
            ends = np.array([(place[u], place[v]) for u, v, _ in edges], np.int64).reshape(-1, 2)
            values = _weights(edges, weight)
        index = ends.T
        if not graph.is_directed():
            back = index[0] != index[1]
            index = np.concatenate([index, index[::-1, back]], axis=1)
            values = np.concatenate([values, values[back]])
        return cls(index, values, graph.is_directed())

    def matrix_weight(self) -> Reals:
        """``[E]``, entries of the adjacency matrix: a loop of an undirected graph counts twice."""
        loop = self.index[0] == self.index[1]
        return self.weight if self.directed else np.where(loop, 2 * self.weight, self.weight)

    def renumbered(self, row_of: Ints) -> Edges:
        """With ends ``row_of[end]``, sorted by them; parallel edges stay in order."""
        index = row_of[self.index]
        order = np.lexsort((index[1], index[0]))
        return Edges(index[:, order], self.weight[order], self.directed)


def _weights(edges: Sequence[tuple[Any, Any, Any]], weight: Any) -> Reals:
    values = np.zeros(len(edges))
    for i, (u, v, value) in enumerate(edges):
        number = value
        if value is _MISSING:
            raise BuilderError(
                f"the edge between {shown(u)} and {shown(v)} has no attribute {shown(weight)} "
                "given as weight: give it to every edge."
            )
        if type(value) is not float and type(value) is not int:
            array = numbers(value)
            number = array.item() if array is not None and array.size == 1 else -1
        if not 0 <= number <= _LARGEST:
            raise BuilderError(
                f"the edge between {shown(u)} and {shown(v)} has {shown(weight)} = {shown(value)}: "
                "give one number from 0 to what float32 holds."
            )
        values[i] = number
    if values.sum() > _LARGEST / 4:  # for two directions, and loops twice
        raise BuilderError(
            f"the weights {shown(weight)} add up to {values.sum()}, more than float32 holds: "
            "scale them."
        )
    return values


def parts_of(
    graph: nx.Graph, parts: Sequence[Sequence[Hashable]], wanted: Sequence[bool]
) -> list[nx.Graph | None]:
    """The subgraphs of disjoint parts, nodes in the order given; :obj:`None` if not wanted.

    They are plain networkx graphs of the same kind, with the attributes of nodes, edges and graph.

    Example:
        >>> parts_of(nx.path_graph(4), [[1, 0], [3, 2]], [True, False])[0].edges
        EdgeView([(1, 0)])
    """
    multi, directed = graph.is_multigraph(), graph.is_directed()
    kind = {
        (False, False): nx.Graph,
        (False, True): nx.DiGraph,
        (True, False): nx.MultiGraph,
        (True, True): nx.MultiDiGraph,
    }[multi, directed]
    out: list[nx.Graph | None] = []
    home: dict[Hashable, nx.Graph] = {}
    for part, take in zip(parts, wanted):
        if not take:
            out.append(None)
            continue
        subgraph = kind()
        subgraph.graph.update(graph.graph)
        subgraph.add_nodes_from((node, graph.nodes[node]) for node in part)
        home.update(dict.fromkeys(part, subgraph))
        out.append(subgraph)
    keys = {"keys": True} if multi else {}
    for edge in graph.edges(data=True, **keys):
        if edge[0] in home and home[edge[0]] is home.get(edge[1]):
            home[edge[0]].add_edges_from([edge])
    return out
