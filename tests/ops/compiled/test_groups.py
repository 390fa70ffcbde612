"""The kernels of sibling groups: exponentials, and attention against dense autograd."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, combinations

import pytest

pytest.importorskip("numba")

import numpy as np
import torch
from group_bench import SIZES, Bench, backward, bench
from group_cases import EXTRAS, dense, make_group, to_dtype
from op_cases import error

from hsa_geo.ops.compiled.groups import exp_rows

OPTIONS = ("term", "pos", "bias", "mask")
SUBSETS = list(chain.from_iterable(combinations(OPTIONS, size) for size in range(5)))


# The exponential #################################################################################


def exponentials(x: np.ndarray, top: float = 0.0) -> tuple[np.ndarray, float]:
    values = x.copy()
    total = exp_rows(values, len(x), x.dtype.type(top), np.empty(len(x), np.int32))
    return values, total


def allowed(x: np.ndarray) -> np.ndarray:
    """Relative error: of rounding the result, and of rounding the argument, ``|x|`` eps."""
    return 2.5e-7 + 7.5e-8 * np.abs(x)


def test_single_precision_exponential():
    """Against the exact value at the very float32 numbers, from 0 down to -87."""
    grid = np.linspace(-87, 0, 200_001)
    steps = np.arange(-125, 1) * math.log(2)  # where the exponent changes
    near = np.concatenate([steps + d for d in (-1e-5, -1e-7, 0, 1e-7, 1e-5)])
    halves = (np.arange(-125, 0) + 0.5) * math.log(2)
    x = np.concatenate([grid, near, halves]).astype(np.float32)
    x = x[(x <= 0) & (x >= -87)]
    values, total = exponentials(x)
    exact = np.array([math.exp(t) for t in x.tolist()])
    assert (np.abs(values / exact - 1) < allowed(x)).all()
    assert np.abs(values / exact - 1)[x > -3].max() < 3.5e-7
    assert np.abs(values - exact).max() < 1.5e-7
    assert abs(total / exact.sum() - 1) < 1e-5
    assert exponentials(np.zeros(1, np.float32))[0][0] == 1  # exactly


def test_the_largest_is_taken_off_first():
    rng = np.random.default_rng(0)
    x = rng.uniform(900, 1000, 500).astype(np.float32)
    values, _ = exponentials(x, top=float(x.max()))
    shifted = x.astype(np.float64) - float(x.max())
    wrong, big = np.abs(values / np.exp(shifted) - 1), shifted > -87
    assert (wrong < allowed(shifted))[big].all()
    assert values.max() == 1
    assert (values <= 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_hidden_or_negligible_is_exactly_zero(dtype):
    x = np.array([-np.inf, -1e4, -1e30, np.finfo(dtype).min, -750], dtype)
    values, total = exponentials(x)
    assert (values == 0).all()
    assert total == 0
    if dtype == np.float32:  # where the result would be no normal number
        assert (exponentials(np.linspace(-200, -89, 1000).astype(dtype))[0] < 1e-38).all()
    top = np.finfo(dtype).max  # stands for the log-sum-exp of an empty sum
    assert (exponentials(np.array([-np.inf] * 7, dtype), top)[0] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 4, 9, 33])
def test_nan_stays_where_it_is(dtype, count):
    x = np.zeros(count, dtype)
    x[count // 2] = np.nan
    values, total = exponentials(x)
    assert np.isnan(values).tolist() == np.isnan(x).tolist()
    assert np.isnan(total)
    assert np.isnan(exponentials(np.zeros(3, dtype), np.nan)[0]).all()


def test_double_precision_exponential_is_that_of_the_library():
    x = np.linspace(-700, 0, 1000)
    assert (exponentials(x)[0] == [math.exp(t) for t in x]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_the_first_n_are_touched(dtype):
    x = np.full(10, -1.0, dtype)
    exp_rows(x, 6, dtype(0), np.empty(10, np.int32))
    assert (x[6:] == -1).all()
    assert (x[:6] > 0).all()


# Groups ##########################################################################################


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("having", SUBSETS, ids=lambda s: "+".join(s) or "plain")
def test_forward(having, diagonal):
    for bias_heads in (1, 2):
        x = bench(having, diagonal=diagonal, bias_heads=bias_heads)
        out, lse = x.forward(0, len(SIZES), 0, 2)
        for g, part in enumerate(x.parts):
            expected, expected_lse = dense(part)
            assert error(out[x.members(g)], expected) < 1e-12
            assert error(lse[x.members(g)], expected_lse) < 1e-12


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("having", SUBSETS, ids=lambda s: "+".join(s) or "plain")
def test_forward_in_single_precision(having, diagonal):
    exact = [make_group(size, 2, 8, 8, diagonal=diagonal, having=having) for size in SIZES]
    x = Bench([to_dtype(part, torch.float32) for part in exact])
    out, lse = x.forward(0, len(SIZES), 0, 2)
    for g, part in enumerate(x.parts):
        expected, expected_lse = dense(to_dtype(part, torch.float64))
        assert error(out[x.members(g)], expected) < 2e-6
        assert error(lse[x.members(g)], expected_lse) < 2e-6


def test_only_the_given_groups_and_heads_are_touched():
    """And their bits do not depend on which others are computed in the same call."""
    x = bench(OPTIONS, diagonal=True, heads=4, bias_heads=4)
    whole, whole_lse = x.forward(0, len(SIZES), 0, 4)
    for g0, g1, h0, h1 in [(1, 3, 0, 4), (0, 5, 1, 3), (2, 2, 0, 4), (0, 5, 2, 2), (4, 5, 3, 4)]:
        out, lse = x.forward(g0, g1, h0, h1)
        inside = torch.zeros(lse.shape, dtype=torch.bool)
        for g in range(g0, g1):
            inside[x.members(g), h0:h1] = True
        assert torch.equal(out[inside], whole[inside])
        assert torch.equal(lse[inside], whole_lse[inside])
        assert (out[~inside] == 7).all()
        assert (lse[~inside] == 7).all()


def test_groups_wider_than_the_limit_are_left_to_others():
    x = bench((), diagonal=True, wide=4)
    out, lse = x.forward(0, len(SIZES), 0, 2)
    for g, part in enumerate(x.parts):
        left = len(part.q) > 4
        assert (out[x.members(g)] == 7).all() == left
        assert (lse[x.members(g)] == 7).all() == left


@pytest.mark.parametrize("diagonal", [True, False])
def test_hidden_siblings(diagonal):
    """-inf biases of all pairs: all weight on itself, or an empty sum."""
    x = bench(("term", "bias"), diagonal=diagonal)
    hidden = [replace(part, bias=torch.full_like(part.bias, -torch.inf)) for part in x.parts]
    out, lse = Bench(hidden).forward(0, len(SIZES), 0, 2)
    if diagonal:
        assert torch.equal(out, x.v)
        return
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


def test_nan_in_a_key_reaches_its_group_and_no_other():
    x = bench((), diagonal=False)
    x.k[x.members(1)[2], 0, 1] = torch.nan
    out, lse = x.forward(0, len(SIZES), 0, 2)
    expected = torch.zeros(lse.shape, dtype=torch.bool)
    expected[x.members(1), 0] = True
    expected[x.members(1)[2], 0] = False  # which does not attend to itself
    assert torch.equal(lse.isnan(), expected)
    assert torch.equal(out.isnan().all(-1), expected)
    assert torch.equal(out.isnan().any(-1), expected)


def check_backward(x: Bench, limit: float) -> None:
    to, expected = backward(x, 0, len(x.parts), 0, x.heads)
    for g, wanted in enumerate(expected):
        row, at = x.members(g), x.at[g]
        actual = {name: to[name][row] for name in ("q", "k", "v")}
        if "term" in wanted:
            actual["term"] = to["term"][row]
        if "bias" in wanted:
            bias = to["bias"][x.pairs(g)]
            shared = wanted["bias"].size(1) == 1
            actual["bias"] = bias.sum(1, keepdim=True) if shared else bias
        if "top" in wanted:
            actual["top"] = to["pos"][x.node[0, at]]
        if "own" in wanted:
            actual["own"] = to["pos"][x.node[1, at]]
        assert actual.keys() == wanted.keys()
        assert set(actual) <= {"q", "k", "v", *EXTRAS}
        for name, gradient in wanted.items():
            assert error(actual[name], gradient) < limit, name


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("having", SUBSETS, ids=lambda s: "+".join(s) or "plain")
def test_backward(having, diagonal):
    for bias_heads in (1, 2):
        check_backward(bench(having, diagonal=diagonal, bias_heads=bias_heads), 1e-11)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("having", SUBSETS, ids=lambda s: "+".join(s) or "plain")
def test_backward_in_single_precision(having, diagonal):
    exact = [make_group(size, 2, 8, 8, diagonal=diagonal, having=having) for size in SIZES]
    check_backward(Bench([to_dtype(part, torch.float32) for part in exact]), 1e-5)


@pytest.mark.parametrize("diagonal", [True, False])
def test_backward_touches_only_the_given_groups_and_heads(diagonal):
    x = bench(OPTIONS, diagonal=diagonal, heads=4, bias_heads=4)
    whole, _ = backward(x, 0, len(SIZES), 0, 4)
    for g0, g1, h0, h1 in [(1, 3, 0, 4), (0, 5, 1, 3), (4, 5, 3, 4)]:
        to, _ = backward(x, g0, g1, h0, h1)
        inside = torch.zeros(x.v.shape[:2], dtype=torch.bool)
        pairs = torch.zeros(x.bias.shape, dtype=torch.bool)
        nodes = torch.zeros(x.pos.shape[:2], dtype=torch.bool)
        for g in range(g0, g1):
            inside[x.members(g), h0:h1] = True
            pairs[x.pairs(g), h0:h1] = True
            nodes[x.node[0, x.at[g]], h0:h1] = True
            if diagonal:
                nodes[x.node[1, x.at[g]], h0:h1] = True
        for name, mine in [("q", inside), ("k", inside), ("v", inside), ("term", inside)]:
            assert torch.equal(to[name][mine], whole[name][mine]), name
            assert (to[name][~mine] == 7).all(), name
        assert torch.equal(to["bias"][pairs], whole["bias"][pairs])
        assert (to["bias"][~pairs] == 7).all()
        assert torch.equal(to["pos"][nodes], whole["pos"][nodes])
        assert (to["pos"][~nodes] == 0).all()


@pytest.mark.parametrize("diagonal", [True, False])
def test_backward_of_hidden_siblings(diagonal):
    """No nan, and no gradient through what is hidden."""
    x = bench(("bias",), diagonal=diagonal)
    hidden = [replace(part, bias=torch.full_like(part.bias, -torch.inf)) for part in x.parts]
    to, _ = backward(Bench(hidden), 0, len(SIZES), 0, 2)
    assert (to["bias"] == 0).all()
    assert all(to[name].isfinite().all() for name in ("q", "k", "v"))
    if not diagonal:
        assert all((to[name] == 0).all() for name in ("q", "k", "v"))
