"""A tree as a picture: the root above, leaves below in reading order, domains by colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch_geometric.data import Batch

from hsa_geo._optional import require
from hsa_geo.data.domain import Domain
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import LimitError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_tree"]

#: Colours that people with any colour vision tell apart (Okabe and Ito), and shapes.
_LOOK = {
    Domain.SET: ("#E69F00", "o"),
    Domain.SEQUENCE: ("#0072B2", "s"),
    Domain.GRID2D: ("#009E73", "D"),
    Domain.GRAPH: ("#CC79A7", "h"),
}
_LEAF = "#555555"
_LINK = "#D55E00"


def plot_tree(
    tree: SignalTree,
    ax: Axes | None = None,
    *,
    names: bool = True,
    links: bool = True,
    max_leaves: int = 200,
    max_name: int = 14,
) -> Axes:
    """Draw a tree with matplotlib.

    Args:
        tree: One tree, not a batch.
        ax: Axes to draw on. (default: those of a new figure, as wide as the leaves need)
        names: Write ``tree_name`` beside the nodes, if the tree has it; the names of inner nodes
            are left out where there are more than 60. (default: :obj:`True`)
        links: Draw ``tree_link``, the links among siblings, as arcs. (default: :obj:`True`)
        max_leaves: Refuse to draw more leaves, which nobody could tell apart. (default: 200)
        max_name: Longer names are cut off and end with an ellipsis. (default: 14)

    Returns:
        The axes.

    Raises:
        ShapeError: If ``tree`` is no tree.
        UnsupportedError: If it is a batch.
        LimitError: If it has more than ``max_leaves`` leaves.
        MissingPackageError: If matplotlib is not installed.

    Example:
        >>> tree = SignalTree.from_parents(
        ...     [-1, 0, 0, 1, 1], name=["page", "box", "image", "to", "be"], domain=Domain.SEQUENCE
        ... )
        >>> axes = plot_tree(tree)
        >>> sorted(text.get_text() for text in axes.texts)
        ['be', 'box', 'image', 'page', 'to']
    """
    if not isinstance(tree, SignalTree):
        raise ShapeError(f"tree is a {type(tree).__name__}: give a SignalTree.")
    if isinstance(tree, Batch):
        raise UnsupportedError("a batch has no picture: draw one of batch.to_data_list().")
    if tree.num_leaves > max_leaves:
        raise LimitError(
            f"the tree has {tree.num_leaves} leaves, more than max_leaves={max_leaves}: draw part "
            "of it, tree.restrict(leaves), or raise max_leaves."
        )
    place, level = _places(tree)
    if ax is None:
        pyplot = require("matplotlib.pyplot", extra="plot", purpose="drawing a tree")
        width = min(max(4.0, 0.35 * tree.num_leaves), 24.0)
        _, ax = pyplot.subplots(figsize=(width, 1.2 + 0.8 * (tree.depth + 1)), layout="constrained")
    assert ax is not None
    _draw_edges(tree, ax, place, level)
    if links and "tree_link" in tree:
        _draw_links(tree, ax, place, level)
    _draw_nodes(tree, ax, place, level)
    if names and "tree_name" in tree:
        _draw_names(tree, ax, place, level, max_name)
    ax.set_ylim(-tree.depth - (1.4 if names and "tree_name" in tree else 0.5), 0.6)
    ax.set_xlim(-1, max(tree.num_leaves, 1))
    ax.axis("off")
    return ax


def _places(tree: SignalTree) -> tuple[np.ndarray, np.ndarray]:
    """Horizontal place of every node, in the middle of its leaves, and its level: ``[M]`` each."""
    rows, ptr = tree.plan.leaves_under(tree.plan.node_slot)
    order = np.empty(tree.num_leaves)
    order[tree.plan.leaf_order.numpy()] = np.arange(tree.num_leaves)
    under = order[rows.numpy()]
    bounds = ptr.numpy()
    middle = (under[bounds[:-1]] + under[bounds[1:] - 1]) / 2  # leaves of a node are consecutive
    return middle, tree.tree_level.numpy()


def _draw_edges(tree: SignalTree, ax: Axes, place: np.ndarray, level: np.ndarray) -> None:
    from matplotlib.collections import LineCollection

    parent, child = tree.tree_index.numpy()
    ends = [np.stack([place[nodes], -level[nodes]], 1) for nodes in (parent, child)]
    lines = LineCollection(np.stack(ends, 1).tolist(), colors="#BBBBBB", linewidths=1.0, zorder=1)
    ax.add_collection(lines)


def _draw_links(tree: SignalTree, ax: Axes, place: np.ndarray, level: np.ndarray) -> None:
    from matplotlib.patches import FancyArrowPatch

    pairs = {(a, b) for a, b in tree.tree_link.t().tolist() if a != b}
    for a, b in sorted(pairs):
        both = (b, a) in pairs
        if both and a > b:
            continue  # drawn already, without a direction
        bend = 0.35 if place[a] < place[b] else -0.35
        ax.add_patch(
            FancyArrowPatch(
                (place[a], -level[a]),
                (place[b], -level[b]),
                connectionstyle=f"arc3,rad={bend}",
                arrowstyle="-" if both else "-|>",
                mutation_scale=9,
                color=_LINK,
                linewidth=1.0,
                shrinkA=5,
                shrinkB=5,
                zorder=2,
            )
        )


def _draw_nodes(tree: SignalTree, ax: Axes, place: np.ndarray, level: np.ndarray) -> None:
    domain = tree.tree_domain.numpy()
    for value, (colour, shape) in _LOOK.items():
        here = np.flatnonzero(domain == int(value))
        if here.size:
            ax.scatter(
                place[here], -level[here], s=70, c=colour, marker=shape, zorder=3, label=value.name
            )
    leaf = np.flatnonzero(domain < 0)
    ax.scatter(place[leaf], -level[leaf], s=18, c=_LEAF, zorder=3, label="leaf")
    ax.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False, title="domain"
    )


def _draw_names(
    tree: SignalTree, ax: Axes, place: np.ndarray, level: np.ndarray, longest: int
) -> None:
    inner = tree.num_tree_nodes - tree.num_leaves
    upright: dict[str, Any] = {"rotation": 90} if tree.num_leaves > 8 else {}
    for node, name in enumerate(tree.tree_name):
        text = "".join(c if c.isprintable() else " " for c in name.replace("$", r"\$"))
        text = text if len(text) <= longest else text[: longest - 1] + "…"
        at = (place[node], -level[node])
        if node < tree.num_leaves:
            options = {"ha": "center", "va": "top", "fontsize": 8, "color": _LEAF, **upright}
            ax.annotate(text, at, xytext=(0, -6), textcoords="offset points", **options)
        elif inner <= 60:
            ax.annotate(
                text, at, xytext=(6, 3), textcoords="offset points", fontsize=8, color="black"
            )
