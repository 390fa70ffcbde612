"""A block that passes messages along edges and mixes the whole graph, and the mixers to compare.

:class:`Block` is laid out as PyG's ``GPSConv`` (Rampasek et al., 2022), with a place for any mixer
``mixer(x [N, C], tree) -> [N, C]``: none, a virtual node, or hierarchical attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, GPSConv, global_mean_pool

from hsa_geo.nn import HSAConv

#: What mixes the whole graph, by name.
MIXERS = ("none", "virtual_node", "gps", "hsa")


class VirtualNode(nn.Module):
    """A node joined to all others: the mean of its graph through an MLP, given back to every node.

    It keeps no state of its own, since what it gave back is part of the next block's mean.

    Args:
        channels: Width C.

    Example:
        >>> import torch
        >>> from hsa_geo.data import SignalTree
        >>> VirtualNode(8)(torch.randn(2, 8), SignalTree.from_parents([2, 2, -1])).shape
        torch.Size([2, 8])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(channels, 2 * channels), nn.ReLU(), nn.Linear(2 * channels, channels)
        )

    def forward(self, x: Tensor, tree: Any) -> Tensor:
        """``[N, C]`` to ``[N, C]``; all rows of a graph are the same."""
        if tree.batch is None:
            return self.mlp(x.mean(0, keepdim=True)).expand_as(x)
        return self.mlp(global_mean_pool(x, tree.batch, tree.num_graphs))[tree.batch]


class HSAMixer(nn.Module):
    """Hierarchical attention over the communities of the graph, and a projection of the heads.

    Args:
        channels: Width C, a multiple of ``heads``.
        heads: Number of heads.
        dropout: Probability to drop a block of the attention matrix. (default: ``0.0``)

    Example:
        >>> import torch
        >>> from hsa_geo.data import SignalTree
        >>> HSAMixer(8, 2)(torch.randn(2, 8), SignalTree.from_parents([2, 2, -1])).shape
        torch.Size([2, 8])
    """

    def __init__(self, channels: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = HSAConv(channels, channels // heads, heads=heads, dropout=dropout)
        self.lin = nn.Linear(channels, channels)

    def forward(self, x: Tensor, tree: Any) -> Tensor:
        """``[N, C]`` to ``[N, C]``."""
        return self.lin(self.conv(x, tree))


class Block(nn.Module):
    r"""Message passing and a mixer side by side, each with residual and norm, then an MLP.

    .. math::
        \mathbf{h} = \mathrm{BN}(\mathbf{x} + \mathrm{conv}(\mathbf{x})) +
        \mathrm{BN}(\mathbf{x} + \mathrm{mixer}(\mathbf{x})), \qquad
        \mathbf{x}^{\prime} = \mathrm{BN}(\mathbf{h} + \mathrm{MLP}(\mathbf{h}))

    Args:
        channels: Width C.
        conv: ``conv(x, edge_index) -> [N, C]``, such as ``GINConv``.
        mixer: ``mixer(x, tree) -> [N, C]``, or None for message passing alone.
        hidden: Width of the MLP. (default: ``2 * channels``, as in ``GPSConv``)
        dropout: Dropout of every branch. (default: ``0.0``)

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> Block(8, GCNConv(8, 8), VirtualNode(8))(data.x, data).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        channels: int,
        conv: nn.Module,
        mixer: nn.Module | None,
        hidden: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = 2 * channels if hidden is None else hidden
        self.conv, self.mixer = conv, mixer
        self.mlp = nn.Sequential(
            nn.Linear(channels, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, channels),
            nn.Dropout(dropout),
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(channels) for _ in range(2 + (mixer is not None)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, tree: Any) -> Tensor:
        """``[N, C]`` to ``[N, C]``; ``tree`` is a graph or batch with ``edge_index``."""
        h = self.norms[0](x + self.dropout(self.conv(x, tree.edge_index)))
        if self.mixer is not None:
            h = h + self.norms[1](x + self.dropout(self.mixer(x, tree)))
        return self.norms[-1](h + self.mlp(h))


class GPSBlock(nn.Module):
    """PyG's ``GPSConv`` with multi-head attention, called as :class:`Block` is.

    Args:
        channels: Width C, a multiple of ``heads``.
        conv: As in :class:`Block`.
        heads: Number of heads.
        dropout: Dropout of every branch. (default: ``0.0``)
        attention_dropout: Dropout of attention weights, with which PyTorch forms them all.
            (default: ``0.0``)
    """

    def __init__(
        self,
        channels: int,
        conv: nn.Module,
        heads: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        options = {"dropout": attention_dropout}
        self.gps = GPSConv(channels, conv, heads=heads, dropout=dropout, attn_kwargs=options)

    def forward(self, x: Tensor, tree: Any) -> Tensor:
        """``[N, C]`` to ``[N, C]``."""
        return self.gps(x, tree.edge_index, tree.batch)


class GNN(nn.Module):
    """Blocks between a linear map of the features and a small MLP, for nodes or for graphs.

    Args:
        in_channels: Number of features of a node.
        out_channels: Number of classes.
        mixer: One of :data:`MIXERS`.
        local: ``"gin"`` or ``"gcn"``. (default: ``"gin"``)
        channels: Width C. (default: ``64``)
        layers: Number of blocks. (default: ``3``)
        heads: Number of heads of attention. (default: ``4``)
        hidden: Width of the blocks' MLPs; of ``"gps"`` it is ``2 * channels``.
            (default: ``2 * channels``)
        level: ``"node"`` or ``"graph"``: what the logits belong to. (default: ``"node"``)
        dropout: Dropout of every branch. (default: ``0.0``)
        attention_dropout: Dropout of attention weights. (default: ``0.0``)

    Example:
        >>> import torch
        >>> from hsa_geo.data import SignalTree
        >>> link = torch.tensor([[0, 1], [1, 0]])
        >>> tree = SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 5), edge_index=link)
        >>> GNN(5, 3, "hsa", channels=8)(tree).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        mixer: str,
        *,
        local: str = "gin",
        channels: int = 64,
        layers: int = 3,
        heads: int = 4,
        hidden: int | None = None,
        level: str = "node",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if mixer not in MIXERS:
            raise ValueError(f"mixer={mixer!r}: use one of {MIXERS}.")
        self.level = level
        self.encode = nn.Linear(in_channels, channels)

        def conv() -> nn.Module:
            if local == "gcn":
                return GCNConv(channels, channels)
            mlp = [nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)]
            return GINConv(nn.Sequential(*mlp))

        def block() -> nn.Module:
            if mixer == "gps":
                return GPSBlock(channels, conv(), heads, dropout, attention_dropout)
            make: dict[str, Callable[[], nn.Module | None]] = {
                "none": lambda: None,
                "virtual_node": lambda: VirtualNode(channels),
                "hsa": lambda: HSAMixer(channels, heads, attention_dropout),
            }
            return Block(channels, conv(), make[mixer](), hidden, dropout)

        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.decode = nn.Sequential(
            nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, out_channels)
        )

    def forward(self, data: Any) -> Tensor:
        """Logits ``[N, classes]`` of the nodes, or ``[B, classes]`` of the graphs."""
        x = self.encode(data.x)
        for block in self.blocks:
            x = block(x, data)
        if self.level == "graph":
            x = global_mean_pool(x, data.batch)
        return self.decode(x)

    @property
    def num_parameters(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.parameters())


