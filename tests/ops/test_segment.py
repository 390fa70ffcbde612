"""Sums and repetitions over segments, with and without torch_scatter."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from op_cases import answer, assert_close, draw_case
from torch import Tensor

from hsa_geo.errors import HSAWarning
from hsa_geo.ops import segment
from hsa_geo.ops.segment import HAS_TORCH_SCATTER, segment_expand, segment_max, segment_sum

REQUIRED = os.environ.get("HSA_GEO_REQUIRE_SCATTER") == "1"
needs_scatter = pytest.mark.skipif(
    not HAS_TORCH_SCATTER and not REQUIRED, reason="torch_scatter is not installed"
)

LENGTHS = [[3, 0, 1, 4], [1], [0, 0], [], [5, 5], [0, 7, 0]]
lengths_ = pytest.mark.parametrize("lengths", LENGTHS)
shapes_ = pytest.mark.parametrize("shape", [(), (2,), (3, 2), (2, 0)])


def pointer(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def count_calls(monkeypatch: pytest.MonkeyPatch, module: object) -> dict[str, int]:
    """Put ``module`` in place of torch_scatter and count the calls of its two functions."""
    calls = {"segment_csr": 0, "gather_csr": 0}

    def counted(name: str):
        def call(*args, **kwargs):
            calls[name] += 1
            return getattr(module, name)(*args, **kwargs)

        return call

    fake = SimpleNamespace(**{name: counted(name) for name in calls})
    monkeypatch.setattr(segment, "torch_scatter", fake)
    return calls


class PlainScatter:
    """What torch_scatter's two functions do."""

    @staticmethod
    def segment_csr(x: Tensor, ptr: Tensor, reduce: str) -> Tensor:
        assert reduce == "sum"
        assert x.is_contiguous()
        return torch.stack([x[a:b].sum(0) for a, b in pairwise(ptr)])

    @staticmethod
    def gather_csr(x: Tensor, ptr: Tensor) -> Tensor:
        assert x.is_contiguous()
        return x.repeat_interleave(ptr.diff(), 0)


@lengths_
@shapes_
def test_against_loops(lengths, shape):
    ptr, n = pointer(lengths), sum(lengths)
    x = torch.randn(n, *shape, dtype=torch.float64)
    y = torch.randn(len(lengths), *shape, dtype=torch.float64)
    parts = x.split(lengths) if lengths else []
    total = torch.stack([p.sum(0) for p in parts]) if lengths else x
    assert torch.allclose(segment_sum(x, ptr), total)
    repeated = torch.cat([row.expand(m, *shape) for row, m in zip(y, lengths)]) if lengths else y
    assert torch.equal(segment_expand(y, ptr, n), repeated)
    lowest = torch.full(shape, -torch.inf, dtype=torch.float64)
    top = [p.amax(0) if len(p) else lowest for p in parts]
    assert torch.equal(segment_max(x, ptr), torch.stack(top) if top else x)


@lengths_
def test_each_is_the_transpose_of_the_other(lengths):
    ptr, n = pointer(lengths), sum(lengths)
    x = torch.randn(n, 3, dtype=torch.float64)
    y = torch.randn(len(lengths), 3, dtype=torch.float64)
    assert torch.allclose((segment_sum(x, ptr) * y).sum(), (x * segment_expand(y, ptr, n)).sum())


def test_gradients_of_first_and_second_order():
    ptr = pointer([2, 0, 3])
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: segment_sum(x, ptr).square(), x)
        assert check(lambda y: segment_expand(y, ptr, 5).square(), y)
    assert not segment_max(x, ptr).requires_grad


def test_rows_need_not_be_contiguous():
    x, ptr = torch.randn(4, 6).t(), pointer([2, 4])
    assert torch.allclose(segment_sum(x, ptr), segment_sum(x.contiguous(), ptr))
    assert torch.equal(segment_expand(x[:2], ptr, 6), segment_expand(x[:2].contiguous(), ptr, 6))


# torch_scatter ###################################################################################


def test_torch_scatter_does_the_work_where_it_is(monkeypatch):
    """Both directions, and both in the backward pass; a stand-in counts the calls."""
    calls = count_calls(monkeypatch, PlainScatter)
    ptr = pointer([2, 3])
    x = torch.randn(5, 2, requires_grad=True)
    segment_sum(x, ptr).sum().backward()
    assert calls == {"segment_csr": 1, "gather_csr": 1}
    y = torch.randn(2, 2, requires_grad=True)
    segment_expand(y, ptr, 5).sum().backward()
    assert calls == {"segment_csr": 2, "gather_csr": 2}


@pytest.mark.parametrize("seed", [5, 6, 12])
def test_the_edge_backend_calls_torch_scatter(monkeypatch, seed):
    case = draw_case(seed)
    calls = count_calls(monkeypatch, PlainScatter)
    through = answer(case, "edge")
    assert calls["segment_csr"] > 0
    assert calls["gather_csr"] > 0
    monkeypatch.setattr(segment, "torch_scatter", None)
    assert_close(through, answer(case, "edge"), 1e-12)


def test_torch_scatter_is_installed_where_it_must_be():
    if not REQUIRED:
        pytest.skip("HSA_GEO_REQUIRE_SCATTER is not 1")
    assert HAS_TORCH_SCATTER, "HSA_GEO_REQUIRE_SCATTER=1 but torch_scatter is not installed"


@needs_scatter
@pytest.mark.parametrize("seed", range(0, 42, 3))
def test_the_real_torch_scatter_runs_and_agrees(monkeypatch, seed):
    import torch_scatter

    case = draw_case(seed)
    calls = count_calls(monkeypatch, torch_scatter)
    through = answer(case, "edge")
    if case.tree.plan.num_pairs:
        assert calls["segment_csr"] > 0
        assert calls["gather_csr"] > 0
    monkeypatch.setattr(segment, "torch_scatter", None)
    assert_close(through, answer(case, "edge"), 1e-12)


@needs_scatter
@lengths_
@shapes_
def test_the_real_torch_scatter_equals_the_fallback(monkeypatch, lengths, shape):
    ptr, n = pointer(lengths), sum(lengths)
    x = torch.randn(n, *shape, dtype=torch.float64)
    y = torch.randn(len(lengths), *shape, dtype=torch.float64)
    through = segment_sum(x, ptr), segment_expand(y, ptr, n)
    monkeypatch.setattr(segment, "torch_scatter", None)
    assert torch.allclose(through[0], segment_sum(x, ptr))
    assert torch.equal(through[1], segment_expand(y, ptr, n))


@pytest.mark.parametrize("error", [ImportError("no"), OSError("undefined symbol")])
def test_a_torch_scatter_that_does_not_load(monkeypatch, error):
    """A missing one is nothing to talk about; a broken one is, and the fallback runs."""

    class Broken:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "torch_scatter":
                raise error

    monkeypatch.delitem(sys.modules, "torch_scatter", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    spec = importlib.util.spec_from_file_location("another_segment", segment.__file__)
    another = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spec.loader.exec_module(another)
    assert not another.HAS_TORCH_SCATTER
    assert another.segment_sum(torch.ones(2), torch.tensor([0, 2])).tolist() == [2.0]
    messages = [str(w.message) for w in caught if issubclass(w.category, HSAWarning)]
    if isinstance(error, OSError):
        assert len(messages) == 1
        assert "undefined symbol" in messages[0]
    else:
        assert messages == []
