"""Trees with every kind of attribute, comparisons, and a tree in plain Python to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.testing import random_parents

#: page > (head > (to, list > (be, a, b), logo), foot, end > deep)
PAGE = [4, 5, 4, -1, 3, 4, 3, 5, 9, 3, 5]
NAMES = ["to", "be", "logo", "page", "head", "list", "foot", "a", "deep", "end", "b"]


def page_tree(**attrs: Any) -> SignalTree:
    """The tree of PAGE, with names and positions that count the ids."""
    return SignalTree.from_parents(
        PAGE, name=NAMES, pos=torch.arange(len(PAGE), dtype=torch.float32), **attrs
    )


def full_tree(seed: int = 0, *, max_leaves: int = 12, **attrs: Any) -> SignalTree:
    """A random tree that has an attribute of every kind; the keys never depend on the seed."""
    rng = np.random.default_rng(seed)
    parents = random_parents(rng, max_leaves=max_leaves)
    m, n = len(parents), len(parents) - len(set(parents) - {-1})
    edges, words, regions = (int(rng.integers(0, 9)) for _ in range(3))
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int, high: int) -> Tensor:
        return torch.randint(0, high, (count,), generator=generator)

    # Some ordered pairs of siblings, as edges of a graph among them.
    above = np.array(parents)
    siblings = np.argwhere((above[:, None] == above) & (above >= 0) & ~np.eye(m, dtype=bool))
    links = torch.from_numpy(siblings[rng.random(len(siblings)) < 0.3].T.copy())
    values = {
        "tree_link": links,
        "tree_link_weight": torch.rand(links.size(1), generator=generator),
        "tree_pe": torch.randn(m, 3, generator=generator),
        "tree_span": ids(2 * m, 99).view(m, 2),
        "leaf_weight": 1 + ids(n, 4),
        "x": torch.randn(n, 4, generator=generator),
        "edge_index": torch.stack([ids(edges, n), ids(edges, n)]),
        "edge_attr": torch.randn(edges, 2, generator=generator),
        "y": torch.randint(0, 2, (1, 3), generator=generator),
        "leaf_y": torch.randint(0, 5, (n,), generator=generator),
        "text_x": torch.randint(0, 99, (words, 2), generator=generator),
        "text_index": ids(words, n),
        "image_x": torch.rand(0, 3, 2, 2),
        "image_index": torch.zeros(0, dtype=torch.int64),
        "region_node": ids(regions, m),
        "weight_index": torch.rand(1, 3, generator=generator),  # not an index, whatever its name
        "url": f"page {seed}",
        "count": seed,
        "share": seed / 7,
        "seen": seed % 2 == 0,
    }
    return SignalTree.from_parents(
        parents,
        domain=rng.integers(0, 4, m),
        pos=rng.standard_normal((m, 2)),
        name=[f"{seed}:{i}" for i in range(m)],
        **{**values, **attrs},
    )


def full_trees(count: int = 8, **attrs: Any) -> list[SignalTree]:
    return [full_tree(seed, **attrs) for seed in range(count)]


def assert_same(actual: Any, expected: Any, where: str = "") -> None:
    """The same types, dtypes, shapes and values, all the way down."""
    assert type(actual) is type(expected), (where, type(actual), type(expected))
    if isinstance(expected, Tensor):
        assert actual.dtype == expected.dtype, where
        assert actual.shape == expected.shape, (where, actual.shape, expected.shape)
        assert torch.equal(actual, expected), where
    elif isinstance(expected, SignalTree):
        assert set(actual.keys()) == set(expected.keys()), where
        for key, value in expected:
            assert_same(actual.to_dict()[key], value, f"{where}.{key}")
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for key, value in expected.items():
            assert_same(actual[key], value, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), where
        for i, (a, b) in enumerate(zip(actual, expected)):
            assert_same(a, b, f"{where}[{i}]")
    else:
        assert actual == expected, where


@dataclass
class Plain:
    """A rooted tree as parents and lists of children, walked as a person would."""

    parent: list[int]
    children: list[list[int]]

    @classmethod
    def of(cls, tree: SignalTree) -> Plain:
        m = len(tree.tree_level)
        parent, children = [-1] * m, [[] for _ in range(m)]
        for above, below in tree.tree_index.t().tolist():
            parent[below] = above
            children[above].append(below)
        return cls(parent, children)

    @property
    def roots(self) -> list[int]:
        return [node for node, above in enumerate(self.parent) if above < 0]

    def leaves(self, node: int) -> list[int]:
        """Leaves below a node, depth-first."""
        found, stack = [], [node]
        while stack:
            node = stack.pop()
            stack += reversed(self.children[node])
            found += [] if self.children[node] else [node]
        return found

    def level(self, node: int) -> int:
        level = 0
        while self.parent[node] >= 0:
            node, level = self.parent[node], level + 1
        return level

    def top(self, node: int) -> int:
        """The top of the chain of single children that ends at ``node``."""
        while self.parent[node] >= 0 and len(self.children[self.parent[node]]) == 1:
            node = self.parent[node]
        return node

    def bottom(self, node: int) -> int:
        while len(self.children[node]) == 1:
            node = self.children[node][0]
        return node
