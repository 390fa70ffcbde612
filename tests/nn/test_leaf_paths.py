"""Paths of leaves, against a walk up the tree."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree, TreePlan
from hsa_geo.nn.leaf_paths import leaf_paths
from hsa_geo.testing import SHAPES, random_tree


def walk(tree: SignalTree) -> tuple[list[list[int]], dict[int, tuple[int, int]]]:
    """Slots from every leaf to the root by steps, and place and number of siblings of each."""
    plan = tree.plan
    members = [list(range(a, b)) for a, b in zip(plan.group_ptr[:-1], plan.group_ptr[1:])]
    above, among = {}, {}
    for group, slots in enumerate(members):
        for place, slot in enumerate(slots):
            above[slot] = int(plan.group_parent[group])
            among[slot] = (place, len(slots))
    paths = []
    for row in range(plan.num_leaves):
        path = [int(plan.leaf_slot[plan.leaf_place[row]])]
        while path[-1] in above:
            path.append(above[path[-1]])
        paths.append(path)
    return paths, among


def filled(values: list[int], size: int) -> list[int]:
    return (values + [-1] * size)[:size]


@pytest.mark.parametrize("levels", [1, 3, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_against_a_walk(shape, levels):
    for seed in range(5):
        tree = random_tree(seed, shape=shape)
        paths, among = walk(tree)
        found = leaf_paths(tree, levels)
        for row, path in enumerate(paths):
            assert found.low[row].tolist() == filled(path, levels + 1)
            assert found.top[row].tolist() == filled(path[::-1][1:], levels)
            assert found.depth[row] == len(path) - 1
        for slot, (place, size) in among.items():
            assert (found.place[slot], found.size[slot]) == (place, size)
        inner = [int(n) for n in found.number if n >= 0]
        assert inner == list(range(tree.plan.num_groups))
        assert all(found.number[path[0]] == -1 for path in paths)


def test_numbers_are_those_of_the_tree_alone():
    trees = [random_tree(seed) for seed in range(12)]
    paths = leaf_paths(Batch.from_data_list(trees), 3)
    row = 0
    for tree in trees:
        alone = leaf_paths(tree, 3)
        for which in ("low", "top"):
            slots, own = getattr(paths, which)[row : row + tree.num_leaves], getattr(alone, which)
            assert torch.equal(slots < 0, own < 0)
            for name in ("number", "place", "size"):
                got = getattr(paths, name)[slots].masked_fill(slots < 0, -9)
                assert torch.equal(got, getattr(alone, name)[own].masked_fill(own < 0, -9))
        row += tree.num_leaves


def test_kept_with_the_plan():
    tree = random_tree(0)
    assert leaf_paths(tree, 3) is leaf_paths(tree.plan, 3)
    assert leaf_paths(tree, 3) is not leaf_paths(tree, 2)


def test_a_deep_tree():
    """5,000 levels, at each a leaf and an inner node."""
    n = 5000
    parent = [-1]
    for i in range(n):
        top = 0 if i == 0 else 2 * i
        parent += [top, top]  # leaf 2i + 1 and inner 2i + 2
    tree = SignalTree.from_parents(parent)
    paths = leaf_paths(tree, 4)
    assert paths.depth.tolist() == [*range(1, n + 1), n]
    assert (paths.low >= 0).sum(1).tolist()[:5] == [2, 3, 4, 5, 5]
    assert torch.equal(paths.top[-1, 0], paths.top[n // 2, 0])


def test_no_trees():
    plan = TreePlan.from_index(torch.empty(2, 0, dtype=torch.int64), torch.empty(0).long())
    assert leaf_paths(plan, 2).low.shape == (0, 3)
