"""Which page belongs to which section of a manual."""

import pytest

from hsa_geo.datasets.manual_sections import MANUALS, manual_of, sections_of
from hsa_geo.errors import UnsupportedError


def test_gimp_sections_follow_the_links_up():
    link = '<link rel="{}" href="{}">'.format
    pages = {
        "gimp-tools.html": link("up", "gimp-function-reference.html"),
        "gimp-tools-paint.html": link("up", "gimp-tools.html#x"),
        "gimp-tool-brush.html": link("prev", "menus.html") + link("up", "gimp-tools-paint.html"),
        "round.html": link("up", "round-2.html"),
        "round-2.html": link("up", "round.html"),
        "alone.html": "",
        "gone.html": link("up", "nowhere.html"),
    }
    tools = manual_of("gimp-help").rules.sections.index("tools")
    assert sections_of("gimp-help", pages) == {
        "gimp-tools-paint.html": (tools, "gimp-tools-paint"),
        "gimp-tool-brush.html": (tools, "gimp-tools-paint"),
    }


def test_grass_sections_are_families():
    names = ["r.li.shape.html", "r3.in.html", "wxGUI.nviz.html", "rasterintro.html", "v.db.html"]
    names += ["topic_r.x.html", "r..html", ".html"]
    found = sections_of("grass", dict.fromkeys(names, ""))
    assert found == {"r.li.shape.html": (0, "r.li"), "v.db.html": (1, "v.db")}


def test_unknown_manual():
    with pytest.raises(UnsupportedError, match="manual='emacs'"):
        manual_of("emacs")
    assert all(name == one.name for name, one in MANUALS.items())
