"""Hierarchical self-attention from queries, keys, values and a tree."""

from hsa_geo.ops.attention import hsa_attention, tree_energy
from hsa_geo.ops.flops import AttentionCost, attention_cost, count_pairs, flat_cost
from hsa_geo.ops.weights import AttentionWeights, attention_matrix, attention_weights

__all__ = [
    "AttentionCost",
    "AttentionWeights",
    "attention_cost",
    "attention_matrix",
    "attention_weights",
    "count_pairs",
    "flat_cost",
    "hsa_attention",
    "tree_energy",
]
