from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch

from hsa_geo.builders import Graph, Grid, Leaf, Sequence, Set
from hsa_geo.builders.nested import same_signal
from hsa_geo.builders.signals import RULE
from hsa_geo.errors import BuilderError, NotATreeError

DEEP = 5_000


def test_what_is_printed():
    array = np.zeros((3, 8, 8), dtype=np.uint8)
    assert repr(Leaf(array, modality="image", pos=2)) == (
        "Leaf(uint8 [3, 8, 8], modality='image', pos=(2, 0))"
    )
    assert repr(Leaf(torch.zeros(2))) == "Leaf(float32 [2])"
    assert repr(Leaf({"x": [[1]], "text": array})) == (
        "Leaf({'x': a list of 1, 'text': uint8 [3, 8, 8]})"
    )
    assert repr(Leaf()) == "Leaf(None)"
    assert repr(Sequence([1, 2], name="page")) == "Sequence(2 children, name='page')"
    assert repr(Set(array)) == "Set(3 children)"
    assert repr(Grid([[1, 2]])) == "Grid(1 x 2)"
    assert repr(Grid(array)) == "Grid(3 x 8)"
    assert repr(Grid({(0, 0): 1})) == "Grid(1 cell)"
    assert repr(Graph([1], [(0, 0)], directed=True)) == "Graph(1 child, 1 edge, directed)"
    assert "dict" in RULE


def test_signals_are_frozen_and_compare_by_identity():
    a, b = Leaf(1.0), Leaf(1.0)
    assert a != b
    assert len({a, b, a}) == 2
    assert same_signal(a, b)
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.value = 2
    renamed = dataclasses.replace(Graph({"u": 1, "v": 2}, [("u", "v")]), name="g", edges=[])
    assert (renamed.name, len(renamed.edges)) == ("g", 0)


def test_children_of_any_iterable():
    assert Sequence(i for i in range(3)).children == (0, 1, 2)
    assert Set({5}).children == (5,)
    assert Sequence(range(2)).children == (0, 1)
    assert Grid(zip([1, 2], [3, 4])).rows == ((1, 3), (2, 4))
    assert Grid(np.array([[1, 2]])).rows.shape == (1, 2)
    assert Grid([np.array([1, 2]), torch.tensor([3, 4])]).rows[1] == (3, 4)
    children = {"a": 1}
    named = Set(children)
    children["b"] = 2
    assert list(named.children) == ["a"]  # a copy


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ([], []),
        ([(0, 2), [1, 2]], [[0, 2], [1, 2]]),
        (np.array([[2, 1]], dtype=np.int8), [[2, 1]]),
        (torch.tensor([[2, 1]]), [[2, 1]]),
        (np.zeros((0, 2)), []),
        (((a, b) for a, b in [(1, 0)]), [[1, 0]]),
    ],
)
def test_edges(edges, found):
    graph = Graph([1, 2, 3], edges)
    assert graph.edges.tolist() == found
    assert graph.edges.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        graph.edges[:] = 0


def test_edges_by_key():
    graph = Graph({(0, 1): 1, "b": 2, 7: 3}, [(7, (0, 1)), ("b", 7)], weights=[0.5, 2])
    assert graph.edges.tolist() == [[2, 0], [1, 2]]
    assert graph.weights.tolist() == [0.5, 2.0]
    assert Graph([1, 2], [(0, 1), (0, 1), (1, 0)], directed=True).edges.shape == (3, 2)


