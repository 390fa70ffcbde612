"""Cases of op_cases as calls of the compiled passes, and what their slots stand for."""

from __future__ import annotations

import torch
from op_cases import Case, draw_mask, inputs_for
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.data.kept import unpack_kept
from hsa_geo.ops.attention import outputs
from hsa_geo.ops.compiled.frame import Call
from hsa_geo.ops.inputs import check_inputs
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.ops.reference import reference_attention, reference_energy
from hsa_geo.testing import SHAPES, random_tree


def make_call(case: Case) -> Call:
    """The call that hsa_attention makes of a case."""
    x = check_inputs(**case.tensors, tree=case.tree, backend="numba", **case.options)
    pairs, own = (None, None) if case.mask is None else case.mask
    tensors = (x.query, x.key, x.value, x.plan.packed, x.term, x.pos, x.bias, pairs, own)
    return Call(*tensors, x.scale)


def forest(seed: int, count: int = 5, max_leaves: int = 16) -> SignalTree:
    """A batch of trees of different shapes."""
    parts = [
        random_tree(seed + i, max_leaves=max_leaves, shape=SHAPES[(seed + i) % len(SHAPES)])
        for i in range(count)
    ]
    return Batch.from_data_list(parts)


def full_case(tree: SignalTree, *, mask: bool = True, energy: str = "l2", seed: int = 0) -> Case:
    """A tree with every option."""
    tensors = inputs_for(tree, 2, 3, 4, pos=2, bias=2, seed=seed)
    drawn = draw_mask(tree.plan, 2, 0.3, seed) if mask else None
    return Case(tree, tensors, drawn, energy, 0.7)


def slot_nodes(tree: SignalTree) -> tuple[list[int], Tensor]:
    """The node of every kept slot, and ``[R, N]``, which leaves are under it."""
    _, kept = unpack_kept(tree.plan.packed)
    plain = PlainTree.of(tree)
    nodes = []
    for node in kept.top.tolist():
        while len(plain.children[node]) == 1:
            (node,) = plain.children[node]
        nodes.append(node)
    return nodes, torch.as_tensor(plain.under)[nodes].double()


def run(case: Case, oracle: bool = False) -> dict[str, Tensor]:
    """Outputs, energies and the gradients of a random linear function of both."""
    leaf = {name: t.clone().requires_grad_() for name, t in case.tensors.items()}
    if oracle:
        out = reference_attention(tree=case.tree, mask=case.mask, **leaf, **case.options)
        scored = {name: t for name, t in leaf.items() if name != "v"}
        phi = reference_energy(tree=case.tree, **scored, **case.options)
    else:
        options = case.options | {"mask": case.mask, "backend": "numba", "energies": True}
        out, phi = outputs(tree=case.tree, **leaf, **options)
    result = {"out": out, "phi": phi}
    generator = torch.Generator().manual_seed(1)
    loss = torch.zeros((), dtype=torch.float64)
    for value in (out, phi):
        weight = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        loss = loss + (value.double() * weight).sum()
    grads = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
    for (name, t), grad in zip(leaf.items(), grads):
        result[f"grad {name}"] = torch.zeros_like(t) if grad is None else grad
        if name == "bias":  # the oracle's own gradient of a hidden pair is 0 or nan
            shown = t.isfinite()
            result["grad bias"] = torch.where(shown, result["grad bias"], 0.0)
    return {name: value.detach() for name, value in result.items()}
