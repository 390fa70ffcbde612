"""Random trees: what each shape promises, repeatable, canonical, and dressed sensibly."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import find, given, settings
from torch_geometric.data import Batch

from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.ops.plain_tree import PlainTree
from hsa_geo.testing import (
    SHAPES,
    random_parents,
    random_pos,
    random_qkv,
    random_tree,
    shuffle_siblings,
    trees,
)

SEEDS = range(40)


def group_sizes(tree: SignalTree) -> list[int]:
    return [len(group) for group in PlainTree.of(tree).children if group]


@pytest.mark.parametrize("shape", [*SHAPES, "any"])
def test_seeds_repeat_and_limits_hold(shape):
    drawn = set()
    for seed in SEEDS:
        parents = random_parents(seed, max_leaves=9, shape=shape)
        assert parents == random_parents(seed, max_leaves=9, shape=shape)
        tree = random_tree(seed, max_leaves=9, shape=shape)
        assert 1 <= tree.num_nodes <= 9
        drawn.add(tuple(parents))
    assert len(drawn) > 5 or shape == "single"


def test_shapes_are_what_they_say():
    all_of = {shape: [random_tree(seed, shape=shape) for seed in SEEDS] for shape in SHAPES}
    assert all(tree.num_tree_nodes == 1 for tree in all_of["single"])
    assert all(tree.depth == 1 for tree in all_of["flat"])
    for tree in all_of["chain"]:
        sizes = Counter(group_sizes(tree))
        assert sum(count for size, count in sizes.items() if size > 1) <= 1
    assert max(tree.depth for tree in all_of["chain"]) > 8
    assert all(tree.depth <= 2 for tree in all_of["wide"])
    assert max(max(group_sizes(tree)) for tree in all_of["wide"]) > 10
    assert max(tree.depth for tree in all_of["deep"]) > 12
    for tree in all_of["balanced"]:
        leaf_level = tree.tree_level[: tree.num_nodes]
        assert (leaf_level == tree.depth).all()


def test_mixed_trees_hold_every_kind_of_group():
    kinds = Counter()
    for seed in SEEDS:
        plain = PlainTree.of(random_tree(seed, shape="mixed"))
        for group in plain.children:
            leaves = sum(not plain.children[child] for child in group)
            kinds["single child"] += len(group) == 1
            kinds["leaves only"] += len(group) > 1 and leaves == len(group)
            kinds["inner only"] += len(group) > 1 and leaves == 0
            kinds["both"] += 0 < leaves < len(group)
    assert min(kinds.values()) > 10, kinds


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_are_canonical_and_positions_fit_domains(shape):
    for seed in SEEDS:
        tree = random_tree(seed, shape=shape)
        parents = torch.full((tree.num_tree_nodes,), -1)
        parents[tree.tree_index[1]] = tree.tree_index[0]
        same = SignalTree.from_parents(parents, domain=tree.tree_domain, pos=tree.tree_pos)
        for key in ("tree_index", "tree_level", "tree_domain", "tree_pos"):
            assert torch.equal(same[key], tree[key]), key
        assert (tree.tree_pos[-1] == 0).all()
        for node, group in enumerate(PlainTree.of(tree).children):
            pos = tree.tree_pos[group]
            if tree.tree_domain[node] == LEAF:
                assert not group
            elif tree.tree_domain[node] == Domain.SET:
                assert (pos == 0).all()
            elif tree.tree_domain[node] == Domain.SEQUENCE:
                assert pos[:, 0].tolist() == list(range(len(group)))
            else:
                assert len({tuple(row) for row in pos.tolist()}) == len(group)


def test_unknown_shape_is_refused():
    with pytest.raises(UnsupportedError, match="shape='round'"):
        random_tree(0, shape="round")


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tree=trees(max_nodes=12))
def test_strategy_gives_canonical_trees(tree):
    assert 1 <= tree.num_tree_nodes <= 12
    assert PlainTree.of(tree).roots == [tree.num_tree_nodes - 1]


def test_strategy_reaches_chains_and_stars_and_shrinks():
    quick = settings(max_examples=2000, derandomize=True, database=None)
    chain = find(trees(), lambda tree: tree.depth >= 6, settings=quick)
    assert chain.num_tree_nodes <= 9
    star = find(trees(), lambda tree: max([0, *group_sizes(tree)]) >= 6, settings=quick)
    assert star.num_tree_nodes == 7


def test_random_qkv_shapes_types_and_seeds():
    batch = Batch.from_data_list([random_tree(seed) for seed in range(3)])
    q, k, v = random_qkv(batch, 3, 5, value_dim=2, requires_grad=True)
    assert q.shape == k.shape == (batch.num_nodes, 3, 5)
    assert v.shape == (batch.num_nodes, 3, 2)
    assert q.is_leaf
    assert q.requires_grad
    low = random_qkv(batch, 3, 5, value_dim=2, dtype=torch.float32)
    assert low[2].dtype is torch.float32
    torch.testing.assert_close(low[2], v.float())
    assert not torch.equal(random_qkv(batch, 3, 5, seed=1)[0], q)


def test_random_pos_is_zero_in_sets_and_at_the_root():
    for seed in SEEDS:
        tree = random_tree(seed)
        pos = random_pos(tree)
        parent, child = tree.tree_index
        in_set = torch.ones(tree.num_tree_nodes, dtype=torch.bool)
        in_set[child] = tree.tree_domain[parent] == Domain.SET
        assert ((pos == 0).all(dim=(1, 2)) == in_set).all()


def test_shuffled_siblings_keep_everything_about_a_leaf():
    changed = 0
    for seed in SEEDS:
        tree = random_tree(seed, max_leaves=10, shape="mixed")
        n, m = tree.num_nodes, tree.num_tree_nodes
        tree.x = torch.arange(n)
        tree.word = [str(i) for i in range(n)]
        tree.tree_name = [str(i) for i in range(m)]
        tree.tree_pe = torch.arange(m).view(m, 1)
        tree.box_node = torch.arange(m)
        tree.edge_index = torch.stack([torch.arange(n), torch.arange(n).flip(0)])
        tree.text_x = torch.randn(n, 2)
        tree.text_index = torch.arange(n)
        shuffled, row = shuffle_siblings(tree, seed=seed)
        assert sorted(row.tolist()) == list(range(n))
        assert torch.equal(shuffled.x, row)
        assert shuffled.word == [str(i) for i in row.tolist()]
        assert torch.equal(row[shuffled.edge_index], tree.edge_index)
        assert torch.equal(row[shuffled.text_index], tree.text_index)
        name = shuffled.tree_name
        assert [name[i] for i in shuffled.box_node.tolist()] == tree.tree_name
        old = torch.tensor([int(i) for i in name])  # old id of every node
        assert torch.equal(shuffled.tree_pe[:, 0], old)
        assert torch.equal(tree.tree_pos[old], shuffled.tree_pos)
        assert torch.equal(tree.tree_domain[old], shuffled.tree_domain)
        edges = {tuple(edge) for edge in tree.tree_index.t().tolist()}
        assert {tuple(edge) for edge in old[shuffled.tree_index].t().tolist()} == edges
        changed += not torch.equal(row, torch.arange(n))
    assert changed > len(SEEDS) // 2


def test_every_sibling_order_can_be_drawn():
    tree = SignalTree.from_parents([3, 3, 3, -1])
    orders = {tuple(shuffle_siblings(tree, seed=seed)[1].tolist()) for seed in SEEDS}
    assert len(orders) == 6
