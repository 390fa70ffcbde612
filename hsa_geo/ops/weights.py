"""The matrix Theta of an attention: in compact form, and dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.attention import attend, refuse_dropout
from hsa_geo.ops.dynamic import Solution
from hsa_geo.ops.edge import sibling_shares
from hsa_geo.ops.inputs import Dropout, as_plan, check_backend
from hsa_geo.ops.key_tied import KeySolution
from hsa_geo.ops.segment import segment_expand

__all__ = ["AttentionWeights", "attention_matrix", "attention_weights", "weights_of"]


@dataclass(frozen=True)
class AttentionWeights:
    """The matrix Theta in compact form: one weight per ordered sibling pair and per leaf.

    With ``tie="key"`` a pair is a leaf and a sibling of itself or of one of its ancestors.

    Attributes:
        pair_nodes: ``[2, P]``, node ids of B and C of every ordered sibling pair; for
            ``tie="key"`` ``[2, Q]``, those of the leaf and of C.
        pair: ``[P, H]``, theta_ij of every leaf i under B and j under C (of each copy, where a
            leaf counts several times); for ``tie="key"`` ``[Q, H]``.
        leaf: ``[N, H]``, theta_ii of every leaf (of all its copies together).
        plan: The plan they belong to.
        tie: ``"block"`` or ``"key"``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.zeros(2, 1, 4)
        >>> weights = attention_weights(q, q, SignalTree.from_parents([2, 2, -1]))
        >>> weights.pair_nodes.tolist(), weights.leaf.tolist()
        ([[0, 1], [1, 0]], [[0.5], [0.5]])
    """

    pair_nodes: Tensor
    pair: Tensor
    leaf: Tensor
    plan: TreePlan
    tie: str = "block"

    def to_dense(self) -> Tensor:
        """Theta as ``[H, N, N]``; zero between leaves of different trees; copies of a leaf added.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> tree = SignalTree.from_parents([2, 2, -1])
            >>> q = torch.zeros(2, 1, 4)
            >>> attention_weights(q, q, tree).to_dense().tolist()
            [[[0.5, 0.5], [0.5, 0.5]]]
        """
        return _dense(self)


def attention_weights(
    q: Tensor, k: Tensor, tree: Any, *, mask: Dropout | None = None, **options: Any
) -> AttentionWeights:
    """Theta in compact form: one weight per ordered sibling pair and per leaf.

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        tree: As in :func:`hsa_attention`.
        mask: A given dropout mask, applied to the weights. (default: :obj:`None`)
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``tie``, ``backend`` of
            :func:`hsa_attention`.

    Returns:
        The weights.

    Raises:
        ShapeError: If a shape, dtype, device or option does not fit.
        UnsupportedError: For ``dropout``: give ``mask``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.zeros(2, 1, 4)
        >>> attention_weights(q, q, SignalTree.from_parents([2, 2, -1])).pair.tolist()
        [[0.5], [0.5]]
    """
    refuse_dropout(options, "draw a mask with hsa_geo.ops.inputs.dropout_mask and give mask=")
    plan = as_plan(tree)
    if options.get("tie") == "key":  # of which only messages keep weights, so they are used
        check_backend(options.get("backend", "auto"), q)
        options["backend"] = "edge"
    return weights_of(attend(q, k, None, plan, mask=mask, **options), plan, mask)


def weights_of(
    solution: Solution | KeySolution, plan: TreePlan, mask: Dropout | None
) -> AttentionWeights:
    """The weights of a solution: theta_ij = c_A a_BC / |C|, or what leaf i gives to C, over |C|."""
    if isinstance(solution, KeySolution):
        reach = plan.reach
        pair = solution.share / plan.mass[reach.slot].to(solution.share.dtype)[:, None]
        pair = pair if mask is None else pair * mask[0]
        nodes = plan.slot_bottom[plan.row_slot[reach.row]], plan.slot_top[reach.slot]
        return AttentionWeights(torch.stack(nodes), pair, solution.own, plan, "key")
    pairs = plan.pairs
    share, _ = sibling_shares(solution.sibling, plan)
    leave = segment_expand(solution.leave, pairs.ptr, len(share))
    theta = share * leave / plan.mass[pairs.source].to(share.dtype)[:, None]
    pair = torch.empty_like(theta).index_copy(0, pairs.public, theta)
    if mask is not None:
        pair = pair * mask[0]
    return AttentionWeights(plan.pair_nodes, pair, solution.own, plan)


def attention_matrix(q: Tensor, k: Tensor, tree: Any, **options: Any) -> Tensor:
    """The implied attention matrix Theta, dense.

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        tree: As in :func:`hsa_attention`.
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``tie``, ``backend`` of
            :func:`hsa_attention`.

    Returns:
        ``[H, N, N]`` in the dtype of ``q``; rows sum to one, zero across the trees of a batch.

    Raises:
        ShapeError: If a shape, dtype, device or option does not fit.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.randn(4, 1, 8)
        >>> theta = attention_matrix(q, q, SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1]))
        >>> bool(theta[0, 0, 2] == theta[0, 1, 3])  # leaves of sibling subtrees share one weight
        True
    """
    return attention_weights(q, k, tree, **options).to_dense().to(q.dtype)


def _dense(weights: AttentionWeights) -> Tensor:
    """Spread pair and leaf weights over leaf pairs: N (N - 1) of them, one sibling pair each."""
    pair, plan = weights.pair, weights.plan
    n = plan.num_leaves
    own = torch.diag_embed(weights.leaf.t())  # [H, N, N]
    if plan.num_pairs == 0:
        return own
    if weights.tie == "key":
        reach = plan.reach
        target, source, order = plan.row_slot[reach.row], reach.slot, None
    else:
        target, source, order = plan.pairs.target, plan.pairs.source, plan.pairs.public
    rows, columns = plan.count[target], plan.count[source]
    area = rows * columns
    of = torch.repeat_interleave(area)  # sibling pair of each leaf pair
    place = torch.arange(len(of), device=plan.device) - (area.cumsum(0) - area)[of]
    i = plan.leaf_start[target][of] + place // columns[of]
    j = plan.leaf_start[source][of] + place % columns[of]
    public = torch.full((n, n), -1, device=plan.device)
    public[plan.leaf_order[i], plan.leaf_order[j]] = of if order is None else order[of]
    others = torch.where(public >= 0, pair[public.clamp(min=0)].permute(2, 0, 1), 0.0)
    if plan.leaf_weight is not None:
        others = others * plan.leaf_weight.to(pair.dtype)
    return own + others
