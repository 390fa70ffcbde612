"""The hierarchy as arrays, and what is none."""

from __future__ import annotations

import pytest
import torch
from data_cases import Plain, full_trees, page_tree
from hypothesis import given, settings
from torch_geometric.data import Batch

from hsa_geo.data.forest import Forest, flat_names
from hsa_geo.errors import TreeError
from hsa_geo.testing import trees


@given(trees(max_nodes=20))
@settings(max_examples=40, deadline=None)
def test_parents_levels_and_leaves(tree):
    forest, plain = Forest.of(tree), Plain.of(tree)
    assert forest.parent.tolist() == plain.parent
    assert forest.is_leaf.tolist() == [not kids for kids in plain.children]
    assert forest.level.tolist() == [plain.level(node) for node in range(len(plain.parent))]
    assert forest.roots.tolist() == plain.roots
    assert (forest.num_nodes, forest.num_trees) == (len(plain.parent), 1)


def test_trees_of_a_batch():
    members = full_trees(4)
    forest = Forest.of(Batch.from_data_list(members))
    sizes = torch.tensor([tree.num_tree_nodes for tree in members])
    assert forest.tree.tolist() == torch.repeat_interleave(torch.arange(4), sizes).tolist()
    assert forest.roots.tolist() == (sizes.cumsum(0) - 1).tolist()
    assert forest.name(int(sizes[0]) + 2) == "node 2 of tree 1"
    assert Forest.of(members[0]).name(2) == "node 2"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda index: index[0].fill_(99), "holds node 99, but the tree has 11 nodes"),
        (lambda index: index[1, 0].fill_(-1), "holds node -1"),
        (lambda index: index[1, 0].copy_(index[0, 0]), "is its own parent"),
        (lambda index: index[1, 1].copy_(index[1, 5]), "a tree allows one"),
    ],
)
def test_what_is_no_forest_is_named(edit, message):
    tree = page_tree()
    edit(tree.tree_index)
    with pytest.raises(TreeError, match=message):
        Forest.of(tree)


def test_a_cycle_has_no_root():
    tree = page_tree()
    tree.tree_index = torch.tensor([[0, 1], [1, 0]])
    tree.tree_level = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TreeError, match="none of the 2 nodes is a root"):
        Forest.of(tree)


def test_names_of_batches_of_batches():
    assert flat_names([["a"], ["b", "c"]]) == ["a", "b", "c"]
    assert flat_names([[["a"], ["b"]], [["c"]]]) == ["a", "b", "c"]
    assert flat_names(["a", "b"]) == ["a", "b"]
    assert flat_names(None) is None
