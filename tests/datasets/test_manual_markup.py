"""What is cut from the pages of manuals."""

import re

import pytest

from hsa_geo.builders import from_html
from hsa_geo.datasets.manual_markup import (
    Rules,
    Templates,
    count_templates,
    visible,
    without_templates,
)
from hsa_geo.datasets.manual_sections import manual_of

RULES = Rules(("tools",), drop=".nav,.nav .inner", heads="activat", words="tool", chapter=".sect")


def shown(markup, rules=RULES):
    return re.sub(r"<[^>]*>", " ", visible(markup, rules)).split()


@pytest.mark.parametrize(
    ("markup", "left"),
    [
        ("<title>Tools</title><p>a", "a"),
        ("<nav>x <nav>y</nav></nav><header><nav>z</nav></header><p>a<footer>f</footer>", "a"),
        ("<div class=nav>x<div class=inner>y</div></div>a", "a"),  # one inside the other
        ("<p>a Toolbox, tools: TOOL sub-tool b", "a , : sub- b"),
        ("<p>Figure 17.199. a 1.2.3 b 2.1 c XI. d", "a b c d"),
        ("<p>See Chapter 12 and Section IV", "See and"),
        ("<p>a 10 pixels 0 b", "a 10 pixels 0 b"),  # plain numbers are content
        ("<div class=sect><h3>1. Activating it</h3>gone<p>gone</div><p>a", "a"),
        ("<h2>Activate</h2>gone<p>gone<h3>gone</h3>gone<h2>Options</h2>a", "Options a"),
        ("<h3>Activate</h3>gone<h2>Options</h2>a", "Options a"),
        ("<h2>Activate</h2>gone <!-- c --> gone<h2>Activate</h2>gone<h1>b</h1>", "b"),
        ("<script>tool</script><style>p{}</style><p>a<template>tool</template>", "a"),
    ],
)
def test_cut(markup, left):
    assert shown(markup) == left.split()


def test_alternative_texts_are_cut_and_sources_stay():
    markup = visible("<img src='tools/tool.png' alt='The tool icon' title=Toolbox>", RULES)
    assert "tools/tool.png" in markup
    assert 'alt="The   icon"' in markup
    assert "Toolbox" not in markup


def test_text_that_looks_like_markup_stays_text():
    markup = visible("<p>a tool &lt;b&gt; &amp;amp; c", RULES)
    assert from_html(markup).tree_name[:4] == ["a", "b", "amp", "c"]


def test_deep_pages():
    page = "<div>" * 900 + "<nav>x</nav>tool a" + "</div>" * 900
    assert shown(page) == ["a"]


def test_templates_are_what_stands_on_several_pages():
    page = "<h2>Options</h2><p>See <b>below</b>.<p>{0}<img src='note.png?x'><img src='{0}.png'>"
    pages = {name: page.format(name) for name in "abcd"}
    found = count_templates(pages)
    assert found == Templates(frozenset({"options", "see below"}), frozenset({"note.png"}))
    assert count_templates(pages, repeated=5) == Templates()
    left = without_templates(pages["a"], found)
    assert "Options" not in left
    assert "below" not in left
    assert "note.png" not in left
    assert "a.png" in left
    assert "<p>a" in left


def test_a_block_counts_once_a_page():
    assert count_templates({"a": "<p>x<p>x<p>x<p>x<p>x"}) == Templates()


def test_a_picture_stays_where_its_caption_goes():
    templates = Templates(frozenset({"original image"}))
    left = without_templates("<p><img src=a.png>Original image</p><p>b", templates)
    assert "a.png" in left
    assert "Original" not in left
    assert "<p>b" in left


def test_module_names_are_cut():
    rules = manual_of("grass").rules
    left = shown(
        "<p>g.region raster=elev; r.slope.aspect in=x, r.*, v.db.connect: use d.rast a_rast=y",
        rules,
    )
    assert left == ["=elev;", "in=x,", ",", ":", "use", "=y"]
