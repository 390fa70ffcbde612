"""Learned and given tables: encoders of leaves that are numbers of words or of symbols."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn.checks import check_positive, check_share

__all__ = ["Symbols", "WordEmbedding"]


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
        check_positive(num_words=num_words, channels=channels)
        check_share(dropout=dropout)
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
        check_positive(num=num, channels=channels)
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
