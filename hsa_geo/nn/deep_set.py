"""DeepSetConv: the attention-free baseline of HSAConv, pooling over all leaves of a tree."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.utils import scatter

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.nn.projections import ThreeProjections
from hsa_geo.nn.readout import subtree_mean
from hsa_geo.ops.inputs import as_plan, check_features

__all__ = ["DeepSetConv"]


class DeepSetConv(ThreeProjections):
    r"""Permutation-equivariant layer over the leaves of each tree (`"Deep Sets"
    <https://arxiv.org/abs/1703.06114>`_, Section 3).

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i
        + \mathbf{W}_2 \operatorname{mean}_j \mathbf{x}_j
        + \max_j \mathbf{W}_3 \mathbf{x}_j + \mathbf{b}

    Three projections, as many parameters as queries, keys and values of
    :class:`~hsa_geo.nn.HSAConv`.

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
        >>> DeepSetConv(16, 8, heads=2)(tree.x, tree).shape
        torch.Size([4, 16])
    """

    def forward(self, x: Tensor, tree: SignalTree | TreePlan) -> Tensor:
        """Pool; ``[N, in_channels]`` to ``[N, heads * out_channels]``."""
        plan = as_plan(tree)
        check_features(x, plan, self.lin.in_channels)
        own, mean, top = self.project(x)
        batch, size = plan.leaf_tree, plan.num_trees
        if plan.leaf_weight is None:
            mean = scatter(mean, batch, dim=0, dim_size=size, reduce="mean")
        else:
            mean = subtree_mean(mean, plan)
        top = scatter(top, batch, dim=0, dim_size=size, reduce="max")
        out = own + (mean + top).index_select(0, batch)
        return self.add_bias(out)
