"""Encodings of where a node stands among its siblings, where these form a graph."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, BaseTransform

from hsa_geo._optional import require
from hsa_geo.builders._louvain import coalesce
from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.errors import BuilderError, ShapeError, UnsupportedError
from hsa_geo.transforms.arguments import counts, flag
from hsa_geo.transforms.attach import check_tree

__all__ = ["AddTreePE"]

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]

#: Entries of powers of the walk that are held at once, at most (unless one group has more).
WALK_ENTRIES = 20_000_000
#: Entries of Laplacians that are held at once, at most (unless one group has more).
LAPLACIAN_ENTRIES = 4_000_000
#: Number of siblings from which on eigenvectors are computed one by one, through PyG.
MANY_SIBLINGS = 256


class AddTreePE(BaseTransform):
    r"""Fill ``tree_pe`` with encodings of every node in the graph of its siblings.

    The siblings of a ``GRAPH`` domain and ``tree_link`` among them are a graph each, and get what
    PyG gives the nodes of a graph:

    - ``"random_walk"``: the probabilities that a walk along the links is back after 1, 2, ..., k
      steps (:class:`torch_geometric.transforms.AddRandomWalkPE`).
    - ``"laplacian"``: the k first eigenvectors, beside the trivial one, of the normalised Laplacian
      (:class:`torch_geometric.transforms.AddLaplacianEigenvectorPE`), directions left out.  Of
      fewer than k + 1 siblings there are fewer; the rest is zero.  The sign is fixed: of a vector's
      entries of largest magnitude (to 0.1 %) the one of the first sibling is positive.  Vectors of
      equal eigenvalues are not unique, and those that an isolated or symmetric graph has are
      whatever the solver returns.

    Nodes of other domains, the root, and nodes without siblings get zeros.

    Args:
        method (str): ``"laplacian"`` or ``"random_walk"``. (default: ``"laplacian"``)
        k (int): Number of encodings K. (default: ``8``)
        weighted (bool): Links count as their ``tree_link_weight``, where the tree has it;
            otherwise all the same. (default: :obj:`True`)
        cat (bool): Put them behind the ``tree_pe`` that the tree has, rather than in its place.
            (default: :obj:`False`)

    Raises:
        UnsupportedError: If the input is no single SignalTree, or the method is unknown.
        BuilderError: If it has no ``tree_link``, or k does not fit.
        ShapeError: If a link joins nodes that are no siblings, or a weight is negative or not
            finite.
        MissingPackageError: If scipy is not installed.

    Example:
        >>> link = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> tree = SignalTree.from_parents([3, 3, 3, -1], domain=Domain.GRAPH, tree_link=link)
        >>> AddTreePE("random_walk", k=4)(tree).tree_pe.tolist()
        [[0.0, 0.5, 0.0, 0.5], [0.0, 1.0, 0.0, 1.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        method: Literal["laplacian", "random_walk"] = "laplacian",
        k: int = 8,
        *,
        weighted: bool = True,
        cat: bool = False,
    ) -> None:
        if method not in ("laplacian", "random_walk"):
            raise UnsupportedError(f"method={method!r}: use 'laplacian' or 'random_walk'.")
        self.method, self.k = method, counts([k], "k")[0]
        self.weighted, self.cat = flag(weighted, "weighted"), flag(cat, "cat")

    def forward(self, data: Any) -> SignalTree:
        """The tree with its encodings."""
        tree = check_tree(data, "AddTreePE")
        values, m = tree.to_dict(), tree.num_tree_nodes
        pe = np.zeros((m, self.k), dtype=np.float32)
        groups = _sibling_graphs(tree, self.weighted)
        if self.method == "random_walk":
            _random_walks(groups, pe)
        else:
            _eigenvectors(groups, pe)
        result = torch.from_numpy(pe).to(tree.tree_index.device)
        if self.cat and "tree_pe" in values:
            result = torch.cat([values["tree_pe"], result.to(values["tree_pe"].dtype)], dim=1)
        tree.tree_pe = result
        return tree

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.method!r}, k={self.k})"


