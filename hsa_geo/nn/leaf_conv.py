"""LeafConv: a layer in which no leaf sees another, the baseline of all that mix them."""

from __future__ import annotations

from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.nn.projections import ThreeProjections
from hsa_geo.ops.inputs import as_plan, check_features

__all__ = ["LeafConv"]


class LeafConv(ThreeProjections):
    r"""A gated layer on every leaf by itself.

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i
        + \mathrm{GELU}(\mathbf{W}_2 \mathbf{x}_i) \odot \mathbf{W}_3 \mathbf{x}_i + \mathbf{b}

    Three projections, as many parameters as queries, keys and values of
    :class:`~hsa_geo.nn.HSAConv`: a model that does as well with this layer has no use for context.

    Args:
        in_channels (int): Size of each leaf's features, or ``-1`` to infer it.
        out_channels (int): Size of each head's output.
        heads (int): Multiplies ``out_channels``, as concatenated heads do.
            (default: :obj:`1`)
        bias (bool): Add a learned bias to the output. (default: :obj:`True`)

    Raises:
        ShapeError: If ``heads`` or ``out_channels`` is not positive.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
        >>> LeafConv(16, 8, heads=2)(tree.x, tree).shape
        torch.Size([4, 16])
    """

    def forward(self, x: Tensor, tree: SignalTree | TreePlan) -> Tensor:
        """``[N, in_channels]`` to ``[N, heads * out_channels]``."""
        check_features(x, as_plan(tree, x), self.lin.in_channels)
        own, gate, gated = self.project(x)
        out = own + nn.functional.gelu(gate) * gated
        return self.add_bias(out)
