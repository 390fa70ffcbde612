from __future__ import annotations

import numpy as np
import pytest
import torch

from hsa_geo.data.contraction import check_index, contract, leaf_counts
from hsa_geo.errors import ShapeError, TreeError
from hsa_geo.testing import SHAPES, random_tree


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_chains_by_hand(seed, shape):
    tree = random_tree(seed, shape=shape)
    m = tree.num_tree_nodes
    parent = [-1] * m
    for above, below in tree.tree_index.t().tolist():
        parent[below] = above
    children = [parent.count(node) for node in range(m)]
    top, level, bottom = contract(np.array(parent), np.array(children), tree.tree_level.numpy())
    for node in range(m):
        at = node
        while parent[at] >= 0 and children[parent[at]] == 1:
            at = parent[at]
        assert int(top[node]) == at
        branching, up = 0, parent[node]
        while up >= 0:
            branching, up = branching + (children[up] > 1), parent[up]
        assert int(level[node]) == branching
        at = node
        while children[at] == 1:
            at = parent.index(at)
        assert int(bottom[node]) == at


@pytest.mark.parametrize(
    ("index", "level", "error"),
    [
        ([[2, 2], [0, 1]], [1, 1, 1], "node 0 has level 1"),
        ([[2, 3], [0, 1]], [1, 1, 0], "holds node 3"),
        ([[-1, 2], [2, 1]], [1, 1, 0], "holds node -1"),
        ([[2, 2], [0, 0]], [1, 0, 0], "node 0 has 2 parents"),
        ([[1, 0], [0, 1]], [1, 2], "node 0 has level 1"),  # a cycle
    ],
)
def test_what_is_no_forest_is_refused(index, level, error):
    with pytest.raises(TreeError, match=error):
        check_index(torch.tensor(index), torch.tensor(level))


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match=r"\[3\]"):
        check_index(torch.tensor([0, 1, 2]), torch.tensor([0]))
    with pytest.raises(ShapeError, match="float32"):
        check_index(torch.tensor([[1], [0]]), torch.tensor([1.0, 0.0]))


def test_counts_add_up():
    weight = np.array([0, 0, 1, 1, 1])  # root; inner, leaf; two leaves
    got = leaf_counts(weight, [0, 1, 3, 5], [0, 0, 1, 2], np.array([1, 3, 5]), np.array([0, 1]))
    assert got.tolist() == [3, 2, 1, 1, 1]
