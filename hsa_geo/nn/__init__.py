"""PyG layers and models over nested signals."""

from hsa_geo.nn.conv import HSAConv
from hsa_geo.nn.deep_set import DeepSetConv
from hsa_geo.nn.encoder import EncoderBlock, HSAEncoder
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.pair_bias import OffsetBias
from hsa_geo.nn.position import (
    PositionEmbedding,
    ReadingOrder,
    register_position,
    unregister_position,
)
from hsa_geo.nn.position_modules import FourierPosition, GraphPosition, LearnedPosition
from hsa_geo.nn.readout import SubtreeReadout, subtree_mean
from hsa_geo.nn.tokens import TokenBags, TokenEncoder, token_bags

__all__ = [
    "DeepSetConv",
    "EncoderBlock",
    "FlatConv",
    "FourierPosition",
    "GraphPosition",
    "HSAConv",
    "HSAEncoder",
    "LearnedPosition",
    "OffsetBias",
    "PositionEmbedding",
    "ReadingOrder",
    "SubtreeClassifier",
    "SubtreeReadout",
    "TokenBags",
    "TokenEncoder",
    "register_position",
    "subtree_mean",
    "token_bags",
    "unregister_position",
]
