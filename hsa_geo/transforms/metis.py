"""Parts of equal size with few edges between them (METIS) as a hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.transforms import BaseTransform

from hsa_geo._optional import require
from hsa_geo.builders._louvain import coalesce
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, MissingPackageError, UnsupportedError
from hsa_geo.transforms.arguments import attribute_or_none, counts, flag, seed_or_none
from hsa_geo.transforms.attach import check_graph, graph_edges
from hsa_geo.transforms.communities import partitioned

__all__ = ["MetisHierarchy"]

Ints = NDArray[np.int64]


class MetisHierarchy(BaseTransform):
    r"""Give a graph the hierarchy of balanced parts with few edges between them.

    From `"A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs"
    <https://doi.org/10.1137/S1064827595287997>`_ (Karypis and Kumar, 1998).  The nodes are divided
    into the largest number of parts, these parts (by their numbers of nodes and of edges between
    them) into the next one, and so on.  Needs ``pymetis`` or ``pyg_lib``.  Directions of edges do
    not count.  All else of the graph stays as it is
    (:func:`~hsa_geo.transforms.attach_hierarchy`).

    Args:
        num_parts (int or sequence of ints): Numbers of parts, one level for each; those that are
            not below the number of nodes (or of parts below) are left out.
        weight (str, optional): Attribute with the edges' weights, whole numbers from 0.
            (default: every edge counts 1)
        add_links (bool): As in :class:`CommunityHierarchy`. (default: :obj:`False`)
        seed (int, optional): Seed of pymetis, 0 if not given; pyg_lib takes none.
            (default: :obj:`None`)

    Raises:
        MissingPackageError: If neither package is installed.
        BuilderError: If the graph has no nodes or no ``edge_index``, or an argument does not fit.
        UnsupportedError: If it is no single ``Data``, or has a hierarchy already; or if a seed is
            given but only pyg_lib is installed.

    Example:
        >>> from torch_geometric.data import Data
        >>> path = torch.stack([torch.arange(7), torch.arange(1, 8)])
        >>> data = Data(edge_index=torch.cat([path, path.flip(0)], dim=1), num_nodes=8)
        >>> MetisHierarchy(2)(data)
        SignalTree(leaves=8, nodes=11, depth=2, edge_index=[2, 14])
    """

    def __init__(
        self,
        num_parts: int | Sequence[int],
        weight: str | None = None,
        *,
        add_links: bool = False,
        seed: int | None = None,
    ) -> None:
        self.num_parts = counts(num_parts, "num_parts")
        self.weight = attribute_or_none(weight, "weight")
        self.add_links, self.seed = flag(add_links, "add_links"), seed_or_none(seed, bits=31)

    def forward(self, data: Any) -> SignalTree:
        """The graph with its hierarchy."""
        n = check_graph(data)
        edge_index, values = graph_edges(data, self.weight)
        row, col = edge_index.cpu().numpy()
        if row.size and not 0 <= edge_index.min() <= edge_index.max() < n:
            raise BuilderError(f"edge_index holds nodes that are not 0..{n - 1}: mend it first.")
        weight = np.ones(len(row)) if values is None else values.cpu().numpy()
        if not ((weight >= 0) & (weight == np.round(weight)) & (weight < 2**31)).all():
            bad = weight[~((weight >= 0) & (weight == np.round(weight)) & (weight < 2**31))]
            raise BuilderError(
                f"'{self.weight}' has the value {float(bad[0])!r}, but METIS takes whole numbers "
                "from 0 to 2**31: scale and round the weights."
            )
        labels, levels, size = np.arange(n), [], np.ones(n, dtype=np.int64)
        for parts in sorted(set(self.num_parts), reverse=True):
            if not 1 < parts < n:
                continue
            both = np.append(row, col), np.append(col, row)
            apart = both[0] != both[1]
            rows, cols, total = coalesce(
                n, both[0][apart], both[1][apart], np.tile(weight, 2)[apart]
            )
            ptr = np.searchsorted(rows, np.arange(n + 1))
            found = _metis(ptr, cols, total.astype(np.int64), size, parts, self.seed)
            found = np.unique(found, return_inverse=True)[1]
            labels, size = found[labels], np.bincount(found, weights=size).astype(np.int64)
            row, col, n = found[row], found[col], len(size)
            levels.append(labels)
        return partitioned(data, levels, add_links=self.add_links, weight=self.weight)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(num_parts={self.num_parts})"


def _metis(ptr: Ints, col: Ints, weight: Ints, size: Ints, parts: int, seed: int | None) -> Ints:
    """Part of every node of a graph in compressed rows, both directions of each edge stored."""
    if len(col) == 0:  # nothing to cut
        return np.arange(len(size)) * parts // len(size)
    weight = np.maximum(weight, 1)  # METIS takes no zeros
    if find_spec("pymetis") is not None:
        pymetis = require("pymetis", extra="transforms", purpose="METIS")
        graph = {"xadj": ptr.tolist(), "adjncy": col.tolist()}
        if hasattr(pymetis, "CSRAdjacency"):  # from 2025.2 on
            graph = {"adjacency": pymetis.CSRAdjacency(*graph.values())}
        chosen = pymetis.Options(seed=seed or 0)
        options = {"vweights": size.tolist(), "eweights": weight.tolist()}
        labels = pymetis.part_graph(parts, **graph, **options, options=chosen)[1]
        return np.asarray(labels, dtype=np.int64)
    if find_spec("pyg_lib") is not None:
        if seed is not None:
            raise UnsupportedError(
                f"seed={seed} is given, but pyg_lib takes none: run `pip install pymetis`, or "
                "leave it out."
            )
        pyg_lib = require("pyg_lib", extra="transforms", purpose="METIS")
        tensors = [torch.from_numpy(a) for a in (ptr, col)]
        labels = pyg_lib.partition.metis(
            *tensors,
            parts,
            node_weight=torch.from_numpy(size),
            edge_weight=torch.from_numpy(weight),
        )
        return labels.numpy().astype(np.int64)
    raise MissingPackageError(
        "MetisHierarchy needs the package 'pymetis' or 'pyg_lib', and neither is installed: run "
        "`pip install pymetis`, or use CommunityHierarchy, which needs neither."
    )
