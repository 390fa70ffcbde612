"""Attribution by gradients: complete, exact where a model is linear, right where it matters."""

from __future__ import annotations

import pytest
import torch
from explain_cases import classifier, planted, trained
from test_rollout import tree_of
from torch import nn
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain import attribute_leaves, subtree_sum
from hsa_geo.explain.gradients import integrate
from hsa_geo.nn import HSAConv, SubtreeClassifier, subtree_mean
from hsa_geo.testing import SHAPES


class OfX(nn.Module):
    """A linear model of tree.x: every leaf adds w . x / N."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3).double()

    def forward(self, tree):
        return self.lin(subtree_mean(tree.x, tree))


@pytest.mark.parametrize("method", ["integrated_gradients", "gradient_x_input"])
def test_of_a_linear_model_it_is_exact(method):
    tree, model = tree_of(), OfX()
    scores = attribute_leaves(model, tree, target=1, method=method)
    expected = tree.x @ model.lin.weight[1].detach() / tree.num_leaves
    torch.testing.assert_close(scores.leaf, expected)
    torch.testing.assert_close(scores.node, subtree_sum(expected, tree))
    assert scores.gap == pytest.approx(0, abs=1e-12)
    assert scores.value == pytest.approx(float(model(tree)[0, 1].detach()))
    assert scores.baseline == pytest.approx(float(model.lin.bias[1].detach()))
    assert scores.method == method.replace("_", " ")


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("shape", SHAPES)
def test_integrated_gradients_are_complete(shape, tie):
    tree, model = tree_of(shape=shape), classifier(tie=tie, structure=True)
    scores = attribute_leaves(model, tree, target=[0, 1, 2], tolerance=1e-3)
    with torch.no_grad():
        full = model(tree)[0]
        model.features.register_forward_hook(lambda *args: 0 * args[-1])
        empty = model(tree)[0]
    for k, one in enumerate(scores):
        assert one.target == k
        assert one.value == pytest.approx(float(full[k]))
        assert one.baseline == pytest.approx(float(empty[k]))
        size = float(one.leaf.abs().sum())
        assert abs(float(one.leaf.sum() - full[k] + empty[k])) <= 1e-3 * size + 1e-9
        assert float(one.node[-1]) == pytest.approx(float(one.leaf.sum()))


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "flat", "structure": True},
        {"attention": "deep_set"},
        {"readout": "attention", "energy": "l2", "values": "keys"},
        {"readout": "query", "qk_norm": True, "backend": "edge"},
        {"readout": "root", "backend": "block", "dropout": 0.5},
    ],
)
def test_every_kind_of_model(options):
    tree, model = tree_of(), classifier(**options).train()
    scores = attribute_leaves(model, tree, tolerance=5e-3)
    assert model.training
    assert scores.target == int(model.eval()(tree).argmax())
    assert abs(scores.gap) <= 5e-3 * float(scores.leaf.abs().sum())
    assert float(scores.leaf.abs().min()) > 0


def test_gradient_x_input_is_the_slope_of_the_gates():
    tree, model = tree_of(), classifier()
    scores = attribute_leaves(model, tree, target=2, method="gradient_x_input")
    step, gate = 1e-5, torch.ones(tree.num_leaves, dtype=torch.float64)
    hook = model.features.register_forward_hook(lambda *args: args[-1] * gate[:, None])
    for leaf in (0, tree.num_leaves - 1):
        ends = []
        for sign in (1, -1):
            gate[leaf] = 1 + sign * step
            ends.append(float(model(tree)[0, 2].detach()))
        gate[leaf] = 1
        assert float(scores.leaf[leaf]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4)
    hook.remove()


def test_answers_for_subtrees():
    tree, model = tree_of(), classifier()
    node = tree.num_leaves
    scores = attribute_leaves(model, tree, target=0, node=node, tolerance=1e-3)
    assert scores.value == pytest.approx(float(model(tree, torch.tensor([node]))[0, 0].detach()))
    assert abs(scores.gap) <= 1e-3 * float(scores.leaf.abs().sum())


def test_subtree_classifiers_with_their_linear_part():
    torch.manual_seed(0)
    tree = SignalTree.from_parents(
        [3, 3, 4, 4, -1],
        text_x=torch.tensor([[5, 0], [7, 1], [7, 0]]),
        text_index=torch.tensor([0, 1, 1]),
    )
    model = SubtreeClassifier(num_ids=16, num_classes=2).double()
    nn.init.normal_(model.direct.weight)
    scores = attribute_leaves(model, tree, target=1, tolerance=1e-4)
    assert abs(scores.gap) <= 1e-4 * float(scores.leaf.abs().sum()) + 1e-9
    assert float(scores.leaf[2]) == 0  # a leaf that holds nothing adds nothing
    nn.init.zeros_(model.lin.weight)  # what is left is linear, and exact
    scores = attribute_leaves(model, tree, target=1, method="gradient_x_input")
    bags = model.tokens.bags(tree)
    rows = model.direct(bags.ids, bags.offsets)[:, 1].detach()
    torch.testing.assert_close(scores.leaf, rows / 2)  # over the root of 1 + 3 tokens


def test_models_of_ones_own():
    tree = tree_of()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.conv = nn.Linear(5, 8), HSAConv(8, 8)
            self.lin = nn.Linear(8, 3)

        def forward(self, x, tree):
            return self.lin(subtree_mean(self.conv(self.embed(x).relu(), tree).tanh(), tree))

    torch.manual_seed(0)
    net = Net().double()

    def run(model, tree):
        return model(tree.x, tree)

    by_x = attribute_leaves(net, tree, run=run, tolerance=1e-3)
    by_embedding = attribute_leaves(net, tree, run=run, inputs=[net.embed], tolerance=1e-3)
    for scores in (by_x, by_embedding):
        assert abs(scores.gap) <= 1e-3 * float(scores.leaf.abs().sum())
    assert by_x.baseline != by_embedding.baseline
    assert torch.equal(tree.x, tree_of().x)


def test_planted_signs_are_found():
    model, found = trained(), 0
    for seed in range(5):
        tree = planted(seed)
        scores = attribute_leaves(model, tree, target=int(tree.y))
        found += set(scores.top(2)) == set(tree.planted.nonzero().flatten().tolist())
    assert found >= 4


def test_points_are_added_until_the_sum_is_complete():
    calls = []

    def gradient(alpha):
        calls.append(alpha)
        return torch.full((1, 1), 1000.0 if alpha > 0.9 else 0.0)

    out = integrate(gradient, torch.tensor([100.0]), 4, 64, 1e-9)
    assert len(calls) == 4 + 8 + 16 + 32 + 64
    assert float(out) == pytest.approx(100, rel=0.2)
    calls.clear()
    integrate(lambda a: gradient(0.5) + a, torch.tensor([0.5]), 16, 64, 1e-6)
    assert len(calls) == 16


def test_what_cannot_be_attributed_is_refused():
    tree, model = tree_of(), classifier()
    with pytest.raises(UnsupportedError, match="2 trees"):
        attribute_leaves(model, Batch.from_data_list([tree, tree]))
    for options, error, match in (
        ({"target": 3}, ShapeError, "target=3"),
        ({"target": True}, ShapeError, "target=True"),
        ({"target": [0, -1]}, ShapeError, "target=-1"),
        ({"target": []}, ShapeError, r"target=\[\] names no output: give numbers 0..2"),
        ({"target": ()}, ShapeError, r"target=\(\) names no output"),
        ({"target": [[0]]}, ShapeError, r"target=\[0\]"),
        ({"target": torch.tensor([0])}, ShapeError, "target=tensor"),
        ({"target": "1"}, ShapeError, "target='1'"),
        ({"target": 1.0}, ShapeError, "target=1.0"),
        ({"method": "lime"}, UnsupportedError, "lime"),
        ({"steps": 0}, ShapeError, "steps=0"),
        ({"max_steps": 1.5}, ShapeError, "max_steps"),
        ({"tolerance": 0}, ShapeError, "tolerance=0"),
        ({"node": -1}, ShapeError, "node=-1"),
        ({"inputs": [model.lin]}, ShapeError, "row for each"),
        ({"run": lambda model, tree: model.leaf_logits(tree)}, ShapeError, "run="),
    ):
        with pytest.raises(error, match=match):
            attribute_leaves(model, tree, **options)
    blind = nn.Linear(2, 2)
    with pytest.raises(UnsupportedError, match="no gradient"):
        attribute_leaves(blind, tree, run=lambda model, tree: model(torch.ones(1, 2)))
    del tree.x
    with pytest.raises(UnsupportedError, match="inputs="):
        attribute_leaves(blind, tree)
