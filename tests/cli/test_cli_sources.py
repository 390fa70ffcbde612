from __future__ import annotations

import io
import json
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest

from hsa_geo.cli.sources import Kind, kind_of, read_tree
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DecodingWarning, LimitError


def read(data, name):
    return read_tree(data if isinstance(data, bytes) else data.encode(), Path(name))


def test_kinds_by_their_endings():
    assert kind_of(Path("a.b/page.HTML")) is Kind.html
    assert kind_of(Path("page.html.gz")) is None
    assert kind_of(Path("html")) is None
    with pytest.raises(BuilderError, match="--as html, text, image, json, graph"):
        read("x", "a.exe")
    assert read_tree(b"<p>to be", Path("a.exe"), Kind.html).tree_name[:2] == ["to", "be"]


@pytest.mark.parametrize("name", ["a.html", "a.txt", "a.png", "a.json", "a.gml"])
def test_empty_files(name):
    with pytest.raises(BuilderError, match=f"'{name}' is empty"):
        read(b"", name)


def test_texts_and_pictures():
    from PIL import Image

    assert read("\ufeffTo be. Or not.", "a.md").tree_name[:4] == ["To", "be", "Or", "not"]
    out = io.BytesIO()
    Image.new("RGB", (40, 20)).save(out, "PNG")
    assert read(out.getvalue(), "a.png").num_leaves == 6
    with pytest.raises(BuilderError):
        read(b"GIF89a nothing", "a.gif")


def test_a_picture_that_claims_to_be_huge():
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b""))
    with pytest.raises(LimitError, match="pixels"):
        read(data + chunk(b"IEND", b""), "a.png")


def test_pages_warn():
    with pytest.warns(DecodingWarning):
        read(b'<meta charset="utf-8"><p>caf\xe9 au lait', "a.html")


def test_nested_json():
    tree = read('{"title": "Hi", "parts": [1, [2, null], {}], "n": true}', "a.json")
    assert tree.tree_name[: tree.num_leaves] == [
        *('title: "Hi"', "1", "2", "null", "{}", "n: true"),
    ]
    assert "x" not in tree
    assert set(tree.tree_domain.tolist()) == {-1, Domain.SET, Domain.SEQUENCE}
    numbers = read("[[1, 2.5], [3]]", "a.json")
    assert numbers.x.tolist() == [[1.0], [2.5], [3.0]]
    assert read("5", "a.json").num_leaves == 1
    assert read("[]", "a.json").num_leaves == 1


@pytest.mark.parametrize(
    "data",
    [b"{", b"\xff\xfe\x00", b"[1,]", b"[" * 100_000, b"[" + b"9" * 10_000 + b"]"],
    ids=["open", "bytes", "comma", "deep", "digits"],
)
def test_what_is_no_json(data):
    with pytest.raises(BuilderError):
        read(data, "a.json")


def test_json_as_deep_as_it_is_read():
    depth = 900
    tree = read("[" * depth + "1, 2" + "]" * depth, "a.json")
    assert (tree.num_leaves, tree.depth) == (2, depth)


def written(write, graph):
    out = io.BytesIO()
    write(graph, out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.graphml", nx.write_graphml),
        ("a.gexf", nx.write_gexf),
        ("a.gml", nx.write_gml),
        ("a.net", nx.write_pajek),
        ("a.edgelist", nx.write_edgelist),
        ("a.adjlist", nx.write_adjlist),
        ("a.json", lambda g, f: f.write(json.dumps(nx.node_link_data(g, edges="links")).encode())),
        ("b.json", lambda g, f: f.write(json.dumps(nx.node_link_data(g, edges="edges")).encode())),
    ],
)
def test_graphs(name, write):
    tree = read(written(write, nx.karate_club_graph()), name)
    assert tree.num_leaves == 34
    assert tree.depth > 1
    assert tree.edge_index.size(1) == 2 * 78


def test_a_tree_with_directed_edges_is_taken_as_it_is():
    data = written(nx.write_graphml, nx.DiGraph([("page", "box"), ("box", "a"), ("page", "b")]))
    tree = read(data, "a.graphml")
    assert (tree.num_leaves, tree.num_tree_nodes) == (2, 4)


BOMB = """<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">
{}]><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">
<node id="&j;"/></graph></graphml>"""
LEVELS = "abcdefghij"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.graphml", b"\x80\x04pickle"),
        ("a.gml", b"graph [ node [ id 0 ]"),
        ("a.gexf", b"<gexf/>"),
        ("a.adjlist", b""" \xff\xfe """),
        ("a.json", b'{"nodes": [1], "edges": [2]}'),
        (
            "a.graphml",
            BOMB.format(
                "\n".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(LEVELS))
            ).encode(),
        ),
        (
            "a.graphml",
            b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
            b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph><node id="&x;"/>'
            b"</graph></graphml>",
        ),
        ("a.gml", b"graph [ " + b"a [ " * 5000 + b"]" * 5001),
    ],
    ids=["pickle", "open", "gexf", "bytes", "json", "laughs", "entity", "deep"],
)
def test_what_is_no_graph(name, data):
    with pytest.raises(BuilderError, match=r"is no graph|has no nodes"):
        read(data, name)


def test_edge_lists_run_nothing(tmp_path):
    mark = tmp_path / "mark"
    data = f"a b {{'x': open({str(mark)!r}, 'w')}}\nb c {'(' * 5000}\n"
    assert read(data, "a.edgelist").num_leaves == 3
    assert not mark.exists()
