"""What the layers without attention share: three projections of every leaf, of HSAConv's size."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear

from hsa_geo.nn.checks import check_widths

__all__ = ["ThreeProjections"]


class ThreeProjections(nn.Module):
    """Base of layers with as many parameters as queries, keys and values of HSAConv.

    Args:
        in_channels (int): Size of each leaf's features, or ``-1`` to infer it.
        out_channels (int): Size of each head's output.
        heads (int): Multiplies ``out_channels``, as concatenated heads do.
            (default: :obj:`1`)
        bias (bool): Add a learned bias to the output. (default: :obj:`True`)

    Raises:
        ShapeError: If ``heads`` or ``out_channels`` is not positive.

    Example:
        >>> [part.shape for part in ThreeProjections(16, 8, heads=2).project(torch.randn(4, 16))]
        [torch.Size([4, 16]), torch.Size([4, 16]), torch.Size([4, 16])]
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, bias: bool = True
    ) -> None:
        super().__init__()
        check_widths(in_channels, out_channels, heads)
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.lin = Linear(in_channels, 3 * heads * out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(heads * out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """``[N, in_channels]`` to three tensors ``[N, heads * out_channels]``."""
        return self.lin(x).chunk(3, -1)

    def add_bias(self, out: Tensor) -> Tensor:
        """The output, with the bias if there is one."""
        return out if self.bias is None else out + self.bias

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, "
            f"heads={self.heads})"
        )
