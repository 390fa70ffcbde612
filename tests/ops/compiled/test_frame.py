"""A call as arrays: nothing is copied that need not be, and every piece of work is there once."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numba")

import numpy as np
import torch
from call_cases import forest, full_case, make_call
from op_cases import inputs_for

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.ops.compiled import frame
from hsa_geo.ops.compiled.attention import forward
from hsa_geo.ops.compiled.frame import Call, Frame, flat, rows
from hsa_geo.ops.compiled.gradient import backward
from hsa_geo.testing import random_tree

# Rows ############################################################################################


def shares_memory(x: torch.Tensor, array: np.ndarray) -> bool:
    low = x.untyped_storage().data_ptr()
    return low <= array.ctypes.data < low + max(x.untyped_storage().nbytes(), 1)


def test_rows_lie_where_the_tensor_does():
    qkv = torch.randn(6, 3, 2, 4, requires_grad=True)
    views = [
        *qkv.unbind(1),
        torch.randn(2, 6, 4).transpose(0, 1),
        torch.randn(6, 2, 9)[..., 2:6],
        torch.randn(12, 2, 4)[::2],
        torch.randn(1, 2, 4).expand(6, 2, 4),
        torch.randn(6, 1, 4).expand(6, 2, 4),
        torch.randn(2, 6).t()[..., None],  # a single channel is dense whatever its stride
    ]
    for x in views:
        r = rows(x)
        assert shares_memory(x, r.data)
        assert (r.row, r.head, r.dim) == (x.stride(0), x.stride(1), x.size(2))


def test_rows_are_copied_only_where_the_last_dimension_is_not_dense():
    for x in (torch.randn(6, 4, 2).transpose(1, 2), torch.randn(6, 2, 1).expand(6, 2, 4)):
        r = rows(x)
        assert not shares_memory(x, r.data)
        assert (r.row, r.head, r.dim) == (8, 4, 4)
        assert np.array_equal(r.data.reshape(6, 2, 4), x.numpy())


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_rows_of_nothing(shape):
    r = rows(torch.empty(shape))
    assert (len(r.data), r.row, r.head, r.dim) == (0, 0, 0, shape[2])


def test_flat_tensors():
    x = torch.randn(3, 4, requires_grad=True)
    assert shares_memory(x, flat(x))
    assert flat(x.t()).tolist() == x.t().flatten().tolist()


# Sizes ###########################################################################################


@pytest.mark.parametrize("name", ["q", "k", "v", "term", "pos", "bias", "mask", "own_mask"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_number_of_rows(name, change):
    """Kernels check no index, and inside torch.compile nobody else can."""
    call = make_call(full_case(random_tree(2, max_leaves=9, shape="mixed")))
    x = getattr(call, name)
    wrong = torch.zeros(len(x) + change, *x.shape[1:], dtype=x.dtype)
    with pytest.raises(ShapeError, match=rf"^{name} has shape .*so give {len(x)} rows"):
        Frame(replace(call, **{name: wrong}))
    Frame(call)


# Pieces ##########################################################################################


def covers(pieces: list[tuple[int, int]], count: int) -> bool:
    """Whether ranges in order are 0..count, none empty."""
    places = [place for piece in pieces for place in range(*piece)]
    return places == list(range(count)) and all(low < high for low, high in pieces)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("heads", [1, 2, 8])
def test_pieces_are_all_the_work_once(use_threads, threads, heads):
    use_threads(threads)
    rng = np.random.default_rng(0)
    for sizes in (
        [],
        [2],
        [3] * 7,
        [200] * 50,
        rng.integers(2, 60, 500),
        [1000, *[2] * 500, 1000],
        [255, 2, 2, 2, 250],
    ):
        ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        assert covers(frame._group_pieces(ptr, heads), len(sizes))
        assert covers(frame._head_pieces(ptr, heads), heads)
        assert len(frame._head_pieces(ptr, heads)) <= threads


def test_pieces_are_of_about_equal_work(use_threads):
    use_threads(2)
    size = np.random.default_rng(0).integers(2, 60, 4000)
    pieces = frame._group_pieces(np.concatenate([[0], np.cumsum(size)]), 8)
    assert len(pieces) == 8
    work = [(size[low:high] * (size[low:high] + 8)).sum() for low, high in pieces]
    assert max(work) < 1.1 * min(work)


def test_small_work_is_one_piece(use_threads):
    use_threads(16)
    ptr = np.arange(0, 41, 4)
    assert frame._group_pieces(ptr, 8) == [(0, 10)]
    assert frame._head_pieces(ptr, 8) == [(0, 8)]


def test_one_thread_gets_one_piece(use_threads):
    use_threads(1)
    ptr = np.arange(0, 100_001, 10)
    assert frame._group_pieces(ptr, 8) == [(0, 10_000)]
    assert frame._head_pieces(ptr, 8) == [(0, 8)]


@pytest.mark.parametrize("heads", [0, 1, 5])
def test_no_heads_and_no_groups(use_threads, heads):
    use_threads(2)
    assert frame._group_pieces(np.zeros(1, np.int64), heads) == []
    assert covers(frame._head_pieces(np.zeros(1, np.int64), heads), heads)


def test_the_first_pass_is_not_split(use_threads, monkeypatch):
    """Its kernels are still to be compiled, which an OpenMP thread may have no stack for."""
    use_threads(2)
    monkeypatch.setattr(frame, "_ready", set())
    tree = SignalTree.from_parents([*[1000 + i // 5 for i in range(1000)], *[1200] * 200, -1])
    call = make_call(full_case(tree))
    ready = []
    for name in ("forward", "forward", "backward", "forward"):
        x = Frame(call, name)
        ready.append((len(x.leaf_pieces) > 1, len(x.head_pieces) > 1))
        assert covers(x.leaf_pieces, 200)
        assert covers(x.head_pieces, 2)
        if len(ready) != 3:
            x.done()
    assert ready == [(False, False), (True, True), (False, False), (True, True)]
    single = {name: t.float() for name, t in (("q", call.q), ("k", call.k), ("v", call.v))}
    other = Call(*single.values(), call.packed, *[None] * 5, 0.5)
    assert len(Frame(other, "forward").leaf_pieces) == 1  # another dtype, other kernels
    assert len(Frame(other).leaf_pieces) > 1


# Wide groups #####################################################################################


def wide_tree() -> SignalTree:
    """Groups of leaves of sizes 4, 9 and 10, and a root above them and eight leaves."""
    parents = [*[31] * 4, *[32] * 9, *[33] * 10, *[34] * 8, 34, 34, 34, -1]
    return SignalTree.from_parents(parents)


def test_which_groups_are_wide(monkeypatch):
    call = make_call(full_case(wide_tree()))
    for limit, leaves, kept in [(10, 0, 1), (9, 1, 1), (8, 2, 1), (3, 3, 1), (11, 0, 0)]:
        monkeypatch.setattr(frame, "WIDE", limit)
        x = Frame(call)
        assert (len(x.wide_leaves), len(x.wide_kept)) == (leaves, kept)
        assert x.scores.wide == limit
        sizes = [len(x.members(g)) for g in x.wide_leaves]
        assert all(size > limit for size in sizes)
        for g in x.wide_kept:
            at = x.kept_range(g)
            assert at.stop - at.start == 11


@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_wide_groups_are_cut_out_with_everything_they_have(monkeypatch, energy):
    """Values and gradients of passes that leave every group to wide.py, or none."""
    case = full_case(wide_tree(), energy=energy)
    call = make_call(case)
    generator = torch.Generator().manual_seed(0)
    grad = torch.randn(call.v.shape, generator=generator, dtype=torch.float64)
    grad_phi = torch.randn(1, 2, generator=generator, dtype=torch.float64)

    def run(limit: int) -> list[torch.Tensor]:
        monkeypatch.setattr(frame, "WIDE", limit)
        phi, saved = forward(call)
        found = [phi, saved.result, *backward(call, saved, grad, grad_phi)]
        return [t for t in found if t is not None]

    for a, b in zip(run(1), run(256), strict=True):
        assert (a - b).abs().max() < 1e-12


def test_the_call_is_given_to_kernels_as_it_is():
    """No copy of q, k, v as a layer has them: views of one tensor."""
    tree = forest(0)
    tensors = inputs_for(tree, 2, 4, 4, pos=0, bias=0, seed=0)
    q, k, v = torch.stack(list(tensors.values()), 1).unbind(1)
    call = Call(q, k, v, tree.plan.packed, *[None] * 5, 0.5)
    x = Frame(call)
    assert all(shares_memory(t, r.data) for t, r in [(q, x.q), (k, x.k), (v, x.v)])
    assert (x.slots, x.heads, x.dim, x.dim_v) == (len(x.kept.leaf), 2, 4, 4)
