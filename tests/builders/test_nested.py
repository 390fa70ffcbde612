from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.builders import (
    Graph,
    Grid,
    Leaf,
    Sequence,
    Set,
    from_html,
    from_nested,
    from_networkx,
    from_sequence,
    to_nested,
)
from hsa_geo.builders.nested import same_signal
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError, HSAError, LimitError, NotATreeError, UnsupportedError
from hsa_geo.nn import HSAConv, PositionEmbedding
from hsa_geo.testing import random_tree, trees

# A slow and clear reading of signals and trees, as nested tuples ##################################


def read(signal, pos=(0.0, 0.0), name=""):
    """(domain, position, name, children or values) of a signal; links as a set of triples."""
    pos = getattr(signal, "pos", None) or pos
    name = getattr(signal, "name", None) or name
    if isinstance(signal, (list, tuple)):
        signal = Sequence(signal)
    if isinstance(signal, dict):
        signal = Set(signal)
    if isinstance(signal, Grid):
        if isinstance(signal.rows, dict):
            kids = [(key, child, "") for key, child in signal.rows.items()]
        else:
            kids = [((r, c), v, "") for r, row in enumerate(signal.rows) for c, v in enumerate(row)]
        return ("GRID2D", pos, name, [read(v, p, n) for p, v, n in kids], set())
    if isinstance(signal, (Sequence, Set, Graph)):
        keyed = isinstance(signal.children, dict)
        pairs = signal.children.items() if keyed else [("", v) for v in signal.children]
        kids = []
        for i, (key, child) in enumerate(pairs):
            place = (float(i), 0.0) if isinstance(signal, Sequence) else (0.0, 0.0)
            if isinstance(signal, Sequence) and keyed and not isinstance(key, str):
                place, key = (float(key), 0.0), ""
            kids.append(read(child, place, str(key)))
        links = set()
        if isinstance(signal, Graph):
            for i, (a, b) in enumerate(signal.edges.tolist()):
                w = 1.0 if signal.weights is None else float(signal.weights[i])
                links |= {(a, b, w)} if signal.directed else {(a, b, w), (b, a, w)}
        return (type(signal).__name__.upper(), pos, name, kids, links)
    if not isinstance(signal, Leaf):
        signal = Leaf(signal)
    values = signal.value
    if values is None:
        values = {}
    elif not isinstance(values, dict):
        values = {signal.modality or "x": [np.atleast_1d(values)]}
    return ("LEAF", pos, name, {m: np.array(v).tolist() for m, v in values.items() if len(v)})


def read_tree(tree):
    """The same of a tree, from its tensors."""
    values = tree.to_dict()
    inside = [{} for _ in range(tree.num_leaves)]
    for key, value in values.items():
        if key == "x":
            for leaf, row in enumerate(value.tolist()):
                inside[leaf]["x"] = [row]
        elif key.endswith("_x"):
            for leaf, row in zip(values[key[:-1] + "index"].tolist(), value.tolist()):
                inside[leaf].setdefault(key[:-2], []).append(row)
    kids = {}
    for parent, child in tree.tree_index.t().tolist():
        kids.setdefault(parent, []).append(child)
    links = {}
    place = {child: i for group in kids.values() for i, child in enumerate(group)}
    above = {child: parent for parent, group in kids.items() for child in group}
    if "tree_link" in tree:
        weights = [1.0] * tree.tree_link.size(1)
        if "tree_link_weight" in tree:
            weights = tree.tree_link_weight.tolist()
        for (a, b), w in zip(tree.tree_link.t().tolist(), weights):
            links.setdefault(above[a], set()).add((place[a], place[b], w))

    def visit(node):
        pos = tuple(tree.tree_pos[node].tolist())
        name = values["tree_name"][node] if "tree_name" in values else ""
        if node < tree.num_leaves:
            return ("LEAF", pos, name, inside[node])
        domain = Domain(int(tree.tree_domain[node])).name
        return (domain, pos, name, [visit(kid) for kid in kids[node]], links.get(node, set()))

    return visit(tree.num_tree_nodes - 1)


# Strategies ######################################################################################

NUMBERS = st.integers(-(2**20), 2**20).map(lambda i: i / 8)
COORDINATES = st.integers(-64, 64).map(lambda i: i / 4)
NAMES = st.none() | st.text("ab é漢", min_size=1, max_size=3)
POSITIONS = st.none() | st.tuples(COORDINATES, COORDINATES)


@st.composite
def graphs(draw, children, label):
    n = len(children)
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    directed = draw(st.booleans())
    unique = None if directed else (lambda pair: tuple(sorted(pair)))
    edges = draw(st.lists(pairs, max_size=4, unique_by=unique))
    weights = None
    if draw(st.booleans()):
        weights = draw(st.lists(COORDINATES, min_size=len(edges), max_size=len(edges)))
    return Graph(children, edges, weights, directed, **label)


