"""Pictures of trees: what is drawn, and where."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import LimitError, ShapeError, UnsupportedError
from hsa_geo.explain import plot_tree
from hsa_geo.testing import SHAPES, random_tree

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def pixels(ax):
    ax.figure.canvas.draw()
    return torch.frombuffer(bytearray(ax.figure.canvas.buffer_rgba()), dtype=torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_drawn(shape):
    tree = random_tree(3, shape=shape)
    ax = plot_tree(tree)
    points = torch.cat(
        [torch.tensor(c.get_offsets()) for c in ax.collections if len(c.get_offsets())]
    )
    dots = {tuple(p) for p in points.tolist()}
    assert {-y for _, y in dots} == set(tree.tree_level.float().tolist())
    assert sum(len(c.get_offsets()) for c in ax.collections if c.get_label()[0] != "_") == (
        tree.num_tree_nodes
    )
    assert pixels(ax).float().std() > 0


def test_leaves_stand_in_reading_order_whatever_their_rows():
    tree = SignalTree.from_parents(
        [4, 3, 4, -1, 3], name=["c", "a", "d", "root", "box"], keep_leaf_order=True
    )
    where = {t.get_text(): t.xy for t in plot_tree(tree).texts}
    leaves = sorted("cad", key=lambda name: where[name][0])
    assert [tree.tree_name[i] for i in tree.plan.leaf_order.tolist()] == leaves
    assert where["root"] == (1, 0)
    assert where["box"][1] == -1


def test_links_names_and_domains():
    tree = SignalTree.from_parents(
        [3, 3, 3, -1],
        domain=Domain.GRAPH,
        name=["a\nb", "$x$", "a very long name indeed", "g"],
        tree_link=torch.tensor([[0, 1, 1], [1, 0, 2]]),
    )
    ax = plot_tree(tree)
    assert len(ax.patches) == 2  # both directions are one arc, the other has an arrow
    texts = {t.get_text() for t in ax.texts}
    assert texts == {"a b", r"\$x\$", "a very long n…", "g"}
    pixels(ax)  # nothing in a name is taken for mathematics
    labels = {t.get_text() for t in ax.get_legend().get_texts()}
    assert labels == {"GRAPH", "leaf"}
    bare = plot_tree(tree, names=False, links=False)
    assert not bare.texts
    assert not bare.patches


def test_one_draws_on_given_axes():
    _, ax = matplotlib.pyplot.subplots()
    assert plot_tree(SignalTree.from_parents([-1]), ax) is ax


def test_what_cannot_be_drawn_is_refused():
    tree = SignalTree.from_parents([-1] + [0] * 10)
    with pytest.raises(LimitError, match="10 leaves, more than max_leaves=9"):
        plot_tree(tree, max_leaves=9)
    with pytest.raises(UnsupportedError, match="batch"):
        plot_tree(Batch.from_data_list([tree, tree]))
    with pytest.raises(ShapeError, match="TreePlan"):
        plot_tree(tree.plan)
