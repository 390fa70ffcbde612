from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.builders import from_sequence, to_nested
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, HSAError
from hsa_geo.nn import HSAConv


def slow(n, windows):
    """Parents and spans by a loop: a list of (start, end, indices of what is below) a level."""
    level = [(i, i + 1) for i in range(n)]
    spans, parents = list(level), []
    repeated = isinstance(windows, int)
    entries = [windows] * 64 if repeated else list(windows)
    for entry in [*entries, None]:
        if len(level) == 1:
            break
        if entry is None:
            groups = [level]
        elif isinstance(entry, int):
            groups = [level[i : i + entry] for i in range(0, len(level), entry)]
        else:
            groups = [
                [node for node in level if a <= node[0] < b] for a, b in itertools.pairwise(entry)
            ]
        base = len(spans)
        parents += [base + i for i, group in enumerate(groups) for _ in group]
        level = [(group[0][0], group[-1][1]) for group in groups]
        spans += level
    return [*parents, -1], spans


@st.composite
def lengths_and_windows(draw):
    n = draw(st.integers(1, 40))
    if draw(st.booleans()):
        return n, draw(st.integers(2, 45))
    out, bounds = [], list(range(n + 1))
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            size = draw(st.integers(2, 9))
            bounds = [*bounds[:-1][::size], n]
            out.append(size)
        else:
            inner = bounds[1:-1]
            kept = draw(st.sets(st.sampled_from(inner))) if inner else set()
            bounds = [0, *sorted(kept), n]
            form = draw(st.sampled_from([list, tuple, np.array, torch.tensor]))
            out.append(form(bounds))
    return n, draw(st.sampled_from([list, tuple]))(out)


@given(lengths_and_windows())
@settings(max_examples=150, deadline=None)
def test_the_tree_of_the_slow_loop(drawn):
    n, windows = drawn
    x = torch.arange(n * 2.0).reshape(n, 2)
    tree = from_sequence(x, windows)
    plain = windows
    if not isinstance(windows, int):
        plain = [w if isinstance(w, int) else np.asarray(w).tolist() for w in windows]
    parents, spans = slow(n, plain)
    assert tree.validate()
    made = SignalTree.from_parents(
        parents, domain=Domain.SEQUENCE, pos=ranks(parents), tree_span=torch.tensor(spans), x=x
    )
    assert set(made.keys()) == set(tree.keys())
    for key, value in made.to_dict().items():
        same = torch.equal(value, tree[key]) if isinstance(value, torch.Tensor) else False
        assert same or (key == "num_nodes" and value == tree[key]), key
    for node, (start, end) in enumerate(tree.tree_span.tolist()):
        below = [node]
        while max(below) >= n:
            below = [
                leaf
                for v in below
                for leaf in ([v] if v < n else tree.tree_index[1][tree.tree_index[0] == v].tolist())
            ]
        assert below == list(range(start, end))  # the leaves below, in reading order
    again = to_nested(tree, drop=["tree_span"])
    assert repr(again)


def ranks(parents):
    seen = {}
    out = []
    for parent in parents[:-1]:
        out.append(float(seen.get(parent, 0)))
        seen[parent] = seen.get(parent, 0) + 1
    return [*out, 0.0]


def test_what_the_docs_say():
    assert from_sequence(torch.zeros(64, 1), (4, 16)).depth == 2  # one bigger window is the root
    assert from_sequence(torch.zeros(65, 1), (4, 16)).depth == 3
    assert from_sequence(torch.zeros(5, 1), []).depth == 1
    assert from_sequence(torch.zeros(264, 1), 4).depth == 5
    for windows in (4, (4, 2), [], [[0, 1]], [[0, 1], 3, [0, 1]]):
        one = from_sequence(torch.ones(1, 3), windows)
        assert one.num_tree_nodes == 1
        assert one.tree_span.tolist() == [[0, 1]]
        assert one.validate()
    assert from_sequence(torch.zeros(3, 1), 10**30).depth == 1
    assert from_sequence(torch.zeros(9, 1), np.array([3, 3])).depth == 2
    assert from_sequence(torch.zeros(9, 1), torch.tensor([3, 3])).depth == 2
    assert from_sequence(torch.zeros(9, 1), np.int64(3)).depth == 2


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16, torch.bool]
)
def test_features_are_kept_and_not_copied(dtype):
    x = torch.ones(10, 3).to(dtype)
    tree = from_sequence(x, 4)
    assert tree.x is x
    view = x[1:9:2, :2]
    assert from_sequence(view, 4).x.data_ptr() == view.data_ptr()


def test_arrays_and_lists():
    array = np.arange(12, dtype=np.int16).reshape(6, 2)
    tree = from_sequence(array, 2)
    assert tree.x.dtype == torch.int16
    array[0, 0] = 99
    assert tree.x[0, 0] == 99  # shared
    assert from_sequence(array[::-1], 2).x.tolist() == array[::-1].tolist()
    frozen = array.copy()
    frozen.flags.writeable = False
    assert from_sequence(frozen, 2).x.tolist() == array.tolist()
    assert from_sequence(array.astype(">i2"), 2).x.tolist() == array.tolist()
    assert from_sequence(np.broadcast_to(array[:1], (4, 2)), 2).x.shape == (4, 2)
    record = np.zeros(4, dtype=[("a", "u1"), ("b", "<f4")])
    assert from_sequence(record["b"], 2).x.tolist() == [0, 0, 0, 0]
    assert from_sequence([0.5, 1], 2).x.dtype == torch.float32
    assert from_sequence([[1, 2], [3, 4]], 2).x.dtype == torch.int64
    assert from_sequence(torch.arange(5), 2).x.shape == (5,)  # tokens
    assert from_sequence(torch.zeros(5, 3, 4, 4), 2).x.shape == (5, 3, 4, 4)  # frames


