"""The HTML document around a report: one file, no network, and no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from hsa_geo.explain.report.reading import as_text, escaped

__all__ = ["document", "packed", "table_html"]

_HERE = Path(__file__).parent


@cache
def _resource(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _policy() -> str:
    """Nothing from anywhere; pictures within the page; the one style and the one script by hash."""

    def hashed(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{hashed(_resource('page.css'))}'; "
        f"script-src 'sha256-{hashed(_resource('page.js'))}'"
    )


def packed(values: np.ndarray, dtype: str) -> str:
    """Numbers as text, little-endian as browsers on all usual machines read them.

    Args:
        values: Numbers.
        dtype: ``"uint32"`` or the like.

    Returns:
        Base64.

    Example:
        >>> packed(np.array([1, 2]), "uint16")
        'AQACAA=='
    """
    kind = np.dtype(dtype).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode()


def json_text(data: Any) -> str:
    """JSON that can stand inside a ``<script>``: it has no ``<``, ``>`` or ``&``.

    Example:
        >>> json_text("</script><!--")
        '"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def table_html(heads: list[str], rows: list[list[Any]]) -> str:
    """A table; cells that are numbers are written as such, all others as text.

    Args:
        heads: Heads of the columns.
        rows: Cells; a pair (text, place) is a button that shows the node at that place.

    Returns:
        HTML.

    Example:
        >>> table_html(["<a>"], [[1234]])
        '<table><tr><th scope="col">&lt;a&gt;</th></tr><tr><td>1,234</td></tr></table>'
    """

    def cell(value: Any) -> str:
        if isinstance(value, tuple):
            text, place = value
            return f'<button class="link" data-go="{int(place)}">{escaped(text)}</button>'
        return escaped(value if isinstance(value, str) else as_text(value))

    head = "".join(f'<th scope="col">{escaped(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell(c)}</td>' for c in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def document(title: str, data: dict[str, Any], **parts: str) -> str:
    """The whole file.

    Args:
        title: Its title, any text.
        data: What the script reads.
        **parts: HTML of ``summary``, ``remarks``, ``answers``, ``cost``, ``views``, ``page``,
            ``attention``, ``parts`` and ``notes``.

    Returns:
        HTML.

    Example:
        >>> names = ["summary", "remarks", "answers", "cost", "views", "page"]
        >>> names += ["attention", "parts", "notes"]
        >>> "<title>&lt;x&gt;</title>" in document("<x>", {}, **dict.fromkeys(names, ""))
        True
    """
    return Template(_resource("page.html")).substitute(
        parts,
        title=escaped(title),
        policy=_policy(),
        style=_resource("page.css"),
        script=_resource("page.js"),
        data=json_text(data),
    )