KINDS = ["sequence", "set", "graph", "grid", "holes", "list", "dict", "keyed", "placed"]


@st.composite
def containers(draw, children):
    inside = draw(st.lists(children, min_size=1, max_size=4))
    label = {"name": draw(NAMES), "pos": draw(POSITIONS)}
    kind = draw(st.sampled_from(KINDS))
    keys = draw(st.lists(st.text("kl", max_size=3), min_size=4, max_size=4, unique=True))
    if kind == "sequence":
        return Sequence(inside, **label)
    if kind == "set":
        return Set(inside, **label)
    if kind == "graph":
        return draw(graphs(inside, label))
    if kind == "grid":
        columns = draw(st.integers(1, len(inside)))
        whole = len(inside) // columns * columns
        return Grid([inside[i : i + columns] for i in range(0, whole, columns)], **label)
    if kind == "holes":
        places = draw(
            st.lists(st.tuples(COORDINATES, COORDINATES), min_size=4, max_size=4, unique=True)
        )
        return Grid(dict(zip(places, inside)), **label)
    if kind == "list":
        return inside
    if kind == "dict":
        return dict(zip(keys, inside))
    if kind == "keyed":
        return Sequence(dict(zip(keys, inside)), **label)
    times = draw(st.lists(COORDINATES, min_size=4, max_size=4, unique=True))
    return Sequence(dict(zip(times, inside)), **label)


def labelled(values, modality=None):
    return st.builds(lambda v, name, pos: Leaf(v, modality, name, pos), values, NAMES, POSITIONS)


PAIRS = st.lists(NUMBERS, min_size=2, max_size=2)
BARE = PAIRS.map(np.array) | PAIRS.map(torch.tensor) | labelled(PAIRS)
PLAIN = NUMBERS | st.integers(-9, 9) | labelled(NUMBERS) | NUMBERS.map(lambda v: np.array([v]))
MANY = st.fixed_dictionaries({}, optional={"t": st.lists(PAIRS, min_size=1, max_size=3)}).map(
    lambda rows: {m: np.array(value) for m, value in rows.items()}
)
MIXED = labelled(PAIRS, "t") | labelled(NUMBERS, "n") | labelled(st.none()) | labelled(MANY)


def signals(leaves):
    return leaves | st.recursive(containers(leaves), containers, max_leaves=12)


SIGNALS = st.one_of(signals(BARE), signals(PLAIN), signals(MIXED))

# Round trips #####################################################################################


@given(SIGNALS)
@settings(max_examples=100, deadline=None)
def test_a_signal_and_its_tree_say_the_same(signal):
    tree = from_nested(signal, dtype=torch.float64)
    assert tree.validate()
    assert read_tree(tree) == read(signal)
    again = to_nested(tree)
    assert read(again) == read(signal)
    assert same_signal(signal, again)
    assert tree_equal(from_nested(again, like=tree), tree)


@given(SIGNALS, SIGNALS)
@settings(max_examples=100, deadline=None)
def test_same_signal_is_the_slow_reading(a, b):
    assert same_signal(a, b) is (read(a) == read(b))
    assert same_signal(a, a)


def tree_equal(a, b):
    """Every attribute, bit by bit."""
    a, b = a.to_dict(), b.to_dict()
    assert a.keys() == b.keys()
    for key, value in a.items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == b[key].dtype, key
            assert value.shape == b[key].shape, key
            assert torch.equal(value.nan_to_num(1e9), b[key].nan_to_num(1e9)), key
        else:
            assert value == b[key], key
    return True


