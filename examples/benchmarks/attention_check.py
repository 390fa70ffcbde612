"""Whether all backends agree, outputs and gradients, on every shape that is measured."""

from __future__ import annotations

from typing import Any

import torch
from attention_limits import Limits
from attention_report import Table
from attention_rivals import CONTENDERS
from attention_shapes import SHAPES, Work, make_work
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from hsa_geo.ops import hsa_attention
from hsa_geo.ops.reference import reference_attention

#: Largest error over the largest number of what is compared.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}

#: Most leaves for the slow reference, which is dense.
DENSE = 700


def check(
    shapes: list[str], sizes: list[int] | None, options: dict[str, Any]
) -> tuple[Table, bool]:
    """Compare all backends with ``"edge"`` in float64.

    Args:
        shapes: Names of shapes.
        sizes: Numbers of leaves. (default: a small one for each shape)
        options: ``heads``, ``dim``, ``seed``, ``device`` of
            :func:`~attention_shapes.make_work`.

    Returns:
        A table with the largest errors, and whether all are small.
    """
    rows, good = [], True
    for shape in shapes:
        for leaves in sizes or [SHAPES[shape].tiny]:
            work = make_work(shape, leaves, dtype=torch.float64, **options)
            truth = solve(work, "edge")
            for dtype, tolerance in TOLERANCE.items():
                for name in ("numba", "block", "edge", "reference", "flat SDPA"):
                    why = _not_compared(work, name, dtype)
                    cells = [f"{shape}, {work.leaves} leaves", name, str(dtype)[6:]]
                    if why is None:
                        errors = compare(solve(work, name, dtype), truth)
                        fine = all(error <= tolerance for error in errors)  # False for nan
                        good &= fine
                        cells += [*(f"{error:.1e}" for error in errors), "ok" if fine else "WRONG"]
                    elif why:
                        cells += ["-", "-", why]
                    if why != "":
                        rows.append(cells)
    header = ["", "backend", "dtype", "error of output", "of gradients", ""]
    title = "largest error over largest number, against edge in float64"
    return Table(title, header, rows, []), good


def _not_compared(work: Work, name: str, dtype: torch.dtype) -> str | None:
    """A reason to print, ``""`` where there is nothing to say, or None."""
    if name == "reference":
        if dtype != torch.float64 or work.q.is_cuda:
            return ""
        return None if work.leaves <= DENSE else f"more than {DENSE} leaves"
    if name == "flat SDPA":  # is the same thing only for a tree of depth 1
        return None if work.shape == "wide" else ""
    if name == "edge" and dtype == torch.float64:
        return ""
    return CONTENDERS[name].skip(work, Limits())


def solve(work: Work, name: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Output, and gradients of q, k, v and positions, of a backend."""
    given = [x for x in (work.q, work.k, work.v, work.pos) if x is not None]
    given = [x.to(dtype).detach().requires_grad_() for x in given]
    q, k, v = given[:3]
    pos = given[3] if work.pos is not None else None
    if name == "reference":
        out = reference_attention(q, k, v, work.tree, pos=pos)
    elif name == "flat SDPA":
        out = scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)))
        out = out[0].transpose(0, 1)
    else:
        out = hsa_attention(q, k, v, work.plan, pos=pos, backend=name)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(out.shape, dtype=torch.float64, generator=generator).to(out)
    return [out.detach(), *torch.autograd.grad(out, given, weight)]


def compare(found: list[Tensor], truth: list[Tensor]) -> tuple[float, float]:
    """Errors of the output and of the gradients, each over the largest number of its tensor."""
    errors = [
        float((x.double() - y).abs().max() / y.abs().max().clamp(min=1e-30))
        for x, y in zip(found, truth, strict=True)
    ]
    return errors[0], max(errors[1:], key=lambda e: float("inf") if e != e else e)
