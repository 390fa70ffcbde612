r"""Readouts beyond the mean over leaves: from leaf features to trees or any subtrees.

All take leaf features ``[N, C]``, a tree or batch, and ids of nodes ``[K]`` (the root of every
tree by default), and give ``[K, C]``:

- ``"mean"``, :class:`~hsa_geo.nn.SubtreeReadout`: every leaf counts alike;
- ``"root"``, :class:`HierarchicalReadout`: every child of a node counts alike;
- ``"attention"``, :class:`AttentionReadout`: leaves count by a learned score;
- ``"query"``, :class:`QueryReadout`: learned queries attend to the leaves.

A leaf with a ``leaf_weight`` w counts as w equal siblings in each of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_multiple, check_positive
from hsa_geo.nn.readout import SubtreeReadout, check_readout, weighted_sum
from hsa_geo.ops.packed import leaves_under

__all__ = [
    "READOUTS",
    "AttentionReadout",
    "HierarchicalReadout",
    "QueryReadout",
    "attend_leaves",
    "hierarchical_mean",
    "make_readout",
]

#: Names of readouts, for :func:`make_readout`.
READOUTS = ("mean", "root", "attention", "query")


def make_readout(name: str, channels: int, heads: int = 1) -> nn.Module:
    """A readout by its name.

    Args:
        name: ``"mean"``, ``"root"``, ``"attention"`` or ``"query"``.
        channels: Width of the leaf features.
        heads: Number of heads, where the readout has some. (default: ``1``)

    Returns:
        The module.

    Raises:
        ShapeError: If there is none of this name.

    Example:
        >>> make_readout("attention", 8, heads=2)
        AttentionReadout(8, heads=2)
    """
    if name == "mean":
        return SubtreeReadout()
    if name == "root":
        return HierarchicalReadout()
    if name == "attention":
        return AttentionReadout(channels, heads)
    if name == "query":
        return QueryReadout(channels, heads)
    raise ShapeError(f"readout={name!r} is unknown: use one of {READOUTS}.")


def hierarchical_mean(
    x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None
) -> Tensor:
    r"""What reaches a node if every node is the mean of its children.

    .. math::
        \mathbf{h}_i = \mathbf{x}_i \text{ at leaves}, \qquad
        \mathbf{h}_A = \frac{1}{|chd(A)|} \sum_{B \in chd(A)} \mathbf{h}_B

    A paragraph of one sentence then counts as much as one of twenty.  A leaf of weight w counts as
    w children.

    Args:
        x: Leaf features ``[N, ...]``.
        tree: A tree, a batch of trees, or a plan.
        nodes: Ids of tree nodes ``[K]``. (default: the root of every tree)

    Returns:
        ``[K, ...]``, or ``[B, ...]`` by default, in the dtype of ``x`` (integers: float32).

    Raises:
        ShapeError: If ``x`` is no tensor with a row per leaf or ``nodes`` holds no node ids.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 4, 4, -1])  # two leaves under 3, one beside it
        >>> hierarchical_mean(torch.tensor([[1.0], [3.0], [8.0]]), tree).tolist()
        [[5.0]]
    """
    plan = check_readout(x, tree, nodes)
    return weighted_sum(x, *leaves_under(plan, nodes, equal_children=True))


class HierarchicalReadout(nn.Module):
    """:func:`hierarchical_mean` as a module.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 4, 4, -1])
        >>> HierarchicalReadout()(torch.tensor([[1.0], [3.0], [8.0]]), tree).tolist()
        [[5.0]]
    """

    def forward(
        self, x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None
    ) -> Tensor:
        """Hierarchical mean over the leaves under each node, ``[K, ...]``; roots by default."""
        return hierarchical_mean(x, tree, nodes)


class AttentionReadout(nn.Module):
    r"""Mean of leaves by a learned score (`"Attention-based Deep Multiple Instance Learning"
    <https://arxiv.org/abs/1802.04712>`_, with a linear score).

    .. math::
        \mathbf{h}_A = \sum_{i \in A} \mathrm{softmax}_{i \in A}(\mathbf{w} \cdot \mathbf{x}_i) \,
        \mathbf{x}_i

    Every head scores the leaves for its own share of the channels.  It starts as the mean.

    Args:
        channels (int): Width C of the leaf features, a multiple of ``heads``.
        heads (int): Number of heads. (default: :obj:`1`)

    Shapes:
        - **input:** :math:`(N, C)`, a tree, batch or plan, and ids of nodes :math:`(K)`
        - **output:** :math:`(K, C)`

    Raises:
        ShapeError: If a size does not fit.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> AttentionReadout(8)(torch.randn(4, 8), tree, torch.tensor([4, 6])).shape
        torch.Size([2, 8])
    """

    def __init__(self, channels: int, heads: int = 1) -> None:
        super().__init__()
        check_multiple(channels, heads)
        self.channels, self.heads = channels, heads
        self.lin = nn.Linear(channels, heads, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Score all leaves alike."""
        nn.init.zeros_(self.lin.weight)

    def forward(
        self, x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None
    ) -> Tensor:
        """Pool the leaves under each node, ``[K, C]``; roots by default."""
        plan = _check_features(x, tree, nodes, self.channels)
        value = x.reshape(-1, self.heads, self.channels // self.heads)
        return attend_leaves(self.scores(x), value, plan, nodes).flatten(1)

    def scores(self, x: Tensor) -> Tensor:
        """Scores ``[N, H]`` of the leaves ``[N, C]``."""
        return self.lin(x)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, heads={self.heads})"


