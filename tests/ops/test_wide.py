"""Wide groups: some rows at a time, or PyTorch's fused kernel, against dense attention."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
import torch
from group_cases import dense, dense_gradients, make_group, to_dtype
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import error
from torch import Tensor

from hsa_geo.ops import wide
from hsa_geo.ops.wide import WideGroup, wide_backward, wide_forward

OPTIONS = ("term", "pos", "bias", "mask")
SUBSETS = list(chain.from_iterable(combinations(OPTIONS, size) for size in range(5)))


def cotangents(x: WideGroup, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the outputs, weights in (0, 1) and gradients of the log-sum-exps."""
    generator = torch.Generator().manual_seed(seed)
    n, heads, dim = x.v.shape
    grad = torch.randn(n, heads, dim, generator=generator, dtype=torch.float64)
    weight = torch.rand(n, heads, generator=generator, dtype=torch.float64)
    slope = torch.randn(n, heads, generator=generator, dtype=torch.float64)
    return grad.to(x.q.dtype), weight.to(x.q.dtype), slope.to(x.q.dtype)


def check(x: WideGroup, limit: float, *, give_out: bool = False) -> None:
    exact = to_dtype(x, torch.float64)
    out, log_sum = wide_forward(x)
    expected, expected_sum = dense(exact)
    assert error(out, expected) < limit
    assert error(log_sum, expected_sum) < limit
    assert (out.dtype, log_sum.dtype) == (x.q.dtype, x.q.dtype)
    grad, weight, slope = cotangents(x)
    grads = wide_backward(x, log_sum, grad, weight, slope, out if give_out else None)
    wanted = dense_gradients(exact, grad.double(), weight.double(), slope.double())
    for name, gradient in wanted.items():
        actual = getattr(grads, name)
        if name == "bias":  # for every head, the caller sums those that share one
            assert actual.shape == (len(gradient), x.q.size(1))
            actual = actual.sum(1, keepdim=True) if gradient.size(1) == 1 else actual
        assert error(actual, gradient) < 10 * limit, name
    if x.term is None:
        assert grads.term.shape == log_sum.shape
    assert (grads.top is None, grads.bias is None) == (x.top is None, x.bias is None)


@pytest.fixture(params=["whole", "rows", "some"])
def at_once(request, monkeypatch):
    """All rows at once, one row at a time, or a few so that the last part is smaller."""
    if request.param != "whole":
        monkeypatch.setattr(wide, "_AT_ONCE", {"rows": 1, "some": 2 * 7 * 3}[request.param])
    return request.param


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("having", SUBSETS, ids=lambda s: "+".join(s) or "plain")
def test_every_set_of_options(at_once, diagonal, having):
    x = make_group(7, diagonal=diagonal, having=having)
    parts = list(wide._scores(x))
    assert [(low, high) for low, high, _ in parts] == {
        "whole": [(0, 7)],
        "rows": [(i, i + 1) for i in range(7)],
        "some": [(0, 3), (3, 6), (6, 7)],
    }[at_once]
    check(x, 1e-12)
    check(to_dtype(x, torch.float32), 1e-5)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_random_groups(data):
    draw = data.draw
    sizes = st.integers(1, 4)
    n, heads, dim, value_dim = draw(st.integers(2, 12)), draw(sizes), draw(sizes), draw(sizes)
    x = make_group(
        *(n, heads, dim, value_dim),
        diagonal=draw(st.booleans()),
        having=draw(st.sampled_from(SUBSETS)),
        bias_heads=draw(st.sampled_from([1, heads])),
        seed=draw(st.integers(0, 99)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "_AT_ONCE", draw(st.sampled_from([1, 20, 60, 1 << 20])))
        check(x, 1e-12, give_out=draw(st.booleans()))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("dim", "value_dim"), [(3, 3), (3, 5), (5, 3), (1, 1), (64, 64), (0, 2)])
@pytest.mark.parametrize("give_out", [True, False])
def test_plain_groups_with_the_fused_kernel_and_without(
    monkeypatch, fused, dim, value_dim, give_out
):
    """The fused kernel has no gradient for its log-sum-exp; the channel beside the values has."""
    if not fused:
        monkeypatch.setattr(wide, "_FUSED", None)
    x = make_group(300, 2, dim, value_dim)
    assert wide._is_plain(x) == (fused and dim > 0)
    check(x, 1e-12, give_out=give_out)
    check(to_dtype(x, torch.float32), 1e-5, give_out=give_out)


