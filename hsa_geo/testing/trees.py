"""Random trees, and random inputs for them.

A tree is drawn from a seed and one of :data:`SHAPES`, so a failing test can be repeated from
two words; :func:`trees` is the same for hypothesis, which shrinks to a small tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.data.store import GIVEN_NODE_KEYS, Kind, kind_of
from hsa_geo.errors import UnsupportedError
from hsa_geo.ops.plain_tree import PlainTree

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "SHAPES",
    "random_parents",
    "random_pos",
    "random_qkv",
    "random_tree",
    "shuffle_siblings",
    "trees",
]

#: Shapes of :func:`random_parents`, from a single leaf to everything at once.
SHAPES = ("single", "chain", "flat", "wide", "deep", "balanced", "mixed")


def random_parents(
    seed: int | np.random.Generator, *, max_leaves: int = 24, shape: str = "any"
) -> list[int]:
    """Parents of the nodes of a random tree, for :meth:`SignalTree.from_parents`.

    Args:
        seed: Seed, or a generator to draw from.
        max_leaves: The tree has at most as many leaves. (default: ``24``)
        shape: ``"single"`` leaf; ``"chain"`` of single children, with a few leaves at its end;
            ``"flat"``, all leaves under the root; ``"wide"``, many children, a few of them
            inner; ``"deep"``, at each level some leaves and one inner node; ``"balanced"``
            windows of equal size, level by level, ragged at the end; ``"mixed"``, groups of all
            sizes from one, at all depths, leaves beside inner nodes; ``"any"``, one of these at
            random. (default: ``"any"``)

    Returns:
        The parent of every node, -1 for the root; the ids are in random order.

    Raises:
        UnsupportedError: If the shape is unknown.

    Example:
        >>> parents = random_parents(0, max_leaves=4, shape="flat")
        >>> sum(parent == -1 for parent in parents)
        1
    """
    rng = np.random.default_rng(seed)
    if shape not in (*SHAPES, "any"):
        raise UnsupportedError(f"shape={shape!r} is unknown: use one of {(*SHAPES, 'any')}.")
    if shape == "any":
        shape = str(rng.choice(SHAPES))
    most = int(rng.integers(1, max_leaves + 1))
    parents = [-1]

    def grow(parent: int, count: int) -> list[int]:
        parents.extend([parent] * count)
        return list(range(len(parents) - count, len(parents)))

    if shape == "chain":
        end = 0
        for _ in range(int(rng.integers(1, 12))):
            (end,) = grow(end, 1)
        grow(end, int(rng.integers(0, min(most, 4) + 1)))
    elif shape == "flat":
        grow(0, most)
    elif shape == "wide":
        inner = grow(0, int(rng.integers(0, most // 4 + 1)))
        grow(0, max(most - 3 * len(inner), 0))
        for child in inner:
            grow(child, int(rng.integers(1, 4)))
    elif shape == "deep":
        end, left = 0, most
        while left > 0:
            beside = int(rng.integers(0, min(left, 3)))
            grow(end, beside)
            (end,) = grow(end, 1)
            left -= max(beside, 1)
    elif shape == "balanced":
        parents = _windows(most, int(rng.integers(2, 6)))
    elif shape == "mixed":
        tips, goal = [0], most
        while len(tips) < goal:
            tip = tips.pop(int(rng.integers(len(tips))))
            count = int(rng.integers(1, min(6, goal - len(tips)) + 1))
            tips += grow(tip, count)
    new_id = rng.permutation(len(parents))
    shuffled = np.empty(len(parents), dtype=np.int64)
    shuffled[new_id] = [-1 if parent < 0 else new_id[parent] for parent in parents]
    return [int(parent) for parent in shuffled]


def _windows(count: int, size: int) -> list[int]:
    """Parents when ``count`` leaves are grouped in windows of ``size``, and these again."""
    parents: list[int] = []
    while count > 1:
        base = len(parents) + count
        parents += [base + i // size for i in range(count)]
        count = -(-count // size)
    return [*parents, -1]


def random_tree(
    seed: int | np.random.Generator, *, max_leaves: int = 24, shape: str = "any"
) -> SignalTree:
    """A random tree with random domains and the positions that they ask for.

    Args:
        seed, max_leaves, shape: As in :func:`random_parents`.

    Returns:
        A canonical :class:`~hsa_geo.data.SignalTree` without features.

    Example:
        >>> random_tree(3, max_leaves=10, shape="single")
        SignalTree(leaves=1, nodes=1, depth=0)
    """
    rng = np.random.default_rng(seed)
    return _furnish(random_parents(rng, max_leaves=max_leaves, shape=shape), rng)


def _furnish(parents: list[int], rng: np.random.Generator) -> SignalTree:
    """A tree with random domains: sequences count 0, 1, ..., grids count by row and column."""
    tree: SignalTree = SignalTree.from_parents(parents)
    for node, group in enumerate(PlainTree.of(tree).children):
        domain = Domain(int(rng.integers(len(Domain)))) if group else LEAF
        tree.tree_domain[node] = int(domain)
        columns = int(rng.integers(1, len(group) + 1)) if group else 1
        for rank, child in enumerate(group):
            if domain == Domain.SEQUENCE:
                tree.tree_pos[child, 0] = rank
            elif domain == Domain.GRID2D:
                tree.tree_pos[child] = torch.tensor([rank // columns, rank % columns])
            elif domain == Domain.GRAPH:
                tree.tree_pos[child] = torch.from_numpy(rng.standard_normal(2))
    return tree


def trees(*, max_nodes: int = 16) -> SearchStrategy[SignalTree]:
    """Hypothesis strategy of trees as :func:`random_tree` makes them; they shrink to few nodes.

    Args:
        max_nodes: Most tree nodes. (default: ``16``)

    Raises:
        MissingPackageError: If hypothesis is not installed.

    Example:
        >>> trees(max_nodes=1).example()  # doctest: +SKIP
        SignalTree(leaves=1, nodes=1, depth=0)
    """
    st = require("hypothesis.strategies", extra="test", purpose="drawing trees with hypothesis")

    def build(picks: list[int], deep: bool, seed: int) -> SignalTree:
        chosen = [pick % (node + 1) for node, pick in enumerate(picks)]  # an earlier node
        parents = [node - pick if deep else pick for node, pick in enumerate(chosen)]
        return _furnish([-1, *parents], np.random.default_rng(seed))

    picks = st.lists(st.integers(0, max_nodes - 1), max_size=max_nodes - 1)
    return st.builds(build, picks, st.booleans(), st.integers(0, 2**16))


def random_qkv(
    tree: SignalTree,
    heads: int = 2,
    dim: int = 4,
    *,
    value_dim: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    requires_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Standard normal queries, keys and values for the leaves of a tree or batch.

    Args:
        tree: The tree.
        heads: H. (default: ``2``)
        dim: D. (default: ``4``)
        value_dim: Dv. (default: ``dim``)
        seed: Seed. (default: ``0``)
        dtype: Type; the numbers are the same in all. (default: ``torch.float64``)
        requires_grad: Whether the tensors require gradients. (default: ``False``)

    Returns:
        q [N, H, D], k [N, H, D], v [N, H, Dv].

    Example:
        >>> q, k, v = random_qkv(random_tree(0, shape="single"), heads=3, dim=5, value_dim=2)
        >>> q.shape, v.shape
        (torch.Size([1, 3, 5]), torch.Size([1, 3, 2]))
    """
    generator = torch.Generator().manual_seed(seed)
    n, dims = int(tree.num_nodes or 0), (dim, dim, dim if value_dim is None else value_dim)
    q, k, v = (
        torch.randn(n, heads, d, dtype=torch.float64, generator=generator).to(dtype) for d in dims
    )
    return (
        q.requires_grad_(requires_grad),
        k.requires_grad_(requires_grad),
        v.requires_grad_(requires_grad),
    )


