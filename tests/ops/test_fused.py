"""The operator around the compiled kernels: registration, derivatives, what it is called with."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from op_cases import draw_mask, error, inputs_for
from torch.utils.checkpoint import checkpoint

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError
from hsa_geo.ops import fused, hsa_attention, inputs
from hsa_geo.ops.attention import outputs
from hsa_geo.ops.fused import _attention, _attention_backward
from hsa_geo.ops.reference import reference_attention, reference_energy
from hsa_geo.testing import SHAPES, random_qkv, random_tree

pytest.importorskip("numba")


def operands(seed: int, extras: bool) -> list:
    """Arguments of the operator."""
    tree = random_tree(seed, max_leaves=12, shape=SHAPES[seed % len(SHAPES)])
    given = inputs_for(tree, 2, 3, 2, pos=2 * extras, bias=1 * extras, seed=seed)
    mask = draw_mask(tree.plan, 2, 0.3, seed) if extras else (None, None)
    n = tree.num_leaves
    term = torch.randn(n, 2, dtype=torch.float64) if extras else None
    tensors = [given["q"], given["k"], given["v"], tree.plan.packed, term]
    tensors += [given.get("pos"), given.get("bias"), *mask]
    for t in tensors:
        if t is not None and t.is_floating_point():
            t.requires_grad_(t is not mask[0] and t is not mask[1])
    return [*tensors, 0.7]


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("seed", [1, 3, 6])
def test_operators_are_registered_well(seed, extras):
    args = operands(seed, extras)
    # Not "test_aot_dispatch_dynamic", which would compare what nobody reads: rows of roots.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(_attention, tuple(args), test_utils=checks)
    args = [a.detach() if torch.is_tensor(a) else a for a in args]
    phi, *saved = _attention(*args)
    given = (*args, saved, torch.randn_like(saved[0]), torch.randn_like(phi))
    torch.library.opcheck(_attention_backward, given)


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("seed", range(7))
def test_operator_and_function_are_the_same(seed, extras, monkeypatch):
    """What torch.compile sees, and what runs without it: outputs and gradients."""
    tree = random_tree(seed, shape=SHAPES[seed % len(SHAPES)])
    tensors = inputs_for(tree, 2, 3, 2, pos=extras, bias=extras, seed=seed)
    mask = draw_mask(tree.plan, 2, 0.3, seed) if extras else None
    results = []
    for compiling in (False, True):
        leaf = {name: t.clone().requires_grad_() for name, t in tensors.items()}
        if compiling:
            monkeypatch.setattr(fused.torch.compiler, "is_compiling", lambda: True)
        found = outputs(tree=tree.plan, mask=mask, backend="numba", energies=True, **leaf)
        monkeypatch.undo()
        loss = found[0].square().sum() + found[1].square().sum()
        grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
        results.append([*found, *(torch.zeros(1) if g is None else g for g in grads)])
    for a, b in zip(*results):
        assert torch.equal(a.detach(), b.detach())


def test_only_the_energy_or_only_the_output_has_a_gradient():
    tree = random_tree(3, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))
    for index in (0, 1):
        mine, other = (
            outputs(q, k, v, tree, backend=b, energies=True)[index].square().sum()
            for b in ("numba", "block")
        )
        for a, b in zip(*(torch.autograd.grad(x, (q, k)) for x in (mine, other))):
            assert error(a, b) < 1e-12


@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_second_derivatives_under_a_dropout_mask(energy):
    """The gradient of a gradient norm, of outputs and energies, against the oracle."""
    for seed in range(7):
        tree = random_tree(seed, shape=SHAPES[seed])
        tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=1, seed=seed)
        mask = draw_mask(tree.plan, 2, 0.4, seed)
        results = []
        for oracle in (False, True):
            leaf = {name: t.clone().requires_grad_() for name, t in tensors.items()}
            scored = {name: t for name, t in leaf.items() if name != "v"}
            if oracle:
                out = reference_attention(tree=tree, mask=mask, energy=energy, **leaf)
                phi = reference_energy(tree=tree, energy=energy, **scored)
            else:
                options = {"mask": mask, "energy": energy, "backend": "numba", "energies": True}
                out, phi = outputs(tree=tree, **leaf, **options)
            loss = out.square().sum() + phi.square().sum()
            options = {"create_graph": True, "allow_unused": True}
            first = torch.autograd.grad(loss, list(leaf.values()), **options)
            norm = sum(g.square().sum() for g in first if g is not None)
            second = torch.autograd.grad(norm, list(leaf.values()), allow_unused=True)
            grads = [*first, *second]
            results.append([torch.zeros(1) if g is None or not g.numel() else g for g in grads])
        for a, b in zip(*results):
            a, b = torch.broadcast_tensors(a.detach(), b.detach())
            assert error(a, b) < 1e-10, seed


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    tree = random_tree(5, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))

    def attend(*tensors):
        return hsa_attention(*tensors, tree, backend="numba")

    plain = torch.autograd.grad(attend(q, k, v).square().sum(), (q, k, v))
    out = checkpoint(attend, q, k, v, use_reentrant=reentrant)
    out.square().sum().backward()
    for grad, tensor in zip(plain, (q, k, v)):
        assert torch.equal(grad, tensor.grad)


def test_an_output_changed_in_place_is_noticed():
    """The gradient is computed from the output."""
    tree = random_tree(5, shape="mixed")
    q, k, v = (t.requires_grad_() for t in random_qkv(tree))
    out = hsa_attention(q, k, v, tree, backend="numba")
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_strides_do_not_matter():
    tree = random_tree(8, max_leaves=40, shape="mixed")
    n = tree.num_leaves
    packed = torch.randn(n, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    turned = torch.randn(4, 2, n, dtype=torch.float64)
    cases = [
        packed.unbind(1),
        [turned.permute(2, 1, 0)] * 3,
        [torch.randn(1, 1, 4, dtype=torch.float64).expand(n, 2, 4)] * 3,
        [torch.randn(n, 2, 8, dtype=torch.float64)[..., ::2]] * 3,
    ]
    for q, k, v in cases:
        out = hsa_attention(q, k, v, tree, backend="numba")
        dense = hsa_attention(*(t.contiguous() for t in (q, k, v)), tree, backend="numba")
        assert torch.equal(out, dense)
    q, k, v = cases[0]
    (actual,) = torch.autograd.grad(hsa_attention(q, k, v, tree, backend="numba").sum(), packed)
    q, k, v = packed.unbind(1)
    (expected,) = torch.autograd.grad(hsa_attention(q, k, v, tree, backend="block").sum(), packed)
    assert error(actual, expected) < 1e-12


def test_two_callers_at_once():
    """Outputs and gradients, 20 rounds each, of trees with work for several threads."""
    parts = [SignalTree.from_parents(windows(n, 20)) for n in (4000, 3000)]
    tensors = [random_qkv(tree, heads=4, seed=i) for i, tree in enumerate(parts)]

    def once(i: int, backend: str) -> list[torch.Tensor]:
        leaf = [t.clone().requires_grad_() for t in tensors[i]]
        out = hsa_attention(*leaf, parts[i], backend=backend)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaf)]

    expected = [once(i, "block") for i in (0, 1)]
    wrong: list[float] = []

    def work(i: int) -> None:
        torch.set_num_threads(2)  # which counts for this thread
        for _ in range(20):
            wrong.append(max(error(a, b) for a, b in zip(once(i, "numba"), expected[i])))

    callers = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(wrong) == 40
    assert max(wrong) < 1e-11


def windows(count: int, size: int) -> list[int]:
    """Parents of leaves in windows, these in windows, and so on."""
    parents, base = [], 0
    while count > 1:
        base += count
        parents += [base + i // size for i in range(count)]
        count = -(-count // size)
    return [*parents, -1]


def test_workers_of_a_data_loader():
    """Forked after the parent has run kernels on its threads: they must not wait for these."""
    code = """