def test_gradients_go_through():
    x = torch.ones(6, 2, requires_grad=True)
    tree = from_sequence(x, 2)
    HSAConv(2, 2)(tree.x, tree).sum().backward()
    assert x.grad is not None


def test_batches_equal_singles():
    torch.manual_seed(0)
    trees = [
        from_sequence(torch.randn(n, 4), w) for n, w in [(1, 4), (7, 2), (30, (4, 2)), (5, [])]
    ]
    batch = Batch.from_data_list(trees)
    assert batch.validate()
    for tree, back in zip(trees, batch.to_data_list()):
        for key, value in tree.to_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(back[key])), key
    conv = HSAConv(4, 4, heads=2).eval()
    with torch.no_grad():
        single = torch.cat([conv(tree.x, tree) for tree in trees])
        assert torch.allclose(conv(batch.x, batch), single, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "windows", "message"),
    [
        (torch.zeros(0, 3), 4, r"x has the shape \[0, 3\]"),
        (torch.tensor(1.0), 4, r"x has the shape \[\]"),
        (3, 4, r"x has the shape \[\]"),
        ([], 4, r"x has the shape \[0\]"),
        ("text", 4, "x is 'text'"),
        (None, 4, "x is None"),
        ([[1], [1, 2]], 4, "x is a list of 2"),
        (np.array(["a"]), 4, "x is an array <U1"),
        (np.array([1j]), 4, "x is an array complex128"),
        (torch.zeros(2, dtype=torch.complex64), 4, "x is an array complex64"),
        (torch.zeros(2, 2).to_sparse(), 4, "give a dense tensor"),
        (torch.zeros(2, 2, device="meta"), 4, "give a dense tensor"),
        (9, 1, "shape"),
        ([[1], [1e300]], 4, "step 1 holds 1e\\+300 as 'x'"),
    ],
)
def test_features_that_are_none(x, windows, message):
    with pytest.raises(BuilderError, match=message):
        from_sequence(x, windows)


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (1, "windows=1: a window has at least 2"),
        (0, "windows=0"),
        (-4, "windows=-4"),
        (True, "windows=True: give an integer, or a list"),
        (2.5, "windows=2.5: give an integer"),
        (None, "windows=None: give"),
        ("44", "windows='44'"),
        ({2: 3}, "windows={2: 3}"),
        (np.zeros(()), "windows=an array"),
        ((4, 1), r"windows\[1\]=1: a window has at least 2"),
        ((4, 2.5), r"windows\[1\] is 2.5: give an integer"),
        ((4, None), r"windows\[1\] is None"),
        ((4, True), r"windows\[1\] is True"),
        ((4, "a"), r"windows\[1\] is 'a'"),
        (([[0], [0, 10]],), r"windows\[0\] is a list of 2"),
        (([0],), r"windows\[0\] is \[0\]"),
        (([],), r"windows\[0\] is \[\]"),
        (([0.0, 10.0],), r"windows\[0\] is \[0.0, 10.0\]"),
        (([1, 10],), r"windows\[0\] goes from 1 to 10, but the sequence from 0 to 10"),
        (([0, 5],), r"windows\[0\] goes from 0 to 5"),
        (([0, 5, 20],), r"windows\[0\] goes from 0 to 20"),
        (([0, 10**30],), r"windows\[0\]"),
        (([0, 5, 5, 10],), r"windows\[0\] has the boundary 5 behind 5"),
        (([0, 7, 3, 10],), r"windows\[0\] has the boundary 3 behind 7"),
        (([0, -3, 10],), r"windows\[0\] has the boundary -3 behind 0"),
        (([0, 20, 10],), r"windows\[0\] has the boundary 10 behind 20"),
        (([0, 4, 10], [0, 5, 10]), r"windows\[1\] has the boundary 5 inside of a window"),
        ((4, [0, 6, 10]), r"windows\[1\] has the boundary 6 inside"),
        (([0, 10], [0, 5, 10]), r"windows\[1\] has the boundary 5 inside"),
        (([0, 10], 0), r"windows\[1\]=0"),
        (torch.zeros(2, 2), "windows=an array"),
    ],
)
def test_windows_that_are_none(windows, message):
    with pytest.raises(BuilderError, match=message):
        from_sequence(torch.zeros(10, 1), windows)


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=2) | st.booleans(),
        lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.integers(), inside),
        max_leaves=8,
    ),
    st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
@example(thing=2**63, n=1)
def test_anything_gives_a_tree_or_a_typed_error(thing, n):
    for x, windows in [(torch.zeros(n, 1), thing), (thing, 2)]:
        try:
            tree = from_sequence(x, windows)
        except HSAError:
            continue
        assert tree.validate()


def test_a_million_steps():
    x = torch.zeros(1_000_000, 8)
    tree = from_sequence(x, 4)
    assert tree.x is x
    assert tree.num_tree_nodes == 1_333_337
