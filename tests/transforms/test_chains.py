"""ContractChains: fewer nodes, the same output."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from transform_cases import assert_same_data, conv, furnished, leaves_below, parents_of, positioned

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.ops.reference import reference_phi
from hsa_geo.testing import random_tree, trees
from hsa_geo.transforms import ContractChains


def single_parents(tree):
    counts = torch.zeros(tree.num_tree_nodes, dtype=torch.int64)
    counts.index_add_(0, tree.tree_index[0], torch.ones_like(tree.tree_index[0]))
    return set((counts == 1).nonzero().flatten().tolist())


@settings(max_examples=60, deadline=None)
@given(tree=trees(max_nodes=14), seed=st.integers(0, 99))
def test_the_output_is_the_same_and_chains_are_gone(tree, seed):
    tree = furnished(tree, seed)
    out = ContractChains()(tree)
    assert out.validate()
    left = single_parents(out)
    parent = parents_of(out)
    assert {parent.index(node) for node in left} <= set(range(out.num_leaves))  # above leaves only
    with torch.no_grad():
        for layer in (conv(3), positioned()):
            torch.testing.assert_close(layer(out.x, out), layer(tree.x, tree), atol=1e-9, rtol=0)
        embed, (q, k) = positioned().position, (tree.x[None].expand(2, -1, -1).clone().unbind())
        energy = [
            reference_phi(q[:, None], k[:, None], t, pos=embed(t)[:, :1])[-1] for t in (tree, out)
        ]
        torch.testing.assert_close(*energy, atol=1e-9, rtol=0)  # the roots'
    bare = ContractChains(keep_positions=False)(tree)
    assert bare.validate()
    assert not single_parents(bare)
    with torch.no_grad():
        torch.testing.assert_close(conv(3)(bare.x, bare), conv(3)(tree.x, tree), atol=1e-9, rtol=0)
    for result in (out, bare):
        of_leaves = {k for k in tree.to_dict() if not k.startswith("tree_") and k != "form_node"}
        for key in of_leaves:
            assert result[key] is tree[key] or result[key] == tree[key], key
        assert set(leaves_below(result)) == set(leaves_below(tree))
        assert result.plan.leaf_order.tolist() == tree.plan.leaf_order.tolist()
        assert_same_data(ContractChains()(out), out)


@settings(max_examples=40, deadline=None)
@given(tree=trees(max_nodes=14), seed=st.integers(0, 99))
def test_what_remains_is_the_bottom_in_the_place_of_the_top(tree, seed):
    tree = furnished(tree, seed)
    out = ContractChains(keep_positions=False)(tree)
    parent, below = parents_of(tree), leaves_below(tree)
    single = single_parents(tree)
    where = {rows: node for node, rows in enumerate(leaves_below(out))}
    for node in range(tree.num_tree_nodes):
        bottom = node
        while bottom in single:
            bottom = parent.index(bottom)
        top = node
        while parent[top] in single:
            top = parent[top]
        new = where[below[node]]
        assert out.tree_name[new] == tree.tree_name[bottom]
        assert out.tree_domain[new] == tree.tree_domain[bottom]
        assert torch.equal(out.tree_span[new], tree.tree_span[bottom])
        assert torch.equal(out.tree_pos[new], tree.tree_pos[top])
        assert torch.equal(out.tree_pe[new], tree.tree_pe[top])
    assert [leaves_below(out)[node] for node in out.form_node] == [
        below[node] for node in tree.form_node
    ]
    kept = [i for i, a in enumerate(tree.tree_link[0].tolist()) if parent[a] not in single]
    for side, old in zip(out.tree_link, tree.tree_link):
        assert side.tolist() == [where[below[old[i]]] for i in kept]
    assert torch.equal(out.tree_link_weight, tree.tree_link_weight[kept])


def test_a_leaf_keeps_a_node_above_it_where_positions_differ():
    #       root: SEQUENCE of a chain c at 3 - d - leaf at 0, and of a leaf at 4
    parent = [2, 4, 3, 4, -1]
    tree = SignalTree.from_parents(parent, domain=Domain.SEQUENCE, pos=[0, 4, 0, 3, 0])
    out = ContractChains()(tree)
    assert out.num_tree_nodes == 4
    assert out.tree_pos[:, 0].tolist() == [0, 4, 3, 0]
    sets = SignalTree.from_parents(parent, domain=Domain.SET, pos=[0, 4, 0, 3, 0])
    assert ContractChains()(sets).num_tree_nodes == 3
    alike = SignalTree.from_parents(parent, domain=Domain.SEQUENCE, pos=[3, 4, 0, 3, 0])
    assert ContractChains()(alike).num_tree_nodes == 3
    mixed = SignalTree.from_parents(parent, domain=[0, 0, 0, 0, 1], pos=[3, 4, 0, 3, 0])
    assert ContractChains()(mixed).num_tree_nodes == 4
    assert ContractChains()(mixed).tree_domain.tolist() == [-1, -1, 0, 1]


def test_a_chain_is_a_leaf():
    tree = SignalTree.from_parents([-1, *range(3000)])
    tree.x = torch.rand(1, 3).double()
    out = ContractChains()(tree)
    assert out.num_tree_nodes == 1
    tree.tree_domain[1:] = Domain.SEQUENCE
    tree.tree_pos[:, 0] = torch.arange(3001)
    out = ContractChains()(tree)
    assert out.num_tree_nodes == 2  # the leaf's own position counts in its energy
    with torch.no_grad():
        torch.testing.assert_close(positioned()(out.x, out), positioned()(tree.x, tree))


def test_in_batches_and_by_name():
    many = [furnished(random_tree(seed, shape="any"), seed) for seed in range(6)]
    out = [ContractChains()(tree) for tree in many]
    for tree, back in zip(out, Batch.from_data_list(out).to_data_list()):
        assert_same_data(tree, back)
    assert_same_data(pickle.loads(pickle.dumps(ContractChains()))(many[0]), out[0])
    assert repr(ContractChains()) == "ContractChains()"
    with pytest.raises(UnsupportedError, match="ContractChains takes one tree at a time"):
        ContractChains()(Batch.from_data_list(many))
