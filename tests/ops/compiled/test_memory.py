"""Large tensors in large pages."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.ops.compiled import memory
from hsa_geo.ops.compiled.memory import empty


@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (1 << 20, 3), (5, 0, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(shape, dtype):
    out = empty(torch.zeros(1, dtype=dtype), *shape)
    assert out.shape == shape
    assert out.dtype == dtype
    out.zero_()
    assert not out.any()


def test_only_whole_pages_inside_large_tensors_are_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "_madvise", lambda: lambda *given: asked.append(given))
    small = empty(torch.zeros(1), 1000)
    assert asked == []
    large = empty(torch.zeros(1), 3_000_000)
    ((start, size, _),) = asked
    assert start % (2 << 20) == size % (2 << 20) == 0
    assert large.data_ptr() <= start
    assert start + size <= large.data_ptr() + 12_000_000
    assert size > 12_000_000 - 2 * (2 << 20)
    assert small.numel() == 1000


def test_systems_without_large_pages(monkeypatch):
    monkeypatch.setattr(memory, "_madvise", lambda: None)
    assert empty(torch.zeros(1), 3_000_000).numel() == 3_000_000