class QueryReadout(nn.Module):
    r"""Learned queries attend to the leaves, as in pooling by multi-head attention (`"Set
    Transformer" <https://arxiv.org/abs/1810.00825>`_, Section 3.2).

    .. math::
        \mathbf{h}_A = \mathbf{W}_o \, \big\Vert_{s, h} \sum_{i \in A} \mathrm{softmax}_{i \in A}
        \big( \mathbf{q}_{sh} \cdot \mathbf{W}_k^h \mathbf{x}_i / \sqrt{D} \big) \,
        \mathbf{W}_v^h \mathbf{x}_i + \mathbf{b}

    Args:
        channels (int): Width C of the leaf features, a multiple of ``heads``.
        heads (int): Number of heads. (default: :obj:`4`)
        num_queries (int): Number of queries s. (default: :obj:`1`)

    Shapes:
        - **input:** :math:`(N, C)`, a tree, batch or plan, and ids of nodes :math:`(K)`
        - **output:** :math:`(K, C)`

    Raises:
        ShapeError: If a size does not fit.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> QueryReadout(8, heads=2)(torch.randn(4, 8), tree).shape
        torch.Size([1, 8])
    """

    def __init__(self, channels: int, heads: int = 4, num_queries: int = 1) -> None:
        super().__init__()
        check_multiple(channels, heads)
        check_positive(num_queries=num_queries)
        self.channels, self.heads, self.num_queries = channels, heads, num_queries
        self.query = nn.Parameter(torch.empty(num_queries, heads, channels // heads))
        self.lin_kv = nn.Linear(channels, 2 * channels, bias=False)
        self.lin_out = nn.Linear(num_queries * channels, channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        nn.init.normal_(self.query)
        self.lin_kv.reset_parameters()
        self.lin_out.reset_parameters()

    def forward(
        self, x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None = None
    ) -> Tensor:
        """Pool the leaves under each node, ``[K, C]``; roots by default."""
        plan = _check_features(x, tree, nodes, self.channels)
        key, value = self._keys_values(x)
        value = value[:, None].expand(-1, self.num_queries, -1, -1)
        score = self._scores(key)  # [N, s H]
        out = attend_leaves(score, value.flatten(1, 2), plan, nodes)  # [K, s H, D]
        return self.lin_out(out.flatten(1))

    def scores(self, x: Tensor) -> Tensor:
        """Scores ``[N, s H]`` of the leaves ``[N, C]``."""
        return self._scores(self._keys_values(x)[0])

    def _keys_values(self, x: Tensor) -> tuple[Tensor, ...]:
        """``[N, H, D]`` each."""
        return self.lin_kv(x).view(-1, 2, self.heads, self.channels // self.heads).unbind(1)

    def _scores(self, key: Tensor) -> Tensor:
        score = (key[:, None] * self.query * key.size(-1) ** -0.5).sum(-1)  # [N, s, H]
        return score.flatten(1)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.channels}, heads={self.heads}, "
            f"num_queries={self.num_queries})"
        )


def attend_leaves(
    score: Tensor, value: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None
) -> Tensor:
    """Values of the leaves under each node, weighted by the softmax of their scores.

    Args:
        score: ``[N, H]``.
        value: ``[N, H, D]``.
        tree: A tree, a batch of trees, or a plan.
        nodes: Ids of tree nodes ``[K]``, or None for the root of every tree.

    Returns:
        ``[K, H, D]``.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> attend_leaves(torch.zeros(2, 1), torch.tensor([[[1.0]], [[3.0]]]), tree, None).tolist()
        [[[2.0]]]
    """
    of, row, share, k = leaves_under(tree, nodes)
    wide = torch.promote_types(value.dtype, torch.float32)
    # The share is the leaf's weight over what all leaves of the node have in common.
    score = score.index_select(0, row).to(wide) + share.to(wide).log()[:, None]  # [T, H]
    top = score.new_full((k, score.size(1)), -torch.inf)
    top = top.scatter_reduce(0, of[:, None].expand_as(score), score.detach(), "amax")
    theta = (score - top.index_select(0, of)).exp()
    total = theta.new_zeros(k, theta.size(1)).index_add(0, of, theta)
    weighted = theta[:, :, None] * value.index_select(0, row).to(wide)  # [T, H, D]
    out = weighted.new_zeros((k, *value.shape[1:])).index_add(0, of, weighted)
    return (out / total[:, :, None]).to(value.dtype)


def _check_features(
    x: Tensor, tree: SignalTree | TreePlan, nodes: Tensor | None, channels: int
) -> SignalTree | TreePlan:
    plan = check_readout(x, tree, nodes)
    if x.dim() != 2 or x.size(1) != channels or not x.is_floating_point():
        raise ShapeError(
            f"x has shape {list(x.shape)} and dtype {x.dtype}: give floating point [N, {channels}]."
        )
    return plan