class _Groups:
    """Sibling graphs as one block diagonal graph.

    Attributes:
        node: ``[S]``, tree node of every local one, group by group in sibling order.
        ptr: ``[G + 1]``, local nodes of group g are ``ptr[g]:ptr[g+1]``.
        row, col: ``[E]``, links between local nodes, sorted, each once.
        weight: ``[E]``.
    """

    def __init__(self, node: Ints, ptr: Ints, row: Ints, col: Ints, weight: Reals) -> None:
        self.node, self.ptr = node, ptr
        self.row, self.col, self.weight = row, col, weight

    def part(self, first: int, last: int) -> tuple[Ints, Ints, Ints, Reals]:
        """Nodes and links of groups ``first:last``, links in local numbers from 0."""
        low, high = self.ptr[first], self.ptr[last]
        a, b = np.searchsorted(self.row, [low, high])
        return self.node[low:high], self.row[a:b] - low, self.col[a:b] - low, self.weight[a:b]


def _sibling_graphs(tree: SignalTree, weighted: bool) -> _Groups:
    """The children of nodes with a GRAPH domain that have links."""
    values = tree.to_dict()
    if "tree_link" not in values:
        raise BuilderError(
            "the tree has no tree_link, the edges among siblings: build it with add_links=True, or "
            "give from_parents tree_link (empty [2, 0] where there are none)."
        )
    forest = Forest.of(tree)
    link = _checked_links(values["tree_link"], forest)
    weight = np.ones(link.shape[1])
    weighted = weighted and "tree_link_weight" in values
    if weighted:
        weight = _checked_weights(values["tree_link_weight"], link)
    domain = tree.tree_domain.cpu().numpy()
    above = forest.parent[link[0]]
    if weighted:  # the largest of each group is 1, so that sums are finite
        largest = np.zeros(forest.num_nodes)
        np.maximum.at(largest, above, weight)
        weight = weight / np.where(largest > 0, largest, 1)[above]
    used = (domain[above] == Domain.GRAPH) & (weight > 0)
    link, weight = link[:, used], weight[used]
    has = np.zeros(forest.num_nodes, dtype=bool)
    has[above[used]] = True
    column = has[forest.edge_parent]
    node, owner = forest.edge_child[column], forest.edge_parent[column]
    ptr = np.append(np.flatnonzero(np.diff(owner, prepend=-1)), len(owner))
    local = np.zeros(forest.num_nodes, dtype=np.int64)
    local[node] = np.arange(len(node))
    row, col, weight = coalesce(max(len(node), 1), local[link[0]], local[link[1]], weight)
    return _Groups(node, ptr, row, col, weight if weighted else np.ones(len(row)))


def _checked_links(link: Any, forest: Forest) -> Ints:
    """``tree_link`` as an array, if every link joins children of one node."""
    if not isinstance(link, Tensor) or link.dtype != torch.int64 or link.shape[:-1] != (2,):
        what = type(link).__name__
        if isinstance(link, Tensor):
            what = f"{link.dtype} {list(link.shape)}"
        raise ShapeError(f"'tree_link' is {what}: it must be torch.int64 [2, E].")
    ends: Ints = link.cpu().numpy()
    bad = ends[(ends < 0) | (ends >= forest.num_nodes)]
    if bad.size:
        raise ShapeError(
            f"'tree_link' holds {int(bad[0])}, but the tree nodes are 0..{forest.num_nodes - 1}."
        )
    above = forest.parent[ends]
    apart = np.flatnonzero((above[0] != above[1]) | (above[0] < 0))
    if apart.size:
        a, b = ends[:, apart[0]].tolist()
        raise ShapeError(
            f"'tree_link' joins nodes {a} and {b}, which are no siblings: edges between leaves of "
            "different parents belong into edge_index."
        )
    return ends


def _checked_weights(weight: Any, link: Ints) -> Reals:
    """``tree_link_weight`` as an array, if there is one finite number from 0 for each link."""
    if not isinstance(weight, Tensor) or weight.is_complex() or weight.shape != (link.shape[1],):
        what = type(weight).__name__
        if isinstance(weight, Tensor):
            what = f"{weight.dtype} {list(weight.shape)}"
        raise ShapeError(
            f"'tree_link_weight' is {what}: give one number for each of the {link.shape[1]} links."
        )
    found: Reals = weight.detach().cpu().to(torch.float64).numpy()
    bad = np.flatnonzero(~((found >= 0) & np.isfinite(found)))
    if bad.size:
        raise ShapeError(
            f"tree_link_weight holds {found[bad[0]]!r} for the link between nodes "
            f"{link[:, bad[0]].tolist()}: give finite weights from 0, or weighted=False."
        )
    return found


