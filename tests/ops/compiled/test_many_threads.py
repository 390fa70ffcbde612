"""The compiled passes on one thread and on several give the same numbers."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

import torch
from call_cases import full_case, run
from op_cases import Case, error, inputs_for

from hsa_geo.data import SignalTree
from hsa_geo.ops.compiled import frame


def large_cases() -> dict[str, Case]:
    """Trees with work for several pieces, and wide groups of both kinds."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(2, 40, (120,), generator=generator).tolist()
    n, parents, base = sum(sizes), [], sum(sizes)
    for i, size in enumerate(sizes):
        parents += [base + i] * size
    parents += [base + len(sizes) + i // 20 for i in range(len(sizes))]
    parents += [base + len(sizes) + 6] * 6 + [-1]
    document = SignalTree.from_parents(parents)
    assert document.num_nodes == n
    wide_leaves = SignalTree.from_parents([700] * 700 + [-1])
    wide_kept = SignalTree.from_parents([*[i // 2 + 600 for i in range(600)], *[900] * 300, -1])
    out = {}
    for name, tree in [("document", document), ("leaves", wide_leaves), ("kept", wide_kept)]:
        out[name] = Case(tree, inputs_for(tree, 4, 8, 8, pos=0, bias=0, seed=0))
        out[name + " l2"] = Case(tree, out[name].tensors, energy="l2")
        tensors = inputs_for(tree, 4, 8, 8, pos=4, bias=0, seed=0)
        out[name + " with positions"] = Case(tree, tensors)
    for name, tree in [("document", document)]:
        out[name + " with everything"] = full_case(tree)
    return out


LARGE = large_cases()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LARGE)
def test_threads_change_no_bit(use_threads, dtype, name):
    """And neither does another run with as many; in wide groups only the latter holds."""
    case = LARGE[name].to(dtype)
    pieces, results = [], []
    for number in (1, 2, 3, 2):
        use_threads(number)
        heads = case.tensors["q"].size(1)
        leaves = frame._group_pieces(
            frame.trees(*frame.unpack_kept(case.tree.plan.packed))[0].ptr, heads
        )
        pieces.append(len(leaves))
        results.append(run(case))
    if name.startswith("document"):
        assert pieces[0] == 1
        assert min(pieces[1:]) > 1
    # Wide groups are computed by torch, whose products may round otherwise with other threads.
    for result in results[1:]:
        for key, value in results[0].items():
            if name.startswith("document"):
                assert torch.equal(result[key], value), key
            else:
                assert error(result[key], value) < (1e-5 if dtype == torch.float32 else 1e-13), key
    for key, value in results[1].items():
        assert torch.equal(results[3][key], value), key
