"""Labels are classes, or an error says which is not."""

import pytest
import torch

from hsa_geo.datasets.labels import check_labels
from hsa_geo.errors import LabelError

CLASSES = ("a", "b", "c")


@pytest.mark.parametrize(
    "y",
    [
        None,
        torch.tensor([0, 2, 1]),
        torch.tensor(2),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor([[1], [2]], dtype=torch.uint8),
        torch.rand(2, 3),
        torch.ones(1, 3, dtype=torch.bool),
    ],
)
def test_right(y):
    check_labels(y, CLASSES)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.tensor([0, 3]), r"holds 3 \(at place 1\), but there are 3 classes, 0 to 2"),
        (torch.tensor([-1]), "holds -1"),
        (torch.tensor([[1, 2], [2, 9]]), r"holds 9 \(at place 3\)"),
        (torch.rand(3), r"shape \[3\] and dtype torch.float32: give int64 places in the 3 classes"),
        (torch.rand(3, 2), r"shape \[3, 2\]"),
        (torch.ones(3, dtype=torch.bool), "bool"),
        (2, r"y is a int, no tensor: make it torch.tensor\(\[y\]\)"),
    ],
)
def test_wrong(y, message):
    with pytest.raises(LabelError, match=message):
        check_labels(y, CLASSES)
    check_labels(y, ())  # where there are no classes, y may be anything