@st.composite
def furnished(draw):
    """Any valid tree with all that a signal has a place for."""
    tree = draw(trees(max_nodes=14))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n, m = tree.num_leaves, tree.num_tree_nodes
    kinds = [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]
    attrs = {}
    if rng.random() < 0.5:
        shape = ([n], [n, 3], [n, 2, 1], [n, 0])[rng.integers(4)]
        attrs["x"] = torch.from_numpy(rng.integers(0, 5, shape)).to(kinds[rng.integers(6)])
    for modality in ("text", "image"):
        if rng.random() < 0.5:
            index = np.sort(rng.integers(0, n, rng.integers(0, 2 * n)))
            shape = ([len(index)], [len(index), 3], [len(index), 2, 2])[rng.integers(3)]
            attrs[f"{modality}_index"] = torch.from_numpy(index)
            value = torch.from_numpy(rng.integers(0, 5, shape)).to(kinds[rng.integers(6)])
            attrs[f"{modality}_x"] = value
    if rng.random() < 0.5:
        tree.tree_pos = torch.from_numpy(rng.integers(0, 3, (m, 2)).astype(np.float32))
    if rng.random() < 0.5:
        attrs["tree_name"] = [str(rng.integers(3)) if rng.random() < 0.5 else "" for _ in range(m)]
    if rng.random() < 0.7:
        links = []
        for node in range(n, m):
            kids = tree.tree_index[1][tree.tree_index[0] == node].tolist()
            if tree.tree_domain[node] == Domain.GRAPH:
                links += rng.choice(kids, (rng.integers(0, 4), 2)).tolist()
                links += [[b, a] for a, b in links[-1:]] if rng.random() < 0.5 else []
        attrs["tree_link"] = torch.tensor(links, dtype=torch.int64).reshape(-1, 2).t().contiguous()
        if rng.random() < 0.5:
            attrs["tree_link_weight"] = torch.from_numpy(
                rng.integers(0, 2, len(links)).astype(np.float32)
            )
    for key, value in attrs.items():
        tree[key] = value
    return tree


@given(furnished())
@settings(max_examples=150, deadline=None)
def test_a_tree_comes_back_in_every_tensor(tree):
    tree.validate()
    links = tree.tree_link.clone() if "tree_link" in tree else None
    if links is not None:  # as from_nested orders them: parents in order
        above = torch.full((tree.num_tree_nodes,), -1)
        above[tree.tree_index[1]] = tree.tree_index[0]
        assert (above[links[0]].diff() >= 0).all()
    assert tree_equal(from_nested(to_nested(tree), like=tree), tree)


def test_links_and_rows_come_back_sorted():
    tree = SignalTree.from_parents(
        [4, 4, 5, 5, 6, 6, -1],
        domain=Domain.GRAPH,
        tree_link=torch.tensor([[4, 3, 0], [5, 2, 1]]),
        tree_link_weight=torch.tensor([3.0, 2.0, 1.0]),
        text_x=torch.tensor([[3], [1], [2]]),
        text_index=torch.tensor([3, 0, 3]),
    )
    back = from_nested(to_nested(tree), like=tree)
    assert back.tree_link.tolist() == [[0, 3, 4], [1, 2, 5]]
    assert back.tree_link_weight.tolist() == [1, 2, 3]
    assert back.text_index.tolist() == [0, 3, 3]
    assert back.text_x.tolist() == [[1], [3], [2]]


def test_undirected_graphs_stay_undirected():
    for weights in (None, [0.5, 1, 2]):
        graph = Graph([1, 2, 3], [(0, 1), (2, 2), (2, 1)], weights)
        back = to_nested(from_nested(graph))
        assert not back.directed
        assert back.edges.tolist() == graph.edges.tolist()
        assert (None if back.weights is None else back.weights.tolist()) == weights
    tree = from_nested(graph)
    assert tree.tree_link.tolist() == [[0, 2, 2, 1, 1], [1, 2, 1, 0, 2]]
    assert tree.tree_link_weight.tolist() == [0.5, 1, 2, 0.5, 2]
    both = Graph([1, 2], [(0, 1), (1, 0)], [1, 2], directed=True)
    assert to_nested(from_nested(both)).directed  # the weights differ


@pytest.mark.parametrize("seed", range(3))
def test_batches_equal_singles(seed):
    torch.manual_seed(seed)
    one, two = torch.randn(3, 4), torch.randn(2, 2, 4)
    forms = [
        Sequence([Set(list(one)), Grid(two), one[0]]),
        Leaf(one[1], name="alone"),
        Graph({"a": one[0], "b": list(one)}, [("a", "b")], weights=[2.0]),
        [[one[0]], [list(two[0]), list(one)]],
    ]
    made = [from_nested(s, names=True, links=True) for s in forms]
    for tree, back in zip(made, Batch.from_data_list(made).to_data_list()):
        assert tree_equal(tree, back)
    batch = Batch.from_data_list(made)
    assert batch.validate()
    position = PositionEmbedding(6, heads=2, domains={Domain.GRAPH: None})
    conv = HSAConv(4, 6, heads=2, position=position).eval()
    with torch.no_grad():
        together = conv(batch.x, batch)
        single = torch.cat([conv(tree.x, tree) for tree in made])
    assert torch.allclose(together, single, atol=1e-5)


# What plain Python means #########################################################################


