"""Leaves of a page that are not words: form controls, images, drawings, media."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from hsa_geo.builders._html_tags import TEXT, Action, TagTable, int_attr
from hsa_geo.builders._page_lists import Frame, LeafKind, PageLists
from hsa_geo.builders.patches import PatchGrid
from hsa_geo.builders.tokens import WORD, Field

__all__ = ["add_control", "add_image", "add_media", "add_svg", "text_below"]

# Inputs whose value is not shown as text.
_NO_VALUE = {"checkbox", "radio", "password", "file", "color", "range", "image"}


def add_control(
    page: PageLists, node: Any, action: Action, tag: str, text: str, form_tokens: bool
) -> int:
    """A form control as a leaf.

    Args:
        page: Where to add it.
        node: The element.
        action: Which kind of control.
        tag: Its tag.
        text: The text inside: of a button, a text area, a select's options.
        form_tokens: Add tokens of the form that holds it.

    Returns:
        The leaf's id, or -1 for ``<input type=hidden>``.
    """
    attributes = node.attributes
    kind = (attributes.get("type") or "").strip().lower()[:32]
    if action == Action.INPUT:
        kind = kind or "text"
        if kind == "hidden":
            return -1
        text = "" if kind in _NO_VALUE else attributes.get("value") or ""
    elif action == Action.BUTTON:
        kind = kind or "submit"
    else:
        kind = ""
    own = attributes.get("name") or attributes.get("id") or text[:40]
    name = " ".join(f"{tag}[{kind}] {own}".split()) if kind else f"{tag} {own}".strip()
    leaf = page.add_leaf(page.slot(page.frame), name, LeafKind.CONTROL)
    page.add_token(leaf, Field.TAG, tag)
    if kind:
        page.add_token(leaf, Field.TYPE, kind)
    page.add_tokens(leaf, Field.NAME, page.key_ids(attributes.get("name")))
    page.add_tokens(leaf, Field.ID, page.key_ids(attributes.get("id")))
    page.add_tokens(leaf, Field.PLACEHOLDER, page.text_ids(attributes.get("placeholder")))
    page.add_tokens(leaf, Field.LABEL, page.text_ids(attributes.get("aria-label")))
    page.add_tokens(leaf, Field.TITLE, page.text_ids(attributes.get("title")))
    page.add_tokens(leaf, Field.ALT, page.text_ids(attributes.get("alt")))
    shown = Field.OPTION if action == Action.SELECT else Field.VALUE
    page.add_tokens(leaf, shown, page.text_ids(text))
    if form_tokens:
        page.add_tokens(leaf, Field.FORM, _form_ids(page))
    return leaf


def _form_ids(page: PageLists) -> list[int]:
    form = page.frame.owner
    if form is None:
        return []
    if form.mem_id not in page.form_ids:  # once a form, not once a control
        attributes = form.attributes
        keys = ("id", "name", "class", "action")
        page.form_ids[form.mem_id] = [i for k in keys for i in page.key_ids(attributes.get(k))]
    return page.form_ids[form.mem_id]


def text_below(node: Any, table: TagTable, hidden: set[int]) -> str:
    """Displayed text of a small subtree (a button, a select's options), images by their alt.

    Args:
        node: The element.
        table: The actions of tags.
        hidden: ``mem_id`` of elements that are not displayed.

    Returns:
        The text, with blanks where blocks and options start.
    """
    parts: list[str] = []
    stack = [node.first_child]
    while stack:
        one = stack.pop()
        if one is None:
            continue
        stack.append(one.next)
        action, tag = table.entry(one)
        if tag == TEXT:
            parts.append(one.text_content or "")
        elif action != Action.SKIP and one.mem_id not in hidden:
            if action != Action.INLINE:
                parts.append(" ")
            if action == Action.IMAGE:
                parts.append((one.attributes.get("alt") or "") + " ")
            stack.append(one.first_child)
    return "".join(parts)


def add_image(page: PageLists, node: Any, picture: Callable[[str], PatchGrid | None]) -> None:
    """An image as a leaf; a decoded one as a node of that leaf and a grid of patches."""
    attributes = node.attributes
    width, height = int_attr(attributes, "width"), int_attr(attributes, "height")
    if 0 in (width, height) or (width == 1 and height == 1):  # a counter, not a picture
        return
    alt = attributes.get("alt") or ""
    parent = page.slot(page.frame)
    grid = picture(attributes.get("src") or "")
    if grid is not None:
        parent = page.add_inner(parent, "img")
    leaf = page.add_leaf(parent, alt.strip() or "img", LeafKind.IMAGE)
    page.add_token(leaf, Field.TAG, "img")
    page.add_tokens(leaf, Field.ALT, page.text_ids(alt))
    page.add_tokens(leaf, Field.TITLE, page.text_ids(attributes.get("title")))
    if grid is not None:
        node_id = page.add_inner(parent, "patches")
        page.pinned += [parent, node_id]
        page.grid.append(node_id)
        page.patches.append(grid)
        page.patch_node.append(len(page.parent))
        n = grid.rows * grid.cols
        page.parent.extend(repeat(node_id, n))
        page.name += [f"{i},{j}" for i in range(grid.rows) for j in range(grid.cols)]
        page.kind.extend(repeat(int(LeafKind.PATCH), n))


def add_svg(page: PageLists, node: Any) -> None:
    """A drawing: an image leaf named by its label or title, and the texts in it."""
    title = node.css_first("title")
    alt = node.attributes.get("aria-label") or (title.text() if title is not None else "")
    shown = " ".join(one.text() for one in node.css("text,foreignObject"))
    outside = page.frame
    page.frame = Frame("svg", outside, flat=True, inline=True)
    leaf = page.add_leaf(page.slot(page.frame), alt.strip() or "svg", LeafKind.IMAGE)
    page.add_token(leaf, Field.TAG, "svg")
    page.add_tokens(leaf, Field.ALT, page.text_ids(alt))
    page.add_words(WORD.findall(shown), "text")
    page.frame = outside


def add_media(page: PageLists, node: Any, tag: str) -> None:
    """A leaf for what this library does not look into, named by its title."""
    attributes = node.attributes
    width, height = int_attr(attributes, "width"), int_attr(attributes, "height")
    if width in (0, 1) or height in (0, 1) or (tag == "audio" and "controls" not in attributes):
        return
    title = attributes.get("title") or attributes.get("aria-label") or ""
    leaf = page.add_leaf(page.slot(page.frame), title.strip() or tag, LeafKind.MEDIA)
    page.add_token(leaf, Field.TAG, tag)
    page.add_tokens(leaf, Field.TITLE, page.text_ids(title))
