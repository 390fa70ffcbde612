"""What a dataset says of its items, and what it need not say."""

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets.recipe import Recipe
from hsa_geo.errors import BuilderError, LabelError


class Stars(Recipe):
    file_name, noun, classes = "stars", "stars", ("few", "many")

    def tree(self, item):
        if item < 0:
            raise BuilderError("it is negative")
        if item == 0:
            return None
        return SignalTree.from_parents([item] * item + [-1], y=torch.tensor([int(item > 2)]))


def test_what_cannot_be_built_is_named_and_what_is_left_out_is_not():
    trees, extra = Stars().build(iter([1, -1, 0, 3]))
    assert [tree.num_leaves for tree in trees] == [1, 3]
    assert extra == {"failed": {"-1": "BuilderError: it is negative"}}


def test_labels_are_checked_and_the_item_is_named():
    class One(Stars):
        classes = ("few",)

    with pytest.raises(LabelError, match=r"^3: "):
        One().build(iter([1, 3]))


def test_the_parts_are_put_together():
    trees, more = Stars().finish([1, 3], [], [{"failed": {"1": "a"}}, {}, {"failed": {"3": "b"}}])
    assert (trees, more) == ([], {"failed": {"1": "a", "3": "b"}})


def test_a_summary_of_many_failures_is_short():
    report = {"stored": 1, "items": 9, "failed": {str(i): "why" for i in range(8)}}
    lines = Stars().summary(report).split("\n")
    assert lines[0] == "stars: 1 of 9 stars stored"
    assert lines[1:] == [f"unreadable: {i}: why" for i in range(5)] + ["and 3 more unreadable"]


def test_what_must_be_said():
    assert Recipe().describe("x" * 100) == "x" * 80
    with pytest.raises(NotImplementedError):
        Recipe().items()
    with pytest.raises(NotImplementedError):
        Recipe().tree(0)