def test_plain_python():
    assert from_nested([[1, 2], [3]]).x.tolist() == [[1], [2], [3]]
    assert from_nested([[1, 2], [3]]).tree_domain.tolist() == [-1, -1, -1, 1, 1, 1]
    assert from_nested(np.array([1, 2])).x.tolist() == [[1, 2]]
    assert from_nested(np.array([1, 2])).num_tree_nodes == 1
    assert from_nested(5).x.tolist() == [[5]]
    assert from_nested(torch.tensor(5)).x.tolist() == [[5]]
    assert from_nested(Leaf([1, 2])).x.tolist() == [[1, 2]]
    assert from_nested(Leaf([[1, 2]])).x.shape == (1, 1, 2)
    tree = from_nested({"a": [1, 2], 7: {3}})
    assert tree.tree_name == ["", "", "", "a", "7", ""]
    assert tree.tree_domain.tolist() == [-1, -1, -1, 1, 0, 0]
    assert from_nested(frozenset([1, 2])).tree_domain[-1] == Domain.SET
    assert sorted(from_nested({1, 2}).x.flatten().tolist()) == [1, 2]
    mixed = [
        1,
        2.5,
        True,
        np.float32(3),
        np.int8(4),
        Fraction(1, 2),
        Decimal("0.25"),
        torch.ones(1),
    ]
    assert from_nested(mixed).x.flatten().tolist() == [1, 2.5, 1, 3, 4, 0.5, 0.25, 1]
    assert from_nested([10**30]).x.dtype == torch.float32


def test_arrays_as_children():
    for kind in (np.asarray, torch.tensor):
        tree = from_nested(Sequence(kind([[1, 2], [3, 4], [5, 6]])))
        assert tree.x.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert tree.tree_pos.tolist() == [[0, 0], [1, 0], [2, 0], [0, 0]]
        assert from_nested(Set(kind([1, 2]))).x.tolist() == [[1], [2]]
        grid = from_nested(Grid(kind([[[1, 2], [3, 4]]])))
        assert grid.x.tolist() == [[1, 2], [3, 4]]
        assert grid.tree_pos.tolist() == [[0, 0], [0, 1], [0, 0]]
        assert from_nested(Grid(kind([[1, 2], [3, 4]]))).x.shape == (4, 1)
        both = from_nested([Sequence(kind([[1, 2]])), Grid(kind([[[3, 4]]])), kind([5, 6])])
        assert both.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    source = np.zeros((2, 1))
    from_nested(Sequence(source), dtype=None).x[:] = 1
    assert (source == 0).all()  # a copy


def test_own_names_and_positions_come_first():
    tree = from_nested({"a": Leaf(1, name="own"), "b": Leaf(2)})
    assert tree.tree_name[:2] == ["own", "b"]
    tree = from_nested(Sequence({0.5: Leaf(1, pos=(7, 8)), 2: 3}, pos=4))
    assert tree.tree_pos.tolist() == [[7, 8], [2, 0], [4, 0]]


def test_which_names_and_links():
    assert "tree_name" not in from_nested([1, 2])
    assert from_nested([1, 2], names=True).tree_name == ["", "", ""]
    assert "tree_name" not in from_nested({"a": 1}, names=False)
    assert "tree_link" not in from_nested([1, 2])
    empty = from_nested([1, 2], links=True)
    assert (empty.tree_link.shape, empty.tree_link_weight.shape) == ((2, 0), (0,))
    assert (empty.tree_link.dtype, empty.tree_link_weight.dtype) == (torch.int64, torch.float32)
    bare = from_nested(Graph([1, 2], [(0, 1)]))
    assert bare.tree_link.tolist() == [[0, 1], [1, 0]]
    assert "tree_link_weight" not in bare
    assert from_nested(Graph([1, 2], [(0, 1)]), links=True).tree_link_weight.tolist() == [1, 1]
    assert "tree_link" not in from_nested(Graph([1, 2], [(0, 1)]), links=False)
    two = from_nested([Graph([1, 2], [(1, 0)], [3], directed=True), Graph([4, 5], [(0, 0)])])
    assert two.tree_link.tolist() == [[1, 2], [0, 2]]
    assert two.tree_link_weight.tolist() == [3, 1]


# Types and modalities ############################################################################