def test_this_torch_has_the_fused_kernel():
    """Without it everything works, but a wide group of leaves takes twice as long."""
    assert wide._is_plain(make_group(3))
    for having in OPTIONS:
        assert not wide._is_plain(make_group(3, having=(having,)))
    assert not wide._is_plain(make_group(3, diagonal=False))


@pytest.mark.parametrize("having", [(), ("bias",)])
@pytest.mark.parametrize(
    ("heads", "dim", "value_dim"), [(0, 3, 2), (2, 0, 2), (2, 3, 0), (2, 0, 0)]
)
def test_sizes_of_zero(having, heads, dim, value_dim):
    check(make_group(5, heads, dim, value_dim, having=having, bias_heads=1), 1e-12)


@pytest.mark.parametrize("having", [(), OPTIONS])
def test_inputs_where_they_lie(having):
    """Heads inside, last dimension outside, gradients expanded."""
    x = make_group(9, having=having)
    strided = replace(
        x,
        q=torch.stack([x.q, x.k], 1).unbind(1)[0],
        k=x.k.permute(1, 2, 0).contiguous().permute(2, 0, 1),
        v=x.v.transpose(1, 2).contiguous().transpose(1, 2),
    )
    assert not strided.k.is_contiguous()
    assert strided.v.stride(2) != 1
    check(strided, 1e-12)
    grad, weight, slope = (t[:1].expand_as(t) for t in cotangents(x))
    log_sum = wide_forward(strided)[1]
    actual = wide_backward(strided, log_sum, grad[..., :1].expand_as(grad), weight, slope)
    expected = dense_gradients(x, grad[..., :1].expand_as(grad), weight, slope)
    for name in ("q", "k", "v"):
        assert error(getattr(actual, name), expected[name]) < 1e-12


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_hidden_pairs(at_once, diagonal, share):
    """-inf biases; where all siblings are hidden and there is no diagonal, the sum is empty."""
    x = make_group(7, having=("term", "bias", "mask"), diagonal=diagonal)
    hidden = torch.rand(x.bias.shape, generator=torch.Generator().manual_seed(1)) < share
    hidden[:6] = True  # nothing is left for the first
    x = replace(x, bias=x.bias.masked_fill(hidden, -torch.inf))
    out, log_sum = wide_forward(x)
    grad, weight, slope = cotangents(x)
    if not diagonal:
        assert (log_sum[0] == -torch.inf).all()
        assert (out[0] == 0).all()
        slope = torch.where(log_sum == -torch.inf, 0.0, slope)
    grads = wide_backward(x, log_sum, grad, weight, slope)
    finite = x.bias.masked_fill(hidden, -1e4)  # whose exponential is zero, too
    if not diagonal and share == 1.0:
        assert (out == 0).all()
        assert all((t == 0).all() for t in (grads.q, grads.k, grads.v, grads.bias))
        return
    rows = slice(0 if diagonal else 1, None)
    expected, expected_sum = dense(replace(x, bias=finite))
    assert error(out[rows], expected[rows]) < 1e-12
    assert error(log_sum[rows], expected_sum[rows]) < 1e-12
    assert (grads.bias[hidden] == 0).all()
    if not diagonal:
        grad, slope = grad.clone(), slope.clone()
        grad[0], slope[0] = 0, 0
    wanted = dense_gradients(replace(x, bias=finite), grad, weight, slope)
    for name in ("q", "k", "v", "term"):
        assert error(getattr(grads, name), wanted[name]) < 1e-11


@pytest.mark.parametrize("having", [(), ("term",)])
@pytest.mark.parametrize("diagonal", [True, False])
def test_huge_scores(having, diagonal):
    for size in (1e2, 1e5):
        x = make_group(20, having=having, diagonal=diagonal)
        x = replace(x, q=x.q * size)
        check(x, 1e-9)
        out, log_sum = wide_forward(to_dtype(x, torch.float32))
        assert out.isfinite().all()
        assert log_sum.isfinite().all()


def test_memory_grows_with_the_width_only(monkeypatch):
    """No tensor of b x b elements, whatever the options: 64 rows at a time here."""
    n, heads = 2048, 1
    monkeypatch.setattr(wide, "_AT_ONCE", 64 * n * heads)
    x = make_group(n, heads, 2, 2, having=("term", "pos"), dtype=torch.float32)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for t in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(t, Tensor):
                    largest = max(largest, t.untyped_storage().nbytes() // t.element_size())
            return result

    with Watch():
        out, log_sum = wide_forward(x)
        wide_backward(x, log_sum, out, torch.ones_like(log_sum), torch.ones_like(log_sum))
    assert largest == 64 * n * heads
