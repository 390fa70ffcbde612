"""Clusters of nodes that lie close together, in space or by their features, as a hierarchy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from hsa_geo._optional import require
from hsa_geo.builders.communities import stack_partitions
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.canonical import leaf_spans, levels_of
from hsa_geo.errors import BuilderError, LimitError, UnsupportedError
from hsa_geo.transforms.arguments import attribute, counts, flag, seed_or_none
from hsa_geo.transforms.attach import attach_hierarchy, check_graph
from hsa_geo.transforms.communities import partitioned

__all__ = ["ClusterHierarchy"]

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]

#: Agglomerative clustering compares all pairs of nodes: 8 bytes for each.
MAX_AGGLOMERATIVE = 20_000
#: From here on k-means looks at a sample of the nodes in each step.
MANY_NODES = 10_000
#: More clusters are found in two steps, within the square root of their number of large ones.
MANY_CLUSTERS = 256


class ClusterHierarchy(BaseTransform):
    r"""Give a graph (or a point cloud) the hierarchy of its clusters in space or in feature space.

    ``"kmeans"`` clusters the nodes, then the centres of the clusters by how many nodes they hold,
    and so on (many clusters within a few large ones, so their number is about what was asked for);
    ``"agglomerative"`` cuts one dendrogram at several numbers of clusters.  Needs
    scikit-learn.  All else of the graph stays as it is
    (:func:`~hsa_geo.transforms.attach_hierarchy`); a cluster of one member is left out.

    Args:
        attr (str): Node attribute ``[N, ...]`` of numbers. (default: ``"pos"``)
        sizes (sequence of ints, optional): Numbers of clusters, one level for each; those that a
            graph has no different nodes for are left out. (default: by ``branching``)
        branching (int, optional): In place of ``sizes``: N/b clusters, of which N/b², and so on,
            until there are at most b. (default: ``8``)
        method (str): ``"kmeans"`` or ``"agglomerative"``, which takes up to 20,000 nodes.
            (default: ``"kmeans"``)
        linkage (str): Of ``"agglomerative"``: ``"ward"``, ``"average"``, ``"complete"``,
            ``"single"``. (default: ``"ward"``)
        add_pos (bool): Give siblings positions, for attributes of one or two columns: the mean
            over the nodes below, in a ``SEQUENCE`` or ``GRID2D``. (default: :obj:`False`)
        add_links (bool): Give siblings the ``GRAPH`` domain and links where edges join them, as
            :class:`CommunityHierarchy` does. (default: :obj:`False`: a ``SET``)
        seed (int, optional): Seed of k-means, None for a random one. (default: ``0``)

    Raises:
        MissingPackageError: If scikit-learn is not installed.
        BuilderError: If the attribute is missing or not finite, or an argument does not fit.
        LimitError: If the graph is too large for ``"agglomerative"``.
        UnsupportedError: If it is no single ``Data``, or has a hierarchy already.

    Example:
        >>> from torch_geometric.data import Data
        >>> data = Data(pos=torch.tensor([[0.0, 0], [0, 1], [9, 9], [9, 8], [9, 7]]))
        >>> ClusterHierarchy("pos", sizes=[2], add_pos=True)(data).describe()
        SignalTree: 5 leaves, 8 nodes, depth 2
        7: GRID2D of 2, 5 leaves
          5 at (0, 0.5): GRID2D of 2, 2 leaves
            0 at (0, 0)
            1 at (0, 1)
          6 at (9, 8): GRID2D of 3, 3 leaves
            2 at (9, 9)
            3 at (9, 8)
            4 at (9, 7)
    """

    def __init__(
        self,
        attr: str = "pos",
        sizes: Sequence[int] | None = None,
        *,
        branching: int | None = None,
        method: Literal["kmeans", "agglomerative"] = "kmeans",
        linkage: Literal["ward", "average", "complete", "single"] | None = None,
        add_pos: bool = False,
        add_links: bool = False,
        seed: int | None = 0,
    ) -> None:
        if method not in ("kmeans", "agglomerative"):
            raise UnsupportedError(f"method={method!r}: use 'kmeans' or 'agglomerative'.")
        if method == "kmeans" and linkage is not None:
            raise UnsupportedError(f"linkage={linkage!r} goes with method='agglomerative' only.")
        if method == "agglomerative" and seed not in (0, None):
            raise UnsupportedError(f"seed={seed!r}: 'agglomerative' draws nothing; leave it out.")
        linkage = "ward" if linkage is None else linkage
        if linkage not in ("ward", "average", "complete", "single"):
            raise UnsupportedError(
                f"linkage={linkage!r}: use 'ward', 'average', 'complete' or 'single'."
            )
        if sizes is not None and branching is not None:
            raise BuilderError("sizes and branching are both given: give one of them.")
        self.attr = attribute(attr, "attr")
        self.add_pos, self.add_links = flag(add_pos, "add_pos"), flag(add_links, "add_links")
        if add_pos and add_links:
            raise BuilderError(
                "add_pos and add_links are both given, but siblings lie in one domain: give one."
            )
        self.sizes = None if sizes is None else counts(sizes, "sizes")
        if self.sizes is not None and not self.sizes:
            raise BuilderError(f"sizes={sizes!r} asks for no level: give one size or more.")
        self.branching = counts([8 if branching is None else branching], "branching", least=2)[0]
        self.method, self.linkage = method, linkage
        self.seed = seed_or_none(seed, bits=32)

    def forward(self, data: Any) -> SignalTree:
        """The graph with its hierarchy."""
        n = check_graph(data)
        points = self._points(data, n)
        different = len(np.unique(points, axis=0))
        sizes = self.sizes or shrinking(n, self.branching)
        sizes = sorted({k for k in sizes if 1 < k <= different and k < n}, reverse=True)
        levels: list[Ints] = []
        if sizes and self.method == "kmeans":
            levels = _kmeans(points, sizes, self.seed)
        elif sizes:
            levels = _agglomerative(points, sizes, self.linkage)
        if not self.add_pos:
            return partitioned(data, levels, add_links=self.add_links)
        parent = stack_partitions(levels or [np.zeros(n, dtype=np.int64)])
        domain = (Domain.SEQUENCE, Domain.GRID2D)[points.shape[1] - 1]
        return attach_hierarchy(data, parent, domain=domain, pos=_means(parent, points))

    def _points(self, data: Any, n: int) -> Reals:
        value = data.to_dict().get(self.attr)
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != n:
            has = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            has = f"the graph has {sorted(data.keys())}" if value is None else f"it is {has}"
            raise BuilderError(
                f"attr={self.attr!r} is no tensor with a row for each of the {n} nodes ({has}): "
                "give the name of such an attribute."
            )
        if value.layout is not torch.strided or value.is_complex():
            raise BuilderError(
                f"'{self.attr}' is a tensor of dtype {value.dtype} and layout {value.layout}: give "
                "a dense one of real numbers."
            )
        points = value.detach().cpu().to(torch.float64).reshape(n, -1).numpy()
        bad = np.flatnonzero(~(np.abs(points) < 1e150).all(axis=1))  # squares are finite
        if bad.size:
            raise BuilderError(
                f"node {int(bad[0])} has a value in '{self.attr}' that is not finite or above "
                "1e150: clean the attribute first."
            )
        if self.add_pos and points.shape[1] not in (1, 2):
            raise BuilderError(
                f"'{self.attr}' has {points.shape[1]} columns, but add_pos needs one or two: leave "
                "add_pos out, or name another attribute."
            )
        return points

    def __repr__(self) -> str:
        how = f"sizes={self.sizes}" if self.sizes is not None else f"branching={self.branching}"
        return f"{self.__class__.__name__}({self.attr!r}, {how}, method={self.method!r})"


def shrinking(n: int, branching: int) -> list[int]:
    """Numbers of groups, level by level, when each holds ``branching`` of those below.

    Example:
        >>> shrinking(100, 4)
        [25, 7, 2]
    """
    sizes = []
    while n > branching:
        n = -(-n // branching)
        sizes.append(n)
    return sizes


def _kmeans(points: Reals, sizes: list[int], seed: int | None) -> list[Ints]:
    labels, levels = np.arange(len(points)), []
    centres, weight = points, np.ones(len(points))
    for k in sizes:
        if len(np.unique(centres, axis=0)) < k or len(centres) <= k:
            continue  # the level below has found fewer clusters than it was to
        found = _clusters(centres, weight, k, seed)
        total = np.bincount(found, weights=weight).astype(np.float64)
        sums = [np.bincount(found, weights=weight * column) for column in centres.T]
        centres, weight = np.stack(sums, axis=1) / total[:, None], total
        labels = found[labels]
        levels.append(labels)
    return levels


def _clusters(points: Reals, weight: Reals, k: int, seed: int | None) -> Ints:
    """About k clusters, numbered from 0; many of them are found within a few large ones."""
    cluster = require("sklearn.cluster", extra="transforms", purpose="clustering nodes")

    def kmeans(rows: Any, k: int) -> Ints:
        many = len(points[rows]) > MANY_NODES
        method = cluster.MiniBatchKMeans if many else cluster.KMeans
        options = {"batch_size": 4096} if many else {}
        found = method(k, n_init=1, random_state=seed, **options)
        with warnings.catch_warnings():  # points that differ by rounding alone: fewer clusters
            warnings.filterwarnings("ignore", message="Number of distinct clusters")
            found.fit(points[rows], sample_weight=weight[rows])
        return np.unique(found.labels_, return_inverse=True)[1].astype(np.int64)

    if k <= MANY_CLUSTERS:
        return kmeans(slice(None), k)
    large = kmeans(slice(None), int(np.sqrt(k)))
    by_large = np.argsort(large, kind="stable")
    out: Ints = np.zeros(len(points), dtype=np.int64)
    count = 0
    for rows in np.split(by_large, np.cumsum(np.bincount(large))[:-1]):
        share = max(1, round(k * len(rows) / len(points)))
        share = min(share, len(np.unique(points[rows], axis=0)))
        out[rows] = count + (kmeans(rows, share) if share > 1 else 0)
        count = int(out[rows].max()) + 1
    return out


def _agglomerative(points: Reals, sizes: list[int], linkage: str) -> list[Ints]:
    cluster = require("sklearn.cluster", extra="transforms", purpose="clustering nodes")
    n = len(points)
    if n > MAX_AGGLOMERATIVE:
        raise LimitError(
            f"the graph has {n} nodes, but agglomerative clustering compares all pairs and takes "
            f"{MAX_AGGLOMERATIVE}: use method='kmeans'."
        )
    method = cluster.AgglomerativeClustering(
        n_clusters=None, distance_threshold=0, linkage=linkage
    ).fit(points)
    parent = np.arange(2 * n - 1)
    parent[method.children_] = n + np.arange(n - 1)[:, None]  # merge i makes node n + i
    levels = []
    for k in sizes:  # after n - k merges there are k clusters
        up = np.where(parent < 2 * n - k, parent, np.arange(2 * n - 1))
        for _ in range((2 * n).bit_length()):
            up = up[up]
        levels.append(np.unique(up[:n], return_inverse=True)[1])
    return levels


def _means(parent: Ints, points: Reals) -> NDArray[np.float32]:
    """Mean of the points below every node, ``[M, 1 or 2]``."""
    level = levels_of(parent)
    total = np.zeros((len(parent), points.shape[1]))
    total[: len(points)] = points
    for k in range(int(level.max(initial=0)), 0, -1):
        nodes = np.flatnonzero(level == k)
        np.add.at(total, parent[nodes], total[nodes])
    return (total / leaf_spans(parent, level)[2][:, None]).astype(np.float32)
