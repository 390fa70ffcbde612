"""Strategies of sources: the builders take what they draw, and they reach what matters."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from hsa_geo.builders import (
    Graph,
    Grid,
    from_html,
    from_image,
    from_nested,
    from_networkx,
    from_text,
)
from hsa_geo.testing import (
    assert_builds_or_refuses,
    assert_valid_builder,
    html_pages,
    image_arrays,
    nested_signals,
    networkx_graphs,
    texts,
)

quick = settings(max_examples=25, deadline=None, derandomize=True)
thorough = settings(max_examples=1000, deadline=None, derandomize=True, database=None)
reaching = settings(thorough, phases=[Phase.generate])


@quick
@given(st.lists(nested_signals(width=3), min_size=1, max_size=3))
def test_signals(sources):
    trees = assert_valid_builder(lambda s: from_nested(s, names=True, links=True), sources)
    assert all(tree.x.size(1) == 3 for tree in trees)


@quick
@given(st.lists(networkx_graphs(), min_size=1, max_size=2))
def test_graphs(sources):
    def build(graph):
        return from_networkx(graph, hierarchy="louvain", x="f", pos="p", weight="w")

    assert_valid_builder(build, sources)


@quick
@given(st.lists(networkx_graphs(rooted=True), min_size=1, max_size=3))
def test_rooted_graphs(sources):
    trees = assert_valid_builder(lambda graph: from_networkx(graph, x="f"), sources)
    for tree, graph in zip(trees, sources):
        assert tree.num_tree_nodes == len(graph)


@quick
@given(st.lists(texts(readable=True), min_size=1, max_size=3))
def test_texts(sources):
    assert_valid_builder(from_text, sources)


@quick
@given(st.lists(image_arrays(), min_size=1, max_size=3))
def test_images(sources):
    assert_valid_builder(lambda image: from_image(image, patch_size=4), sources)


@quick
@given(st.lists(html_pages(), min_size=1, max_size=3))
def test_pages(sources):
    assert_valid_builder(from_html, sources)


@quick
@given(texts(), html_pages(visible=False))
def test_anything_may_be_refused(text, page):
    assert_builds_or_refuses(lambda: from_text(text))
    assert_builds_or_refuses(lambda: from_html(page))


def test_they_shrink_to_little():
    assert find(texts(), lambda _: True, settings=thorough) == ""
    assert find(html_pages(), lambda _: True, settings=thorough) == "<p>word</p>"
    assert find(image_arrays(), lambda _: True, settings=thorough).shape == (1, 1)
    assert len(find(networkx_graphs(), lambda _: True, settings=thorough)) == 1
    leaf = find(nested_signals(), lambda _: True, settings=thorough)
    assert np.array_equal(leaf, [0, 0])


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (texts(), lambda text: any("\ud800" <= c <= "\udfff" for c in text)),
        (texts(), lambda text: "\n\n" in text or "。" in text),
        (html_pages(), lambda page: "<table>" in page and "</select><" in page),
        (image_arrays(), lambda image: image.ndim == 3 and image.shape[2] == 2),
        (image_arrays(), lambda image: image.dtype == np.float16 and image.max() > 0),
        (networkx_graphs(), lambda graph: graph.is_multigraph() and nx.number_of_selfloops(graph)),
        (networkx_graphs(), lambda graph: any(nx.isolates(graph)) and graph.size() > 3),
        (networkx_graphs(rooted=True), lambda graph: nx.dag_longest_path_length(graph) > 3),
        (nested_signals(), lambda signal: isinstance(signal, Graph) and signal.weights is not None),
        (
            nested_signals(),
            lambda signal: isinstance(signal, Grid) and isinstance(signal.rows, dict),
        ),
        (nested_signals(), lambda signal: from_nested(signal).depth >= 4),
    ],
)
def test_they_reach(strategy, wanted):
    assert wanted(find(strategy, lambda found: bool(wanted(found)), settings=reaching))


def test_trees_of_signals_differ():
    signals = []

    @settings(max_examples=300, derandomize=True, database=None)
    @given(nested_signals())
    def collect(signal):
        signals.append(signal)

    collect()
    kinds = {tuple(from_nested(s).tree_index.flatten().tolist()) for s in signals}
    assert len(kinds) > 5
    assert torch.cat([from_nested(s).x for s in signals]).unique().numel() > 10
