"""Headings that open sections: ``sectioning=True``."""

import time

import pytest
from html_cases import check, leaf_names, shape
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders import from_html


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<h1>A<p>b<p>c", ["html", "A", "b", "c"]),  # one section is the page
        ("x<h2>A</h2>b<h2>C</h2>d",
         ["html", "x", ["section[h2]", "A", "b"], ["section[h2]", "C", "d"]]),
        # Lower ranks nest, higher ones close.
        ("<h1>A</h1>b<h2>C</h2>d<h3>E</h3>f<h2>G</h2>h<h1>I</h1>j",
         ["html",
          ["section[h1]", "A", "b", ["section[h2]", "C", "d", ["section[h3]", "E", "f"]],
           ["section[h2]", "G", "h"]],
          ["section[h1]", "I", "j"]]),
        # Ranks may be left out, and may come in any order.
        ("<h1>A</h1><h4>B</h4>c<h3>D</h3>e",
         ["html", "A", ["section[h4]", "B", "c"], ["section[h3]", "D", "e"]]),
        ("<h3>A</h3>b<h2>C</h2>d",
         ["html", ["section[h3]", "A", "b"], ["section[h2]", "C", "d"]]),
        # A section ends with the element it is in.
        ("<div><h2>A</h2>b</div>c<div>d e</div>",
         ["html", ["section[h2]", "A", "b"], "c", ["div", "d", "e"]]),
        ("<div><h1>A</h1>b<div><h1>C</h1>d</div>e</div>f",
         ["html", ["section[h1]", "A", "b", ["section[h1]", "C", "d"], "e"], "f"]),
        ("<ul><li><h3>A</h3>b<li>c</ul>", ["html", ["section[h3]", "A", "b"], "c"]),
        # Inline elements are transparent, links are not.
        ("<b><h2>A</h2></b>b<i><h2>C</h2>d</i>",
         ["html", ["section[h2]", "A", "b"], ["section[h2]", "C", "d"]]),
        ("x<a><h2>A</h2>b</a>c", ["html", "x", ["section[h2]", "A", "b"], "c"]),
        # Headings that show nothing open nothing.
        ("<h2>A</h2>b<h1> </h1>c<h2 hidden>D</h2>e<h2><script>f</script></h2>g",
         ["html", "A", "b", "ce", "g"]),
        ("<h2><img alt=pic></h2>b<h2>C</h2>d",
         ["html", ["section[h2]", "pic", "b"], ["section[h2]", "C", "d"]]),
        # Content before the heading in the same element stays outside.
        ("<form>a<h2>B</h2><input name=q></form><p>c",
         ["html", ["form", "a", ["section[h2]", "B", "input[text] q"]], "c"]),
        ("<h2>A<div><h3>B</h3>c</div></h2>d",
         ["html", ["h2", "A", ["section[h3]", "B", "c"]], "d"]),
    ],
)  # fmt: skip
def test_structure(page: str, expected: list) -> None:
    tree = from_html(page, sectioning=True)
    check(tree)
    assert shape(tree) == expected


def test_without_collapsing_every_heading_has_its_section() -> None:
    tree = from_html("<h1>A</h1><h2>B</h2>c", sectioning=True, collapse=False)
    body = shape(tree)[1]
    assert body == [
        "body",
        [
            "section[h1]",
            ["h1", ["sentence", "A"]],
            ["section[h2]", ["h2", ["sentence", "B"]], ["sentence", "c"]],
        ],
    ]


def test_headings_in_the_cells_of_a_grid() -> None:
    page = "x<table><tr><td><h2>A</h2>b<td>c</table>d"
    tree = from_html(page, sectioning=True, tables="grid")
    assert shape(tree) == ["html", "x", ["table", ["section[h2]", "A", "b"], "c"], "d"]


@pytest.mark.parametrize("page", ["<h1>a</h1>b" * 20_000, "<h1>a<h2>b<h3>c<h6>d</h6>" * 10_000,
                                  "<div><h2>a</h2>" * 3_000, "<h1></h1>" * 50_000 + "a"],
                         ids=range(4))  # fmt: skip
def test_no_quadratic_time(page: str) -> None:
    start = time.perf_counter()
    from_html(page, sectioning=True, max_depth=None)
    assert time.perf_counter() - start < 8


PARTS = """<h1> </h1> <h2> </h2> <h3> </h3> <div> </div> <a> </a> <p> </p> <ul> <li> </ul> <b> </b>
<section> </section> <br> <form> </form> <input> <h2/hidden> <label> </label> <svg> </svg>"""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*PARTS.split(), "a", "b c"]), max_size=30))
def test_sections_change_no_word_and_no_order(parts: list[str]) -> None:
    page = "start " + " ".join(parts)
    tree, plain = from_html(page, sectioning=True), from_html(page)
    check(tree)
    assert leaf_names(tree) == leaf_names(plain)
    assert tree.leaf_kind.tolist() == plain.leaf_kind.tolist()
    assert tree.text_x.tolist() == plain.text_x.tolist()
    assert tree.form_order.tolist() == plain.form_order.tolist()
