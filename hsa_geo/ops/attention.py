"""Public operations: hierarchical self-attention and its energy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.block import BlockPasses
from hsa_geo.ops.dynamic import Passes, Solution, solve
from hsa_geo.ops.edge import EdgePasses
from hsa_geo.ops.fused import fused_attention
from hsa_geo.ops.fused_key import fused_key_attention
from hsa_geo.ops.inputs import (
    Dropout,
    Inputs,
    check_inputs,
    dropout_mask,
    is_fused,
    is_number,
    query_energy,
)
from hsa_geo.ops.key_tied import KeySolution, key_input, solve_by_blocks, solve_by_edges

__all__ = ["attend", "hsa_attention", "outputs", "refuse_dropout", "tree_energy"]


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
    reach_bias: Tensor | None = None,
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
        reach_bias: For ``tie="key"``, added to the score of every leaf and every slot that it
            reaches, ``[Q, H or 1]``, in the order of ``TreePlan.reach``.
            (default: :obj:`None`)

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
    options["reach_bias"] = reach_bias
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
        **options: ``pos``, ``bias``, ``energy``, ``scale``, ``tie``, ``causal``, ``reach_bias``.

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
    refuse_dropout(options, "the energy is that of all pairs, so leave it out")
    return outputs(q, k, None, tree, energies=True, **options)[1]


def refuse_dropout(options: dict[str, Any], remedy: str) -> None:
    """UnsupportedError where options ask for dropout.

    Example:
        >>> refuse_dropout({"dropout": 0.0}, "leave it out")
    """
    for name in ("dropout", "mask"):
        value = options.get(name)
        if value is not None and not (is_number(value) and value == 0):
            raise UnsupportedError(f"{name}={options[name]} is not available here: {remedy}.")
