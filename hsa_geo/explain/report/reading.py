"""A tree as a page to read: its leaves in reading order, in paragraphs, and its pictures."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hsa_geo.builders.image import image_of
from hsa_geo.data import Domain, SignalTree
from hsa_geo.explain.report.outline import Outline
from hsa_geo.explain.report.png import data_uri, shrink

__all__ = ["Picture", "Reading", "names_of", "pictures_of", "read", "signed"]

#: Longest name of a node or leaf that is shown.
MAX_NAME = 200
#: Longest side of a picture.
MAX_SIDE = 256

_HEADINGS = {"title", "caption", *(f"h{k}" for k in range(1, 7))}
#: Elements in which a word of its own is a paragraph, of which only the word was left.
_BOXES = {
    *("html", "body", "div", "main", "section", "article", "aside", "nav", "header", "footer"),
    *("ul", "ol", "dl", "table", "tbody", "thead", "tr", "cells", "form", "fieldset", "center"),
}
_UNSHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
#: What :class:`~hsa_geo.builders.html.LeafKind` is shown as.
_KIND_CLASSES = {1: "control", 2: "alt", 4: "alt"}


def escaped(text: str) -> str:
    """A text as HTML, of characters that HTML can hold.

    Example:
        >>> escaped("<b>\\x00&amp;")
        '&lt;b&gt;\\ufffd&amp;amp;'
    """
    return html.escape(_UNSHOWN.sub("\ufffd", text), quote=True)


def names_of(tree: SignalTree) -> list[str]:
    """A name for every node: its own, cut to a length that can be shown, or its number.

    Example:
        >>> names_of(SignalTree.from_parents([2, 2, -1]))
        ['leaf 0', 'leaf 1', 'node 2']
    """
    given = tree.get("tree_name")
    if given is None:
        n = tree.num_leaves
        return [f"{'leaf' if k < n else 'node'} {k}" for k in range(tree.num_tree_nodes)]
    return [
        name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…" for name in map(str, given)
    ]


@dataclass(frozen=True)
class Picture:
    """A picture among the leaves.

    Attributes:
        first: Place of its first leaf in reading order.
        count: Number of its leaves, which follow one another.
        pixels: uint8 ``[H, W, 3]``.
        boxes: ``[count, 4]``, top, left, bottom and right of each leaf in pixels.

    Example:
        >>> Picture(0, 1, np.zeros((8, 8, 3), dtype=np.uint8), np.array([[0, 0, 8, 8]])).count
        1
    """

    first: int
    count: int
    pixels: np.ndarray
    boxes: np.ndarray


def pictures_of(tree: SignalTree, outline: Outline) -> list[Picture]:
    """The pictures of a tree: of a page those whose patches were read, or all of an image tree.

    Args:
        tree: One tree.
        outline: Its outline.

    Returns:
        Pictures, in reading order.

    Example:
        >>> from hsa_geo.builders import from_image
        >>> tree = from_image(np.zeros((16, 8, 3), dtype=np.uint8), patch_size=8)
        >>> [(one.count, one.pixels.shape) for one in pictures_of(tree, Outline.of(tree))]
        [(2, (16, 8, 3))]
    """
    if "image_x" not in tree or "image_index" not in tree or not len(tree.image_index):
        return []
    rows = tree.image_index.cpu().numpy()
    if "image_box" in tree and "image_size" in tree:
        return _of_image(tree, outline)
    patch = round((tree.image_x.size(1) / 3) ** 0.5)
    if tree.image_x.dim() != 2 or 3 * patch * patch != tree.image_x.size(1):
        return []  # features of another kind
    cells = tree.image_x.cpu().numpy().reshape(-1, 3, patch, patch)
    if cells.dtype != np.uint8:
        return []
    parent = np.full(tree.num_tree_nodes, -1)
    parent[tree.tree_index[1].cpu().numpy()] = tree.tree_index[0].cpu().numpy()
    domain, pos = tree.tree_domain.cpu().numpy(), tree.tree_pos.cpu().numpy()
    of = parent[rows]
    on_grid = (of >= 0) & (domain[of] == int(Domain.GRID2D))
    out = []
    for node in np.unique(of[on_grid]).tolist():
        mine = np.flatnonzero(of == node)
        mine = mine[np.argsort(outline.leaf_place[rows[mine]])]
        at = pos[rows[mine]].astype(int)
        high, wide = at.max(0) + 1
        places = outline.leaf_place[rows[mine]]
        if at.min() < 0 or high * wide > 2**16 or (np.diff(places) != 1).any():
            continue
        canvas = np.full((high, wide, patch, patch, 3), 255, dtype=np.uint8)
        canvas[at[:, 0], at[:, 1]] = cells[mine].transpose(0, 2, 3, 1)
        pixels = canvas.transpose(0, 2, 1, 3, 4).reshape(high * patch, wide * patch, 3)
        boxes = np.concatenate([at * patch, (at + 1) * patch], 1)
        out.append(Picture(int(places[0]), len(mine), pixels, boxes))
    return sorted(out, key=lambda picture: picture.first)


def _of_image(tree: SignalTree, outline: Outline) -> list[Picture]:
    """The picture of from_image, or the frames of from_video."""
    pixels, box = image_of(tree), tree.image_box.cpu().numpy()
    order = np.argsort(outline.leaf_place)
    if pixels.ndim == 3:
        return [Picture(0, tree.num_leaves, pixels, box[order])]
    when = tree.tree_span[: tree.num_leaves, 0].cpu().numpy()[order]
    out = []
    for frame in np.unique(when).tolist():
        here = np.flatnonzero(when == frame)
        if (np.diff(here) == 1).all():
            out.append(Picture(int(here[0]), len(here), pixels[frame], box[order[here]]))
    return out


@dataclass
class Reading:
    """The page as HTML.

    Attributes:
        body: The HTML.
        pictures: Of each picture shown: place of its first leaf, number of leaves, width, height.
        boxes: Of each picture shown the boxes of its leaves ``[count, 4]``, in its pixels.
        left_out: Number of pictures that are not shown.

    Example:
        >>> Reading("<p></p>").left_out
        0
    """

    body: str
    pictures: list[list[int]] = field(default_factory=list)
    boxes: list[np.ndarray] = field(default_factory=list)
    left_out: int = 0


def read(
    tree: SignalTree, outline: Outline, names: list[str], shade: np.ndarray, picture_bytes: int
) -> Reading:
    """The leaves of a tree as HTML.

    Leaves of one parent follow one another in a line, and so do links within a sentence and the
    sentences of a paragraph; between others a new paragraph begins.

    Args:
        tree: One tree.
        outline: Its outline.
        names: Names of all nodes.
        shade: ``[N]`` int, -9 to 9, shade of each leaf in reading order.
        picture_bytes: How much the pictures may take.

    Returns:
        The page.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1], name=["a", "<b>", "page"])
        >>> read(tree, Outline.of(tree), names_of(tree), np.array([0, -3]), 0).body
        '<p><i>a</i> <i class="n3">&lt;b&gt;</i></p>'
    """
    out = Reading("")
    starts = {picture.first: picture for picture in pictures_of(tree, outline)}
    kinds = tree.get("leaf_kind")
    kinds = None if kinds is None else kinds.tolist()
    places = np.flatnonzero(outline.size == 1).tolist()  # of the leaves, in reading order
    nodes, parent = outline.node.tolist(), outline.parent.tolist()
    level = outline.level.tolist()
    shades, parts = shade.tolist(), list[str]()
    opened, k = False, 0
    while k < len(places):
        at = places[k]
        fresh = k == 0 or _breaks(places[k - 1], at, parent, level, nodes, names)
        picture = starts.get(k)
        if fresh and opened:
            parts.append("</p>\n")
            opened = False
        if picture is not None:
            shown = _figure(picture, out, picture_bytes)
            parts.append(("</p>\n" if opened else "") + shown)
            picture_bytes -= len(shown) if "<img" in shown else 0
            opened = False
            k += picture.count
            continue
        if not opened:
            parts.append(_paragraph(at, parent, nodes, names))
            opened = True
        else:
            parts.append(" ")
        parts.append(_leaf(names[nodes[at]], shades[k], kinds[nodes[at]] if kinds else 0))
        k += 1
    out.body = "".join(parts) + ("</p>" if opened else "")
    return out


def _leaf(name: str, shade: int, kind: int) -> str:
    classes = []
    if shade:
        classes.append(f"{'p' if shade > 0 else 'n'}{abs(shade)}")
    if kind in _KIND_CLASSES:
        classes.append(_KIND_CLASSES[kind])
    attribute = f' class="{" ".join(classes)}"' if classes else ""
    return f"<i{attribute}>{escaped(name)}</i>"


def _paragraph(at: int, parent: list[int], nodes: list[int], names: list[str]) -> str:
    up, steps = parent[at], 0
    while up >= 0 and steps < 4:
        name = names[nodes[up]]
        if name in _HEADINGS:
            return '<p class="heading">'
        up, steps = parent[up], steps + 1
    return "<p>"


def _breaks(
    a: int, b: int, parent: list[int], level: list[int], nodes: list[int], names: list[str]
) -> bool:
    """Whether a paragraph ends between two leaves."""
    over_a, over_b = parent[a], parent[b]
    if over_a == over_b:
        return False
    x, y = a, b
    while parent[x] != parent[y]:  # up to the children of what both lie under
        if level[x] >= level[y]:
            x = parent[x]
        else:
            y = parent[y]
    if parent[x] in (over_a, over_b) and names[nodes[parent[x]]] not in _BOXES:
        return False
    return not (names[nodes[x]] == names[nodes[y]] == "sentence")


def _figure(picture: Picture, out: Reading, budget: int) -> str:
    """A picture, or a note where it would take too much."""
    pixels = shrink(picture.pixels, MAX_SIDE)
    uri = data_uri(pixels)
    high, wide = pixels.shape[:2]
    if len(uri) > budget:
        out.left_out += 1
        return f'<figure data-count="{picture.count}">picture left out</figure>\n'
    scale = np.array([high / picture.pixels.shape[0], wide / picture.pixels.shape[1]])
    number = len(out.pictures)
    out.pictures.append([picture.first, picture.count, wide, high])
    out.boxes.append(np.round(picture.boxes * np.tile(scale, 2)).astype(np.uint16))
    return (
        f'<figure data-count="{picture.count}" data-picture="{number}"><img src="{uri}" alt="" '
        f'width="{wide}" height="{high}"><canvas width="{wide}" height="{high}"></canvas>'
        "</figure>\n"
    )


def as_text(value: Any) -> str:
    """A number as the report writes it.

    Example:
        >>> as_text(0.123456), as_text(1234567)
        ('0.123', '1,234,567')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def signed(value: float, top: float) -> str:
    """A number of a column, with its sign and as many digits as its largest needs for three.

    Args:
        value: The number.
        top: The largest size of any in the column.

    Returns:
        Text.

    Example:
        >>> signed(5.912, 5.912), signed(-0.36, 5.912), signed(0.0001, 5.912), signed(0.0, 0.0)
        ('+5.91', '−0.36', '0.00', '0.00')
    """
    digits = 2 - math.floor(math.log10(top)) if 0 < top < math.inf else 2
    text = f"{abs(value):.{min(max(digits, 0), 9)}f}"
    return text if not float(text) else f"{'+' if value > 0 else '−'}{text}"
