"""ShuffleHierarchy: the same shape above leaves that were dealt out at random."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from transform_cases import assert_same_data, furnished, leaves_below, parents_of

from hsa_geo.builders import from_text
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, UnsupportedError
from hsa_geo.testing import trees
from hsa_geo.transforms import ShuffleHierarchy


def shape_of(tree):
    """Each inner node by its name: parent, domain, number of leaves and of children."""
    parent, below = parents_of(tree), leaves_below(tree)
    return {
        name: (
            tree.tree_name[parent[i]] if parent[i] >= 0 else None,
            int(tree.tree_domain[i]),
            len(below[i]),
            parent.count(i),
        )
        for i, name in enumerate(tree.tree_name)
        if i >= tree.num_leaves
    }


@settings(max_examples=60, deadline=None)
@given(tree=trees(max_nodes=16), seed=st.integers(0, 99))
def test_shape_stays_and_leaves_keep_what_is_theirs(tree, seed):
    tree = furnished(tree, seed)
    tree.tree_name = [f"{name}-{i}" for i, name in enumerate(tree.tree_name)]
    for key in ("tree_link", "tree_link_weight"):
        del tree[key]
    before = tree.clone()
    out = ShuffleHierarchy(seed)(tree)
    assert_same_data(tree, before)
    assert out.validate()
    assert shape_of(out) == shape_of(tree)
    n = tree.num_leaves
    assert out.tree_name[:n] == tree.tree_name[:n]
    assert torch.equal(out.tree_span[:n], tree.tree_span[:n])
    for key in ("x", "token", "edge_index", "edge_attr", "y", "word_x", "word_index"):
        assert torch.equal(out[key], tree[key])
    names = [tree.tree_name[i] for i in tree.form_node.tolist()]
    assert [out.tree_name[i] for i in out.form_node.tolist()] == names
    # Places keep their positions and encodings: as a whole nothing is lost.
    pe = [sorted(map(tuple, t.tree_pe.tolist())) for t in (tree, out)]
    assert pe[0] == pe[1]


def test_words_of_a_text():
    text = "One two three. Four five.\n\nSix seven eight nine."
    tree = from_text(text)
    out = ShuffleHierarchy(seed=3)(tree)
    assert out.validate()
    assert [out.tree_name[i] for i in range(9)] == [tree.tree_name[i] for i in range(9)]
    sizes = [sorted(len(rows) for rows in leaves_below(t)[9:]) for t in (tree, out)]
    assert sizes[0] == sizes[1] == [2, 3, 4, 4, 5, 9]
    assert set(leaves_below(out)[9:]) != set(leaves_below(tree)[9:])
    # Siblings count 0, 1, ... in the order of their rows.
    for t in (tree, out):
        for above in set(t.tree_index[0].tolist()):
            kids = t.tree_index[1][t.tree_index[0] == above]
            assert t.tree_pos[kids, 0].tolist() == list(range(len(kids)))
    below, span = leaves_below(out), out.tree_span
    for i in range(9, out.num_tree_nodes - 1):
        rows = sorted(below[i])
        assert span[i].tolist() == [int(span[rows, 0].min()), int(span[rows, 1].max())]
    assert span[-1].tolist() == [0, len(text)]


def test_positions_that_are_no_count_stay_at_their_places():
    tree = SignalTree.from_parents([3, 3, 3, -1], domain=1, pos=[5, 7, 11, 0])
    out = ShuffleHierarchy(seed=0)(tree)
    assert out.tree_pos[:3, 0].tolist() == [5, 7, 11]


def test_seed():
    tree = SignalTree.from_parents([40 + i // 4 for i in range(40)] + [50] * 10 + [-1])
    assert tree.num_leaves == 40
    same = [ShuffleHierarchy(5)(tree).tree_index for _ in range(2)]
    assert torch.equal(*same)
    assert not torch.equal(ShuffleHierarchy(6)(tree).tree_index, same[0])
    torch.manual_seed(0)
    drawn = [ShuffleHierarchy()(tree).tree_index for _ in range(2)]
    assert not torch.equal(*drawn)


def test_every_arrangement_is_as_likely():
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
    torch.manual_seed(0)
    counts = {}
    for _ in range(600):
        key = frozenset(leaves_below(ShuffleHierarchy()(tree))[4])
        counts[key] = counts.get(key, 0) + 1
    # Which two leaves stand with leaf 0 in the group that comes first: one of three pairs.
    assert len(counts) == 3
    assert max(counts.values()) < 260


def test_single_leaf_and_chain():
    for parents in ([-1], [1, -1], [1, 2, 3, -1]):
        tree = SignalTree.from_parents(parents)
        assert torch.equal(ShuffleHierarchy()(tree).tree_index, tree.tree_index)
    deep = SignalTree.from_parents([*range(1, 5000), -1])
    assert ShuffleHierarchy()(deep).depth == 4999


def test_refused():
    tree = SignalTree.from_parents([2, 2, -1], tree_link=torch.tensor([[0], [1]]), domain=3)
    with pytest.raises(UnsupportedError, match="tree_link joins leaf 0"):
        ShuffleHierarchy()(tree)
    with pytest.raises(UnsupportedError, match="one tree at a time"):
        ShuffleHierarchy()(Batch.from_data_list([SignalTree.from_parents([1, -1])] * 2))
    for seed in (-1, 1.5, True, "a"):
        with pytest.raises(BuilderError, match="seed="):
            ShuffleHierarchy(seed)
    assert repr(ShuffleHierarchy(3)) == "ShuffleHierarchy(seed=3)"
