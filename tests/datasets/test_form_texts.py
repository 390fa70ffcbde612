"""Plain text of pages and forms."""

import pytest

from hsa_geo.builders import form_fields, from_html, parse_html
from hsa_geo.datasets.form_texts import form_texts, page_text

PAGE = b"""<html><head><title>The page</title><style>p {color: red}</style></head><body class="b">
<script>var x;</script><noscript>no</noscript><template>tm</template><!-- note -->
<p>Hello <b>big</b> world</p>
<form id="f1" action="/find" style="x" onclick="y()"><input name="q" type="text"
  placeholder="Find it"><button value="Go">Go!</button></form>
<form></form><form aria-label="Log in"><label for=u>Name</label><input id=u></form></body></html>"""


def test_page_text():
    text = page_text(PAGE)
    assert text == "The page Hello big world Go! Name"
    more = page_text(PAGE, attributes=True)
    assert more.startswith(text)
    assert sorted(more[len(text) :].split()) == sorted(
        ["b", "f1", "/find", "text", "q", "Find", "it", "Go", "Log", "in", "u", "u"]
    )


def test_form_texts():
    assert form_texts(PAGE) == ["Go!", "", "Name"]
    with_attributes = form_texts(PAGE, attributes=True)
    assert with_attributes == ["Go! f1 /find text q Find it Go", "", "Name Log in u u"]


@pytest.mark.parametrize("page", [b"<p>none</p>", "<p>none</p>"])
def test_no_forms(page):
    assert form_texts(page) == []
    assert page_text(page) == "none"


def test_a_form_in_a_table_has_the_content_of_the_table():
    page = "<table><form id=f><tr><td>Find <input name=q></td></tr></form></table><form>x</form>"
    assert form_texts(page) == ["Find", "x"]
    assert sorted(form_texts(page, attributes=True)[0].split()) == ["Find", "f", "q"]
    tree = from_html(page)
    assert tree.form_order.tolist() == [0, 1]
    assert len(form_fields(parse_html(page))) == 2


def test_silent_elements_hide_what_is_below_them():
    page = "<form>a<svg><style><form>zz</form></style></svg><template><form>x</form></template>b"
    assert page_text(page) == "a b"
    assert form_texts(page)[0] == "a b"
    assert page_text("<div>" * 3000 + "deep") == "deep"  # no recursion


def test_text_of_a_form_ends_with_the_form():
    assert form_texts("<form><p>in</p></form>out<b>side</b>", attributes=True) == ["in"]
