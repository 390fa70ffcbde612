"""FlatConv: ordinary softmax attention among all leaves of a tree, the baseline of HSAConv."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset
from torch_geometric.utils import to_dense_batch

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_share, check_tree_module, check_widths
from hsa_geo.nn.conv.hsa_conv import VALUES, queries_keys_values
from hsa_geo.ops.attention import hsa_attention
from hsa_geo.ops.inputs import as_plan, check_features, is_fused
from hsa_geo.ops.packed import tree_means

__all__ = ["FlatConv"]


class FlatConv(nn.Module):
    r"""Softmax attention among all leaves of each tree, blind to the hierarchy: :math:`O(N^2)`.

    With :class:`~hsa_geo.nn.HSAConv` it shares the input and output shapes, the arguments named
    below and, without positions, the parameters, so that one's ``state_dict`` fits the other; on
    trees of depth one both compute the same.  It has no ``scale`` or ``backend``, takes no ``pos``
    and returns no attention weights, its ``dropout`` drops single weights rather than blocks, and
    its positions and ``pair_bias`` are those of leaves.  On the CPU with numba it runs the kernels
    of HSA on trees of depth one, which pad nothing, but for dropout and ``pair_bias``; else trees
    of a batch are padded to the longest and masked.

    Args:
        in_channels (int): Size of each leaf's features, or ``-1`` to infer it.
        out_channels (int): Size of each head's output.
        heads (int): Number of heads. (default: :obj:`1`)
        concat (bool): Concatenate the heads; otherwise average them. (default: :obj:`True`)
        dropout (float): Probability to drop an attention weight in training.
            (default: :obj:`0.0`)
        bias (bool): Add a learned bias to the output. (default: :obj:`True`)
        position (torch.nn.Module, optional): Maps a tree to embeddings ``[N, H or 1, P]`` of its
            leaves, which score e . e more, e.g. :class:`~hsa_geo.nn.ReadingOrder`.
            (default: :obj:`None`)
        pair_bias (torch.nn.Module, optional): Maps a tree and rows of leaves ``[B, L]`` (one tree
            in a line, -1 for none) to what their scores rise by ``[B, H or 1, L, L]``, e.g.
            :class:`~hsa_geo.nn.AncestorBias`. (default: :obj:`None`)
        qk_norm (bool): LayerNorm of every head's query and key. (default: :obj:`False`)
        energy (str): ``"dot"`` or ``"l2"``. (default: ``"dot"``)
        values (str): ``"own"`` or ``"keys"``, as in HSAConv. (default: ``"own"``)

    Raises:
        ShapeError: If ``x`` does not have a row per leaf, or an option is unknown or out of range.

    Example:
        >>> from hsa_geo.nn import ReadingOrder
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
        >>> FlatConv(16, 8, heads=2, position=ReadingOrder(8, heads=2))(tree.x, tree).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        position: nn.Module | None = None,
        pair_bias: nn.Module | None = None,
        qk_norm: bool = False,
        energy: str = "dot",
        values: str = "own",
    ) -> None:
        super().__init__()
        check_widths(in_channels, out_channels, heads)
        check_share(dropout=dropout)
        check_tree_module("position", position)
        check_tree_module("pair_bias", pair_bias)
        if energy not in ("dot", "l2"):
            raise ShapeError(f"energy={energy!r} is unknown: use 'dot' or 'l2'.")
        if not isinstance(values, str) or values not in VALUES:
            raise ShapeError(f"values={values!r} is unknown: use 'own' or 'keys'.")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.heads, self.concat, self.dropout = heads, concat, dropout
        self.energy, self.values = energy, values
        self.lin_qkv = Linear(in_channels, VALUES[values] * heads * out_channels, bias=False)
        self.norm_q = nn.LayerNorm(out_channels) if qk_norm else None
        self.norm_k = nn.LayerNorm(out_channels) if qk_norm else None
        self.position = position
        self.pair_bias = pair_bias
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.lin_qkv.reset_parameters()
        for module in (self.norm_q, self.norm_k, self.position, self.pair_bias):
            reset(module)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, tree: SignalTree | TreePlan) -> Tensor:
        """Attend; ``[N, in_channels]`` to ``[N, heads * out_channels]``."""
        plan = as_plan(tree)
        check_features(x, plan, self.lin_qkv.in_channels)
        if plan.num_leaves == 0:
            out = self.lin_qkv(x)[:, : self.heads * self.out_channels]
            return out if self.concat else out[:, : self.out_channels]
        q, k, v = self._queries(x, tree, plan)
        out = self._mix(q, k, v, tree, plan).to(v.dtype)
        out = out.flatten(1) if self.concat else out.mean(1)
        return out if self.bias is None else out + self.bias

    def mixing(self, x: Tensor, tree: SignalTree | TreePlan) -> Callable[[Tensor], Tensor]:
        """The layer's attention at ``x`` as what it does to values: multiply them by Theta.

        Args:
            x: Leaf features ``[N, in_channels]``.
            tree: A tree, a batch of trees or a plan.

        Returns:
            A function from ``[N, H, Dv]`` to ``[N, H, Dv]``; in training with dropout.

        Example:
            >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 16))
            >>> values = torch.ones(4, 2, 3)
            >>> torch.allclose(FlatConv(16, 8, heads=2).mixing(tree.x, tree)(values), values)
            True
        """
        plan = as_plan(tree)
        check_features(x, plan, self.lin_qkv.in_channels)
        q, k, _ = self._queries(x, tree, plan)
        return lambda value: self._mix(q, k, value, tree, plan)

    def _queries(
        self, x: Tensor, tree: SignalTree | TreePlan, plan: TreePlan
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, extended by what joins their products, and values."""
        q, k, v = queries_keys_values(
            self.lin_qkv(x), self.values, self.heads, self.norm_q, self.norm_k
        )
        scale = self.out_channels**-0.5
        if self.energy == "l2":  # - |q - k|^2 / 2 = q . k - |k|^2 / 2 and what all keys share
            wide = torch.promote_types(k.dtype, torch.float32)
            q, k = q.to(wide), k.to(wide)
            origin = tree_means(k.detach(), plan)  # only differences count
            q, k = q - origin, k - origin
            norm = k.square().sum(-1, keepdim=True)
            q, k = torch.cat([q, torch.ones_like(norm)], -1), torch.cat([k, -norm / 2], -1)
        if self.position is not None:
            e = self.position(tree)
            if e.dim() != 3 or e.size(0) != q.size(0) or e.size(1) not in (1, self.heads):
                raise ShapeError(
                    f"the position module gives {list(e.shape)}: [{q.size(0)}, {self.heads} or 1, "
                    "P] is needed, a row for each leaf, as ReadingOrder gives."
                )
            e = e.expand(-1, self.heads, -1)
            q, k = torch.cat([q, e / scale], -1), torch.cat([k, e], -1)
        return q, k, v

    def _mix(
        self, q: Tensor, k: Tensor, v: Tensor, tree: SignalTree | TreePlan, plan: TreePlan
    ) -> Tensor:
        """Attention of values ``[N, H, Dv]``."""
        v = v.to(q.dtype)
        if self._is_fused(q):
            return hsa_attention(q, k, v, plan.flat, scale=self.out_channels**-0.5)
        return self._padded(q, k, v, tree, plan)

    def _is_fused(self, q: Tensor) -> bool:
        """Whether the kernels of hierarchical attention serve, on trees of depth one.

        They pad nothing, so short trees of many lengths take a fraction of the time.
        """
        drops = self.training and self.dropout > 0  # single weights, kernels drop none
        plain = self.pair_bias is None and not drops and not torch.compiler.is_compiling()
        return plain and q.dtype in (torch.float32, torch.float64) and is_fused("auto", q)

    def _padded(
        self, q: Tensor, k: Tensor, v: Tensor, tree: SignalTree | TreePlan, plan: TreePlan
    ) -> Tensor:
        """Attention of trees padded to the longest one, ``[N, H, Dv]``."""
        # Fused kernels want values as wide as keys: twice as fast, and no L x L scores in memory.
        width = v.size(-1)
        v = nn.functional.pad(v, (0, max(q.size(-1) - width, 0)))
        batch = plan.leaf_tree
        order = plan.leaf_order if bool((batch.diff() < 0).any()) else None  # tree by tree
        if order is not None:
            q, k, v, batch = (t.index_select(0, order) for t in (q, k, v, batch))

        def dense(t: Tensor) -> tuple[Any, Any]:  # [N, H, D] -> [B, H, L, D], [B, L]
            out, mask = to_dense_batch(t, batch, batch_size=plan.num_trees)
            return out.transpose(1, 2), mask

        (q, mask), (k, _), (v, _) = dense(q), dense(k), dense(v)
        shown = mask[:, None, None, :]
        if plan.leaf_weight is not None:  # w equal leaves: log w more
            weight = plan.leaf_weight if order is None else plan.leaf_weight[order]
            more, _ = to_dense_batch(weight.to(q.dtype).log(), batch, batch_size=plan.num_trees)
            shown = more[:, None, None, :].masked_fill(~shown, -torch.inf)
        if self.pair_bias is not None:
            rows = torch.arange(plan.num_leaves, device=q.device) if order is None else order
            lines, _ = to_dense_batch(rows, batch, fill_value=-1, batch_size=plan.num_trees)
            bias = self.pair_bias(tree, lines).to(q.dtype)  # [B, H or 1, L, L]
            if shown.dtype == torch.bool:
                shown = bias.masked_fill(~shown, -torch.inf)
            else:
                shown = bias + shown
        # Not in the half precision of autocast, in which |k|^2 would lose its digits.
        exact = self.energy == "l2"
        with torch.autocast(q.device.type, enabled=False) if exact else nullcontext():
            out = nn.functional.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=shown,
                dropout_p=self.dropout if self.training else 0.0,
                scale=self.out_channels**-0.5,
            )
        out = out.transpose(1, 2)[mask][..., :width]  # [N, H, D]
        return out if order is None else torch.empty_like(out).index_copy(0, order, out)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"heads={self.heads})"
        )
