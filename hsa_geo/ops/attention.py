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
from hsa_geo.ops.fused_key import fused_key_attention
from hsa_geo.ops.inputs import (
    Dropout,
    Inputs,
    as_plan,
    check_backend,
    check_inputs,
    dropout_mask,
    is_fused,
    is_number,
    query_energy,
)
from hsa_geo.ops.key_tied import KeySolution, key_input, solve_by_blocks, solve_by_edges
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
        tie: ``"block"``: all leaves under B share their weights on all leaves under a sibling C,
            in O(M b^2); or ``"key"``: every leaf has its own weight on all leaves under C, in
            O(N b log N), never further from softmax attention, and with an energy
            :math:`-\tfrac{1}{N} \sum_i \log Z_i`. (default: ``"block"``)
        causal: :obj:`False`; :obj:`True` is refused. (default: :obj:`False`)
        dropout: Probability to drop a block of Theta, drawn per ordered sibling pair (for
            ``tie="key"`` per leaf and C) and head, and per leaf and head; kept ones are scaled by
            1 / (1 - p). (default: ``0.0``)
        backend: ``"numba"`` (compiled kernels, on the CPU), ``"block"``
            (padded blocks, matrix products), ``"edge"`` (message passing, one message per pair),
            or ``"auto"``: the first of these that the machine has. (default: ``"auto"``)

    Returns:
        Outputs ``[N, H, Dv]`` in the dtype of ``v``.  Internals are float32 at least, under
        autocast too.

    Raises:
        ShapeError: If a shape, dtype, device or option does not fit.
        UnsupportedError: For ``causal=True`` or an unknown ``tie``.

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
        fused = fused_key_attention if x.tie == "key" else fused_attention
        out, phi = fused(x, mask)
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
) -> Solution | KeySolution:
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
    with torch.autocast(device_type=q.device.type, enabled=False):
        solution: Solution | KeySolution
        if inputs.tie == "key":
            solution = _solve_key(inputs, mask, passes, backend)
        else:
            if passes is None:
                passes = _edge_passes() if backend == "edge" else BlockPasses()
            solution = solve(inputs, passes, mask)
        if inputs.l2:
            solution = replace(solution, phi=solution.phi + query_energy(inputs))
        return solution


def _solve_key(x: Inputs, mask: Dropout | None, passes: Passes | None, backend: str) -> KeySolution:
    """Key-tied attention by a backend."""
    if backend != "edge":
        return solve_by_blocks(key_input(x, mask), x.plan)
    passes = passes if isinstance(passes, EdgePasses) else _edge_passes()
    return solve_by_edges(key_input(x, mask), x.plan, passes.reach)


def _mask_for(x: Inputs, mask: Dropout | None, dropout: float) -> Dropout | None:
    """The given mask in the dtype of the computation, or one drawn here."""
    if mask is None:
        return dropout_mask(x.plan, x.query.size(1), dropout, x.query, x.tie)
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
    _refuse_dropout(options, "draw a mask with hsa_geo.ops.inputs.dropout_mask and give mask=")
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


def tree_energy(q: Tensor, k: Tensor, tree: Any, **options: Any) -> Tensor:
    """The energy phi(R) of every root.

    ``N phi(R)`` plus the sum of the flat log-sum-exps is the KL divergence from hierarchical to
    flat attention (paper, Theorem 3.2).

    Args:
        q: Queries ``[N, H, D]``.
        k: Keys ``[N, H, D]``.
        tree: As in :func:`hsa_attention`.
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``tie``, ``backend`` of
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
