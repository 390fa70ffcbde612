"""Hypothesis strategies of the things that builders take.

Each shrinks towards little: one leaf, one node, one character.  hypothesis is needed, and
networkx graphs and pages need nothing else.  ``PAGE_PARTS`` and ``TEXT_PARTS`` are the pieces
that pages and texts are put together from: those on which readers of pages and texts stumble.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from hsa_geo._optional import require
from hsa_geo.builders import signals

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = [
    "GRAPH_KINDS",
    "GRAPH_LABELS",
    "PAGE_PARTS",
    "TEXT_PARTS",
    "html_pages",
    "image_arrays",
    "nested_signals",
    "networkx_graphs",
    "texts",
]

#: Kinds of :func:`networkx_graphs`.
GRAPH_KINDS = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
#: Labels of :func:`networkx_graphs`, of mixed types; some have the same name.
GRAPH_LABELS: tuple[Hashable, ...] = (
    *(0, 2, -3, 1.5, 10**20, "a", "0", "ä b", "", (0, 1), ("a",), frozenset({"z"}), b"x", int),
)
_WEIGHTS = (0, 0.25, 1, 2.5, 1024)  # sums of these are exact
_MARKUP = """
<p> </p> <div> </div> <b> </b> <a> </a> <form> </form> <table> <tr> <td> </table> <ul> <li> </ul>
<br> <input> <input/type=hidden> <select> <option> </select> <textarea> </textarea> <button>
</button> <label> <label/for=x> </label> <input/id=x> <img> <img/alt=x> <svg> <text> </svg> <math>
<script> </script> <style> </style> <title> </title> <template> </template> <noscript> </noscript>
<p/hidden> <p/style=display:none> <frameset> <frame> <iframe> </iframe> <object> <body> <html>
<head> </html> <!-- --> <![CDATA[ ]]> <x-y> </x-y> <dialog> <details> <summary> <plaintext> <xmp>
</xmp> &lt; &amp &#0; a b. C! é 東 < > ' "
"""
#: Pieces of :func:`html_pages`.
PAGE_PARTS = (*_MARKUP.split(), "\0", "\ud800", "\ufffd")
#: Pieces of :func:`texts`.
TEXT_PARTS = (
    *("to", "be", "Don't", "e-mail", "9.99", "a", "B", "Dr", "z. B.", "http://a.b/c?d=1"),
    *("x@y.org", ".", "!", "?", "...", "…", ",", "-", "--", '"', "'", "“", "”", "(", ")", "[1]"),
    *("«", "»", "$", " ", "  ", "\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", "\v", "\f", "\x1c"),
    *("\x85", "\xa0", "\u2028", "\u2029", "\u3000", "\u200b", "\u200f", "\u202e", "\ufeff", "\0"),
    *("\ufffd", "\xad", "東京", "。", "！", "「", "」", "ー", "ﾊﾟ", "한국어", "हिन्दी", "।", "مرحبا"),
    *("؟", "،", "שלום", "ภาษา", "།", "é", "e\u0301", "\u0301", "ﬁ", "İ", "ß", "😀", "★\ufe0f"),
    *("👩\u200d👩\u200d👧", "❤\ufe0f", "🇫🇷", "1\ufe0f\u20e3", "\ud83d", "\ude00", "\udfff"),
    *("\U0010ffff", "[CLS]", "[SEP]", "<|end|>"),
)


def _st() -> Any:
    return require("hypothesis.strategies", extra="test", purpose="drawing with hypothesis")


def nested_signals(*, width: int = 2, max_leaves: int = 12) -> SearchStrategy[Any]:
    """Signals for :func:`~hsa_geo.builders.from_nested`: sequences, sets, grids and graphs, and
    the plain Python objects that stand for them, nested in each other.

    Args:
        width: Number of features of every leaf. (default: ``2``)
        max_leaves: About the most leaves. (default: ``12``)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> nested_signals().example()  # doctest: +SKIP
        Graph(2 children, 1 edge)
    """
    st = _st()
    number = st.integers(-(2**20), 2**20).map(lambda i: i / 8)
    row = st.lists(number, min_size=width, max_size=width)
    leaves = row.map(np.array) | st.builds(lambda v: signals.Leaf(v), row)

    @st.composite
    def containers(draw: DrawFn, children: Any) -> Any:
        inside = draw(st.lists(children, min_size=1, max_size=4))
        name = draw(st.none() | st.text("ab é漢", min_size=1, max_size=3))
        kind = draw(st.sampled_from(["list", "sequence", "set", "dict", "grid", "holes", "graph"]))
        n = len(inside)
        if kind == "sequence":
            return signals.Sequence(inside, name)
        if kind == "set":
            return signals.Set(inside, name)
        if kind == "dict":
            return {f"k{i}": child for i, child in enumerate(inside)}
        if kind == "grid":
            columns = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
            return signals.Grid([inside[i : i + columns] for i in range(0, n, columns)], name)
        if kind == "holes":
            places = draw(st.permutations([(0, 0), (0, 2), (3, 1), (1, 0)]))
            return signals.Grid(dict(zip(places, inside)), name)
        if kind == "graph":
            pairs = [(i, j) for i in range(n) for j in range(i, n)]
            edges = draw(st.lists(st.sampled_from(pairs), max_size=4, unique=True))
            weights = draw(st.none() | st.just([float(i + 1) for i in range(len(edges))]))
            return signals.Graph(inside, edges, weights, draw(st.booleans()), name)
        return inside

    return leaves | st.recursive(containers(leaves), containers, max_leaves=max_leaves)


def networkx_graphs(
    *, max_nodes: int = 14, kinds: Sequence[type] = GRAPH_KINDS, rooted: bool = False
) -> SearchStrategy[nx.Graph]:
    """Graphs for :func:`~hsa_geo.builders.from_networkx`: loops, parallel edges, nodes without
    edges, labels of mixed types.

    Every node has the attributes ``f`` (two numbers, for ``x=``), ``p`` (a position), ``a`` and
    ``b`` (a number and a string that some share) and ``r`` (a number); every edge has a weight
    ``w``.

    Args:
        max_nodes: Most nodes, at most as many as :data:`GRAPH_LABELS`. (default: ``14``)
        kinds: Classes of graphs. (default: all four)
        rooted: Trees whose edges point away from a root, as ``DiGraph``. (default: :obj:`False`)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> networkx_graphs(max_nodes=1, kinds=[nx.Graph]).example()  # doctest: +SKIP
        <networkx.classes.graph.Graph object at ...>
    """
    st = _st()

    @st.composite
    def graphs(draw: DrawFn) -> nx.Graph:
        labels = draw(st.permutations(GRAPH_LABELS))[: draw(st.integers(1, max_nodes))]
        graph = nx.DiGraph() if rooted else draw(st.sampled_from(kinds))()
        for i, label in enumerate(labels):
            value = draw(st.integers(0, 3))
            graph.add_node(label, f=[i, i / 2], p=(i, -i), a=value % 2, b=f"v{value}", r=value)
        weight = st.sampled_from(_WEIGHTS)
        if rooted:
            for i, label in enumerate(labels[1:], start=1):
                graph.add_edge(labels[draw(st.integers(0, i - 1))], label, w=draw(weight))
            return graph
        node = st.sampled_from(labels)
        for u, v, w in draw(st.lists(st.tuples(node, node, weight), max_size=30)):
            graph.add_edge(u, v, w=w)
        return graph

    return graphs()


def texts(*, readable: bool = False) -> SearchStrategy[str]:
    """Texts for :func:`~hsa_geo.builders.from_text`: any characters, lone surrogates too, and
    words, punctuation and blanks of many scripts.

    Args:
        readable: Texts hold at least one word, which ``from_text`` asks for.
            (default: :obj:`False`)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> texts().example()  # doctest: +SKIP
        'Don\\'t9.99 «'
    """
    st = _st()
    anything = st.text(st.characters(exclude_categories=()))
    parts = st.lists(st.sampled_from(TEXT_PARTS), max_size=40).map("".join)
    found = anything | parts
    return found.map(lambda text: f"word {text}") if readable else found


def image_arrays(*, max_side: int = 12) -> SearchStrategy[np.ndarray]:
    """Pictures for :func:`~hsa_geo.builders.from_image`: arrays ``[H, W]`` and ``[H, W, C]`` of
    1 to 4 channels, in all types that it takes.

    Args:
        max_side: Largest height and width. (default: ``12``)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> image_arrays(max_side=1).example().shape  # doctest: +SKIP
        (1, 1)
    """
    st = _st()

    def build(height: int, width: int, channels: int, kind: str, seed: int) -> np.ndarray:
        shape = (height, width, channels) if channels else (height, width)
        values = np.random.default_rng(seed).random(shape) if seed else np.zeros(shape)
        if kind.startswith("float"):
            return values.astype(kind)
        most = {"uint8": 255, "uint16": 65535, "bool": 1}[kind]
        return np.rint(values * most).astype(kind)

    side = st.integers(1, max_side)
    kind = st.sampled_from(["uint8", "uint16", "bool", "float16", "float32", "float64"])
    return st.builds(build, side, side, st.integers(0, 4), kind, st.integers(0, 2**16))


def html_pages(*, visible: bool = True) -> SearchStrategy[str]:
    """Pages for :func:`~hsa_geo.builders.from_html`: tags, text and scraps in any order.

    Args:
        visible: Pages show at least one word, which ``from_html`` asks for.
            (default: :obj:`True`)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> html_pages().example()  # doctest: +SKIP
        '<p>word</p><b></form>'
    """
    st = _st()
    parts = st.lists(st.sampled_from(PAGE_PARTS), max_size=40).map("".join)
    return parts.map(lambda page: f"<p>word</p>{page}") if visible else parts
