"""Public operations: hierarchical self-attention, its matrix, its weights and its energy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.block import BlockPasses
from hsa_geo.ops.dynamic import Passes, Solution, solve
from hsa_geo.ops.edge import EdgePasses, sibling_shares
from hsa_geo.ops.fused import fused_attention
from hsa_geo.ops.inputs import (
    Dropout,
    Inputs,
    as_plan,
    check_inputs,
    dropout_mask,
    is_fused,
    is_number,
    query_energy,
)
from hsa_geo.ops.segment import segment_expand

__all__ = [
    "AttentionWeights",
    "attend",
    "attention_matrix",
    "attention_weights",
    "hsa_attention",
    "tree_energy",
]


@dataclass(frozen=True)
class AttentionWeights:
    """The matrix Theta in compact form: one weight per ordered sibling pair and per leaf.

    Attributes:
        pair_nodes: ``[2, P]``, node ids of B and C of every ordered sibling pair.
        pair: ``[P, H]``, theta_ij of every leaf i under B and j under C (of each copy, where a
            leaf counts several times).
        leaf: ``[N, H]``, theta_ii of every leaf (of all its copies together).
        plan: The plan they belong to.

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

    def to_dense(self) -> Tensor:
        """Theta as ``[H, N, N]``; zero between leaves of different trees; copies of a leaf added.

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> tree = SignalTree.from_parents([2, 2, -1])
            >>> q = torch.zeros(2, 1, 4)
            >>> attention_weights(q, q, tree).to_dense().tolist()
            [[[0.5, 0.5], [0.5, 0.5]]]
        """
        return _dense(self.pair, self.leaf, self.plan)


def hsa_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tree: Any,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    energy: str = "dot",
    scale: float | None = None,
    tie: str = "block",
    causal: bool = False,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Tensor:
    r"""Hierarchical self-attention over the leaves of a tree or a batch of trees.

    Leaves of sibling subtrees share one weight; among all matrices of that form the result is
    the closest to softmax attention in KL divergence, found in :math:`O(M b^2)` (paper,
    Section 4 and Theorem 3.2).  On a tree of depth 1 it *is* softmax attention.

    Args:
        q: Queries ``[N, H, D]``, a row per leaf.
        k: Keys ``[N, H, D]``.
        v: Values ``[N, H, Dv]``.
        tree: A :class:`~hsa_geo.data.SignalTree`, a ``Batch`` of them, or a
            :class:`~hsa_geo.data.TreePlan`.
        pos: Embeddings e of the position of every tree node in its parent's domain,
            ``[M, H or 1, P]``; siblings B, C score e(B) . e(C) more. (default: :obj:`None`)
        bias: Added to the score of every ordered sibling pair, ``[pairs, H or 1]``, in the order
            of :attr:`TreePlan.pair_nodes <hsa_geo.data.TreePlan>`; -inf hides a pair, +inf and
            nan are not looked for and give nan. (default: :obj:`None`)
        energy: ``"dot"`` for q . k * scale, ``"l2"`` for -\|q - k\|^2 * scale / 2.
            (default: ``"dot"``)
        scale: Factor of q . k. (default: :math:`1/\sqrt{D}`)
        tie: ``"block"``; others are refused. (default: ``"block"``)
        causal: :obj:`False`; :obj:`True` is refused. (default: :obj:`False`)
        dropout: Probability to drop a block of Theta, drawn per ordered sibling pair and head
            and per leaf and head; kept ones are scaled by 1 / (1 - p). (default: ``0.0``)
        backend: ``"numba"`` (compiled kernels, on the CPU), ``"block"``
            (padded blocks, matrix products), ``"edge"`` (message passing, one message per pair),
            or ``"auto"``: the first of these that the machine has. (default: ``"auto"``)

    Returns:
        Outputs ``[N, H, Dv]`` in the dtype of ``v``.  Internals are float32 at least, under
        autocast too.

    Raises:
        ShapeError: If a shape, dtype, device or option does not fit.
        UnsupportedError: For ``causal=True`` or another ``tie``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> q, k, v = torch.randn(3, 4, 2, 8)
        >>> hsa_attention(q, k, v, tree).shape
        torch.Size([4, 2, 8])
    """
    if v is None:  # which the operations without values take
        raise ShapeError(f"v is a {type(v).__name__}: give a tensor [N, H, Dv].")
    options: dict[str, Any] = {"pos": pos, "bias": bias, "energy": energy, "scale": scale}
    options |= {"tie": tie, "causal": causal, "dropout": dropout, "backend": backend}
    return outputs(q, k, v, tree, **options)[0].to(v.dtype)