def test_dtype():
    assert from_nested([1, 2]).x.dtype == torch.float32
    for values, kept in [
        ([1, 2], torch.int64),
        ([1, 2.5], torch.float64),
        ([True], torch.bool),
        ([np.float32(1)], torch.float32),
        ([np.zeros(1, np.uint8), np.zeros(1, np.int16)], torch.int16),
        ([np.zeros(1, ">i4")], torch.int32),
        ([np.zeros(1, np.longdouble)], torch.float64),
        ([torch.zeros(1, dtype=torch.bfloat16)], torch.bfloat16),
        ([torch.zeros(1, dtype=torch.bfloat16), np.zeros(1, np.float16)], torch.float32),
        ([torch.zeros(1), 1], torch.float32),
        ([np.zeros(1, np.uint16)], torch.uint16),
    ]:
        assert from_nested(values, dtype=None).x.dtype == kept, values
        assert from_nested(values).x.dtype == torch.float32
    assert from_nested([1.0, 2.0], dtype=torch.int8).x.dtype == torch.int8
    assert from_nested([0.1], dtype=torch.float64).x.item() == 0.1
    grad = torch.ones(2, requires_grad=True)
    assert not from_nested([grad, grad]).x.requires_grad
    assert from_nested([np.inf, -np.inf, np.nan]).x.isfinite().sum() == 0


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([1, 2.5], torch.int64, r"root\[1\] holds 2.5 as 'x', which torch.int64 cannot"),
        ([1, 300], torch.uint8, r"root\[1\] holds 300"),
        ([1, [-1]], torch.uint8, r"root\[1\]\[0\] holds -1"),
        ([float("nan")], torch.int64, "holds nan"),
        ([1e300], torch.float32, "holds 1e\\+300"),
        ([2], torch.bool, "holds 2"),
        ([1], torch.complex64, "no torch.dtype of real"),
        ([1], "float32", "no torch.dtype"),
    ],
)
def test_what_a_type_cannot_hold(values, dtype, message):
    with pytest.raises(BuilderError, match=message):
        from_nested(values, dtype=dtype)


def test_modalities():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    signal = [Leaf(5, "word"), [Leaf(pixels, "image"), Leaf(6, "word")], Leaf()]
    tree = from_nested(signal)
    assert "x" not in tree
    assert tree.word_x.tolist() == [[5], [6]]
    assert tree.word_x.dtype == torch.int64  # kept
    assert tree.word_index.tolist() == [0, 2]
    assert tree.image_x.shape == (1, 3, 2, 2)
    assert tree.image_x.dtype == torch.uint8
    assert tree.num_leaves == 4

    fixed = {"word": ((1,), torch.int64), "image": ((3, 2, 2), torch.uint8), "sound": 4}
    trees = [from_nested(s, modalities=fixed) for s in (signal, [Leaf(7, "word")], Leaf())]
    assert trees[1].image_x.shape == (0, 3, 2, 2)
    assert trees[1].sound_x.dtype == torch.float32
    batch = Batch.from_data_list(trees)
    assert batch.image_x.dtype == torch.uint8
    assert batch.word_index.tolist() == [0, 2, 4]
    assert (
        from_nested([Leaf([1, 2], "word")], modalities={"word": [2]}).word_x.dtype == torch.float32
    )
    assert from_nested([1.5], modalities={"x": 1}, dtype=torch.float64).x.dtype == torch.float64
    assert "x" not in from_nested([Leaf(), Leaf()])


def test_several_rows_at_a_leaf():
    leaf = Leaf({"x": [[1, 2]], "text": [[1], [2], [3]], "image": np.zeros((0, 9))})
    tree = from_nested([leaf, Leaf({"x": [[3, 4]]}), np.array([5, 6])])
    assert tree.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert tree.text_index.tolist() == [0, 0, 0]
    assert "image_x" not in tree
    flat = from_nested([Leaf({"x": [1.0]}), Leaf({"x": [2.0]})])
    assert flat.x.tolist() == [1, 2]
    for wrong, message in [
        (Leaf({"x": [1, 2]}), r"root\[0\], as 'x', has 2 rows"),
        (Leaf({"x": []}), "has 0 rows"),
        (Leaf({"x": [1e300]}), r"root\[0\] holds 1e\+300"),
        (Leaf({"text": 1}), "as 'text', is a number"),
        (Leaf({"text": "a"}), r"root\[0\], as 'text', is 'a'"),
    ]:
        with pytest.raises(BuilderError, match=message):
            from_nested([wrong])


