"""Shapes of trees that the attention benchmark measures, by name and number of leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree, TreePlan

#: Numbers of children of the levels of a document, from words in a sentence upwards.
DOCUMENT = ((5, 30), (2, 8), (2, 8), (2, 8))


@dataclass(frozen=True)
class Shape:
    """A kind of tree: what it is, what makes it, and the sizes that are measured by default."""

    text: str
    make: Callable[[int, np.random.Generator], SignalTree]
    sizes: tuple[int, ...]
    quick: tuple[int, ...] = (512,)
    tiny: int = 150  # leaves, where only agreement matters
    placed: bool = False  # whether the tree comes with position embeddings


@dataclass(frozen=True)
class Work:
    """One shape at one size with its inputs; everything that contenders share.

    Attributes:
        shape: Name of the shape.
        tree: The tree or batch, on the CPU.
        plan: Its plan, on the device of the inputs.
        q, k, v: ``[N, H, D]``.
        pos: ``[M, 1, 8]``, embeddings of the positions, or None.
        x: ``[N, H * D]``, features of the leaves, for layers with projections of their own.
    """

    shape: str
    tree: SignalTree
    plan: TreePlan
    q: Tensor
    k: Tensor
    v: Tensor
    pos: Tensor | None
    x: Tensor

    @property
    def leaves(self) -> int:
        """Number of leaves N."""
        return self.plan.num_leaves

    @property
    def length(self) -> int:
        """Number of leaves of each tree, which is the same for all of them."""
        return self.plan.num_leaves // self.plan.num_trees

    @property
    def qkvo_bytes(self) -> int:
        """Bytes of q, k, v and the outputs."""
        return 4 * self.q.numel() * self.q.element_size()


def make_work(
    name: str,
    leaves: int,
    *,
    heads: int,
    dim: int,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Work:
    """Draw the tree and the inputs of one shape at one size.

    Args:
        name: Key of :data:`SHAPES`.
        leaves: Number of leaves, over all trees.
        heads: H.
        dim: D.
        seed: Seed of the tree and of the inputs. (default: ``0``)
        dtype: Type of the inputs. (default: ``torch.float32``)
        device: Device of the inputs. (default: ``"cpu"``)
    """
    shape = SHAPES[name]
    tree = shape.make(leaves, np.random.default_rng(seed))
    plan = TreePlan.from_index(tree.tree_index, tree.tree_level)
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, generator=generator).to(device)

    q, k, v = (draw(plan.num_leaves, heads, dim) for _ in range(3))
    pos = None
    if shape.placed:  # a linear map of row and column stands in for an embedding that is learned
        pos = (tree.tree_pos.to(device, dtype) @ draw(2, 8))[:, None]
    x = draw(plan.num_leaves, heads * dim)
    return Work(name, tree, plan if device == "cpu" else plan.to(device), q, k, v, pos, x)


def from_groups(leaves: int, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Parents of a tree by its levels: ``groups[l][i]`` is the number of i's parent in level l+1.

    >>> from_groups(3, [np.array([0, 0, 1])]).tolist()
    [3, 3, 4, 5, 5, -1]
    """
    parents, start = [], leaves
    for group in groups:
        parents.append(start + group)
        start += int(group[-1]) + 1
    top = start - int(groups[-1][-1]) - 1 if groups else 0
    if start - top > 1 or not groups:  # what is left goes under one root
        parents += [np.full(start - top, start)]
    return np.concatenate([*parents, [-1]])


def ragged(count: int, low: int, high: int, rng: np.random.Generator) -> np.ndarray:
    """Group ``count`` things in order, ``low`` to ``high`` in each group; the last may be short."""
    sizes = rng.integers(low, high + 1, count // low + 1)
    return np.repeat(np.arange(len(sizes)), sizes)[:count]


def document(leaves: int, rng: np.random.Generator) -> SignalTree:
    """Words in sentences in paragraphs in sections in chapters, of random numbers."""
    groups, count = [], leaves
    for low, high in DOCUMENT:
        if count == 1:
            break
        groups.append(ragged(count, low, high, rng))
        count = int(groups[-1][-1]) + 1
    return SignalTree.from_parents(from_groups(leaves, groups), domain=Domain.SEQUENCE)


def windows(leaves: int, width: int) -> np.ndarray:
    """Parents when ``width`` leaves at a time make a window, and these again, up to one root."""
    groups, count = [], leaves
    while count > width:
        groups.append(np.arange(count) // width)
        count = -(-count // width)
    return from_groups(leaves, groups)


def quadtree(leaves: int, rng: np.random.Generator) -> SignalTree:
    """Pixels in quarters of quarters of a square image; each knows its row and column there."""
    parent = windows(leaves, 4)
    place = np.zeros(len(parent), dtype=np.int64)  # among the siblings, which are neighbours
    place[1:] = np.where(parent[1:] == parent[:-1], 1, 0)
    start = np.maximum.accumulate(np.where(place == 0, np.arange(len(parent)), 0))
    place = np.arange(len(parent)) - start
    pos = np.stack([place // 2, place % 2], axis=1).astype(np.float32)
    return SignalTree.from_parents(parent, domain=Domain.GRID2D, pos=pos)


def wide(leaves: int, rng: np.random.Generator) -> SignalTree:
    """All leaves under the root: flat attention."""
    return SignalTree.from_parents(from_groups(leaves, []))


def chain(leaves: int, rng: np.random.Generator) -> SignalTree:
    """A leaf and an inner node at every level, two leaves at the last: as deep as can be."""
    inner = leaves + np.arange(leaves - 1)  # the root first
    parent = [np.minimum(inner[0] + np.arange(leaves), inner[-1]), [-1], inner[:-1]]
    return SignalTree.from_parents(np.concatenate(parent))


def documents(each: int) -> Callable[[int, np.random.Generator], SignalTree]:
    """A batch of documents of ``each`` leaves."""

    def make(leaves: int, rng: np.random.Generator) -> SignalTree:
        return Batch.from_data_list([document(each, rng) for _ in range(max(1, leaves // each))])

    return make


def _windows_of(width: int) -> Callable[[int, np.random.Generator], SignalTree]:
    return lambda leaves, rng: SignalTree.from_parents(windows(leaves, width))


SHAPES: dict[str, Shape] = {
    "document": Shape(
        "5-30 words in a sentence, 2-8 of these in a paragraph, likewise sections and chapters",
        document,
        (1024, 4096, 16384, 65536, 262144),
        (256, 1024),
    ),
    "windows4": Shape("windows of 4, again and again", _windows_of(4), (4096, 16384)),
    "windows16": Shape("windows of 16, again and again", _windows_of(16), (4096, 16384)),
    "quadtree": Shape(
        "quarters of quarters of an image, with 2-D positions in the scores",
        quadtree,
        (4096, 16384),
        placed=True,
    ),
    "wide": Shape("all leaves under the root", wide, (1024, 4096), (512,)),
    "chain": Shape("one leaf and one inner node at every level", chain, (1024, 4096), (256,)),
    "batch64": Shape("256 documents of 64 leaves", documents(64), (16384,), (512,), 128),
    "batch600": Shape("32 documents of 600 leaves", documents(600), (19200,), (600,), 600),
}
