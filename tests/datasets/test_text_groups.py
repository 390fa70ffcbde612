"""Groups of texts: chains of shared keys."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.datasets.text_groups import linked_groups, same_text

KEYS = st.lists(
    st.tuples(st.none() | st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=20
)


@given(pairs=KEYS)
def test_groups_are_connected_components(pairs):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(pairs)))
    for column in (a, b):
        for i, x in enumerate(column):
            graph.add_edges_from((i, j) for j in range(i) if x is not None and x == column[j])
    groups = linked_groups([a, b])
    sets = {frozenset(i for i, g in enumerate(groups) if g == k) for k in set(groups)}
    assert sets == set(map(frozenset, nx.connected_components(graph)))
    # Numbered by first appearance.
    assert list(dict.fromkeys(groups)) == list(range(len(set(groups))))


def test_a_long_chain_is_no_recursion():
    n = 50_000
    assert set(linked_groups([[i // 2 for i in range(n)], [(i + 1) // 2 for i in range(n)]])) == {0}


def test_same_text():
    assert same_text("Größe: 5 cm!") == same_text("größe 7 CM") == "größe cm"
    assert same_text("12 34") is None
    assert same_text("one two", least=3) is None
