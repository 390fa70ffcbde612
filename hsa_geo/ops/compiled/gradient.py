"""Hierarchical attention by compiled kernels: the gradient.

The three steps of :mod:`~hsa_geo.ops.compiled.attention` backwards: sums over the leaves of each
group; the kept slots, scalars first; then the groups of leaves.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor

from hsa_geo.ops.compiled.attention import Saved
from hsa_geo.ops.compiled.frame import Call, Frame, check_saved, flat, rows
from hsa_geo.ops.compiled.groups import group_backward
from hsa_geo.ops.compiled.layout import Adjoints
from hsa_geo.ops.compiled.leaves import leaf_adjoint
from hsa_geo.ops.compiled.memory import empty
from hsa_geo.ops.compiled.recursion import means_down, scalars_backward
from hsa_geo.ops.compiled.threads import run
from hsa_geo.ops.wide import WideGroup, wide_backward

__all__ = ["Gradients", "backward"]


class Gradients(NamedTuple):
    """Gradients of a call's tensors; those of ``pos`` and ``bias`` for every head."""

    q: Tensor
    k: Tensor
    v: Tensor
    term: Tensor | None
    pos: Tensor | None
    bias: Tensor | None


def backward(call: Call, saved: Saved, grad: Tensor, grad_phi: Tensor) -> Gradients:
    """Gradients of the inputs.

    Args:
        call: The inputs.
        saved: From :func:`~hsa_geo.ops.compiled.attention.forward`, with ``save=True``.
        grad: ``[N, H, Dv]``, gradient of the outputs.
        grad_phi: ``[B, H]``, gradient of the energies.

    Returns:
        The gradients.
    """
    x = Frame(call, "backward")
    check_saved(x, saved, grad, grad_phi)
    new, slots, heads = partial(empty, call.q), x.slots, x.heads
    to = Gradients(
        q=new(*call.q.shape),
        k=new(*call.k.shape),
        v=new(*call.v.shape),
        term=None if call.term is None else new(*call.term.shape),
        pos=None if call.pos is None else call.q.new_zeros(call.pos.shape),
        bias=None if call.bias is None else new(len(call.bias), heads),
    )
    f, lse, _, c, leave, _ = (part.numpy() for part in saved.scalars)
    grad_u = new(slots, heads, x.dim_v)  # of u; and of the outputs among siblings, unweighted
    mean_q, mean_k = new(slots, heads, x.dim), new(slots, heads, x.dim)
    mean_v, mean_term = new(slots, heads, x.dim_v), new(slots, heads)
    below, delta, grad_f, grad_lse = new(4, slots, heads).unbind()
    grad_rows, result = rows(grad), rows(saved.result)
    flat_phi = grad_phi.contiguous().numpy()  # other strides would compile the kernel anew
    nothing = flat(new(0))
    to_bias, to_pos = (nothing if t is None else flat(t) for t in (to.bias, to.pos))

    def sum_leaves(g0: int, g1: int) -> None:
        leaf_adjoint(
            *(x.leaves, g0, g1, grad_rows, result),
            *(saved.u.numpy(), grad_u.numpy(), below.numpy()),
        )

    run(sum_leaves, x.leaf_pieces)

    # Kept slots.
    kept_scores = x.scores._replace(term=flat(saved.scalars[5]), diagonal=False)
    mean_rows = rows(saved.mean_q), rows(saved.mean_k), rows(saved.mean_v)
    kept_to = Adjoints(
        *(rows(grad_u), flat(saved.scalars[4]), flat(grad_lse)),
        *(rows(mean_q), rows(mean_k), rows(mean_v)),
        *(nothing, nothing, nothing, nothing),
        *(nothing if to.term is None else flat(mean_term), to_pos, to_bias),
    )

    def scalar_work(h0: int, h1: int) -> None:
        scalars_backward(
            *(x.kept, grad_rows, x.v, x.scores.own_mask, flat_phi, h0, h1),
            *(f, lse, saved.out.numpy(), c, leave, grad_u.numpy()),
            *(delta.numpy(), below.numpy(), grad_f.numpy(), grad_lse.numpy()),
        )

    def sibling_work(h0: int, h1: int) -> None:
        last = len(x.kept.parent)
        group_backward(
            *(*mean_rows, x.siblings, kept_scores, 0, last, h0, h1),
            *(flat(saved.scalars[1]), kept_to),
        )
        means_down(
            *(x.q, x.k, x.pos, x.scores.scale, x.scores.own_mask, x.kept, h0, h1),
            *(grad_rows, c, grad_f.numpy(), mean_q.numpy(), mean_k.numpy(), mean_v.numpy()),
            *(mean_term.numpy(), rows(to.q), rows(to.k), rows(to.v)),
            *(nothing if to.term is None else flat(to.term), to_pos),
        )

    def scalars_and_siblings(h0: int, h1: int) -> None:
        scalar_work(h0, h1)
        sibling_work(h0, h1)

    if x.wide_kept:
        run(scalar_work, x.head_pieces)
        for g in x.wide_kept:
            at = x.kept_range(g)
            part = wide_backward(
                *(x.wide_kept_group(g, saved), saved.scalars[1, at], grad_u[at]),
                *(saved.scalars[4, at], grad_lse[at]),
            )
            mean_q[at], mean_k[at], mean_v[at] = part.q, part.k, part.v
            mean_term[at] = part.term
            if to.pos is not None and part.top is not None:
                to.pos.index_add_(0, x.kept_index.top[at], part.top)
            _wide_bias(to, part.bias, x, int(x.siblings.pair[g]), at.stop - at.start)
        run(sibling_work, x.head_pieces)
    else:
        run(scalars_and_siblings, x.head_pieces)

    # Groups of leaves.
    leaf_to = Adjoints(
        *(grad_rows, flat(saved.scalars[3]), flat(grad_f)),
        *(rows(to.q), rows(to.k), rows(to.v)),
        *(flat(mean_q), flat(mean_k), flat(mean_v), flat(mean_term)),
        *(nothing if to.term is None else flat(to.term), to_pos, to_bias),
    )

    def leaf_work(g0: int, g1: int) -> None:
        tensors, lse = (x.q, x.k, x.v), flat(saved.leaf_lse)
        group_backward(*tensors, x.leaves, x.scores, g0, g1, 0, heads, lse, leaf_to)

    for g in x.wide_leaves:
        row, n, up = x.members(g), len(x.members(g)), int(x.leaves.parent[g])
        group: WideGroup = x.wide_leaf_group(g)
        weight, slope = saved.scalars[3, up], grad_f[up] / n
        part = wide_backward(
            *(group, saved.leaf_lse[row], grad[row], weight.expand(n, -1)),
            *(slope.expand(n, -1), _local(saved, row, up)),
        )
        to.q[row] = part.q + mean_q[up] / n
        to.k[row] = part.k + mean_k[up] / n
        to.v[row] = part.v + mean_v[up] / n
        if to.term is not None:
            to.term[row] = part.term + mean_term[up] / n
        if to.pos is not None and part.top is not None and part.own is not None:
            at = slice(int(x.leaves.ptr[g]), int(x.leaves.ptr[g + 1]))
            to.pos.index_add_(0, x.leaf_index.top[at], part.top)
            to.pos.index_add_(0, x.leaf_index.own[at], part.own)
        _wide_bias(to, part.bias, x, int(x.leaves.pair[g]), n)
    run(leaf_work, x.leaf_pieces)
    x.done()
    return to


def _local(saved: Saved, row: Tensor, up: int) -> Tensor | None:
    """Outputs within a group of leaves, ``(o - u_A) / c_A``, where that loses few digits."""
    c = saved.scalars[3, up]
    if bool((c < 1 / 16).any()):
        return None
    return (saved.result[row] - saved.u[up]) / c[:, None]


def _wide_bias(to: Gradients, part: Tensor | None, x: Frame, start: int, n: int) -> None:
    if to.bias is not None and part is not None:
        to.bias[x.pair_range(start, n)] = part
