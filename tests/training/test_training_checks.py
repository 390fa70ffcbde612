"""What ``fit`` refuses before the first step, and what it says where a step fails."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from hsa_geo.data import SignalTree
from hsa_geo.errors import LabelError, ShapeError, UnsupportedError
from hsa_geo.nn import subtree_mean
from hsa_geo.training import Options, fit


class Mean(nn.Linear):
    def forward(self, batch):
        return super().forward(subtree_mean(batch.x, batch))


def cross_entropy(model, batch):
    return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")


def trees(label=lambda c: torch.tensor([c % 2]), width=3, count=4):
    made = []
    for c in range(count):
        more = {} if label is None else {"y": label(c)}
        made.append(SignalTree.from_parents([2, 2, -1], x=torch.randn(2, width), **more))
    return made


def run(train, validation=None, *, model=None, loss=cross_entropy, **more):
    more = {"options": Options(epochs=1, budget=100), "log": False, **more}
    return fit(model or Mean(3, 2), train, validation, loss=loss, **more)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (None, r"its trees have no y: give every tree y = torch.tensor\(\[class\]\)"),
        (lambda c: torch.tensor([9]), r"Target 9 is out of bounds\), and their y is int64 \[4\]"),
        (lambda c: torch.tensor([-1]), r"y is int64 \[4\] from -1 to -1: give classes from 0 to"),
        (lambda c: "shop", "their y is a list, the first 'shop': give every tree"),
        (lambda c: torch.tensor([0.5]), r"y is float32 \[4\] from 0\.5 to 0\.5: give every tree"),
        (lambda c: torch.tensor([[0]]), r"y is int64 \[4, 1\]"),
        (lambda c: torch.tensor([0, 1]), r"y is int64 \[8\]"),
    ],
    ids=["none", "too large", "negative", "str", "float", "matrix", "two"],
)
def test_labels(label, said):
    model = Mean(3, 2)
    before = model.weight.clone()
    with pytest.raises(LabelError, match=r"step 1 of 1 of epoch 1.*" + said) as caught:
        run(trees(label), model=model)
    assert "\n" not in str(caught.value)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("label", [None, lambda c: "shop"])
def test_labels_that_the_metric_lacks(label):
    loss = lambda model, batch: model(batch).square().sum(-1)  # noqa: E731
    with pytest.raises(LabelError, match="accuracy needs labels, but"):
        run(trees(label), trees(label), loss=loss)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (7, "met the label 7, which is none of the 2 outputs: give classes from 0 to 1"),
        (-1, "met the label -1, which"),
        (0.5, r"y is torch\.float32: give every tree y"),
    ],
)
def test_labels_of_the_validation_that_could_never_be_right(label, said):
    with pytest.raises(LabelError, match=f"accuracy .*{said}"):
        run(trees(), trees(lambda c: torch.tensor([label])))


def test_errors_of_others_pass_with_a_note():
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        run(trees(width=5))
    note = "It was raised in step 1 of 1 of epoch 1; their y is int64 [4] from 0 to 1."
    assert caught.value.__notes__ == [note]

    class MyClassifier(Mean):
        def forward(self, batch):
            return self.labels_of_mine(batch)

    with pytest.raises(AttributeError, match="'MyClassifier' object has no") as caught:
        run(trees(), model=MyClassifier(3, 2))
    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "train is a NoneType: give a list"),
        ((tree for tree in trees()), "train is a generator: give a list"),
        (trees()[0], "train is a SignalTree: give a list"),
        ("abc", "train is a str: give a list"),
        ({"a": trees()[0]}, "train is a dict: give a list"),
        (["a", "b"], r"train\[0\] is a str, no SignalTree"),
        ([*trees(), Data(x=torch.randn(2, 3))], r"train\[4\] is a Data, no SignalTree"),
        ([], "train holds no tree"),
    ],
    ids=["none", "generator", "tree", "str", "dict", "strs", "data", "empty"],
)
def test_no_trees(given, said):
    with pytest.raises(ShapeError, match=said):
        run(given)


def test_validation_of_other_kind():
    with pytest.raises(ShapeError, match=r"'x' of validation\[0\] has 4 columns, that of .* 3"):
        run(trees(), trees(width=4))
    own = run(trees(), trees(None), metric=lambda model, batches: 0.5)  # which needs no labels
    assert own.metric == 0.5
    for tree in (teacher := trees()):
        tree.teacher_x = torch.zeros(2, 5)  # what validation does not need
    assert run(teacher, trees()).metric is not None
    assert run(trees(), trees()).metric is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "a"}, "model is 'a': give a torch.nn.Module"),
        ({"model": Mean}, "model is the class Mean"),
        ({"loss": None}, r"loss=None is not called as loss\(model, batch\)"),
        ({"loss": nn.CrossEntropyLoss}, "is not called as loss"),
        ({"loss": nn.CrossEntropyLoss()}, r"CrossEntropyLoss\(\) is not called as"),
        ({"metric": "accuracy"}, "metric='accuracy' is no function"),
        ({"options": {"epochs": 3}}, r"are none: give Options\(epochs=10"),
    ],
)
def test_arguments(change, said):
    with pytest.raises(UnsupportedError, match=said):
        run(trees(), trees(), **change)


def test_a_loss_may_be_a_module_of_ones_own():
    class Loss(nn.Module):
        def forward(self, model, batch):
            return cross_entropy(model, batch)

    assert run(trees(), loss=Loss()).best_epoch == 1

    class OfTorch(nn.CrossEntropyLoss):
        def forward(self, model, batch):
            return super().forward(model(batch), batch.y)

    assert run(trees(), loss=OfTorch(reduction="none")).best_epoch == 1


def test_compiling_is_told_once(tmp_path):
    pytest.importorskip("numba")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from training_cases import *\n"
        "torch.set_num_threads(1)\n"
        "from hsa_geo.nn import HSAConv\n"
        "class Small(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv, self.words = HSAConv(8, 2), nn.Embedding(6, 8)\n"
        "    def forward(self, batch):\n"
        "        return subtree_mean(self.conv(self.words(batch.word_x), batch), batch)\n"
        "options = Options(epochs=1, budget=100)\n"
        "loss = lambda model, batch: model(batch).square().sum(-1)\n"
        "fit(Small(), make_trees(8), loss=loss, options=options)\n"
    )
    folder = os.path.dirname(__file__)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for lines in (2, 1):
        command = [sys.executable, "-c", code, folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        said = done.stderr.splitlines()
        assert len(said) == lines, said
        assert said[-1].startswith("epoch 1/1")
        told = [line for line in said if "compiling kernels" in line]
        assert len(told) == lines - 1
        assert all(f"once: later runs read them from '{tmp_path}" in line for line in told)


def test_trees_of_other_widths_in_one_list():
    with pytest.raises(ShapeError, match=r"'x' of train\[4\] has 5 columns, that of train\[0\] 3"):
        run(trees() + trees(width=5, count=1))
    with pytest.raises(ShapeError, match=r"'x' of validation\[4\] has 5 columns"):
        run(trees(), trees() + trees(width=5, count=1))


def test_compiling_is_logged_outside_of_fit(tmp_path):
    pytest.importorskip("numba")
    code = (
        "import logging, sys, torch\n"
        "if sys.argv[1:]: logging.basicConfig(level=logging.INFO, format='%(name)s: %(message)s')\n"
        "from hsa_geo.data import SignalTree\n"
        "from hsa_geo.nn import HSAConv\n"
        "HSAConv(4, 4)(torch.randn(2, 4), SignalTree.from_parents([2, 2, -1]))\n"
    )
    for arguments in ([], ["log"]):
        cache = tmp_path / f"cache{len(arguments)}"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert list(cache.rglob("*.nbc"))  # it did compile
        said = done.stderr.splitlines()
        told = [line for line in said if line.startswith("hsa_geo: compiling kernels")]
        assert len(told) == len(arguments), said
        assert arguments or not said
