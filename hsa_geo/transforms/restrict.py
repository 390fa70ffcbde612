"""The hierarchy of a large graph, cut down to each sampled part of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.errors import BuilderError, ShapeError, UnsupportedError
from hsa_geo.transforms.arguments import attribute
from hsa_geo.transforms.attach import check_graph, check_tree, with_attributes

__all__ = ["RestrictHierarchy"]

Ints = NDArray[np.int64]

#: What has one row per tree node; ``tree_name`` is a list and goes by itself.
ROWS = ("tree_level", "tree_domain", "tree_pos", "tree_pe", "tree_span")


class RestrictHierarchy(BaseTransform):
    r"""Give sampled parts of a large graph the part of its hierarchy that stands above them.

    The hierarchy is found once, for the whole graph; the loader samples from the plain graph and
    this transform turns each batch into a :class:`~hsa_geo.data.SignalTree`:

    .. code-block:: python

        tree = CommunityHierarchy([8.0, 1.0])(data)
        loader = NeighborLoader(data, [10, 10], batch_size=256, transform=RestrictHierarchy(tree))

    Rows stay in the order in which they were sampled, seeds first; ``edge_index``, ``batch_size``,
    ``input_id``, ``e_id`` and all else of the batch stay, too.  The tree is that of
    :meth:`SignalTree.restrict` with ``keep_order``: nodes above the sample, with their domains,
    positions, encodings, names and links, chains of single children included.  The cost of a
    batch is that of its own part of the hierarchy, not of the whole.

    Loaders that do not store the sampled nodes (``ClusterLoader``, GraphSAINT) hand on a node
    attribute that the graph has: give it ``data.n_id = torch.arange(data.num_nodes)`` first.

    Args:
        tree (SignalTree): The whole hierarchy; leaf i is node i of the graph.  Its leaf attributes,
            ``{name}_node`` and edges are not read, ``leaf_weight`` is.
        key (str): Attribute of the batch with the sampled nodes ``[K]``. (default: ``"n_id"``)

    Raises:
        UnsupportedError: If a batch is no homogeneous ``Data``, or holds disjoint samples, in which
            a node may stand several times (``disjoint=True``, ``ShaDowKHopSampler``).
        BuilderError: If it has no ``key``.
        ShapeError: If ``key`` does not hold one different node of the hierarchy for each row.

    Example:
        >>> from torch_geometric.data import Data
        >>> whole = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> batch = Data(x=torch.rand(3, 8), n_id=torch.tensor([3, 0, 1]), batch_size=1)
        >>> tree = RestrictHierarchy(whole)(batch)
        >>> tree.tree_index.tolist(), tree.n_id.tolist()
        ([[3, 3, 4, 5, 5], [1, 2, 0, 3, 4]], [3, 0, 1])
    """

    def __init__(self, tree: SignalTree, key: str = "n_id") -> None:
        tree = check_tree(tree, "RestrictHierarchy")
        forest = Forest.of(tree)
        values = {key: value for key, value in tree.to_dict().items() if value is not None}
        self.key, self.num_leaves = attribute(key, "key"), tree.num_leaves
        self._parent = forest.parent
        self._column = np.zeros(forest.num_nodes, dtype=np.int64)  # of each child in tree_index
        self._column[forest.edge_child] = np.arange(len(forest.edge_child))
        self._rows = {name: values[name].cpu() for name in ROWS if name in values}
        self._name = values.get("tree_name")
        self._weight = values.get("leaf_weight")
        self._link: Ints | None = None
        self._link_rows: dict[str, Any] = {}
        if "tree_link" in values:
            self._link = values["tree_link"].cpu().numpy()
            self._link_rows = {k: v for k, v in values.items() if k.startswith("tree_link_")}
            self._by_source = np.argsort(self._link[0], kind="stable")
            counts = np.bincount(self._link[0], minlength=forest.num_nodes)
            self._link_ptr = np.concatenate([[0], np.cumsum(counts)])

    def forward(self, data: Any) -> SignalTree:
        """The batch with its part of the hierarchy."""
        n = check_graph(data)
        rows = self._sampled(data, n)
        by_id = np.argsort(rows)
        leaves = rows[by_id]
        twice = leaves[1:][leaves[1:] == leaves[:-1]]
        if twice.size:
            raise ShapeError(
                f"'{self.key}' holds node {int(twice[0])} twice, but a tree has each leaf once: "
                "sample without replacement and without disjoint=True."
            )
        inner = self._ancestors(leaves)
        known = np.concatenate([leaves, inner])  # increasing
        new_id = np.concatenate([by_id, n + np.arange(len(inner))])
        kept = np.concatenate([rows, inner])  # old id of each new one
        child = np.arange(len(kept) - 1)  # all but the root, which is the last
        child = child[np.argsort(self._column[kept[:-1]])]
        above = new_id[np.searchsorted(known, self._parent[kept[child]])]

        tree = SignalTree()
        tree.num_nodes = n
        tree.tree_index = torch.from_numpy(np.stack([above, child]))
        index = torch.from_numpy(kept)
        for key, value in self._rows.items():
            tree[key] = value[index]
        if self._name is not None:
            tree.tree_name = [self._name[i] for i in kept.tolist()]
        if self._weight is not None and "leaf_weight" not in data:
            tree.leaf_weight = self._weight.cpu()[index[:n]]
        if self._link is not None:
            self._restrict_links(tree, known, new_id)
        return with_attributes(tree, data)

    def _sampled(self, data: Any, n: int) -> Ints:
        ids, key = data.to_dict().get(self.key), self.key
        if ids is None:
            raise BuilderError(
                f"the batch has no '{key}' with the sampled nodes: where the loader does not store "
                f"them, set data.{key} = torch.arange(data.num_nodes) before sampling."
            )
        batch = data.to_dict().get("batch")
        if isinstance(batch, Tensor) and batch.numel() and bool((batch != 0).any()):
            raise UnsupportedError(
                "the batch holds disjoint samples, whose nodes may stand in several of them: "
                "sample with disjoint=False, as one part of the graph."
            )
        whole = isinstance(ids, Tensor) and ids.dtype in (torch.int64, torch.int32)
        if not whole or ids.shape != (n,):
            what = (
                f"{ids.dtype} {list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
            )
            raise ShapeError(f"'{key}' is {what}: give int64 [{n}], the node of each row.")
        rows = ids.detach().cpu().numpy().astype(np.int64)
        bad = rows[(rows < 0) | (rows >= self.num_leaves)]
        if bad.size:
            raise ShapeError(
                f"'{key}' holds node {int(bad[0])}, but the hierarchy has the leaves "
                f"0..{self.num_leaves - 1}: give the one of the graph that is sampled from."
            )
        return rows

    def _ancestors(self, leaves: Ints) -> Ints:
        """All inner nodes above some leaves, increasing."""
        seen = np.zeros(len(self._parent), dtype=bool)  # memory that is not touched costs nothing
        found, front = [np.empty(0, dtype=np.int64)], leaves
        while front.size:
            front = self._parent[front]
            front = front[front >= 0]
            front = np.unique(front[~seen[front]])
            seen[front] = True
            found.append(front)
        return np.sort(np.concatenate(found))

    def _restrict_links(self, tree: SignalTree, known: Ints, new_id: Ints) -> None:
        assert self._link is not None
        start = self._link_ptr[known]
        count = self._link_ptr[known + 1] - start
        offset = np.repeat(start - (np.cumsum(count) - count), count)
        column = self._by_source[offset + np.arange(len(offset))]
        target = self._link[1, column]
        place = np.minimum(np.searchsorted(known, target), len(known) - 1)
        column = np.sort(column[known[place] == target])
        link = np.searchsorted(known, self._link[:, column])
        tree.tree_link = torch.from_numpy(new_id[link])
        for key, value in self._link_rows.items():
            if isinstance(value, Tensor):
                tree[key] = value.cpu()[torch.from_numpy(column)]
            else:
                tree[key] = [value[i] for i in column.tolist()]

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(leaves={self.num_leaves}, nodes={len(self._parent)}, "
            f"key={self.key!r})"
        )
