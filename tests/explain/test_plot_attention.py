"""Pictures of attention: what stands where."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import LimitError, ShapeError, UnsupportedError
from hsa_geo.explain import plot_attention
from hsa_geo.ops import attention_matrix, attention_weights
from hsa_geo.testing import SHAPES, random_tree

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def drawn(ax):
    return torch.tensor(ax.get_images()[0].get_array().data)


@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_matrices_are_drawn_with_the_same_colours(shape, tie):
    tree = random_tree(1, shape=shape)
    torch.manual_seed(0)
    q, k = torch.randn(2, tree.num_leaves, 2, 4, dtype=torch.float64)
    weights = attention_weights(q, k, tree, tie=tie)
    flat = (torch.einsum("nhd,mhd->hnm", q, k) / 2).softmax(-1)
    torch.testing.assert_close(attention_matrix(q, k, tree.plan.flat), flat)
    left, right = plot_attention(weights, flat, head=1)
    torch.testing.assert_close(drawn(left), weights.to_dense()[1])
    torch.testing.assert_close(drawn(right), flat[1])
    assert left.get_images()[0].get_clim() == right.get_images()[0].get_clim()
    left.figure.canvas.draw()


def test_blocks_are_those_of_siblings_in_reading_order():
    tree = SignalTree.from_parents([4, 3, 4, -1, 3], keep_leaf_order=True)  # leaves 0, 2 | 1
    q = torch.randn(3, 1, 4)
    weights = attention_weights(q, q, tree)
    (ax,) = plot_attention(weights, names=["a", "$b", "c\nd"])
    order = tree.plan.leaf_order
    torch.testing.assert_close(drawn(ax).float(), weights.to_dense()[0][order][:, order])
    labels = [text.get_text() for text in ax.get_xticklabels()]
    assert labels == [["a", r"\$b", "c d"][row] for row in order.tolist()]
    boxes = set()
    for path in ax.collections[0].get_paths():
        low, high = path.vertices.min(0) + 0.5, path.vertices.max(0) + 0.5
        boxes.add((*low.astype(int).tolist(), *high.astype(int).tolist()))
    alone = order.tolist().index(1)
    pair = [place for place in range(3) if place != alone]
    two = (min(pair), max(pair) + 1)
    expected = {
        (alone, two[0], alone + 1, two[1]),
        (two[0], alone, two[1], alone + 1),
        (pair[0], pair[1], pair[0] + 1, pair[1] + 1),
        (pair[1], pair[0], pair[1] + 1, pair[0] + 1),
    }
    assert boxes == expected
    assert not plot_attention(weights, edges=False)[0].collections


def test_axes_of_ones_own():
    tree = SignalTree.from_parents([2, 2, -1])
    q = torch.randn(2, 1, 4)
    _, axes = matplotlib.pyplot.subplots(1, 2)
    assert plot_attention(attention_weights(q, q, tree), torch.eye(2), axes=axes) == list(axes)


def test_wrong_arguments_are_refused():
    tree = SignalTree.from_parents([2, 2, -1])
    q = torch.randn(2, 1, 4)
    weights = attention_weights(q, q, tree)
    for args, options in (
        ((weights.to_dense(),), {}),
        ((weights, torch.eye(3)), {}),
        ((weights,), {"head": 1}),
        ((weights,), {"names": ["a"]}),
        ((weights, torch.eye(2)), {"axes": matplotlib.pyplot.subplots()[1]}),
    ):
        with pytest.raises(ShapeError):
            plot_attention(*args, **options)
    with pytest.raises(LimitError, match="max_leaves=1"):
        plot_attention(weights, max_leaves=1)
    batch = Batch.from_data_list([tree, tree])
    with pytest.raises(UnsupportedError, match="2 trees"):
        plot_attention(attention_weights(q.repeat(2, 1, 1), q.repeat(2, 1, 1), batch))