def matched(mixer: str, in_channels: int, out_channels: int, **options: Any) -> GNN:
    """A model with as many parameters as that with ``GPSConv``, to a unit of its MLPs.

    Width, number of blocks and message passing are the same; what a mixer does not need widens the
    MLPs of the blocks.  A model with more ``layers`` than ``like_layers`` is narrower as well: the
    widest that leaves its MLPs the width of the blocks at least.

    Args:
        mixer: One of :data:`MIXERS`.
        in_channels, out_channels: As in :class:`GNN`.
        **options: Further options of :class:`GNN`, and ``like_layers``, the number of blocks of the
            model with ``GPSConv``. (default: ``layers``)

    Example:
        >>> [matched(mixer, 10, 5).num_parameters for mixer in MIXERS]
        [130955, 130757, 130949, 130952]
    """
    like_layers = options.pop("like_layers", None) or options.get("layers", 3)
    target = GNN(in_channels, out_channels, "gps", **options | {"layers": like_layers})
    if mixer == "gps":
        return target
    width = options.get("channels", 64)
    for channels in range(width, 0, -1):

        def make(hidden: int, channels: int = channels) -> GNN:
            own = options | {"channels": channels, "hidden": hidden}
            return GNN(in_channels, out_channels, mixer, **own)

        per_unit = make(2).num_parameters - make(1).num_parameters
        spare = target.num_parameters - make(1).num_parameters
        hidden = 1 + round(spare / per_unit)
        if hidden >= channels:
            return make(hidden)
    raise ValueError(f"{options} leave no width that fits {target.num_parameters} parameters.")
