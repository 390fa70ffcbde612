"""Tables as grids: ``tables="grid"``."""

import time
from collections import Counter

import pytest
import torch
from html_cases import check, leaf_names, shape
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.builders import from_html
from hsa_geo.builders._html_tables import _span
from hsa_geo.data import Domain, SignalTree


def grid(page: str, **options) -> SignalTree:
    tree = from_html(page, tables="grid", **options)
    check(tree)
    return tree


def places(tree: SignalTree) -> dict[str, tuple[int, int]]:
    """Where the children of grids stand, by the first word in them."""
    first = torch.arange(tree.num_tree_nodes)
    for parent, child in tree.tree_index.t().tolist():  # children before, by level and order
        if parent >= tree.num_leaves and first[parent] == parent:
            first[parent] = child
    for node in range(tree.num_leaves, tree.num_tree_nodes):
        first[node] = first[first[node]]
    parent, child = tree.tree_index
    on_grid = child[tree.tree_domain[parent] == Domain.GRID2D]
    pos = tree.tree_pos[on_grid].long().tolist()
    return {
        tree.tree_name[int(first[node])]: (row, column)
        for node, (row, column) in zip(on_grid.tolist(), pos)
    }


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("<tr><td>a<td>b<tr><td>c<td>d", {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1)}),
        ("<tr><td colspan=2>a<td>b<tr><td>c<td>d<td>e",
         {"a": (0, 0), "b": (0, 2), "c": (1, 0), "d": (1, 1), "e": (1, 2)}),
        ("<tr><td rowspan=2>a<td>b<tr><td>c", {"a": (0, 0), "b": (0, 1), "c": (1, 1)}),
        ("<tr><td>a<td rowspan=2 colspan=2>b<td>c<tr><td>d<td>e",
         {"a": (0, 0), "b": (0, 1), "c": (0, 3), "d": (1, 0), "e": (1, 3)}),
        ("<tr><td rowspan=0>a<td>b<tr><td>c<tr><td>d",
         {"a": (0, 0), "b": (0, 1), "c": (1, 1), "d": (2, 1)}),
        # A span ends with its group of rows.
        ("<tbody><tr><td rowspan=9>a<td>b<tbody><tr><td>c",
         {"a": (0, 0), "b": (0, 1), "c": (1, 0)}),
        # The foot stands last, the head where it is.
        ("<thead><tr><th>a<th>b<tfoot><tr><td>z<td>y<tbody><tr><td>c<td>d",
         {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1), "z": (2, 0), "y": (2, 1)}),
        # Empty cells and rows keep their place, hidden rows have none.
        ("<tr><td>a<td><td>b<tr><tr hidden><td>x<tr><td>c",
         {"a": (0, 0), "b": (0, 2), "c": (2, 0)}),
        ("<tr><td colspan=-1>a<td colspan=0>b<td colspan=x>c<td colspan='1001'>d<td>e",
         {"a": (0, 0), "b": (0, 1), "c": (0, 2), "d": (0, 3), "e": (0, 1003)}),
        ("<td>a<td>b<tr><th>c</table></td>", {"a": (0, 0), "b": (0, 1), "c": (1, 0)}),
        # A cell that covers more than is free lies over others, as in browsers.
        ("<tr><td>a<td rowspan=2>b<tr><td colspan=2>c<td>d",
         {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 2)}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("collapse", [True, False])
def test_where_cells_stand(table: str, expected: dict, collapse: bool) -> None:
    page = f"<table>{table}</table>"
    assert places(from_html(page, tables="grid", collapse=collapse)) == expected


