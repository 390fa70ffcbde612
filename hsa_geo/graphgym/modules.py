"""What GraphGym builds a network of: a layer, a stage and a head that see the hierarchy."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.layer import MLP, new_layer_config
from torch_geometric.graphgym.register import register_head, register_layer, register_stage

from hsa_geo.data import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import HSAConv, HSAEncoder, PositionEmbedding
from hsa_geo.nn.pooling import make_readout

__all__ = ["HSAGraphHead", "HSALayer", "HSAStage"]


class HSALayer(nn.Module):
    """``gnn.layer_type: hsaconv``: :class:`~hsa_geo.nn.HSAConv` in place of a graph convolution.

    It mixes leaves along the hierarchy and does not look at ``edge_index``.  GraphGym puts norm,
    activation and dropout behind it; ``gnn.stage_type: skipsum`` adds the input.

    Args:
        layer_config: Of GraphGym; ``dim_out`` is a multiple of ``hsa.heads``.
        **kwargs: None is known.

    Raises:
        ShapeError: If ``dim_out`` is no multiple of ``hsa.heads``.

    Example:
        >>> import torch
        >>> from torch_geometric.graphgym.models.layer import LayerConfig
        >>> layer = HSALayer(LayerConfig(dim_in=3, dim_out=8))
        >>> layer(SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 3))).x.shape
        torch.Size([2, 8])
    """

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        if kwargs:
            raise UnsupportedError(f"hsaconv knows no {sorted(kwargs)}: use the settings cfg.hsa.")
        options, dim_out = cfg.hsa, layer_config.dim_out
        if options.heads < 1 or dim_out % options.heads:
            raise ShapeError(
                f"gnn.dim_inner={dim_out} is not a multiple of hsa.heads={options.heads}: change "
                "one of them."
            )
        self.model = HSAConv(
            layer_config.dim_in,
            dim_out // options.heads,
            heads=options.heads,
            dropout=options.attention_dropout,
            bias=layer_config.has_bias,
            position=_position(),
            **_shared(),
        )

    def forward(self, batch: Any) -> Any:
        """The batch with new ``x [N, dim_out]``."""
        batch.x = self.model(batch.x, _with_hierarchy(batch))
        return batch


class HSAStage(nn.Module):
    """``gnn.stage_type: hsa``: an :class:`~hsa_geo.nn.HSAEncoder` in place of a stack of layers.

    Pre-norm transformer blocks, with ``gnn.dropout``; ``gnn.layer_type``, ``gnn.act``,
    ``gnn.batchnorm`` and ``gnn.l2norm`` are the stacks' and have no say in it.  A linear layer goes
    first where ``dim_in`` is not ``dim_out`` (``gnn.layers_pre_mp: 0``).

    Args:
        dim_in: Size of the input features.
        dim_out: Width of the encoder, a multiple of ``hsa.heads``.
        num_layers: Number of blocks.

    Raises:
        ShapeError: If ``dim_out`` is no multiple of ``hsa.heads``.

    Example:
        >>> import torch
        >>> stage = HSAStage(3, 8, num_layers=2)
        >>> stage(SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 3))).x.shape
        torch.Size([2, 8])
    """

    def __init__(self, dim_in: int, dim_out: int, num_layers: int) -> None:
        super().__init__()
        options = cfg.hsa
        self.lin = nn.Identity() if dim_in == dim_out else nn.Linear(dim_in, dim_out)
        self.encoder = HSAEncoder(
            dim_out,
            num_layers=num_layers,
            heads=options.heads,
            dropout=cfg.gnn.dropout,
            position_channels=options.position_channels,
            attention_dropout=options.attention_dropout,
            **_shared(),
        )

    def forward(self, batch: Any) -> Any:
        """The batch with new ``x [N, dim_out]``."""
        batch.x = self.encoder(self.lin(batch.x), _with_hierarchy(batch))
        return batch


class HSAGraphHead(nn.Module):
    """``gnn.head: hsa_graph``: one prediction per tree, by a readout that sees the hierarchy.

    GraphGym's own poolings (``model.graph_pooling``) are given leaves and the number of their tree
    alone, so that ``"root"``, where every child of a node counts alike, has to be a head.

    Args:
        dim_in: Size of the leaf features.
        dim_out: Number of outputs.

    Raises:
        ShapeError: If ``hsa.readout`` is unknown.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Batch
        >>> trees = [SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 8), y=k) for k in (0, 1)]
        >>> answer, label = HSAGraphHead(8, 3)(Batch.from_data_list(trees))
        >>> answer.shape, label.tolist()
        (torch.Size([2, 3]), [0, 1])
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.readout = make_readout(cfg.hsa.readout, dim_in, cfg.hsa.heads)
        self.layer_post_mp = MLP(
            new_layer_config(
                dim_in,
                dim_out,
                max(1, cfg.gnn.layers_post_mp),
                has_act=False,
                has_bias=True,
                cfg=cfg,
            )
        )

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Outputs ``[B, dim_out]`` and labels ``y``."""
        tree = _with_hierarchy(batch)
        batch.graph_feature = self.layer_post_mp(self.readout(batch.x, tree))
        return batch.graph_feature, batch.y


def _shared() -> dict[str, Any]:
    """Options that the layer and the encoder have in common."""
    return {name: cfg.hsa[name] for name in ("energy", "tie", "values", "qk_norm", "backend")}


def _position() -> nn.Module | None:
    channels = cfg.hsa.position_channels
    return PositionEmbedding(channels, cfg.hsa.heads) if channels else None


def _with_hierarchy(batch: Any) -> SignalTree:
    if not isinstance(batch, SignalTree) or "tree_index" not in batch:
        raise UnsupportedError(
            f"GraphGym gave a {type(batch).__name__} without hierarchy: set dataset.format: HSA, "
            "or load a dataset of signal trees."
        )
    return batch


register_layer("hsaconv", HSALayer)
register_stage("hsa", HSAStage)
register_head("hsa_graph", HSAGraphHead)
