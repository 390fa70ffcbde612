"""Trees that were read: what passes, and what does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets import on_disk_checks as module
from hsa_geo.datasets.on_disk_checks import check_tree
from hsa_geo.errors import HSAError
from hsa_geo.testing import random_tree


def rich(seed: int) -> SignalTree:
    tree = random_tree(seed)
    n, m = tree.num_leaves, tree.num_tree_nodes
    tree.x = torch.randn(n, 3)
    tree.image_x = torch.zeros(seed % 3, 12)
    tree.image_index = torch.arange(seed % 3) % n
    tree.title_node, tree.title_label = torch.tensor([m - 1]), torch.tensor([3])
    tree.edge_index = torch.randint(0, n, (2, seed))
    tree.edge_attr = torch.zeros(seed, 2)
    tree.tree_name = ["a"] * m
    return tree


def test_sound_trees_pass_without_the_full_validation(monkeypatch):
    def never(self):
        raise AssertionError

    monkeypatch.setattr(SignalTree, "validate", never)
    for seed in range(200):
        check_tree(rich(seed))
    check_tree(SignalTree.from_parents([-1]))


def test_rare_attributes_are_left_to_the_full_validation():
    tree = SignalTree.from_parents([2, 2, -1])
    tree.tree_link = torch.tensor([[0], [1]])
    check_tree(tree)
    tree.title_node, tree.title_label = torch.tensor([0]), 5  # for all of them
    check_tree(tree)
    tree = SignalTree.from_parents([2, 2, -1])
    tree.tree_pos.requires_grad_()
    check_tree(tree)


@pytest.mark.parametrize("key", ["tree_index", "tree_level", "tree_domain", "num_nodes"])
def test_a_changed_number_is_found(key):
    """The check finds what the full validation finds, but for the order in reading."""
    rng = np.random.default_rng(0)
    for seed in range(100):
        tree = rich(seed)
        if key == "num_nodes":
            change = int(rng.choice([-1, 1, 10**9, -(10**9)]))
            tree._store._mapping[key] = int(tree.num_nodes) + change
        else:
            flat = tree[key].view(-1)
            if not len(flat):
                continue
            flat[rng.integers(len(flat))] += int(rng.choice([-1, 1, 99, -99]))
        values = tree.to_dict()
        try:
            fits = module._hierarchy_fits(values)
        except (ValueError, IndexError):
            fits = False
        try:
            sound = tree.validate()
        except HSAError as error:
            sound = False
            if "in reading" in str(error):
                continue
        assert fits <= sound


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("x", torch.zeros(3, 2)),
        ("image_index", torch.tensor([4])),
        ("image_index", torch.tensor([-1])),
        ("image_index", torch.tensor([0, 1])),
        ("image_x", torch.zeros(2, 3)),
        ("title_node", torch.tensor([7])),
        ("title_label", torch.tensor([7, 7])),
        ("tree_link", torch.tensor([[0], [2]])),
        ("edge_index", torch.tensor([[0], [9]])),
        ("edge_index", torch.zeros(3, 1, dtype=torch.int64)),
        ("edge_attr", torch.zeros(3)),
        ("tree_name", ["a"]),
        ("tree_span", torch.zeros(3, 2, dtype=torch.int64)),
        ("tree_pos", torch.zeros(6, 2)),
        ("tree_pos", torch.full((7, 2), float("nan"))),
        ("tree_domain", torch.tensor([-1, -1, -1, -1, 9, 0, 0])),
        ("tree_level", torch.zeros(7, dtype=torch.int64)),
        ("num_nodes", 0),
    ],
)
def test_what_does_not_pass(key, value):
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    tree.image_x, tree.image_index = torch.zeros(1, 3), torch.tensor([3])
    tree.edge_index = torch.tensor([[0], [1]])
    tree.title_node = torch.tensor([6])
    check_tree(tree)
    tree._store._mapping[key] = value  # past the store's own check
    with pytest.raises(HSAError):
        check_tree(tree)
