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
import warnings
from pathlib import Path
from typing import Any

from hsa_geo._optional import require
from hsa_geo.builders._base_folder import BaseFolder, data_uri_bytes
from hsa_geo.builders._html_walk import PageWalk, stands_for_form
from hsa_geo.builders._page_arrays import PageArrays
from hsa_geo.builders._page_lists import LeafKind
from hsa_geo.builders._source import read_markup
from hsa_geo.builders.patches import MAX_PIXELS, PatchGrid, image_patches
from hsa_geo.builders.tokens import HASH_BUCKETS, Field
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, LimitError, MissingPackageError, TruncationWarning

__all__ = ["Field", "LeafKind", "form_elements", "form_fields", "from_html", "parse_html"]

#: Largest image file that is read.
MAX_IMAGE_BYTES = 2**25
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
    _check_limits(on_limit, max_bytes=max_bytes, max_nesting=max_nesting)
    lexbor = require("selectolax.lexbor", extra="html", purpose="reading HTML")
    markup = read_markup(
        source, charset, max_bytes=max_bytes, max_nesting=max_nesting, on_limit=on_limit
    )
    try:
        # Without mutation events (1): they make a long <select> take quadratic time.
        return lexbor.LexborHTMLParser(markup, options=1, scripting=True)
    except TypeError as error:
        raise MissingPackageError(
            f"reading HTML needs selectolax 1.0.1 or later ({error}): run "
            "`pip install --upgrade 'hsa_geo[html]'`."
        ) from error


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
        - ``tree_name``: tag of an inner node (``sentence`` and ``patches`` besides), the word or
          a readable description of a leaf.

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
    _check_limits(on_limit, max_depth=max_depth, max_leaves=max_leaves)
    _check_limits(
        on_limit,
        patch_size=patch_size,
        max_side=max_side,
        hash_buckets=hash_buckets,
        field_tokens=field_tokens,
    )
    if base is not None and not Path(base).is_dir():
        raise BuilderError(f"base={os.fspath(base)!r} is not a folder: give one, or None.")
    parser = parse_html(
        source, charset, max_bytes=max_bytes, max_nesting=max_nesting, on_limit=on_limit
    )
    pictures = _Pictures(base, patch_size, max_side)
    walk = PageWalk(
        parser,
        buckets=hash_buckets,
        field_tokens=field_tokens,
        include_hidden=include_hidden,
        form_tokens=form_tokens,
        picture=pictures if images else lambda src: None,
    )
    _tell_left_out(walk.left_out, field_tokens, pictures.too_large)
    nodes = PageArrays(walk)
    if not nodes.inner[1:].size or nodes.inner.all():
        raise BuilderError(
            "the page shows nothing: no word, image or form control is visible (punctuation and "
            "symbols are not words); skip it, or pass include_hidden=True if its content waits "
            "for a script."
        )
    nodes.limit_leaves(max_leaves, on_limit)
    if collapse:
        nodes.collapse()
    nodes.limit_depth(max_depth, on_limit, collapse)
    return nodes.tree(hash_buckets, patch_size, names)


def _tell_left_out(tokens: int, field_tokens: int, images: int) -> None:
    """One warning for all that the limits on single leaves cut off."""
    parts = []
    if tokens:
        parts.append(f"{tokens} tokens of controls and images beyond field_tokens={field_tokens}")
    if images:
        parts.append(
            f"the pixels of {images} images of more than {MAX_IMAGE_BYTES >> 20} MiB or "
            f"{MAX_PIXELS >> 20} Mi pixels"
        )
    if parts:
        warnings.warn(
            f"left out {' and '.join(parts)}: raise field_tokens, or shrink the images, if they "
            "matter.",
            TruncationWarning,
            stacklevel=3,
        )


def _check_limits(on_limit: str, **limits: int | None) -> None:
    if on_limit not in ("error", "truncate"):
        raise BuilderError(f'on_limit={on_limit!r} is neither "error" nor "truncate".')
    for name, value in limits.items():
        if value is not None and value < 1:
            raise BuilderError(f"{name}={value!r} leaves nothing: give at least 1.")


class _Pictures:
    """Decodes the images of one page, each source once."""

    def __init__(self, base: str | os.PathLike[str] | None, patch: int, side: int) -> None:
        self.folder = BaseFolder(base, MAX_IMAGE_BYTES) if base is not None else None
        self.patch, self.side = patch, side
        self.seen: dict[str, PatchGrid | None] = {}
        self.too_large = 0  # images left undecoded for their size

    def __call__(self, src: str) -> PatchGrid | None:
        if src not in self.seen:
            try:
                self.seen[src] = self._grid(src)
            except LimitError:
                self.seen[src] = None
                self.too_large += 1
        return self.seen[src]

    def _grid(self, src: str) -> PatchGrid | None:
        data = data_uri_bytes(src, MAX_IMAGE_BYTES)
        if data is None and self.folder is not None:
            data = self.folder.read(src)
        if not data:
            return None
        return image_patches(data, patch_size=self.patch, max_side=self.side)
