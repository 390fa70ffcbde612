"""Embeddings of positions in one domain."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hsa_geo.errors import ShapeError
from hsa_geo.nn import FourierPosition, GraphPosition, LearnedPosition


@pytest.mark.parametrize("coordinates", [1, 2])
def test_products_depend_on_the_offset_alone(coordinates):
    torch.manual_seed(0)
    embed = FourierPosition(coordinates, channels=32, heads=2, length=3.0, strength=1.5).double()
    p = torch.randn(6, coordinates, dtype=torch.float64) * 5
    products = torch.einsum("ihp,jhp->hij", embed(p), embed(p))
    shifted = torch.einsum("ihp,jhp->hij", embed(p + 100), embed(p + 100))
    assert torch.allclose(products, shifted, atol=1e-10)
    assert torch.allclose(products.diagonal(dim1=1, dim2=2), torch.tensor(1.5**2).double())


def test_products_approach_a_gaussian_of_the_offset():
    """g^2 exp(-|p - p'|^2 / 2 l^2), up to the chance in the frequencies."""
    torch.manual_seed(0)
    embed = FourierPosition(2, channels=20_000, length=2.0, strength=1.3)
    p = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, -1.0], [8.0, 8.0]])
    e = embed(p)[:, 0]
    distance = (p[:, None] - p[None]).square().sum(-1)
    assert torch.allclose(e @ e.t(), 1.69 * (-distance / 8).exp(), atol=0.05)


def test_length_and_strength_are_learned():
    embed = FourierPosition(1, channels=8, heads=3)
    e = embed(torch.tensor([[0.0], [2.0], [5.0]]))
    assert e.shape == (3, 3, 8)
    torch.einsum("ihp,jhp->hij", e, e).square().sum().backward()
    assert {name for name, _ in embed.named_parameters()} == {"log_length", "log_strength"}
    assert embed.log_length.grad.abs() > 0
    assert embed.log_strength.grad.shape == (3,)
    assert (embed.log_strength.grad.abs() > 0).all()


def test_further_columns_do_not_count():
    embed = FourierPosition(1, channels=8)
    p = torch.randn(4, 2)
    assert torch.equal(embed(p), embed(p[:, :1]))


def test_reset_and_state():
    embed = FourierPosition(1, channels=8, length=3.0, strength=2.0)
    nn.init.zeros_(embed.log_length)
    frequency = embed.frequency.clone()
    embed.reset_parameters()
    assert embed.log_length.exp().item() == pytest.approx(3.0)
    assert embed.log_strength.exp().item() == pytest.approx(2.0)
    assert not torch.equal(embed.frequency, frequency)
    other = FourierPosition(1, channels=8)
    other.load_state_dict(embed.state_dict())  # the frequencies belong to it
    p = torch.randn(3, 1)
    assert torch.equal(other(p), embed(p))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_large_positions_in_half_precision(dtype):
    """bfloat16 cannot tell position 1000 from 1001; phases are computed in float32."""
    embed = FourierPosition(1, channels=16, length=2.0).to(dtype)
    p = torch.tensor([[1000.0], [1001.0], [1007.0]])
    e = embed(p)[:, 0]
    assert e.dtype == torch.float32
    exact = embed.double()(p.double())[:, 0]
    assert torch.allclose((e @ e.t()).double(), exact @ exact.t(), atol=1e-3)
    assert not torch.allclose(e[0], e[1], atol=0.05)


def test_autocast_does_not_reach_the_phases():
    embed = FourierPosition(1, channels=16, length=2.0)
    p = torch.tensor([[1000.0], [1001.0], [1007.0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        e = embed(p)
    assert torch.equal(e, embed(p))


@pytest.mark.parametrize(
    ("call", "quote"),
    [
        (lambda: FourierPosition(1, channels=7), "channels=7"),
        (lambda: FourierPosition(1, channels=0), "channels=0"),
        (lambda: FourierPosition(1, length=0.0), "length=0.0"),
        (lambda: FourierPosition(1, strength=-1.0), "strength=-1.0"),
        (lambda: FourierPosition(2)(torch.randn(3, 1)), r"\[3, 1\]"),
        (lambda: FourierPosition(1)(torch.randn(3)), r"\[3\]"),
    ],
)
def test_what_fourier_position_refuses(call, quote):
    with pytest.raises(ShapeError, match=quote):
        call()


# LearnedPosition #################################################################################


def test_a_place_has_a_vector_of_its_own():
    embed = LearnedPosition(5, channels=8, heads=3)
    places = torch.arange(5.0)[:, None]
    e = embed(places)
    assert e.shape == (5, 3, 8)
    assert torch.equal(e, embed.table[0])
    assert torch.equal(embed(places + 0.2), e)  # rounded
    assert torch.equal(embed(torch.cat([places, places + 9], 1)), e)  # further columns
    e[3].sum().backward()
    assert (embed.table.grad[0].abs().sum((1, 2)) > 0).tolist() == [False] * 3 + [True, False]


def test_rows_and_columns_of_a_grid_add_up():
    embed = LearnedPosition(4, coordinates=2, channels=6, heads=2)
    cells = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    e = embed(cells)
    products = torch.einsum("ihp,jhp->hij", e, e).view(2, 4, 4, 4, 4)
    rows = torch.einsum("ihp,jhp->hij", embed.table[0], embed.table[0])
    columns = torch.einsum("ihp,jhp->hij", embed.table[1], embed.table[1])
    expected = rows[:, :, None, :, None] + columns[:, None, :, None, :]
    assert torch.allclose(products, expected, atol=1e-6)


def test_places_beyond_the_table_are_refused():
    embed = LearnedPosition(5)
    for place in (5, -1):
        with pytest.raises(ShapeError, match=rf"{place}, but the table has the places 0..4"):
            embed(torch.tensor([[0.0], [place]]))
    with pytest.raises(ShapeError, match=r"\[2\]"):
        embed(torch.zeros(2))
    for bad in ({"places": 0}, {"places": 2, "heads": 0}, {"places": 2, "coordinates": 3}):
        with pytest.raises(ShapeError):
            LearnedPosition(**bad)
    with pytest.raises(ShapeError, match="channels=7"):
        LearnedPosition(3, coordinates=2, channels=7)


# GraphPosition ###################################################################################


def test_encodings_are_mapped():
    embed = GraphPosition(3, channels=4, heads=2)
    pe = torch.randn(5, 3)
    assert torch.allclose(embed(pe).flatten(1), pe @ embed.lin.weight.t())
    with pytest.raises(ShapeError, match=r"\[5, 2\].*\[M, 3\]"):
        embed(pe[:, :2])
    with pytest.raises(ShapeError, match="in_channels=0"):
        GraphPosition(0)


def test_signs_are_drawn_in_training():
    torch.manual_seed(0)
    embed = GraphPosition(1, channels=4, flip_signs=True)
    pe = torch.randn(5, 1)
    seen = {bool(torch.equal(embed(pe), -embed.eval()(pe))) for _ in range(20) if embed.train()}
    assert seen == {True, False}
    embed.eval()
    assert torch.equal(embed(pe), embed(pe))
    products = torch.einsum("ihp,jhp->hij", embed(pe), embed(pe))
    embed.train()
    flipped = embed(pe)  # one sign for all rows, so that products stay
    assert torch.allclose(torch.einsum("ihp,jhp->hij", flipped, flipped), products)
