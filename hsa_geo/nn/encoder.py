"""HSAEncoder: pre-norm transformer blocks around hierarchical attention."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn.checks import check_maker, check_multiple, check_positive, check_share, is_size
from hsa_geo.nn.conv.hsa_conv import HSAConv
from hsa_geo.nn.position import PositionEmbedding
from hsa_geo.ops.inputs import check_dtype

__all__ = ["EncoderBlock", "HSAEncoder"]


class EncoderBlock(nn.Module):
    r"""A pre-norm block: attention, then a feed-forward network, each with a residual.

    .. math::
        \mathbf{h} = \mathbf{x} + \mathbf{W}_o \, \mathrm{conv}(\mathrm{LN}(\mathbf{x})), \qquad
        \mathbf{x}^{\prime} = \mathbf{h} + \mathrm{FFN}(\mathrm{LN}(\mathbf{h}))

    Args:
        conv (torch.nn.Module): ``conv(x [N, channels], tree) -> [N, channels]``, such as
            :class:`~hsa_geo.nn.HSAConv`, :class:`~hsa_geo.nn.FlatConv` or
            :class:`~hsa_geo.nn.DeepSetConv`.
        channels (int): Width of the block.
        hidden_channels (int): Width of the feed-forward network.
        dropout (float): Dropout of both residual branches. (default: :obj:`0.0`)
        zero_init (bool): Start as the identity: the last layer of both branches is zero.
            (default: :obj:`False`)

    Raises:
        ShapeError: If ``channels`` or ``hidden_channels`` is not positive.

    Example:
        >>> import torch
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> EncoderBlock(HSAConv(8, 4, heads=2), 8, 16)(torch.randn(2, 8), tree).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        conv: nn.Module,
        channels: int,
        hidden_channels: int,
        dropout: float = 0.0,
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        check_positive(channels=channels, hidden_channels=hidden_channels)
        check_share(dropout=dropout)
        self.norm_conv = nn.LayerNorm(channels)
        self.conv = conv
        self.lin_out = nn.Linear(channels, channels)
        self.norm_ffn = nn.LayerNorm(channels)
        self.lin_up = nn.Linear(channels, hidden_channels)
        self.lin_down = nn.Linear(hidden_channels, channels)
        self.dropout = nn.Dropout(dropout)
        self.zero_init = zero_init
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for module in self.children():
            reset(module)
        if self.zero_init:
            for lin in (self.lin_out, self.lin_down):
                nn.init.zeros_(lin.weight)
                nn.init.zeros_(lin.bias)

    def forward(self, x: Tensor, tree: SignalTree | TreePlan) -> Tensor:
        """``[N, channels]`` to ``[N, channels]``."""
        x = x + self.dropout(self.lin_out(self.conv(self.norm_conv(x), tree)))
        hidden = self.dropout(nn.functional.gelu(self.lin_up(self.norm_ffn(x))))
        return x + self.dropout(self.lin_down(hidden))


