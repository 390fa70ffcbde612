"""Between leaves and kept slots: sums over groups of leaves, and what they get back."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

import numpy as np
import torch
from call_cases import forest
from op_cases import error

from hsa_geo.data import TreePlan
from hsa_geo.data.kept import unpack_kept
from hsa_geo.ops.compiled.frame import rows, trees
from hsa_geo.ops.compiled.leaves import leaf_adjoint, leaf_finish, leaf_reduce, leaf_trees

H, DIM = 3, 5


class Bench:
    """A forest's groups of leaves, and tensors by row and by kept slot."""

    def __init__(self, seed: int) -> None:
        tree = forest(seed, count=6)
        self.plan = tree.plan
        leaves, kept = unpack_kept(self.plan.packed)
        self.groups, self.kept = trees(leaves, kept)
        self.count, self.slots = len(leaves.parent), len(kept.leaf)
        self.member = [leaves.row[a:b] for a, b in zip(leaves.ptr[:-1], leaves.ptr[1:])]
        self.parent = leaves.parent.tolist()
        self.generator = torch.Generator().manual_seed(seed)

    def leaves(self) -> torch.Tensor:
        return self.draw(self.plan.num_leaves, H, DIM)

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


benches = pytest.mark.parametrize("bench", [Bench(seed) for seed in (0, 3)], ids=["a", "b"])


@benches
@pytest.mark.parametrize("share", [True, False])
def test_reduce(bench, share):
    x = bench.leaves()
    out = torch.full((bench.slots, H, DIM), 7.0, dtype=torch.float64)
    leaf_reduce(rows(x), bench.groups, 0, bench.count, 0, H, out.numpy(), share)
    for row, parent in zip(bench.member, bench.parent):
        assert error(out[parent], x[row].mean(0) if share else x[row].sum(0)) < 1e-14
    others = sorted(set(range(bench.slots)) - set(bench.parent))
    assert (out[others] == 7).all()


@benches
def test_reduce_some_groups_and_heads(bench):
    x = bench.leaves()
    whole, out = (torch.full((bench.slots, H, DIM), 7.0, dtype=torch.float64) for _ in range(2))
    leaf_reduce(rows(x), bench.groups, 0, bench.count, 0, H, whole.numpy(), True)
    leaf_reduce(rows(x), bench.groups, 1, bench.count - 1, 1, 2, out.numpy(), True)
    here = bench.parent[1:-1]
    assert torch.equal(out[here, 1], whole[here, 1])
    out[here, 1] = 7
    assert (out == 7).all()


@benches
def test_finish(bench):
    """``c_A local + u_A``, in place, and nothing elsewhere."""
    local, u = bench.leaves(), bench.draw(bench.slots, H, DIM)
    c = bench.draw(bench.slots, H)
    result = local.clone()
    leaf_finish(bench.groups, 0, bench.count, c.numpy(), u.numpy(), rows(result))
    expected = local.clone()
    for row, parent in zip(bench.member, bench.parent):
        expected[row] = c[parent, :, None] * local[row] + u[parent]
    assert error(result, expected) < 1e-15


@benches
def test_adjoint(bench):
    """Of what finish computes: sums of G, and of G . (o - u), which is the gradient of log c."""
    grad, result, u = bench.leaves(), bench.leaves(), bench.draw(bench.slots, H, DIM)
    grad_u = torch.full((bench.slots, H, DIM), 7.0, dtype=torch.float64)
    below = torch.full((bench.slots, H), 7.0, dtype=torch.float64)
    leaf_adjoint(
        *(bench.groups, 0, bench.count, rows(grad), rows(result)),
        *(u.numpy(), grad_u.numpy(), below.numpy()),
    )
    for row, parent in zip(bench.member, bench.parent):
        assert error(grad_u[parent], grad[row].sum(0)) < 1e-14
        slope = (grad[row] * (result[row] - u[parent])).sum((0, 2))
        assert error(below[parent], slope) < 1e-13
    others = sorted(set(range(bench.slots)) - set(bench.parent))
    assert (grad_u[others] == 7).all()
    assert (below[others] == 7).all()


@benches
def test_gradients_may_be_expanded(bench):
    """As those of ``out.sum()`` are, one number for all elements."""
    grad = torch.ones(1, 1, DIM, dtype=torch.float64).expand(bench.plan.num_leaves, H, DIM)
    result, u = bench.leaves(), bench.draw(bench.slots, H, DIM)
    found = []
    for g in (grad, grad.contiguous()):
        grad_u, below = (
            torch.zeros(bench.slots, H, DIM).double(),
            torch.zeros(bench.slots, H).double(),
        )
        leaf_adjoint(
            *(bench.groups, 0, bench.count, rows(g), rows(result)),
            *(u.numpy(), grad_u.numpy(), below.numpy()),
        )
        found.append((grad_u, below))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("seed", range(7))
def test_trees_of_the_leaves(seed):
    plan = forest(seed, count=9, max_leaves=30).plan
    tree = np.full(plan.num_leaves, -1)
    leaf_trees(*trees(*unpack_kept(plan.packed)), tree)
    assert tree.tolist() == plan.leaf_tree.tolist()


def test_trees_of_no_leaves():
    plan = TreePlan.from_index(torch.zeros(2, 0).long(), torch.zeros(0).long())
    groups, kept = trees(*unpack_kept(plan.packed))
    leaf_trees(groups, kept, np.empty(0, np.int64))
    assert kept.trees == len(kept.leaf) == len(groups.row) == 0