WRONG = [
    (lambda: Leaf(1, "edge"), "modality='edge' would be mistaken"),
    (lambda: Leaf(1, "tree_top"), "modality='tree_top' would be mistaken"),
    (lambda: Leaf(1, "my image"), "modality='my image' is no name"),
    (lambda: Leaf(1, 3), "modality=3 is no name"),
    (lambda: Leaf({"x": [1]}, "image"), "beside a mapping"),
    (lambda: Leaf({"a b": [1]}), "modality='a b' is no name"),
    (lambda: Leaf(1, name=3), "name=3 is no string"),
    (lambda: Leaf(1, pos=float("nan")), "position nan is not one or two finite"),
    (lambda: Leaf(1, pos=(1, 2, 3)), r"position \(1, 2, 3\)"),
    (lambda: Leaf(1, pos="a"), "position 'a'"),
    (lambda: Leaf(1, pos=1e39), "position 1e\\+39"),
    (lambda: Leaf(1, pos=10**400), "position"),
    (lambda: Leaf(1, pos=1j), "position 1j"),
    (lambda: Leaf(1, pos=[]), r"position \[\]"),
    (lambda: Leaf(1, pos=[[1], [1, 2]]), "position a list of 2"),
    (lambda: Leaf(1, pos=torch.zeros(1, dtype=torch.complex64)), "position"),
    (lambda: Sequence("ab"), "Sequence has 'ab' for children"),
    (lambda: Set(5), "Set has 5 for children"),
    (lambda: Set(Leaf(1)), r"Set has Leaf\(1\) for children"),
    (lambda: Graph(np.array(3.0)), r"Graph has the array float64 \[\]"),
    (lambda: Sequence({1: 2, "a": 3}), "keys of a Sequence are"),
    (lambda: Sequence({(1, 2, 3): 2}), r"position \(1, 2, 3\)"),
    (lambda: Grid("ab"), "Grid has 'ab' for rows"),
    (lambda: Grid(3), "Grid has 3 for rows"),
    (lambda: Grid([1, 2]), "row 0 of a Grid is 1"),
    (lambda: Grid([[1], "a"]), "row 1 of a Grid is 'a'"),
    (lambda: Grid([[1], [1, 2]]), "row 1 of a Grid has 2 cells, but row 0 has 1"),
    (lambda: Grid(np.zeros(3)), r"Grid has the array float64 \[3\]"),
    (lambda: Grid({1: 2}), "position 1 is not two"),
    (lambda: Graph([1, 2], [(0, 2)]), r"edge \(0, 2\) .* 0..1"),
    (lambda: Graph([1, 2], [(-1, 0)]), r"edge \(-1, 0\)"),
    (lambda: Graph([1, 2], [(0, 1), (1, 0)]), r"edge \(1, 0\) .* twice"),
    (lambda: Graph([1, 2], [(0, 0), (0, 0)]), r"edge \(0, 0\) .* twice"),
    (lambda: Graph([1, 2], [(0, 0.5)]), "no pairs of indices"),
    (lambda: Graph([1, 2], [(0, 1, 2)]), r"edge \(0, 1, 2\) .* no pair"),
    (lambda: Graph([1, 2], [(0, "a")]), "no pairs of indices"),
    (lambda: Graph([1, 2], [(0, [1])]), "no pairs of indices"),
    (lambda: Graph([1, 2], 3), "edges=3 of a Graph is no list"),
    (lambda: Graph([1, 2], np.zeros((2, 1), int)), "no pairs of indices"),
    (lambda: Graph({"a": 1}, [("a", "b")]), r"edge \('a', 'b'\)"),
    (lambda: Graph({"a": 1}, [("a", [])]), "joins no two"),
    (lambda: Graph({"a": 1}, [(0, 0)]), "joins no two"),
    (lambda: Graph([1, 2], [(0, 1)], weights=[1, 2]), r"shape \[2\] for 1 edge"),
    (lambda: Graph([1, 2], [(0, 1)], weights="a"), "weights='a'"),
    (lambda: Graph([1, 2], [(0, 1)], weights=["a"]), "are no numbers"),
    (lambda: Graph([1, 2], [(0, 1)], weights=[[1], [1, 2]]), "are no numbers"),
    (lambda: Graph([1, 2], [(0, 1)], weights=[1e39]), "weight 0 of a Graph is inf"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_refused(make, message):
    with pytest.raises(BuilderError, match=message):
        make()


# Copies, pickles and depth #######################################################################


def deep(levels=DEEP):
    """Every kind of container, plain ones too, around each other."""
    signal = Leaf(np.ones(1), name="end")
    for level in range(levels):
        signal = [
            lambda s: Sequence([s, 2.0], name="s", pos=3),
            lambda s: Set({"a": s}),
            lambda s: Grid([[s, 1], [2, 3]]),
            lambda s: Graph([s, 3], [(0, 1)], weights=[0.5]),
            lambda s: [s],
            lambda s: Grid({(0, 2): s}),
            lambda s: {"k": s},
            lambda s: (Leaf(4), s),
            lambda s: Sequence({"name": s}),
        ][level % 9](signal)
    return Sequence([signal])


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), copy.copy]
)
@pytest.mark.parametrize("levels", [0, 3, 20, DEEP])
def test_copies_are_the_same(again, levels):
    signal = deep(levels)
    other = again(signal)
    assert same_signal(signal, other)
    assert repr(other) == repr(signal)
    assert hash(signal) == hash(signal)
    assert (signal == other) is (signal is other)
    del signal
    del other


def test_copies_keep_what_is_shared_and_are_deep():
    leaf, array = Leaf(np.zeros(2)), np.zeros(2)
    part = Sequence([leaf, array, array])
    signal = Set([part, part, (part, 1), frozenset([leaf, 2])])
    for other in (copy.deepcopy(signal), pickle.loads(pickle.dumps(signal))):
        first = other.children[0]
        assert other.children[1] is first
        assert other.children[2][0] is first
        assert first.children[1] is first.children[2]
        first.children[1][:] = 1
    assert array.tolist() == [0, 0]
    assert copy.copy(signal) is signal
    twice = copy.deepcopy([part, part])
    assert twice[0] is twice[1]


def test_fields_survive_a_pickle():
    signals = [
        Leaf([1, 2], "text", "n", (1, 2)),
        Leaf({"x": np.ones((1, 2))}),
        Sequence({0.5: 1, 2: [Leaf(2)]}, "n", 4),
        Grid({(1, 2): 3}, "g"),
        Grid(np.ones((2, 2)), pos=1),
        Graph({"u": 1, "v": 2}, [("u", "v")], [3], True, "g", (1, 1)),
        Set(torch.ones(2, 3)),
    ]
    for signal in signals:
        other = pickle.loads(pickle.dumps(signal))
        assert type(other) is type(signal)
        for field in dataclasses.fields(signal):
            a, b = getattr(signal, field.name), getattr(other, field.name)
            assert type(a) is type(b)
            assert repr(a) == repr(b)
        assert same_signal(signal, other)


def test_a_cycle_cannot_be_copied():
    loop = [1]
    signal = Sequence([Set([2]), loop])
    loop.append(loop)
    for again in (copy.deepcopy, pickle.dumps):
        with pytest.raises(NotATreeError, match="list contains itself"):
            again(signal)
