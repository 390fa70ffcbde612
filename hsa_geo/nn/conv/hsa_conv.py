"""HSAConv: hierarchical self-attention as a PyG message passing layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn.checks import check_share, check_tree_module, check_widths
from hsa_geo.ops.attention import attend, outputs
from hsa_geo.ops.dynamic import Solution
from hsa_geo.ops.edge import EdgePasses
from hsa_geo.ops.inputs import (
    BACKENDS,
    TIES,
    as_plan,
    check_dtype,
    check_features,
    dropout_mask,
    is_fused,
    is_number,
    refuse_transforms,
)
from hsa_geo.ops.key_tied import KeySolution
from hsa_geo.ops.packed import packed_plan, within_compile
from hsa_geo.ops.weights import weights_of

__all__ = ["VALUES", "HSAConv", "queries_keys_values"]

#: Number of projections by where the values come from.
VALUES = {"own": 3, "keys": 2}


class HSAConv(MessagePassing):
    r"""Hierarchical self-attention over the leaves of signal trees.

    From `"Hierarchical Self-Attention: Generalizing Neural Attention Mechanics to Multi-Scale
    Problems" <https://arxiv.org/abs/2509.15448>`_, Section 4:

    .. math::
        \mathbf{x}^{\prime}_i = u_i + c_i \mathbf{W}_v \mathbf{x}_i

    where :math:`u_i` gathers the mean values of the siblings of leaf *i* and of its ancestors,
    and :math:`c_i` is what remains for the leaf itself (:func:`~hsa_geo.ops.hsa_attention`).

    With ``backend="edge"`` the layer runs three message passing modules that it owns,
    ``passes.upward`` (children to parents), ``passes.sibling`` (softmax among siblings) and
    ``passes.downward`` (parents to children), or for ``tie="key"`` ``passes.reach`` (to each leaf
    from the siblings of itself and of its ancestors); other backends compute the same faster.

    Args:
        in_channels (int): Size of each leaf's features, or ``-1`` to infer it.
        out_channels (int): Size of each head's output.
        heads (int): Number of heads. (default: :obj:`1`)
        concat (bool): Concatenate the heads; otherwise average them. (default: :obj:`True`)
        dropout (float): Probability to drop a block of the attention matrix in training.
            (default: :obj:`0.0`)
        bias (bool): Add a learned bias to the output. (default: :obj:`True`)
        qk_norm (bool): LayerNorm of every head's query and key. (default: :obj:`False`)
        energy (str): ``"dot"`` or ``"l2"``. (default: ``"dot"``)
        scale (float, optional): Factor of q . k. (default: :math:`1/\sqrt{\text{out\_channels}}`)
        position (torch.nn.Module, optional): Maps a tree to embeddings of its nodes' positions
            ``[M, H or 1, P]``, e.g. :class:`~hsa_geo.nn.PositionEmbedding`.
            (default: :obj:`None`)
        backend (str): As in :func:`~hsa_geo.ops.hsa_attention`. (default: ``"auto"``)
        pair_bias (torch.nn.Module, optional): Maps a tree to biases of its ordered sibling pairs
            ``[pairs, H or 1]``, e.g. :class:`~hsa_geo.nn.OffsetBias`. (default: :obj:`None`)
        values (str): ``"own"``, a projection of their own, or ``"keys"``: the keys (after
            ``qk_norm``) are the values, as in the paper's derivation.  Before heads are joined
            the output is then :math:`\mathbf{q}_i - \sqrt{d} \, N \, \partial \phi(R) /
            \partial \mathbf{q}_i` of the energy ``"l2"``: a step down its gradient, with two
            thirds of the parameters. (default: ``"own"``)
        tie (str): ``"block"`` or ``"key"``, as in :func:`~hsa_geo.ops.hsa_attention`.
            (default: ``"block"``)

    Shapes:
        - **input:** leaf features :math:`(N, F_{in})`, and a tree, batch of trees or plan; or
          ``tree_index`` :math:`(2, M - 1)` and ``tree_level`` :math:`(M)`
        - **output:** :math:`(N, H \cdot F_{out})`, or :math:`(N, F_{out})` without ``concat``

    Raises:
        ShapeError: If ``x`` does not have a row per leaf, or an option is unknown.
        UnsupportedError: If ``tie`` is unknown.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
        >>> conv = HSAConv(16, 8, heads=2)
        >>> conv(tree.x, tree).shape
        torch.Size([4, 16])
        >>> conv(tree.x, tree.tree_index, tree.tree_level).shape
        torch.Size([4, 16])
        >>> out, weights = conv(tree.x, tree, return_attention_weights=True)
        >>> weights.pair.shape, weights.leaf.shape, weights.to_dense().shape
        (torch.Size([6, 2]), torch.Size([4, 2]), torch.Size([2, 4, 4]))
    """

    explain = False  # PyG's explainers would mask messages that do not mean edges of a graph

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        qk_norm: bool = False,
        energy: str = "dot",
        scale: float | None = None,
        position: nn.Module | None = None,
        backend: str = "auto",
        pair_bias: nn.Module | None = None,
        values: str = "own",
        tie: str = "block",
    ) -> None:
        super().__init__(aggr="sum", node_dim=0)
        check_widths(in_channels, out_channels, heads)
        if energy not in ("dot", "l2"):
            raise ShapeError(f"energy={energy!r} is unknown: use 'dot' or 'l2'.")
        if backend not in BACKENDS:
            raise ShapeError(f"backend={backend!r} is unknown: use one of {BACKENDS}.")
        check_share(dropout=dropout)
        check_tree_module("position", position)
        check_tree_module("pair_bias", pair_bias)
        if scale is not None and not (is_number(scale) and math.isfinite(scale)):
            raise ShapeError(f"scale={scale!r} is not a finite number: give one, or None.")
        if not isinstance(values, str) or values not in VALUES:
            raise ShapeError(f"values={values!r} is unknown: use 'own' or 'keys'.")
        if tie not in TIES:
            raise UnsupportedError(f"tie={tie!r} is unknown: use one of {TIES}.")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.energy = energy
        self.scale = scale
        self.backend = backend
        self.values = values
        self.tie = tie
        self.lin_qkv = Linear(in_channels, VALUES[values] * heads * out_channels, bias=False)
        self.norm_q = nn.LayerNorm(out_channels) if qk_norm else None
        self.norm_k = nn.LayerNorm(out_channels) if qk_norm else None
        self.position = position
        self.pair_bias = pair_bias
        self.passes = EdgePasses()
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        super().reset_parameters()
        self.lin_qkv.reset_parameters()
        for module in (self.norm_q, self.norm_k, self.position, self.pair_bias):
            reset(module)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        tree: SignalTree | TreePlan | Tensor,
        tree_level: Tensor | None = None,
        *,
        pos: Tensor | None = None,
        pair_bias: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Attend.

        Args:
            x: Leaf features ``[N, in_channels]``.
            tree: A tree, a batch of trees, a plan, or ``tree_index [2, M-1]``.
            tree_level: ``[M]``, only with ``tree_index``. (default: :obj:`None`)
            pos: Position embeddings ``[M, H or 1, P]``, instead of those of the layer's
                ``position`` module. (default: :obj:`None`)
            pair_bias: Bias per ordered sibling pair ``[pairs, H or 1]``, instead of that of the
                layer's ``pair_bias`` module. (default: :obj:`None`)
            return_attention_weights: Also return the
                :class:`~hsa_geo.ops.AttentionWeights`, after dropout. (default: :obj:`None`)

        Returns:
            Outputs ``[N, heads * out_channels]`` (or ``[N, out_channels]`` without ``concat``),
            or the pair of them and the weights.
        """
        plan, (q, k, v), options = self._attention(
            x, tree, tree_level, pos, pair_bias, bool(return_attention_weights)
        )
        mask = options["mask"]
        solution: Solution | KeySolution | None = None
        if return_attention_weights:
            solution = attend(q, k, v, plan, **options)
            out = solution.out
        else:
            out, _ = outputs(q, k, v, plan, **options)
        out = out.to(v.dtype)  # [N, H, D]
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.bias is not None:
            out = out + self.bias
        if solution is not None:
            return out, weights_of(solution, plan, mask)
        return out

    def mixing(
        self,
        x: Tensor,
        tree: SignalTree | TreePlan,
        *,
        pos: Tensor | None = None,
        pair_bias: Tensor | None = None,
    ) -> Callable[[Tensor], Tensor]:
        """The layer's attention at ``x`` as what it does to values: multiply them by Theta.

        Nothing of Theta is kept, so this takes no more memory than the layer itself; the gradient
        with respect to the values multiplies by the transposed Theta.

        Args:
            x: Leaf features ``[N, in_channels]``.
            tree: A tree, a batch of trees or a plan.
            pos: As in :meth:`forward`. (default: :obj:`None`)
            pair_bias: As in :meth:`forward`. (default: :obj:`None`)

        Returns:
            A function from ``[N, H, Dv]`` to ``[N, H, Dv]``, without dropout.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
            >>> conv = HSAConv(16, 8, heads=2)
            >>> theta = conv(tree.x, tree, return_attention_weights=True)[1].to_dense()
            >>> ones = torch.eye(4)[:, None].expand(-1, 2, -1)
            >>> torch.allclose(conv.mixing(tree.x, tree)(ones), theta.transpose(0, 1), atol=1e-6)
            True
        """
        plan, (q, k, _), options = self._attention(x, tree, None, pos, pair_bias, False)
        options["mask"] = None
        return lambda value: outputs(q, k, value, plan, **options)[0]

    def _attention(
        self,
        x: Tensor,
        tree: SignalTree | TreePlan | Tensor,
        tree_level: Tensor | None,
        pos: Tensor | None,
        pair_bias: Tensor | None,
        keep_weights: bool,
    ) -> tuple[TreePlan, tuple[Tensor, ...], dict[str, Any]]:
        """The plan, queries, keys and values, and the options of the attention."""
        refuse_transforms(x, self.lin_qkv.weight)
        fused = is_fused(self.backend, x) and not keep_weights and self.tie == "block"
        plan = _plan_of(tree, tree_level, x if fused else None)
        check_features(x, plan, self.lin_qkv.in_channels)
        check_dtype(x, self.lin_qkv.weight)
        if pos is None and self.position is not None:
            if not isinstance(tree, SignalTree):
                raise ShapeError(
                    f"tree is a {type(tree).__name__}, which holds no positions for the layer's "
                    "position module: give a SignalTree, or pos=."
                )
            pos = self.position(tree)
        if pair_bias is None and self.pair_bias is not None:
            if not isinstance(tree, SignalTree):
                raise ShapeError(
                    f"tree is a {type(tree).__name__}, which holds no positions for the layer's "
                    "pair_bias module: give a SignalTree, or pair_bias=."
                )
            pair_bias = self.pair_bias(tree)
        q, k, v = queries_keys_values(
            self.lin_qkv(x), self.values, self.heads, self.norm_q, self.norm_k
        )
        mask = dropout_mask(plan, self.heads, self.dropout if self.training else 0.0, q, self.tie)
        options: dict[str, Any] = {
            "mask": mask,
            "pos": pos,
            "bias": pair_bias,
            "backend": self.backend,
        }
        options |= {"energy": self.energy, "scale": self.scale, "tie": self.tie}
        if keep_weights and self.tie == "key":  # of which only messages keep weights
            options["backend"] = "edge"
        options["passes"] = self.passes if options["backend"] == "edge" else None
        return plan, (q, k, v), options

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"heads={self.heads}, energy='{self.energy}', backend='{self.backend}'"
            f"{'' if self.values == 'own' else ', values=' + repr(self.values)}"
            f"{'' if self.tie == 'block' else ', tie=' + repr(self.tie)})"
        )


