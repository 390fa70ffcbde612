"""What the walk of a page does at each element."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

__all__ = [
    "BLOCK_TAGS",
    "BOXES",
    "HEADINGS",
    "TABLE_PARTS",
    "TEXT",
    "Action",
    "TagTable",
    "action_of",
    "int_attr",
]

#: The tag that lexbor gives to text.
TEXT = "-text"
#: Where the parser leaves a <form> empty and moves what it should hold behind it.
TABLE_PARTS = frozenset(("table", "tbody", "tfoot", "thead", "tr"))


class Action(IntEnum):
    """What an element is to a person who looks at the page."""

    INLINE = 0  # transparent: its text belongs to the line around it
    BLOCK = 1  # an inner node
    SKIP = 2  # leaves no trace
    LINK = 3  # an inner node within a sentence
    LABEL = 4  # transparent, but its words are remembered for a control
    BREAK = 5  # ends a line
    INPUT = 6
    SELECT = 7
    TEXTAREA = 8
    BUTTON = 9
    IMAGE = 10
    MEDIA = 11  # a leaf that shows something this library does not look into
    SVG = 12
    TITLE = 13
    FORM = 14  # a block that is never collapsed away
    TEXT = 15
    # With options of from_html only; blocks otherwise.
    TABLE = 16  # a block whose cells lie on a grid
    ROWS = 17  # a group of rows, transparent
    ROW = 18  # transparent
    CELL = 19
    HEADING = 20  # a block that opens a section


_TAGS = {
    Action.BLOCK: "address article aside blockquote body caption center dd details dialog dir div "
    "dl dt fieldset figcaption figure footer frameset h1 h2 h3 h4 h5 h6 header hgroup hr html "
    "legend li listing main marquee menu nav ol optgroup option p plaintext pre search section "
    "summary table tbody td tfoot th thead tr ul xmp",
    Action.SKIP: "-comment -doctype annotation annotation-xml area base basefont bgsound col "
    "colgroup datalist link meta noembed noframes noscript param rp script selectedcontent source "
    "style template track",
    Action.LINK: "a",
    Action.LABEL: "label",
    Action.BREAK: "br",
    Action.INPUT: "input",
    Action.SELECT: "select",
    Action.TEXTAREA: "textarea",
    Action.BUTTON: "button",
    Action.IMAGE: "img image",
    Action.MEDIA: "audio canvas embed frame iframe meter progress video",
    Action.SVG: "svg",
    Action.TITLE: "title",
    Action.TEXT: TEXT,
    Action.FORM: "form",
}
_ACTIONS = {tag: action for action, tags in _TAGS.items() for tag in tags.split()}
#: Tags of the elements that are inner nodes of their own.
BLOCK_TAGS = frozenset(tag for tag, a in _ACTIONS.items() if a in (Action.BLOCK, Action.FORM))
_BOXES = (
    "article aside body center dialog div fieldset figure footer form frameset header hgroup html "
    "main nav search section"
)
#: Elements that lay a page out, for ``sets="boxes"``.
BOXES = frozenset(_BOXES.split())
#: Elements that open sections.
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_GRID = {
    "table": Action.TABLE,
    **dict.fromkeys(("tbody", "tfoot", "thead"), Action.ROWS),
    "tr": Action.ROW,
    **dict.fromkeys(("td", "th"), Action.CELL),
}


def action_of(tag: str | None) -> Action:
    """The action for a tag; unknown elements are inline, as in browsers.

    Example:
        >>> action_of("td").name, action_of("my-widget").name
        ('BLOCK', 'INLINE')
    """
    return Action.SKIP if tag is None else _ACTIONS.get(tag, Action.INLINE)


class TagTable:
    """Actions by lexbor's tag numbers, learnt as tags are met.

    Numbers of known tags are fixed and shared by all pages that are read alike; those of unknown
    tags belong to one page.

    Args:
        grid: Tables are grids. (default: :obj:`False`)
        sectioning: Headings open sections. (default: :obj:`False`)

    Attributes:
        shared: Number -> (action, tag) of known tags.
        local: The same of this page's unknown tags.
    """

    _tables: ClassVar[dict[tuple[bool, bool], dict[int, tuple[Action, str]]]] = {}
    _fixed_below: ClassVar[int] = 512

    def __init__(self, grid: bool = False, sectioning: bool = False) -> None:
        self._special: dict[str, Action] = dict(_GRID) if grid else {}
        if sectioning:
            self._special |= dict.fromkeys(HEADINGS, Action.HEADING)
        self.shared = self._tables.setdefault((bool(grid), bool(sectioning)), {})
        self.local: dict[int, tuple[Action, str]] = {}

    def entry(self, node: Any) -> tuple[Action, str]:
        """The action and the tag of a DOM node."""
        tag_id = node.tag_id
        known = self.shared.get(tag_id) or self.local.get(tag_id)
        return known or self.learn(node, tag_id)

    def learn(self, node: Any, tag_id: int) -> tuple[Action, str]:
        """The same for a tag that is met for the first time."""
        tag = node.tag
        entry = (self._special.get(tag) or action_of(tag), tag or "")
        (self.shared if tag_id < self._fixed_below else self.local)[tag_id] = entry
        return entry


def int_attr(attributes: dict[str, Any], name: str) -> int | None:
    """A size in pixels from an attribute such as ``width="1"`` or ``"1px"``, or None.

    Example:
        >>> int_attr({"width": "1px"}, "width"), int_attr({"width": "50%"}, "width")
        (1, None)
    """
    text = (attributes.get(name) or "").strip().lower().removesuffix("px").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
