"""On a GPU, in float32: skipped, with the reason shown, where there is none."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from hsa_geo.data import Domain, SignalTree, TreePlan
from hsa_geo.nn import HSAEncoder, subtree_mean
from hsa_geo.ops import attention_matrix, hsa_attention, tree_energy
from hsa_geo.ops.reference import reference_attention
from hsa_geo.testing import random_tree

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
backends = pytest.mark.parametrize("backend", ["block", "edge"])


def trees() -> list[SignalTree]:
    made = [random_tree(seed, shape="mixed") for seed in range(4)]
    for seed, tree in enumerate(made):
        generator = torch.Generator().manual_seed(seed)
        tree.x = torch.randn(tree.num_leaves, 16, generator=generator)
        tree.tree_domain[tree.tree_domain == Domain.GRAPH] = int(Domain.SET)
    return made


def tensors_of(plan: TreePlan) -> dict[str, torch.Tensor]:
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}


def test_a_plan_moves():
    plan = Batch.from_data_list(trees()).plan
    moved = plan.to("cuda")
    assert moved.device.type == "cuda"
    for name, value in tensors_of(plan).items():
        assert tensors_of(moved)[name].is_cuda, name
        assert torch.equal(tensors_of(moved)[name].cpu(), value), name
    for name in ("share", "leaf_start", "leaf_order", "leaf_tree", "pair_nodes"):
        assert torch.equal(getattr(moved, name).cpu(), getattr(plan, name)), name


def test_a_batch_takes_its_plan_along():
    batch = Batch.from_data_list(trees())
    before = batch.plan
    moved = batch.to("cuda")
    assert moved.tree_index.is_cuda
    assert moved.plan.device.type == "cuda"
    assert torch.equal(moved.plan.leaf_order.cpu(), before.leaf_order)
    assert moved.cpu().plan.device.type == "cpu"


def test_pinned_memory():
    batch = next(iter(DataLoader(trees(), batch_size=4, pin_memory=True)))
    assert batch.x.is_pinned()
    assert batch.tree_index.is_pinned()
    moved = batch.to("cuda", non_blocking=True)
    assert moved.plan.device.type == "cuda"
    assert subtree_mean(moved.x, moved).is_cuda


@backends
@pytest.mark.parametrize("energy", ["dot", "l2"])
def test_backends_agree_with_the_oracle(backend, energy):
    for tree in trees():
        q, k, v = torch.randn(3, tree.num_leaves, 2, 8)
        pos = torch.randn(tree.num_tree_nodes, 2, 4)
        wide = [t.double().requires_grad_() for t in (q, k, v, pos)]
        expected = reference_attention(*wide[:3], tree, pos=wide[3], energy=energy)
        narrow = [t.cuda().requires_grad_() for t in (q, k, v, pos)]
        plan = tree.plan.to("cuda")
        out = hsa_attention(*narrow[:3], plan, pos=narrow[3], energy=energy, backend=backend)
        assert out.is_cuda
        assert out.dtype == torch.float32
        assert torch.allclose(out.cpu().double(), expected, atol=1e-4)
        weight = torch.randn_like(out)
        (out * weight).sum().backward()
        (expected * weight.cpu().double()).sum().backward()
        for mine, theirs in zip(narrow, wide):
            if theirs.grad is None:
                assert mine.grad is None or not mine.grad.any()
            else:
                assert torch.allclose(mine.grad.cpu().double(), theirs.grad, atol=1e-3)


@backends
def test_matrix_and_energy_are_those_of_the_cpu(backend):
    batch = Batch.from_data_list(trees())
    q, k = torch.randn(2, batch.num_nodes, 2, 8)
    for function in (attention_matrix, tree_energy):
        expected = function(q, k, batch.plan, backend=backend)
        found = function(q.cuda(), k.cuda(), batch.plan.to("cuda"), backend=backend)
        assert torch.allclose(found.cpu(), expected, atol=1e-4)


@backends
def test_an_encoder_learns_there(backend):
    batch = Batch.from_data_list(trees()).to("cuda")
    encoder = HSAEncoder(16, backend=backend).cuda()
    out = encoder(batch.x, batch)
    out.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
    encoder.eval().cpu()
    batch = batch.cpu()
    assert torch.allclose(encoder(batch.x, batch), out.detach().cpu(), atol=1e-3)
