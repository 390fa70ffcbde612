"""The walk of a page: from the DOM to flat lists of tree nodes, without recursion.

The text of a line is gathered over inline elements and cut into words where the line ends (at a
block, a line break, a link's or label's edge, a control or an image), so ``<b>H</b>ello`` is one
word.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hsa_geo.builders._html_leaves import add_control, add_image, add_media, add_svg, text_below
from hsa_geo.builders._html_sections import close_heading, container_of, open_section
from hsa_geo.builders._html_tables import TableGrid
from hsa_geo.builders._html_tags import TABLE_PARTS, Action, TagTable
from hsa_geo.builders._page_lists import Frame, PageLists
from hsa_geo.builders.patches import PatchGrid
from hsa_geo.builders.tokens import Field

__all__ = ["PageWalk", "stands_for_form"]

# What to do when an element ends.
_BLOCK, _LINK, _LABEL, _HEADING, _TABLE, _ROWS, _ROW, _CELL = range(1, 9)
_LABELS = 8  # at most that many labels of one control
_HIDDEN = "[hidden],[style*=none i],[style*=hidden i],dialog:not([open])"
_HIDDEN_STYLE = re.compile(r"(?:^|[;\s])(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.I)


def stands_for_form(form: Any) -> bool:
    """Whether a form's parent stands for it: the parser leaves a form in a table empty.

    Example:
        >>> from hsa_geo.builders import parse_html
        >>> page = parse_html("<table><form><tr><td><input></table>")
        >>> stands_for_form(page.css_first("form"))
        True
    """
    return form.first_child is None and form.parent is not None and form.parent.tag in TABLE_PARTS


class PageWalk(PageLists):
    """Walks a parsed page once and keeps flat lists of what it found.

    Args:
        parser: The parsed page.
        buckets: Hash buckets of the tokens.
        field_tokens: At most that many tokens of each field of a leaf that is no word.
        include_hidden: Also walk what is not displayed.
        form_tokens: Give every control the tokens of its form.
        picture: Decodes an image by its ``src``, or gives None.
        grid: Tables are grids.
        sectioning: Headings open sections.
        links: Where to note the ``href`` of every link that is walked, if anywhere.
    """

    def __init__(
        self,
        parser: Any,
        *,
        buckets: int,
        field_tokens: int,
        include_hidden: bool,
        form_tokens: bool,
        picture: Callable[[str], PatchGrid | None],
        grid: bool = False,
        sectioning: bool = False,
        links: list[str] | None = None,
    ) -> None:
        super().__init__(buckets, field_tokens)
        self._form_tokens, self._picture = form_tokens, picture
        self._table = TagTable(grid, sectioning)
        self._grids: list[TableGrid] = []
        self._links = links
        self._run: list[str] = []
        self._run_tags: list[str] = []
        self._labels: list[tuple[str | None, int, int]] = []  # for, first word, end
        self._open_labels: list[int] = []
        self._controls: list[tuple[int, str | None, int]] = []  # leaf, id, enclosing label
        self._titled = False
        self.form_ordinal = {node.mem_id: k for k, node in enumerate(parser.css("form"))}
        self._hidden = set() if include_hidden else _hidden_elements(parser)
        root = parser.root
        if root is not None and root.first_child is not None:
            self._walk(root.first_child)
        self._associate_labels()

    def _walk(self, node: Any) -> None:
        run, run_tags, hidden = self._run, self._run_tags, self._hidden
        shared, local, learn = self._table.shared, self._table.local, self._table.learn
        stack: list[tuple[Any, int, str]] = []  # element, what to do at its end, tag outside
        tag = "html"
        while True:
            child = None
            tag_id = node.tag_id
            action, name = shared.get(tag_id) or local.get(tag_id) or learn(node, tag_id)
            if action == 15:  # text
                text = node.text_content
                if text and (run or not text.isspace()):
                    run.append(text)
                    run_tags.append(tag)
            elif action != 2 and (not hidden or node.mem_id not in hidden):
                if action == 0:  # inline
                    child = node.first_child
                    if child is not None:
                        stack.append((node, 0, tag))
                        tag = name
                else:
                    if run:
                        self._flush()
                    if action == 1:  # block, the most frequent, without a call
                        end = _BLOCK
                        self.frame.sentence = -1
                        self.frame = Frame(name, self.frame)
                    else:
                        end = self._enter(node, action, name)
                    if end:
                        child = node.first_child
                        if child is None:
                            self._leave(end)
                        else:
                            stack.append((node, end, tag))
                            tag = name
            if child is not None:
                node = child
                continue
            following = node.next
            while following is None:
                if not stack:
                    if run:
                        self._flush()
                    return
                node, end, tag = stack.pop()
                if end:
                    if run:
                        self._flush()
                    self._leave(end)
                following = node.next
            node = following

    def _flush(self) -> None:
        self.add_line(self._run, self._run_tags)
        self._run.clear()
        self._run_tags.clear()

    def _enter(self, node: Any, action: Action, name: str) -> int:
        """Start an element; returns what to do at its end, or 0 if its children are done."""
        if action == Action.LINK:
            if self._links is not None and (href := node.attributes.get("href")):
                self._links.append(href)
            self.frame = Frame(name, self.frame, flat=True, inline=True)
            return _LINK
        if action == Action.FORM:
            return self._enter_form(node, name)
        if action == Action.LABEL:
            self._open_labels.append(len(self._labels))
            self._labels.append((node.attributes.get("for"), len(self.words), 0))
            return _LABEL
        if action == Action.BREAK:
            self.frame.sentence = -1
        elif action == Action.TITLE:
            if not self._titled:
                self._titled = True
                self.frame.sentence = -1
                self.frame = Frame(name, self.frame, flat=True)
                return _BLOCK
        elif action == Action.IMAGE:
            add_image(self, node, self._picture)
        elif action == Action.SVG:
            add_svg(self, node)
        elif action == Action.MEDIA:
            add_media(self, node, name)
        elif action >= Action.TABLE:
            return self._enter_part(node, action, name)
        else:
            self._enter_control(node, action, name)
        return 0

    def _enter_part(self, node: Any, action: Action, name: str) -> int:
        """Start a heading that opens a section, or a part of a table that is a grid."""
        frame = self.frame
        if action == Action.HEADING:
            self.frame = open_section(frame, name)
            return _HEADING
        frame.sentence = -1
        grid = self._grids[-1] if self._grids else None
        if action == Action.TABLE:
            self.frame = Frame(name, frame)
            self._grids.append(TableGrid(self.frame))
            return _TABLE
        if grid is None or grid.outer is not frame:  # no part of a table, by no parser's doing
            self.frame = Frame(name, frame)
            return _BLOCK
        if action == Action.CELL:
            self.frame = grid.start_cell(name, node.attributes)
            return _CELL
        if action == Action.ROW:
            grid.start_row()
            return _ROW
        grid.start_group(name == "tfoot")
        return _ROWS

    def _leave(self, end: int) -> None:
        if end == _LABEL:
            k = self._open_labels.pop()
            self._labels[k] = (*self._labels[k][:2], len(self.words))
            return
        if end == _ROW:
            self._grids[-1].end_row()
            return
        if end == _ROWS:
            self._grids[-1].start_group(False)
            return
        frame = container_of(self.frame)
        if end == _HEADING:
            self.frame = close_heading(frame)
            return
        if end == _TABLE:
            self._grids.pop().close(self)
        up = self._grids[-1].outer if end == _CELL else frame.up
        assert up is not None
        if end != _LINK:
            up.sentence = -1
        self.frame = up

    def _enter_form(self, node: Any, name: str) -> int:
        frame = self.frame
        frame.sentence = -1
        if not stands_for_form(node):
            self.frame = Frame(name, frame, form=node)
            return _BLOCK
        in_row = bool(self._grids) and self._grids[-1].outer is frame and self._grids[-1].in_row
        if in_row:
            self._grids[-1].owner = node
        if frame.form is None and frame.name in TABLE_PARTS:
            frame.form = node
            if not in_row:
                frame.owner = node
            if frame.id >= 0:
                self.register_form(frame)
        return 0

    def _enter_control(self, node: Any, action: Action, tag: str) -> None:
        text = ""
        if action != Action.INPUT:
            text = text_below(node, self._table, self._hidden)
        leaf = add_control(self, node, action, tag, text, self._form_tokens)
        if leaf >= 0:
            label = self._open_labels[-1] if self._open_labels else -1
            self._controls.append((leaf, node.attributes.get("id"), label))

    def _associate_labels(self) -> None:
        """Give controls the words of their labels: by ``for``, or by being inside."""
        by_id: dict[str, list[int]] = {}
        for k, (target, _, _) in enumerate(self._labels):
            if target:
                by_id.setdefault(target, []).append(k)
        beyond = {  # words of the labels that are too many
            target: sum(self._labels[k][2] - self._labels[k][1] for k in found[_LABELS:])
            for target, found in by_id.items()
            if len(found) > _LABELS
        }
        for leaf, own_id, enclosing in self._controls:
            found = by_id.get(own_id, [])[:_LABELS] if own_id else []
            if enclosing >= 0 and enclosing not in found and len(found) < _LABELS:
                found.append(enclosing)
            self.left_out += beyond.get(own_id, 0) if own_id else 0
            for k in found:
                _, start, end = self._labels[k]
                words = self.words[start : min(end, start + self.field_tokens)]
                self.left_out += max(0, end - start - self.field_tokens)
                self.add_tokens(leaf, Field.LABEL, self.word_list_ids(words))


def _hidden_elements(parser: Any) -> set[int]:
    """Elements that the page itself hides by attribute or inline style.

    Style sheets are not applied.  ``<html>`` and ``<body>`` are never hidden: pages that hide
    their body wait for a script to show it.
    """
    hidden = set()
    for node in parser.css(_HIDDEN):
        attributes = node.attributes
        if (
            "hidden" in attributes
            or (node.tag == "dialog" and "open" not in attributes)
            or _HIDDEN_STYLE.search(attributes.get("style") or "")
        ) and node.tag not in ("html", "body"):
            hidden.add(node.mem_id)
    return hidden
