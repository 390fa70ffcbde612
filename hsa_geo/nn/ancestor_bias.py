"""AncestorBias: what flat attention learns from the way between two leaves of a hierarchy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_positive
from hsa_geo.nn.leaf_paths import leaf_paths
from hsa_geo.ops.inputs import as_plan

__all__ = ["AncestorBias", "head_slopes"]


def head_slopes(heads: int, slope: float) -> Tensor:
    """How local every head starts: the first the most, halving from head to head, the last not.

    Args:
        heads: Number of heads.
        slope: That of the first head, also where it is the only one.

    Returns:
        ``[heads]``.

    Example:
        >>> head_slopes(4, 4.0).tolist(), head_slopes(1, 4.0).tolist()
        ([4.0, 2.0, 1.0, 0.0], [4.0])
    """
    slopes = slope * 0.5 ** torch.arange(heads)
    if heads > 1:
        slopes[-1] = 0
    return slopes


class AncestorBias(nn.Module):
    r"""Learned scores of pairs of leaves by the way between them.

    The ``pair_bias`` of :class:`~hsa_geo.nn.FlatConv` that tells it the hierarchy:

    .. math::
        \beta_{ij} = T_{\mathrm{up}(i, j), \, \mathrm{up}(j, i)} + D_{\mathrm{level}(i, j)}

    with :math:`\mathrm{up}(i, j)` the number of steps from leaf i up to the lowest common ancestor
    of i and j, and :math:`\mathrm{level}(i, j)` the level, counted from the root, of the lowest
    inner node above both: their lowest common ancestor, for :math:`i = j` the parent, so that a
    leaf and its siblings differ only in T.  Nodes with a single child are not counted.  (0, 0) is
    the leaf itself, (1, 1) siblings, (1, 2) a leaf of a sibling, (2, 1) an uncle, ...; steps beyond
    ``levels`` count as one more than ``levels``, a level beyond as ``levels``.  Every head learns
    both tables.

    So flat attention can be as local as the hierarchy, and it need not find that out: the first
    head starts with ``slope`` less for every step above the parent, the next with half of that,
    and so on; the last one starts with nothing.  Costs memory for all pairs of leaves of a tree.

    Args:
        heads (int): Number of heads. (default: ``1``)
        levels (int): Number of steps and levels told apart. (default: ``4``)
        slope (float): How local the first head starts. (default: ``4.0``)

    Shapes:
        - **input:** a tree, batch or plan, and rows of leaves :math:`(B, L)`, -1 for none
        - **output:** :math:`(B, H, L, L)`, zero where there is no leaf

    Raises:
        ShapeError: If a size is not positive, or ``slope`` negative.

    Example:
        >>> from hsa_geo.nn import FlatConv
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
        >>> FlatConv(16, 8, heads=2, pair_bias=AncestorBias(heads=2))(tree.x, tree).shape
        torch.Size([4, 16])
        >>> AncestorBias.ways(tree, torch.arange(4)[None], levels=4)[0][0].tolist()
        [[0, 1, 2, 2], [1, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]]
    """

    def __init__(self, heads: int = 1, levels: int = 4, slope: float = 4.0) -> None:
        super().__init__()
        check_positive(heads=heads, levels=levels)
        self.heads, self.levels, self.slope = heads, levels, slope
        if not slope >= 0:
            raise ShapeError(f"slope={slope!r} must be 0 or more.")
        self.way = nn.Parameter(torch.empty(heads, (levels + 2) ** 2))
        self.level = nn.Parameter(torch.empty(heads, levels + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scores to what the slopes of the heads say."""
        above = (torch.arange(self.levels + 2) - 1).clamp_min(0).repeat_interleave(self.levels + 2)
        with torch.no_grad():
            self.way.copy_(-head_slopes(self.heads, self.slope)[:, None] * above)
        nn.init.zeros_(self.level)

    @staticmethod
    def ways(tree: SignalTree | TreePlan, rows: Tensor, levels: int = 4) -> tuple[Tensor, Tensor]:
        """Steps up from leaf i to what it has in common with j, and the level of their ancestor.

        Args:
            tree: A tree, a batch of trees, or a plan.
            rows: Leaves ``[B, L]`` of one tree in each line, -1 for none.
            levels: Number of steps and levels told apart. (default: ``4``)

        Returns:
            Steps ``[B, L, L]`` (of i, the first of the two), and levels ``[B, L, L]`` of the lowest
            inner node above both, on the diagonal of the parent.
        """
        plan = as_plan(tree)
        paths = leaf_paths(plan, levels)
        place = torch.empty_like(plan.leaf_order)
        place[plan.leaf_order] = torch.arange(plan.num_leaves, device=plan.device)
        place = place[rows][:, None, :]  # of j

        def outside(slot: Tensor) -> Tensor:  # [B, L] ancestors of i -> [B, L, L]
            slot = slot[..., None]
            start = plan.leaf_start[slot]
            return ((place < start) | (place >= start + plan.count[slot])) & (slot >= 0)

        steps = rows.new_zeros(rows.size(0), rows.size(1), rows.size(1))
        level = steps.clone()
        for k in range(levels + 1):
            steps += outside(paths.low[rows, k])
        for k in range(levels):
            slot = paths.top[rows, k]
            inner = (slot >= 0) & (plan.count[slot] > 1)  # nothing else is common to two leaves
            level += ~outside(slot) & inner[..., None]
        return steps, level

    def forward(self, tree: SignalTree | TreePlan, rows: Tensor) -> Tensor:
        """Scores ``[B, H, L, L]``."""
        steps, level = self.ways(tree, rows, self.levels)
        pair = steps * (self.levels + 2) + steps.transpose(1, 2)
        bias = self.way[:, pair] + self.level[:, level]  # [H, B, L, L]
        none = (rows < 0)[:, :, None] | (rows < 0)[:, None, :]
        return bias.masked_fill(none, 0).transpose(0, 1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(heads={self.heads}, levels={self.levels})"
