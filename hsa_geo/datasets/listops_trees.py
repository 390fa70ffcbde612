"""Expressions of :mod:`hsa_geo.datasets.listops_notation` as signal trees, many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.datasets.listops_notation import CLOSE, Expressions, Ints

__all__ = ["SYMBOLS", "expression_trees"]

#: Names of the symbols of the leaves, ``symbol_x``: digits, then operators.
SYMBOLS = (*"0123456789", "MAX", "MIN", "MED", "SM")


def expression_trees(expressions: Expressions) -> list[SignalTree]:
    """A tree of every expression.

    A list is a node whose children, a sequence, are its operator (a leaf) and its arguments
    (leaves, or lists).  There are no brackets: the tree says it.

    Args:
        expressions: What to build.

    Returns:
        Trees with ``symbol_x [N]`` (ids of :data:`SYMBOLS`), ``symbol_index [N]``, the value
        ``y [1]``, and for every list its node and value, ``list_node [K]`` and ``list_y [K]``,
        in the order in which the lists begin.

    Example:
        >>> (tree,) = expression_trees(Expressions.parse(["[MAX 2 9 [MIN 4 7 ] ]"]))
        >>> tree.symbol_x.tolist(), tree.y.tolist(), tree.list_node.tolist(), tree.list_y.tolist()
        ([10, 2, 9, 11, 4, 7], [9], [7, 6], [9, 4])
    """
    lay, values = expressions.layout(), expressions.list_values()
    count = len(expressions)
    leaf_token = np.flatnonzero(expressions.tokens != CLOSE)
    list_token = np.flatnonzero(lay.is_open)
    leaf_of, list_of = lay.expression[leaf_token], lay.expression[list_token]
    leaves = np.bincount(leaf_of, minlength=count)
    lists = np.bincount(list_of, minlength=count)
    leaf_ptr, list_ptr = np.append(0, np.cumsum(leaves)), np.append(0, np.cumsum(lists))
    node_ptr = leaf_ptr + list_ptr

    # Ids within the tree: leaves in reading order, lists from the deepest.
    leaf_id = np.arange(len(leaf_token)) - leaf_ptr[leaf_of]
    canonical = np.lexsort((list_token, -lay.depth[list_token], list_of))
    list_id = np.empty(len(list_token), dtype=np.int64)
    list_id[canonical] = np.arange(len(canonical))
    list_id += (leaves - list_ptr[:-1])[list_of]
    id_of_list = np.full(len(lay.depth) + 1, -1)  # by operator; the last for none
    id_of_list[list_token] = list_id

    # Nodes: all leaves, then all lists; sorted by tree and id.
    tree_of = np.concatenate([leaf_of, list_of])
    node_id = np.concatenate([leaf_id, list_id])
    token = np.concatenate([leaf_token, list_token])
    around = np.concatenate([lay.inside[leaf_token], lay.above[list_token]])
    level = np.concatenate([lay.depth[leaf_token], lay.depth[list_token] - 1])
    is_leaf = np.arange(len(token)) < len(leaf_token)
    edge = np.flatnonzero(around >= 0)
    edge = edge[np.lexsort((token[edge], id_of_list[around[edge]], tree_of[edge]))]
    parent = id_of_list[around[edge]]
    starts = np.append(True, (np.diff(parent) != 0) | (np.diff(tree_of[edge]) != 0))[: len(edge)]
    place = np.arange(len(edge))
    rank = np.zeros(len(token), dtype=np.int64)
    rank[edge] = place - np.maximum.accumulate(np.where(starts, place, 0))
    order = np.lexsort((node_id, tree_of))
    domain = np.where(is_leaf, LEAF, int(Domain.SEQUENCE))
    edge_ptr = node_ptr - np.arange(count + 1)

    parts: dict[str, tuple[Any, Ints]] = {
        "tree_index": (np.stack([parent, node_id[edge]], 1), edge_ptr),
        "tree_level": (level[order], node_ptr),
        "tree_domain": (domain[order], node_ptr),
        "tree_pos": (np.stack([rank[order], 0 * order], 1).astype(np.float32), node_ptr),
        "symbol_x": (expressions.tokens[leaf_token].astype(np.int64), leaf_ptr),
        "symbol_index": (leaf_id, leaf_ptr),
        "list_node": (list_id, list_ptr),
        "list_y": (values[list_token], list_ptr),
        "y": (values[expressions.ptr[:-1]], np.arange(count + 1)),
    }
    cut = {key: _cut(array, ptr) for key, (array, ptr) in parts.items()}
    trees = []
    for i in range(count):
        one: dict[str, Any] = {key: values[i] for key, values in cut.items()}
        one["tree_index"] = one["tree_index"].t().contiguous()
        trees.append(SignalTree(num_nodes=int(leaves[i]), **one))
    return trees


def _cut(array: Any, ptr: Ints) -> list[Tensor]:
    """Tensors that own their memory, so that saving one does not save all."""
    return [part.clone() for part in torch.from_numpy(array).split(np.diff(ptr).tolist())]
