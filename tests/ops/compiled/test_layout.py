"""The layout that kernels read: where an element lies."""

from __future__ import annotations

from itertools import product

import pytest

pytest.importorskip("numba")

import torch

from hsa_geo.ops.compiled.frame import rows


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_element_of_a_row_and_head(order):
    """Element (i, h, d) is ``data[i*row + h*head + d]``, however the tensor lies in memory."""
    sizes = [5, 3, 4]
    x = torch.arange(60.0).view([sizes[i] for i in order])
    x = x.permute([order.index(i) for i in range(3)])
    assert list(x.shape) == sizes
    r = rows(x)
    for i, h, d in product(*map(range, sizes)):
        assert r.data[i * r.row + h * r.head + d] == x[i, h, d]
