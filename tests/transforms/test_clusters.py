"""ClusterHierarchy: nested clusters of points."""

import builtins
import importlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, LimitError, MissingPackageError, UnsupportedError
from hsa_geo.transforms import ClusterHierarchy, DropHierarchy, clusters


def blobs(sizes=(5, 4, 6), seed=0) -> Data:
    """Points around (0, 0), (10, 10), (20, 20), ..."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    pos = 10.0 * label[:, None] + rng.random((len(label), 2))
    return Data(pos=torch.from_numpy(pos).float(), label=torch.from_numpy(label))


def below_root(tree):
    """Number of the child of the root above every leaf."""
    node = torch.arange(tree.num_leaves)
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    while (tree.tree_level[node] > 1).any():
        node = torch.where(tree.tree_level[node] > 1, parent[node], node)
    return node.unique(return_inverse=True)[1]


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
def test_blobs_are_found(method):
    data = blobs()
    tree = ClusterHierarchy("pos", [3], method=method)(data)
    assert tree.num_tree_nodes == 15 + 4
    assert torch.equal(below_root(tree), data.label)
    deep = ClusterHierarchy("pos", [6, 3], method=method)(data)
    assert deep.depth == 3
    assert torch.equal(below_root(deep), data.label)


@pytest.mark.parametrize("linkage", ["ward", "average", "complete", "single"])
def test_cuts_are_those_of_scikit_learn(linkage):
    from sklearn.cluster import AgglomerativeClustering

    data = Data(x=torch.rand(30, 4, generator=torch.Generator().manual_seed(1)))
    levels = clusters._agglomerative(data.x.double().numpy(), [9, 4], linkage)
    for k, labels in zip([9, 4], levels):
        other = AgglomerativeClustering(k, linkage=linkage).fit(data.x.double().numpy()).labels_
        assert len({*zip(labels, other)}) == k == len({*labels}) == len({*other})


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 20),
    columns=st.integers(1, 2),
    values=st.integers(1, 4),
    method=st.sampled_from(["kmeans", "agglomerative"]),
    seed=st.integers(0, 99),
)
def test_equal_points_and_positions(n, columns, values, method, seed):
    """Few different points, so that there are fewer clusters than asked for; means as positions."""
    rng = np.random.default_rng(seed)
    pos = torch.from_numpy(rng.integers(0, values, (n, columns))).float()
    data = Data(pos=pos[:, 0] if columns == 1 else pos)
    tree = ClusterHierarchy(branching=2, method=method, add_pos=True)(data)
    assert tree.validate()
    domain = Domain.GRID2D if columns == 2 else Domain.SEQUENCE
    assert tree.tree_domain[n:].eq(domain).all()
    parent = torch.full((tree.num_tree_nodes,), -1)
    parent[tree.tree_index[1]] = tree.tree_index[0]
    below = torch.zeros(tree.num_tree_nodes, n)
    for leaf in range(n):
        node = leaf
        while node >= 0:
            below[node, leaf] = 1
            node = int(parent[node])
    means = below @ pos / below.sum(1, keepdim=True)
    torch.testing.assert_close(tree.tree_pos[:, :columns], means, atol=1e-5, rtol=1e-5)


def test_many_clusters_are_found_within_large_ones(monkeypatch):
    monkeypatch.setattr(clusters, "MANY_CLUSTERS", 8)
    monkeypatch.setattr(clusters, "MANY_NODES", 300)
    generator = torch.Generator().manual_seed(0)
    data = Data(pos=torch.rand(400, 2, generator=generator))
    tree = ClusterHierarchy(branching=4)(data)
    assert tree.validate()
    counts = tree.tree_level.bincount().tolist()
    assert counts[0] == 1
    assert 85 <= counts[-2] <= 115  # 100 were asked for
    again = ClusterHierarchy(branching=4)(data)
    assert torch.equal(tree.tree_index, again.tree_index)


def test_any_attribute():
    x = torch.arange(12) + 100 * (torch.arange(12) > 5)
    data = Data(x=x.view(6, 1, 2), edge_index=torch.tensor([[0, 5], [5, 0]]))
    tree = ClusterHierarchy("x", [2], add_links=True)(data)
    assert below_root(tree).tolist() == [0, 0, 0, 1, 1, 1]
    assert tree.tree_link.tolist() == [[6, 7], [7, 6]]
    assert set(DropHierarchy()(tree).keys()) == {"x", "edge_index", "num_nodes"}


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"attr": "z"}, BuilderError, r"attr='z' is no tensor .*the graph has \['label', 'pos'\]"),
        ({"attr": "pos", "sizes": [0]}, BuilderError, "sizes has the value 0"),
        ({"sizes": [2.5]}, BuilderError, "sizes has the value 2.5"),
        ({"branching": 1}, BuilderError, "branching has the value 1"),
        ({"sizes": [2], "branching": 2}, BuilderError, "give one of them"),
        ({"method": "dbscan"}, UnsupportedError, "method='dbscan'"),
        ({"method": "agglomerative", "linkage": "near"}, UnsupportedError, "linkage='near'"),
        ({"linkage": "ward"}, UnsupportedError, "linkage='ward' goes with"),
        ({"method": "agglomerative", "seed": 3}, UnsupportedError, "seed=3"),
        ({"sizes": []}, BuilderError, "asks for no level"),
        ({"add_pos": True, "add_links": True}, BuilderError, "siblings lie in one domain"),
    ],
)
def test_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        ClusterHierarchy(**arguments)(blobs())


def test_values():
    data = blobs()
    data.pos[3, 1] = float("nan")
    with pytest.raises(BuilderError, match="node 3 has a value in 'pos' that is not finite"):
        ClusterHierarchy()(data)
    data.pos[3, 1] = 1e30
    assert ClusterHierarchy(sizes=[3])(data).validate()
    with pytest.raises(BuilderError, match="'x' has 3 columns, but add_pos needs one or two"):
        ClusterHierarchy("x", add_pos=True)(Data(x=torch.rand(4, 3)))
    with pytest.raises(BuilderError, match="layout"):
        ClusterHierarchy("x")(Data(x=torch.eye(3).to_sparse(), num_nodes=3))


def test_agglomerative_has_a_limit(monkeypatch):
    monkeypatch.setattr(clusters, "MAX_AGGLOMERATIVE", 10)
    with pytest.raises(LimitError, match=r"15 nodes, but agglomerative .* takes 10"):
        ClusterHierarchy(method="agglomerative")(blobs())


def test_without_scikit_learn(monkeypatch):
    real = builtins.__import__

    def fake(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(importlib, "import_module", lambda name: fake(name))
    with pytest.raises(MissingPackageError, match=r"clustering nodes needs the package 'sklearn'"):
        ClusterHierarchy()(blobs())
