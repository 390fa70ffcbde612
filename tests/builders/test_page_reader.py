"""Options of the page builder: sets, all options together, what is refused."""

from collections import Counter

import pytest
import torch
from html_cases import FRAGMENTS, check, leaf_names, shape
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch

from hsa_geo.builders import from_html
from hsa_geo.data import Domain, SignalTree
from hsa_geo.errors import BuilderError
from hsa_geo.nn import HSAConv


def sets_of(tree: SignalTree) -> Counter:
    """Names of the nodes whose children are a set."""
    nodes = (tree.tree_domain == Domain.SET).nonzero().flatten().tolist()
    return Counter(tree.tree_name[node] for node in nodes)


@pytest.mark.parametrize(
    ("page", "sets", "expected"),
    [
        ("x<ul><li>a b<li>c</ul><ol><li>d<li>e</ol>", "ul", ["ul"]),
        ("x<ul><li>a b<li>c</ul><ol><li>d<li>e</ol>", ["ul", "ol"], ["ul", "ol"]),
        ("x<ul><li>a b<li>c</ul>", (), []),
        # A line of links is a set, words of its own have an order.
        ("x<nav><a>a b</a> | <a>c</a></nav>", ("nav",), ["nav"]),
        ("x<nav>You are here: <a>a b</a> <a>c</a></nav>", ("nav",), []),
        ("x<nav><p>p q</p><a>a</a><a>b</a></nav>", ("nav",), ["nav", "sentence"]),
        ("x<nav><ul><li>a<li>b</ul></nav>", ("nav",), []),  # the list is what is left of it
        ("x<nav><ul><li>a<li>b</ul></nav>", ("ul",), ["ul"]),
        # A node that takes over its child's children takes over how they lie.
        ("<ul><li>a<li>b</ul>", "ul", ["html"]),
        ("x<form><ul><li>a<li>b</ul></form>", "ul", ["form"]),
        ("x<form><p>a b</form>", "form", []),
        ("<title>t</title><div><div>a b</div><div>c</div></div>", "boxes", ["html", "div"]),
        ("<div>a b<div>c</div></div>", "boxes", []),
        ("<div><p>a b<p>c</div>", ["boxes", "ul"], ["html"]),
        # Not the word, the element.
        ("x y<p>nav ul</p>", ["nav", "ul"], []),
    ],
)
def test_sets(page: str, sets: object, expected: list) -> None:
    tree = from_html(page, sets=sets)
    check(tree)
    assert sets_of(tree) == Counter(expected)
    assert shape(tree) == shape(from_html(page))
    parent, child = tree.tree_index
    unordered = child[tree.tree_domain[parent] == Domain.SET]
    assert not tree.tree_pos[unordered].any()


def test_images_and_controls_in_boxes_are_no_words() -> None:
    page = "x<div><img alt='a b'><input name=q><button>Go</button></div>"
    assert sets_of(from_html(page, sets="div")) == Counter(["div"])


OPTIONS = st.fixed_dictionaries(
    {
        "tables": st.sampled_from(["sequence", "grid"]),
        "sectioning": st.booleans(),
        "sets": st.sets(st.sampled_from(["boxes", "nav", "ul", "p", "li", "td"]), max_size=3),
        "collapse": st.booleans(),
        "include_hidden": st.booleans(),
        "form_tokens": st.booleans(),
    }
)
PARTS = """<nav> </nav> <ul> </ul> <h1> </h1> <h2> </h2> <td/colspan=2> <td/rowspan=0> <th>
<tfoot> <caption> </caption> </a> <a/href=x> </tr> <aside> </div>"""
MARKUP = st.lists(st.one_of(FRAGMENTS, st.sampled_from(PARTS.split()), st.text("ab. ", max_size=4)))


def tokens(tree: SignalTree) -> Counter:
    """Leaves by kind and tokens, whatever their order."""
    rows: list[list] = [[kind] for kind in tree.leaf_kind.tolist()]
    for row, token in zip(tree.text_index.tolist(), tree.text_x.tolist()):
        rows[row].append(tuple(token))
    return Counter(tuple(row) for row in rows)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(MARKUP, OPTIONS), min_size=1, max_size=3))
def test_any_markup_with_any_options(pages: list) -> None:
    trees = []
    for parts, options in pages:
        page = "start " + " ".join(parts)
        tree = from_html(page, **options)
        if options["collapse"]:
            check(tree)
        tree.validate()
        same = {key: options[key] for key in ("include_hidden", "form_tokens", "collapse")}
        plain = from_html(page, **same)
        assert tokens(tree) == tokens(plain)
        if options["tables"] == "sequence":
            assert leaf_names(tree) == leaf_names(plain)
        trees.append(tree)
    for tree, back in zip(trees, Batch.from_data_list(trees).to_data_list()):
        assert set(tree.keys()) == set(back.keys())
        for key in tree.keys():  # noqa: SIM118
            same = tree[key] == back[key]
            assert bool(same.all() if isinstance(same, torch.Tensor) else same), key


def test_attention_on_a_batch_equals_one_by_one() -> None:
    pages = [
        "<h1>A</h1><table><tr><td>b c<td>d<tr><td>e</table><h2>F</h2>g h",
        "x<nav><a>a b</a> <a>c</a></nav><div><div>d e</div><p>f</div>",
        "one word",
    ]
    trees = [from_html(p, tables="grid", sets="boxes", sectioning=True) for p in pages]
    torch.manual_seed(0)
    conv = HSAConv(8, 8, heads=2)
    x = [torch.randn(tree.num_leaves, 8) for tree in trees]
    batched = conv(torch.cat(x), Batch.from_data_list(trees))
    alone = torch.cat([conv(one, tree) for one, tree in zip(x, trees)])
    torch.testing.assert_close(batched, alone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": "rows"}, "tables='rows' is neither"),
        ({"tables": None}, "tables=None is neither"),
        ({"sets": "span"}, "names 'span', which is no element with a node"),
        ({"sets": ["nav", 3]}, "names 3, which"),
        ({"sets": [["nav"]]}, r"names \['nav'\], which"),
        ({"sets": b"nav"}, "names 110, which"),
        ({"sets": 5}, "sets=5 is no tag"),
        ({"sets": "tr", "tables": "grid"}, "names 'tr', but tables=\"grid\" puts"),
        ({"patch_size": None}, "patch_size=None is no integer"),
        ({"max_leaves": "many"}, "max_leaves='many' is no integer"),
        ({"base": 3}, "base=3 is not a folder"),
        ({"base": "a\0b"}, "is not a folder"),
    ],
)
def test_what_is_refused(options: dict, message: str) -> None:
    with pytest.raises(BuilderError, match=message):
        from_html("a", **options)
