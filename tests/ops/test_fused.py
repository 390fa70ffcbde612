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
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(_attention, tuple(args), test_utils=checks)
    args = [a.detach() if torch.is_tensor(a) else a for a in args]
    phi, *saved = _attention(*args)
    given = (*args, saved, torch.randn_like(saved[0]), torch.randn_like(phi))
    torch.library.opcheck(_attention_backward, given, test_utils=checks)


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


def test_two_threads_at_once():
    trees = [random_tree(seed, max_leaves=60, shape="mixed") for seed in (1, 2)]
    tensors = [random_qkv(tree) for tree in trees]
    expected = [hsa_attention(*t, tree, backend="block") for t, tree in zip(tensors, trees)]
    wrong: list[float] = []

    def work(i: int) -> None:
        for _ in range(20):
            q, k, v = (t.clone().requires_grad_() for t in tensors[i])
            out = hsa_attention(q, k, v, trees[i], backend="numba")
            out.sum().backward()
            wrong.append(error(out, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(wrong) == 40
    assert max(wrong) < 1e-12


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
