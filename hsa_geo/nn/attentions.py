"""The layers that a model can be built of, by name: one attention and its baselines."""

from __future__ import annotations

from typing import Any

from torch import nn

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn.ancestor_bias import AncestorBias
from hsa_geo.nn.checks import check_multiple
from hsa_geo.nn.deep_set import DeepSetConv
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.leaf_conv import LeafConv
from hsa_geo.nn.position import ReadingOrder
from hsa_geo.nn.structure import PathPosition

__all__ = ["ATTENTIONS", "encoder_options"]

#: Names of layers, for :func:`encoder_options`.
ATTENTIONS = ("hsa", "flat", "deep_set", "none")

#: Options of attention, what they are by default, and who knows them.
_OPTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "energy": ("dot", ("hsa", "flat")),
    "qk_norm": (False, ("hsa", "flat")),
    "values": ("own", ("hsa", "flat")),
    "attention_dropout": (0.0, ("hsa", "flat")),
    "backend": ("auto", ("hsa",)),
    "tie": ("block", ("hsa",)),
}


def encoder_options(
    attention: str,
    channels: int,
    heads: int,
    position_channels: int | None = None,
    structure: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Arguments of :class:`~hsa_geo.nn.HSAEncoder` for blocks around a kind of layer.

    Args:
        attention: ``"hsa"``; ``"flat"``, softmax attention among all leaves of a tree;
            ``"deep_set"``, which pools them; or ``"none"``, in which no leaf sees another.
        channels: Width, a multiple of ``heads``.
        heads: Number of heads.
        position_channels: Features of the position embeddings, 0 for none: places among siblings
            for HSA, the reading order for flat attention.
            (default: 16, or 32 for the paths of ``structure``)
        structure: Flat attention scores by the paths of leaves
            (:class:`~hsa_geo.nn.PathPosition`, in place of the reading order, which it contains)
            and by the way between them (:class:`~hsa_geo.nn.AncestorBias`).
            (default: :obj:`False`)
        **options: ``energy``, ``qk_norm``, ``values``, ``attention_dropout`` (default: ``0.0``) of
            HSA and flat attention, ``backend`` and ``tie`` of HSA.

    Returns:
        The arguments.

    Raises:
        ShapeError: If ``attention`` is unknown, or ``channels`` is not a multiple of ``heads``.
        UnsupportedError: If an option is unknown, or not one of this attention; if there are to be
            positions where leaves do not see one another, or paths of no features.

    Example:
        >>> from hsa_geo.nn import HSAEncoder
        >>> encoder = HSAEncoder(16, 1, heads=2, **encoder_options("deep_set", 16, 2))
        >>> encoder.blocks[0].conv
        DeepSetConv(16, 8, heads=2)
    """
    if attention not in ATTENTIONS:
        raise ShapeError(f"attention={attention!r} is unknown: use one of {ATTENTIONS}.")
    check_multiple(channels, heads)
    for name, value in options.items():
        if name not in _OPTIONS:
            raise UnsupportedError(f"{name}={value!r} is no option: those are {sorted(_OPTIONS)}.")
        default, known = _OPTIONS[name]
        if attention not in known and value != default:
            raise UnsupportedError(
                f"{name}={value!r} has no meaning for attention={attention!r}: leave it out, or "
                f"use one of {known}."
            )
    if attention not in ("hsa", "flat") and position_channels:
        raise UnsupportedError(
            f"position_channels={position_channels} has no meaning for attention={attention!r}, "
            "which knows no positions: leave it out."
        )
    paths = structure and attention == "flat"
    if paths and position_channels == 0:
        raise UnsupportedError(
            "structure=True tells flat attention the paths of leaves, and position_channels=0 "
            "leaves no features for them: give a positive number, or leave it out."
        )
    if position_channels is None:
        position_channels = 32 if paths else 16
    given = {name: default for name, (default, _) in _OPTIONS.items()} | options
    if attention == "hsa":
        return {"position_channels": position_channels, **given}
    width = channels // heads

    def flat() -> nn.Module:
        position: nn.Module | None = None
        if structure:
            position = PathPosition(position_channels, heads)
        elif position_channels:
            position = ReadingOrder(position_channels, heads)
        return FlatConv(
            channels,
            width,
            heads,
            dropout=given["attention_dropout"],
            position=position,
            pair_bias=AncestorBias(heads) if structure else None,
            qk_norm=given["qk_norm"],
            energy=given["energy"],
            values=given["values"],
        )

    makers = {
        "flat": flat,
        "deep_set": lambda: DeepSetConv(channels, width, heads),
        "none": lambda: LeafConv(channels, width, heads),
    }
    return {"conv": makers[attention]}