@pytest.mark.parametrize(
    ("signal", "modalities", "message"),
    [
        ([1, Leaf(2, "m")], None, r"root\[1\] has no value without modality, but root\[0\] has"),
        ([1, [Leaf()]], None, r"root\[1\]\[0\] has no value without modality"),
        ([1], {}, r"root\[0\] has the modality 'x', but the tree shall have \[\]"),
        ([[Leaf(1, "m")]], {"n": 1}, r"root\[0\]\[0\] has the modality 'm'.*\['n'\]"),
        ([Leaf(1, "m")], {"m": 2}, r"root\[0\] has 'm' of shape \[1\], but modalities= .* \[2\]"),
        ([Leaf()], {"x": 2}, r"root\[0\] has no value without modality"),
        ([Leaf([1.5], "m")], {"m": (1, torch.int8)}, "'m' holds|holds 1.5 as 'm'"),
        ([1], {"x": "a"}, r"modalities\['x'\] is 'a'"),
        ([1], {"x": (1.5,)}, r"modalities\['x'\]"),
        ([1], {"x": True}, r"modalities\['x'\]"),
        ([1], {"x": -1}, r"modalities\['x'\]"),
        ([1], {"edge": 1}, "modality='edge'"),
        ([1], {"x": (1, torch.complex64)}, "complex64"),
        ([1], ["x"], "no mapping"),
        ([np.zeros(2), np.zeros(3)], None, r"root\[1\] has 'x' of shape \[3\], but root\[0\] has"),
        ([[np.zeros(2)], Sequence(np.zeros((4, 3)))], None, r"root\[1\]\[0\] has 'x'"),
        ([torch.zeros(2), 1], None, r"root\[1\] has 'x' of shape \[1\]"),
        (Sequence(np.array(["a"])), None, "root"),
    ],
)
def test_modalities_that_do_not_fit(signal, modalities, message):
    with pytest.raises(BuilderError, match=message):
        from_nested(signal, modalities=modalities)
    if modalities is not None:
        with pytest.raises(BuilderError):
            from_nested(signal, modalities=modalities, dtype=None)


def test_like():
    tree = from_nested(Graph({"a": 1, "b": 2}, [("a", "b")], [2]), dtype=torch.float64)
    other = from_nested([5], like=tree)
    assert Batch.from_data_list([tree, other]).validate()
    assert other.x.dtype == torch.float64
    plain = from_nested([1])
    for signal, message in [
        ({"a": 1}, "names.*tree_name"),
        (Graph([1, 2], [(0, 1)]), "edges.*tree_link"),
        ([Leaf([1, 2])], r"of shape \[2\]"),
        ([Leaf(1, "m")], "modality 'm'"),
    ]:
        with pytest.raises(BuilderError, match=message):
            from_nested(signal, like=plain)
    linked = from_nested(Graph([1, 2], [(0, 1)]))
    with pytest.raises(BuilderError, match="tree_link_weight"):
        from_nested(Graph([1, 2], [(0, 1)], [3]), like=linked)
    for more in ({"dtype": None}, {"names": True}, {"links": False}, {"modalities": {}}):
        with pytest.raises(BuilderError, match="give either"):
            from_nested([1], like=plain, **more)
    with pytest.raises(BuilderError, match="like is a list"):
        from_nested([1], like=[1])


# What is refused #################################################################################

WRONG = [
    ([], "root is an empty list"),
    ([1, [2, ()]], r"root\[1\]\[1\] is an empty tuple"),
    ({"a": {}}, r"root\['a'\] is an empty dict"),
    ({"a": {1: set()}}, r"root\['a'\]\[1\] is an empty set"),
    (Grid([]), "root is an empty Grid"),
    (Grid([[1, Set([])]]), r"root\[0\]\[1\] is an empty Set"),
    (Grid({(0, 5): Graph([])}), r"root\[\(0, 5\)\] is an empty Graph"),
    (Sequence(np.zeros((0, 3))), "root is an empty Sequence"),
    (Grid(np.zeros((3, 0, 3))), "root is an empty Grid"),
    ("text", "root is 'text', which is no signal"),
    ([1, None], r"root\[1\] is None, which is no signal"),
    ([1, [b"x"]], r"root\[1\]\[0\] is b'x'"),
    (object, "which is no signal"),
    ([[1], object()], r"root\[1\] is <object"),
    ((i for i in range(3)), "root is <generator"),
    ([1j], r"root\[0\] is 1j, which is no array of real numbers"),
    ([np.array([1j])], r"root\[0\] is an array complex128 \[1\]"),
    ([[1], np.array(["a"])], r"root\[1\] is an array <U1"),
    ([np.array([object()])], r"root\[0\] is an array object"),
    ([np.zeros(1, "M8[s]")], r"root\[0\]"),
    ([np.ma.masked_array([1], [True])], "masked array"),
    ([Leaf([1, "a"])], r"root\[0\] is a list of 2|root\[0\] is \[1, 'a'\]"),
    ([Leaf([[1], [1, 2]])], r"root\[0\]"),
    ([Leaf(Sequence([1]))], r"root\[0\] is Sequence\(1 child\)"),
    ([Leaf("a")], r"root\[0\] is 'a'"),
    ([torch.zeros(2).to_sparse()], r"root\[0\] is a tensor"),
    ([torch.zeros(2, device="meta")], r"root\[0\] is a tensor"),
    ([torch.zeros(2, dtype=torch.complex64)], r"root\[0\] is a tensor"),
    ([10**400], r"root\[0\] is"),
    ([Decimal("NaN"), "x"], r"root\[1\]"),
]


