from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from hsa_geo.builders import from_networkx
from hsa_geo.builders._graph_attrs import numbers, points, shown, sorted_by, text_of
from hsa_geo.errors import BuilderError, HSAError


class Mute:
    """Something that cannot be printed."""

    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([1.5], dtype=torch.bfloat16), [1.5]),
        (torch.tensor([1.5], requires_grad=True), [1.5]),
        (np.array([1, 2], dtype=">i4"), [1, 2]),
        (np.longdouble(0.5), 0.5),
        (np.uint64(7), 7),
        (True, True),
        (range(3), [0, 1, 2]),
    ],
)
def test_what_is_a_number_or_an_array(value, expected):
    array = numbers(value)
    assert array.tolist() == expected
    assert torch.from_numpy(np.stack([array])).tolist() == [expected]


@pytest.mark.parametrize(
    "value",
    [
        *[None, "1", b"1", 1j, [[1], [1, 2]], [1, "a"], {}, 10**400, object()],
        *[np.datetime64("now"), torch.eye(2).to_sparse(), torch.tensor([1j])],
        [torch.ones(2), torch.ones(3)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_none(value):
    assert numbers(value) is None
    graph = nx.DiGraph([("r", "a")])
    graph.nodes["a"]["v"] = value
    for options in ({"x": "v"}, {"pos": "v"}, {"x": ["v"]}):
        with pytest.raises(BuilderError, match="node 'a' has 'v' = "):
            from_networkx(graph, **options)
        with pytest.raises(BuilderError, match="node 'a' has 'v' = "):
            from_networkx(graph, hierarchy=["a", ["r"]], **options, order=None)


def test_what_cannot_be_printed():
    assert shown(Mute()) == "<Mute>"
    assert text_of(Mute()) == "<Mute>"
    assert text_of(10**5000) == "<int>"
    assert len(shown("a" * 10**6)) < 300
    mute, huge = Mute(), 10**5000
    graph = nx.DiGraph([(mute, huge)])
    assert from_networkx(graph).tree_name == ["<int>", "<Mute>"]
    assert from_networkx(graph, hierarchy=[huge, mute]).tree_name[:2] == ["<int>", "<Mute>"]
    graph.add_edge(huge, mute)
    with pytest.raises(BuilderError, match="<Mute>"):
        from_networkx(graph)
    with pytest.raises(BuilderError, match="<int>"):
        from_networkx(graph, hierarchy=[mute])


def test_positions_of_mixed_sizes():
    attrs = {0: {"p": 1}, 1: {"p": [2]}, 2: {"p": np.array([3, 4])}, 3: {"p": torch.tensor([5, 6])}}
    assert points(attrs, [0, 1, 2, 3], "p").tolist() == [[1, 0], [2, 0], [3, 4], [5, 6]]
    assert points(attrs, [], "p").shape == (0, 2)
    for odd in (1e39, -float("inf"), [0, float("nan")]):
        attrs[2]["p"] = odd
        with pytest.raises(BuilderError, match="node 2 has the position"):
            points(attrs, [0, 1, 2, 3], "p")


def test_sorting_is_stable_and_says_what_it_cannot_compare():
    attrs = {v: {"k": k} for v, k in zip("abcd", [2, 1, 2, 1])}
    assert sorted_by(attrs, list("abcd"), "k") == ["b", "d", "a", "c"]
    for odd in (float("nan"), None, "x", np.zeros(2), 1j):
        attrs["c"]["k"] = odd
        with pytest.raises(BuilderError, match=r"siblings 'a', \.\.\. have values of 'k'"):
            sorted_by(attrs, list("abcd"), "k")


SPARSE, NAN = torch.eye(2).to_sparse(), float("nan")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "odd", "hierarchy": "louvain"}, "cannot be compared"),
        ({"order": "odd"}, "cannot be compared"),
        ({"hierarchy": ("odd",)}, "by which nothing can be grouped"),
        ({"root": NAN}, "root=nan has a parent, 'r'"),
        ({"root": 10**5000}, "root=<int> has a parent, 'r'"),
        ({"x": np.array(None)}, "no attribute"),
        ({"x": 10**5000}, "no attribute <int>"),
        ({"hierarchy": (10**5000,)}, "no attribute <int>"),
        ({"hierarchy": "louvain", "weight": 10**5000}, "no attribute <int>"),
        ({"hierarchy": "louvain", "resolutions": 10**5000}, "resolutions=<int>"),
        ({"hierarchy": "louvain", "resolutions": Mute()}, "resolutions=<Mute>"),
        ({"hierarchy": "louvain", "seed": Mute()}, "seed=<Mute>"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("odd", [SPARSE, torch.tensor([]), np.zeros(2), torch.eye(2)])
def test_what_fuzzing_has_found(options, message, odd):
    graph = nx.DiGraph([("r", NAN), ("r", 10**5000), ("r", np.float32(2)), ("r", (1,))])
    for node in graph:
        graph.nodes[node]["odd"] = odd
    with pytest.raises(HSAError, match=message):
        from_networkx(graph, **options)


def test_labels_that_cannot_be_compared_make_trees():
    class Label:
        def __eq__(self, other):
            raise RuntimeError("compared")

        __hash__ = object.__hash__

    root, *rest = (Label() for _ in range(4))
    graph = nx.star_graph([root, *rest])
    assert from_networkx(graph, root=root).num_nodes == 3
    assert from_networkx(graph, hierarchy=[rest, root]).num_nodes == 4
