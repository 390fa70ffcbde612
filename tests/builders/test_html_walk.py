import pytest
import torch
from html_cases import leaf_names, shape

from hsa_geo.builders import LeafKind, form_fields, from_html, parse_html
from hsa_geo.builders.html import form_elements
from hsa_geo.data import Domain


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("word", ["html", "word"]),
        ("<title>My Page</title><p>a b", ["html", ["title", "My", "Page"], ["p", "a", "b"]]),
        ("<p>One. Two three.", ["html", "One", ["sentence", "Two", "three"]]),
        ("<p>a b<p>c d", ["html", ["p", "a", "b"], ["p", "c", "d"]]),
        ("<p>a b<br>c d", ["html", ["sentence", "a", "b"], ["sentence", "c", "d"]]),
        ("a b<div>c d</div>e f", ["html", ["sentence", "a", "b"], ["div", "c", "d"],
                                  ["sentence", "e", "f"]]),
        ("<p><b>H</b>ello <i>wor</i>ld", ["html", "Hello", "world"]),
        ("<p>go <a href=x>over here</a> now", ["html", "go", ["a", "over", "here"], "now"]),
        ("<p>go <a href=x>here</a> now", ["html", "go", "here", "now"]),
        ("x<a><div>a b</div><div>c d</div></a>", ["html", "x", ["a", ["div", "a", "b"],
                                                               ["div", "c", "d"]]]),
        ("<ul><li>a b<li>c<li></ul>", ["html", ["li", "a", "b"], "c"]),
        ("<div><div><h1>a b</h1></div></div>c", ["html", ["h1", "a", "b"], "c"]),
        ("<form><p><input name=q></form>x y", ["html", ["form", "input[text] q"],
                                              ["sentence", "x", "y"]]),
        ("<form><div><p>a b<p>c d</div></form>", ["html", ["form", ["p", "a", "b"],
                                                         ["p", "c", "d"]]]),
        ("<span><div>a b</div></span><my-tag>c d</my-tag>", ["html", ["div", "a", "b"],
                                                           ["sentence", "c", "d"]]),
        ("<table><tr><td>a b<td>c</table>d", ["html", ["tr", ["td", "a", "b"], "c"], "d"]),
        ("<dl><dt>t u<dd>d e", ["html", ["dt", "t", "u"], ["dd", "d", "e"]]),
        ("<pre>a\n  b</pre>", ["html", "a", "b"]),
        ("<frameset><frame title='the menu'><frame></frameset>", ["html", "the menu", "frame"]),
        ("東京 a", ["html", "東", "京", "a"]),
    ],
)  # fmt: skip
def test_structure(markup: str, expected: list) -> None:
    assert shape(from_html(markup)) == expected


def test_without_collapsing() -> None:
    tree = from_html("<div><div><p>a</div></div>", collapse=False)
    assert shape(tree) == ["html", ["body", ["div", ["div", ["p", ["sentence", "a"]]]]]]


@pytest.mark.parametrize(
    "trace",
    [
        "<script>secret</script>",
        "<script type=text/template><p>secret</p></script>",
        "<style>secret {}</style>",
        "<noscript>secret <p>secret</p><form><input name=secret></form></noscript>",
        "<template>secret<p>secret</template>",
        "<!-- secret -->",
        "<![CDATA[ secret ]]>",
        "<p hidden>secret</p>",
        "<p hidden=until-found>secret <b>secret</b></p>",
        "<p style='display:none'>secret</p>",
        "<p style='color:red;DISPLAY : None !important'>secret</p>",
        "<p style='visibility:hidden'>secret</p>",
        "<div style='display:none'><form><input name=secret></form></div>",
        "<input hidden name=secret value=secret>",
        "<input type=hidden name=secret value=secret>",
        "<input type=HIDDEN name=secret value=secret>",
        "<dialog>secret</dialog>",
        "<datalist><option>secret</datalist>",
        "<iframe width=0 title=secret>secret</iframe>",
        "<noembed>secret</noembed><noframes>secret</noframes>",
        "<img src=x alt=secret width=1 height=1>",
        "<img src=x alt=secret width=0>",
        "<audio title=secret>secret</audio>",
        "<svg style='display:none'><text>secret</svg>",
        "<math><annotation>secret</annotation></math>",
        "<ruby><rp>secret</rp></ruby>",
        "<button>shown<script>secret</script><b hidden>secret</b></button>",
        "<select><option>shown<option hidden>secret</select>",
    ],
)
@pytest.mark.parametrize("where", ["<p>a {} b", "<head>{}<title>a</title><body>b", "{}<p>a b"])
def test_what_is_not_displayed_leaves_no_trace(trace: str, where: str) -> None:
    from hsa_geo.builders.tokens import hash_token

    tree = from_html(where.format(trace))
    assert "secret" not in " ".join(tree.tree_name)
    assert hash_token("secret") not in tree.text_x[:, 0]
    assert {"a", "b"} <= set(leaf_names(tree))