@pytest.mark.parametrize(("signal", "message"), WRONG)
def test_what_is_refused(signal, message):
    with pytest.raises(BuilderError, match=message):
        from_nested(signal)


def test_cycles():
    loop = [1]
    loop.append({"a": loop})
    with pytest.raises(NotATreeError, match=r"root\[1\]\['a'\] is a list that contains itself"):
        from_nested(loop)
    table = {}
    table["me"] = Sequence([table])
    with pytest.raises(NotATreeError, match=r"root\['me'\]\[0\] is a dict"):
        from_nested(table)
    shared = [1, 2]
    assert from_nested([shared, [shared, shared]]).num_leaves == 6  # no cycle


def test_limits():
    signal = [1]
    for _ in range(60):
        signal = [signal, signal]  # 2^60 leaves
    with pytest.raises(LimitError, match="more than 1000 leaves"):
        from_nested(signal, max_leaves=1000)
    assert from_nested([1, [2, 3]], max_leaves=3, max_depth=2).num_leaves == 3
    with pytest.raises(LimitError, match="more than 2 leaves"):
        from_nested([1, [2, 3]], max_leaves=2)
    with pytest.raises(LimitError, match="more than 2 leaves"):
        from_nested(Sequence(np.zeros((3, 1))), max_leaves=2)
    with pytest.raises(LimitError, match=r"root\[1\] has children at level 2, but max_depth is 1"):
        from_nested([1, [2, 3]], max_depth=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": torch.zeros(1)}, r"\['y'\]: leave them out by drop=\['y'\]"),
        ({"edge_index": torch.zeros(2, 0, dtype=torch.int64)}, "edge_index"),
        ({"box_node": torch.tensor([2]), "box_label": torch.tensor([1])}, "box_label.*box_node"),
        ({"tree_pe": torch.zeros(3, 2)}, "tree_pe"),
        ({"tree_span": torch.zeros(3, 2, dtype=torch.int64)}, "tree_span"),
        ({"leaf_weight": torch.ones(2, dtype=torch.int64)}, "leaf_weight"),
        ({"x": torch.zeros(2, 1, dtype=torch.complex64)}, "complex64"),
    ],
)
def test_what_to_nested_would_lose(change, message):
    tree = from_nested([1, 2])
    for key, value in change.items():
        tree[key] = value
    with pytest.raises(UnsupportedError, match=message):
        to_nested(tree)
    assert to_nested(tree, drop=list(change)).children[0].pos is None


def test_what_to_nested_refuses():
    tree = from_nested([1, 2])
    with pytest.raises(UnsupportedError, match="to_data_list"):
        to_nested(Batch.from_data_list([tree, tree]))
    with pytest.raises(BuilderError, match="tree is a list"):
        to_nested([1, 2])
    with pytest.raises(HSAError):
        to_nested(SignalTree())
    for domain in (Domain.SET, Domain.SEQUENCE, Domain.GRID2D):
        linked = SignalTree.from_parents(
            [2, 2, -1], domain=domain, tree_link=torch.tensor([[0], [1]])
        )
        with pytest.raises(UnsupportedError, match="nodes 0 and 1, whose parent is no GRAPH"):
            to_nested(linked)
        assert to_nested(linked, drop="tree_link")
    graph = from_nested(Graph([1, 2], [(0, 1)], [2]))
    for weight in (graph.tree_link_weight.double(), graph.tree_link_weight * torch.nan):
        graph.tree_link_weight = weight
        with pytest.raises(UnsupportedError, match="tree_link_weight"):
            to_nested(graph)
    assert to_nested(graph, drop=["tree_link_weight"]).weights is None
    odd = SignalTree.from_parents([3, 4, 3, 4, -1], keep_leaf_order=True)
    with pytest.raises(UnsupportedError, match="reading order"):
        to_nested(odd)
    assert to_nested(odd.restrict(odd.plan.leaf_order, keep_order=True))


def test_names_and_modalities_may_be_dropped():
    tree = from_nested({"a": Leaf(1, "m"), "b": Leaf(2, "n")})
    signal = to_nested(tree, drop=["tree_name", "m_x", "m_index"])
    assert signal.children[0].value is None
    assert signal.children[0].name is None
    assert signal.children[1].modality == "n"


def test_what_to_nested_gives():
    tree = from_nested(Grid([[1, 2], [3, 4]]))
    assert [[cell.value.item() for cell in row] for row in to_nested(tree).rows] == [[1, 2], [3, 4]]
    holes = to_nested(from_nested(Grid({(0, 1): 1, (2.5, 0): 2})))
    assert list(holes.rows) == [(0, 1), (2.5, 0)]
    same_place = SignalTree.from_parents([2, 2, -1], domain=Domain.GRID2D)
    assert [cell.pos for cell in to_nested(same_place).rows[0]] == [None, (0, 0)]
    values = to_nested(tree).rows[0][0].value
    values[:] = 9
    assert tree.x[0] == 1  # a copy