def queries_keys_values(
    projected: Tensor,
    values: str,
    heads: int,
    norm_q: nn.Module | None,
    norm_k: nn.Module | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a layer from its one projection.

    Args:
        projected: ``[N, 3 * H * D]``, or ``[N, 2 * H * D]`` for ``values="keys"``.
        values: ``"own"`` or ``"keys"``.
        heads: Number of heads H.
        norm_q: Norm of the queries, if any.
        norm_k: Norm of the keys, if any.

    Returns:
        Three tensors ``[N, H, D]``; for ``values="keys"`` the values are the normed keys.

    Example:
        >>> q, k, v = queries_keys_values(torch.randn(5, 16), "keys", 2, None, None)
        >>> k.shape, k is v
        (torch.Size([5, 2, 4]), True)
    """
    parts = VALUES[values]
    q, k, *own = projected.view(-1, parts, heads, projected.size(1) // (parts * heads)).unbind(1)
    if norm_q is not None and norm_k is not None:
        q, k = norm_q(q), norm_k(k)
    return q, k, own[0] if own else k


def _plan_of(
    tree: SignalTree | TreePlan | Tensor, tree_level: Tensor | None, x: Tensor | None
) -> TreePlan:
    if isinstance(tree, Tensor):
        if tree_level is None:
            raise ShapeError(
                f"tree is a tensor of shape {list(tree.shape)} without tree_level: give a "
                "SignalTree, which hsa_geo.transforms.CommunityHierarchy() makes of a graph, or "
                "tree_index [2, M-1] and tree_level [M]."
            )
        if x is not None and within_compile(x):
            return cast(TreePlan, packed_plan(tree, tree_level, x.size(0)))
        return TreePlan.from_index(tree, tree_level)
    if tree_level is not None:
        raise ShapeError(f"tree_level goes with a tree_index tensor, not a {type(tree).__name__}.")
    return as_plan(tree, x)
