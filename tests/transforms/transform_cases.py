"""Graphs and comparisons that the tests of transforms share."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from hsa_geo.data import Domain, SignalTree
from hsa_geo.nn import FourierPosition, HSAConv, PositionEmbedding
from hsa_geo.transforms import (
    AttributeHierarchy,
    ClusterHierarchy,
    CommunityHierarchy,
    GivenHierarchy,
    MetisHierarchy,
)

HIERARCHIES = {
    "communities": CommunityHierarchy([4.0, 1.0]),
    "communities with links": CommunityHierarchy(weight="edge_weight", add_links=True),
    "clusters": ClusterHierarchy("pos", [4, 2]),
    "clusters of x": ClusterHierarchy("x", branching=3, method="agglomerative"),
    "clusters with positions": ClusterHierarchy("pos", [3], add_pos=True),
    "attributes": AttributeHierarchy(["country", "city"], add_links=True),
    "partitions": GivenHierarchy(partitions="parts"),
}
if find_spec("pymetis"):
    HIERARCHIES["metis"] = MetisHierarchy([4, 2], add_links=True)


def graph_of(n: int, edges: list[tuple[int, int]], seed: int = 0, directed: bool = False) -> Data:
    """A graph with attributes of all sorts: of nodes, edges and the whole, tensors and others."""
    rng = np.random.default_rng(seed)
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    edge_index = edge_index.unique(dim=1)
    edge_index = edge_index if directed else to_undirected(edge_index, num_nodes=n)
    e = edge_index.size(1)

    def real(*shape: int) -> Tensor:
        return torch.from_numpy(rng.standard_normal(shape)).float()

    fine = torch.from_numpy(rng.integers(0, 4, n))
    return Data(
        y=torch.tensor([[1, 0, 1]]),
        edge_attr=real(e, 2),
        x=real(n, 3),
        edge_index=edge_index,
        edge_weight=(edge_index.sum(0) % 3).float(),
        pos=real(n, 2).round(decimals=0),
        train_mask=torch.from_numpy(rng.random(n) < 0.5),
        country=torch.from_numpy(rng.integers(0, 2, n)),
        city=[str(i) for i in rng.integers(0, 3, n)],
        parts=fine,
        label_index=torch.arange(n)[:1],
        note="one graph",
        numbers=[1, 2],
    )


@st.composite
def graphs(draw, max_nodes: int = 12) -> Data:
    """Graphs of any number of parts, with loops, without edges, of one node."""
    n = draw(st.integers(1, max_nodes))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n))
    return graph_of(n, edges, draw(st.integers(0, 99)), draw(st.booleans()))


def two_triangles() -> Data:
    """0 1 2 - 3 4 5, and 6 by itself."""
    return graph_of(7, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)])


def same(a: object, b: object) -> bool:
    """Equal in type and content."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


def assert_same_data(a: Data, b: Data, skip: tuple[str, ...] = ()) -> None:
    """All attributes equal."""
    keys_a, keys_b = (set(data.to_dict()) - set(skip) for data in (a, b))
    assert keys_a == keys_b
    for key in keys_a:
        assert same(a[key], b[key]), key


def conv(channels: int, **kwargs) -> HSAConv:
    """A layer in float64."""
    torch.manual_seed(0)
    return HSAConv(channels, 4, heads=2, **kwargs).double()


def assert_batch_is_singles(trees: list[SignalTree]) -> None:
    """A batch gives its trees back and computes as they do alone."""
    batch = Batch.from_data_list(trees)
    batch.validate()
    for tree, back in zip(trees, batch.to_data_list()):
        assert_same_data(tree, back)
    layer = conv(trees[0].x.size(1))
    with torch.no_grad():
        out = layer(batch.x.double(), batch)
        single = torch.cat([layer(tree.x.double(), tree) for tree in trees])
    torch.testing.assert_close(out, single, atol=1e-10, rtol=1e-10)


def parents_of(tree: SignalTree) -> list[int]:
    """Parent of every node, -1 for the root."""
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    return parent.tolist()


def leaves_below(tree: SignalTree) -> list[frozenset[int]]:
    """Rows of the leaves below every node."""
    parent, below = parents_of(tree), [set() for _ in range(tree.num_tree_nodes)]
    for leaf in range(tree.num_leaves):
        node = leaf
        while node >= 0:
            below[node].add(leaf)
            node = parent[node]
    return [frozenset(rows) for rows in below]


def furnished(tree: SignalTree, seed: int = 0, shuffle: bool = True) -> SignalTree:
    """A tree with everything that a tree can have; its leaves in another order than reading's."""
    rng = np.random.default_rng(seed)
    n, m = tree.num_leaves, tree.num_tree_nodes
    kids: dict[int, list[int]] = {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)
    links = [
        (int(rng.choice(group)), int(rng.choice(group)))
        for node, group in kids.items()
        for _ in range(2)
        if tree.tree_domain[node] == Domain.GRAPH
    ]
    tree.update(
        {
            "x": torch.from_numpy(rng.standard_normal((n, 3))),
            "token": torch.from_numpy(rng.integers(0, 2, n)),
            "edge_index": torch.from_numpy(rng.integers(0, n, (2, 3))),
            "edge_attr": torch.from_numpy(rng.random((3, 2))),
            "y": torch.ones(1, 2),
            "word_x": torch.from_numpy(rng.integers(0, 9, (4, 1))),
            "word_index": torch.from_numpy(rng.integers(0, n, 4)),
            "form_node": torch.tensor([m - 1, int(rng.integers(0, n))]),
            "form_label": torch.tensor([5, 6]),
            "tree_name": [f"node {i}" for i in range(m)],
            "tree_pe": torch.from_numpy(rng.integers(0, 2, (m, 2))).float(),
            "tree_span": torch.from_numpy(rng.integers(0, 99, (m, 2))).sort(dim=1).values,
            "tree_link": torch.tensor(links, dtype=torch.int64).reshape(-1, 2).t().contiguous(),
            "tree_link_weight": torch.from_numpy(rng.random(len(links))).float(),
        }
    )
    if shuffle:
        tree = tree.restrict(torch.from_numpy(rng.permutation(n)), keep_order=True)
    assert tree.validate()
    return tree


def positioned(channels: int = 3) -> HSAConv:
    """A layer that looks at positions in sequences, grids and graphs."""
    torch.manual_seed(0)
    position = PositionEmbedding(8, heads=2, domains={Domain.GRAPH: FourierPosition(2, 8, 2)})
    return HSAConv(channels, 4, heads=2, position=position).double()
