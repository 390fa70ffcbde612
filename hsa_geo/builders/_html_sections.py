"""Headings that open sections.

A heading opens a section that holds the heading and what follows in the same element, up to the
next heading there of the same or a higher rank.
"""

from __future__ import annotations

from hsa_geo.builders._page_lists import Frame

__all__ = ["Section", "close_heading", "container_of", "open_section"]


class Section(Frame):
    """An open section; its node is made when its heading shows something.

    Attributes:
        rank: 1 for ``<h1>``, ..., 6.
        before: The frame that was open before it, until the heading ends.
    """

    __slots__ = ("before", "rank")

    def __init__(self, tag: str, up: Frame, before: Frame) -> None:
        super().__init__(f"section[{tag}]", up)
        self.rank = int(tag[1])
        self.before: Frame | None = before


def open_section(frame: Frame, tag: str) -> Frame:
    """Open a section in the open element.

    Args:
        frame: The innermost frame, the element's own or an open section's in it.
        tag: The heading's tag.

    Returns:
        The heading's frame, in the new section.
    """
    rank, up = int(tag[1]), frame
    frame.sentence = -1
    while isinstance(up, Section) and up.rank >= rank:
        assert up.up is not None
        up = up.up
    up.sentence = -1
    return Frame(tag, Section(tag, up, frame))


def close_heading(heading: Frame) -> Frame:
    """The frame that is open behind a heading; one that shows nothing has opened no section."""
    section = heading.up
    assert isinstance(section, Section)
    assert section.before is not None
    before, section.before = section.before, None
    return section if heading.id >= 0 else before


def container_of(frame: Frame) -> Frame:
    """The frame of the innermost open element, its sections closed."""
    while isinstance(frame, Section):
        assert frame.up is not None
        frame = frame.up
    return frame
