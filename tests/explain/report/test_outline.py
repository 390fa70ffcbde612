"""Trees in the order of a page."""

from __future__ import annotations

import pytest

from hsa_geo.data import SignalTree
from hsa_geo.explain.report.outline import Outline
from hsa_geo.testing import SHAPES, random_tree


def walked(tree):
    """The ids in depth-first order, by recursion."""
    kids = {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)

    def walk(node):
        return [node, *(one for kid in kids.get(node, []) for one in walk(kid))]

    return walk(tree.num_tree_nodes - 1), kids


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_nodes_stand_before_what_lies_below_them(shape, seed):
    tree = random_tree(seed, shape=shape)
    outline = Outline.of(tree)
    order, kids = walked(tree)
    assert outline.node.tolist() == order
    assert [outline.place[node] for node in order] == list(range(len(order)))
    leaves = [node for node in order if node < tree.num_leaves]
    assert leaves == tree.plan.leaf_order.tolist()
    for at, node in enumerate(order):
        below = order[at : at + outline.size[at]]
        assert set(below[1:]) >= set(kids.get(node, []))
        inside = [one for one in below if one < tree.num_leaves]
        first, count = outline.first[at], outline.leaves[at]
        assert leaves[first : first + count] == inside
        assert outline.level[at] == tree.tree_level[node]
        assert outline.parent[at] == -1 or node in kids[order[outline.parent[at]]]
    assert [outline.leaf_place[leaf] for leaf in leaves] == list(range(len(leaves)))


def test_leaves_in_another_order():
    tree = SignalTree.from_parents([4, 3, 4, -1, 3], keep_leaf_order=True)
    outline = Outline.of(tree)
    assert outline.node.tolist() == walked(tree)[0]
