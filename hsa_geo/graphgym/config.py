"""The group ``hsa`` of GraphGym's configuration, and what GraphGym needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from hsa_geo._optional import require

_PURPOSE = "GraphGym"

# GraphGym itself only warns, and fails later in places that do not say why.
_yacs = require("yacs.config", extra="graphgym", purpose=_PURPOSE)
if find_spec("lightning") is None:
    require("pytorch_lightning", extra="graphgym", purpose=_PURPOSE)

from torch_geometric.graphgym.config import cfg  # noqa: E402
from torch_geometric.graphgym.register import register_config  # noqa: E402

__all__ = ["add_settings"]


def add_settings(config: Any) -> None:
    """Add the group ``hsa``, with its defaults, to a configuration of GraphGym.

    - ``heads`` (4): heads; ``gnn.dim_inner`` is a multiple of it.
    - ``position_channels`` (16): features of the position embeddings, 0 for none.
    - ``energy`` ("dot"), ``tie`` ("block"), ``values`` ("own"), ``qk_norm`` (False): as in
      :class:`~hsa_geo.nn.HSAConv`; ``backend`` ("auto"): as in :func:`~hsa_geo.ops.hsa_attention`.
    - ``attention_dropout`` (0.0): dropout of attention.
    - ``readout`` ("mean"): of the head ``hsa_graph``: "mean", "root", "attention" or "query".
    - ``hierarchy`` ("communities"): of the format ``HSA``: "communities", "attributes", or "none"
      where the dataset holds signal trees.
    - ``resolutions`` ([1.0, 4.0]): of :class:`~hsa_geo.transforms.CommunityHierarchy`.
    - ``attributes`` ([]): of :class:`~hsa_geo.transforms.AttributeHierarchy`.

    Args:
        config: GraphGym's ``cfg``, or another ``CfgNode``.

    Example:
        >>> from yacs.config import CfgNode
        >>> config = CfgNode()
        >>> add_settings(config)
        >>> config.hsa.heads, config.hsa.readout
        (4, 'mean')
    """
    config.hsa = _yacs.CfgNode(
        {
            "heads": 4,
            "position_channels": 16,
            "energy": "dot",
            "tie": "block",
            "values": "own",
            "qk_norm": False,
            "backend": "auto",
            "attention_dropout": 0.0,
            "readout": "mean",
            "hierarchy": "communities",
            "resolutions": [1.0, 4.0],
            "attributes": [],
        }
    )


register_config("hsa", add_settings)
add_settings(cfg)  # GraphGym calls what is registered when it is imported itself, which was before
