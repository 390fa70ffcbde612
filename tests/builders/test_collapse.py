import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.builders._collapse import collapse_chains, drop_leaves, sibling_rank


@st.composite
def trees(draw: st.DrawFn) -> np.ndarray:
    """Parents before children; node 0 is the root and has a child."""
    n = draw(st.integers(2, 40))
    return np.array([-1, *(draw(st.integers(0, k)) for k in range(n - 1))])


def some(data: st.DataObject, n: int) -> np.ndarray:
    return np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))


def inner_of(parent: np.ndarray) -> np.ndarray:
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    return inner


def leaves_below(parent: np.ndarray, inner: np.ndarray, node: int) -> set[int]:
    found = set()
    for leaf in np.flatnonzero(~inner):
        up = leaf
        while up >= 0 and up != node:
            up = parent[up]
        if up == node:
            found.add(int(leaf))
    return found


@given(trees(), st.data())
def test_every_leaf_and_branching_stays(parent: np.ndarray, data: st.DataObject) -> None:
    inner = inner_of(parent)
    pinned = inner & some(data, len(parent))
    pinned[0] = True
    drop, above = collapse_chains(parent, inner, pinned)
    assert not drop[~inner].any()
    assert not drop[pinned].any()
    kept = np.flatnonzero(~drop)
    assert not drop[above[kept[1:]]].any()
    for node in kept[inner[kept]]:
        assert leaves_below(above, inner, node) == leaves_below(parent, inner, node)
    children = np.bincount(above[kept[1:]], minlength=len(parent))
    for node in kept[inner[kept]]:
        assert children[node] > 1 or pinned[node]
        if pinned[node] and children[node] == 1:  # its only child is a leaf or pinned as well
            child = kept[above[kept] == node][0]
            assert not inner[child] or pinned[child]


def test_a_chain_of_100_000_nodes() -> None:
    n = 100_000
    parent = np.arange(-1, n - 1)
    inner = np.ones(n, dtype=bool)
    inner[-1] = False
    pinned = np.zeros(n, dtype=bool)
    pinned[0] = True
    drop, above = collapse_chains(parent, inner, pinned)
    assert np.flatnonzero(~drop).tolist() == [0, n - 1]
    assert above[-1] == 0


@given(trees(), st.data())
def test_what_is_left_with_some_leaves(parent: np.ndarray, data: st.DataObject) -> None:
    inner = inner_of(parent)
    chosen = some(data, len(parent))
    keep = drop_leaves(parent, inner, chosen)
    for node in range(len(parent)):
        below = leaves_below(parent, inner, node)
        assert keep[node] == any(chosen[leaf] for leaf in below)


@pytest.mark.parametrize(
    ("parent", "rank"),
    [([-1], [0]), ([-1, 0], [0, 0]), ([-1, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 2])],
)
def test_sibling_rank(parent: list[int], rank: list[int]) -> None:
    assert sibling_rank(np.array(parent)).tolist() == rank
