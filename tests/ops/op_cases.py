"""Random inputs for the operations, the oracle's answers, and how answers are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.ops.attention import attend, outputs
from hsa_geo.ops.reference import reference_attention, reference_energy, reference_matrix
from hsa_geo.ops.weights import weights_of
from hsa_geo.testing import SHAPES, random_pos, random_qkv, random_tree

BACKENDS = ("edge", "block", "numba")


@dataclass(frozen=True)
class Case:
    """A tree with inputs; ``tensors`` are q, k, v and, where the case has them, pos and bias."""

    tree: SignalTree
    tensors: dict[str, Tensor]
    mask: tuple[Tensor, Tensor] | None = None
    energy: str = "dot"
    scale: float | None = None
    tie: str = "block"

    def to(self, dtype: torch.dtype) -> Case:
        mask = None if self.mask is None else (self.mask[0].to(dtype), self.mask[1].to(dtype))
        return replace(self, tensors={k: t.to(dtype) for k, t in self.tensors.items()}, mask=mask)

    @property
    def options(self) -> dict[str, Any]:
        return {"energy": self.energy, "scale": self.scale, "tie": self.tie}


def draw_mask(
    plan: Any, heads: int, p: float, seed: int, tie: str = "block"
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int) -> Tensor:
        keep = torch.rand(rows, heads, generator=generator, dtype=torch.float64) >= p
        return keep.double() / (1 - p)

    pairs = plan.reach_lists.num_pairs if tie == "key" else plan.num_pairs
    return draw(pairs), draw(plan.num_leaves)


def inputs_for(
    tree: SignalTree,
    heads: int,
    dim: int,
    value_dim: int,
    *,
    pos: int,
    bias: int,
    seed: int,
    reach: int = 0,
) -> dict[str, Tensor]:
    """Float64 inputs; ``pos``, ``bias`` and ``reach`` are their number of heads, 0 for none."""
    q, k, v = random_qkv(tree, heads, dim, value_dim=value_dim, seed=seed)
    out = {"q": q, "k": k, "v": v}
    if pos:
        out["pos"] = random_pos(tree, pos, 3, seed=seed)
    if reach:
        generator = torch.Generator().manual_seed(seed + 2)
        pairs = tree.plan.reach_lists.num_pairs
        out["reach_bias"] = torch.randn(pairs, reach, dtype=torch.float64, generator=generator)
    if bias:
        generator = torch.Generator().manual_seed(seed + 1)
        pairs = tree.plan.num_pairs
        out["bias"] = torch.randn(pairs, bias, dtype=torch.float64, generator=generator)
    return out


def draw_case(seed: int, tie: str = "block") -> Case:
    """A tree of each shape in turn, with options drawn anew for every seed."""
    rng = np.random.default_rng(seed)
    tree = random_tree(seed, max_leaves=20, shape=SHAPES[seed % len(SHAPES)])
    heads = int(rng.integers(1, 4))
    dim, value_dim = int(rng.choice([1, 3, 4])), int(rng.choice([1, 2, 4]))
    pos, bias = int(rng.choice([0, 1, heads])), int(rng.choice([0, 1, heads]))
    reach = [0, 1, heads][seed // len(SHAPES) % 3] if tie == "key" else 0
    tensors = inputs_for(tree, heads, dim, value_dim, pos=pos, bias=bias, seed=seed, reach=reach)
    return Case(
        tree=tree,
        tensors=tensors,
        mask=draw_mask(tree.plan, heads, 0.3, seed, tie) if rng.random() < 0.5 else None,
        energy=str(rng.choice(["dot", "l2"])),
        scale=None if rng.random() < 0.5 else float(rng.uniform(0.1, 1.5)),
        tie=tie,
    )


def answer(case: Case, backend: str | None) -> dict[str, Tensor]:
    """Output, Theta and phi of a backend (None: the oracle), and the gradients of a random
    linear function of all three with respect to every input."""
    leaf = {name: t.clone().requires_grad_() for name, t in case.tensors.items()}
    q, k, v = leaf["q"], leaf["k"], leaf["v"]
    options = case.options | {"pos": leaf.get("pos"), "bias": leaf.get("bias")}
    if case.tie == "key":
        options["reach_bias"] = leaf.get("reach_bias")
    if backend is None:
        result = {
            "out": reference_attention(q, k, v, case.tree, mask=case.mask, **options),
            "theta": reference_matrix(q, k, case.tree, mask=case.mask, **options),
            "phi": reference_energy(q, k, case.tree, **options),
        }
    else:
        plan = case.tree.plan
        solution = attend(q, k, v, case.tree, mask=case.mask, backend=backend, **options)
        keeps_weights = solution
        if case.tie == "key":  # whose weights only "edge" keeps
            keeps_weights = attend(q, k, v, case.tree, mask=case.mask, backend="edge", **options)
        theta = weights_of(keeps_weights, plan, case.mask).to_dense()
        result = {"out": solution.out, "theta": theta, "phi": solution.phi}
        if backend == "numba":  # which leaves Theta to "block"
            options |= {"mask": case.mask, "backend": "numba", "energies": True}
            fused = outputs(q, k, v, case.tree, **options)
            result |= {"out": fused[0], "phi": fused[1]}
    generator = torch.Generator().manual_seed(0)
    loss = torch.zeros((), dtype=torch.float64)
    for value in result.values():
        weight = torch.randn(value.shape, dtype=torch.float64, generator=generator)
        loss = loss + (value.double() * weight).sum()
    grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
    for name, grad in zip(leaf, grads):
        result[f"grad {name}"] = torch.zeros_like(leaf[name]) if grad is None else grad
    return {name: value.detach() for name, value in result.items()}


def error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest entry: max|a - b| / max(1, max|b|).

    NaN where either holds one, so that no comparison with it passes.
    """
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not expected.numel():
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], limit: float) -> None:
    assert actual.keys() == expected.keys()
    errors = {name: error(actual[name], expected[name]) for name in expected}
    assert all(e <= limit for e in errors.values()), errors  # NaN fails too


def comb(teeth: int) -> list[int]:
    """Parents of a caterpillar: at each level a leaf and one inner node, ``teeth`` levels."""
    parents, spine = [-1], 0
    for _ in range(teeth):
        parents += [spine, spine]
        spine = len(parents) - 1
    return parents


def chain(length: int) -> list[int]:
    """Parents of a chain of single children, a single leaf at its end."""
    return [-1, *range(length - 1)]
