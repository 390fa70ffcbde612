"""The three message passing modules: what each computes, and that they run."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from op_cases import comb, inputs_for
from torch_geometric.nn import MessagePassing

from hsa_geo.data import SignalTree
from hsa_geo.nn import HSAConv
from hsa_geo.ops import hsa_attention
from hsa_geo.ops.attention import _edge_passes
from hsa_geo.ops.edge import (
    DownwardPass,
    EdgePasses,
    SiblingInput,
    SiblingPass,
    UpwardPass,
    log_safe,
    pair_scores,
)
from hsa_geo.testing import random_qkv, random_tree

NAMES = ("upward", "sibling", "downward")


def watch(passes: EdgePasses) -> tuple[Counter, Counter, list]:
    """Count the propagate calls and the messages of each pass."""
    calls, messages, handles = Counter(), Counter(), []
    for name in NAMES:
        module = getattr(passes, name)

        def on_propagate(_module, _inputs, name=name):
            calls[name] += 1

        def on_message(_module, _inputs, output, name=name):
            messages[name] += len(output)

        handles.append(module.register_propagate_forward_pre_hook(on_propagate))
        handles.append(module.register_message_forward_hook(on_message))
    return calls, messages, handles


def test_the_passes_are_message_passing_modules_without_parameters():
    passes = EdgePasses()
    for name, kind in zip(NAMES, (UpwardPass, SiblingPass, DownwardPass)):
        module = getattr(passes, name)
        assert type(module) is kind
        assert isinstance(module, MessagePassing)
        assert module.explain is False
    assert list(passes.parameters()) == []


def test_hooks_fire_in_hsa_conv():
    tree = random_tree(0, shape="mixed")
    conv = HSAConv(4, 3, heads=2, backend="edge")
    calls, messages, _ = watch(conv.passes)
    conv(torch.randn(tree.num_leaves, 4), tree)
    assert all(calls[name] > 0 for name in NAMES)
    assert messages["sibling"] == tree.plan.num_pairs


def test_hooks_stay_silent_with_another_backend():
    tree = random_tree(0, shape="mixed")
    conv = HSAConv(4, 3, heads=2, backend="block")
    calls, _, _ = watch(conv.passes)
    conv(torch.randn(tree.num_leaves, 4), tree)
    assert not calls


def test_hooks_fire_in_hsa_attention():
    tree = random_tree(1, shape="mixed")
    calls, _, handles = watch(_edge_passes())
    try:
        hsa_attention(*random_qkv(tree), tree, backend="edge")
        assert all(calls[name] > 0 for name in NAMES)
    finally:
        for handle in handles:
            handle.remove()


def test_a_hook_can_change_the_messages():
    """So the output comes from these messages and not from elsewhere."""
    tree = random_tree(0, shape="mixed")
    conv = HSAConv(4, 3, heads=2, backend="edge")
    x = torch.randn(tree.num_leaves, 4)
    before = conv(x, tree)
    handle = conv.passes.sibling.register_message_forward_hook(lambda m, i, out: 0 * out)
    assert not torch.allclose(conv(x, tree), before)
    handle.remove()
    assert torch.equal(conv(x, tree), before)


def test_messages_are_as_many_as_edges_whatever_the_depth():
    """Levels are slices: a comb costs its nodes, not its nodes times its levels."""
    tree = SignalTree.from_parents(comb(50))
    plan = tree.plan
    calls, messages, handles = watch(_edge_passes())
    try:
        hsa_attention(*random_qkv(tree), tree, backend="edge")
    finally:
        for handle in handles:
            handle.remove()
    assert messages["sibling"] == plan.num_pairs == 100
    assert calls["sibling"] == 1
    edges = plan.num_slots - plan.num_trees
    assert messages["upward"] == 2 * edges  # means, then energies
    assert messages["downward"] == 2 * edges  # shares, then outputs


def test_upward_pass():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    out = UpwardPass()(x, torch.tensor([0.5, 0.5, 1.0]), torch.tensor([0, 2, 3]))
    assert out.tolist() == [[2.0, 3.0], [5.0, 6.0]]
    wide = UpwardPass()(x[:, None], torch.tensor([0.5, 0.5, 1.0]), torch.tensor([0, 2, 3]))
    assert torch.equal(wide, out[:, None])


def test_downward_pass():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    out = DownwardPass()(x, torch.tensor([0, 2, 3]), 3)
    assert out.tolist() == [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]
    assert torch.equal(DownwardPass()(x[:, None], torch.tensor([0, 2, 3]), 3), out[:, None])


@pytest.mark.parametrize("masked", [False, True])
def test_sibling_pass(masked):
    """Softmax over the other two of three siblings, by hand."""
    plan = SignalTree.from_parents([3, 3, 3, -1]).plan
    zero = torch.zeros(3, 1, 1)
    term = torch.tensor([[0.0], [1.0], [2.0]]).log().clamp(min=-1e30)  # weights 0, 1, 2
    value = torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1)
    mask = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0, 1.0]).view(6, 1) if masked else None
    out, log_sum = SiblingPass()(SiblingInput(zero, zero, term, value, mask=mask), plan)
    first = (10 + (2 if masked else 1) * 2 * 100) / 3
    assert torch.allclose(out.flatten(), torch.tensor([first, 100.0, 10.0]))
    assert torch.allclose(log_sum.flatten().exp(), torch.tensor([3.0, 2.0, 1.0]))


def test_pair_scores_follow_the_pairs():
    tree = random_tree(2, shape="mixed")
    plan = tree.plan
    tensors = inputs_for(tree, 2, 3, 2, pos=2, bias=2, seed=0)
    kids = plan.num_slots - plan.num_trees
    query, key, pos = (torch.randn(kids, 2, 3, dtype=torch.float64) for _ in range(3))
    term = torch.randn(kids, 2, dtype=torch.float64)
    x = SiblingInput(query, key, term, query, pos, tensors["bias"])
    score = pair_scores(x, plan)
    place = {top: i for i, top in enumerate(plan.slot_top[plan.num_trees :].tolist())}
    for number, public in enumerate(plan.pairs.public.tolist()):
        b, c = (place[node] for node in plan.pair_nodes[:, public].tolist())
        expected = (query[b] * key[c] + pos[b] * pos[c]).sum(-1) + term[c]
        expected = expected + tensors["bias"][public]
        assert torch.allclose(score[number], expected)


def test_log_safe():
    total = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    out = log_safe(total)
    assert torch.equal(out, total.detach().log())
    (grad,) = torch.autograd.grad(out, total, torch.ones(3))
    assert grad.tolist() == [0.0, 1.0, 0.25]