def test_hidden_parts_on_request() -> None:
    page = "<p hidden>a</p><p style='display:none'>b</p><dialog>c</dialog><input type=hidden>d"
    assert leaf_names(from_html(page, include_hidden=True)) == ["a", "b", "c", "d"]
    assert leaf_names(from_html(page)) == ["d"]


def test_a_hidden_body_is_walked() -> None:
    assert leaf_names(from_html("<body style='display:none'>a")) == ["a"]


@pytest.mark.parametrize("word", ["displaynone", "none", "hidden"])
def test_styles_that_hide_nothing(word: str) -> None:
    page = f"<p style='border-style:none; list-style: {word}; overflow: hidden'>a"
    assert leaf_names(from_html(page)) == ["a"]


def test_title_counts_once_and_a_drawing_has_its_own() -> None:
    tree = from_html("<title>a</title><title>b</title><svg><title>c</title></svg>")
    assert leaf_names(tree) == ["a"]
    assert leaf_names(tree, LeafKind.IMAGE) == ["c"]


def test_positions_are_indices_among_siblings() -> None:
    tree = from_html("<p>a b <a>c d</a> e</p><p>f g</p>")
    parent, child = tree.tree_index
    for node in parent.unique():
        mine = tree.tree_pos[child[parent == node]]
        assert mine[:, 0].tolist() == list(range(len(mine)))
        assert not mine[:, 1].any()
    inner = tree.tree_domain[tree.num_leaves :]
    assert (inner == Domain.SEQUENCE).all()
    assert (tree.tree_domain[: tree.num_leaves] == -1).all()


def test_forms_have_nodes_and_ordinals() -> None:
    page = """<form name=empty></form><div><form><input name=a></form></div>
        <form hidden><input name=h></form><form><p>words only</form>"""
    tree = from_html(page)
    assert tree.form_order.tolist() == [1, 3]
    assert [tree.tree_name[n] for n in tree.form_node.tolist()] == ["form", "form"]
    assert form_fields(parse_html(page)) == [[], ["a"], ["h"], []]
    assert from_html(page, include_hidden=True).form_order.tolist() == [1, 2, 3]


def test_forms_without_any() -> None:
    tree = from_html("a")
    assert tree.form_node.dtype == tree.form_order.dtype == torch.int64
    assert tree.form_node.shape == tree.form_order.shape == (0,)


def test_forms_in_tables_are_stood_for_by_the_row_or_table() -> None:
    page = """<table><tr><form><td><input name=a><td><input name=b></form></tr>
        <tr><form><td>x y<td><input name=c></form><form></form></tr></table>
        <table><form><tr><td><input name=d></td></tr></form></table>"""
    tree = from_html(page)
    order = dict(zip(tree.form_order.tolist(), tree.form_node.tolist()))
    assert sorted(order) == [0, 1, 3]
    assert [tree.tree_name[order[k]] for k in (0, 1, 3)] == ["tr", "tr", "table"]
    parser = parse_html(page)
    assert form_fields(parser) == [["a", "b"], ["c"], [], ["d"]]
    assert [e.tag for e in form_elements(parser)] == ["tr", "tr", "form", "table"]


def test_a_form_in_a_form_is_one_form() -> None:
    tree = from_html("<form><input name=a><form><input name=b></form>")
    assert tree.form_order.tolist() == [0]


def test_nothing_is_lost_around_unclosed_and_misnested_tags() -> None:
    page = "<b><p>one<i>two</b>three</i><table><td>four</table><p>five<ul><li>six</p>seven"
    words = leaf_names(from_html(page))
    assert sorted(words) == sorted(["onetwothree", "four", "five", "six", "seven"])


def test_two_pages_do_not_share_unknown_tags() -> None:
    for k in range(3):
        tree = from_html(f"<x-{k}>a</x-{k}><y-{k}><p>b</p></y-{k}>")
        assert leaf_names(tree) == ["a", "b"]
