"""Hierarchies that are known already: by attributes of the nodes, or as parents or partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, DomainError, ShapeError
from hsa_geo.transforms.arguments import attributes, flag
from hsa_geo.transforms.attach import attach_hierarchy, check_graph
from hsa_geo.transforms.communities import partitioned
from hsa_geo.transforms.rebuild import sibling_ranks

__all__ = ["AttributeHierarchy", "GivenHierarchy"]

Ints = NDArray[np.int64]


class AttributeHierarchy(BaseTransform):
    """Give a graph the hierarchy that attributes of its nodes spell out.

    Nodes of one country are a group, those of one city in it a group within, and so on; cities of
    one name in two countries are two.  A group of one member is left out.  All else of the graph
    stays as it is (:func:`~hsa_geo.transforms.attach_hierarchy`), the attributes included.

    Args:
        keys (str or sequence of str): Node attributes, coarsest first: integer or bool tensors
            ``[N]`` or ``[N, 1]``, or lists of N strings or integers.
        add_links (bool): As in :class:`CommunityHierarchy`. (default: :obj:`False`)

    Raises:
        BuilderError: If an attribute is missing or holds something else.
        UnsupportedError: If the graph is no single ``Data``, or has a hierarchy already.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(country=torch.tensor([1, 1, 2, 2]), city=["A", "A", "A", "B"], num_nodes=4)
        >>> AttributeHierarchy(["country", "city"])(data).tree_index.tolist()
        [[4, 4, 5, 5, 6, 6], [0, 1, 2, 3, 4, 5]]
    """

    def __init__(self, keys: str | Sequence[str], *, add_links: bool = False) -> None:
        self.keys = attributes(keys, "keys")
        if not self.keys:
            raise BuilderError("keys names no attribute: give one or several.")
        self.add_links = flag(add_links, "add_links")

    def forward(self, data: Any) -> SignalTree:
        """The graph with its hierarchy."""
        n = check_graph(data)
        labels: Ints = np.zeros(n, dtype=np.int64)
        levels = []
        for key in self.keys:
            own = _labels(data.to_dict().get(key), key, n)
            labels = np.unique(labels * (int(own.max()) + 1) + own, return_inverse=True)[1]
            levels.append(labels)
        return partitioned(data, levels[::-1], add_links=self.add_links)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({list(self.keys)})"


def _labels(value: Any, key: str, n: int) -> Ints:
    """Numbers 0, 1, ... of the values of a node attribute."""
    array = None
    if isinstance(value, Tensor) and not value.is_sparse:
        array = value.detach().cpu().numpy() if not value.is_floating_point() else None
    elif isinstance(value, (list, tuple)) and {type(v) for v in value} in ({str}, {int}):
        array = np.asarray(value)
    if array is not None and array.shape == (n, 1):
        array = array[:, 0]
    if array is None or array.shape != (n,) or array.dtype.kind not in "biuU":
        what = "missing" if value is None else f"a {type(value).__name__}"
        if isinstance(value, Tensor):
            what = f"{value.dtype} {list(value.shape)}"
        raise BuilderError(
            f"'{key}' is {what}: give every one of the {n} nodes an integer or a string."
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


class GivenHierarchy(BaseTransform):
    """Give a graph a hierarchy that is known: the parents of all tree nodes, or partitions.

    All else of the graph stays as it is (:func:`~hsa_geo.transforms.attach_hierarchy`).

    Args:
        parent (optional): ``[M]`` ints, the parent of every tree node, -1 for the root; the graph's
            nodes are the leaves, by increasing id.  A list, array or tensor, for one graph, or the
            name of an attribute that holds it, for each graph its own. (default: :obj:`None`)
        partitions (optional): ``[N]`` or ``[L, N]`` ints in place of ``parent``, finest first: the
            group of every node, each level a union of groups of the one before; likewise.
            (default: :obj:`None`)
        domain (Domain): Domain of the siblings: ``SET``, ``GRAPH``, or ``SEQUENCE``, in which they
            count 0, 1, .... (default: :obj:`Domain.SET`)
        add_links (bool): With partitions: as in :class:`CommunityHierarchy`.
            (default: :obj:`False`)

    Raises:
        BuilderError: If not exactly one of both is given, an attribute is missing, or partitions
            are not nested; the message names the nodes.
        TreeError, ShapeError: If ``parent`` is no tree with the graph's nodes as leaves.
        UnsupportedError: If the graph is no single ``Data``, or has a hierarchy already.

    Example:
        >>> from torch_geometric.data import Data
        >>> GivenHierarchy(partitions=[[0, 1, 0, 1]])(Data(num_nodes=4)).tree_index.tolist()
        [[4, 4, 5, 5, 6, 6], [0, 2, 1, 3, 4, 5]]
    """

    def __init__(
        self,
        parent: Any = None,
        *,
        partitions: Any = None,
        domain: Domain = Domain.SET,
        add_links: bool = False,
    ) -> None:
        if (parent is None) == (partitions is None):
            raise BuilderError("give either parent or partitions, and not both.")
        self.add_links = flag(add_links, "add_links")
        if add_links and parent is not None:
            raise BuilderError("add_links goes with partitions: attach parent with tree_link.")
        if domain not in (Domain.SET, Domain.GRAPH, Domain.SEQUENCE):
            raise DomainError(f"domain={domain!r}: use SET, GRAPH or SEQUENCE.")
        domain = Domain(domain)
        if add_links and domain is Domain.SEQUENCE:
            raise BuilderError("add_links makes the domain GRAPH, but domain is SEQUENCE.")
        self.parent, self.partitions = parent, partitions
        self.domain = domain

    def forward(self, data: Any) -> SignalTree:
        """The graph with its hierarchy."""
        n = check_graph(data)
        if self.parent is not None:
            tree = attach_hierarchy(data, _value(data, self.parent), domain=self.domain)
        else:
            tree = self._partitioned(data, n)
        if self.domain is Domain.SEQUENCE:
            tree.tree_pos[tree.tree_index[1], 0] = sibling_ranks(tree.tree_index).float()
        return tree

    def _partitioned(self, data: Any, n: int) -> SignalTree:
        value = _value(data, self.partitions)
        value = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        try:
            levels = np.atleast_2d(np.asarray(value))
        except ValueError:
            levels = np.empty((0, 0))
        if levels.ndim != 2 or levels.shape[1] != n or levels.dtype.kind not in "iu":
            raise ShapeError(
                f"partitions are {levels.dtype} {list(levels.shape)}: give integers [{n}] or "
                f"[L, {n}], the group of every node, finest level first."
            )
        tree = partitioned(data, list(levels), add_links=self.add_links)
        inner = tree.tree_domain >= 0
        tree.tree_domain = tree.tree_domain.masked_fill(
            inner, Domain.GRAPH if self.add_links else self.domain
        )
        return tree

    def __repr__(self) -> str:
        name = "parent" if self.parent is not None else "partitions"
        value = getattr(self, name)
        shown = repr(value) if isinstance(value, str) else "..."
        return f"{self.__class__.__name__}({name}={shown})"


def _value(data: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in data:
        raise BuilderError(
            f"the graph has no attribute {value!r} with its hierarchy (it has "
            f"{sorted(data.keys())}): set it, or give the hierarchy itself."
        )
    return data[value]
