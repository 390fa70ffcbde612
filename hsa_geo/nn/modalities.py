"""Encoders of one modality each: the rows of ``{m}_x`` become vectors of one width.

Every encoder maps the rows ``[n, ...]`` of its modality to ``[n, channels]`` and takes ``n = 0``;
:class:`~hsa_geo.nn.LeafFeatures` puts the vectors on their leaves.  Its ``config`` holds what the
constructor was told, as JSON, so that a model can be saved with its encoders.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.errors import ShapeError
from hsa_geo.nn.checks import check_positive, check_share
from hsa_geo.nn.tokens import TokenEncoder
from hsa_geo.nn.word_tables import Symbols, WordEmbedding

__all__ = [
    "FrozenModule",
    "LinearFeatures",
    "PatchConv",
    "encoder_from",
    "encoder_spec",
]


class LinearFeatures(nn.Module):
    """Ready features, such as those of a pretrained model, through a linear layer.

    Features are stored in any floating point dtype (float16 saves space) and computed with in
    that of the layer.

    Args:
        in_channels (int): Width of the features.
        channels (int): Width of the output.
        norm (bool): LayerNorm of the features first, without parameters.
            (default: :obj:`False`)
        dropout (float): Dropout of single features. (default: :obj:`0.0`)

    Shapes:
        - **input:** :math:`(n, F_{in})`
        - **output:** :math:`(n, C)`

    Raises:
        ShapeError: If an argument is out of range, or the features have another width or are no
            floating point numbers.

    Example:
        >>> LinearFeatures(384, 8, norm=True)(torch.randn(5, 384).half()).shape
        torch.Size([5, 8])
    """

    def __init__(
        self, in_channels: int, channels: int, norm: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, channels=channels)
        check_share(dropout=dropout)
        self.in_channels, self.channels = in_channels, channels
        self.config: dict[str, Any] = {
            "in_channels": in_channels,
            "channels": channels,
            "norm": norm,
            "dropout": dropout,
        }
        self.norm = nn.LayerNorm(in_channels, elementwise_affine=False) if norm else None
        self.dropout = nn.Dropout(dropout)
        self.lin = nn.Linear(in_channels, channels)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.lin.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Project features ``[n, in_channels]`` to ``[n, channels]``."""
        if x.dim() != 2 or x.size(1) != self.in_channels or not x.is_floating_point():
            raise ShapeError(
                f"features have shape {list(x.shape)} and dtype {x.dtype}: give floating point "
                f"[n, {self.in_channels}]."
            )
        x = x.to(self.lin.weight.dtype)
        if self.norm is not None:
            x = self.norm(x)
        return self.lin(self.dropout(x))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.channels})"


class PatchConv(nn.Module):
    r"""Patches of pictures through two convolutions and a linear layer.

    The convolutions (3 x 3, the second with stride 2, each followed by a GELU) keep where in the
    patch something is, down to half its resolution; the linear layer reads all of that.

    Args:
        patch (int): Side p of a patch in pixels.
        channels (int): Width of the output.
        hidden_channels (int): Width of the convolutions. (default: :obj:`16`)

    Shapes:
        - **input:** uint8 :math:`(n, 3 p^2)`, channel first, as
          :func:`~hsa_geo.builders.from_image` makes ``image_x``
        - **output:** :math:`(n, C)`

    Raises:
        ShapeError: If an argument is not positive, or the patches have another size or dtype.

    Example:
        >>> PatchConv(8, 16)(torch.zeros(5, 3 * 8 * 8, dtype=torch.uint8)).shape
        torch.Size([5, 16])
    """

    def __init__(self, patch: int, channels: int, hidden_channels: int = 16) -> None:
        super().__init__()
        check_positive(patch=patch, channels=channels, hidden_channels=hidden_channels)
        self.patch, self.channels = patch, channels
        self.config: dict[str, Any] = {
            "patch": patch,
            "channels": channels,
            "hidden_channels": hidden_channels,
        }
        half = -(-patch // 2)
        self.first = nn.Conv2d(3, hidden_channels, 3, padding=1)
        self.second = nn.Conv2d(hidden_channels, hidden_channels, 3, stride=2, padding=1)
        self.lin = nn.Linear(hidden_channels * half * half, channels)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for module in self.children():
            reset(module)

    def forward(self, x: Tensor) -> Tensor:
        """Embed patches ``[n, 3 * patch * patch]`` as ``[n, channels]``."""
        if x.dim() != 2 or x.size(1) != 3 * self.patch**2 or x.dtype != torch.uint8:
            raise ShapeError(
                f"patches have shape {list(x.shape)} and dtype {x.dtype}: give uint8 "
                f"[n, {3 * self.patch**2}], three channels of {self.patch} x {self.patch} pixels "
                f"(from_image(patch_size={self.patch}))."
            )
        cells = x.view(-1, 3, self.patch, self.patch).to(self.lin.weight.dtype)
        cells = cells / 127.5 - 1  # [n, 3, p, p] from -1 to 1
        if cells.size(0) == 0:  # convolutions differ between versions in what they say to none
            return self.lin(cells.new_zeros(0, self.lin.in_features))
        cells = nn.functional.gelu(self.second(nn.functional.gelu(self.first(cells))))
        return self.lin(cells.flatten(1))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.patch}, {self.channels})"


class FrozenModule(nn.Module):
    """A pretrained module that stays as it is: evaluation mode, no gradient into or through it.

    Args:
        module (torch.nn.Module): The module.

    Shapes:
        - as those of the module

    Example:
        >>> frozen = FrozenModule(nn.Linear(4, 6))
        >>> encoder = nn.Sequential(frozen, LinearFeatures(6, 8)).train()
        >>> encoder(torch.randn(2, 4)).shape, frozen.module.training
        (torch.Size([2, 8]), False)
        >>> sum(p.requires_grad for p in encoder.parameters())
        2
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of the wrapper; the module stays in evaluation mode."""
        super().train(mode)
        self.module.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Changes nothing: frozen is frozen."""
        return self

    def reset_parameters(self) -> None:
        """Changes nothing: the parameters are given."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module says, without gradient."""
        with torch.no_grad():
            return self.module(*args, **kwargs)


def encoder_spec(module: nn.Module) -> dict[str, Any] | None:
    """What makes an encoder again, as JSON; None for a module that is not one of hsa_geo.

    Args:
        module: The encoder.

    Returns:
        Its class and ``config``, or None.

    Example:
        >>> encoder_spec(Symbols(3, 8))
        {'class': 'Symbols', 'config': {'num': 3, 'channels': 8}}
        >>> encoder_spec(nn.Linear(3, 8)) is None
        True
    """
    name = type(module).__name__
    if _ENCODERS.get(name) is not type(module):
        return None
    return {"class": name, "config": module.config}


def encoder_from(spec: dict[str, Any]) -> nn.Module:
    """The encoder that :func:`encoder_spec` described, its parameters drawn anew.

    Args:
        spec: The description.

    Returns:
        The encoder.

    Raises:
        KeyError: If there is no encoder of this class.

    Example:
        >>> encoder_from({"class": "Symbols", "config": {"num": 3, "channels": 8}})
        Symbols(3, 8)
    """
    cls = _ENCODERS[spec["class"]]
    if cls is WordEmbedding:
        return WordEmbedding.from_config(spec["config"])
    return cls(**spec["config"])


_ENCODERS: dict[str, type[nn.Module]] = {
    cls.__name__: cls for cls in (LinearFeatures, PatchConv, Symbols, TokenEncoder, WordEmbedding)
}
