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

import warnings
from typing import Any

from hsa_geo.builders.html import form_elements, parse_html
from hsa_geo.errors import DecodingWarning

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
_SILENT = {"script", "style", "template", "noscript", "-comment", "-doctype"}


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
    root = _parse(source).root
    return "" if root is None else _text(root, attributes)


def form_texts(source: bytes | str, attributes: bool = False) -> list[str]:
    """Text of each form of a page, in document order, those without content too.

    Args:
        source: The page.
        attributes: Also the values of the attributes of the form and all elements in it.
            (default: :obj:`False`)

    Returns:
        One text for each ``<form>``; of a form in a table, of the table part that the builder
        takes for it.

    Raises:
        BuilderError: If the source cannot be parsed.

    Example:
        >>> form_texts("<form>one</form>two<form></form>")
        ['one', '']
    """
    return [_text(element, attributes) for element in form_elements(_parse(source))]


def _parse(source: bytes | str) -> Any:
    """The parsed page; what could not be decoded is told where its tree is built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecodingWarning)
        return parse_html(source)


def _text(root: Any, attributes: bool) -> str:
    """Text below an element, then values of attributes; without recursion."""
    texts, values = [], []
    stack = [(root, False)]  # element, whether what follows it counts as well
    while stack:
        node, siblings = stack.pop()
        while node is not None:
            tag = node.tag
            below = None
            if tag == "-text":
                texts.append(node.text_content or "")
            elif tag not in _SILENT:
                if attributes:
                    found = node.attributes
                    values += [found[name] for name in ATTRIBUTES if found.get(name)]
                below = node.first_child
            following = node.next if siblings else None
            if below is not None:
                stack.append((following, True))
                following, siblings = below, True
            node = following
    return " ".join(" ".join([*texts, *values]).split())
