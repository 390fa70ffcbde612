"""Web pages as signal trees: a page as a person sees it.

The rules, once:

- The root is the page (named ``html``).  Its first child holds the words of ``<title>``, as on
  the browser's tab; the rest is the body.
- Block elements are inner nodes; text in them is *sentences* (inner nodes) of *words* (leaves).
  A sentence ends at ``. ! ?`` before a blank and no small letter, at ``<br>``, and where a block
  starts or ends.  :mod:`hsa_geo.builders.tokens` says what a word is; punctuation is left out.
- Links are inner nodes within their sentence.  Other inline and unknown elements are transparent.
- Form controls are leaves, except ``<input type=hidden>``, which nobody sees.  An image is a leaf
  with its alternative text; where the file can be read, an inner node with that leaf and a grid
  of patches.  ``<svg>`` is an image leaf and its texts.  audio, video, canvas, iframe and the
  like are leaves with their title.
- What is not displayed leaves no trace: script, style, template, noscript, comments, the
  ``hidden`` attribute, ``display:none`` or ``visibility:hidden`` in a ``style`` attribute,
  closed dialogs, counters of one pixel.  Style sheets are not applied; a closed ``<details>`` is
  walked.
- Children of every node are a sequence; ``tree_pos[:, 0]`` is the index among siblings.  Patches
  lie on a grid with (row, column).
- With ``tables="grid"`` the children of a ``<table>`` are its caption, wherever it stands, and
  ``cells``, a grid of the cells (``td``, ``th``) with (row, column) as browsers lay them out: a
  cell that spans rows or columns stands at the first, and the next ones move on; rows of
  ``<tfoot>`` count last; a cell that shows nothing leaves its place free.  Rows have no node.  A
  table in a cell is a grid of its own.
- With ``sets=`` the elements named have a set of children, all at position zero, unless they
  hold words of their own, outside links and further elements: text has an order.  A line of
  nothing but links, controls and images in such an element is a set as well.  ``"boxes"`` means
  ``html``, ``body``, ``div``, ``main``, ``section``, ``article``, ``aside``, ``nav``, ``header``,
  ``footer``, ``search``, ``center``, ``hgroup``, ``figure``, ``fieldset``, ``form``, ``dialog``
  and ``frameset``.
- With ``sectioning=True`` a heading that shows something opens a section (``section[h2]``): it
  holds the heading and what follows in the same element, up to the next heading there of the
  same or a higher rank.
- Controls belong to the form that contains them in the DOM, no matter what ``form="id"`` says.
  A form that the parser leaves empty in a table (``<table><form><tr>``) is stood for by the
  table or row around it, the first such form there; a second one has no node.

Example:
    >>> tree = from_html("<title>Log in</title><p>Please log in.</p><form><input name=user></form>")
    >>> tree.tree_name
    ['Log', 'in', 'Please', 'log', 'in', 'input[text] user', 'p', 'form', 'title', 'body', 'html']
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders._html_walk import stands_for_form
from hsa_geo.builders._page_lists import LeafKind
from hsa_geo.builders._page_reader import (
    MAX_IMAGE_BYTES,
    PageOptions,
    Pictures,
    check_limits,
    folder_of,
    parser_of,
    read_page,
)
from hsa_geo.builders._source import read_markup
from hsa_geo.builders.tokens import HASH_BUCKETS, Field
from hsa_geo.data import SignalTree

__all__ = ["Field", "LeafKind", "form_elements", "form_fields", "from_html", "parse_html"]

_CONTROLS = "input,select,textarea,button"


def parse_html(
    source: bytes | str | os.PathLike[str],
    charset: str | None = None,
    *,
    max_bytes: int | None = 2**25,
    max_nesting: int | None = 10_000,
    on_limit: str = "error",
) -> Any:
    """Parse a page as a browser with scripting does (so ``<noscript>`` holds no elements).

    Args:
        source, charset, max_bytes, max_nesting, on_limit: As for :func:`from_html`.

    Returns:
        The ``selectolax.lexbor.LexborHTMLParser``.

    Raises:
        BuilderError: If the source cannot be read as a page.
        LimitError: If it exceeds a limit.
        MissingPackageError: If selectolax is not installed, or older than 1.0.1.

    Warns:
        DecodingWarning: If bytes cannot be decoded in the page's charset.

    Example:
        >>> parse_html("<p>Hello").css_first("p").text()
        'Hello'
    """
    check_limits(on_limit, max_bytes=max_bytes, max_nesting=max_nesting)
    return parser_of(
        read_markup(
            source, charset, max_bytes=max_bytes, max_nesting=max_nesting, on_limit=on_limit
        )
    )


def form_elements(parser: Any) -> list[Any]:
    """The element that stands for every form, in document order.

    Args:
        parser: What :func:`parse_html` returned.

    Returns:
        For each ``<form>`` itself, or the table or row around it if the parser left it empty
        there and no form before it has taken that one.

    Example:
        >>> page = parse_html("<form>a</form><table><form><tr><td><input></table>")
        >>> [element.tag for element in form_elements(page)]
        ['form', 'table']
    """
    elements, taken = [], set()
    for form in parser.css("form"):
        if stands_for_form(form) and form.parent.mem_id not in taken:
            form = form.parent
            taken.add(form.mem_id)
        elements.append(form)
    return elements


def form_fields(parser: Any) -> list[list[str]]:
    """The names of the visible fields of every form, in document order.

    Args:
        parser: What :func:`parse_html` returned.

    Returns:
        For each ``<form>`` the distinct ``name`` attributes of its inputs (not hidden), selects,
        text areas and buttons; ``form_order`` of :func:`from_html` counts the same forms.

    Example:
        >>> form_fields(parse_html("<form><input name=q><input type=hidden name=h></form>"))
        [['q']]
    """
    fields = []
    for form in form_elements(parser):
        names: dict[str, None] = {}
        for node in form.css(_CONTROLS):
            attributes = node.attributes
            kind = (attributes.get("type") or "").strip().lower()
            if attributes.get("name") and not (node.tag == "input" and kind == "hidden"):
                names[attributes["name"]] = None
        fields.append(list(names))
    return fields


def from_html(
    source: bytes | str | os.PathLike[str],
    *,
    charset: str | None = None,
    base: str | os.PathLike[str] | None = None,
    images: bool = True,
    patch_size: int = 8,
    max_side: int = 64,
    hash_buckets: int = HASH_BUCKETS,
    field_tokens: int = 64,
    form_tokens: bool = False,
    include_hidden: bool = False,
    tables: str = "sequence",
    sets: str | Iterable[str] = (),
    sectioning: bool = False,
    collapse: bool = True,
    names: bool = True,
    max_bytes: int | None = 2**25,
    max_nesting: int | None = 10_000,
    max_depth: int | None = 1024,
    max_leaves: int | None = 2**17,
    on_limit: str = "error",
) -> SignalTree:
    r"""Turn a web page into a signal tree (the rules stand in the module's docstring).

    Nothing is fetched, ever.  Files are read only inside ``base``.

    Args:
        source: The page: bytes, markup (a str is never taken for a path), or a path to read.
        charset: Charset of bytes and files as told by the transport (HTTP header); overrides
            what the page declares. (default: as a browser detects it)
        base: Folder in which image files may be read, relative to which ``src`` is resolved.
            (default: :obj:`None`, no file is read)
        images: Decode images, those in ``data:`` URIs included. (default: :obj:`True`)
        patch_size: Side p of a patch in pixels. (default: 8)
        max_side: Longest side in pixels that an image is reduced to. (default: 64)
        hash_buckets: Number of buckets that tokens are hashed into. (default: ``2**14``)
        field_tokens: At most that many tokens of each field of a leaf that is no word; a
            warning says how many more there were. (default: 64)
        form_tokens: Give every control its form's id, name, class and action as tokens
            (``Field.FORM``), though nobody sees them. (default: :obj:`False`)
        include_hidden: Walk also what the page itself hides (``hidden``, ``display:none``,
            closed dialogs). (default: :obj:`False`)
        tables: ``"grid"`` puts the cells of a table on a grid; ``"sequence"`` makes rows of
            cells. (default: ``"sequence"``)
        sets: Tags of elements whose children are a set, such as ``("nav", "ul")``, and
            ``"boxes"`` for all elements that lay a page out. (default: none)
        sectioning: Headings open sections. (default: :obj:`False`)
        collapse: Remove inner nodes with a single child (never a form), which carry nothing; the
            lowest of a chain stays and gives the name. (default: :obj:`True`)
        names: Keep ``tree_name``. (default: :obj:`True`)
        max_bytes: Limit on the page's size in bytes. (default: 32 MiB)
        max_nesting: Limit on elements open at once; the parser's time grows with its square.
            (default: 10,000)
        max_depth: Limit on the tree's depth. (default: 1024)
        max_leaves: Limit on the number of leaves. (default: 131,072)
        on_limit: ``"error"`` raises beyond a limit; ``"truncate"`` leaves out what is beyond
            and warns how much that was. (default: ``"error"``)

    Returns:
        The tree, with

        - ``text_x [T, 2]`` int64, ``text_index [T]``: tokens of the leaves, sorted by leaf:
          bucket and :class:`Field`; several rows a leaf, none for patches.
        - ``image_x [P, 3 * p * p]`` uint8, ``image_index [P]``: pixels of the patches (channel
          first); empty where the page shows no readable image.
        - ``leaf_kind [N]`` int64: :class:`LeafKind`.
        - ``form_node [K]``: node of every form that shows a leaf; ``form_order [K]``: its
          number among all forms of the page, as in :func:`form_fields`.
        - ``tree_name``: tag of an inner node (``sentence`` and ``patches`` besides, ``cells`` and
          ``section[h1]`` on request), the word or a readable description of a leaf.

    Raises:
        BuilderError: If nothing of the page is visible, the source cannot be read as a page, or
            an argument is out of range.
        LimitError: If a limit is exceeded and ``on_limit`` is ``"error"``.
        MissingPackageError: If selectolax or, for images, Pillow is not installed.
        OSError: If the file cannot be read.

    Warns:
        DecodingWarning: If bytes cannot be decoded in the page's charset; their characters are
            lost.
        TruncationWarning: If something is left out: once for what ``on_limit="truncate"`` cuts
            off, and once, whatever ``on_limit`` says, for the tokens beyond ``field_tokens`` and
            the images too large to decode.

    Example:
        >>> tree = from_html(b"<h1>Search</h1><form><input name=q placeholder='your words'></form>")
        >>> tree.num_leaves, tree.form_node.tolist(), tree.leaf_kind.tolist()
        (2, [2], [0, 1])
        >>> [Field(f).name for f in tree.text_x[tree.text_index == 1, 1].tolist()]
        ['TAG', 'TYPE', 'NAME', 'PLACEHOLDER', 'PLACEHOLDER']
    """
    options = PageOptions.of(locals())
    folder = None if base is None else BaseFolder(folder_of(base, "base"), MAX_IMAGE_BYTES)
    parser = parse_html(
        source, charset, max_bytes=max_bytes, max_nesting=max_nesting, on_limit=on_limit
    )
    nodes = read_page(parser, options, Pictures(folder, patch_size, max_side))
    return nodes.tree(hash_buckets, patch_size, names)
