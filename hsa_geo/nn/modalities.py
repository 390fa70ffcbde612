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

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn.tokens import TokenEncoder

__all__ = [
    "FrozenModule",
    "LinearFeatures",
    "PatchConv",
    "Symbols",
    "WordEmbedding",
    "encoder_from",
    "encoder_spec",
]


class WordEmbedding(nn.Module):
    """Words by their number, from a given table of vectors and a projection, or learned.

    A dropped word is one without a vector: its row of the table is read as zero.

    Args:
        num_words (int): Number of words; ids are ``0..num_words-1``.
        channels (int): Width of the output.
        table (Tensor, optional): Vectors of all words ``[num_words, F]``, such as GloVe, kept in
            their dtype and followed by a learned linear layer.  Without, the words' vectors of
            the width itself are learned; they start small, so that words never seen in
            training say next to nothing. (default: :obj:`None`)
        freeze (bool, optional): Leave the table as it is, as a buffer; otherwise it is a
            parameter. (default: :obj:`True` with a table)
        dropout (float): Probability to drop a whole word in training. (default: :obj:`0.0`)

    Shapes:
        - **input:** ids :math:`(n)`
        - **output:** :math:`(n, C)`

    Raises:
        ShapeError: If an argument is out of range, the table does not have a row for each word,
            or an id is none.
        UnsupportedError: For ``freeze=True`` without a table.

    Example:
        >>> embed = WordEmbedding(3, 8, table=torch.randn(3, 50))
        >>> embed(torch.tensor([2, 0])).shape, embed.table.requires_grad
        (torch.Size([2, 8]), False)
    """

    table: Tensor

    def __init__(
        self,
        num_words: int,
        channels: int,
        table: Tensor | None = None,
        freeze: bool | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check_positive(num_words=num_words, channels=channels)
        if not 0 <= dropout <= 1:
            raise ShapeError(f"dropout={dropout} is not a probability: give a number from 0 to 1.")
        if table is None and freeze:
            raise UnsupportedError(
                "freeze=True would leave random vectors as they are: give table=, the vectors to "
                "keep, or leave freeze out."
            )
        self.num_words, self.channels, self.dropout = num_words, channels, dropout
        self.freeze = table is not None if freeze is None else freeze
        self.config: dict[str, Any] = {
            "num_words": num_words,
            "channels": channels,
            "table": None if table is None else list(table.shape),
            "freeze": self.freeze,
            "dropout": dropout,
        }
        self.lin: nn.Linear | None = None
        if table is None:
            self.table = nn.Parameter(torch.empty(num_words, channels))
        else:
            if table.dim() != 2 or table.size(0) != num_words or not table.is_floating_point():
                raise ShapeError(
                    f"table has shape {list(table.shape)} and dtype {table.dtype}: give floating "
                    f"point vectors [{num_words}, F], one for each of the {num_words} words."
                )
            if self.freeze:
                self.register_buffer("table", table.detach().clone())
            else:
                self.table = nn.Parameter(table.detach().to(torch.get_default_dtype(), copy=True))
            self.lin = nn.Linear(table.size(1), channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw what is learned from scratch anew; a given table stays."""
        if self.lin is None:
            nn.init.normal_(self.table, std=0.02)
        else:
            self.lin.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Embed ids ``[n]`` as ``[n, channels]``."""
        _check_ids(x, self.num_words, "words", "the words are numbered as the table's rows")
        out = nn.functional.embedding(x, self.table)
        if self.lin is not None:
            out = out.to(self.lin.weight.dtype)
        if self.training and self.dropout > 0:
            kept = torch.rand(x.size(0), 1, device=x.device) >= self.dropout
            out = out * kept.to(out.dtype)
        return out if self.lin is None else self.lin(out)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """An encoder of this ``config`` whose table waits to be loaded."""
        shape = config["table"]
        return cls(**(config | {"table": None if shape is None else torch.empty(shape)}))

    def __repr__(self) -> str:
        width = "" if self.lin is None else f", table={self.table.size(1)}"
        return f"{self.__class__.__name__}({self.num_words}, {self.channels}{width})"


class Symbols(nn.Module):
    """A learned vector for each of a few symbols: operators, digits, tags, types.

    Args:
        num (int): Number of symbols; ids are ``0..num-1``.
        channels (int): Width of the output.

    Shapes:
        - **input:** ids :math:`(n)`
        - **output:** :math:`(n, C)`

    Raises:
        ShapeError: If an argument is not positive, or an id is none of the symbols.

    Example:
        >>> Symbols(14, 8)(torch.tensor([13, 0, 0])).shape
        torch.Size([3, 8])
    """

    def __init__(self, num: int, channels: int) -> None:
        super().__init__()
        _check_positive(num=num, channels=channels)
        self.num, self.channels = num, channels
        self.config: dict[str, Any] = {"num": num, "channels": channels}
        self.table = nn.Parameter(torch.empty(num, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew."""
        nn.init.normal_(self.table)

    def forward(self, x: Tensor) -> Tensor:
        """Embed ids ``[n]`` as ``[n, channels]``."""
        _check_ids(x, self.num, "symbols", "the symbols are numbered from 0")
        return nn.functional.embedding(x, self.table)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.num}, {self.channels})"


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
        _check_positive(in_channels=in_channels, channels=channels)
        if not 0 <= dropout <= 1:
            raise ShapeError(f"dropout={dropout} is not a probability: give a number from 0 to 1.")
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
        _check_positive(patch=patch, channels=channels, hidden_channels=hidden_channels)
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


def _check_positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ShapeError(f"{name}={value!r} is no positive number: give at least 1.")


def _check_ids(x: Tensor, num: int, what: str, remedy: str) -> None:
    """Ids ``[n]`` within ``0..num-1``; their values are not looked at inside ``torch.compile``."""
    if x.dim() != 1 or x.dtype not in (torch.int64, torch.int32):
        raise ShapeError(
            f"ids of {what} have shape {list(x.shape)} and dtype {x.dtype}: give int64 [n]."
        )
    if torch.compiler.is_compiling() or x.numel() == 0:
        return
    low, high = (int(value) for value in torch.aminmax(x))
    if low < 0 or high >= num:
        raise ShapeError(
            f"ids of {what} go from {low} to {high}, but the encoder knows 0..{num - 1}: {remedy}, "
            "so give the encoder the number that the dataset has."
        )
