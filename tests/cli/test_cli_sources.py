from __future__ import annotations

import io
import json
import struct
import warnings
import zlib
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from hsa_geo.cli.sources import Kind, Reading, kind_of, read_tree
from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DecodingWarning, LimitError, TruncationWarning


def read(data, name):
    return read_tree(data if isinstance(data, bytes) else data.encode(), Path(name))


def test_kinds_by_their_endings():
    assert kind_of(Path("a.b/page.HTML")) is Kind.html
    assert kind_of(Path("page.html.gz")) is None
    assert kind_of(Path("html")) is None
    with pytest.raises(BuilderError, match="--as html, text, image, json, graph, sequence, video,"):
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


def picture(mode, size, **options):
    from PIL import Image

    out = io.BytesIO()
    image = Image.new(mode, size, options.pop("color", 0))
    if mode == "P":
        image.putpalette([255, 0, 0, 0, 255, 0])
    if "exif" in options:
        exif = Image.Exif()
        exif[0x0112] = options["exif"]
        options["exif"] = exif
    image.save(out, options.pop("format", "PNG"), **options)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "leaves", "first"),
    [
        (picture("RGBA", (40, 20), color=(9, 9, 9, 0)), 6, 255),
        (picture("LA", (40, 20), color=(9, 0)), 6, 255),
        (picture("L", (40, 20), color=9), 6, 9),
        (picture("P", (40, 20), transparency=0), 6, 255),
        (picture("P", (40, 20)), 6, 255),
        (picture("CMYK", (40, 20), format="TIFF"), 6, 255),
        (picture("RGB", (40, 20), format="JPEG", exif=6), 6, 0),
        (picture("RGB", (1, 1)), 1, 0),
        (picture("RGB", (1, 4000)), 250, 0),
        (picture("RGB", (4000, 1)), 250, 0),
    ],
    ids=["RGBA", "LA", "L", "clear", "P", "CMYK", "turned", "dot", "tall", "wide"],
)
def test_odd_pictures(data, leaves, first, tmp_path, capsys):
    from hsa_geo.cli import run

    path = tmp_path / "a.png"
    path.write_bytes(data)
    assert run(["inspect", str(path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["leaves"], content["warnings"]) == (leaves, [])
    assert int(read(data, "a.png").image_x[0, 0]) == first


def test_a_turned_picture_is_seen_upright():
    tree = read(picture("RGB", (40, 20), format="JPEG", exif=6), "a.jpg")
    assert tree.image_size.tolist() == [[40, 20]]


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_a_truncated_picture(keep):
    from PIL import Image

    out = io.BytesIO()
    Image.effect_noise((64, 64), 99).save(out, "PNG")
    data = out.getvalue()
    with pytest.raises(BuilderError, match="cannot be decoded"):
        read(data[: int(len(data) * keep)], "a.png")


def frames(count):
    from PIL import Image

    out = io.BytesIO()
    first, *others = (Image.new("L", (32, 16), 20 * k) for k in range(count))
    first.save(out, "GIF", save_all=True, append_images=others)
    return out.getvalue()


def test_videos():
    data = frames(3)
    with pytest.warns(TruncationWarning, match="the first frame alone was read: give --as video"):
        assert read(data, "a.gif").num_leaves == 2
    video = read_tree(data, Path("a.gif"), Kind.video)
    assert (video.num_leaves, video.tree_name[-1]) == (6, "video")
    assert read(frames(1), "a.gif").num_leaves == 2
    out = io.BytesIO()
    np.save(out, np.zeros((4, 16, 32, 3), dtype=np.uint8))
    assert read_tree(out.getvalue(), Path("a.npy"), Kind.video).num_leaves == 8
    out = io.BytesIO()
    np.save(out, np.zeros((16, 32), dtype=np.uint8))
    assert read_tree(out.getvalue(), Path("a.npy"), Kind.image).num_leaves == 2


def test_sequences():
    table = "x,y\n" + "1,2\n" * 40
    assert read(table, "a.csv").tree_name[-1] == "sequence"
    assert read(table, "a.csv").depth == 2
    tree = read_tree(table.encode(), Path("a.csv"), reading=Reading(window=2))
    assert (tree.num_leaves, tree.depth) == (40, 6)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.mp4", "'a.mp4' is a film, which needs a decoder: write its frames"),
        ("a.WAV", "is sound"),
        ("a.pdf", "save it as HTML or text"),
        ("a.zip", "unpack it"),
        ("a.pt", "write one array"),
    ],
)
def test_what_other_programs_read(name, says):
    with pytest.raises(BuilderError, match=says):
        read(b"x", name)


@pytest.mark.parametrize(
    ("encoding", "warns"),
    [("utf-8", False), ("utf-8-sig", False), ("utf-16", False), ("latin-1", True)],
)
def test_texts_in_any_encoding(encoding, warns):
    data = "Schöne Grüße".encode(encoding)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tree = read(data, "a.txt")
    assert tree.tree_name[:2] == ["Schöne", "Grüße"]
    assert [str(one.message).startswith("the text was read as windows") for one in found] == (
        [True] * warns
    )
    if encoding == "utf-16":
        with pytest.warns(DecodingWarning, match="UTF-16, in which 1 of 12 characters are lost"):
            read(data[:-1], "a.txt")


def test_a_site_is_no_file(tmp_path):
    with pytest.raises(BuilderError, match=r"'a\.html' is a file, but a site is a folder of pages"):
        read_tree(b"<p>a", Path("a.html"), Kind.site)


def test_1000_nested_boxes():
    tree = read("<div>a " * 1000 + "end", "a.html")
    assert (tree.num_leaves, tree.depth) == (1001, 1000)


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
    with pytest.raises(BuilderError, match=r"is no graph|has no nodes|declares entities"):
        read(data, name)


def test_edge_lists_run_nothing(tmp_path):
    mark = tmp_path / "mark"
    data = f"a b {{'x': open({str(mark)!r}, 'w')}}\nb c {'(' * 5000}\n"
    assert read(data, "a.edgelist").num_leaves == 3
    assert not mark.exists()


def test_a_text_that_holds_the_name_of_a_file(recwarn):
    """It is the text; what else is told of texts is told as before."""
    assert read_tree(b"notes.txt", Path("a.txt")).num_leaves > 0
    assert not recwarn.list
    with pytest.warns(DecodingWarning):
        read_tree(b"caf\xe9.txt", Path("a.txt"))
