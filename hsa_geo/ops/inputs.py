"""What the public operations accept: checks of shapes, dtypes, options, and the plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data.kept import PackedPlan
from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.ops.packed import (
    num_pairs,
    packed_plan,
    tree_means,
    tree_shares,
    within_compile,
)

__all__ = [
    "BACKENDS",
    "TIES",
    "Dropout",
    "Inputs",
    "as_plan",
    "check_backend",
    "check_dtype",
    "check_features",
    "check_inputs",
    "dropout_mask",
    "is_fused",
    "is_number",
    "query_energy",
    "refuse_transforms",
]

#: Names accepted by ``backend=``; ``"auto"`` picks the fastest that supports the call.
BACKENDS = ("auto", "numba", "block", "edge")
#: Names accepted by ``tie=``.
TIES = ("block", "key")

Dropout = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Inputs:
    """Checked inputs in the dtype of the computation (float64, else float32).

    Attributes:
        query: ``[N, H, D]``.
        key: ``[N, H, D]``.
        value: ``[N, H, Dv]``.
        term: ``[N, H]``, added to every score of a key (its mean, at inner slots), or None.
        pos: ``[M, H, P]`` or None.
        bias: ``[P, H or 1]`` or None.
        reach_bias: ``[Q, H or 1]`` or None.
        plan: The plan.
        scale: Factor of q . k.
        l2: Whether the energy is "l2".
        tie: ``"block"`` or ``"key"``.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    term: Tensor | None
    pos: Tensor | None
    bias: Tensor | None
    plan: TreePlan
    scale: float
    l2: bool
    tie: str = "block"
    reach_bias: Tensor | None = None


def is_number(value: Any) -> bool:
    """Whether a value is a real number, of Python or of numpy, and no tensor."""
    return isinstance(value, Real)


def as_plan(tree: Any, x: Any = None) -> TreePlan:
    """The plan of a SignalTree, a batch of them, or a plan itself.

    Inside ``torch.compile`` a tree's plan is made within the graph, if ``x`` is given, a tensor
    with a row for every leaf (:class:`~hsa_geo.data.kept.PackedPlan`; it has what the ``"numba"``
    backend asks for).

    Raises:
        ShapeError: If ``tree`` is something else.
    """
    if isinstance(tree, SignalTree) and x is not None and within_compile(x):
        weight = tree.leaf_weight if "leaf_weight" in tree else None
        return cast(TreePlan, packed_plan(tree.tree_index, tree.tree_level, x.size(0), weight))
    if isinstance(tree, (TreePlan, PackedPlan)):
        return cast(TreePlan, tree)
    if isinstance(tree, SignalTree):
        return _plan_of_tree(tree) if torch.compiler.is_compiling() else tree.plan
    raise ShapeError(
        f"tree is a {type(tree).__name__}: give a SignalTree, a Batch of them, or a TreePlan."
    )


@torch.compiler.disable
def _plan_of_tree(tree: SignalTree) -> TreePlan:
    return tree.plan


def is_fused(backend: str, q: Any) -> bool:
    """Whether the compiled kernels serve a call with the queries ``q``."""
    if backend != "auto":
        return backend == "numba"
    return HAS_NUMBA and isinstance(q, Tensor) and q.device.type == "cpu"


def check_backend(backend: str, q: Any) -> None:
    """Check the name of a backend, and that it can compute where ``q`` is.

    Raises:
        ShapeError: If the name is unknown.
        UnsupportedError: If the backend is for the CPU alone and ``q`` is elsewhere.
    """
    if backend not in BACKENDS:
        raise ShapeError(f"backend={backend!r} is unknown: use one of {BACKENDS}.")
    if backend == "numba" and isinstance(q, Tensor) and q.device.type != "cpu":
        raise UnsupportedError(
            f"backend='numba' computes on the CPU but q is on {q.device}: use backend='auto'."
        )


def check_features(x: Tensor, plan: TreePlan, channels: int) -> None:
    """Check leaf features ``[N, channels]``; ``channels = -1`` takes any number.

    Raises:
        ShapeError: If ``x`` is no floating point tensor with a row for every leaf.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"x is of type {kind}: give a floating point tensor.")
    fits = x.dim() == 2 and x.size(0) == plan.num_leaves
    fits = fits and (channels == -1 or x.size(1) == channels)
    if not fits:
        width = "F" if channels == -1 else channels
        raise ShapeError(
            f"x has shape {list(x.shape)}: give [N, {width}] with a row for each of the "
            f"N={plan.num_leaves} leaves."
        )


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Check that features have the dtype of a layer's parameters, outside autocast.

    Raises:
        ShapeError: If they have another.
    """
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ShapeError(
            f"x has dtype {x.dtype} but the layer's parameters {weight.dtype}: convert the "
            f"features, x.to({weight.dtype}), or the layer."
        )