def random_pos(
    tree: SignalTree,
    heads: int = 2,
    dim: int = 3,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Random position embeddings e(.), [M, heads, dim]: zero at children of sets and at roots.

    Example:
        >>> random_pos(random_tree(0, shape="single"), heads=1, dim=2)
        tensor([[[0., 0.]]], dtype=torch.float64)
    """
    generator = torch.Generator().manual_seed(seed)
    pos = torch.randn(len(tree.tree_level), heads, dim, dtype=torch.float64, generator=generator)
    parent, child = tree.tree_index
    placed = torch.zeros(len(tree.tree_level), dtype=torch.bool)
    placed[child[tree.tree_domain[parent] != Domain.SET]] = True
    return pos.masked_fill(~placed.view(-1, 1, 1), 0.0).to(dtype)


def shuffle_siblings(tree: SignalTree, *, seed: int = 0) -> tuple[SignalTree, Tensor]:
    """The same tree with the children of every node in random order.

    Args:
        tree: One tree, with any attributes of its leaves.
        seed: Seed. (default: ``0``)

    Returns:
        The shuffled tree, and ``row`` [N]: its leaf i is leaf ``row[i]`` of ``tree``.

    Example:
        >>> tree = SignalTree.from_parents([-1, 0, 0, 0], x=torch.tensor([[1.0], [2.0], [3.0]]))
        >>> shuffled, row = shuffle_siblings(tree, seed=1)
        >>> torch.equal(shuffled.x, tree.x[row])
        True
    """
    rng = np.random.default_rng(seed)
    children = PlainTree.of(tree).children
    m, n = len(children), int(tree.num_nodes or 0)
    leaves, stack = [], [m - 1]
    while stack:  # depth first
        node = stack.pop()
        stack += [children[node][i] for i in rng.permutation(len(children[node]))]
        leaves += [] if children[node] else [node]
    order = torch.tensor([*leaves, *range(n, m)])  # old id of each new one
    row, new_id = order[:n], order.argsort()
    parents = torch.full((m,), -1)
    parents[new_id[tree.tree_index[1]]] = new_id[tree.tree_index[0]]

    attrs = {}
    for key, value in tree.to_dict().items():
        kind = kind_of(key, tree.keys(), value)
        if key == "num_nodes" or (
            kind in (Kind.TREE_EDGES, Kind.TREE_NODES) and key not in GIVEN_NODE_KEYS
        ):
            continue
        if kind in (Kind.NODE_IDS, Kind.TREE_LINKS):
            value = new_id[value]
        elif kind in (Kind.LEAF_ROWS, Kind.GRAPH_EDGES):
            value = row.argsort()[value]
        elif key in GIVEN_NODE_KEYS:
            value = value[order]
        elif kind is Kind.OTHER and tree.is_node_attr(key):
            value = value[row] if isinstance(value, Tensor) else [value[i] for i in row.tolist()]
        attrs[key] = value
    name = tree.tree_name if "tree_name" in tree else None
    shuffled = SignalTree.from_parents(
        parents,
        domain=tree.tree_domain[order],
        pos=tree.tree_pos[order],
        name=None if name is None else [name[i] for i in order.tolist()],
        **attrs,
    )
    return shuffled, row
