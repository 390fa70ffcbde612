"""Hierarchical attention by compiled kernels: the forward pass.

Three steps, with kernels that run on all threads:

1. Groups of leaves: ordinary attention; means and energy to their parents.
2. Kept slots (:mod:`hsa_geo.data.kept`): means up, attention among siblings, scalars up and down.
3. Leaves: ``o_i = c_A local_i + u_A`` under their parent A.

Groups of more than :data:`~hsa_geo.ops.compiled.frame.WIDE` members are left to
:mod:`hsa_geo.ops.wide`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor

from hsa_geo.ops.compiled.frame import Call, Frame, flat, rows
from hsa_geo.ops.compiled.groups import group_forward
from hsa_geo.ops.compiled.leaves import leaf_finish, leaf_reduce
from hsa_geo.ops.compiled.memory import empty
from hsa_geo.ops.compiled.recursion import means_up, scalars
from hsa_geo.ops.compiled.threads import run
from hsa_geo.ops.wide import wide_forward

__all__ = ["Saved", "forward"]


class Saved(NamedTuple):
    """What the backward pass needs of the forward pass; R kept slots.

    Attributes:
        result: ``[N, H, Dv]``, the outputs.
        leaf_lse: ``[N, H]``, log-sum-exps within groups of leaves.
        mean_q: ``[R, H, D]``.
        mean_k: ``[R, H, D]``.
        mean_v: ``[R, H, Dv]``.
        out: ``[R, H, Dv]``, outputs among siblings.
        u: ``[R, H, Dv]``, sums along the path from the root.
        scalars: ``[6, R, H]``: f, the log-sum-exp over the siblings, log Z, c, the weight of the
            siblings, and what is added to scores of a key.
    """

    result: Tensor
    leaf_lse: Tensor
    mean_q: Tensor
    mean_k: Tensor
    mean_v: Tensor
    out: Tensor
    u: Tensor
    scalars: Tensor


def forward(call: Call) -> tuple[Tensor, Saved]:
    """Run the forward pass.

    Args:
        call: The inputs.

    Returns:
        Energies of the roots ``[B, H]``, and what backward needs, the outputs among it.
    """
    x = Frame(call, "forward")
    new, slots, heads = partial(empty, call.q), x.slots, x.heads
    saved = Saved(
        result=new(*call.v.shape),
        leaf_lse=new(len(call.q), heads),
        mean_q=new(slots, heads, x.dim),
        mean_k=new(slots, heads, x.dim),
        mean_v=new(slots, heads, x.dim_v),
        out=new(slots, heads, x.dim_v),
        u=new(slots, heads, x.dim_v),
        scalars=new(6, slots, heads),
    )
    f, lse, z, c, leave, key_term = (part.numpy() for part in saved.scalars)
    u, mean_term = saved.u.numpy(), new(slots, heads).numpy()
    mean_q, mean_k, mean_v = saved.mean_q.numpy(), saved.mean_k.numpy(), saved.mean_v.numpy()
    result, kept_out = rows(saved.result), rows(saved.out)

    # Groups of leaves.
    reductions = [(x.q, mean_q), (x.k, mean_k), (x.v, mean_v)]
    reductions.append((rows(saved.leaf_lse[..., None]), f[..., None]))
    if call.term is not None:
        reductions.append((rows(call.term[..., None]), mean_term[..., None]))

    def leaf_work(g0: int, g1: int) -> None:
        tensors, lse = (x.q, x.k, x.v), flat(saved.leaf_lse)
        group_forward(*tensors, x.leaves, x.scores, g0, g1, 0, heads, result, lse)
        for leaves, means in reductions:
            leaf_reduce(leaves, x.leaves, g0, g1, 0, heads, means, True)

    for g in x.wide_leaves:
        row = x.members(g)
        saved.result[row], saved.leaf_lse[row] = wide_forward(x.wide_leaf_group(g))
    run(leaf_work, x.leaf_pieces)

    # Kept slots.
    scores = x.scores._replace(term=flat(saved.scalars[5]), diagonal=False)
    mean_rows = rows(saved.mean_q), rows(saved.mean_k), rows(saved.mean_v)

    def up(h0: int, h1: int) -> None:
        means_up(
            *(x.q, x.k, x.v, x.scores.term, x.pos, x.scores.scale, x.kept, h0, h1),
            *(mean_q, mean_k, mean_v, mean_term, key_term, f),
        )

    def solve(h0: int, h1: int) -> None:
        last = len(x.kept.parent)
        group_forward(
            *mean_rows, x.siblings, scores, 0, last, h0, h1, kept_out, flat(saved.scalars[1])
        )
        scalars(
            *(x.kept, x.v, x.scores.own_mask, h0, h1),
            *(f, lse, kept_out_array, z, c, leave, u, result),
        )

    def up_and_solve(h0: int, h1: int) -> None:
        up(h0, h1)
        solve(h0, h1)

    kept_out_array = saved.out.numpy()
    if x.wide_kept:
        run(up, x.head_pieces)
        for g in x.wide_kept:
            at = x.kept_range(g)
            saved.out[at], saved.scalars[1, at] = wide_forward(x.wide_kept_group(g, saved))
        run(solve, x.head_pieces)
    else:
        run(up_and_solve, x.head_pieces)

    # Leaves.
    run(lambda g0, g1: leaf_finish(x.leaves, g0, g1, c, u, result), x.leaf_pieces)
    x.done()
    return -saved.scalars[0, : x.kept.trees], saved
