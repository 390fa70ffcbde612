"""Plain text of a page and of its forms, for models that do not look at trees.

Text is everything in the DOM but the contents of script, style, template and noscript.  With
``attributes`` the values of the attributes in :data:`ATTRIBUTES` follow, of every element.

Example:
    >>> page = b"<p>Hello</p><form id=f><input name=q placeholder='Find it'></form>"
    >>> page_text(page), page_text(page, attributes=True)
    ('Hello', 'Hello f q Find it')
    >>> form_texts(page), form_texts(page, attributes=True)
    ([''], ['f q Find it'])
"""

from __future__ import annotations

from typing import Any

from hsa_geo.builders.html import parse_html

__all__ = ["ATTRIBUTES", "form_texts", "page_text"]

#: Attributes whose values say what an element is for.
ATTRIBUTES = (
    "type",
    "name",
    "id",
    "class",
    "placeholder",
    "value",
    "alt",
    "title",
    "for",
    "action",
    "aria-label",
)
_SILENT = "script,style,template,noscript"


def page_text(source: bytes | str, attributes: bool = False) -> str:
    """Text of a page, words apart by single blanks.

    Args:
        source: The page.
        attributes: Also the values of the attributes of all elements. (default: :obj:`False`)

    Returns:
        The text.

    Raises:
        BuilderError: If the source cannot be parsed.

    Example:
        >>> page_text("<title>A</title><b>big</b> <script>x()</script>word")
        'A big word'
    """
    parser = parse_html(source)
    _silence(parser)
    return "" if parser.root is None else _text(parser.root, attributes)


def form_texts(source: bytes | str, attributes: bool = False) -> list[str]:
    """Text of each form of a page, in document order, those without content too.

    Args:
        source: The page.
        attributes: Also the values of the attributes of the form and all elements in it.
            (default: :obj:`False`)

    Returns:
        One text for each ``<form>``.

    Raises:
        BuilderError: If the source cannot be parsed.

    Example:
        >>> form_texts("<form>one</form>two<form></form>")
        ['one', '']
    """
    parser = parse_html(source)
    _silence(parser)
    return [_text(form, attributes) for form in parser.css("form")]


def _silence(parser: Any) -> None:
    for node in parser.css(_SILENT):
        node.decompose()


def _text(node: Any, attributes: bool) -> str:
    parts = [node.text(separator=" ")]
    if attributes:
        for element in node.css("*"):  # itself included
            values = element.attributes
            parts += [values[name] for name in ATTRIBUTES if values.get(name)]
    return " ".join(" ".join(parts).split())
