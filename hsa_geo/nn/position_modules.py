r"""Embeddings of positions in one domain, for :class:`~hsa_geo.nn.PositionEmbedding`.

Each maps the positions of siblings to vectors e whose products ``e(B) . e(C)`` join the scores:
random Fourier features of coordinates, a learned table of places, and a linear map of encodings
of the vertices of a graph (Laplacian eigenvectors, random walks).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_positive, check_rows_module, is_size
from hsa_geo.ops.inputs import is_number

__all__ = ["FourierPosition", "GraphPosition", "LearnedPosition"]


class FourierPosition(nn.Module):
    r"""Random Fourier features of coordinates, with learnable length and strength.

    .. math::
        e(p) = \frac{g}{\sqrt{P/2}} \, [\cos(\Omega p / \ell), \sin(\Omega p / \ell)], \qquad
        e(p) \cdot e(p') \approx g^2 \exp(-|p - p'|^2 / 2 \ell^2)

    with :math:`\Omega` drawn once from a normal distribution.

    Args:
        coordinates (int): Number of coordinates, 1 for sequences, 2 for grids.
        channels (int): Number of features P, even. (default: :obj:`16`)
        heads (int): Number of heads, each with its own strength g. (default: :obj:`1`)
        length (float): Initial length :math:`\ell`, in units of position. (default: :obj:`4.0`)
        strength (float): Initial strength g. (default: :obj:`1.0`)

    Shapes:
        - **input:** positions :math:`(n, \ge \text{coordinates})`; further columns do not count
        - **output:** :math:`(n, H, P)`, float32 at least, under autocast too

    Raises:
        ShapeError: If ``channels`` is odd or the positions have too few coordinates.

    Example:
        >>> e = FourierPosition(1, channels=64)(torch.tensor([[0.0], [1.0], [50.0]]))[:, 0]
        >>> near, far = e[0] @ e[1], e[0] @ e[2]
        >>> bool(near > 0.5) and bool(near > far)
        True
    """

    frequency: Tensor

    def __init__(
        self,
        coordinates: int,
        channels: int = 16,
        heads: int = 1,
        length: float = 4.0,
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if not is_size(channels, 2) or channels % 2:
            raise ShapeError(
                f"channels={channels!r} must be even: cosines and sines come in pairs."
            )
        check_positive(heads=heads, coordinates=coordinates)
        for name, value in (("length", length), ("strength", strength)):
            if not is_number(value) or not 0 < value < math.inf:
                raise ShapeError(f"{name}={value!r} must be positive and finite.")
        self.coordinates, self.channels, self.heads = coordinates, channels, heads
        self.length, self.strength = length, strength
        self.register_buffer("frequency", torch.empty(coordinates, channels // 2))
        self.log_length = nn.Parameter(torch.empty(()))
        self.log_strength = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies anew and set length and strength to their initial values."""
        nn.init.normal_(self.frequency)
        for parameter, value in (
            (self.log_length, self.length),
            (self.log_strength, self.strength),
        ):
            nn.init.constant_(parameter, torch.tensor(value, device="cpu").log().item())

    def forward(self, position: Tensor) -> Tensor:
        """Embed positions ``[n, >= coordinates]`` as ``[n, H, P]``."""
        position = _coordinates(self, position, self.coordinates)
        # In float32 at least: a phase of a hundred turns has no digits left in half precision.
        wide = torch.promote_types(self.frequency.dtype, torch.float32)
        with torch.autocast(device_type=position.device.type, enabled=False):
            frequency = self.frequency.to(wide) / self.log_length.to(wide).exp()
            # No matrix product: torch.compile would compile one anew for few and for many rows.
            places = position.to(wide)
            phase = (places[:, :, None] * frequency).sum(1)  # [n, P/2]
            wave = torch.cat([phase.cos(), phase.sin()], -1) / (self.channels / 2) ** 0.5  # [n, P]
            return wave[:, None, :] * self.log_strength.to(wide).exp()[:, None]  # [n, H, P]

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.coordinates}, {self.channels}, heads={self.heads})"


