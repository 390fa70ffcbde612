from __future__ import annotations

import pytest

from hsa_geo.builders import from_html
from hsa_geo.errors import BuilderError, TruncationWarning
from hsa_geo.pages import PageReader, focus
from hsa_geo.testing.builders import assert_trees_equal

PAGE = (
    "<title>Shop</title><p>Hello you</p><p hidden>Secret</p>"
    "<form id=search hidden><input name=q></form>" + "<p>more words</p>" * 50
)


def test_whole_pages_are_as_a_person_sees_them():
    tree = PageReader()(PAGE)
    assert tree.num_leaves == from_html(PAGE).num_leaves
    assert not {"tree_name", "image_x", "leaf_kind"} & set(tree.keys())
    whole = PageReader().whole(PAGE)
    assert whole.tree_name[:3] == ["Shop", "Hello", "you"]
    PageReader().reduce(whole)
    assert "tree_name" in whole  # it is left as it is


def test_forms_are_read_though_hidden():
    tree = PageReader("form")(PAGE)
    options = {"include_hidden": True, "form_tokens": True, "images": False}
    expected = focus(from_html(PAGE, **options))
    assert tree.num_leaves == expected.num_leaves < 40
    assert tree.text_x.equal(expected.text_x)
    assert tree.form_node.numel() == 1


def test_trees_of_a_reader_batch():
    from torch_geometric.data import Batch

    for unit in ("page", "form"):
        reader = PageReader(unit)
        batch = Batch.from_data_list([reader(PAGE), reader("<p>Hi</p>")])
        assert batch.num_graphs == 2


def test_what_exceeds_a_limit_is_left_out_with_a_warning():
    with pytest.warns(TruncationWarning):
        assert PageReader()("<div>a " * 1100).num_leaves


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        ("site", {}),
        ("page", {"base": "/"}),
        ("page", {"images": 1}),
        ("page", {"hash_buckets": True}),
        ("page", {"hash_buckets": 0}),
        ("page", {"field_tokens": 2**30}),
        ("page", {"max_leaves": 5}),
        ("form", {"hash_buckets": 64}),
        ("page", ["images"]),
        ("page", {"tables": "rows"}),
        ("page", {"sets": "../etc"}),
        ("page", {"tables": "grid", "sets": "tr"}),
    ],
)
def test_what_is_refused(unit, options):
    with pytest.raises(BuilderError):
        PageReader(unit, options)


@pytest.mark.parametrize("unit", ["page", "form"])
def test_named_trees_are_those_that_the_model_reads(unit):
    reader = PageReader(unit)
    page = "<title>Shop</title>" + "<p>word here. " * 100 + "<form>Find <input name=q></form>"
    named, read = reader.named(page), reader(page)
    assert len(named.tree_name) == named.num_tree_nodes
    assert len(named.leaf_kind) == named.num_leaves
    assert named.tree_name[int(named.form_node[0])] == "form"
    control = [leaf for leaf, kind in enumerate(named.leaf_kind.tolist()) if kind == 1]
    assert [named.tree_name[leaf] for leaf in control] == ["input[text] q"]
    del named.tree_name, named.leaf_kind
    assert_trees_equal(named, read)