def _random_walks(groups: _Groups, pe: NDArray[np.float32]) -> None:
    sparse = require("scipy.sparse", extra="transforms", purpose="random walks")
    entries = np.concatenate([[0], np.cumsum(np.diff(groups.ptr) ** 2)])
    first = 0
    while first < len(groups.ptr) - 1:
        last = int(np.searchsorted(entries, entries[first] + WALK_ENTRIES, side="right")) - 1
        last = max(last, first + 1)
        node, row, col, weight = groups.part(first, last)
        total = np.bincount(row, weights=weight, minlength=len(node))
        step = sparse.csr_matrix((weight / total[row], (row, col)), shape=(len(node),) * 2)
        walk = step
        for i in range(pe.shape[1]):
            pe[node, i] = walk.diagonal()
            if i + 1 < pe.shape[1]:
                walk = walk @ step
        first = last


def _eigenvectors(groups: _Groups, pe: NDArray[np.float32]) -> None:
    require("scipy.sparse", extra="transforms", purpose="eigenvectors of the Laplacian")
    groups = _undirected_by_size(groups)
    size = np.diff(groups.ptr)
    first = int(np.searchsorted(size, 2))  # a node without siblings has none
    while first < len(size):
        n = int(size[first])
        k = min(pe.shape[1], n - 1)
        chunk = 1 if n >= MANY_SIBLINGS else max(1, LAPLACIAN_ENTRIES // n**2)
        last = min(first + chunk, int(np.searchsorted(size, n, side="right")))
        node, row, col, weight = groups.part(first, last)
        if n >= MANY_SIBLINGS:
            vectors = _pyg_vectors(row, col, weight, n, k)[None]
        else:
            vectors = np.linalg.eigh(_laplacians(n, row, col, weight, last - first))[1]
            vectors = vectors[:, :, 1 : k + 1]
        magnitude = np.abs(vectors)
        leading = magnitude >= 0.999 * magnitude.max(axis=1, keepdims=True)
        leading = leading.argmax(axis=1)[:, None, :]
        sign = np.where(np.take_along_axis(vectors, leading, axis=1) < 0, -1.0, 1.0)
        pe[node, :k] = (vectors * sign).reshape(-1, k)
        first = last


def _undirected_by_size(groups: _Groups) -> _Groups:
    """Each link in both directions, and small groups before large ones."""
    size = np.diff(groups.ptr)
    order = np.argsort(size, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(size[order])])
    old = np.arange(ptr[-1]) + np.repeat(groups.ptr[order] - ptr[:-1], size[order])
    moved = np.empty_like(old)
    moved[old] = np.arange(len(old))
    row, col = moved[groups.row], moved[groups.col]
    both = np.append(row, col), np.append(col, row), np.tile(groups.weight, 2)
    return _Groups(groups.node[old], ptr, *coalesce(max(len(old), 1), *both))


def _laplacians(n: int, row: Ints, col: Ints, weight: Reals, count: int) -> Reals:
    """Normalised Laplacians ``[count, n, n]`` of as many groups of n siblings each."""
    apart = row != col
    row, col, weight = row[apart], col[apart], weight[apart]
    degree = np.bincount(row, weights=weight, minlength=count * n)
    scale = np.zeros(count * n)
    scale[degree > 0] = degree[degree > 0] ** -0.5
    out = np.zeros((count, n, n))
    out[:, np.arange(n), np.arange(n)] = 1
    out[row // n, row % n, col % n] = -(scale[row] * weight * scale[col])
    return out


def _pyg_vectors(row: Ints, col: Ints, weight: Reals, n: int, k: int) -> Reals:
    graph = Data(
        edge_index=torch.from_numpy(np.stack([row, col])),
        edge_weight=torch.from_numpy(weight),
        num_nodes=n,
    )
    options = {}
    if n >= MANY_SIBLINGS:  # where the iteration starts is random otherwise
        options["v0"] = np.random.default_rng(0).standard_normal(n)
    transform = AddLaplacianEigenvectorPE(k, "pe", is_undirected=True, **options)
    transform.SPARSE_THRESHOLD = MANY_SIBLINGS if k + 1 < n else n + 1
    with torch.random.fork_rng(devices=[]):  # it draws signs
        try:
            found: Tensor = transform(graph).pe
        except Exception as error:
            if type(error).__name__ != "ArpackNoConvergence":
                raise
            transform.SPARSE_THRESHOLD = n + 1  # all vectors at once
            found = transform(graph).pe
    return found.to(torch.float64).numpy()
