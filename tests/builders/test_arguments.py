"""Arguments of the builders: whatever is given, a typed error.  Most rows were found by fuzzing."""

# ruff: noqa: SIM905
from __future__ import annotations

import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from hsa_geo.builders import Leaf, from_html, from_image, from_nested, from_networkx, from_text
from hsa_geo.builders._arguments import check_choice, check_flags, check_size, shown, text_of
from hsa_geo.errors import BuilderError, HSAError, UnsupportedError
from hsa_geo.testing import assert_builds_or_refuses

HUGE = 10**5000  # has no text
ARRAY = np.zeros(3)  # has no truth value
TENSOR = torch.zeros(2)
PIXELS = np.zeros((8, 8), dtype=np.uint8)


class Nameless:
    def __repr__(self):
        raise RuntimeError("no name")


def graph():
    made = nx.path_graph(4)
    nx.set_node_attributes(made, {0: 1, 1: np.float32(1), 2: 10**300, 3: 2}, "b")
    nx.set_edge_attributes(made, 1.0, True)
    return made


def test_shown():
    assert shown("a", 10) == "'a'"
    assert shown("a" * 99, 10) == "'aaaaaaaaa..."
    assert (shown(HUGE), shown(Nameless()), text_of(HUGE)) == ("<int>", "<Nameless>", "<int>")


def test_flags_choices_and_sizes():
    check_flags(a=True, b=0, c=np.bool_(True), d=None)
    with pytest.raises(BuilderError, match=r"^b=array.* is neither True nor False\.$"):
        check_flags(a=True, b=ARRAY)
    check_choice("how", "a", ("a", "b", "c"))
    for value in ("d", 1, ARRAY, ["a"], None):
        with pytest.raises(BuilderError, match=r'^how=.* is neither "a", "b" nor "c"\.$'):
            check_choice("how", value, ("a", "b", "c"))
    check_size("side", 1)
    check_size("side", np.int64(7), least=7, most=7)
    for value, says in ((1.0, "no integer"), (ARRAY, "no integer"), (0, "leaves nothing")):
        with pytest.raises(BuilderError, match=f"^side=.*{says}"):
            check_size("side", value)
    with pytest.raises(BuilderError, match=r"^side=<int> is out of range"):
        check_size("side", HUGE)


FLAGS = "images form_tokens include_hidden sectioning collapse names"
SIZES = "patch_size max_side hash_buckets field_tokens max_bytes max_nesting max_depth max_leaves"
ODD = (ARRAY, TENSOR, -HUGE, Nameless(), 1.5, "\ud800", b"x", [1], {}, {"a": 1}, np.zeros(0))


@pytest.mark.parametrize("name", [*FLAGS.split(), *SIZES.split(), "tables", "sets", "on_limit"])
def test_odd_options_of_pages(name):
    for value in (*ODD, HUGE):
        assert_builds_or_refuses(lambda value=value: from_html("<h1>a b", **{name: value}))


@pytest.mark.parametrize("name", ["charset", "base"])
def test_odd_options_of_bytes(name):
    for value in (*ODD, HUGE, "a\0", Path("a\0"), 3, 3j):
        with pytest.raises(HSAError, match=name):
            from_html(b"<p>a", **{name: value})


def test_paths_that_are_none():
    for path in (Path("a\0b"), Path("\ud800")):
        with pytest.raises(BuilderError, match="is no path of a file"):
            from_html(path)


def test_patches_have_a_size():
    with pytest.raises(BuilderError, match="patch_size=100000 is out of range: give at most 4096"):
        from_html("<p>a", patch_size=100_000)
    with pytest.raises(BuilderError, match="hash_buckets=100000000000000000000 is out of range"):
        from_html("<p>a", hash_buckets=10**20)


@pytest.mark.parametrize(
    "name", "patch_size hierarchy window split_above max_side frame names max_pixels".split()
)
def test_odd_options_of_pictures(name):
    for value in (*ODD, HUGE, (HUGE, 1), [HUGE], (ARRAY, 2)):
        options = {"hierarchy": "windows"} if name == "window" else {}
        assert_builds_or_refuses(
            lambda value=value, o=options: from_image(PIXELS, **{**o, name: value})
        )


def test_a_variance_larger_than_all():
    tree = from_image(PIXELS, patch_size=2, split_above=HUGE)
    assert tree.num_leaves == 1


@pytest.mark.parametrize(
    "name",
    "sentences paragraphs tokenizer language punctuation special_tokens max_group hash_buckets "
    "names max_leaves on_limit".split(),
)
def test_odd_options_of_texts(name):
    for value in (*ODD, HUGE):
        assert_builds_or_refuses(lambda value=value: from_text("a b. C", **{name: value}))
    with pytest.raises(UnsupportedError, match="special_tokens=True needs"):
        from_text("a", special_tokens=1)


@pytest.mark.parametrize(
    "name",
    "root x pos domain name order weight resolutions seed max_group dtype return_labels "
    "hierarchy".split(),
)
def test_odd_options_of_graphs(name):
    for value in (*ODD, HUGE):
        for hierarchy in ("louvain", None):
            options = {"hierarchy": hierarchy, "root": None if hierarchy else 0, name: value}

            def build(options=options):
                made = from_networkx(graph(), **options)
                return made[0] if isinstance(made, tuple) else made

            assert_builds_or_refuses(build)


def test_partitions_whose_errors_have_no_text():
    def fails(part):
        raise KeyError(Nameless())

    def strings(part):
        return ["a" * 5]

    with pytest.raises(BuilderError, match="failed on a group of 4 nodes with node 0: KeyError"):
        from_networkx(graph(), hierarchy=fails)
    with pytest.raises(BuilderError, match="'aaaaa' as a group"):
        from_networkx(graph(), hierarchy=strings)


def test_weights_by_the_name_of_a_flag():
    tree = from_networkx(graph(), hierarchy=[[0, 1], [2, 3]], weight=True)
    assert tree.edge_weight.tolist() == [1.0] * 6
    with pytest.raises(BuilderError, match="no attribute False"):
        from_networkx(graph(), hierarchy=[[0, 1], [2, 3]], weight=False)


def test_values_that_overflow_when_compared():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = from_networkx(graph(), hierarchy=[[0, 1], [2, 3]], order="b")
        assert tree.tree_name[:4] == ["0", "1", "3", "2"]
        grouped = from_networkx(graph(), hierarchy=("b",))
    assert grouped.tree_index[0].unique().numel() == 4  # the root, 1 (twice), 1e300, 2


@pytest.mark.parametrize("name", "modalities dtype names links like max_leaves max_depth".split())
def test_odd_options_of_signals(name):
    for value in (*ODD, HUGE):
        assert_builds_or_refuses(lambda value=value: from_nested([1, [2, 3]], **{name: value}))


def test_signals_that_numpy_warns_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BuilderError, match=r"root\[0\] is .* no array of real numbers"):
            from_nested([Leaf([np.ma.masked, 1.0])])
    tree = from_nested({HUGE: 1, "a": 2})
    assert tree.tree_name[:2] == ["<int>", "a"]


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32, torch.uint64])
def test_types_that_have_no_common_one(kind):
    with pytest.raises(BuilderError, match="'x' have no common type"):
        from_nested([torch.ones(1, dtype=kind), torch.ones(1, dtype=torch.int64)])
