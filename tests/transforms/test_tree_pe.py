"""AddTreePE: what PyG says of every graph of siblings."""

import pickle

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected
from transform_cases import assert_same_data, graph_of, parents_of

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, ShapeError, UnsupportedError
from hsa_geo.testing import trees
from hsa_geo.transforms import AddTreePE, CommunityHierarchy, tree_pe


def linked(tree: SignalTree, seed: int = 0, directed: bool = False) -> SignalTree:
    """Random links among the siblings of all domains, some twice, some loops."""
    rng = np.random.default_rng(seed)
    kids: dict[int, list[int]] = {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)
    ends = [rng.choice(group, 2) for group in kids.values() for _ in range(3 * len(group))]
    link = torch.tensor(np.array(ends, dtype=np.int64).reshape(-1, 2)).t()
    tree.tree_link = link if directed else to_undirected(link)
    tree.tree_link_weight = 0.5 + torch.from_numpy(rng.random(tree.tree_link.size(1))).float()
    assert tree.validate()
    return tree


def sibling_graphs(tree: SignalTree):
    """Every GRAPH group: its nodes, and its links as a graph."""
    parent = parents_of(tree)
    for node in range(tree.num_tree_nodes):
        group = [child for child in tree.tree_index[1].tolist() if parent[child] == node]
        if group and tree.tree_domain[node] == Domain.GRAPH:
            ends = [pair for pair in tree.tree_link.t().tolist() if pair[0] in group]
            edges = [[group.index(a), group.index(b)] for a, b in ends]
            edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().unique(dim=1)
            yield group, Data(edge_index=edge_index, num_nodes=len(group))


@settings(max_examples=40, deadline=None)
@given(tree=trees(max_nodes=16), seed=st.integers(0, 99), directed=st.booleans())
def test_random_walks_are_pygs(tree, seed, directed):
    tree = linked(tree, seed, directed)
    before = tree.clone()
    out = AddTreePE("random_walk", 5, weighted=False)(tree)
    assert_same_data(tree, before)
    assert_same_data(out, tree, skip=("tree_pe",))
    assert out.validate()
    expected = torch.zeros(tree.num_tree_nodes, 5)
    for group, graph in sibling_graphs(tree):
        expected[group] = T.AddRandomWalkPE(5, "pe")(graph).pe
    torch.testing.assert_close(out.tree_pe, expected)


@settings(max_examples=40, deadline=None)
@given(tree=trees(max_nodes=16), seed=st.integers(0, 99))
def test_eigenvectors_are_pygs(tree, seed):
    tree = linked(tree, seed)
    out = AddTreePE("laplacian", 4, weighted=False)(tree)
    assert out.validate()
    inside = torch.zeros(tree.num_tree_nodes, dtype=torch.bool)
    for group, graph in sibling_graphs(tree):
        if graph.num_edges == 0:
            continue
        inside[group] = True
        k = min(4, len(group) - 1)
        pe = out.tree_pe[group]
        assert (pe[:, k:] == 0).all()
        if k == 0:
            continue
        expected = T.AddLaplacianEigenvectorPE(k, "pe", is_undirected=True)(graph).pe
        # The same eigenspaces, whichever basis: each vector is one, all are orthonormal.
        laplacian = laplacian_of(graph)
        values = (pe[:, :k] * (laplacian @ pe[:, :k])).sum(0)
        theirs = (expected * (laplacian @ expected.float())).sum(0)
        torch.testing.assert_close(values, theirs.float(), atol=1e-4, rtol=0)
        residue = laplacian @ pe[:, :k] - pe[:, :k] * values
        assert residue.abs().max() < 1e-4
        torch.testing.assert_close(pe[:, :k].t() @ pe[:, :k], torch.eye(k), atol=1e-4, rtol=0)
        for column in pe[:, :k].t():
            leading = column.abs() >= 0.998 * column.abs().max()
            assert column[leading][0] > 0 or (column[leading] > 0).any()
    assert (out.tree_pe[~inside] == 0).all()


def laplacian_of(graph: Data) -> torch.Tensor:
    n = graph.num_nodes
    adjacency = torch.zeros(n, n)
    adjacency[tuple(graph.edge_index)] = 1
    adjacency.fill_diagonal_(0)
    scale = adjacency.sum(1).clamp(min=1).rsqrt()
    return torch.eye(n) - scale[:, None] * adjacency * scale


def line(n: int, **attrs) -> SignalTree:
    """Siblings in a row."""
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    link = torch.cat([path, path.flip(0)], dim=1)
    return SignalTree.from_parents(
        np.append(np.full(n, n), -1), domain=Domain.GRAPH, tree_link=link, **attrs
    )


