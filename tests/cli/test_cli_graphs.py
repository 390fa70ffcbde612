"""Graphs in files as people have them: labels of any kind, attributes here and there, loops."""

from __future__ import annotations

import io
import json
from pathlib import Path

import networkx as nx
import pytest

from hsa_geo.cli import run
from hsa_geo.cli.graphs import graph_tree
from hsa_geo.errors import BuilderError

WRITERS = {"graphml": nx.write_graphml, "gexf": nx.write_gexf, "gml": nx.write_gml}


def bytes_of(graph, ending):
    out = io.BytesIO()
    WRITERS[ending](graph, out)
    return out.getvalue()


def mixed():
    """One node with an attribute, one without; the same name on nodes and edges."""
    graph = nx.Graph([(4, 2), (2, 6), (6, 4), (6, 9)])
    graph.nodes[4]["age"] = 3
    graph.edges[4, 2]["age"] = 7
    graph.nodes[2]["name"] = "two"
    return graph


GRAPHS = {
    "mixed": (mixed(), 4, 8),
    "directed": (nx.DiGraph([("a", "c"), ("b", "c")]), 3, 2),
    "two roots": (nx.DiGraph([("a", "b"), ("c", "d")]), 4, 2),
    "upwards": (nx.DiGraph([("leaf", "root"), ("leaf2", "root")]), 3, 2),
    "loop": (nx.DiGraph([("a", "b"), ("b", "b")]), 2, 2),
    "loop alone": (nx.Graph([(7, 7)]), 1, 1),
    "many edges": (nx.MultiDiGraph([("a", "b"), ("a", "b"), ("b", "c")]), 3, 3),
    "parts": (nx.disjoint_union(nx.path_graph(3), nx.empty_graph(2)), 5, 4),
}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_any_shape(name, ending, tmp_path, capsys):
    graph, leaves, edges = GRAPHS[name]
    path = tmp_path / f"a.{ending}"
    path.write_bytes(bytes_of(graph, ending))
    assert run(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["leaves"], found["warnings"]) == (leaves, [])
    from hsa_geo.cli.sources import read_tree

    assert read_tree(path.read_bytes(), path).edge_index.size(1) == edges


@pytest.mark.parametrize("ending", WRITERS)
def test_labels_that_are_no_counting_numbers_stay(ending, tmp_path, capsys):
    graph = nx.Graph([("40", "2"), ("2", "6"), ("ü & <b>", "40")])
    path = tmp_path / f"a.{ending}"
    path.write_bytes(bytes_of(graph, ending))
    assert run(["inspect", str(path)]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert {"40", "2", "6", "ü & <b>"} <= set(lines), lines


def test_parallel_edges_that_the_format_forbids(tmp_path, capsys):
    path = tmp_path / "a.gml"
    node, edge = 'node [ id {} label "{}" ]', "edge [ source 0 target 1 ]"
    path.write_text(f"graph [ {node.format(0, 'a')} {node.format(1, 'b')} {edge} {edge} ]")
    assert run(["inspect", str(path)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "write `multigraph 1` behind `graph [`" in told
    path.write_text(path.read_text().replace("graph [", "graph [ multigraph 1", 1))
    assert run(["inspect", str(path)]) == 0


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
@pytest.mark.parametrize("ending", ["graphml", "gexf"])
def test_entities_are_refused(codec, ending):
    """Named a hundred times, one of megabytes would become gigabytes below expat's own limit."""
    text = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaa">]><graphml>&a;</graphml>'
    with pytest.raises(BuilderError, match=r"declares entities of XML"):
        graph_tree(text.encode(codec), Path(f"a.{ending}"))
