"""Batches refuse what is no trees, sampler, device or number before they are read."""

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.training import Batches, LeafBudgetBatchSampler

CPU = torch.device("cpu")
TREES = [SignalTree.from_parents([k] * k + [-1]) for k in (3, 2, 4)]


@pytest.mark.parametrize(
    ("error", "said", "change"),
    [
        (UnsupportedError, "sampler='a' is none: give a LeafBudget", {"sampler": "a"}),
        (UnsupportedError, r"sampler=\[\[0, 1\]\] is none", {"sampler": [[0, 1]]}),
        (UnsupportedError, r"device='cpu' is none: give a torch\.device", {"device": "cpu"}),
        (ShapeError, "num_workers=-1 must be a whole number", {"num_workers": -1}),
        (ShapeError, "num_workers='a' must be a whole number", {"num_workers": "a"}),
        (ShapeError, "seed=-1 must be a whole number of at least 0", {"seed": -1}),
        (ShapeError, "trees is a str: give a list of trees", {"trees": "abc"}),
        (ShapeError, r"trees\[0\] is a int, no SignalTree", {"trees": [1, 2, 3]}),
        (ShapeError, "there are 2 trees and a sampler of 3", {"trees": TREES[:2]}),
    ],
)
def test_arguments_that_are_none(error, said, change):
    given = {"trees": TREES, "sampler": LeafBudgetBatchSampler(TREES, 5), "device": CPU}
    assert sum(batch.num_graphs for batch in Batches(**given)) == 3
    with pytest.raises(error, match=said):
        Batches(**{**given, **change})
