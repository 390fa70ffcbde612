"""Layers by name."""

from __future__ import annotations

import pytest

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import (
    AncestorBias,
    DeepSetConv,
    FlatConv,
    HSAConv,
    HSAEncoder,
    LeafConv,
    PathPosition,
    PositionEmbedding,
    ReadingOrder,
)
from hsa_geo.nn.attentions import ATTENTIONS, encoder_options

CLASSES = {"hsa": HSAConv, "flat": FlatConv, "deep_set": DeepSetConv, "none": LeafConv}


def layer(attention: str, position_channels: int | None = None, structure: bool = False, **options):
    arguments = encoder_options(attention, 16, 2, position_channels, structure, **options)
    first, second = HSAEncoder(16, 2, heads=2, dropout=0.3, **arguments).blocks
    assert first.conv is not second.conv
    return first.conv


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("structure", [False, True])
def test_layers(attention, structure):
    conv = layer(attention, structure=structure)
    assert type(conv) is CLASSES[attention]
    assert (conv.heads, conv.out_channels) == (2, 8)
    assert getattr(conv, "dropout", 0.0) == 0.0  # of attention, not that of the residuals


def test_positions():
    assert isinstance(layer("hsa").position, PositionEmbedding)
    assert isinstance(layer("hsa", structure=True).position, PositionEmbedding)
    assert layer("hsa", 0).position is None
    flat = layer("flat")
    assert isinstance(flat.position, ReadingOrder)
    assert (flat.position.channels, flat.pair_bias) == (16, None)
    assert layer("flat", 8).position.channels == 8
    assert layer("flat", 0).position is None
    for channels, wide in ((8, 8), (None, 32), (48, 48)):
        told = layer("flat", channels, structure=True)
        assert isinstance(told.position, PathPosition)
        assert told.position.channels == wide
        assert isinstance(told.pair_bias, AncestorBias)


def test_options():
    hsa = layer("hsa", energy="l2", values="keys", backend="block", attention_dropout=0.1)
    assert (hsa.energy, hsa.values, hsa.backend, hsa.dropout) == ("l2", "keys", "block", 0.1)
    flat = layer("flat", energy="l2", values="keys", qk_norm=True, attention_dropout=0.1)
    assert (flat.energy, flat.values, flat.dropout) == ("l2", "keys", 0.1)
    assert flat.norm_q is not None


@pytest.mark.parametrize("attention", ["deep_set", "none"])
@pytest.mark.parametrize("option", [{"energy": "l2"}, {"values": "keys"}, {"qk_norm": True}])
def test_options_without_meaning(attention, option):
    with pytest.raises(UnsupportedError, match=rf"no meaning for attention='{attention}'.*flat"):
        layer(attention, **option)


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="backend='block' has no meaning"):
        layer("flat", backend="block")
    with pytest.raises(UnsupportedError, match="causal=True is no option"):
        layer("hsa", causal=True)
    with pytest.raises(ShapeError, match=r"attention=\['hsa'\] is unknown"):
        encoder_options(["hsa"], 16, 2)
    with pytest.raises(ShapeError, match="channels=16 is not a multiple of heads=3"):
        encoder_options("none", 16, 3)
    with pytest.raises(UnsupportedError, match="position_channels=0 leaves no features"):
        layer("flat", 0, structure=True)


@pytest.mark.parametrize("attention", ["deep_set", "none"])
def test_positions_without_meaning(attention):
    assert type(layer(attention, 0)) is CLASSES[attention]
    with pytest.raises(UnsupportedError, match=f"no meaning for attention='{attention}'"):
        layer(attention, 8)
