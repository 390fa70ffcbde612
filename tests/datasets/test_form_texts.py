"""Plain text of pages and forms."""

import pytest

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
