"""PlainTree: children, leaves and sibling pairs as plain lists."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.ops.plain_tree import PlainTree


def small() -> SignalTree:
    # R = 4 -> leaf 0, A = 3 -> leaves 1, 2
    return SignalTree.from_parents([4, 3, 3, 4, -1])


def test_lists_of_a_small_tree():
    plain = PlainTree.of(small())
    assert plain.children == [[], [], [], [1, 2], [0, 3]]
    assert plain.roots == [4]
    assert plain.leaves == [0, 1, 2]
    assert plain.order[0] == 4
    assert sorted(plain.order) == [0, 1, 2, 3, 4]
    assert plain.under.int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_pairs_go_by_parent_id_then_rank():
    plain = PlainTree.of(small())
    assert plain.pairs() == [(1, 2), (2, 1), (0, 3), (3, 0)]
    assert plain.num_pairs == 4
    assert plain.first_pair == {3: 0, 4: 2}


def test_entry_numbers_pairs_then_leaves():
    plain = PlainTree.of(small())
    assert plain.entry().tolist() == [[4, 2, 2], [3, 5, 0], [3, 1, 6]]


def test_square_puts_pairs_beside_the_diagonal():
    tree = SignalTree.from_parents([3, 3, 3, -1])
    pairs = torch.arange(1.0, 7.0).unsqueeze(1)
    square = PlainTree.of(tree).square(pairs, 3)[:, :, 0]
    assert square.tolist() == [[0, 1, 2], [3, 0, 4], [5, 6, 0]]


def test_batch_with_a_single_leaf():
    batch = Batch.from_data_list([small(), SignalTree.from_parents([-1]), small()])
    plain = PlainTree.of(batch)
    assert plain.roots == [4, 5, 10]
    assert plain.leaves == [0, 1, 2, 5, 6, 7, 8]
    assert plain.pairs()[4:] == [(7, 8), (8, 7), (6, 9), (9, 6)]
    apart = plain.num_pairs + len(plain.leaves)
    assert plain.entry()[3].tolist() == [apart] * 3 + [plain.num_pairs + 3] + [apart] * 3


def test_no_tree_at_all():
    empty = SimpleNamespace(
        tree_index=torch.empty(2, 0, dtype=torch.long), tree_level=torch.empty(0)
    )
    plain = PlainTree.of(empty)
    assert plain.roots == plain.leaves == plain.pairs() == []
    assert plain.entry().shape == (0, 0)
