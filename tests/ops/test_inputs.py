"""What the operations accept and refuse: every refusal is typed and quotes the value."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from hsa_geo.data import SignalTree
from hsa_geo.errors import HSAError, ShapeError, UnsupportedError
from hsa_geo.ops import attention_matrix, attention_weights, hsa_attention, tree_energy
from hsa_geo.ops.inputs import as_plan, check_features, check_inputs, dropout_mask

TREE = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])  # N = 4, M = 7, 6 pairs
H, D = 2, 3


def good() -> dict:
    return {name: torch.randn(4, H, D) for name in ("q", "k", "v")} | {"tree": TREE}


REFUSED = [
    ({"q": torch.randn(4, D)}, ShapeError, "q has shape [4, 3]"),
    ({"q": torch.randn(4)}, ShapeError, "q has shape [4]"),
    ({"q": torch.randn(5, H, D)}, ShapeError, "q has shape [5, 2, 3]"),
    ({"q": torch.randn(4, H, D + 1)}, ShapeError, "q [4, 2, 4]"),
    ({"q": torch.randn(4, 1, D)}, ShapeError, "k has shape [4, 2, 3] but q [4, 1, 3]"),
    ({"q": torch.ones(4, H, D).long()}, ShapeError, "torch.int64"),
    ({"q": torch.randn(4, H, D, dtype=torch.complex64)}, ShapeError, "torch.complex64"),
    ({"q": np.ones((4, H, D))}, ShapeError, "q is a ndarray"),
    ({"k": torch.randn(3, H, D)}, ShapeError, "k has shape [3, 2, 3]"),
    ({"k": torch.ones(4, H, D).bool()}, ShapeError, "torch.bool"),
    ({"v": torch.randn(7, H, D)}, ShapeError, "v has shape [7, 2, 3]"),
    ({"v": torch.randn(4, H + 1, D)}, ShapeError, "v has 3 heads but q 2"),
    ({"v": torch.ones(4, H, D).int()}, ShapeError, "torch.int32"),
    ({"v": torch.randn(4, H, D, device="meta")}, ShapeError, "v is on meta"),
    ({"pos": torch.randn(4, H, D)}, ShapeError, "pos has shape [4, 2, 3]"),
    ({"pos": torch.randn(7, D)}, ShapeError, "pos has shape [7, 3]"),
    ({"pos": torch.randn(7, 3, D)}, ShapeError, "pos has shape [7, 3, 3]"),
    ({"pos": torch.ones(7, 1, D).long()}, ShapeError, "pos has dtype torch.int64"),
    ({"bias": torch.randn(6)}, ShapeError, "bias has shape [6]"),
    ({"bias": torch.randn(5, H)}, ShapeError, "bias has shape [5, 2]"),
    ({"bias": torch.randn(7, 1)}, ShapeError, "bias has shape [7, 1]"),
    ({"bias": torch.randn(6, 3)}, ShapeError, "bias has shape [6, 3]"),
    ({"bias": torch.ones(6, H).bool()}, ShapeError, "bias has dtype torch.bool"),
    ({"energy": "cosine"}, ShapeError, "energy='cosine'"),
    ({"backend": "cuda"}, ShapeError, "backend='cuda'"),
    ({"scale": float("nan")}, ShapeError, "scale=nan"),
    ({"scale": torch.ones((), requires_grad=True)}, ShapeError, "scale=tensor"),
    ({"scale": "big"}, ShapeError, "scale='big'"),
    ({"causal": True}, UnsupportedError, "causal=True"),
    ({"tie": "query"}, UnsupportedError, "tie='query'"),
    ({"reach_bias": torch.zeros(8, 1)}, UnsupportedError, "reach_bias is given with tie='block'"),
    (
        {"reach_bias": torch.zeros(7, 1), "tie": "key"},
        ShapeError,
        "reach_bias has shape [7, 1]: give [Q, H or 1] with 8 pairs",
    ),
    ({"tree": None}, ShapeError, "NoneType"),
    ({"tree": torch.zeros(2, 6).long()}, ShapeError, "Tensor"),
    ({"tree": Data(x=torch.randn(4, 2))}, ShapeError, "Data"),
    ({"dropout": 1.5}, ShapeError, "dropout=1.5"),
    ({"dropout": -0.1}, ShapeError, "dropout=-0.1"),
    ({"dropout": float("nan")}, ShapeError, "dropout=nan"),
    ({"dropout": "0.1"}, ShapeError, "dropout='0.1'"),
    ({"dropout": None}, ShapeError, "dropout=None"),
    ({"scale": np.float32("inf")}, ShapeError, "scale="),
]


@pytest.mark.parametrize(("change", "error", "quote"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refusals(change, error, quote):
    with pytest.raises(error) as caught:
        hsa_attention(**good() | change)
    assert quote in str(caught.value)
    assert isinstance(caught.value, HSAError)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64, int])
def test_numbers_of_numpy_are_numbers(number):
    given = good()
    expected = hsa_attention(**given, scale=2.0)
    assert torch.equal(hsa_attention(**given, scale=number(2), dropout=number(0)), expected)


@pytest.mark.parametrize("backend", ["edge", "block"])
def test_an_infinite_bias_is_not_hidden(backend):
    """+inf is no score: nan at the leaves below that node, nowhere else."""
    bias = torch.zeros(6, 1)
    bias[0] = torch.inf
    out = hsa_attention(**good() | {"bias": bias, "backend": backend})
    assert out[0].isnan().all()
    assert out[2:].isfinite().all()


def test_unsupported_is_a_not_implemented_error():
    with pytest.raises(NotImplementedError, match="use causal=False"):
        hsa_attention(**good(), causal=True)


@pytest.mark.parametrize("function", [attention_matrix, attention_weights, tree_energy])
def test_the_other_operations_refuse_too(function):
    q = torch.randn(4, H, D)
    with pytest.raises(ShapeError, match="k has shape"):
        function(q, torch.randn(3, H, D), TREE)
    with pytest.raises(ShapeError, match="l3"):
        function(q, q, TREE, energy="l3")
    with pytest.raises(UnsupportedError, match="tie='query'"):
        function(q, q, TREE, tie="query")
    with pytest.raises(TypeError, match="color"):
        function(q, q, TREE, color="red")


@pytest.mark.parametrize("rows", [(5, 4), (6, 3)])
def test_a_given_mask_must_fit(rows):
    q = torch.randn(4, H, D)
    mask = (torch.ones(rows[0], H), torch.ones(rows[1], H))
    with pytest.raises(ShapeError, match=str(rows[0])):
        attention_weights(q, q, TREE, mask=mask)


def test_a_tree_without_a_tree():
    with pytest.raises(HSAError, match="tree_index"):
        hsa_attention(**good() | {"tree": SignalTree()})


def test_what_is_a_plan():
    batch = Batch.from_data_list([TREE, TREE])
    assert as_plan(TREE) is TREE.plan
    assert as_plan(batch) is batch.plan
    assert as_plan(batch.plan) is batch.plan
    assert batch.plan.num_trees == 2


def test_every_kind_of_tree_gives_the_same():
    q, k, v = torch.randn(3, 4, H, D)
    out = hsa_attention(q, k, v, TREE)
    assert torch.equal(hsa_attention(q, k, v, TREE.plan), out)
    assert torch.equal(hsa_attention(q, k, v, Batch.from_data_list([TREE])), out)


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        ({}, torch.float32),
        ({"q": torch.float64}, torch.float64),
        ({"v": torch.float64}, torch.float64),
        ({"pos": torch.float64}, torch.float64),
        ({"bias": torch.float64}, torch.float64),
        ({"q": torch.float16, "k": torch.bfloat16, "v": torch.float16}, torch.float32),
    ],
)
def test_dtype_of_the_computation(given, computed):
    tensors = good() | {"pos": torch.randn(7, 1, 2), "bias": torch.randn(6, 1)}
    tensors |= {name: tensors[name].to(dtype) for name, dtype in given.items()}
    inputs = check_inputs(**tensors)
    for t in (inputs.query, inputs.key, inputs.value, inputs.pos, inputs.bias):
        assert t.dtype == computed
    out = hsa_attention(**tensors)
    assert out.dtype == tensors["v"].dtype


def test_the_default_scale_and_no_width():
    assert check_inputs(**good()).scale == pytest.approx(D**-0.5)
    assert check_inputs(**good(), scale=2).scale == 2.0
    flat = torch.randn(4, H, 0)
    out = hsa_attention(flat, flat, torch.ones(4, H, 1), TREE)  # no scores at all
    assert torch.allclose(out, torch.ones(4, H, 1))


def test_dropout_mask():
    plan = TREE.plan
    assert dropout_mask(plan, H, 0.0, torch.zeros(1)) is None
    torch.manual_seed(0)
    batch = Batch.from_data_list([TREE] * 2000).plan
    for part in dropout_mask(batch, H, 0.25, torch.zeros(1, dtype=torch.float64)):
        assert part.dtype == torch.float64
        assert set(part.unique().tolist()) == {0.0, 1 / 0.75}
        assert abs((part == 0).double().mean() - 0.25) < 0.02
    half = dropout_mask(plan, H, 0.5, torch.zeros(1, dtype=torch.bfloat16))
    assert half[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("x", "quote"),
    [
        (torch.randn(3, 5), "[3, 5]"),
        (torch.randn(7, 5), "[7, 5]"),
        (torch.randn(4), "[4]"),
        (torch.randn(4, 6), "[4, 6]"),
        (torch.ones(4, 5).long(), "torch.int64"),
        ([[1.0]], "list"),
    ],
)
def test_features_that_do_not_fit(x, quote):
    with pytest.raises(ShapeError) as caught:
        check_features(x, TREE.plan, 5)
    assert quote in str(caught.value)
    check_features(torch.randn(4, 9), TREE.plan, -1)


def forest() -> Batch:
    return Batch.from_data_list([TREE, SignalTree.from_parents([-1]), TREE])


@pytest.mark.parametrize("backend", ["edge", "block"])
@pytest.mark.parametrize("energy", ["dot", "l2"])
@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_what_one_tree_holds_does_not_reach_another(backend, energy, name, value):
    batch = forest()
    given = {name: torch.randn(9, H, D) for name in ("q", "k", "v")}
    expected = hsa_attention(**given, tree=batch, energy=energy, backend=backend)
    given[name] = given[name].clone()
    given[name][2] = value
    given = {name: t.requires_grad_() for name, t in given.items()}
    out = hsa_attention(**given, tree=batch, energy=energy, backend=backend)
    torch.testing.assert_close(out[4:], expected[4:])
    out[4:].sum().backward()
    assert all(t.grad[4:].isfinite().all() for t in given.values())


def test_l2_is_computed_around_the_keys_of_each_tree():
    batch = forest()
    q, k = torch.randn(2, 9, H, D)
    shift = torch.tensor([1e5, 0.0, -1e5])[batch.batch][:, None, None]
    inputs = check_inputs(q + shift, k + shift, None, batch, energy="l2")
    assert inputs.key.abs().max() < 10
    means = inputs.key.new_zeros(3, H, D).index_add_(0, batch.batch, inputs.key)
    torch.testing.assert_close(means, torch.zeros_like(means), atol=0.2, rtol=0)


def test_dropout_is_refused_where_it_would_be_ignored():
    q = torch.randn(4, H, D)
    for function in (attention_matrix, attention_weights, tree_energy):
        with pytest.raises(UnsupportedError, match=r"dropout=0\.5"):
            function(q, q, TREE, dropout=0.5)
        function(q, q, TREE, dropout=0.0)
    with pytest.raises(UnsupportedError, match="mask="):
        tree_energy(q, q, TREE, mask=(torch.zeros(6, H), torch.zeros(4, H)))