class HSAEncoder(nn.Module):
    r"""A stack of pre-norm blocks of hierarchical self-attention over leaves.

    Args:
        channels (int): Width; a multiple of ``heads``.
        num_layers (int): Number of blocks. (default: :obj:`2`)
        heads (int): Number of heads. (default: :obj:`4`)
        hidden_channels (int, optional): Width of the feed-forward networks.
            (default: ``4 * channels``)
        dropout (float): Dropout of the residual branches. (default: :obj:`0.0`)
        position_channels (int, optional): Features of the position embeddings, 0 for none.
            (default: ``16``)
        energy (str): ``"dot"`` or ``"l2"``. (default: ``"dot"``)
        qk_norm (bool): LayerNorm of every head's query and key. (default: :obj:`False`)
        backend (str): As in :func:`~hsa_geo.ops.hsa_attention`. (default: ``"auto"``)
        conv (callable, optional): Makes each block's layer in place of HSAConv, whose options
            (``position_channels``, ``energy``, ``qk_norm``, ``backend``, ``attention_dropout``,
            ``values``, ``tie``) are then refused. (default: :obj:`None`)
        attention_dropout (float, optional): Dropout of attention. (default: as ``dropout``)
        final_norm (bool): LayerNorm of the output, which the residual branches of a pre-norm
            stack leave without one. (default: :obj:`True`)
        zero_init (bool): Every block starts as the identity; see :class:`EncoderBlock`.
            (default: :obj:`False`)
        position (callable, optional): Makes each block's position module, in place of a
            :class:`~hsa_geo.nn.PositionEmbedding` of ``position_channels``; needed e.g. where
            siblings form a graph (:class:`~hsa_geo.nn.GraphPosition`). (default: :obj:`None`)
        values (str): ``"own"`` or ``"keys"``, as in HSAConv. (default: ``"own"``)
        tie (str): ``"block"`` or ``"key"``, as in HSAConv. (default: ``"block"``)

    Shapes:
        - **input:** :math:`(N, C)` and a tree or batch of trees
        - **output:** :math:`(N, C)`

    Raises:
        ShapeError: If ``channels`` is not a positive multiple of ``heads``, ``num_layers`` is
            negative or ``hidden_channels`` not positive.
        UnsupportedError: If an option of HSAConv is given beside ``conv``.

    Example:
        >>> import torch
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> HSAEncoder(32, num_layers=2)(torch.randn(4, 32), tree).shape
        torch.Size([4, 32])
    """

    def __init__(
        self,
        channels: int,
        num_layers: int = 2,
        heads: int = 4,
        hidden_channels: int | None = None,
        dropout: float = 0.0,
        position_channels: int | None = None,
        energy: str = "dot",
        qk_norm: bool = False,
        backend: str = "auto",
        conv: Callable[[], nn.Module] | None = None,
        attention_dropout: float | None = None,
        final_norm: bool = True,
        zero_init: bool = False,
        position: Callable[[], nn.Module] | None = None,
        values: str = "own",
        tie: str = "block",
    ) -> None:
        super().__init__()
        check_multiple(channels, heads)
        if not is_size(num_layers, 0):
            raise ShapeError(f"num_layers={num_layers!r} is no number of blocks: give 0 or more.")
        options = {
            "position_channels": (position_channels, None),
            "energy": (energy, "dot"),
            "qk_norm": (qk_norm, False),
            "backend": (backend, "auto"),
            "attention_dropout": (attention_dropout, None),
            "position": (position, None),
            "values": (values, "own"),
            "tie": (tie, "block"),
        }
        given = {name: value for name, (value, default) in options.items() if value != default}
        if conv is not None and given:
            raise UnsupportedError(
                f"{given} are options of HSAConv, which conv={conv!r} replaces: give them to the "
                "layer that it makes."
            )
        hidden = 4 * channels if hidden_channels is None else hidden_channels
        check_positive(hidden_channels=hidden)
        check_share(dropout=dropout)
        for name, make in (("position", position), ("conv", conv)):
            if make is not None:
                check_maker(name, make)
        if position is not None and position_channels is not None:
            raise UnsupportedError(
                f"position_channels={position_channels} is an option of PositionEmbedding, which "
                f"position={position!r} replaces: give it to the module that it makes."
            )
        positions = 16 if position_channels is None else position_channels
        self.channels, self.num_layers, self.heads = channels, num_layers, heads

        def embedding() -> nn.Module | None:
            return PositionEmbedding(positions, heads) if positions else None

        def hsa_conv() -> nn.Module:
            return HSAConv(
                channels,
                channels // heads,
                heads=heads,
                dropout=dropout if attention_dropout is None else attention_dropout,
                qk_norm=qk_norm,
                energy=energy,
                position=position() if position else embedding(),
                backend=backend,
                values=values,
                tie=tie,
            )

        make = conv or hsa_conv
        self.blocks = nn.ModuleList(
            EncoderBlock(make(), channels, hidden, dropout, zero_init) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(channels) if final_norm else nn.Identity()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        reset(self.blocks)
        reset(self.norm)

    def forward(self, x: Tensor, tree: SignalTree | TreePlan) -> Tensor:
        """``[N, channels]`` to ``[N, channels]``."""
        if not isinstance(x, Tensor) or x.dim() != 2 or x.size(1) != self.channels:
            has = f"has shape {list(x.shape)}" if isinstance(x, Tensor) else "is no tensor"
            raise ShapeError(
                f"x {has}: give [N, {self.channels}], e.g. by a linear layer "
                "in front of the encoder."
            )
        like = next(self.parameters(), None)
        if like is not None:
            check_dtype(x, like)
        for block in self.blocks:
            x = block(x, tree)
        return self.norm(x)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.channels}, num_layers={self.num_layers}, "
            f"heads={self.heads})"
        )
