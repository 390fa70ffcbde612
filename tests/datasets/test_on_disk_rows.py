"""Columns of bytes."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets.on_disk_rows import DTYPES, fields_of, row_of, unpacked


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_every_dtype(name, rows):
    dtype = DTYPES[name]
    tree = SignalTree.from_parents([1, -1])
    tree.a_x = torch.tensor([[0, 1], [1, 0], [1, 1]])[:rows].to(dtype)
    fields = fields_of([tree])
    assert fields["a_x"]["shape"] == [-1, 2]
    again = unpacked(row_of(tree, fields)["a_x"], fields["a_x"])
    assert again.dtype == dtype
    assert torch.equal(again, tree.a_x)


@pytest.mark.parametrize(
    ("value", "size"),
    [(0, 1), (255, 1), (-1, 1), (256, 2), (-129, 2), (40_000, 4), (2**31, 8), (-(2**63), 8)],
)
def test_integers_take_few_bytes(value, size):
    tree = SignalTree.from_parents([1, -1])
    tree.a = torch.tensor([value])
    fields = fields_of([tree])
    column = row_of(tree, fields)["a"]
    assert len(column) == 1 + size
    assert unpacked(column, fields["a"]).tolist() == [value]
