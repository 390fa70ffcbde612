"""Equal leaves merged into one with a weight, and repeated again."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch
from transform_cases import assert_same_data, conv, furnished, parents_of, positioned

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, LimitError, ShapeError, UnsupportedError
from hsa_geo.nn import subtree_mean
from hsa_geo.ops import tree_energy
from hsa_geo.testing import trees
from hsa_geo.transforms import MergeEqualLeaves, RepeatLeaves


def with_equal_leaves(tree: SignalTree, seed: int) -> SignalTree:
    """Few different features, so that many leaves are equal; positions in all domains."""
    tree = furnished(tree, seed)
    n = tree.num_leaves
    for key in ("form_node", "form_label", "tree_pe", "edge_index", "edge_attr", "word_index"):
        del tree[key]
    del tree.word_x
    tree.tree_name = ["leaf"] * n + tree.tree_name[n:]
    generator = torch.Generator().manual_seed(seed)
    tree.x = torch.randint(0, 2, (n, 3), generator=generator).double()
    tree.x[:, 1:] = 0.5
    tree.leaf_weight = torch.randint(1, 3, (n,), generator=generator)
    assert tree.validate()
    return tree


def same_leaf(big: SignalTree, small: SignalTree) -> list[int]:
    """The leaf of ``small`` that stands for each leaf of ``big``: same node above, same content;
    leaves with a number of their own are found by it."""
    out = []
    for leaf in range(big.num_leaves):
        above = big.tree_name[parents_of(big)[leaf]]
        found = [
            i
            for i in range(small.num_leaves)
            if small.tree_name[parents_of(small)[i]] == above
            and torch.equal(small.x[i], big.x[leaf])
            and small.token[i] == big.token[leaf]
        ]
        exact = [i for i in found if "number" in small and small.number[i] == big.number[leaf]]
        out.append((exact or found)[0])
    return out


@settings(max_examples=60, deadline=None)
@given(tree=trees(max_nodes=16), seed=st.integers(0, 99))
def test_the_output_is_the_same_with_fewer_leaves(tree, seed):
    tree = with_equal_leaves(tree, seed)
    tree.number = torch.arange(tree.num_leaves)
    before = tree.clone()
    small = MergeEqualLeaves(["x", "token"])(tree)
    assert_same_data(tree, before)
    assert small.validate()
    assert small.leaf_weight.sum() == tree.leaf_weight.sum()
    where = same_leaf(tree, small)
    with torch.no_grad():
        for layer in (conv(3), positioned()):
            out, expected = layer(small.x, small)[where], layer(tree.x, tree)
            torch.testing.assert_close(out, expected, atol=1e-9, rtol=0)
        means = subtree_mean(small.x, small.plan)[-1], subtree_mean(tree.x, tree.plan)[-1]
        torch.testing.assert_close(*means)
        energy = [tree_energy(t.x[:, None], t.x[:, None], t) for t in (small, tree)]
        torch.testing.assert_close(*energy)
    # In sets no two are left that could be one.
    parent = parents_of(small)
    linked = set(small.tree_link.flatten().tolist())
    seen = set()
    for leaf in range(small.num_leaves):
        if parent[leaf] >= 0 and small.tree_domain[parent[leaf]] == 0 and leaf not in linked:
            key = (parent[leaf], small.x[leaf, 0].item(), small.token[leaf].item())
            assert key not in seen
            seen.add(key)


@settings(max_examples=40, deadline=None)
@given(tree=trees(max_nodes=12), seed=st.integers(0, 99))
def test_repeated_leaves_compute_as_the_weight(tree, seed):
    tree = with_equal_leaves(tree, seed)
    del tree.tree_link, tree.tree_link_weight
    tree.word_x = torch.tensor([[7], [8]])
    tree.word_index = torch.tensor([tree.num_leaves - 1, 0])
    big = RepeatLeaves()(tree)
    assert big.validate()
    assert "leaf_weight" not in big
    assert big.num_leaves == tree.leaf_weight.sum()
    row = torch.repeat_interleave(torch.arange(tree.num_leaves), tree.leaf_weight)
    assert torch.equal(big.x, tree.x[row])
    assert row[big.word_index].tolist() == [
        leaf for leaf in tree.word_index.tolist() for _ in range(int(tree.leaf_weight[leaf]))
    ]
    with torch.no_grad():
        out, expected = conv(3)(big.x, big), conv(3)(tree.x, tree)[row]
    torch.testing.assert_close(out, expected, atol=1e-9, rtol=0)
    order = row[big.plan.leaf_order]
    assert order.unique_consecutive().tolist() == tree.plan.leaf_order.tolist()
    back = RepeatLeaves()(MergeEqualLeaves()(big))
    assert sorted(back.x.tolist()) == sorted(big.x.tolist())
    assert_same_data(RepeatLeaves()(big), big)


def bag(**attrs) -> SignalTree:
    x = torch.tensor([1.0, 2, 1, 1, 2, 1])[:, None]
    return SignalTree.from_parents([6, 6, 6, 7, 7, 7, 8, 8, -1], x=x, **attrs)


def test_bags():
    tree = MergeEqualLeaves()(bag())
    assert tree.leaf_weight.tolist() == [2, 1, 2, 1]
    assert tree.x.flatten().tolist() == [1, 2, 1, 2]
    again = MergeEqualLeaves()(tree)
    assert_same_data(again, tree)
    assert_same_data(pickle.loads(pickle.dumps(MergeEqualLeaves()))(bag()), tree)
    Batch.from_data_list([tree, MergeEqualLeaves()(SignalTree.from_parents([-1], x=tree.x[:1]))])


@pytest.mark.parametrize(
    "attrs",
    [
        {"label": torch.arange(6)},
        {"label": list("abcdef")},
        {"name": list("abcdefghi")},
        {"tree_pe": torch.arange(9.0)[:, None]},
        {"domain": Domain.SEQUENCE},
        {"word_x": torch.arange(6), "word_index": torch.arange(6)},
        {"word_x": torch.zeros(12), "word_index": torch.arange(12) // 2},
        {"edge_index": torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 5, 3, 4]])},
        {"a_node": torch.arange(6)},
        {"tree_link": torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])},
    ],
)
def test_what_tells_leaves_apart(attrs):
    tree = bag(**attrs)
    out = MergeEqualLeaves()(tree)
    assert out.leaf_weight.tolist() == [1] * 6
    assert_same_data(out, tree, skip=("leaf_weight",))


def test_what_does_not_tell_leaves_apart():
    words = {"word_x": torch.tensor([5, 6, 5, 5, 6, 5]), "word_index": torch.arange(6)}
    span = torch.arange(18).view(9, 2)
    tree = MergeEqualLeaves()(bag(tree_span=span, **words))
    assert tree.leaf_weight.tolist() == [2, 1, 2, 1]
    assert tree.word_x.tolist() == [5, 6, 5, 6]
    assert tree.tree_span[:4].tolist() == span[[0, 1, 3, 4]].tolist()
    tree = MergeEqualLeaves(["x"])(bag(label=torch.arange(6)))
    assert tree.label.tolist() == [0, 1, 3, 4]
    one = MergeEqualLeaves()(SignalTree.from_parents([3, 3, 3, -1], x=torch.ones(3, 1)))
    assert (one.num_leaves, one.num_tree_nodes) == (1, 2)


def test_errors():
    with pytest.raises(BuilderError, match="attrs names 'z'"):
        MergeEqualLeaves(["z"])(bag())
    with pytest.raises(UnsupportedError, match="'label' is a list whose rows cannot be compared"):
        MergeEqualLeaves()(bag(label=[[1], [2], [3], [4], [5], [6]]))
    heavy = bag(leaf_weight=torch.tensor([1, 1, 9, 1, 1, 1]))
    with pytest.raises(LimitError, match="the weights make 14 leaves, above max_leaves=13"):
        RepeatLeaves(13)(heavy)
    for key, value in {
        "edge_index": torch.tensor([[0], [2]]),
        "a_node": torch.tensor([2]),
        "tree_link": torch.tensor([[1], [2]]),
    }.items():
        tree = heavy.clone()
        tree[key] = value
        with pytest.raises(UnsupportedError, match=f"'{key}' refers to leaf 2, which is to be rep"):
            RepeatLeaves()(tree)
    heavy.leaf_weight[0] = 0
    for transform in (MergeEqualLeaves(), RepeatLeaves()):
        with pytest.raises(ShapeError, match="leaf 0 has the weight 0"):
            transform(heavy)
        assert repr(transform).startswith(type(transform).__name__)


def test_references_follow():
    tree = bag(
        leaf_weight=torch.tensor([1, 2, 1, 1, 1, 3]),
        edge_index=torch.tensor([[0, 4], [3, 2]]),
        edge_attr=torch.rand(2, 1),
        a_node=torch.tensor([8, 4, 6]),
        tree_link=torch.tensor([[0, 6], [2, 7]]),
        name=list("abcdefghi"),
    )
    out = RepeatLeaves()(tree)
    assert out.validate()
    assert "".join(out.tree_name) == "abbcdefffghi"
    assert out.edge_index.tolist() == [[0, 5], [4, 3]]
    assert [out.tree_name[i] for i in out.a_node] == ["i", "e", "g"]
    assert [[out.tree_name[i] for i in row] for row in out.tree_link] == [["a", "g"], ["c", "h"]]
    assert out.edge_attr is tree.edge_attr


def test_a_lone_leaf_is_repeated_below_a_root():
    tree = SignalTree.from_parents([-1], x=torch.ones(1, 3), leaf_weight=torch.tensor([3]))
    out = RepeatLeaves()(tree)
    assert out.validate()
    assert out.tree_index.tolist() == [[3, 3, 3], [0, 1, 2]]