# Depth and size ##################################################################################


def test_5000_levels():
    def deep():
        signal = Leaf([1.0, 2.0])
        for level in range(5_000):
            kind = (Sequence, Set, lambda s: Grid([s]), list, Graph)[level % 5]
            signal = kind([signal])
        return signal

    tree = from_nested(deep())
    assert tree.depth == 5_000
    again = to_nested(tree)
    assert same_signal(again, deep())
    assert not same_signal(again, Set([deep()]))
    assert tree_equal(from_nested(again, like=tree), tree)
    assert Batch.from_data_list([tree, tree]).num_graphs == 2
    bottom = deep()
    bottom = [bottom, [[] for _ in range(1)]]
    with pytest.raises(BuilderError, match=r"root\[1\]\[0\] is an empty"):
        from_nested(bottom)
    for _ in range(5_000):
        bottom = [bottom]
    with pytest.raises(BuilderError, match=r"root(\[0\]){4} ... \(4994 levels\) ..."):
        from_nested(bottom)


def test_many_leaves_at_once():
    rng = np.random.default_rng(0)
    array = rng.random((100_000, 4)).astype(np.float32)
    rows = list(array)
    signal = [Set(rows[i : i + 8]) for i in range(0, len(rows), 8)]
    start = time.perf_counter()
    tree = from_nested(signal)
    assert time.perf_counter() - start < 5  # 0.3 s; a loop of torch calls takes longer
    assert np.array_equal(tree.x.numpy(), array)
    assert np.array_equal(from_nested(Grid(array.reshape(100, 1000, 4))).x.numpy(), array)


# Anything ########################################################################################


def typed(make):
    """What ``make`` gives, or None if it raises one of our errors, of a readable length."""
    message = ""
    try:
        return make()
    except HSAError as error:
        message = str(error)
    assert 10 < len(message) < 1000
    return None


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([np.zeros(2), np.zeros((0, 2)), torch.ones(1), np.float16(2), Ellipsis, int])
    | st.decimals()
    | st.fractions()
    | st.just(Leaf()),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.integers() | st.text(max_size=2) | st.none(), inside, max_size=3)
        | st.tuples(inside, inside)
        | st.frozensets(st.integers() | st.text(max_size=2), max_size=3)
        | inside.filter(lambda v: not isinstance(v, dict)).map(lambda v: [Leaf(v)])
        | st.builds(lambda v: Leaf({"m": v}), inside)
    ),
    max_leaves=8,
)


@given(ANYTHING, st.sampled_from([None, torch.float32, torch.int64, torch.uint8, torch.float16]))
@settings(max_examples=200, deadline=None)
def test_anything_gives_a_tree_or_a_typed_error(thing, dtype):
    tree = typed(lambda: from_nested(thing, dtype=dtype))
    if tree is None:
        return
    assert tree.validate()
    assert tree_equal(from_nested(to_nested(tree), like=tree), tree)


@given(ANYTHING)
@settings(max_examples=100, deadline=None)
def test_words_take_anything_or_raise_a_typed_error(thing):
    for make in (
        Sequence,
        Set,
        Grid,
        Graph,
        lambda v: Graph([1, 2], v),
        lambda v: Graph([1, 2], [(0, 1)], v),
        lambda v: Leaf(1, v),
        lambda v: Leaf(1, name=v),
        lambda v: Leaf(1, pos=v),
        lambda v: Set([1], pos=v),
    ):
        made = typed(lambda make=make: make(thing))
        if made is not None:
            assert len(repr(made)) < 1000
            typed(lambda made=made: from_nested(made).validate())


def test_trees_of_other_builders():
    for seed in range(20):
        tree = random_tree(seed)
        assert tree_equal(from_nested(to_nested(tree), like=tree), tree)
    graph = nx.DiGraph([("r", "a"), ("r", "b"), ("a", "c")])
    sentence = from_sequence(torch.arange(9), 2)
    page = from_html("<h1>One two</h1><ul><li>e-mail<li>four</ul><input name=mail type=text>")
    for tree, drop in [
        (from_networkx(graph), []),
        (sentence, ["tree_span"]),
        (page, ["leaf_kind", "form_node", "form_order"]),
    ]:
        back = from_nested(to_nested(tree, drop=drop), like=tree)
        for key in drop:
            back[key] = tree[key]
        assert tree_equal(back, tree)