def reference(rows: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Forming a table slot by slot; the columns are few, so overlaps count too."""
    taken: set[tuple[int, int]] = set()
    out = []
    for row, cells in enumerate(rows):
        column = 0
        for width, height in cells:
            while (row, column) in taken:
                column += 1
            out.append((row, column))
            last = row + height if height else len(rows)
            taken |= {(r, c) for r in range(row, last) for c in range(column, column + width)}
            column += width
    return out


SPANS = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=4), max_size=5)


@settings(max_examples=150, deadline=None)
@given(SPANS)
def test_cells_stand_as_the_standard_says(rows: list) -> None:
    number, parts = 0, []
    for cells in rows:
        parts.append("<tr>")
        for width, height in cells:
            parts.append(f"<td colspan={width} rowspan={height}>w{number} x</td>")
            number += 1
    # A cell beside the table, so that the table is never alone, and one behind in it.
    tree = from_html(f"<p>p q</p><table>{''.join(parts)}<tr></table>", tables="grid")
    expected = reference([*rows, []])
    if number > 1:
        assert places(tree) == {f"w{k}": place for k, place in enumerate(expected)}
    else:
        assert places(tree) == {}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("x<table><tr><td>a<td>b c</table>", ["html", "x", ["table", "a", ["td", "b", "c"]]]),
        ("x<table><caption>t u</caption><tr><td>a<td>b</table>",
         ["html", "x", ["table", ["caption", "t", "u"], ["cells", "a", "b"]]]),
        # One cell is no table.
        ("x<table><tr><td>a b</table>", ["html", "x", ["td", "a", "b"]]),
        ("x<table><tr><td></table>", ["html", "x"]),
        ("<table><tr><td>a<td><p>b</p><p>c</p></table>", ["html", "a", ["td", "b", "c"]]),
        ("x<table><tr><td>a<td><table><tr><th>b<th>c</table><tr><td>d</table>",
         ["html", "x", ["table", "a", ["table", "b", "c"], "d"]]),
        # What is misplaced goes before the table, as in browsers.
        ("<table>m n<tr>o<td>a<td>b</table>",
         ["html", ["sentence", "m", "no"], ["table", "a", "b"]]),
        ("x<form><table><tr><td>a<td>b</table></form>", ["html", "x", ["form", "a", "b"]]),
    ],
)  # fmt: skip
def test_structure(page: str, expected: list) -> None:
    assert shape(grid(page)) == expected


def test_grids_within_grids() -> None:
    tree = grid("x<table><tr><td>a<td><table><tr><th>b<th>c</table><tr><td>d</table>")
    for name, place in {"a": [0, 0], "b": [0, 0], "c": [0, 1], "d": [1, 0]}.items():
        assert tree.tree_pos[tree.tree_name.index(name)].tolist() == place
    inner = tree.tree_domain[tree.num_leaves :]
    assert (inner == Domain.GRID2D).sum() == 2
    outer = [n for n in range(tree.num_leaves, tree.num_tree_nodes) if tree.tree_name[n] == "table"]
    assert tree.tree_pos[outer[0]].tolist() == [0, 1]  # the table in a cell stands in its place


def test_a_form_takes_over_the_grid_of_its_only_table() -> None:
    tree = grid("x<form><table><tr><td>a<td>b<tr><td>c</table></form>")
    assert tree.tree_domain[tree.form_node].tolist() == [Domain.GRID2D]
    assert places(tree) == {"a": (0, 0), "b": (0, 1), "c": (1, 0)}


def test_forms_in_a_grid() -> None:
    page = """x<table><tr><form id=one><td><input name=a><td><input name=b></form></tr>
        <tr><form id=two><td>x y<td><input name=c></form></tr></table>"""
    tree = grid(page, form_tokens=True)
    assert tree.form_order.tolist() == [0]  # rows have no node: the table stands for the first
    assert tree.tree_name[tree.form_node] == "table"
    forms = {}
    for row, name in enumerate(tree.tree_name[: tree.num_leaves]):
        mine = tree.text_x[tree.text_index == row]
        forms[name] = mine[mine[:, 1] == 11, 0].tolist()
    assert forms["input[text] a"] == forms["input[text] b"] != forms["input[text] c"]
    whole = grid("x<table><form id=one><tr><td><input name=a><td>b</form><tr><td>c</table>")
    assert whole.tree_name[whole.form_node] == "table"


def test_a_caption_anywhere() -> None:
    page = "x<table><tr><td>a<td>b</tr><caption>t u</caption><tr><td>c<td>d<td>e</table>"
    tree = grid(page)
    assert leaf_names(tree) == ["x", "a", "b", "c", "d", "e", "t", "u"]
    default = from_html(page)
    for name in "abcdetu":
        row, old = tree.tree_name.index(name), default.tree_name.index(name)
        mine = tree.text_x[tree.text_index == row]
        assert torch.equal(mine, default.text_x[default.text_index == old])


def test_cells_cut_off_by_limits_leave_the_others_in_place() -> None:
    page = "<table><tr><td>a<td>b<tr><td>c<td>d</table>"
    with pytest.warns(UserWarning, match="the last 1 leaves"):
        tree = grid(page, max_leaves=3, on_limit="truncate")
    assert places(tree) == {"a": (0, 0), "b": (0, 1), "c": (1, 0)}
    deep = "<table><tr><td>a<td>b<td><p>x y<p>z<td>c</table>"
    with pytest.warns(UserWarning, match="that lie deeper"):
        tree = grid(deep, max_depth=1, on_limit="truncate")
    assert places(tree) == {"a": (0, 0), "b": (0, 1), "c": (0, 3)}


def test_spans_as_browsers_read_them() -> None:
    texts = ["2", " \n+3px", "007", "-2", "", None, "x1", "9" * 5000, "²"]
    assert [_span(text) for text in texts] == [2, 3, 7, 1, 1, 1, 1, 999999999, 1]


@pytest.mark.parametrize(
    "page",
    [
        "<table><tr>" + "<td rowspan=60000>a" * 20_000 + "<tr><td>b" * 20_000,
        "<table><tr>" + "<td rowspan=60000 colspan=1000>a" * 30_000,
        "<table>" + "<tr><td rowspan=2>a<td rowspan=3>b" * 20_000,
        "<table>" + "<tbody><tr><td rowspan=2>a" * 30_000,
        "<table><tr><td>" * 3_000 + "x",
    ],
    ids=range(5),
)
def test_no_quadratic_time(page: str) -> None:
    start = time.perf_counter()
    from_html(page, tables="grid")
    assert time.perf_counter() - start < 8


PARTS = """<table> </table> <tr> </tr> <td> </td> <th> <td/colspan=2> <td/rowspan=2> <td/rowspan=0>
<tbody> <tfoot> <thead> </tbody> <caption> </caption> <col> <form> </form> <input> <p> </p>
<tr/hidden> <div> </div> <h2> </h2>"""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*PARTS.split(), "a", "b c"]), max_size=30))
def test_any_table_keeps_its_words(parts: list[str]) -> None:
    page = "start <table>" + " ".join(parts)
    tree, rows = grid(page), from_html(page)
    assert Counter(leaf_names(tree)) == Counter(leaf_names(rows))
    assert Counter(tree.leaf_kind.tolist()) == Counter(rows.leaf_kind.tolist())
    assert (tree.tree_pos >= 0).all()