def outputs(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    tree: Any,
    *,
    mask: Dropout | None = None,
    dropout: float = 0.0,
    passes: Passes | None = None,
    backend: str = "auto",
    energies: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Outputs ``[N, H, Dv]`` and energies ``[B, H]`` of any backend.

    Takes the arguments of :func:`attend`; the energies are computed only if ``energies`` is true,
    and otherwise empty.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.zeros(2, 1, 4)
        >>> out, phi = outputs(q, q, q + 1, SignalTree.from_parents([2, 2, -1]), energies=True)
        >>> out.shape, phi.shape
        (torch.Size([2, 1, 4]), torch.Size([1, 1]))
    """
    if not is_fused(backend, q):
        given: dict[str, Any] = {
            "mask": mask,
            "dropout": dropout,
            "passes": passes,
            "backend": backend,
        }
        solution = attend(q, k, v, tree, **given, **options)
        return solution.out, solution.phi if energies else solution.phi[:0]
    x = check_inputs(q, k, v, tree, mask=mask, backend=backend, **options)
    mask = _mask_for(x, mask, dropout)
    with torch.autocast(device_type=q.device.type, enabled=False):
        out, phi = fused_attention(x, mask)
        if energies and x.l2:
            phi = phi + query_energy(x)
        return out, phi if energies else phi[:0]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    tree: Any,
    *,
    mask: Dropout | None = None,
    dropout: float = 0.0,
    passes: Passes | None = None,
    backend: str = "auto",
    **options: Any,
) -> Solution:
    """Everything the dynamic program finds; :func:`hsa_attention` returns its ``out``.

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        v: Values ``[N, H, Dv]``, or None where only weights or energies are wanted.
        tree: As in :func:`hsa_attention`.
        mask: A given dropout mask, see :func:`~hsa_geo.ops.inputs.dropout_mask`.
        dropout: Probability of a mask drawn here, if none is given. (default: ``0.0``)
        passes: The backend's modules, for layers that own them. (default: by ``backend``)
        backend: As in :func:`hsa_attention`.
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``tie``, ``causal``.

    Returns:
        The solution.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.zeros(2, 1, 4)
        >>> attend(q, q, q, SignalTree.from_parents([2, 2, -1])).own.tolist()
        [[0.5], [0.5]]
    """
    inputs = check_inputs(q, k, v, tree, mask=mask, backend=backend, **options)
    mask = _mask_for(inputs, mask, dropout)
    if passes is None:
        passes = _edge_passes() if backend == "edge" else BlockPasses()
    with torch.autocast(device_type=q.device.type, enabled=False):
        solution = solve(inputs, passes, mask)
        if inputs.l2:
            solution = replace(solution, phi=solution.phi + query_energy(inputs))
        return solution


def _mask_for(x: Inputs, mask: Dropout | None, dropout: float) -> Dropout | None:
    """The given mask in the dtype of the computation, or one drawn here."""
    if mask is None:
        return dropout_mask(x.plan, x.query.size(1), dropout, x.query)
    return mask[0].to(x.query.dtype), mask[1].to(x.query.dtype)


@cache
def _edge_passes() -> EdgePasses:
    return EdgePasses()


def attention_weights(
    q: Tensor, k: Tensor, tree: Any, *, mask: Dropout | None = None, **options: Any
) -> AttentionWeights:
    """Theta in compact form: one weight per ordered sibling pair and per leaf.

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        tree: As in :func:`hsa_attention`.
        mask: A given dropout mask, applied to the weights. (default: :obj:`None`)
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``backend`` of
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
    _refuse_dropout(options, "draw a mask with hsa_geo.ops.inputs.dropout_mask and give mask=")
    plan = as_plan(tree)
    return weights_of(attend(q, k, None, plan, mask=mask, **options), plan, mask)


def weights_of(solution: Solution, plan: TreePlan, mask: Dropout | None) -> AttentionWeights:
    """The weights of a solution: theta_ij = c_A a_BC / |C|."""
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
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``backend`` of
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


def tree_energy(q: Tensor, k: Tensor, tree: Any, **options: Any) -> Tensor:
    """The energy phi(R) of every root.

    ``N phi(R)`` plus the sum of the flat log-sum-exps is the KL divergence from hierarchical to
    flat attention (paper, Theorem 3.2).

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        tree: As in :func:`hsa_attention`.
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``backend`` of
            :func:`hsa_attention`.

    Returns:
        ``[B, H]`` in the dtype of ``q``, or float32 if that is narrower.

    Raises:
        ShapeError: If a shape, dtype, device or option does not fit.
        UnsupportedError: For ``dropout``, which the energy does not know.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> q = torch.zeros(2, 1, 4)
        >>> tree_energy(q, q, SignalTree.from_parents([2, 2, -1]))  # -log 2
        tensor([[-0.6931]])
    """
    _refuse_dropout(options, "the energy is that of all pairs, so leave it out")
    return outputs(q, k, None, tree, energies=True, **options)[1]


def _refuse_dropout(options: dict[str, Any], remedy: str) -> None:
    for name in ("dropout", "mask"):
        value = options.get(name)
        if value is not None and not (is_number(value) and value == 0):
            raise UnsupportedError(f"{name}={options[name]} is not available here: {remedy}.")


def _dense(pair: Tensor, leaf: Tensor, plan: TreePlan) -> Tensor:
    """Spread pair and leaf weights over leaf pairs: N (N - 1) of them, one sibling pair each."""
    n, pairs = plan.num_leaves, plan.pairs
    own = torch.diag_embed(leaf.t())  # [H, N, N]
    if plan.num_pairs == 0:
        return own
    rows, columns = plan.count[pairs.target], plan.count[pairs.source]
    area = rows * columns
    of = torch.repeat_interleave(area)  # sibling pair of each leaf pair
    place = torch.arange(len(of), device=plan.device) - (area.cumsum(0) - area)[of]
    i = plan.leaf_start[pairs.target][of] + place // columns[of]
    j = plan.leaf_start[pairs.source][of] + place % columns[of]
    public = torch.full((n, n), -1, device=plan.device)
    public[plan.leaf_order[i], plan.leaf_order[j]] = pairs.public[of]
    others = torch.where(public >= 0, pair[public.clamp(min=0)].permute(2, 0, 1), 0.0)
    if plan.leaf_weight is not None:
        others = others * plan.leaf_weight.to(pair.dtype)
    return own + others