@pytest.mark.parametrize("n", [2, 50, 150])
def test_a_path_has_cosines_and_a_fixed_sign(n):
    """Normalised Laplacian of a path: cosines, with the degree at the ends; dense and sparse."""
    out = AddTreePE(k=1)(line(n))
    degree = torch.full((n,), 2.0)
    degree[[0, -1]] = 1
    expected = torch.cos(torch.pi * torch.arange(n) / (n - 1)) * degree.sqrt()
    expected = expected / expected.norm()
    flipped = expected if out.tree_pe[0, 0] > 0 else -expected
    torch.testing.assert_close(out.tree_pe[:n, 0], flipped, atol=2e-4, rtol=0)
    leading = out.tree_pe[:n, 0].abs() >= 0.999 * out.tree_pe[:n, 0].abs().max()
    assert out.tree_pe[:n, 0][leading][0] > 0


@pytest.mark.parametrize("method", ["laplacian", "random_walk"])
@pytest.mark.parametrize("n", [30, 120])
def test_the_same_again_and_the_generator_untouched(method, n):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])  # eigenvalues in pairs
    ring = SignalTree.from_parents(
        [n] * n + [-1], domain=Domain.GRAPH, tree_link=torch.cat([ring, ring.flip(0)], dim=1)
    )
    first = AddTreePE(method, 6)(ring)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (what scipy would draw from)
    again = pickle.loads(pickle.dumps(AddTreePE(method, 6)))(ring)
    assert torch.equal(first.tree_pe, again.tree_pe)


def test_weights_count():
    weight = torch.tensor([3.0, 1, 3, 1])  # 0-1 heavy, 1-2 light
    tree = line(3, tree_link_weight=weight)
    walk = AddTreePE("random_walk", 2)(tree).tree_pe[:3, 1]
    torch.testing.assert_close(walk, torch.tensor([0.75, 1.0, 0.25]))
    even = AddTreePE("random_walk", 2, weighted=False)(tree).tree_pe[:3, 1]
    torch.testing.assert_close(even, torch.tensor([0.5, 1.0, 0.5]))
    heavy, plain = (AddTreePE(k=1, weighted=w)(tree).tree_pe[:3] for w in (True, False))
    assert not torch.allclose(heavy, plain)
    scaled = line(3, tree_link_weight=1e-30 * weight)
    torch.testing.assert_close(AddTreePE(k=1)(scaled).tree_pe[:3], heavy)
    for bad in (-1.0, float("nan"), float("inf")):
        tree.tree_link_weight[1] = bad
        with pytest.raises(ShapeError, match=r"tree_link_weight holds .* between nodes \[1, 2\]"):
            AddTreePE()(tree)


def test_more_vectors_than_siblings_and_none():
    out = AddTreePE(k=200)(line(120))
    assert out.tree_pe.shape == (121, 200)
    assert (out.tree_pe[:120, 118] != 0).any()
    assert (out.tree_pe[:, 119:] == 0).all()
    single = SignalTree.from_parents([-1], tree_link=torch.empty(2, 0, dtype=torch.int64))
    for method in ("laplacian", "random_walk"):
        assert AddTreePE(method, 3)(single).tree_pe.tolist() == [[0, 0, 0]]


def test_groups_are_walked_in_parts(monkeypatch):
    tree = CommunityHierarchy(4.0, add_links=True)(
        graph_of(60, [(i, (i * 7 + 1) % 60) for i in range(60)])
    )
    whole = AddTreePE("random_walk", 4)(tree)
    monkeypatch.setattr(tree_pe, "WALK_ENTRIES", 30)
    assert torch.equal(AddTreePE("random_walk", 4)(tree).tree_pe, whole.tree_pe)


def connected(sizes: list[int], seed: int = 0) -> SignalTree:
    """Groups of siblings below the root's children, each connected, with different weights."""
    rng = np.random.default_rng(seed)
    n, groups = sum(sizes), len(sizes)
    above = n + np.repeat(np.arange(groups), sizes)
    parent = np.concatenate([above, np.full(groups, n + groups), [-1]])
    ends, start = [], 0
    for size in sizes:
        path = start + np.stack([np.arange(size - 1), np.arange(1, size)])
        ends += [path, start + rng.integers(0, size, (2, size))]
        start += size
    link = torch.from_numpy(np.concatenate(ends, axis=1))
    weight = 0.1 + torch.from_numpy(rng.random(link.size(1))).float()
    link, weight = to_undirected(link, weight)
    return SignalTree.from_parents(
        parent, domain=Domain.GRAPH, tree_link=link, tree_link_weight=weight, keep_leaf_order=True
    )


