"""Trees of expressions, against from_nested over the same lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.data import Domain, SignalTree
from hsa_geo.datasets.listops_notation import Expressions, draw_expressions
from hsa_geo.datasets.listops_trees import SYMBOLS, expression_trees


def by_walk(text: str) -> SignalTree:
    """The same tree node by node, in the order of the text."""
    parent, pos, symbols = [], [], []
    stack: list[list[int]] = []  # node and next place

    def add() -> int:
        parent.append(stack[-1][0] if stack else -1)
        pos.append(stack[-1][1] if stack else 0)
        if stack:
            stack[-1][1] += 1
        return len(parent) - 1

    for token in text.split():
        if token == "]":
            stack.pop()
            continue
        if token.startswith("["):
            stack.append([add(), 0])
        add()
        symbols.append(SYMBOLS.index(token.removeprefix("[")))
    return SignalTree.from_parents(
        parent,
        domain=Domain.SEQUENCE,
        pos=pos,
        symbol_x=torch.tensor(symbols),
        symbol_index=torch.arange(len(symbols)),
    )


def test_against_a_walk():
    drawn = draw_expressions(60, np.random.default_rng(0), max_depth=5, nested=0.4)
    trees = expression_trees(drawn)
    assert len(trees) == 60
    for i, tree in enumerate(trees):
        expected = by_walk(drawn.text(i))
        tree.validate()
        for key, value in expected.to_dict().items():
            assert torch.equal(torch.as_tensor(tree[key]), torch.as_tensor(value)), key
            assert key == "num_nodes" or tree[key].dtype == value.dtype


def test_values_of_lists():
    drawn = draw_expressions(40, np.random.default_rng(1), max_depth=4, nested=0.5)
    for i, tree in enumerate(expression_trees(drawn)):
        assert tree.y.tolist() == [drawn[i : i + 1].values()[0]]
        # The first leaf below a list is its operator, and in the text its list begins there.
        words = drawn.text(i).split()
        starts = [k for k, word in enumerate(words) if word.startswith("[")]
        for start, node, value in zip(starts, tree.list_node.tolist(), tree.list_y.tolist()):
            depth, end = 0, start
            while depth or end == start:
                depth += words[end].startswith("[") - (words[end] == "]")
                end += 1
            part = Expressions.parse([" ".join(words[start:end])])
            assert value == part.values()[0]
            leaves = sum(word != "]" for word in words[start:end])
            slot = tree.plan.slots_of(torch.tensor([node]))
            assert tree.plan.count[slot].item() == leaves


def test_single_digits_and_nothing():
    trees = expression_trees(Expressions.parse(["7", "[SM 9 ]", "0"]))
    assert [tree.num_nodes for tree in trees] == [1, 2, 1]
    assert [tree.y.item() for tree in trees] == [7, 9, 0]
    assert all(tree.validate() for tree in trees)
    assert trees[0].list_node.shape == (0,)
    assert expression_trees(Expressions.parse([])) == []


def test_batches_and_back():
    trees = expression_trees(draw_expressions(9, np.random.default_rng(2)))
    batch = Batch.from_data_list(trees)
    roots = batch.list_node[torch.tensor([0, *(len(t.list_node) for t in trees[:-1])]).cumsum(0)]
    assert batch.plan.slots_of(roots).tolist() == list(range(9))
    for tree, again in zip(trees, batch.to_data_list()):
        keys = set(tree.to_dict()) - {"num_nodes"}
        assert all(torch.equal(tree[key], again[key]) for key in keys)


def test_tensors_own_their_memory():
    (tree, *_) = expression_trees(draw_expressions(200, np.random.default_rng(2)))
    for value in tree.to_dict().values():
        if isinstance(value, torch.Tensor):
            assert value.untyped_storage().nbytes() == value.numel() * value.element_size()


@pytest.mark.parametrize("depth", [3000])
def test_very_deep(depth):
    (tree,) = expression_trees(Expressions.parse(["[MAX 1 " * depth + "9 " + "] " * depth]))
    assert tree.depth == depth
    assert tree.y.item() == 9
