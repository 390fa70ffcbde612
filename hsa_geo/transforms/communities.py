"""Communities of a graph as its hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import is_undirected

from hsa_geo.builders.communities import nested_louvain, sibling_links, stack_partitions
from hsa_geo.data import Domain, SignalTree
from hsa_geo.transforms.arguments import attribute_or_none, flag, seed_or_none
from hsa_geo.transforms.attach import attach_hierarchy, check_graph, graph_edges

__all__ = ["CommunityHierarchy", "partitioned"]


class CommunityHierarchy(BaseTransform):
    r"""Give a graph the hierarchy of its communities, found by Louvain's method.

    Communities at the highest resolution hold the nodes, those at the next lower one hold these,
    and so on up to the root; a community of one member is left out.  All else of the graph stays
    as it is (:func:`~hsa_geo.transforms.attach_hierarchy`).  A graph without edges becomes a root
    over all nodes; the parts of a disconnected one are never in one community.

    Args:
        resolutions (float or sequence of floats): One level of communities for each; higher ones
            make smaller groups.  Attention costs the square of a group's size, so take some that
            leave groups of some dozens. (default: ``(1, 4, 16)``)
        weight (str, optional): Attribute with the edges' weights ``[E]`` or ``[E, 1]``, not
            negative. (default: every edge counts 1)
        add_links (bool): Give siblings the ``GRAPH`` domain, with ``tree_link`` between any two
            that edges join, and in ``tree_link_weight`` the sum of the edges' weights; otherwise
            they are a ``SET``. (default: :obj:`False`)
        seed (int, optional): Seed of the method. (default: ``0``)

    Raises:
        BuilderError: If the graph has no nodes or no ``edge_index``, or an argument does not fit.
        UnsupportedError: If it is no single ``Data``, or has a hierarchy already.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> edge = torch.tensor([[0, 1, 2, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5, 3]])
        >>> data = Data(edge_index=torch.cat([edge, edge.flip(0)], dim=1), num_nodes=6)
        >>> CommunityHierarchy(1.0, add_links=True)(data).describe()
        SignalTree: 6 leaves, 9 nodes, depth 2
        8: GRAPH of 2, 6 leaves
          6: GRAPH of 3, 3 leaves
            0
            1
            2
          7: GRAPH of 3, 3 leaves
            3
            4
            5
    """

    def __init__(
        self,
        resolutions: float | Sequence[float] = (1.0, 4.0, 16.0),
        weight: str | None = None,
        *,
        add_links: bool = False,
        seed: int | None = 0,
    ) -> None:
        self.resolutions, self.weight = resolutions, attribute_or_none(weight, "weight")
        self.add_links, self.seed = flag(add_links, "add_links"), seed_or_none(seed)

    def forward(self, data: Any) -> SignalTree:
        """The graph with its hierarchy."""
        n = check_graph(data)
        edge_index, weight = graph_edges(data, self.weight)
        levels = nested_louvain(n, edge_index, weight, resolutions=self.resolutions, seed=self.seed)
        return partitioned(data, levels, add_links=self.add_links, weight=self.weight)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(resolutions={self.resolutions})"


def partitioned(
    data: Any, levels: Sequence[np.ndarray], *, add_links: bool, weight: str | None = None
) -> SignalTree:
    """A graph with the hierarchy of nested partitions, finest first, in SET or GRAPH domains.

    Args:
        data: The graph.
        levels: ``[n]`` each.
        add_links: Whether edges become links among siblings.
        weight: Attribute with the edges' weights. (default: every edge counts 1)

    Example:
        >>> from torch_geometric.data import Data
        >>> partitioned(Data(num_nodes=3), [np.array([0, 0, 1])], add_links=False)
        SignalTree(leaves=3, nodes=5, depth=2)
    """
    parent = stack_partitions(levels or [np.zeros(check_graph(data), dtype=np.int64)])
    if not add_links:
        return attach_hierarchy(data, parent)
    edge_index, values = graph_edges(data, weight)
    symmetric = is_undirected(edge_index, values, num_nodes=int(data.num_nodes))
    link, total = sibling_links(parent, edge_index, values, symmetric=symmetric)
    return attach_hierarchy(
        data,
        parent,
        domain=Domain.GRAPH,
        tree_link=link,
        tree_link_weight=total.astype(np.float32),
    )
