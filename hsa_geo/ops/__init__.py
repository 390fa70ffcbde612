"""Hierarchical self-attention from queries, keys, values and a tree."""

from hsa_geo.ops.attention import (
    AttentionWeights,
    attention_matrix,
    attention_weights,
    hsa_attention,
    tree_energy,
)

__all__ = [
    "AttentionWeights",
    "attention_matrix",
    "attention_weights",
    "hsa_attention",
    "tree_energy",
]
