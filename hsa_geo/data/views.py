"""A tree seen otherwise: as a plain PyG graph, as text, as a networkx graph."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from hsa_geo.data.canonical import leaf_spans
from hsa_geo.data.domain import LEAF, Domain
from hsa_geo.data.forest import Forest, flat_names
from hsa_geo.errors import ShapeError

__all__ = ["as_graph", "to_networkx", "tree_text"]

#: Deepest indentation of :func:`tree_text`; deeper nodes show their level instead.
MAX_INDENT = 16
#: Longest name in :func:`tree_text`.
MAX_NAME = 48


def as_graph(tree: Any) -> Data:
    """All tree nodes as plain PyG ``Data``, for any PyG tool.

    Args:
        tree: A SignalTree or a batch of them.

    Returns:
        ``Data`` with M nodes in canonical order: ``edge_index`` from parent to child,
        ``level [M]``, ``domain [M]`` (-1 at leaves), ``pos [M, 2]``, ``leaf_mask [M]``, ``x [M,
        ...]`` with the features of the leaves and zeros at inner nodes (if the tree has ``x``),
        ``name`` (if it has names), and for a batch ``batch [M]`` and ``ptr [B + 1]``.  The graph
        among the leaves and the modalities are left out.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> as_graph(
        ...     SignalTree.from_parents([2, 2, -1], x=torch.ones(2, 4))
        ... )  # doctest: +NORMALIZE_WHITESPACE
        Data(x=[3, 4], edge_index=[2, 2], pos=[3, 2], num_nodes=3, level=[3], domain=[3],
          leaf_mask=[3])
    """
    forest = Forest.of(tree)
    m, device = forest.num_nodes, tree.tree_index.device
    leaf_mask = torch.from_numpy(forest.is_leaf).to(device)
    x = _leaf_features(tree, forest)
    if x is not None:
        spread = x.new_zeros(m, *x.shape[1:])
        spread[leaf_mask] = x
        x = spread
    graph = Data(
        x=x,
        edge_index=tree.tree_index.clone(),
        pos=tree.tree_pos.clone(),
        num_nodes=m,
        level=tree.tree_level.clone(),
        domain=tree.tree_domain.clone(),
        leaf_mask=leaf_mask,
    )
    if "tree_name" in tree:
        graph.name = list(flat_names(tree.tree_name))
    if isinstance(tree, Batch) or "batch" in tree:
        graph.batch = torch.from_numpy(forest.tree).to(device)
        graph.ptr = torch.from_numpy(np.concatenate([[0], forest.roots + 1])).to(device)
    return graph


def to_networkx(tree: Any) -> nx.DiGraph:
    """The hierarchy as a networkx graph, that :func:`hsa_geo.builders.from_networkx` reads back.

    Args:
        tree: A SignalTree, or a batch, which gives a forest.

    Returns:
        ``DiGraph`` with nodes 0..M-1 (canonical ids), edges from parent to child in sibling
        order, without edge attributes.  Nodes have ``level`` (int), ``domain`` (name, ``"LEAF"``
        at leaves), ``pos`` (two floats), ``name`` (if the tree has names) and, at leaves, ``x``
        (list, if the tree has ``x``).  The graph among the leaves and the modalities are left
        out.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> graph = to_networkx(SignalTree.from_parents([2, 2, -1], domain=1, pos=[0, 1, 0]))
        >>> list(graph.edges), graph.nodes[1]
        ([(2, 0), (2, 1)], {'level': 1, 'domain': 'LEAF', 'pos': (1.0, 0.0)})
    """
    forest = Forest.of(tree)
    values = tree.to_dict()
    names = flat_names(values.get("tree_name"))
    labels = {int(d): d.name for d in Domain} | {LEAF: "LEAF"}
    domain, pos = tree.tree_domain.tolist(), tree.tree_pos.tolist()
    graph = nx.DiGraph()
    for node, level in enumerate(forest.level.tolist()):
        graph.add_node(node, level=level, domain=labels[domain[node]], pos=tuple(pos[node]))
        if names is not None:
            graph.nodes[node]["name"] = names[node]
    features = _leaf_features(tree, forest)
    if features is not None:
        for node, x in zip(np.flatnonzero(forest.is_leaf).tolist(), features.tolist()):
            graph.nodes[node]["x"] = x
    graph.add_edges_from(tree.tree_index.t().tolist())
    return graph


def tree_text(tree: Any, max_nodes: int = 40) -> str:
    """A drawing of the hierarchy, one node a line: name, domain, position, number of leaves.

    A node whose name is empty shows the rest, a leaf without anything ``leaf``.

    Args:
        tree: A SignalTree or a batch of them.
        max_nodes: Show at most as many nodes, in depth-first order, and say how many are left
            out. (default: ``40``)

    Returns:
        The drawing; deep nodes are not indented further than a fixed width but show their level.

    Example:
        >>> from hsa_geo.data import Domain, SignalTree
        >>> tree = SignalTree.from_parents(
        ...     [-1, 0, 0, 1, 1], name=["page", "box", "image", "to", "be"],
        ...     domain=[Domain.SET, Domain.SEQUENCE, 0, 0, 0], pos=[0, 0, 0, 0, 1],
        ... )
        >>> print(tree_text(tree))
        SignalTree: 3 leaves, 5 nodes, depth 2
        page: SET of 2, 3 leaves
          image
          box: SEQUENCE of 2, 2 leaves
            to at 0
            be at 1
    """
    forest = Forest.of(tree)
    names = flat_names(tree.to_dict().get("tree_name"))
    domain, pos = tree.tree_domain.cpu().numpy(), tree.tree_pos.cpu().numpy()
    count = leaf_spans(forest.parent, forest.level)[2]
    by_parent = np.argsort(forest.edge_parent, kind="stable")
    kids = forest.edge_child[by_parent]
    ptr = np.searchsorted(forest.edge_parent[by_parent], np.arange(forest.num_nodes + 1))

    def line(node: int) -> str:
        level, parent = int(forest.level[node]), int(forest.parent[node])
        indent = "  " * min(level, MAX_INDENT) + (f"[level {level}] " if level > MAX_INDENT else "")
        text = _short(names[node]) if names is not None else str(node)
        row, column = pos[node].tolist()
        placed = int(domain[parent]) != Domain.SET if parent >= 0 else False
        if placed and not (int(domain[parent]) == Domain.GRAPH and row == column == 0):
            flat = int(domain[parent]) == Domain.SEQUENCE and column == 0
            place = f"at {row:g}" if flat else f"at ({row:g}, {column:g})"
            text += f" {place}" if text else place
        if forest.is_leaf[node]:
            return indent + (text or "leaf")
        kind = _domain_name(int(domain[node]))
        kind += f" of {ptr[node + 1] - ptr[node]}, {_leaves(int(count[node]))}"
        return indent + (f"{text}: {kind}" if text else kind)

    trees = f"{forest.num_trees} trees, " if isinstance(tree, Batch) else ""
    depth = int(forest.level.max(initial=0))
    lines = [
        f"{type(tree).__name__}: {trees}{_leaves(tree.num_leaves)}, {forest.num_nodes} "
        f"node{'s' if forest.num_nodes != 1 else ''}, depth {depth}"
    ]
    shown = 0
    stack = [iter(forest.roots.tolist())]
    while stack and shown < max_nodes:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        lines.append(line(node))
        shown += 1
        stack.append(iter(kids[ptr[node] : ptr[node + 1]].tolist()))
    left = forest.num_nodes - shown
    if left:
        lines.append(f"... and {left} more node{'s' if left > 1 else ''}")
    return "\n".join(lines)


def _leaf_features(tree: Any, forest: Forest) -> Tensor | None:
    x, leaves = tree.to_dict().get("x"), int(forest.is_leaf.sum())
    if not isinstance(x, Tensor):
        return None
    if x.dim() == 0 or len(x) != leaves:
        raise ShapeError(
            f"'x' has shape {list(x.shape)}, but the tree has {leaves} leaves: give one row for "
            "each."
        )
    return x


def _leaves(count: int) -> str:
    return f"{count} lea{'f' if count == 1 else 'ves'}"


def _short(name: Any) -> str:
    """A name in one line of bounded length, with what cannot be printed escaped."""
    text = str(name)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: MAX_NAME + 1])
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def _domain_name(value: int) -> str:
    try:
        return Domain(value).name
    except ValueError:
        return f"domain {value}"
