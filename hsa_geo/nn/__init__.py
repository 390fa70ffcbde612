"""PyG layers and models over nested signals."""

from hsa_geo.nn.ancestor_bias import AncestorBias
from hsa_geo.nn.conv import HSAConv
from hsa_geo.nn.deep_set import DeepSetConv
from hsa_geo.nn.encoder import EncoderBlock, HSAEncoder
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.leaf_conv import LeafConv
from hsa_geo.nn.leaf_features import LeafFeatures
from hsa_geo.nn.modalities import (
    FrozenModule,
    LinearFeatures,
    PatchConv,
)
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.pair_bias import OffsetBias
from hsa_geo.nn.pooling import (
    AttentionReadout,
    HierarchicalReadout,
    QueryReadout,
    hierarchical_mean,
)
from hsa_geo.nn.position import (
    PositionEmbedding,
    ReadingOrder,
    register_position,
    unregister_position,
)
from hsa_geo.nn.position_modules import FourierPosition, GraphPosition, LearnedPosition
from hsa_geo.nn.readout import SubtreeReadout, subtree_mean
from hsa_geo.nn.signal_classifier import SignalClassifier
from hsa_geo.nn.structure import PathPosition, StructureFeatures
from hsa_geo.nn.tokens import TokenBags, TokenEncoder, token_bags
from hsa_geo.nn.word_tables import Symbols, WordEmbedding

__all__ = [
    "AncestorBias",
    "AttentionReadout",
    "DeepSetConv",
    "EncoderBlock",
    "FlatConv",
    "FourierPosition",
    "FrozenModule",
    "GraphPosition",
    "HSAConv",
    "HSAEncoder",
    "HierarchicalReadout",
    "LeafConv",
    "LeafFeatures",
    "LearnedPosition",
    "LinearFeatures",
    "OffsetBias",
    "PatchConv",
    "PathPosition",
    "PositionEmbedding",
    "QueryReadout",
    "ReadingOrder",
    "SignalClassifier",
    "StructureFeatures",
    "SubtreeClassifier",
    "SubtreeReadout",
    "Symbols",
    "TokenBags",
    "TokenEncoder",
    "WordEmbedding",
    "hierarchical_mean",
    "register_position",
    "subtree_mean",
    "token_bags",
    "unregister_position",
]
