"""The matrix of an attention as a picture: leaves in reading order, blocks outlined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.data.plan import TreePlan
from hsa_geo.errors import LimitError, ShapeError, UnsupportedError
from hsa_geo.ops.weights import AttentionWeights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_attention"]

#: Outlines that can be seen on the dark and on the light end of the colours.
_EDGE = "#E69F00"


def plot_attention(
    weights: AttentionWeights,
    flat: Tensor | None = None,
    *,
    head: int = 0,
    axes: Any = None,
    names: list[str] | None = None,
    edges: bool = True,
    max_leaves: int = 256,
) -> list[Axes]:
    """Draw the attention among the leaves of a tree, and flat attention beside it.

    Both have the same colours, which people with any colour vision can order by their lightness.
    Orange lines are the edges of the blocks: the leaves of B look at the leaves of a sibling C.

    Args:
        weights: Weights over one tree, as :func:`~hsa_geo.ops.attention_weights`,
            :func:`layer_weights` or a layer gives them.
        flat: A dense matrix ``[H, N, N]`` or ``[N, N]`` to draw beside them, such as flat attention
            of the same queries and keys, ``attention_matrix(q, k, tree.plan.flat)``.
            (default: :obj:`None`)
        head: The head that is drawn. (default: 0)
        axes: Axes to draw on, two if ``flat`` is given. (default: those of a new figure)
        names: Names of the leaves ``[N]``, by row. (default: none are written)
        edges: Draw the edges of the blocks. (default: :obj:`True`)
        max_leaves: Refuse larger trees, whose matrix nobody could read. (default: 256)

    Returns:
        The axes, one or two.

    Raises:
        ShapeError: If an argument does not fit.
        UnsupportedError: For the weights of a batch of several trees.
        LimitError: If there are more than ``max_leaves`` leaves.
        MissingPackageError: If matplotlib is not installed.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.ops import attention_matrix, attention_weights
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> q, k = torch.randn(2, 4, 1, 8)
        >>> flat = attention_matrix(q, k, tree.plan.flat)
        >>> [ax.get_title() for ax in plot_attention(attention_weights(q, k, tree), flat)]
        ['hierarchical', 'flat']
    """
    plan = _checked(weights, head, max_leaves)
    order = plan.leaf_order.cpu()
    matrices = [("hierarchical", weights.to_dense()[head])]
    if flat is not None:
        matrices.append(("flat", _one_head(flat, head, plan)))
    if names is not None and len(names) != plan.num_leaves:
        raise ShapeError(
            f"names has {len(names)} entries: give one for each of the N={plan.num_leaves} leaves."
        )
    if axes is None:
        pyplot = require("matplotlib.pyplot", extra="plot", purpose="drawing attention")
        count = len(matrices)
        _, axes = pyplot.subplots(
            1, count, figsize=(4.2 * count + 0.6, 4.2), layout="constrained", squeeze=False
        )
    panels: list[Axes] = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(panels) != len(matrices):
        raise ShapeError(f"axes holds {len(panels)} of them: give {len(matrices)}.")
    drawn = [m.detach().cpu().double()[order][:, order].numpy() for _, m in matrices]
    top = max(float(matrix.max()) for matrix in drawn)
    image = None
    for ax, (title, _), matrix in zip(panels, matrices, drawn):
        image = ax.imshow(matrix, cmap="cividis", vmin=0.0, vmax=top, interpolation="nearest")
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("leaf that is looked at", fontsize=8)
        _label(ax, names, order.tolist())
        if edges and title == "hierarchical":
            _draw_blocks(ax, plan)
    panels[0].set_ylabel("leaf that looks", fontsize=8)
    figure = panels[0].figure
    assert image is not None
    figure.colorbar(image, ax=panels, label="weight", shrink=0.8)
    return panels


def _checked(weights: AttentionWeights, head: int, limit: int) -> TreePlan:
    if not isinstance(weights, AttentionWeights):
        raise ShapeError(
            f"weights is a {type(weights).__name__}: give AttentionWeights, as "
            "attention_weights(q, k, tree) or layer_weights(model, tree)[0]."
        )
    plan = weights.plan
    if plan.num_trees != 1:
        raise UnsupportedError(
            f"the weights are those of {plan.num_trees} trees: draw those of one tree."
        )
    if plan.num_leaves > limit:
        raise LimitError(
            f"the tree has {plan.num_leaves} leaves, more than max_leaves={limit}: draw part of "
            "it, tree.restrict(leaves), or raise max_leaves."
        )
    heads = weights.leaf.size(1)
    if not isinstance(head, int) or not 0 <= head < heads:
        raise ShapeError(f"head={head!r} is none: give a number 0..{heads - 1}.")
    return plan


def _one_head(flat: Tensor, head: int, plan: TreePlan) -> Tensor:
    n = plan.num_leaves
    if isinstance(flat, Tensor) and flat.dim() == 3 and head < flat.size(0):
        flat = flat[head]
    if not isinstance(flat, Tensor) or flat.shape != (n, n):
        shape = list(flat.shape) if isinstance(flat, Tensor) else type(flat).__name__
        raise ShapeError(f"flat is {shape}: give [H, N, N] or [N, N] with N={n} leaves.")
    return flat


def _label(ax: Axes, names: list[str] | None, order: list[int]) -> None:
    if names is None:
        ax.tick_params(labelsize=7)
        return
    shown = [
        "".join(c if c.isprintable() else " " for c in names[row].replace("$", r"\$"))[:14]
        for row in order
    ]
    ax.set_xticks(range(len(order)), shown, rotation=90, fontsize=7)
    ax.set_yticks(range(len(order)), shown, fontsize=7)


def _draw_blocks(ax: Axes, plan: TreePlan) -> None:
    """The outline of every block (B, C) of siblings."""
    from matplotlib.collections import LineCollection

    if plan.num_pairs == 0:
        return
    pairs = plan.pairs
    top, left = (
        plan.leaf_start[slot].cpu().double() - 0.5 for slot in (pairs.target, pairs.source)
    )
    bottom = top + plan.count[pairs.target].cpu()
    right = left + plan.count[pairs.source].cpu()
    corners = torch.stack(
        [
            torch.stack([left, right, right, left, left], 1),
            torch.stack([top, top, bottom, bottom, top], 1),
        ],
        2,
    )  # [P, 5, 2]
    width = 1.0 if plan.num_leaves <= 64 else 0.5
    ax.add_collection(LineCollection(corners.tolist(), colors=_EDGE, linewidths=width))
