"""The pages of a site, read one by one."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from typing import Any

import numpy as np

from hsa_geo.builders._base_folder import BaseFolder
from hsa_geo.builders._page_arrays import signal_tree
from hsa_geo.builders._page_reader import (
    MAX_IMAGE_BYTES,
    PageOptions,
    Pictures,
    parser_of,
    read_page,
)
from hsa_geo.builders._site_folder import Parts, SiteFolder, resolve, shown
from hsa_geo.builders._site_join import SiteLinks, join_pages
from hsa_geo.builders._source import over_limit, read_markup
from hsa_geo.builders.patches import PatchGrid
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError, HSAWarning, LimitError

__all__ = ["SiteReader"]

_CACHED_BYTES = 2**26  # of decoded pictures, which several pages may show
_NAMED = 3  # pages that a message names


class SiteReader:
    """Reads the pages of a site.

    Args:
        site: The folder.
        paths: The pages to read.
        options: How to read each.
        on_error: ``"skip"`` or ``"raise"``.
        max_bytes: Limit on the size of all pages.
        max_leaves: Limit on the leaves of all pages.
    """

    def __init__(
        self,
        site: SiteFolder,
        paths: list[Parts],
        options: PageOptions,
        on_error: str,
        max_bytes: int | None,
        max_leaves: int | None,
    ) -> None:
        self._site, self._paths, self._options, self._on_error = site, paths, options, on_error
        self._max_bytes, self._max_leaves = max_bytes, max_leaves
        site.number(paths)
        self._files = BaseFolder(os.fsdecode(site.root), MAX_IMAGE_BYTES)
        self._pictures = _SitePictures(self._files, options)
        self._links = SiteLinks()
        self._fields: list[dict[str, Any]] = []
        self._read: list[int] = []  # the pages that are in the tree
        self._bytes = self._leaves = 0
        self._skipped = _Notes()
        self._warned: dict[type[Warning], _Notes] = {}
        self._full: tuple[str, str, int] | None = None  # limit, remedy, first page beyond

    def read_all(self) -> None:
        """Read the pages, up to the limits of the site; warnings wait for :meth:`tell`.

        Raises:
            BuilderError: If a page is bad and ``on_error`` is ``"raise"``.
            LimitError: If a page exceeds a limit and ``on_limit`` is ``"error"``.
        """
        for folder, reason in self._site.unread:
            self._skip(f"{shown(folder)}/", reason)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for page, path in enumerate(self._paths):
                self._read_one(page, path)
                for one in caught:
                    notes = self._warned.setdefault(one.category, _Notes())
                    notes.add(shown(path), str(one.message))
                caught.clear()
                if self._full is not None:
                    break

    def _read_one(self, page: int, path: Parts) -> None:
        hrefs: list[str] = []
        try:
            fields = self._page(path, hrefs)
        except LimitError as error:
            if self._options.on_limit == "error":
                raise LimitError(f"page {shown(path)!r}: {error}") from error
            self._skip(shown(path), str(error))
            return
        except (BuilderError, OSError) as error:
            self._skip(shown(path), getattr(error, "strerror", None) or str(error))
            return
        if self._beyond(page, fields):
            return
        assert fields is not None
        if fields["name"] is not None:
            fields["name"][0] = shown(path)
        self._read.append(page)
        self._fields.append(fields)
        targets: Counter[int] = Counter()
        for href, count in Counter(hrefs).items():
            target = resolve(href, self._pictures.folder)
            if target is not None:
                targets[self._site.find(target)] += count
        del targets[page], targets[-1]
        self._links.add(page, targets)

    def _page(self, path: Parts, hrefs: list[str]) -> dict[str, Any] | None:
        """The fields of one page, or None if the site's bytes are used up."""
        options = self._options
        data, size = self._files.head(os.fsdecode(b"/".join(path)), options.max_bytes)
        self._bytes += size
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            return None
        markup = read_markup(
            data,
            options.charset,
            max_bytes=options.max_bytes,
            max_nesting=options.max_nesting,
            on_limit=options.on_limit,
            size=size,
        )
        parser = parser_of(markup)
        self._pictures.start_page(_folder_of_references(parser, path[:-1]))
        nodes = read_page(parser, options, self._pictures, hrefs)
        return nodes.fields(options.hash_buckets, options.patch_size, options.names)

    def _beyond(self, page: int, fields: dict[str, Any] | None) -> bool:
        """Whether a page does not fit into the site's limits any more."""
        if fields is None:
            self._full = f"max_site_bytes={self._max_bytes} bytes", "raise max_site_bytes", page
            return True
        self._leaves += len(fields["leaf_kind"])
        if self._max_leaves is not None and self._leaves > self._max_leaves:
            self._full = f"max_site_leaves={self._max_leaves} leaves", "raise max_site_leaves", page
            return True
        return False

    def _skip(self, name: str, reason: str) -> None:
        if self._on_error == "raise":
            raise BuilderError(f"page {name!r}: {reason}")
        self._skipped.add(name, reason)

    def tell(self) -> None:
        """Say what was left out: called by the builder itself, whose caller is warned.

        Raises:
            LimitError: If the site exceeds a limit and ``on_limit`` is ``"error"``.
        """
        if self._full is not None:
            limit, remedy, page = self._full
            name, rest = shown(self._paths[page]), len(self._paths) - page
            over_limit(
                self._options.on_limit,
                f"the pages of the site up to {name!r} have more than {limit}",
                remedy,
                f"the last {rest} of {len(self._paths)} pages, from that one on",
            )
        if self._skipped.count:
            warnings.warn(
                f"left out {self._skipped.count} of {len(self._paths)} pages, which show nothing "
                f"or cannot be read: {self._skipped}.",
                HSAWarning,
                stacklevel=3,
            )
        for category, notes in self._warned.items():
            warnings.warn(f"{notes.count} warnings: {notes}", category, stacklevel=3)

    def tree(self) -> SignalTree:
        """The tree of the pages that were read.

        Raises:
            BuilderError: If there is none.
        """
        if not self._fields:
            why = f": {self._skipped}" if self._skipped.count else ""
            raise BuilderError(f"none of {len(self._paths)} pages of the site is left{why}.")
        joined = join_pages(self._fields)
        node = np.full(len(self._paths), -1)
        node[self._read] = joined["page_node"]
        joined["tree_link"], joined["tree_link_weight"] = self._links.among(node)
        return signal_tree(**joined)