def check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    tree: Any,
    *,
    pos: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Dropout | None = None,
    energy: str = "dot",
    scale: float | None = None,
    tie: str = "block",
    causal: bool = False,
    backend: str = "auto",
    reach_bias: Tensor | None = None,
) -> Inputs:
    """Check the arguments of :func:`~hsa_geo.ops.hsa_attention` and bring them to one dtype."""
    refuse_transforms(
        q, k, v, pos, bias, reach_bias
    )  # first: a plan made within would be broken outside
    packed = tie == "block" and isinstance(q, Tensor) and is_fused(backend, q)
    plan = as_plan(tree, q if packed else None)
    if energy not in ("dot", "l2"):
        raise ShapeError(f"energy={energy!r} is unknown: use 'dot' or 'l2'.")
    check_backend(backend, q)
    if causal:
        raise UnsupportedError(
            "causal=True is not available: block tying would let a leaf see later ones; use "
            "causal=False."
        )
    if tie not in TIES:
        raise UnsupportedError(f"tie={tie!r} is unknown: use one of {TIES}.")

    if scale is not None and not (is_number(scale) and math.isfinite(scale)):
        raise ShapeError(
            f"scale={scale!r} is not a finite number: give one, and multiply q by factors to be "
            "learned."
        )

    n = plan.num_leaves
    given = {"q": q, "k": k} | ({} if v is None else {"v": v})
    extra = {"pos": pos, "bias": bias, "reach_bias": reach_bias}
    given |= {name: t for name, t in extra.items() if t is not None}
    for name, t in given.items():
        if not isinstance(t, Tensor):
            raise ShapeError(f"{name} is a {type(t).__name__}: give a tensor.")
        if not t.is_floating_point():
            raise ShapeError(f"{name} has dtype {t.dtype}: give a floating point tensor.")
        if t.layout is not torch.strided or t.is_nested:
            raise ShapeError(f"{name} has the layout {t.layout}: give a dense tensor.")
        if t.device != plan.device:
            raise ShapeError(f"{name} is on {t.device} but the tree on {plan.device}: move one.")
        if name in ("q", "k", "v") and (t.dim() != 3 or t.size(0) != n):
            raise ShapeError(
                f"{name} has shape {list(t.shape)}: give [N, H, D] with N={n}, the leaves of the "
                "tree."
            )
    if k.shape != q.shape:
        raise ShapeError(f"k has shape {list(k.shape)} but q {list(q.shape)}: make them equal.")
    heads = q.size(1)
    if v is not None and v.size(1) != heads:
        raise ShapeError(f"v has {v.size(1)} heads but q {heads}: make them equal.")
    m = 0 if pos is None else plan.num_nodes
    if pos is not None and (
        pos.dim() != 3 or pos.size(0) != m or not (pos.size(1) == 1 or pos.size(1) == heads)
    ):
        raise ShapeError(
            f"pos has shape {list(pos.shape)}: give [M, H or 1, P] with M={m} tree nodes and "
            f"H={heads}."
        )
    inside = isinstance(plan, PackedPlan)  # then the kernels check the number of pairs
    pairs = 0 if (bias is None and mask is None) or inside else plan.num_pairs
    if inside and bias is not None:
        pairs = bias.size(0)
    if bias is not None and (
        bias.dim() != 2 or bias.size(0) != pairs or not (bias.size(1) == 1 or bias.size(1) == heads)
    ):
        raise ShapeError(
            f"bias has shape {list(bias.shape)}: give [pairs, H or 1] with {pairs} ordered "
            f"sibling pairs and H={heads}."
        )
    if reach_bias is not None:
        _check_reach_bias(reach_bias, plan, heads, tie)
    if mask is not None and not all(isinstance(t, Tensor) for t in mask):
        raise ShapeError("mask holds something else than two tensors: give [pairs, H] and [N, H].")
    if mask is not None and not inside:
        shapes = [list(t.shape) for t in mask]
        if tie == "key":
            pairs = plan.reach_lists.num_pairs
        if shapes != [[pairs, heads], [n, heads]]:
            what = (
                "ordered sibling pairs" if tie == "block" else "pairs of a leaf and what it reaches"
            )
            raise ShapeError(
                f"mask has shapes {shapes}: give [pairs, H] and [N, H] with {pairs} {what}, N={n} "
                f"and H={heads}."
            )

    wide = any(t.dtype == torch.float64 for t in given.values())
    compute = torch.float64 if wide else torch.float32
    dim = max(q.size(2), 1)
    value = q.new_empty(n, heads, 0) if v is None else v
    query, key = q.to(compute), k.to(compute)
    if energy == "l2":  # only differences count: move the origin to where a tree's keys are
        origin = tree_means(key.detach(), plan)
        query, key = query - origin, key - origin
    scale = 1 / math.sqrt(dim) if scale is None else float(scale)
    return Inputs(
        query=query,
        key=key,
        value=value.to(compute),
        term=key.square().sum(-1) * (-scale / 2) if energy == "l2" else None,
        pos=None if pos is None else pos.to(compute).expand(m, heads, pos.size(2)),
        bias=None if bias is None else bias.to(compute),
        plan=plan,
        scale=scale,
        l2=energy == "l2",
        tie=tie,
        reach_bias=None if reach_bias is None else reach_bias.to(compute),
    )


