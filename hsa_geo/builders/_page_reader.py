"""How a parsed page is read, with the options of :func:`~hsa_geo.builders.from_html`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from hsa_geo._optional import require
from hsa_geo.builders._arguments import check_choice, check_flags, check_size, shown
from hsa_geo.builders._base_folder import BaseFolder, data_uri_bytes
from hsa_geo.builders._html_tags import BLOCK_TAGS, BOXES, TABLE_PARTS
from hsa_geo.builders._html_walk import PageWalk
from hsa_geo.builders._page_arrays import PageArrays
from hsa_geo.builders.patches import MAX_PIXELS, PatchGrid, image_patches
from hsa_geo.builders.tokens import HASH_BUCKETS
from hsa_geo.errors import BuilderError, LimitError, MissingPackageError, TruncationWarning

__all__ = [
    "MAX_IMAGE_BYTES",
    "PageOptions",
    "Pictures",
    "check_limits",
    "folder_of",
    "parser_of",
    "read_page",
]

#: Largest patch, in pixels a side.
MAX_PATCH = 4096
#: Largest image file that is read.
MAX_IMAGE_BYTES = 2**25


@dataclass(frozen=True)
class PageOptions:
    """The options of :func:`~hsa_geo.builders.from_html` that a page is read with, checked."""

    charset: str | None = None
    images: bool = True
    patch_size: int = 8
    max_side: int = 64
    hash_buckets: int = HASH_BUCKETS
    field_tokens: int = 64
    form_tokens: bool = False
    include_hidden: bool = False
    tables: str = "sequence"
    sets: str | Iterable[str] = ()
    sectioning: bool = False
    collapse: bool = True
    names: bool = True
    max_bytes: int | None = 2**25
    max_nesting: int | None = 10_000
    max_depth: int | None = 1024
    max_leaves: int | None = 2**17
    on_limit: str = "error"

    def __post_init__(self) -> None:
        limits = ("max_depth", "max_leaves", "max_bytes", "max_nesting")
        check_limits(self.on_limit, **{key: getattr(self, key) for key in limits})
        check_size("patch_size", self.patch_size, most=MAX_PATCH)
        for key in ("max_side", "hash_buckets", "field_tokens"):
            check_size(key, getattr(self, key))
        flags = ("images", "form_tokens", "include_hidden", "sectioning", "collapse", "names")
        check_flags(**{key: getattr(self, key) for key in flags})
        check_choice("tables", self.tables, ("sequence", "grid"))
        object.__setattr__(self, "sets", _set_tags(self.sets, self.tables == "grid"))

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> PageOptions:
        """Those among the arguments of a call that are options."""
        return cls(**{one.name: arguments[one.name] for one in fields(cls)})


def parser_of(markup: str) -> Any:
    """Parse markup.

    Args:
        markup: What :func:`~hsa_geo.builders._source.read_markup` returned.

    Returns:
        The ``selectolax.lexbor.LexborHTMLParser``.

    Raises:
        MissingPackageError: If selectolax is not installed, or older than 1.0.1.
    """
    lexbor = require("selectolax.lexbor", extra="html", purpose="reading HTML")
    try:
        # Without mutation events (1): they make a long <select> take quadratic time.
        return lexbor.LexborHTMLParser(markup, options=1, scripting=True)
    except TypeError as error:
        raise MissingPackageError(
            f"reading HTML needs selectolax 1.0.1 or later ({error}): run "
            "`pip install --upgrade 'hsa_geo[html]'`."
        ) from error


def read_page(
    parser: Any,
    options: PageOptions,
    pictures: Pictures,
    links: list[str] | None = None,
) -> PageArrays:
    """Walk a page, and apply its limits.

    Args:
        parser: The parsed page.
        options: How to read it.
        pictures: Where its images come from.
        links: Where to note the ``href`` of its links, if anywhere.

    Returns:
        Its nodes.

    Raises:
        BuilderError: If the page shows nothing.
        LimitError: If a limit is exceeded and ``on_limit`` is ``"error"``.
    """
    walk = PageWalk(
        parser,
        buckets=options.hash_buckets,
        field_tokens=options.field_tokens,
        include_hidden=options.include_hidden,
        form_tokens=options.form_tokens,
        picture=pictures if options.images else lambda src: None,
        grid=options.tables == "grid",
        sectioning=options.sectioning,
        links=links,
    )
    _tell_left_out(walk.left_out, options.field_tokens, pictures.too_large)
    nodes = PageArrays(walk, frozenset(options.sets))
    if not nodes.inner[1:].size or nodes.inner.all():
        raise BuilderError(
            "the page shows nothing: no word, image or form control is visible (punctuation and "
            "symbols are not words); skip it, or pass include_hidden=True if its content waits "
            "for a script."
        )
    nodes.limit_leaves(options.max_leaves, options.on_limit)
    if options.collapse:
        nodes.collapse()
    nodes.limit_depth(options.max_depth, options.on_limit, options.collapse)
    return nodes


def _set_tags(sets: Any, grid: bool) -> frozenset[str]:
    """The tags that ``sets`` means."""
    try:
        given = [sets] if isinstance(sets, str) else list(sets)
    except TypeError:
        raise BuilderError(f"sets={shown(sets)} is no tag and no collection of tags.") from None
    for tag in given:
        if not isinstance(tag, str) or (tag != "boxes" and tag not in BLOCK_TAGS):
            raise BuilderError(
                f"sets={shown(sets)} names {shown(tag)}, which is no element with a node of its "
                'own: give tags such as "nav", "ul" or "div", or "boxes".'
            )
        if grid and tag in TABLE_PARTS:
            raise BuilderError(
                f'sets={shown(sets)} names {tag!r}, but tables="grid" puts the cells of a '
                'table on a grid: leave it out, or give tables="sequence".'
            )
    return frozenset(given) - {"boxes"} | (BOXES if "boxes" in given else frozenset())


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
            stacklevel=4,
        )


def check_limits(on_limit: str, **limits: int | None) -> None:
    """Raise unless ``on_limit`` is known and every limit is at least 1, or None.

    Raises:
        BuilderError: If not; it names the argument.
    """
    check_choice("on_limit", on_limit, ("error", "truncate"))
    for name, value in limits.items():
        if value is not None:
            check_size(name, value, most=2**10_000)


def folder_of(path: Any, name: str) -> str:
    """The path of a folder that an argument names.

    Raises:
        BuilderError: If it is none.
    """
    try:
        folder = os.fsdecode(path)
        if os.path.isdir(folder):
            return folder
    except (TypeError, ValueError):
        folder = path
    raise BuilderError(f"{name}={shown(folder)} is not a folder: give the path of one.")


class Pictures:
    """Decodes the images of one page, each source once.

    Args:
        files: Where image files may be read, if anywhere.
        patch: Side of a patch in pixels.
        side: Longest side in pixels that an image is reduced to.

    Attributes:
        too_large: Number of images left undecoded for their size.
    """

    def __init__(self, files: BaseFolder | None, patch: int, side: int) -> None:
        self.files, self.patch, self.side = files, patch, side
        self.seen: dict[str, PatchGrid | None] = {}
        self.too_large = 0

    def __call__(self, src: str) -> PatchGrid | None:
        if src not in self.seen:
            try:
                data = data_uri_bytes(src, MAX_IMAGE_BYTES)
                self.seen[src] = self.decode(data) if data else self.from_file(src)
            except LimitError:
                self.seen[src] = None
                self.too_large += 1
        return self.seen[src]

    def from_file(self, src: str) -> PatchGrid | None:
        """The image in a file that a page names."""
        return None if self.files is None else self.decode(self.files.read(src))

    def decode(self, data: bytes | None) -> PatchGrid | None:
        """The image in an image file's bytes."""
        if not data:
            return None
        return image_patches(data, patch_size=self.patch, max_side=self.side)
