"""Attention of replaced layers against the oracle, over trees built node by node."""

from __future__ import annotations

import re

import pytest
import torch
from test_replace import PICTURES, make, padded

from hsa_geo.data import SignalTree
from hsa_geo.hf import Squares, Windows, replace_attention
from hsa_geo.ops.reference import reference_matrix

TEXTS = ("bert", "roberta", "xlm-roberta", "distilbert")
SEPARATOR = 7


class Builder:
    """Nodes, each with its parent; leaves first."""

    def __init__(self, leaves):
        self.parents = [None] * leaves

    def node(self, children):
        self.parents.append(None)
        for child in children:
            self.parents[child] = len(self.parents) - 1
        return len(self.parents) - 1

    def tree(self, children):
        self.node(children)
        self.parents[-1] = -1
        return SignalTree.from_parents(self.parents, keep_leaf_order=True)


def windows_tree(special, window):
    """Special tokens, and windows of windows of each run between them, under the root."""
    build, top, runs = Builder(len(special)), [], [[]]
    for place, mark in enumerate(special):
        if mark:
            top.append(place)
            runs.append([])
        else:
            runs[-1].append(place)
    runs = [run for run in runs if run]
    for run in runs:
        while len(run) > window:
            run = [build.node(run[i : i + window]) for i in range(0, len(run), window)]
        top += [build.node(run)] if len(runs) > 1 else run
    return build.tree(top)


def squares_tree(rows, columns, side):
    """A class token, and squares of squares of patches, under the root."""
    build = Builder(1 + rows * columns)
    grid = {(r, c): 1 + r * columns + c for r in range(rows) for c in range(columns)}
    while max(r for r, _ in grid) >= side or max(c for _, c in grid) >= side:
        squares = {}
        for (r, c), node in grid.items():
            squares.setdefault((r // side, c // side), []).append(node)
        grid = {place: build.node(nodes) for place, nodes in squares.items()}
    return build.tree([0, *grid.values()])


def attention(model, given):
    """Queries, keys ``[B, L, 2, D]`` and weights of the second layer."""
    seen = {"q": [], "k": []}
    hooks = [
        module.register_forward_hook(lambda m, i, o, name=name: seen[name].append(o))
        for title, module in model.named_modules()
        for name in "qk"
        if re.search({"q": r"\b(query|q_\w+)$", "k": r"\b(key|k_\w+)$"}[name], title)
    ]
    with torch.no_grad():
        weights = model(**given, output_attentions=True).attentions[1]
    for hook in hooks:
        hook.remove()
    return *(seen[name][1].unflatten(-1, (2, -1)) for name in "qk"), weights


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("tie", ["block", "key"])
@pytest.mark.parametrize("left", [False, True])
def test_texts(kind, tie, left):
    """A pair, a long text, one without words and a single token."""
    model = replace_attention(
        make(kind, "eager").double(), [1], Windows(3), tie, special_ids=[SEPARATOR]
    )
    batch = padded([14, 17, 2, 1], left)
    start = 17 - 14 if left else 0
    batch["input_ids"][0, start + 5] = SEPARATOR
    q, k, weights = attention(model, batch)
    for row, mask in enumerate(batch["attention_mask"].bool()):
        special = (batch["input_ids"][row, mask] == SEPARATOR).tolist()
        special[0] = special[-1] = True
        tree = windows_tree(special, 3)
        expected = reference_matrix(q[row, mask], k[row, mask], tree, tie=tie)
        found = weights[row][:, mask][:, :, mask]
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("tie", ["block", "key"])
def test_pictures(kind, tie):
    """Two of them; a grid that squares do not divide."""
    model = replace_attention(make(kind, "eager").double(), [1], Squares(3), tie)
    rows, columns = (8, 8) if kind == "vit" else (5, 11)
    size = (2, 3, 4 * rows, 4 * columns)
    pixels = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k, weights = attention(model, {"pixel_values": pixels})
    tree = squares_tree(rows, columns, 3)
    for row in range(2):
        expected = reference_matrix(q[row], k[row], tree, tie=tie)
        torch.testing.assert_close(weights[row], expected, rtol=1e-9, atol=1e-12)
