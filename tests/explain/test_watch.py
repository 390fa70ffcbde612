"""What a model's layers were given, and their weights."""

from __future__ import annotations

import pytest
import torch
from explain_cases import classifier
from test_rollout import tree_of
from torch import nn

from hsa_geo.errors import LimitError, UnsupportedError
from hsa_geo.explain import layer_weights
from hsa_geo.explain.watch import answer, evaluating, watched
from hsa_geo.nn import HSAConv


@pytest.mark.parametrize("tie", ["block", "key"])
def test_weights_are_those_that_the_layers_return(tie):
    tree, model = tree_of(), classifier(tie=tie, attention_dropout=0.5)
    inputs = []
    for block in model.encoder.blocks:
        block.conv.register_forward_pre_hook(lambda module, args: inputs.append((module, args)))
    model(tree)
    model.train()
    weights = layer_weights(model, tree)
    assert len(weights) == 2
    model.eval()
    for one, (conv, args) in zip(weights, inputs):
        _, expected = conv(*args, return_attention_weights=True)
        torch.testing.assert_close(one.pair, expected.pair.detach())
        torch.testing.assert_close(one.leaf, expected.leaf.detach())


def test_layers_called_with_index_and_level_or_other_positions():
    tree = tree_of()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HSAConv(5, 4, heads=2)

        def forward(self, tree):
            h = self.conv(tree.x, tree.tree_index, tree_level=tree.tree_level)
            pos = torch.randn(tree.num_tree_nodes, 1, 2, dtype=h.dtype)
            return h + self.conv(tree.x, tree, pos=pos, return_attention_weights=True)[0]

    first, second = layer_weights(Net().double(), tree)
    assert first.pair.shape == second.pair.shape
    assert not torch.allclose(first.leaf, second.leaf)


def test_hooks_and_modes_are_put_back_even_after_an_error():
    model = classifier().train()
    with pytest.raises(RuntimeError, match="stop"), evaluating(model), watched(model):
        raise RuntimeError("stop")
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_limits_and_models_without_layers():
    tree = tree_of()
    with pytest.raises(LimitError, match="max_pairs=3"):
        layer_weights(classifier(), tree, max_pairs=3)
    assert layer_weights(classifier(), tree, max_pairs=None)
    with pytest.raises(UnsupportedError, match="no HSAConv"):
        layer_weights(classifier(attention="flat"), tree)
    with pytest.raises(UnsupportedError, match="node=1"):
        answer(nn.Linear(5, 2), tree, 1, None)