import torch
from torch.utils.data import DataLoader
from hsa_geo.data import SignalTree
from hsa_geo.ops import hsa_attention
from hsa_geo.testing import random_qkv

torch.set_num_threads(2)
tree = SignalTree.from_parents([2000 + i // 20 for i in range(2000)] + [2100] * 100 + [-1])
q, k, v = random_qkv(tree, heads=4, requires_grad=True)

def attend(number):
    if number >= 0:
        torch.set_num_threads(2)  # more than a loader gives its workers
    out = hsa_attention(q, k, v, tree, backend="numba")
    return torch.stack([out.sum().detach(), torch.autograd.grad(out.sum(), q)[0].square().sum()])

expected = attend(-1)
loader = DataLoader(range(8), num_workers=2, collate_fn=lambda n: attend(n[0]), timeout=60,
                    multiprocessing_context="fork")
found = list(loader)
assert len(found) == 8
assert all(torch.equal(x, expected) for x in found)
assert torch.equal(attend(-1), expected)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_kernels_check_sizes_themselves():
    args = operands(6, extras=True)
    for place in (0, 1, 2, 4, 5, 6, 7, 8):
        bad = list(args)
        bad[place] = torch.cat([args[place], args[place]]).detach()
        with pytest.raises(ShapeError, match="give"):
            _attention(*bad)


def test_without_numba_auto_is_block(monkeypatch):
    tree = random_tree(4, shape="mixed")
    q, k, v = random_qkv(tree)
    monkeypatch.setattr(inputs, "HAS_NUMBA", False)
    assert torch.equal(hsa_attention(q, k, v, tree), hsa_attention(q, k, v, tree, backend="block"))


def test_with_numba_auto_is_numba():
    tree = random_tree(4, shape="mixed")
    q, k, v = random_qkv(tree)
    assert torch.equal(hsa_attention(q, k, v, tree), hsa_attention(q, k, v, tree, backend="numba"))


def test_numba_that_is_not_there_is_named():
    code = """
import sys
sys.modules["numba"] = None
import torch
from hsa_geo import _optional
from hsa_geo.data import SignalTree
from hsa_geo.ops import hsa_attention
tree, q = SignalTree.from_parents([2, 2, -1]), torch.zeros(2, 1, 1)
assert not _optional.HAS_NUMBA
assert hsa_attention(q, q, q, tree).shape == q.shape
hsa_attention(q, q, q, tree, backend="numba")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "MissingPackageError" in done.stderr
    assert "hsa_geo[fast]" in done.stderr


def test_numba_that_does_not_load_is_as_good_as_none(tmp_path):
    """Such as one that is older than numpy: a warning, and "block" is the default."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('needs NumPy 2.3 or less')")
    code = """
import torch
from hsa_geo import _optional
from hsa_geo.data import SignalTree
from hsa_geo.ops import hsa_attention
tree, q = SignalTree.from_parents([2, 2, -1]), torch.zeros(2, 1, 1)
assert not _optional.HAS_NUMBA
assert hsa_attention(q, q, q, tree).shape == q.shape
hsa_attention(q, q, q, tree, backend="numba")
"""
    path = os.pathsep.join([str(tmp_path), str(Path(fused.__file__).parents[2])])
    env = os.environ | {"PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert "HSAWarning: numba is installed but does not load (needs NumPy 2.3" in done.stderr
    assert done.stderr.count("HSAWarning") == 1
    assert done.returncode == 1
    assert "MissingPackageError: backend='numba' needs" in done.stderr


def test_a_plan_keeps_its_packed_part():
    plan = random_tree(4, shape="mixed").plan
    for other in (pickle.loads(pickle.dumps(plan)), plan.to("cpu")):
        assert torch.equal(other.packed, plan.packed)


def test_what_is_asked_for_is_what_is_given():
    """Float32 at least inside, the dtype of v outside."""
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        q, k, v = (t.to(dtype).requires_grad_() for t in random_qkv(tree))
        out = hsa_attention(q, k, v, tree, backend="numba")
        assert out.dtype == dtype
        assert all(g.dtype == dtype for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_the_kernels_check_heads_channels_and_dtypes():
    args = operands(6, extras=True)
    for place in (1, 2, 4, 5, 6, 7, 8):
        wrong = [args[place].detach().float()]
        if place != 2:  # values may have any width
            wrong.append(torch.cat([args[place]] * 3, -1).detach())
        for bad in wrong:
            given = [*args[:place], bad, *args[place + 1 :]]
            if place == 5 and bad.dtype == torch.float64:
                continue  # positions, too
            with pytest.raises(ShapeError, match="give"):
                _attention(*given)


@pytest.mark.parametrize("backend", ["numba", "block", "edge"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_masks_of_any_dtype(backend, dtype):
    tree = random_tree(6, shape="mixed")
    q, k, v = random_qkv(tree, dtype=torch.float32)
    pairs, own = (t.round() for t in draw_mask(tree.plan, q.size(1), 0.5, 0))
    out = outputs(q, k, v, tree, mask=(pairs.to(dtype), own.to(dtype)), backend=backend)[0]
    expected = outputs(q, k, v, tree, mask=(pairs.float(), own.float()), backend="edge")[0]
    assert error(out, expected) < 1e-5


@pytest.mark.parametrize("backend", ["auto", "numba", "block"])
def test_what_is_no_tensor_is_named(backend):
    with pytest.raises(ShapeError, match="q is a list"):
        hsa_attention([1], [1], [1], random_tree(1), backend=backend)
