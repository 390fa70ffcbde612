"""Every field of a SignalTree checked; an error names the field and the node.

:func:`validate` accepts exactly what :meth:`SignalTree.from_parents`, batching and
:meth:`SignalTree.restrict` make: trees in canonical order, or with their leaves in another one
(``keep_leaf_order``), whose attributes fit them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data.canonical import Ints, reading_starts
from hsa_geo.data.contraction import check_weights
from hsa_geo.data.domain import LEAF, Domain
from hsa_geo.data.forest import Forest, flat_names
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import DomainError, HSAError, HSAWarning, ShapeError, TreeError

__all__ = ["validate"]

#: Required fields: dtype and shape (None: any size).
FIELDS: dict[str, tuple[torch.dtype, tuple[int | None, ...]]] = {
    "tree_index": (torch.int64, (2, None)),
    "tree_level": (torch.int64, (None,)),
    "tree_domain": (torch.int64, (None,)),
    "tree_pos": (torch.float32, (None, 2)),
}
#: PyG's attributes with one row per node, and with one row per edge of ``edge_index``.
LEAF_KEYS = ("x", "pos", "batch", "n_id", "node_type", "train_mask", "val_mask", "test_mask")
EDGE_KEYS = ("edge_attr", "edge_weight", "edge_type", "e_id")


def validate(tree: Any, raise_on_error: bool = True) -> bool:
    """Check every field of a tree, or of every tree of a batch.

    Checked are shapes, dtypes and devices; one root per tree and levels; the canonical order
    (leaves first, then inner nodes, deepest level first and in reading order within a level,
    ``tree_index`` sorted by parent); domains, -1 exactly at leaves; finite positions; names; the
    number of rows of leaf attributes, modalities and edges; weights; and that everything that
    refers to a leaf or a tree node is in range.

    Args:
        tree: A SignalTree or a batch of them.
        raise_on_error: Raise, or warn and return False. (default: ``True``)

    Returns:
        Whether the tree is sound.

    Raises:
        TreeError: If the hierarchy is no rooted tree in canonical order.
        ShapeError: If a tensor's shape, dtype, device or contents do not fit.
        DomainError: If a domain is unknown, or does not fit a leaf or an inner node.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> validate(tree)
        True
        >>> tree.tree_level[1] = 5
        >>> try:
        ...     validate(tree)
        ... except TreeError as error:
        ...     print(error)
        node 1 has level 5 but its parent, node 2, has level 0: a child's level is one more.
    """
    try:
        _check(tree)
    except HSAError as error:
        if raise_on_error:
            raise
        warnings.warn(str(error), HSAWarning, stacklevel=2)
        return False
    return True


def _check(tree: Any) -> None:
    _check_fields(tree)
    if len(tree.tree_level) == 0:
        if not isinstance(tree, Batch):
            raise TreeError("this tree has no nodes: a tree needs at least one leaf.")
        forest = None
    else:
        forest = Forest.of(tree)
        _check_roots(tree, forest)
        _check_levels(forest)
        _check_order(forest)
        _check_domains(tree, forest)
        _check_pos(tree, forest)
    _check_names(tree)
    _check_leaves(tree, forest)
    for key, value in tree.to_dict().items():
        _check_references(tree, key, value)


def _check_fields(tree: Any) -> None:
    m = None
    for key, (dtype, shape) in FIELDS.items():
        value = tree.to_dict().get(key)
        if value is None:
            raise TreeError(
                f"this tree has no '{key}': build it with SignalTree.from_parents or a builder."
            )
        wanted = f"{dtype} [{', '.join('M' if s is None else str(s) for s in shape)}]"
        if key == "tree_index":
            wanted = "torch.int64 [2, M-1]"
        if not isinstance(value, Tensor):
            raise ShapeError(f"'{key}' is a {type(value).__name__}, not a tensor {wanted}.")
        fits = value.dim() == len(shape) and all(
            want in (None, have) for want, have in zip(shape, value.shape)
        )
        if not fits or value.dtype != dtype or value.layout is not torch.strided:
            raise ShapeError(
                f"'{key}' has shape {list(value.shape)} and dtype {value.dtype}: it must be "
                f"{wanted}."
            )
        if value.device != tree.tree_index.device:
            raise ShapeError(
                f"'{key}' is on {value.device} but tree_index on {tree.tree_index.device}: move "
                "the whole tree with .to(device)."
            )
        if key == "tree_level":
            m = len(value)
        elif m is not None and len(value) != m:
            raise ShapeError(f"'{key}' has {len(value)} rows but tree_level has {m}: one per node.")


def _check_roots(tree: Any, forest: Forest) -> None:
    many = isinstance(tree, Batch) or "batch" in tree
    if forest.num_trees > 1 and not many:
        raise TreeError(
            f"nodes {forest.roots[:5].tolist()} are all roots, but a tree has one: make one tree "
            "of each and batch them."
        )
    m = forest.num_nodes
    if forest.roots[-1] != m - 1:
        raise TreeError(
            f"the last node, {m - 1}, is not the root of its tree: the root has the largest id."
        )
    inner = np.flatnonzero(forest.parent >= 0)
    lost = inner[forest.tree[inner] != forest.tree[forest.parent[inner]]]
    if lost.size:
        raise TreeError(
            f"{forest.name(lost[0])} has a parent in another tree, node "
            f"{int(forest.parent[lost[0]])} of the batch: the nodes of a tree are contiguous."
        )
    slices = tree._store.__dict__.get("_slice_dict", {}).get("tree_level")
    if isinstance(slices, Tensor) and slices.dim() == 1:
        ends = slices[1:].cpu().numpy() - 1
        bad = np.flatnonzero(~np.isin(ends, forest.roots))
        if bad.size:
            raise TreeError(f"tree {int(bad[0])} of the batch does not end with its root.")


def _check_levels(forest: Forest) -> None:
    level, parent = forest.level, forest.parent
    bad = forest.roots[level[forest.roots] != 0]
    if bad.size:
        raise TreeError(
            f"{forest.name(bad[0])} has level {int(level[bad[0]])} but is a root: a root has "
            "level 0."
        )
    inner = np.flatnonzero(parent >= 0)
    wrong = inner[level[inner] != level[parent[inner]] + 1]
    if wrong.size:
        node = wrong[0]
        raise TreeError(
            f"{forest.name(node)} has level {int(level[node])} but its parent, "
            f"{forest.name(parent[node])}, has level {int(level[parent[node]])}: a child's level "
            "is one more."
        )


def _check_order(forest: Forest) -> None:
    level, tree, is_leaf = forest.level, forest.tree, forest.is_leaf
    remedy = "build the tree with SignalTree.from_parents, which sorts the nodes."

    def fail(nodes: Ints, what: str) -> None:
        if nodes.size:
            raise TreeError(f"{forest.name(nodes[0])} {what}: {remedy}")

    same = tree[1:] == tree[:-1]
    fail(1 + np.flatnonzero(same & is_leaf[1:] & ~is_leaf[:-1]), "is a leaf behind inner nodes")
    both = same & ~is_leaf[1:] & ~is_leaf[:-1]
    deeper = both & (level[1:] > level[:-1])
    fail(1 + np.flatnonzero(deeper), "is an inner node behind one of a higher level")

    above, child = forest.edge_parent, forest.edge_child
    unsorted = np.flatnonzero(above[1:] < above[:-1])
    fail(child[1:][unsorted], "has its column of tree_index before one of a smaller parent")
    start = reading_starts(forest.parent, level, child)
    swapped = both & (level[1:] == level[:-1]) & (start[1:] < start[:-1])
    fail(1 + np.flatnonzero(swapped), "comes after a node of its level that is later in reading")


def _check_domains(tree: Any, forest: Forest) -> None:
    domain = tree.tree_domain.cpu().numpy()
    bad = np.flatnonzero(forest.is_leaf & (domain != LEAF))
    if bad.size:
        raise DomainError(
            f"{forest.name(bad[0])} is a leaf but has domain {int(domain[bad[0]])}: leaves have "
            f"{LEAF}."
        )
    known = [f"{d.name}={d.value}" for d in Domain]
    bad = np.flatnonzero(~forest.is_leaf & ~np.isin(domain, [int(d) for d in Domain]))
    if bad.size:
        raise DomainError(
            f"{forest.name(bad[0])} has domain {int(domain[bad[0]])}, which is none of {known}."
        )


def _check_pos(tree: Any, forest: Forest) -> None:
    bad = np.flatnonzero(~tree.tree_pos.isfinite().all(dim=1).cpu().numpy())
    if bad.size:
        raise ShapeError(
            f"{forest.name(bad[0])} has position {tree.tree_pos[int(bad[0])].tolist()}: give "
            "finite numbers, zero where a node has no position."
        )
    pe = tree.to_dict().get("tree_pe")
    if pe is not None and not (
        isinstance(pe, Tensor) and pe.dim() == 2 and len(pe) == forest.num_nodes
    ):
        shape = list(pe.shape) if isinstance(pe, Tensor) else type(pe).__name__
        raise ShapeError(f"'tree_pe' has shape {shape}: it must be [{forest.num_nodes}, K].")
    span = tree.to_dict().get("tree_span")
    if span is not None and (
        not isinstance(span, Tensor)
        or span.shape != (forest.num_nodes, 2)
        or span.dtype != torch.int64
    ):
        kind = type(span).__name__
        if isinstance(span, Tensor):
            kind = f"{span.dtype} {list(span.shape)}"
        raise ShapeError(f"'tree_span' is {kind}: it must be int64 [{forest.num_nodes}, 2].")


def _check_names(tree: Any) -> None:
    names = tree.to_dict().get("tree_name")
    if names is None:
        return
    m = len(tree.tree_level)
    names = flat_names(names)
    if not isinstance(names, list) or len(names) != m:
        what = f"{len(names)} names" if isinstance(names, list) else f"a {type(names).__name__}"
        raise ShapeError(f"'tree_name' is {what} for {m} nodes: give a list of {m} strings.")
    odd = next((i for i, name in enumerate(names) if not isinstance(name, str)), None)
    if odd is not None:
        raise ShapeError(f"the name of node {odd} is {names[odd]!r}, which is no string.")


def _check_leaves(tree: Any, forest: Forest | None) -> None:
    leaves = int(forest.is_leaf.sum()) if forest is not None else 0
    values = tree.to_dict()
    if values.get("num_nodes") is None:
        raise TreeError(f"num_nodes is not set, but the tree has {leaves} leaves: set it.")
    if values["num_nodes"] != leaves:
        raise TreeError(
            f"num_nodes is {values['num_nodes']!r} but the tree has {leaves} leaves: use "
            "restrict(leaves) to remove leaves, or build a new tree."
        )
    edges = values.get("edge_index")
    for keys, rows, what in (
        (LEAF_KEYS, leaves, "leaves"),
        (EDGE_KEYS, edges.size(1) if isinstance(edges, Tensor) and edges.dim() == 2 else None, ""),
    ):
        for key in keys:
            value = values.get(key)
            if value is None or rows is None:
                continue
            if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != rows:
                shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(
                    f"'{key}' has shape {shape}, but there are {rows} {what or 'edges'}: give one "
                    "row for each."
                )
            _check_device(tree, key, value)
    if values.get("leaf_weight") is not None:
        check_weights(values["leaf_weight"], leaves)
        _check_device(tree, "leaf_weight", values["leaf_weight"])
    batch = values.get("batch")
    if isinstance(batch, Tensor) and forest is not None:
        expected = forest.tree[forest.is_leaf]
        bad = np.flatnonzero(batch.cpu().numpy() != expected)
        if bad.size:
            raise ShapeError(
                f"leaf {int(bad[0])} has batch {int(batch[int(bad[0])])}, but it belongs to tree "
                f"{int(expected[bad[0]])}."
            )


def _check_references(tree: Any, key: str, value: Any) -> None:
    values = tree.to_dict()
    kind = kind_of(key, values, value)
    if kind in (Kind.MODALITY, Kind.NODE_ROWS, Kind.LINK_ROWS):
        _check_device(tree, key, value)
        _check_rows_beside(key, value, kind, values)
        return
    if kind is Kind.OTHER:
        if key.endswith("_node") and isinstance(value, (int, list, tuple)):
            raise ShapeError(f"'{key}' is a {type(value).__name__}: give an int64 tensor of ids.")
        return
    if kind not in (Kind.NODE_IDS, Kind.LEAF_ROWS, Kind.GRAPH_EDGES, Kind.TREE_LINKS):
        return
    if not isinstance(value, Tensor):
        raise ShapeError(f"'{key}' is a {type(value).__name__}: give an int64 tensor.")
    if value.layout is not torch.strided:  # adj_t
        return
    if kind in (Kind.GRAPH_EDGES, Kind.TREE_LINKS) and (
        value.dim() != 2 or (key != "face" and value.size(0) != 2)
    ):  # edges
        raise ShapeError(f"'{key}' has shape {list(value.shape)}: it must be [2, E].")
    if kind is Kind.LEAF_ROWS:
        features = values[f"{key.removesuffix('index')}x"]
        rows = len(features) if isinstance(features, Tensor) and features.dim() else None
        if value.dim() != 1 or len(value) != rows:
            raise ShapeError(
                f"'{key}' has shape {list(value.shape)}, but '{key.removesuffix('index')}x' has "
                f"{rows} rows: give the leaf of each."
            )
    if value.dtype != torch.int64:
        raise ShapeError(f"'{key}' has dtype {value.dtype}: it must be torch.int64.")
    _check_device(tree, key, value)
    nodes = kind in (Kind.NODE_IDS, Kind.TREE_LINKS)
    size = len(tree.tree_level) if nodes else int(values["num_nodes"])
    bad = value[(value < 0) | (value >= size)]
    if bad.numel():
        what = "tree nodes" if nodes else "leaves"
        raise ShapeError(f"'{key}' holds {int(bad[0])}, but the {what} are 0..{size - 1}.")
    if kind is Kind.TREE_LINKS:
        _check_links(tree, value)


def _check_rows_beside(key: str, value: Any, kind: Kind, values: dict[str, Any]) -> None:
    """``{name}_...`` beside ``{name}_node``, and ``tree_link_...`` beside ``tree_link``."""
    rows = len(value) if isinstance(value, (list, tuple)) or _has_rows(value) else None
    if kind is Kind.LINK_ROWS:
        links = values.get("tree_link")
        needed = links.size(1) if isinstance(links, Tensor) and links.dim() == 2 else 0
        if rows != needed:
            raise ShapeError(
                f"'{key}' has {rows} rows, but 'tree_link' has {needed} columns: give one row for "
                "each."
            )
    owner = f"{key.rpartition('_')[0]}_node"
    if kind is Kind.NODE_ROWS and rows not in (None, len(values[owner])):
        raise ShapeError(
            f"'{key}' has {rows} rows, but '{owner}' has {len(values[owner])}: give one row for "
            "each."
        )


def _check_links(tree: Any, links: Tensor) -> None:
    """Links join children of one node."""
    parent = torch.full_like(tree.tree_level, -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    above = parent[links]
    bad = ((above[0] != above[1]) | (above[0] < 0)).nonzero()
    if bad.numel():
        a, b = links[:, int(bad[0])].tolist()
        raise ShapeError(
            f"'tree_link' joins nodes {a} and {b}, which are no siblings: edges between leaves of "
            "different parents belong into edge_index."
        )


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _check_device(tree: Any, key: str, value: Any) -> None:
    if isinstance(value, Tensor) and value.device != tree.tree_index.device:
        raise ShapeError(
            f"'{key}' is on {value.device} but tree_index on {tree.tree_index.device}: move the "
            "whole tree with .to(device)."
        )
