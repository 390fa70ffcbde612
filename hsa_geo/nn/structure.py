r"""What tells flat attention the hierarchy: features and positions of leaves by their paths.

To say that a hierarchical layer does better than flat attention because of *how* it uses the
hierarchy, the flat layer has to know the hierarchy as well.  Three modules tell it, each from the
path of a leaf to its root (:func:`~hsa_geo.nn.leaf_paths.leaf_paths`):

- :class:`StructureFeatures`, added to the features of the leaves: depth, places among siblings of
  the leaf and of its ancestors, numbers of siblings;
- :class:`PathPosition`, embeddings e whose products join the scores: two leaves are close if they
  have the same parent, grandparent, ... or the same place and depth;
- :class:`~hsa_geo.nn.AncestorBias`, a learned score for each way from one leaf to another (up to
  the lowest common ancestor, and down), the most that attention among leaves can be told.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.ancestor_bias import head_slopes
from hsa_geo.nn.checks import check_positive
from hsa_geo.nn.leaf_paths import leaf_paths
from hsa_geo.nn.position_modules import FourierPosition
from hsa_geo.ops.inputs import as_plan

__all__ = ["PathPosition", "StructureFeatures"]

#: Number of sets of orthonormal codes of nodes; nodes beyond all of them share those of others.
CODE_SETS = 64


class StructureFeatures(nn.Module):
    r"""Features that tell a leaf its depth and the path of places that leads to it.

    The sum of learned vectors: one for the depth, and for the leaf and each of its ``levels - 1``
    lowest ancestors one for its place among its siblings, counted from the first, and one for the
    number of siblings behind it; the same for its ``levels`` top ancestors.  Add it to the
    features of the leaves of any model.  The sum starts small, as learned embeddings of words do,
    which it would drown otherwise.

    Args:
        channels (int): Number of features.
        levels (int): Number of ancestors told from the leaf, and from the root. (default: ``4``)
        places (int): Places, numbers and depths of this and more are told as one.
            (default: ``16``)

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree`, a batch of them, or their plan
        - **output:** :math:`(N, C)`

    Raises:
        ShapeError: If a size is not positive.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> StructureFeatures(32)(tree).shape
        torch.Size([4, 32])
    """

    def __init__(self, channels: int, levels: int = 4, places: int = 16) -> None:
        super().__init__()
        check_positive(channels=channels, levels=levels, places=places)
        self.channels, self.levels, self.places = channels, levels, places
        self.table = nn.Embedding((1 + 4 * levels) * (places + 1), channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        nn.init.normal_(self.table.weight, std=0.02 * (1 + 4 * self.levels) ** -0.5)

    def fields(self, tree: SignalTree | TreePlan) -> Tensor:
        """What is told as numbers ``[N, 1 + 4 * levels]``, ``places`` where a path has ended."""
        paths, last = leaf_paths(tree, self.levels), self.places - 1
        out = [paths.depth[:, None].clamp_max(last)]
        for slot in (paths.low[:, : self.levels], paths.top):
            place, behind = paths.place[slot], (paths.size - 1 - paths.place)[slot]
            for value in (place, behind):
                out.append(value.clamp_max(last).masked_fill(slot < 0, self.places))
        return torch.cat(out, 1)

    def forward(self, tree: SignalTree | TreePlan) -> Tensor:
        """Features ``[N, C]`` of the leaves of a tree or batch."""
        fields = self.fields(tree)
        start = torch.arange(fields.size(1), device=fields.device) * (self.places + 1)
        return self.table(fields + start).sum(1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, levels={self.levels})"


class PathPosition(nn.Module):
    r"""Embeddings of leaves by their paths, for the ``position`` of :class:`~hsa_geo.nn.FlatConv`.

    The products :math:`e_i \cdot e_j` that join the scores are sums of

    .. math::
        \sum_{a, b} g_a g_b \, \langle c(\mathrm{anc}_a(i)), c(\mathrm{anc}_b(j)) \rangle
        \quad\text{and}\quad f(p_i) \cdot f(p_j)
        \quad\text{for the place } p \text{ among siblings, the depth and the reading order,}

    with f Fourier features and :math:`c` a code of a node.  The codes of the first ``P_id``
    branching nodes of a tree (from the root, level by level) are orthonormal, so that the first
    sum counts the ancestors that two leaves have in common, each with learned weights per head:
    those of the ``levels`` lowest and of the ``levels`` top ancestors.  The first head starts with
    4 for the same parent, the next with 2, and so on, the last with nothing.  Codes of further
    nodes are random, with products of :math:`\pm 1 / \sqrt{P_{id}}` with those that are not in
    the same set of ``P_id``.

    Args:
        channels (int): Number of features P, even and at least 8; three eighths are for place,
            depth and reading order, the rest (``P_id``) for codes. (default: ``64``)
        heads (int): Number of heads. (default: ``1``)
        levels (int): Number of ancestors from the leaf, and from the root. (default: ``4``)

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree`, a batch of them, or their plan
        - **output:** :math:`(N, H, P)`, a row per leaf

    Raises:
        ShapeError: If ``channels`` is odd or less than 8, or another size not positive.

    Example:
        >>> from hsa_geo.nn import FlatConv
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
        >>> FlatConv(16, 8, heads=2, position=PathPosition(32, heads=2))(tree.x, tree).shape
        torch.Size([4, 16])
    """

    codes: Tensor

    def __init__(self, channels: int = 64, heads: int = 1, levels: int = 4) -> None:
        super().__init__()
        check_positive(channels=channels, heads=heads, levels=levels)
        if channels < 8 or channels % 2:
            raise ShapeError(f"channels={channels} must be even and at least 8.")
        self.channels, self.heads, self.levels = channels, heads, levels
        each = max(channels // 8 // 2 * 2, 2)
        self.place = FourierPosition(1, each, heads, length=1.0)
        self.depth = FourierPosition(1, each, heads, length=1.0)
        self.order = FourierPosition(1, each, heads)
        code = channels - 3 * each
        self.register_buffer("codes", torch.empty(CODE_SETS, code, code), persistent=False)
        self.low_gain = nn.Parameter(torch.empty(heads, levels))
        self.top_gain = nn.Parameter(torch.empty(heads, levels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies anew, and set the weights, which fall from level to level."""
        for module in (self.place, self.depth, self.order):
            module.reset_parameters()
        # The same codes for every instance: they stand for identities.
        random = torch.randn(self.codes.shape, generator=torch.Generator().manual_seed(0))
        self.codes.copy_(torch.linalg.qr(random)[0])
        falling = 0.5 ** torch.arange(self.levels)
        gain = head_slopes(self.heads, 4.0).sqrt()[:, None] * falling
        with torch.no_grad():
            self.low_gain.copy_(gain)
            self.top_gain.copy_(gain / 4)

    def forward(self, tree: SignalTree | TreePlan) -> Tensor:
        """Embeddings ``[N, H, P]`` of the leaves of a tree or batch."""
        plan = as_plan(tree)
        paths = leaf_paths(plan, self.levels)
        codes = self.codes.flatten(0, 1)

        def coded(slot: Tensor, gain: Tensor) -> Tensor:  # [N, levels] -> [N, H, P_id]
            number = paths.number[slot].masked_fill(slot < 0, -1)
            code = codes[number % len(codes)].masked_fill((number < 0)[..., None], 0)
            return torch.einsum("nlp,hl->nhp", code, gain.to(code.dtype))

        same = coded(paths.low[:, 1:], self.low_gain) + coded(paths.top, self.top_gain)
        first = plan.leaf_start[: plan.num_trees]
        order = torch.empty_like(plan.leaf_order)
        order[plan.leaf_order] = torch.arange(plan.num_leaves, device=plan.device)
        order = order - first[plan.leaf_tree]
        parts = [(self.place, paths.place[paths.low[:, 0]]), (self.depth, paths.depth)]
        parts.append((self.order, order))
        waves = [module(value[:, None].to(torch.float32)) for module, value in parts]
        return torch.cat([same.to(waves[0].dtype), *waves], -1)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.channels}, heads={self.heads}, levels={self.levels})"
        )