def _check_reach_bias(bias: Tensor, plan: TreePlan, heads: int, tie: str) -> None:
    if tie != "key":
        raise UnsupportedError(
            f"reach_bias is given with tie={tie!r}, which has no pairs of a leaf and what it "
            "reaches: give bias, or tie='key'."
        )
    rows = plan.reach_lists.num_pairs
    if bias.dim() != 2 or bias.size(0) != rows or bias.size(1) not in (1, heads):
        raise ShapeError(
            f"reach_bias has shape {list(bias.shape)}: give [Q, H or 1] with {rows} pairs of a "
            f"leaf and what it reaches, and H={heads}."
        )


def refuse_transforms(*xs: Any) -> None:
    """UnsupportedError for the tensors of a ``torch.func`` transform."""
    if torch.compiler.is_compiling():
        return
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(isinstance(x, Tensor) and wrapped(x) for x in xs):
        raise UnsupportedError(
            "torch.func transforms (grad, vmap, jacrev, ...) do not go through the attention over "
            "a tree: use torch.autograd.grad, or torch.autograd.functional.jacobian with "
            "vectorize=True, and Batch for many trees at once."
        )


def query_energy(x: Inputs) -> Tensor:
    """``[B, H]``, mean of ``|q|^2 scale / 2`` over the leaves of each tree: under the l2 energy,
    what phi has from the queries alone."""
    tree, share, roots = tree_shares(x.plan, x.query)
    norm = x.query.square().sum(-1) * (x.scale / 2) * share.to(x.query.dtype)[:, None]
    return norm.new_zeros(roots, norm.size(1)).index_add(0, tree, norm)


def dropout_mask(
    plan: TreePlan, heads: int, p: float, like: Tensor, tie: str = "block"
) -> Dropout | None:
    """A random mask over the blocks of Theta.

    One entry per (ordered sibling pair, head) in public order and one per (leaf, head) for its
    own weight; kept entries are 1 / (1 - p), dropped ones 0.  ``p = 1`` gives zeros.  With the tie
    ``"key"`` blocks are narrower: one entry per (leaf, slot that it reaches, head).

    Args:
        plan: The plan.
        heads: Number of heads H.
        p: Probability to drop an entry, 0 to 1.
        like: Tensor whose dtype and device the mask takes.
        tie: As in :func:`~hsa_geo.ops.hsa_attention`. (default: ``"block"``)

    Returns:
        ``([P, H], [N, H])``, or ``([Q, H], [N, H])`` for ``tie="key"``, or None for ``p = 0``.

    Raises:
        ShapeError: If ``p`` is no number between 0 and 1.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([2, 2, -1]).plan
        >>> pairs, leaves = dropout_mask(plan, heads=1, p=1.0, like=torch.zeros(1))
        >>> pairs.tolist(), leaves.tolist()
        ([[0.0], [0.0]], [[0.0], [0.0]])
    """
    if not is_number(p) or not 0 <= p <= 1:
        raise ShapeError(f"dropout={p!r} is not a probability: give a number from 0 to 1.")
    if p == 0:
        return None
    compute = torch.float64 if like.dtype == torch.float64 else torch.float32

    def draw(rows: int) -> Tensor:
        ones = torch.ones(rows, heads, dtype=compute, device=like.device)
        return torch.nn.functional.dropout(ones, p, training=True)

    pairs = plan.reach_lists.num_pairs if tie == "key" else num_pairs(plan)
    return draw(pairs), draw(plan.num_leaves)
