"""Checks for builders: they pass what is right, and find what is wrong."""

from __future__ import annotations

import warnings

import pytest
import torch

from hsa_geo.builders import from_html, from_image, from_nested, from_networkx, from_text
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, HSAWarning, TreeError
from hsa_geo.testing import (
    assert_builds_or_refuses,
    assert_reading_order,
    assert_trees_equal,
    assert_valid_builder,
    random_tree,
)


def tree_of(count: int) -> SignalTree:
    return SignalTree.from_parents([-1] + [0] * count, x=torch.arange(2.0 * count).view(count, 2))


def test_equal_trees():
    assert_trees_equal(tree_of(3), tree_of(3))
    tree = tree_of(3)
    tree.x[0, 0] = torch.nan
    assert_trees_equal(tree.clone(), tree)
    with pytest.raises(AssertionError, match=r"'x' differs at \[0, 0\]"):
        assert_trees_equal(tree, tree_of(3))
    other = tree_of(3)
    other.x = other.x.double()
    with pytest.raises(AssertionError, match=r"'x' is torch.float64 \[3, 2\], not torch.float32"):
        assert_trees_equal(other, tree_of(3))
    with pytest.raises(AssertionError, match="'num_nodes' differs"):
        assert_trees_equal(tree_of(2), tree_of(3))
    named = SignalTree.from_parents([-1, 0], name=["r", "a"])
    with pytest.raises(AssertionError, match=r"\['tree_name'\]"):
        assert_trees_equal(named, SignalTree.from_parents([-1, 0]))
    with pytest.raises(AssertionError, match="'tree_name' differs"):
        assert_trees_equal(named, SignalTree.from_parents([-1, 0], name=["r", "b"]))


def test_reading_order():
    for seed in range(20):
        assert_reading_order(random_tree(seed))
    tree = SignalTree.from_parents([3, 4, 3, 4, -1], keep_leaf_order=True)
    with pytest.raises(AssertionError, match=r"node 3 has 2 leaves between 0 and 2"):
        assert_reading_order(tree)


def test_valid_builder():
    sources = [1, 4, 2]
    trees = assert_valid_builder(tree_of, sources)
    assert [tree.num_leaves for tree in trees] == sources
    with pytest.raises(AssertionError, match="no sources"):
        assert_valid_builder(tree_of, [])
    with pytest.raises(BuilderError):
        assert_valid_builder(from_text, ["..."])
    with pytest.raises(AssertionError, match="source 0 gives a list"):
        assert_valid_builder(lambda count: [count], sources)


def test_builders_that_forget_themselves():
    drawn = iter(range(100))
    with pytest.raises(AssertionError, match="source 0, built again: 'x' differs"):
        assert_valid_builder(
            lambda _: SignalTree.from_parents([-1], x=torch.full((1, 1), float(next(drawn)))), [0]
        )


def test_trees_that_are_not_valid():
    def build(count: int) -> SignalTree:
        tree = tree_of(count)
        tree.tree_level[0] = 7
        return tree

    with pytest.raises(TreeError):
        assert_valid_builder(build, [2])


def test_trees_that_cannot_be_batched():
    def build(count: int) -> SignalTree:
        tree = tree_of(count)
        if count > 2:
            tree.image_x = torch.zeros(1, 3)
            tree.image_index = torch.zeros(1, dtype=torch.int64)
        return tree

    with pytest.raises(AssertionError, match=r"source 1 has other .*\['image_index', 'image_x'\]"):
        assert_valid_builder(build, [2, 3])
    assert len(assert_valid_builder(build, [2, 3], same_keys=False)) == 2


@pytest.mark.parametrize(
    ("build", "sources"),
    [
        (from_text, ["One.", "Two words!\n\nThree of them."]),
        (lambda page: from_html(page, tables="grid"), ["a", "<table><td>b<td>c</table>d"]),
        (from_image, [torch.rand(3, 40, 7), torch.zeros(1, 1)]),
        (lambda s: from_nested(s, names=True, links=True), [[1, 2], {"a": [1], "b": 2}]),
    ],
)
def test_the_builders(build, sources):
    assert_valid_builder(build, sources)


def test_builds_or_refuses():
    assert assert_builds_or_refuses(lambda: tree_of(2)).num_leaves == 2
    assert assert_builds_or_refuses(lambda: from_text("")) is None

    def raising(error):
        def build():
            raise error

        return build

    with pytest.raises(AssertionError, match="untyped error: KeyError: 'a'"):
        assert_builds_or_refuses(raising(KeyError("a")))
    with pytest.raises(AssertionError, match="untyped error: OSError"):
        assert_builds_or_refuses(raising(OSError("gone")))
    assert assert_builds_or_refuses(raising(OSError("gone")), allowed=OSError) is None
    assert assert_builds_or_refuses(raising(OSError("gone")), allowed=(OSError,)) is None
    with pytest.raises(AssertionError, match="a message of 5000 characters"):
        assert_builds_or_refuses(raising(BuilderError("x" * 5000)))
    with pytest.raises(KeyboardInterrupt):  # of the user
        assert_builds_or_refuses(raising(KeyboardInterrupt()))


def test_results_and_warnings_are_looked_at():
    def warning(category):
        def build():
            warnings.warn("beware of the dog", category, stacklevel=1)
            return tree_of(2)

        return build

    assert assert_builds_or_refuses(warning(HSAWarning)) is not None
    with pytest.raises(AssertionError, match="untyped warning: RuntimeWarning: beware"):
        assert_builds_or_refuses(warning(RuntimeWarning))
    with pytest.raises(AssertionError, match="gives a NoneType"):
        assert_builds_or_refuses(lambda: None)

    def wrong():
        tree = tree_of(2)
        tree.tree_level[0] = 7
        return tree

    with pytest.raises(AssertionError, match=r"the tree is not valid: .* level 7"):
        assert_builds_or_refuses(wrong)
    unread = SignalTree.from_parents([3, 4, 3, 4, -1], keep_leaf_order=True)
    with pytest.raises(AssertionError, match="not in reading order"):
        assert_builds_or_refuses(lambda: unread)


def test_a_graph_is_not_changed_by_its_builder():
    import networkx as nx

    graph = nx.path_graph(5)
    assert_valid_builder(lambda g: from_networkx(g, hierarchy="louvain"), [graph, graph])
    assert list(graph) == list(range(5))
