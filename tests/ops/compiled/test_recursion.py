"""The dynamic program over the kept slots: what its numbers are, by the oracle and Theta."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

import numpy as np
import torch
from call_cases import forest, full_case, make_call, slot_nodes
from op_cases import Case, chain, comb, error
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.ops.compiled.attention import Saved, forward
from hsa_geo.ops.compiled.frame import Frame, flat, rows
from hsa_geo.ops.compiled.recursion import means_down, means_up
from hsa_geo.ops.reference import reference_matrix, reference_phi
from hsa_geo.testing import SHAPES, random_tree

CASES = [full_case(random_tree(i, shape=shape), seed=i) for i, shape in enumerate(SHAPES)]
CASES += [full_case(forest(seed), seed=seed) for seed in (0, 4)]
CASES += [full_case(SignalTree.from_parents(parents)) for parents in (comb(40), chain(3))]
cases = pytest.mark.parametrize("case", CASES)


def solve(case: Case) -> tuple[Tensor, Saved]:
    """The pass without a mask, which phi, w and c do not know."""
    return forward(make_call(full_case(case.tree, mask=False, energy="dot")))


def options(case: Case) -> dict:
    return full_case(case.tree, mask=False, energy="dot").tensors | {"scale": 0.7}


@cases
def test_f_is_minus_the_energy_of_every_slot(case):
    nodes, _ = slot_nodes(case.tree)
    given = options(case)
    del given["v"]
    phi, saved = solve(case)
    expected = reference_phi(tree=case.tree, **given)[nodes]
    assert error(saved.scalars[0], -expected) < 1e-12
    trees = case.tree.plan.num_trees
    assert torch.equal(phi, -saved.scalars[0, :trees])


@cases
def test_means_are_those_of_the_leaves(case):
    _, under = slot_nodes(case.tree)
    mean = under / under.sum(1, keepdim=True)
    given, (_, saved) = options(case), solve(case)
    for name in ("q", "k", "v"):
        expected = torch.einsum("rn,nhd->rhd", mean, given[name])
        assert error(getattr(saved, f"mean_{name}"), expected) < 1e-13


@cases
def test_c_and_the_weight_of_siblings_are_sums_of_theta(case):
    """c_B is what the leaves under B spend on one another, and the rest of c_A on B's siblings."""
    _, under = slot_nodes(case.tree)
    given = options(case)
    value = given.pop("v")
    theta = reference_matrix(tree=case.tree, **given)  # [H, N, N]
    _, saved = solve(case)
    first = under.argmax(1)  # a leaf under each slot: all of them spend the same
    inside = torch.einsum("hrn,rn->rh", theta[:, first], under)
    assert error(saved.scalars[3], inside) < 1e-12
    parent = np.full(len(under), -1)
    frame = Frame(make_call(case))
    for g, above in enumerate(frame.kept.parent):
        parent[frame.kept.ptr[g] : frame.kept.ptr[g + 1]] = above
    kids = torch.from_numpy(np.flatnonzero(parent >= 0))
    leave = inside[parent[kids]] - inside[kids]
    assert error(saved.scalars[4, kids], leave) < 1e-12
    assert (saved.scalars[4, : case.tree.plan.num_trees] == 0).all()
    outside = torch.einsum("hrn,rn,nhd->rhd", theta[:, first], 1 - under, value)
    assert error(saved.u, outside) < 1e-12


def means(
    frame: Frame, case: Case, given: dict[str, Tensor], h0: int, h1: int
) -> dict[str, Tensor]:
    """means_up, with what groups of leaves have left at their parents in ``given``."""
    slots, heads = frame.slots, frame.heads
    out = {name: given[name].clone() for name in ("q", "k", "v", "term")}
    key_term, f = torch.zeros(2, slots, heads, dtype=torch.float64)
    means_up(
        *(frame.q, frame.k, frame.v, frame.scores.term, frame.pos, frame.scores.scale),
        *(frame.kept, h0, h1),
        *(out[name].numpy() for name in ("q", "k", "v", "term")),
        *(key_term.numpy(), f.numpy()),
    )
    return out


@cases
def test_means_down_is_the_transpose_of_means_up(case):
    """<A x, y> = <x, A' y>, where x are kept leaves and parents of groups of leaves."""
    call = make_call(case)
    frame = Frame(call)
    generator = torch.Generator().manual_seed(0)
    slots, heads = frame.slots, frame.heads
    dims = {"q": frame.dim, "k": frame.dim, "v": frame.dim_v}

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    above = {name: draw(slots, heads, dim) for name, dim in dims.items()} | {
        "term": draw(slots, heads)
    }
    y = {name: draw(*t.shape) for name, t in above.items()}
    up = means(frame, case, above, 0, heads)

    to = {name: torch.zeros_like(getattr(call, name)) for name in (*dims, "term")}
    down = {name: t.clone() for name, t in y.items()}
    zero, no_pos = torch.zeros(slots, heads, dtype=torch.float64), torch.zeros(0).double()
    trees = frame.kept.trees
    means_down(
        *(frame.q, frame.k, frame.pos, frame.scores.scale, frame.scores.own_mask, frame.kept),
        *(0, heads, rows(torch.zeros_like(call.v)), zero.numpy(), zero.numpy()),
        *(down[name].numpy() for name in ("q", "k", "v", "term")),
        *(rows(to[name]) for name in ("q", "k", "v")),
        *(flat(to["term"]), flat(no_pos)),
    )
    leaf = torch.from_numpy(frame.kept.leaf)
    parents = frame.leaf_index.parent
    for name in (*dims, "term"):
        assert (down[name][:trees] == 0).all()  # of roots, whose mean nobody attends to
        forward_ = (up[name] * y[name])[trees:].sum()
        back = (getattr(call, name) * to[name]).sum()
        below = parents[parents >= trees]
        back = back + (above[name] * down[name])[below].sum()
        assert abs(float(forward_ - back)) < 1e-10 * max(1, abs(float(forward_))), name
        other = torch.ones(len(to[name]), dtype=torch.bool)
        other[leaf[leaf >= 0]] = False
        assert (to[name][other] == 0).all()


@cases
def test_heads_are_independent(case):
    """Some heads at a time give the same bits as all at once, and touch no others."""
    call = make_call(case)
    frame = Frame(call)
    generator = torch.Generator().manual_seed(0)
    dims = {"q": (frame.dim,), "k": (frame.dim,), "v": (frame.dim_v,), "term": ()}
    above = {
        name: torch.randn(frame.slots, frame.heads, *dim, generator=generator, dtype=torch.float64)
        for name, dim in dims.items()
    }
    whole, part = means(frame, case, above, 0, 2), means(frame, case, above, 1, 2)
    for name in dims:
        assert torch.equal(part[name][:, 1], whole[name][:, 1])
        assert torch.equal(part[name][:, 0], above[name][:, 0])
