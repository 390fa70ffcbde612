"""What passes something among leaves beside the attention layers is found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hsa_geo.builders import from_image
from hsa_geo.data import SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.explain import attention_rollout
from hsa_geo.nn import FlatConv, HSAConv, HSAEncoder, LinearFeatures, PatchConv, SignalClassifier


def tree_of(n=9, features=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, features, generator=generator, dtype=dtype)
    return SignalTree.from_parents([*(n + k // 3 for k in range(n)), *[n + 3] * 3, -1], x=x)


class Between(nn.Module):
    """Two attention layers, and a function in between."""

    def __init__(self, between=lambda x: x, first=lambda x: x):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = HSAConv(4, 4), FlatConv(4, 4)
        self.conv, self.norm = nn.Conv1d(4, 4, 3, padding=1), nn.LayerNorm(4)
        self.between, self.first = between, first

    def forward(self, tree):
        x = self.first(tree.x)
        x = x + self.one(x, tree)
        return self.two(self.between(x), tree=tree)


LEAF_BY_LEAF = {
    "nothing": lambda x: x,
    "functions": lambda x: x.tanh() * 2 + 1,
    "a norm of each leaf": lambda x: nn.functional.layer_norm(x, (4,)),
    "in place": lambda x: x.mul_(2).relu_(),
    "zero": lambda x: 0 * x,
}


@pytest.mark.parametrize("name", LEAF_BY_LEAF)
def test_what_stays_with_its_leaf_is_followed(name):
    tree = tree_of()
    before = tree.x.clone()
    scores = attention_rollout(Between(LEAF_BY_LEAF[name]), tree)
    assert float(scores.leaf.sum()) == pytest.approx(1)
    assert torch.equal(tree.x, before)
    assert not tree.x.requires_grad


def swapped(k):
    """Two leaves hear of each other, whichever they are."""

    def swap(x):
        order = torch.arange(len(x))
        order[0], order[k] = k, 0
        return x + 1e-3 * x[order]

    return swap


AMONG_LEAVES = {
    "their mean": lambda x: x - x.mean(0),
    "a sum of all": lambda x: torch.cat([x[:-1], x.sum(0, keepdim=True)]),
    "the leaf before": lambda x: x + nn.functional.pad(x, (0, 0, 1, 0))[:-1],
    "attention by hand": lambda x: (x @ x.t()).softmax(-1) @ x,
    "a norm over leaves": lambda x: nn.functional.layer_norm(x, x.shape),
    **{f"leaf {k} and leaf 0": swapped(k) for k in range(1, 9)},
}


@pytest.mark.parametrize("name", AMONG_LEAVES)
def test_what_passes_among_leaves_is_refused(name):
    with pytest.raises(UnsupportedError, match="what 'two' is given of a leaf holds something"):
        attention_rollout(Between(AMONG_LEAVES[name]), tree_of())
    with pytest.raises(UnsupportedError, match="what 'one' is given of a leaf holds something"):
        attention_rollout(Between(first=AMONG_LEAVES[name]), tree_of())


def test_convolutions_over_leaves_are_refused():
    net = Between()
    net.between = lambda x: net.conv(x.t()[None])[0].t()  # [1, C, N]
    with pytest.raises(UnsupportedError, match=r"'conv' \(Conv1d\) is given \[1, 4, 9\], "):
        attention_rollout(net, tree_of())
    net.between = lambda x: net.conv(x.t()).t()  # [C, N]
    with pytest.raises(UnsupportedError, match=r"'conv' \(Conv1d\) is given \[4, 9\]"):
        attention_rollout(net, tree_of())
    net.between = lambda x: net.conv(x[:, :, None])[..., 0]  # [N, C, 1]
    assert float(attention_rollout(net, tree_of()).leaf.sum()) == pytest.approx(1)
    net.conv = nn.Conv1d(4, 4, 1)
    net.between = lambda x: net.conv(x.t()[None])[0].t()  # a linear layer in other words
    assert float(attention_rollout(net, tree_of()).leaf.sum()) == pytest.approx(1)


def test_convolutions_in_features_of_classifiers_are_refused():
    class Smooth(LinearFeatures):
        def __init__(self):
            super().__init__(4, 16)
            self.conv = nn.Conv1d(16, 16, 3, padding=1)

        def forward(self, x):
            return self.conv(super().forward(x).t()[None])[0].t()

    model = SignalClassifier({"x": Smooth()}, 3, channels=16)
    with pytest.raises(UnsupportedError, match=r"conv' \(Conv1d\) is given \[1, 16, 9\]"):
        attention_rollout(model, tree_of())


class Beside(nn.Module):
    """Two attention layers side by side, or one whose answer is forgotten."""

    def __init__(self, answer):
        super().__init__()
        self.one, self.two, self.answer = HSAConv(4, 4), HSAConv(4, 4), answer

    def forward(self, tree):
        return self.answer(tree, self.one, self.two)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda t, one, two: one(t.x, t) + two(t.x, t), "'two' hears nothing of 'one'"),
        (lambda t, one, two: two(t.x + 0 * one(t.x, t).detach(), t), "'two' hears nothing of 'o"),
        (lambda t, one, two: two(one(t.x, t), t).detach() + t.x, "answer hears nothing of 'two'"),
    ],
)
def test_layers_that_are_not_in_a_row_are_refused(answer, says):
    with pytest.raises(UnsupportedError, match=says):
        attention_rollout(Beside(answer), tree_of())


def test_layers_over_other_trees_are_refused():
    tree = tree_of()
    part = tree.restrict(torch.arange(9) < 3)

    def answer(_, one, two):
        return two(one(part.x, part), part)

    with pytest.raises(UnsupportedError, match="'one' runs over 3 leaves, but the tree has 9"):
        attention_rollout(Beside(answer), tree)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_of_the_library_within_others_are_followed(dtype):
    tree = tree_of(dtype=dtype)
    encoder = HSAEncoder(4, 2, heads=2, zero_init=True).to(dtype)
    wrapped = nn.ModuleDict({"encoder": encoder}).requires_grad_(False)
    found = attention_rollout(wrapped, tree, run=lambda model, t: model["encoder"](t.x, t))
    torch.testing.assert_close(found.leaf, attention_rollout(encoder, tree).leaf)
    symbols = tree_of()
    symbols.symbol = torch.arange(9)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv = nn.Embedding(9, 4), HSAConv(4, 4)

        def forward(self, tree):
            return self.conv(self.table(tree.symbol), tree)

    assert float(attention_rollout(Named(), symbols).leaf.sum()) == pytest.approx(1)


def test_pictures_of_leaves_are_read_by_convolutions():
    """As many leaves as a patch has pixels a side."""
    torch.manual_seed(0)
    tree = from_image(torch.rand(3, 64, 64))
    assert tree.image_x.shape == (16, 3 * 16**2)
    model = SignalClassifier({"image": PatchConv(16, 16)}, 2, channels=16)
    assert float(attention_rollout(model, tree).leaf.sum()) == pytest.approx(1)


def test_single_leaves_hear_of_nobody():
    net = Between()
    net.between = lambda x: net.conv(x.t()[None])[0].t()
    tree = SignalTree.from_parents([1, -1], x=torch.randn(1, 4))
    assert attention_rollout(net, tree).leaf.tolist() == [1.0]