@pytest.mark.parametrize("entries", [10**6, 40])
def test_groups_of_one_size_are_solved_at_once(monkeypatch, entries):
    """As PyG does it one by one, up to sign; only large groups go through it."""
    sizes = [1, 5, 2, 30, 5, 300, 1, 5, 99, 101, 255, 30]
    tree, k = connected(sizes), 3
    asked = []
    pyg = tree_pe._pyg_vectors
    monkeypatch.setattr(tree_pe, "LAPLACIAN_ENTRIES", entries)
    monkeypatch.setattr(tree_pe, "_pyg_vectors", lambda *args: asked.append(args[3]) or pyg(*args))
    pe, start = AddTreePE(k=k)(tree).tree_pe, 0
    assert asked == [300]
    for size in sizes:
        group = torch.arange(start, start + size)
        start += size
        inside = (tree.tree_link[0] >= group[0]) & (tree.tree_link[0] <= group[-1])
        graph = Data(
            edge_index=tree.tree_link[:, inside] - group[0],
            edge_weight=tree.tree_link_weight[inside].double(),
            num_nodes=size,
        )
        some = min(k, size - 1)
        expected = torch.zeros(size, k)
        if some:
            options = {"v0": np.ones(size)} if size >= 100 else {}
            transform = T.AddLaplacianEigenvectorPE(some, "pe", is_undirected=True, **options)
            expected[:, :some] = transform(graph).pe
        torch.testing.assert_close(pe[group].abs(), expected.abs(), atol=1e-5, rtol=0)
        inner = (pe[group] * expected).sum(0)[:some].abs()
        torch.testing.assert_close(inner, torch.ones(some), atol=1e-5, rtol=0)


def test_one_behind_the_other_and_in_a_batch():
    tree = line(5)
    both = T.Compose([AddTreePE(k=2), AddTreePE("random_walk", 3, cat=True)])(tree)
    assert torch.equal(both.tree_pe[:, :2], AddTreePE(k=2)(tree).tree_pe)
    assert torch.equal(both.tree_pe[:, 2:], AddTreePE("random_walk", 3)(tree).tree_pe)
    assert AddTreePE(k=4)(both).tree_pe.shape == (6, 4)
    batch = Batch.from_data_list([both, both])
    assert batch.tree_pe.shape == (12, 5)


def test_errors():
    with pytest.raises(BuilderError, match="no tree_link, the edges among siblings"):
        AddTreePE()(SignalTree.from_parents([-1]))
    with pytest.raises(UnsupportedError, match="method='sine'"):
        AddTreePE("sine")
    with pytest.raises(BuilderError, match="k has the value 0"):
        AddTreePE(k=0)
    pairs = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], domain=Domain.GRAPH)
    for method in ("laplacian", "random_walk"):
        for link in ([0, 2], [0, 4], [6, 6]):
            pairs.tree_link = torch.tensor(link)[:, None]
            with pytest.raises(ShapeError, match=r"joins nodes \d and \d, which are no siblings"):
                AddTreePE(method)(pairs)
        for link, message in (
            (torch.tensor([[0], [7]]), r"holds 7, but the tree nodes are 0\.\.6"),
            (torch.tensor([[0], [-1]]), "holds -1"),
            (torch.tensor([[0.0], [1.0]]), "is torch.float32"),
            (torch.tensor([0, 1]), r"is torch.int64 \[2\]"),
            ([[0], [1]], "is list"),
        ):
            pairs.tree_link = link
            with pytest.raises(ShapeError, match=f"'tree_link' {message}"):
                AddTreePE(method)(pairs)
    pairs.tree_link = torch.tensor([[0], [1]])
    for weight, message in ((torch.ones(2), r"torch.float32 \[2\]"), ([1.0], "list")):
        pairs.tree_link_weight = weight
        with pytest.raises(ShapeError, match=f"'tree_link_weight' is {message}: .* 1 links"):
            AddTreePE()(pairs)
    pairs.tree_link = torch.tensor([[0, 0], [1, 1]])
    pairs.tree_link_weight = torch.full((2,), 1e308, dtype=torch.float64)  # the sum is infinite
    assert AddTreePE(k=1)(pairs).tree_pe[:2].abs().allclose(torch.tensor(0.5).sqrt())
    assert repr(AddTreePE(k=3)) == "AddTreePE('laplacian', k=3)"