class _Notes:
    """Pages and what is to be said of them: a count, and the first few."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def add(self, name: str, note: str) -> None:
        self.count += 1
        if self.count <= _NAMED:
            self.first.append(f"{name!r} ({note.rstrip('.')})")

    def __str__(self) -> str:
        more = self.count - len(self.first)
        return "; ".join([*self.first, *([f"and {more} more"] if more else [])])


class _SitePictures(Pictures):
    """Decodes the images of one page after the other; files that several pages show once.

    Attributes:
        folder: Where the page's references start from; None if that is outside.
    """

    def __init__(self, files: BaseFolder, options: PageOptions) -> None:
        super().__init__(files, options.patch_size, options.max_side)
        self.folder: Parts | None = ()
        self._grids: dict[Parts, PatchGrid | None] = {}
        self._bytes = 0

    def start_page(self, folder: Parts | None) -> None:
        """Begin with a page."""
        self.folder, self.seen, self.too_large = folder, {}, 0

    def from_file(self, src: str) -> PatchGrid | None:
        path = resolve(src, self.folder)
        if not path or self.files is None:
            return None
        if path not in self._grids:
            grid = self.decode(self.files.read_name(os.fsdecode(b"/".join(path))))
            self._bytes += 200 if grid is None else grid.patches.nbytes + 200
            if self._bytes > _CACHED_BYTES:
                self._grids, self._bytes = {}, 0
            self._grids[path] = grid
        return self._grids[path]


def _folder_of_references(parser: Any, own: Parts) -> Parts | None:
    """The folder that a page's references start from: its own, or that of ``<base href>``."""
    base = parser.css_first("base[href]")
    if base is None:
        return own
    path = re.split(r"[?#]", (base.attributes.get("href") or "").strip(), maxsplit=1)[0]
    folder = path[: path.rfind("/") + 1]
    if not folder:
        return None if ":" in path else own
    return resolve(folder, own)
