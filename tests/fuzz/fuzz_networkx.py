"""Graphs that nobody would draw: odd labels, attributes and hierarchies, for from_networkx."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from fuzz_case import ODD, Case, options_of

from hsa_geo.builders import from_networkx
from hsa_geo.data import Domain


class Nameless:
    """A label that cannot be shown or compared."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")

    def __lt__(self, other: Any) -> bool:
        raise RuntimeError("no order")


LABELS = [
    *(
        0,
        1,
        2,
        3,
        -5,
        10**30,
        10**5000,
        1.5,
        float("nan"),
        float("inf"),
        "a",
        "b",
        "0",
        "",
        "\ud800",
    ),
    *((0, 1), ("a",), (), frozenset("z"), b"x", int, Nameless(), nx, Ellipsis, 1j, Fraction(1, 3)),
    *(
        datetime.date(2020, 1, 1),
        decimal.Decimal("NaN"),
        np.int64(7),
        np.float32(0.5),
        True,
        "é" * 99,
    ),
    *(Domain.SET, len, range(3), "a\nb", "root"),
]
VALUES = [
    *(
        0,
        1,
        2,
        3,
        0.5,
        -1,
        1e300,
        1e-300,
        float("nan"),
        float("inf"),
        None,
        True,
        "1",
        "a",
        "",
        b"b",
    ),
    *([1, 2], (1, 2), [1], [], [[1], [2]], [1, "a"], [[1, 2], [3]], {"a": 1}, {1, 2}, 1j, 10**30),
    *(10**5000, object(), Nameless(), np.float32(1), np.int8(3), np.zeros(2), np.zeros((2, 2))),
    *(np.array(["a"]), np.array([None]), np.datetime64("2020"), np.array(3), np.zeros(0)),
    *(
        torch.tensor(1.0),
        torch.ones(2),
        torch.ones(2, requires_grad=True),
        torch.ones(2).to_sparse(),
    ),
    *(torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.complex64), torch.empty(2)),
    *(torch.ones(2, device="meta"), decimal.Decimal("NaN"), Fraction(1, 2), np.longdouble(1)),
    *(
        Domain.SEQUENCE,
        "sequence",
        "GRAPH",
        "SET",
        7,
        np.uint64(2**63),
        np.array([1], ">f8"),
        "\ud800",
    ),
]
ATTRIBUTES = ["f", "g", "p", "a", "b", "d", 0, None, ("t",), "w"]
KINDS = [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]


def halves(graph: nx.Graph) -> Any:
    """One half of the nodes, and the other."""
    nodes = list(graph)
    return [nodes[::2], set(nodes[1::2])] if len(nodes) > 1 else [nodes]


def _whole(graph: nx.Graph) -> Any:
    return [list(graph)]


def _apart(graph: nx.Graph) -> Any:
    return ([node] for node in graph)


def _less(graph: nx.Graph) -> Any:
    return [list(graph)[1:]]


def _twice(graph: nx.Graph) -> Any:
    return [list(graph), list(graph)]


def _foreign(graph: nx.Graph) -> Any:
    return [[*graph, "nobody"]]


def _none(graph: nx.Graph) -> Any:
    return None


def _number(graph: nx.Graph) -> Any:
    return 3


def _dict(graph: nx.Graph) -> Any:
    return {node: k % 2 for k, node in enumerate(graph)}


def _bad_dict(graph: nx.Graph) -> Any:
    return {node: [] for node in graph}


def _nothing(graph: nx.Graph) -> Any:
    return [[], [], list(graph), []]


def _string(graph: nx.Graph) -> Any:
    return "ab"


def _raising(graph: nx.Graph) -> Any:
    raise KeyError(Nameless())


def _changing(graph: nx.Graph) -> Any:
    groups = [[node] for node in graph]
    graph.add_edge("new", "newer")
    return groups


FUNCTIONS = [
    *(halves, halves, _dict, _whole, _apart, _less, _twice, _foreign, _none, _number, _bad_dict),
    *(_nothing, _string, _raising, nx.connected_components, nx.weakly_connected_components),
    *(nx.community.greedy_modularity_communities, nx.community.label_propagation_communities),
    functools.partial(nx.community.louvain_communities, seed=0),
    functools.partial(nx.community.asyn_lpa_communities, seed=0),
    *(
        len,
        nx.strongly_connected_components,
        functools.partial(nx.community.kernighan_lin_bisection, seed=0),
    ),
]
OPTIONS = {
    "x": ["f", "g", ["f", "g"], ("f",), [], "none", 0, ["f", "f"], "p"],
    "pos": ["p", "p", "f", "none", 0],
    "domain": ["d", Domain.GRID2D, Domain.SEQUENCE, 1, 3, 99, -1, "none", "sequence"],
    "name": ["a", "b", "f", "none"],
    "order": ["a", "b", "f", "p", "none", "d"],
    "dtype": [torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64, torch.float16],
    "return_labels": [False, False],
}
GROUPED = {
    "weight": ["w", "w", "none", "f"],
    "resolutions": [
        1,
        (1, 4),
        [0.1, 100],
        (),
        0,
        -1,
        [float("nan")],
        [float("inf")],
        1e-300,
        1e300,
    ],
    "seed": [0, 1, 2**40, -1],
    "max_group": [1, 2, 5, 0],
}


