"""A hierarchy laid over an ordinary graph, and taken off again.

Everything else of the graph stays as it is: the same tensors under the same names, rows in the
same order.  What :class:`~hsa_geo.data.SignalTree` reads from names is then read from the graph's
names, too (:func:`attach_hierarchy` says which); where that cannot be, the error says what to
rename.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import SignalTree
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import BuilderError, HSAError, ShapeError, TreeError, UnsupportedError

__all__ = ["DropHierarchy", "attach_hierarchy", "check_graph", "check_tree", "with_attributes"]

#: What belongs to the hierarchy itself.
OF_HIERARCHY = (Kind.TREE_EDGES, Kind.TREE_NODES, Kind.TREE_LINKS, Kind.LINK_ROWS)


def attach_hierarchy(data: Any, parent: Any, **hierarchy: Any) -> SignalTree:
    """The graph as a signal tree, with the hierarchy given and all else as it was.

    Attributes keep names, values and order; the graph's nodes are the leaves, rows in the same
    order; ``num_nodes`` is set.  Some names mean something in a
    :class:`~hsa_geo.data.SignalTree` (see its module):

    - ``tree_index``, ``tree_level``, ``tree_domain``, ``tree_pos``, ``tree_name``, ``tree_pe``,
      ``tree_span``, ``tree_link``, ``tree_link_...`` are its own: a graph that has one is refused.
    - Integers ``{name}_node`` are ids of tree nodes.  As the leaves are tree nodes 0..N-1, ids of
      graph nodes stay what they are, and a batch shifts them by the number of tree nodes;
      ``{name}_...`` beside them need as many rows.
    - ``{m}_x`` and integers ``{m}_index`` together are features of a modality and their leaves.
    - ``leaf_weight`` says how often each leaf counts, ``batch`` to which tree it belongs.
    - Of the attributes with a row per edge only those with ``edge`` in their name (and ``e_id``)
      are the edges'.

    A graph whose attribute has such a name but does not fit is refused, too.

    Args:
        data: One PyG ``Data`` with N nodes.
        parent: ``[M]`` ints, the parent of every tree node, -1 for the root; the leaf with the
            i-th smallest id is node i of the graph.
        **hierarchy: ``domain``, ``pos``, ``name``, ``tree_pe``, ``tree_span``, ``tree_link`` and
            ``tree_link_weight``, as :meth:`SignalTree.from_parents` takes them.

    Returns:
        The tree, on the device of the graph.

    Raises:
        UnsupportedError: If ``data`` is a batch, heterogeneous or has a hierarchy already.
        BuilderError: If it has no nodes, or an attribute with a name that the tree needs.
        TreeError: If ``parent`` is no rooted tree.
        ShapeError: If the hierarchy has not N leaves.

    Example:
        >>> data = Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 2], [2, 0]]), y="label")
        >>> tree = attach_hierarchy(data, [3, 4, 3, 4, -1])
        >>> tree, tree.x is data.x
        (SignalTree(leaves=3, nodes=5, depth=2, x=[3, 2], edge_index=[2, 2], y='label'), True)
    """
    n = check_graph(data)
    hierarchy_only: SignalTree = SignalTree.from_parents(parent, keep_leaf_order=True, **hierarchy)
    if hierarchy_only.num_leaves != n:
        raise ShapeError(
            f"the hierarchy has {hierarchy_only.num_leaves} leaves but the graph {n} nodes: give "
            "one leaf for each node."
        )
    tree = with_attributes(hierarchy_only, data)
    try:
        tree.validate()
    except HSAError as error:
        raise BuilderError(
            f"the attributes of the graph do not fit a signal tree ({str(error).rstrip('.')}): "
            "mend it, or rename what has its name by accident."
        ) from error
    return tree


def with_attributes(hierarchy: SignalTree, data: Data) -> SignalTree:
    """A tree of the hierarchy and the attributes of a graph, in the order graph, hierarchy.

    Example:
        >>> tree = with_attributes(SignalTree.from_parents([1, -1]), Data(y=torch.tensor([5])))
        >>> tree.y
        tensor([5])
    """
    device = next((v.device for v in data.to_dict().values() if isinstance(v, Tensor)), None)
    tree = SignalTree()
    tree.num_nodes = hierarchy.num_leaves
    for key, value in data.to_dict().items():
        if key != "num_nodes":
            tree[key] = value
    for key, value in hierarchy.to_dict().items():
        if key != "num_nodes":
            tree[key] = value.to(device) if isinstance(value, Tensor) else value
    return tree


def check_graph(data: Any) -> int:
    """Number of nodes of a graph that can be given a hierarchy.

    Raises:
        UnsupportedError: If it is no single homogeneous graph without hierarchy.
        BuilderError: If it has no nodes, or an attribute that the hierarchy would overwrite.

    Example:
        >>> check_graph(Data(num_nodes=3))
        3
    """
    name = type(data).__name__
    if isinstance(data, SignalTree):
        raise UnsupportedError(
            "this graph has a hierarchy already: take it off first with DropHierarchy(), or change "
            "it with Rewindow or ContractChains."
        )
    if isinstance(data, Batch):
        raise UnsupportedError(
            f"a {name} cannot be given one hierarchy: transform each graph, as a transform or "
            "pre_transform of the dataset, and batch the trees."
        )
    if not isinstance(data, Data):
        remedy = ", e.g. data.to_homogeneous()" if name == "HeteroData" else ""
        raise UnsupportedError(f"a {name} cannot be given a hierarchy: give a Data{remedy}.")
    for method in ("__inc__", "__cat_dim__"):
        if getattr(type(data), method) is not getattr(Data, method):
            raise UnsupportedError(
                f"a {name} batches in a way of its own ({method}), which a SignalTree would not "
                "keep: give a plain Data, and the hierarchy its extra attributes as {name}_node."
            )
    if not data.num_nodes:
        raise BuilderError(
            f"the graph has num_nodes={data.num_nodes}, but a tree needs at least one leaf: leave "
            "out empty graphs, or set num_nodes."
        )
    mapping = data.to_dict()
    for key, value in mapping.items():
        if kind_of(key, mapping, value) in OF_HIERARCHY:
            raise BuilderError(
                f"the graph has an attribute '{key}', which is a name of the hierarchy's own: "
                "rename it."
            )
    return int(data.num_nodes)


def check_tree(data: Any, what: str) -> SignalTree:
    """The argument, if it is one signal tree.

    Args:
        data: What a transform was given.
        what: Name of the transform.

    Raises:
        UnsupportedError: If it is a batch or has no hierarchy.

    Example:
        >>> check_tree(SignalTree.from_parents([-1]), "Rewindow")
        SignalTree(leaves=1, nodes=1, depth=0)
    """
    if isinstance(data, Batch) or (isinstance(data, SignalTree) and "batch" in data):
        raise UnsupportedError(
            f"{what} takes one tree at a time: transform the trees before batching, or those of "
            "batch.to_data_list()."
        )
    if not isinstance(data, SignalTree) or "tree_index" not in data:
        raise UnsupportedError(
            f"{what} takes a SignalTree, not a {type(data).__name__} without hierarchy: build one "
            "with a builder, or with CommunityHierarchy or its like."
        )
    return data


class DropHierarchy(BaseTransform):
    """Take the hierarchy off a tree: a plain ``Data`` with its leaves as nodes.

    The inverse of :func:`attach_hierarchy`.  Everything that belongs to leaves, to edges among
    them or to the whole stays as it is, ``leaf_weight`` included; names, encodings and links of
    the tree go.  ``{name}_node`` stays where it holds leaves.

    Raises:
        UnsupportedError: If the input is no single SignalTree.
        TreeError: If ``{name}_node`` holds an inner node; the message names it.

    Example:
        >>> DropHierarchy()(SignalTree.from_parents([2, 2, -1], x=torch.ones(2, 1)))
        Data(x=[2, 1], num_nodes=2)
    """

    def forward(self, data: Any) -> Data:
        """The graph among the leaves."""
        tree = check_tree(data, "DropHierarchy")
        values = tree.to_dict()
        out = Data()
        for key, value in values.items():
            kind = kind_of(key, values, value)
            if kind is Kind.NODE_IDS:
                inner = value[value >= tree.num_leaves]
                if inner.numel():
                    raise TreeError(
                        f"'{key}' refers to node {int(inner[0])}, an inner node of the hierarchy: "
                        f"remove '{key}' first."
                    )
            if kind not in OF_HIERARCHY and key != "num_nodes":
                out[key] = value
        out.num_nodes = tree.num_leaves
        return out


def graph_edges(data: Any, weight: str | None) -> tuple[Tensor, Tensor | None]:
    """``edge_index [2, E]`` of a graph, and the weights ``[E]`` in its attribute ``weight``.

    Raises:
        BuilderError: If one of them is missing.
        ShapeError: If the weights are not one number for each edge.

    Example:
        >>> graph_edges(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2), None)[1]
    """
    edge_index = data.to_dict().get("edge_index")
    if not isinstance(edge_index, Tensor):
        remedy = "set it (torch.empty(2, 0) int64 where there are none)"
        if "adj_t" in data:
            remedy = "give the graph its hierarchy before ToSparseTensor"
        raise BuilderError(f"the graph has no edge_index: {remedy}.")
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if weight is None:
        return edge_index, None
    value = data.to_dict().get(weight)
    if not isinstance(value, Tensor):
        raise BuilderError(
            f"the graph has no tensor '{weight}' given as weight (it has {sorted(data.keys())}): "
            "give the name of an attribute with one number for each edge, or None."
        )
    value = value.squeeze(-1) if value.dim() == 2 else value
    if value.shape != (edge_index.size(1),) or value.is_complex():
        raise ShapeError(
            f"'{weight}' has shape {list(value.shape)} and dtype {value.dtype}: weights are one "
            f"number for each of the {edge_index.size(1)} edges."
        )
    return edge_index, value.to(torch.float64)
