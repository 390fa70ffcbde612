"""RestrictHierarchy: sampled parts of a large graph with their part of the hierarchy."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph
from transform_cases import assert_same_data, conv, furnished, graph_of, two_triangles

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, ShapeError, UnsupportedError
from hsa_geo.testing import trees
from hsa_geo.transforms import CommunityHierarchy, RestrictHierarchy


@settings(max_examples=60, deadline=None)
@given(tree=trees(max_nodes=20), seed=st.integers(0, 99))
def test_the_hierarchy_is_that_of_restrict(tree, seed):
    tree = furnished(tree, seed)
    tree.leaf_weight = torch.arange(tree.num_leaves) + 1
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.permutation(tree.num_leaves)[: rng.integers(1, 9)])
    whole = tree.clone()
    del whole.form_node, whole.form_label
    expected = whole.restrict(rows, keep_order=True)
    batch = Data(n_id=rows, x=tree.x[rows], batch_size=1, seed_time=None)
    out = pickle.loads(pickle.dumps(RestrictHierarchy(tree)))(batch)
    assert out.validate()
    for key in expected.to_dict():
        if key.startswith("tree_") or key in ("leaf_weight", "x"):
            assert_same_data(Data(v=out[key]), Data(v=expected[key]))
    assert set(out.to_dict()) == {
        *("num_nodes", "n_id", "x", "batch_size", "leaf_weight"),
        *(key for key in expected.to_dict() if key.startswith("tree_")),
    }


def large(n=300, seed=0) -> Data:
    rng = np.random.default_rng(seed)
    near = [(i, (i + d) % n) for i in range(n) for d in (1, 2)]
    far = [tuple(rng.integers(0, n, 2)) for _ in range(20)]
    return graph_of(n, near + far, seed)


def sampled(data: Data, seeds: list[int], hops: int = 2) -> Data:
    """A batch as NeighborLoader makes it: seeds first, local edges, global ids beside."""
    nodes = k_hop_subgraph(seeds, hops, data.edge_index)[0]
    rest = nodes[~torch.isin(nodes, torch.tensor(seeds))]
    n_id = torch.cat([torch.tensor(seeds), rest[torch.randperm(len(rest))]])
    local = torch.full((data.num_nodes,), -1)
    local[n_id] = torch.arange(len(n_id))
    edge_index = local[data.edge_index]
    e_id = (edge_index >= 0).all(0).nonzero().flatten()
    return Data(
        x=data.x[n_id],
        y=data.country[n_id],
        edge_index=edge_index[:, e_id],
        edge_attr=data.edge_attr[e_id],
        n_id=n_id,
        e_id=e_id,
        input_id=torch.tensor(seeds),
        batch_size=len(seeds),
        num_sampled_nodes=[len(seeds), len(rest)],
        num_sampled_edges=[len(e_id)],
    )


def test_a_neighbour_sample_becomes_a_tree():
    torch.manual_seed(0)
    data = large()
    tree = CommunityHierarchy([8.0, 1.0], add_links=True)(data)
    transform = RestrictHierarchy(tree)
    batch = sampled(data, [7, 250, 8])
    before = batch.clone()
    out = transform(batch)
    assert_same_data(batch, before)
    assert out.validate()
    for key, value in batch.to_dict().items():
        assert out[key] is value, key
    assert out.n_id[: out.batch_size].tolist() == [7, 250, 8]
    assert out.tree_link.numel()
    assert (
        repr(transform) == f"RestrictHierarchy(leaves=300, nodes={tree.num_tree_nodes}, key='n_id')"
    )
    out = conv(3)(out.x.double(), out)
    assert out[: batch.batch_size].isfinite().all()


def test_all_nodes_in_another_order():
    data = large(50)
    tree = CommunityHierarchy(add_links=True)(data)
    order = torch.randperm(50)
    out = RestrictHierarchy(tree)(Data(x=data.x[order], n_id=order))
    with torch.no_grad():
        expected = conv(3)(data.x.double(), tree)[order]
        torch.testing.assert_close(conv(3)(out.x.double(), out), expected)


def test_one_leaf_and_deep_trees():
    chain = SignalTree.from_parents([-1, *range(2000), 2000, 1999])
    transform = RestrictHierarchy(chain)
    for rows in ([0], [1, 0], [2, 0], [2]):
        if max(rows) < chain.num_leaves:
            out = transform(Data(n_id=torch.tensor(rows), num_nodes=len(rows)))
            expected = chain.restrict(torch.tensor(rows), keep_order=True)
            assert_same_data(out, expected, skip=("n_id",))
    single = RestrictHierarchy(SignalTree.from_parents([-1]))
    assert single(Data(n_id=torch.tensor([0]), num_nodes=1)).num_tree_nodes == 1


def test_another_key_and_what_the_batch_has_itself():
    tree = SignalTree.from_parents([2, 2, -1], leaf_weight=torch.tensor([5, 6]))
    out = RestrictHierarchy(tree, key="node")(Data(node=torch.tensor([1], dtype=torch.int32)))
    assert out.leaf_weight.tolist() == [6]
    batch = Data(n_id=torch.tensor([1]), leaf_weight=torch.tensor([2]), num_nodes=1)
    assert RestrictHierarchy(tree)(batch).leaf_weight.tolist() == [2]


@pytest.mark.parametrize(
    ("batch", "error", "match"),
    [
        (Data(num_nodes=2), BuilderError, r"no 'n_id'.*set data.n_id = torch.arange"),
        (
            Data(n_id=torch.tensor([0, 9])),
            ShapeError,
            r"node 9, but the hierarchy has the leaves 0..6",
        ),
        (Data(n_id=torch.tensor([-1, 0])), ShapeError, "node -1"),
        (Data(n_id=torch.tensor([3, 1, 3])), ShapeError, "'n_id' holds node 3 twice"),
        (Data(n_id=torch.tensor([3]), num_nodes=2), ShapeError, r"int64 \[1\]: give int64 \[2\]"),
        (Data(n_id=torch.tensor([0.0])), ShapeError, "float32"),
        (Data(n_id=[0], num_nodes=1), ShapeError, "'n_id' is list"),
        (
            Data(n_id=torch.tensor([0, 1, 0]), batch=torch.tensor([0, 0, 1])),
            UnsupportedError,
            "disjoint samples.*disjoint=False",
        ),
        (Batch.from_data_list([Data(n_id=torch.tensor([0]))]), UnsupportedError, "DataBatch"),
    ],
)
def test_refused(batch, error, match):
    transform = RestrictHierarchy(CommunityHierarchy()(two_triangles()))
    with pytest.raises(error, match=match):
        transform(batch)


def test_needs_a_tree():
    with pytest.raises(UnsupportedError, match="RestrictHierarchy takes a SignalTree"):
        RestrictHierarchy(two_triangles())


def test_the_cost_is_that_of_the_sample():
    """A thousand of a million nodes take milliseconds."""
    n, width = 1_000_000, 10
    parents, base = [], 0
    size = n
    while size > 1:
        base += size
        parents.append(base + np.arange(size) // width)
        size = -(-size // width)
    link = np.stack([np.arange(n - 1), np.arange(1, n)])
    link = link[:, link[0] // width == link[1] // width]
    tree = SignalTree.from_parents(
        np.concatenate([*parents, [-1]]), domain=Domain.GRAPH, tree_link=link
    )
    transform = RestrictHierarchy(tree)
    rows = torch.randperm(n)[:1000]
    batch = Data(n_id=rows)
    out = transform(batch)
    assert out.num_leaves == 1000
    assert_same_data(out, tree.restrict(rows, keep_order=True), skip=("n_id",))
