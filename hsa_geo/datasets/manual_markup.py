r"""What of a manual's page may be seen: everything that tells its section by form alone is cut.

The label of a page is its section of the manual, and a manual says it everywhere: in the title,
the navigation, breadcrumbs, numbers of chapters, names of files, sentences that stand on every
page of a section.  A model that reads those learns the template.  So :func:`visible` cuts

1. the parts of the page template, by selectors: navigation, header, footer, tables of contents,
   the page's own heading, lists of related pages, generated cross references;
2. chapters of a page that say where its subject is found (``Activate the filter``,
   ``SEE ALSO``), by their heading;
3. in all text, alternative texts included: numbers with points in them (of chapters, sections
   and figures, and with them decimals), names of modules (``r.buffer``), and every word that
   holds the name of a section (``filter``, ``toolbox``, ``raster``), whatever surrounds it;

and :func:`without_templates` afterwards

4. every text block (paragraph, heading, cell, item) and every image file that occurs on several
   pages.  Which ones is counted without a look at the labels.

``href``, ``id``, ``class`` and file names are never read as text by
:func:`hsa_geo.builders.from_html`.

Example:
    >>> rules = Rules(("tools",), drop="nav", heads=r"see also", words="tool")
    >>> page = "<title>A tool</title><nav>Tools</nav><p>2.1 This toolbox cuts.<h2>See also</h2><p>B"
    >>> visible(page, rules)
    '<html><head></head><body><p>  This   cuts.</p></body></html>'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hsa_geo.builders.html import parse_html
from hsa_geo.builders.tokens import WORD

__all__ = ["REPEATED", "Rules", "Templates", "count_templates", "visible", "without_templates"]

#: A text block or image that stands on at least that many pages is a part of the template.
REPEATED = 4

_ALWAYS = "title,script,style,noscript,template,nav,header,footer,form,iframe,link,meta"
_BLOCKS = "h1,h2,h3,h4,h5,h6,p,dt,dd,li,td,th,caption,figcaption,pre,div,blockquote"
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_TEXTS = ("alt", "title", "aria-label", "placeholder", "value", "label")
_NUMBERS = (
    r"(?:\b(?:figure|table|example|chapter|section|part|appendix)\s+)?"
    r"\b(?:\d+(?:\.\d+)+\.?|[IVX]+\.)(?!\w)|\b(?:figure|table|chapter|section|part)\s+[\dIVX]+\b\.?"
)


@dataclass(frozen=True)
class Rules:
    """What is cut from the pages of one manual.

    Args:
        sections: Names of the sections, in the order of the labels.
        drop: Selectors of template parts.
        heads: Pattern of headings whose chapter is cut, matched from the heading's start.
        words: Pattern; a word that holds it is cut.
        erase: Pattern of further text to cut, such as names of modules. (default: nothing)
        chapter: Selector of the element around a heading that is its chapter; without one the
            chapter is what follows up to the next heading of the same or a higher rank.
            (default: none)

    Example:
        See the example of :mod:`hsa_geo.datasets.manual_markup`.
    """

    sections: tuple[str, ...]
    drop: str
    heads: str
    words: str
    erase: str = ""
    chapter: str = ""

    @property
    def forbidden(self) -> re.Pattern[str]:
        """What is cut from texts."""
        parts = [*([self.erase] if self.erase else []), rf"\w*(?:{self.words})\w*", _NUMBERS]
        return re.compile("|".join(f"(?:{part})" for part in parts), re.I)


@dataclass(frozen=True)
class Templates:
    """Text blocks and images that stand on several pages.

    Attributes:
        blocks: Words of each block, in lower case.
        images: ``src`` of each image.
    """

    blocks: frozenset[str] = field(default_factory=frozenset)
    images: frozenset[str] = field(default_factory=frozenset)


def visible(source: bytes | str, rules: Rules, charset: str | None = None) -> str:
    """A page without what its section shows in by form alone (rules 1 to 3 of the module).

    Args:
        source: The page, bytes or markup.
        rules: What to cut.
        charset: Charset of bytes. (default: as a browser detects it)

    Returns:
        Markup.

    Raises:
        BuilderError: If the source cannot be read as a page.

    Example:
        See the example of :mod:`hsa_geo.datasets.manual_markup`.
    """
    page = parse_html(source, charset)
    dropped = [node for one in (_ALWAYS, rules.drop) if one for node in page.css(one)]
    _remove(dropped + list(_chapters(page, rules)))
    forbidden = rules.forbidden
    for node in list(page.root.traverse(include_text=True)) if page.root else []:
        if node.tag == "-text":
            text = node.text_content or ""
            cut = forbidden.sub(" ", text)
            if cut != text:
                node.replace_with(cut)
        else:
            for name in _TEXTS:
                value = node.attributes.get(name)
                if value:
                    node.attrs[name] = forbidden.sub(" ", value)
    return str(page.html)


def _chapters(page: Any, rules: Rules) -> Iterator[Any]:
    """The nodes of the chapters of a page that go, by their headings."""
    heads = re.compile(rf"[\s\d.]*(?:{rules.heads})", re.I)
    around = {one.mem_id for one in page.css(rules.chapter)} if rules.chapter else set()
    for heading in page.css(",".join(_HEADINGS)) if rules.heads else []:
        if not heads.match(heading.text()):
            continue
        chapter = next((one for one in _ancestors(heading) if one.mem_id in around), None)
        if chapter is not None:
            yield chapter
            continue
        yield heading
        higher, follower = _HEADINGS[: _HEADINGS.index(heading.tag) + 1], heading.next
        while follower is not None and follower.tag not in higher:
            yield follower
            follower = follower.next


def _ancestors(node: Any) -> Iterator[Any]:
    """The elements around a node, innermost first."""
    while (node := node.parent) is not None:
        yield node


def _remove(nodes: list[Any]) -> None:
    """Cut nodes from a page; some may stand inside others, and then go with those."""
    ids = {node.mem_id for node in nodes}
    outermost = [node for node in nodes if not any(one.mem_id in ids for one in _ancestors(node))]
    for node in {node.mem_id: node for node in outermost}.values():
        node.decompose()


def _blocks(page: Any) -> Iterator[tuple[Any, str]]:
    """The text blocks that hold no others, with their words."""
    for node in page.css(_BLOCKS):
        if not any(one.mem_id != node.mem_id for one in node.css(_BLOCKS)):
            key = " ".join(WORD.findall(node.text(separator=" "))).casefold()
            if key:
                yield node, key


def _source_of(image: Any) -> str:
    return re.split(r"[?#]", (image.attributes.get("src") or "").strip(), maxsplit=1)[0]


def count_templates(pages: Mapping[str, str], repeated: int = REPEATED) -> Templates:
    """Find the text blocks and images that stand on several pages.

    Args:
        pages: Markup of each page, from :func:`visible`.
        repeated: On how many pages at least. (default: 4)

    Returns:
        The blocks and the images.

    Example:
        >>> found = count_templates({"a": "<p>See below.<p>A", "b": "<p>See below<p>B"}, 2)
        >>> sorted(found.blocks)
        ['see below']
    """
    blocks, images = Counter[str](), Counter[str]()
    for markup in pages.values():
        page = parse_html(markup)
        blocks.update({key for _, key in _blocks(page)})
        images.update({_source_of(image) for image in page.css("img")} - {""})
    return Templates(
        frozenset(key for key, count in blocks.items() if count >= repeated),
        frozenset(key for key, count in images.items() if count >= repeated),
    )


def without_templates(markup: str, templates: Templates) -> str:
    """A page without what stands on several pages (rule 4 of the module).

    Args:
        markup: Markup from :func:`visible`.
        templates: From :func:`count_templates`.

    Returns:
        Markup.

    Example:
        >>> without_templates("<p>See below.<p>A", Templates(frozenset({"see below"})))
        '<html><head></head><body><p>A</p></body></html>'
    """
    page = parse_html(markup)
    for image in page.css("img"):
        if _source_of(image) in templates.images:
            image.decompose()
    for node in [node for node, key in _blocks(page) if key in templates.blocks]:
        for image in node.css("img"):  # an image of its own stays where its caption goes
            node.insert_before(image)
        node.decompose()
    return str(page.html)
