"""The manuals that can be had, and which page belongs to which section of them.

``gimp-help``: the English manual of GIMP 2.10 (GFDL), 685 pages.  Sections are its two
introductory parts and the four chapters of its reference, as the pages' own ``<link rel="up">``
say; groups are chapters of the parts and sub-sections of the chapters (*Paint Tools*).

``grass``: the reference of GRASS GIS 8.2 (GPL), 717 pages.  Sections are the families of its
modules, the first part of a module's name; groups share the first two parts (``r.li.shape``).

Example:
    >>> sections_of("grass", {"r.buffer.html": "", "r.li.shape.html": "", "index.html": ""})
    {'r.buffer.html': (0, 'r.buffer'), 'r.li.shape.html': (0, 'r.li')}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.manual_markup import Rules
from hsa_geo.errors import UnsupportedError

__all__ = ["MANUALS", "Manual", "Sections", "manual_of", "sections_of"]

#: Label and name of the group of every page that belongs to a section.
Sections = dict[str, tuple[int, str]]

_UP = re.compile(r"""<link\b[^>]*\brel=["']up["'][^>]*>""", re.I)
_HREF = re.compile(r"""\bhref=["']([^"'#]*)""", re.I)
_MODULE = re.compile(r"([a-z0-9]+)\.([a-zA-Z0-9_]+)(?:\..*)?\.html")

_GIMP_TOPS = {
    "getting-started.html": 0,
    "become-a-gimp-wizard.html": 1,
    "gimp-tools.html": 2,
    "dialogs.html": 3,
    "menus.html": 4,
    "filters.html": 5,
}
_GRASS_FAMILIES = ("r", "v", "t", "i", "g", "d")


@dataclass(frozen=True)
class Manual:
    """One manual.

    Attributes:
        name: How users call it.
        archive: The package that holds it.
        rules: What is cut from its pages, and the names of its sections.
        sections: From the sources of the pages, by file name, to their sections and groups.
        charset: Charset of the pages. (default: as a browser detects it)

    Example:
        >>> manual_of("grass").rules.sections[:2]
        ('raster', 'vector')
    """

    name: str
    archive: Archive
    rules: Rules
    sections: Callable[[Mapping[str, str]], Sections]
    charset: str | None = None


def _gimp_sections(pages: Mapping[str, str]) -> Sections:
    """Walk up from every page to the part or chapter it belongs to."""
    up: dict[str, str] = {}
    for name, source in pages.items():
        link = _UP.search(source)
        href = _HREF.search(link.group()) if link else None
        if href:
            up[name] = href.group(1)
    found: Sections = {}
    for name in pages:
        path, seen = [name], {name}
        while path[-1] not in _GIMP_TOPS and up.get(path[-1]) and up[path[-1]] not in seen:
            path.append(up[path[-1]])
            seen.add(path[-1])
        top = path[-1]
        if top in _GIMP_TOPS and len(path) > 1:  # the opening page of a chapter is but a list
            found[name] = (_GIMP_TOPS[top], path[-2].removesuffix(".html"))
    return found


def _grass_sections(pages: Mapping[str, str]) -> Sections:
    """The family of every page that is named after a module."""
    found: Sections = {}
    for name in pages:
        match = _MODULE.fullmatch(name)
        if match and match.group(1) in _GRASS_FAMILIES:
            label = _GRASS_FAMILIES.index(match.group(1))
            found[name] = (label, f"{match.group(1)}.{match.group(2)}")
    return found


#: The manuals, by name.
MANUALS = {
    "gimp-help": Manual(
        "gimp-help",
        Archive(
            "deb",
            "gimp-help-en",
            "2.10.34-2",
            "gimp-help-en_2.10.34-2_all.deb",
            "a2deec76763aaf2fcdd197bac0736cdcb0770ba993d48d233329e1c92b0bfe36",
            prefix="usr/share/gimp/2.0/help/en",
            patterns=("*.html", "images/**/*.png", "images/**/*.jpg", "images/**/*.gif"),
            max_bytes=256 << 20,
            size=49_612_664,
        ),
        Rules(
            ("getting started", "guide", "tools", "dialogs", "menus", "filters"),
            drop=(
                ".navheader,.navfooter,.toc,.list-of-figures,.list-of-tables,.footnotes,"
                "a.xref,.guimenu,.guisubmenu,.guimenuitem,.guimenuitems,.indexterm,.copyright,"
                "body > div > .titlepage:first-child"
            ),
            heads=r"activat|access|starting|how to (?:activate|access|call)",
            words="filter|tool|menu|dialog",
            chapter=".sect1,.sect2,.sect3,.sect4,.sect5,.section,.simplesect",
        ),
        _gimp_sections,
    ),
    "grass": Manual(
        "grass",
        Archive(
            "deb",
            "grass-doc",
            "8.2.1-1",
            "grass-doc_8.2.1-1_all.deb",
            "0f6da53d1f7d51b019dfe64bf45718b64022989afc94bb6c833f495aa2f61ff7",
            prefix="usr/share/doc/grass-doc/html",
            patterns=("*.html", "*.png", "*.jpg", "*.gif"),
            max_bytes=256 << 20,
            size=35_739_172,
        ),
        Rules(
            ("raster", "vector", "temporal", "imagery", "general", "display"),
            drop=".toc,#name,#name + b,#synopsis",
            heads=r"name\b|keywords|see also|references?\b|authors?\b|source code|table of",
            words=r"raster|(?<![a-z])rast|vector|(?<![a-z])vect|tempora|imagery|general|display",
            erase=r"\b(?:r3|ps|db|wxgui|[rvigdtm])\.(?:[\w*]+(?:\.\w+)*)?",
        ),
        _grass_sections,
    ),
}


def manual_of(name: str) -> Manual:
    """A manual by name.

    Args:
        name: ``"gimp-help"`` or ``"grass"``.

    Returns:
        The manual.

    Raises:
        UnsupportedError: If there is none of that name.

    Example:
        >>> manual_of("gimp-help").rules.sections
        ('getting started', 'guide', 'tools', 'dialogs', 'menus', 'filters')
    """
    if name not in MANUALS:
        raise UnsupportedError(f"manual={name!r} is not known: give one of {', '.join(MANUALS)}.")
    return MANUALS[name]


def sections_of(name: str, pages: Mapping[str, str]) -> Sections:
    """Which section and group the pages of a manual belong to.

    Args:
        name: Of the manual.
        pages: Source of every page by file name.

    Returns:
        Label, a place in the manual's sections, and name of the group, by file name; pages of
        no section (indexes, appendices, opening pages of chapters) are left out.

    Example:
        See the example of :mod:`hsa_geo.datasets.manual_sections`.
    """
    return manual_of(name).sections(pages)
