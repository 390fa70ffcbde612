"""Rewindow: windows of the leaves, or of nodes of a level, in reading order."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from transform_cases import assert_same_data, furnished, leaves_below, parents_of

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, DomainError, TreeError, UnsupportedError
from hsa_geo.testing import trees
from hsa_geo.transforms import Rewindow


@settings(max_examples=60, deadline=None)
@given(
    tree=trees(max_nodes=16),
    seed=st.integers(0, 99),
    windows=st.lists(st.integers(2, 5), max_size=3),
    level=st.none() | st.integers(1, 4),
)
def test_windows(tree, seed, windows, level):
    tree = furnished(tree, seed)
    n = tree.num_leaves
    old_below = leaves_below(tree)
    tree.form_node = tree.form_node[1:]  # a leaf
    tree.form_label = tree.form_label[1:]
    before = tree.clone()
    out = Rewindow(windows, level=level)(tree)
    assert_same_data(tree, before)
    assert out.validate()
    order = tree.plan.leaf_order.tolist()
    assert out.plan.leaf_order.tolist() == order
    for key in ("x", "token", "edge_index", "edge_attr", "y", "word_x", "word_index", "form_node"):
        assert out[key] is tree[key] or torch.equal(out[key], tree[key])

    # The units, and windows of them, counted by hand.
    if level is None:
        units = [frozenset([row]) for row in order]
    else:
        at = [i for i in range(tree.num_tree_nodes) if tree.tree_level[i] == level]
        at += [i for i in range(n) if tree.tree_level[i] < level]
        units = sorted((old_below[i] for i in at), key=lambda rows: min(map(order.index, rows)))
    expected, top = set(), units
    for size in [*windows, max(n, 2)]:
        if len(top) > 1:
            top = [frozenset().union(*top[i : i + size]) for i in range(0, len(top), size)]
            expected |= set(top)
    names, below = out.tree_name, leaves_below(out)
    new = [i for i, name in enumerate(names) if name == "window"]
    assert {below[i] for i in new} == expected
    stays = [i for i in range(tree.num_tree_nodes) if level and tree.tree_level[i] >= level]
    stays = sorted({*stays, *range(n)})
    assert sorted(n for n in names if n != "window") == sorted(tree.tree_name[i] for i in stays)

    parent, rank = parents_of(out), {}
    for above, child in out.tree_index.t().tolist():
        rank[child] = len([c for c in rank if parent[c] == above])
    for i, name in enumerate(names):
        in_window = parent[i] >= 0 and names[parent[i]] == "window"
        if name != "window":
            old = tree.tree_name.index(name)
            assert below[i] == old_below[old]
            assert out.tree_domain[i] == tree.tree_domain[old]
            assert torch.equal(out.tree_span[i], tree.tree_span[old])
            if not in_window and parent[i] >= 0:
                assert torch.equal(out.tree_pos[i], tree.tree_pos[old])
                assert torch.equal(out.tree_pe[i], tree.tree_pe[old])
        else:
            assert out.tree_domain[i] == Domain.SEQUENCE
            inside = [c for c, p in enumerate(parent) if p == i]
            assert out.tree_span[i, 0] == out.tree_span[inside, 0].min()
            assert out.tree_span[i, 1] == out.tree_span[inside, 1].max()
        if in_window:
            assert out.tree_pos[i].tolist() == [rank[i], 0]
            assert out.tree_pe[i].tolist() == [0, 0]
    kept = [tree.tree_name[parents_of(tree)[a]] in names for a in tree.tree_link[0]]
    assert (
        out.tree_link_weight.tolist()
        == tree.tree_link_weight[torch.tensor(kept, dtype=bool)].tolist()
    )


def test_sets_have_no_positions():
    tree = SignalTree.from_parents([5] * 5 + [-1], x=torch.rand(5, 1))
    out = Rewindow(2, domain=Domain.SET)(tree)
    assert out.tree_domain[5:].tolist() == [Domain.SET] * 4
    assert (out.tree_pos == 0).all()


def test_a_level_below_the_leaves_and_one_leaf():
    tree = SignalTree.from_parents([2, 3, 3, -1])
    assert_same_data(Rewindow(3, level=9)(tree), Rewindow(3)(tree))
    single = Rewindow([4, 4])(SignalTree.from_parents([1, 2, -1]))
    assert single.num_tree_nodes == 1
    flat = Rewindow([])(SignalTree.from_parents([4, 4, 5, 6, 6, 6, -1]))
    assert flat.tree_index.tolist() == [[4] * 4, [0, 1, 2, 3]]


def test_a_million_leaves():
    n = 1_000_000
    tree = SignalTree.from_parents(np.append(np.full(n, n), -1))
    out = Rewindow([100, 100])(tree)
    assert out.tree_level.bincount().tolist() == [1, 100, 10_000, n]


def test_errors():
    tree = SignalTree.from_parents([2, 2, -1], name=["a", "b", "top"], form_node=torch.tensor([2]))
    with pytest.raises(
        TreeError, match=r"'form_node' refers to node 2 \('top'\), which is no more"
    ):
        Rewindow(2)(tree)
    for windows in (1, [4, 0], [2.0], "ab", True):
        with pytest.raises(BuilderError, match="windows has the value"):
            Rewindow(windows)
    with pytest.raises(BuilderError, match="level has the value 0"):
        Rewindow(2, level=0)
    with pytest.raises(DomainError, match="windows are a SEQUENCE, or a SET"):
        Rewindow(2, domain=Domain.GRID2D)
    with pytest.raises(UnsupportedError, match="not a Data without hierarchy"):
        Rewindow(2)(Data(num_nodes=1))
    assert repr(Rewindow([4, 2], level=3)) == "Rewindow([4, 2], level=3)"