class LearnedPosition(nn.Module):
    r"""A learned table of places: one vector for each place of a sequence or grid.

    Places are rounded coordinates.  A grid has a table for rows and one for columns, each with
    half of the features, so that ``e(p) . e(p')`` adds up what rows and columns say.

    Args:
        places (int): Number of places along each coordinate; a place beyond is an error.
        coordinates (int): 1 for sequences, 2 for grids. (default: :obj:`1`)
        channels (int): Number of features P, a multiple of ``coordinates``. (default: :obj:`16`)
        heads (int): Number of heads. (default: :obj:`1`)

    Shapes:
        - **input:** positions :math:`(n, \ge \text{coordinates})`; further columns do not count
        - **output:** :math:`(n, H, P)`

    Raises:
        ShapeError: If an argument is out of range, or a position is not among the places (inside
            ``torch.compile`` a ``RuntimeError`` says so).

    Example:
        >>> LearnedPosition(10, channels=8, heads=2)(torch.tensor([[0.0], [9.0]])).shape
        torch.Size([2, 2, 8])
    """

    def __init__(
        self, places: int, coordinates: int = 1, channels: int = 16, heads: int = 1
    ) -> None:
        super().__init__()
        check_positive(places=places, channels=channels, heads=heads)
        if not is_size(coordinates) or coordinates > 2:
            raise ShapeError(f"coordinates={coordinates!r}: give 1 for a sequence, 2 for a grid.")
        if channels < coordinates or channels % coordinates:
            raise ShapeError(
                f"channels={channels} must be a multiple of the {coordinates} coordinates."
            )
        self.places, self.coordinates = places, coordinates
        self.channels, self.heads = channels, heads
        width = channels // coordinates
        self.table = nn.Parameter(torch.empty(coordinates, places, heads, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew; products of two rows have a standard deviation of about 0.1."""
        nn.init.normal_(self.table, std=(0.1 / self.channels**0.5) ** 0.5)

    def forward(self, position: Tensor) -> Tensor:
        """Embed positions ``[n, >= coordinates]`` as ``[n, H, P]``."""
        place = _coordinates(self, position, self.coordinates).round().long()
        outside = (place < 0) | (place >= self.places)
        if torch.compiler.is_compiling():
            torch._assert_async(~outside.any(), "a position lies beyond the learned places")
        elif bool(outside.any()):
            raise ShapeError(
                f"a position is {int(place[outside][0])}, but the table has the places "
                f"0..{self.places - 1}: raise places, or use FourierPosition."
            )
        return torch.cat([table[at] for table, at in zip(self.table, place.unbind(1))], -1)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.places}, coordinates={self.coordinates}, "
            f"channels={self.channels}, heads={self.heads})"
        )


class GraphPosition(nn.Module):
    r"""A linear map of the encodings of a graph's vertices (``tree_pe``), for a ``GRAPH`` domain.

    :class:`~hsa_geo.transforms.AddTreePE` computes such encodings from the links among siblings:
    features of random walks, or eigenvectors of the Laplacian.  The latter have no sign of their
    own; with ``flip_signs`` each call in training draws one for every feature, so that a model
    does not learn any.

    Args:
        in_channels (int): Number of encodings K, the width of ``tree_pe``.
        channels (int): Number of features P. (default: :obj:`16`)
        heads (int): Number of heads. (default: :obj:`1`)
        flip_signs (bool): Draw the signs of the encodings in training. (default: :obj:`False`)

    Shapes:
        - **input:** encodings :math:`(n, K)`
        - **output:** :math:`(n, H, P)`

    Raises:
        ShapeError: If the encodings have another width.

    Example:
        >>> GraphPosition(4, channels=8, heads=2)(torch.randn(5, 4)).shape
        torch.Size([5, 2, 8])
    """

    #: What :class:`~hsa_geo.nn.PositionEmbedding` gives to the module.
    reads = "tree_pe"

    def __init__(
        self, in_channels: int, channels: int = 16, heads: int = 1, flip_signs: bool = False
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, channels=channels, heads=heads)
        self.in_channels, self.channels, self.heads = in_channels, channels, heads
        self.flip_signs = flip_signs
        self.lin = nn.Linear(in_channels, heads * channels, bias=False)

    def reset_parameters(self) -> None:
        """Draw the map anew."""
        self.lin.reset_parameters()

    def forward(self, encoding: Tensor) -> Tensor:
        """Embed encodings ``[n, K]`` as ``[n, H, P]``."""
        check_rows_module(self, encoding, f"encodings [n, {self.in_channels}]")
        if encoding.dim() != 2 or encoding.size(1) != self.in_channels:
            raise ShapeError(
                f"tree_pe has shape {list(encoding.shape)}: this layer was made for "
                f"[M, {self.in_channels}]."
            )
        x = encoding.to(self.lin.weight.dtype)
        if self.flip_signs and self.training:
            x = x * (2 * torch.randint(0, 2, (x.size(1),), device=x.device) - 1).to(x.dtype)
        return self.lin(x).view(-1, self.heads, self.channels)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.channels}, heads={self.heads})"


def _coordinates(module: nn.Module, position: Tensor, needed: int) -> Tensor:
    """The first columns of positions ``[n, >= needed]``."""
    check_rows_module(module, position, f"positions [n, {needed}]")
    if position.dim() != 2 or position.size(1) < needed:
        raise ShapeError(
            f"position has shape {list(position.shape)}: give [n, {needed}] or more columns."
        )
    return position[:, :needed]
