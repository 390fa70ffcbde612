"""PyG layers and models over nested signals."""

from hsa_geo.nn.conv import HSAConv
from hsa_geo.nn.deep_set import DeepSetConv
from hsa_geo.nn.encoder import EncoderBlock, HSAEncoder
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.position import FourierPosition, PositionEmbedding, ReadingOrder
from hsa_geo.nn.readout import SubtreeReadout, subtree_mean
from hsa_geo.nn.tokens import TokenBags, TokenEncoder, token_bags

__all__ = [
    "DeepSetConv",
    "EncoderBlock",
    "FlatConv",
    "FourierPosition",
    "HSAConv",
    "HSAEncoder",
    "PositionEmbedding",
    "ReadingOrder",
    "SubtreeClassifier",
    "SubtreeReadout",
    "TokenBags",
    "TokenEncoder",
    "subtree_mean",
    "token_bags",
]