def case(rng: random.Random, folder: Path) -> Case:
    """A graph and options."""
    sane = rng.random() < 0.6  # attributes that fit
    rooted = rng.random() < 0.4
    labels = _labels(rng)
    graph = _tree(rng, labels) if rooted else _graph(rng, labels)
    _dress(rng, graph, sane)
    options = options_of(rng, OPTIONS, likely=0.25)
    if not rooted or rng.random() < 0.1:
        options |= options_of(rng, GROUPED, likely=0.15)
        options["hierarchy"] = _hierarchy(rng, list(graph))
        if rng.random() < 0.9:  # what goes with one kind only
            kind = options["hierarchy"]
            if not isinstance(kind, str) or kind != "louvain":
                options.pop("resolutions", None)
                options.pop("seed", None)
            if not callable(kind):
                options.pop("max_group", None)
            if isinstance(options.get("domain"), str):
                del options["domain"]
    elif rng.random() < 0.9:
        options["root"] = labels[0]
    if rng.random() < 0.02:
        options["root"] = rng.choice([*LABELS, *ODD])
    source: Any = graph
    if rng.random() < 0.003:
        source = rng.choice((None, 1, [], {}, nx, nx.Graph, nx.Graph(), np.eye(3), "graph"))
    repeatable = options.get("hierarchy") is not _changing
    return Case(from_networkx, source, options, repeatable=repeatable)


def _labels(rng: random.Random) -> list[Any]:
    count = min(1 + int(rng.expovariate(0.12)), 60)
    if rng.random() < 0.4:
        return rng.sample(range(100), count)
    if rng.random() < 0.5:
        return [f"n{i}" for i in range(count)]
    return rng.sample(LABELS, min(count, len(LABELS)))


def _tree(rng: random.Random, labels: list[Any]) -> nx.Graph:
    graph = rng.choice((nx.DiGraph, nx.DiGraph, nx.Graph, nx.MultiDiGraph, nx.MultiGraph))()
    graph.add_node(labels[0])
    deep = rng.random() < 0.2
    for k in range(1, len(labels)):
        graph.add_edge(labels[k - 1 if deep else rng.randrange(k)], labels[k])
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):  # what makes it no tree
        kind = rng.randrange(4)
        if kind == 0:
            graph.add_edge(rng.choice(labels), rng.choice(labels))
        elif kind == 1:
            graph.add_node("alone")
        elif kind == 2 and graph.edges:
            edge = rng.choice(list(graph.edges))
            with contextlib.suppress(Exception):  # of nan, or labels whose comparison is no bool
                graph.remove_edge(*edge[:2])
            graph.add_edge(edge[1], edge[0])
        else:
            graph.add_edge(labels[0], labels[0])
    return graph


def _graph(rng: random.Random, labels: list[Any]) -> nx.Graph:
    graph = rng.choice(KINDS)()
    graph.add_nodes_from(labels)
    for _ in range(rng.choice((0, len(labels), 3 * len(labels), 2))):
        u, v = rng.choice(labels), rng.choice(labels)
        graph.add_edge(u, v)
    return nx.freeze(graph) if rng.random() < 0.05 else graph


def _dress(rng: random.Random, graph: nx.Graph, sane: bool) -> None:
    """Attributes of nodes and edges, mostly of one kind, with gaps."""
    usual = {
        "f": lambda: [rng.random(), 1.0],
        "g": lambda: rng.randrange(5),
        "p": lambda: rng.choice(((1, 2), (0.5, -3.0))),
        "a": lambda: rng.choice("xyz"),
        "b": lambda: rng.randrange(3),
        "d": lambda: rng.choice(("SET", "sequence", 2, Domain.GRAPH)),
        0: lambda: 1,
        "w": lambda: rng.choice((0, 0.5, 1, 3)),
    }
    for _, data in graph.nodes(data=True):
        for name, draw in usual.items():
            if rng.random() < 0.99:
                data[name] = (
                    draw() if rng.random() < (0.998 if sane else 0.8) else rng.choice(VALUES)
                )
    for *_, data in graph.edges(data=True):
        if rng.random() < 0.99:
            data["w"] = (
                usual["w"]() if rng.random() < (0.998 if sane else 0.9) else rng.choice(VALUES)
            )


def _hierarchy(rng: random.Random, nodes: list[Any]) -> Any:
    kind = rng.random()
    if kind < 0.3:
        return "louvain"
    if kind < 0.5:
        return rng.choice(FUNCTIONS)
    if kind < 0.7:
        return tuple(rng.choices(ATTRIBUTES[:6], k=rng.randrange(1, 4)))
    if kind < 0.95:
        return _nesting(rng, nodes)
    return rng.choice((*ODD, (), "a", "Louvain", _changing))


def _nesting(rng: random.Random, nodes: list[Any]) -> Any:
    """Nested containers of the nodes, with a fault now and then; deep ones too."""
    todo = rng.sample(nodes, len(nodes))
    draw = rng.random()
    if draw < 0.03:
        todo = todo[1:] or todo
    elif draw < 0.06:
        todo.append(rng.choice((todo[0], "nobody", [], {}, None, object(), 10**5000)))
    out: Any = list(todo)
    for _ in range(rng.randrange(4)):
        size = rng.randrange(1, 5)
        out = [out[i : i + size] for i in range(0, len(out), size)]
        if rng.random() < 0.4:
            out = [dict(enumerate(part)) if rng.random() < 0.5 else tuple(part) for part in out]
    if rng.random() < 0.1:
        out = {f"k{i}": part for i, part in enumerate(out)}
    if rng.random() < 0.02:
        for _ in range(3000):
            out = [out]
    if rng.random() < 0.01 and isinstance(out, list):
        out.append(out)  # holds itself
    return out
