"""What is kept of a page that is cut down to its forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.builders import Field, from_html
from hsa_geo.builders.html import LeafKind
from hsa_geo.builders.tokens import HASH_BUCKETS, hash_token
from hsa_geo.data import SignalTree
from hsa_geo.pages import focus
from hsa_geo.pages.focus import NOT_NEEDED
from hsa_geo.pages.reading import FORM_OPTIONS


def kept(html: str, **limits: int) -> tuple[SignalTree, list[str]]:
    """A page cut down, and the names of the leaves that it keeps."""
    tree = from_html(html, **FORM_OPTIONS)
    tree.row = torch.arange(tree.num_leaves)
    small = focus(tree, **limits)
    return small, [tree.tree_name[i] for i in small.row.tolist()]


def words(stem: str, count: int) -> str:
    return " ".join(f"{stem}{i}" for i in range(count))


def names(stem: str, count: int) -> list[str]:
    return [f"{stem}{i}" for i in range(count)]


def fields(stem: str, count: int) -> str:
    return "".join(f"<input name={stem}{i}>" for i in range(count))


def field_names(stem: str, count: int) -> list[str]:
    return [f"input[text] {stem}{i}" for i in range(count)]


def test_a_form_and_what_is_around_it():
    page = (
        f"<title>Shop of old books</title><p>{words('nav', 20)}</p>"
        f"<form>{words('w', 3)} <input name=q></form><p>{words('tail', 20)}</p>"
    )
    _, found = kept(page, before=2, headings=3)
    assert found == ["Shop", "of", "old", "nav18", "nav19", *names("w", 3), "input[text] q"]


@pytest.mark.parametrize(
    ("controls", "count", "keeps"),
    [
        (3, 4, (3, 4)),  # all of it
        (3, 20, (3, 7)),  # up to ten
        (7, 20, (7, 5)),  # half as many words at least
        (20, 20, (10, 5)),
        (20, 2, (10, 2)),
        (0, 20, (0, 10)),
    ],
)
def test_controls_first_then_words(controls, count, keeps):
    page = f"<p>Hi</p><form>{words('w', count)} {fields('c', controls)}</form>"
    _, found = kept(page, per_form=10, before=0)
    assert found == names("w", keeps[1]) + field_names("c", keeps[0])


def test_headings_share_their_words():
    page = (
        f"<title>{words('t', 4)}</title><h1>{words('h', 4)}</h1><p>{words('p', 9)}</p>"
        f"<h2>{words('i', 4)}</h2><h3>{words('j', 4)}</h3><form><input name=q></form>"
    )
    _, found = kept(page, headings=10, before=0)
    assert found == names("t", 4) + names("h", 4) + names("i", 2) + ["input[text] q"]
    _, found = kept(page, headings=0, before=0)
    assert found == ["input[text] q"]


def test_a_heading_of_one_word_counts():
    # from_html keeps no node for it, but its word knows the tag
    _, found = kept("<h1>Login</h1><p>far away</p><p>x</p><form><input name=q></form>", before=0)
    assert found == ["Login", "input[text] q"]


def test_a_page_without_a_form():
    page = f"<p>{words('w', 100)}</p><h2>{words('h', 5)}</h2><p>{words('v', 9)}</p>"
    small, found = kept(page)
    assert found == names("w", 32) + names("h", 5)
    assert small.form_node.tolist() == []


def test_a_page_of_very_many_forms_is_bounded():
    form = f"<form>{words('w', 40)}{fields('c', 10)}</form>"
    small, found = kept(f"<p>{words('p', 9)}</p>{form * 30}", most=200)
    assert len(small.form_node) == 30
    assert len(found) <= 200
    assert len(found) >= 100  # not cut more than by halves
    single = from_html("<form><input name=q></form>" * 300, **FORM_OPTIONS)
    assert focus(single).num_leaves == 300  # each keeps a leaf, whatever that adds up to


@pytest.mark.parametrize(
    "page",
    [
        "word",
        "<p>.</p>word",
        "<form><input></form>",
        "<form>word</form>",
        "<form><input type=hidden name=h></form>word",
        "<form></form><form></form>word",
        "<title>word</title>",
        "<h1>two words</h1>",
        "<img alt=''>",
        "<div hidden><form hidden><input></form></div>",
        "<table><form><tr><td><input></td></tr></form></table>",
        "<table><form><tr><td><form><input></form></td></tr></form></table>",
        "<iframe></iframe>",
    ],
)
@pytest.mark.parametrize("limits", [{}, {"per_form": 1, "before": 0, "headings": 0}])
def test_never_an_empty_tree(page, limits):
    whole = from_html(page, **FORM_OPTIONS)
    small, found = kept(page, **limits)
    assert len(found) == small.num_leaves >= 1
    assert len(small.form_node) == len(whole.form_node)
    assert small.form_order.tolist() == whole.form_order.tolist()
    small.validate()


def test_what_the_model_does_not_need_is_gone():
    whole = from_html("<p>Hi you</p><form>Find <input name=q></form>", **FORM_OPTIONS)
    before = set(whole.keys())
    small = focus(whole)
    assert not set(NOT_NEEDED) & set(small.keys())
    assert set(whole.keys()) == before  # the page itself is left alone
    batch = Batch.from_data_list([small, focus(from_html("<p>Hi</p>", **FORM_OPTIONS))])
    assert batch.num_graphs == 2


def leaves_below(tree: SignalTree, node: int) -> list[int]:
    parent = dict(zip(tree.tree_index[1].tolist(), tree.tree_index[0].tolist()))
    found = []
    for leaf in range(tree.num_leaves):
        at = leaf
        while at != node and at in parent:
            at = parent[at]
        found += [leaf] if at == node else []
    return found


def kept_by_hand(tree: SignalTree, per_form=48, before=8, headings=32, most=256) -> set[int]:
    """The docstring of ``focus``, one leaf at a time."""
    control = (tree.leaf_kind == LeafKind.CONTROL).tolist()
    forms = [leaves_below(tree, node) for node in tree.form_node.tolist()]
    tags = {hash_token(t, HASH_BUCKETS) for t in ("title", "h1", "h2", "h3", "h4")}
    tags |= {hash_token(t, HASH_BUCKETS) for t in ("legend", "caption")}
    tokens = zip(tree.text_x.tolist(), tree.text_index.tolist())
    titles = sorted({leaf for (token, f), leaf in tokens if f == Field.TAG and token in tags})
    while True:
        out: set[int] = set()
        for form in forms:
            fields = [i for i in form if control[i]][:per_form]
            others = [i for i in form if not control[i]]
            room = max(per_form - len(fields), -(-per_form // 2))
            out |= {*fields, *others[:room], *range(max(0, form[0] - before), form[0])}
        out |= set(titles[:headings])
        if not forms:
            out |= set(range(min(32, tree.num_leaves)))
        if len(out) <= most or per_form == 1:
            return out
        per_form, before = max(1, per_form // 2), before // 2


def random_page(seed: int) -> str:
    rng = np.random.default_rng(seed)
    parts = [f"<title>{words('t', int(rng.integers(0, 9)))}</title>"]
    for k in range(int(rng.integers(1, 14))):
        what = rng.choice(["p", "h1", "h3", "form", "form"])
        n, m = (int(i) for i in rng.integers(1, 60, 2))
        inside = words(f"a{k}x", n) + (fields(f"c{k}x", m) if what == "form" else "")
        parts.append(f"<{what}>{inside}</{what}>")
    return "<div>".join(parts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("limits", [{}, {"per_form": 7, "before": 3, "headings": 5, "most": 20}])
def test_random_pages_by_hand(seed, limits):
    page = random_page(seed)
    small, _ = kept(page, **limits)
    expected = kept_by_hand(from_html(page, **FORM_OPTIONS), **limits)
    assert set(small.row.tolist()) == expected


@pytest.mark.download
def test_real_pages_keep_their_forms(form_pages_dataset):
    chosen = list(range(0, len(form_pages_dataset), 40))
    for i in chosen:
        whole = form_pages_dataset[i]
        whole.row = torch.arange(whole.num_leaves)
        small = focus(whole)
        assert small.num_leaves >= 1
        assert torch.equal(small.form_label, whole.form_label)
        assert len(small.form_node) == len(whole.form_node)
        if whole.num_leaves < 3000:
            assert set(small.row.tolist()) == kept_by_hand(whole)
