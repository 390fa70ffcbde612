"""Web sites as signal trees: site, pages, boxes, words and pixels.

The rules, once:

- The root (named ``site``) stands for the folder; its children are the pages, whose domain is a
  GRAPH.  Each page is what :func:`~hsa_geo.builders.from_html` makes of it, named by its path.
- Pages are the regular ``.html`` and ``.htm`` files of the folder and the folders in it, sorted
  by path.  Left out are hidden files and folders, symbolic links to folders, and symbolic links
  to anything outside.
- A link is an ``<a href>`` that is walked (not hidden) and names another page: resolved as
  browsers do against the page's folder or its ``<base href>``, percent-decoded, without query
  and fragment.  The folder is the site's ``/``; a folder's page is its ``index.html`` or
  ``index.htm``.  A reference that has a scheme or a host, or climbs out of the folder, names no
  page; links of a page to itself are no links.
- ``<img src>`` is resolved alike.  Nothing outside the folder is read, and nothing is fetched.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "index.html").write_text("<p>See <a href=news.html>the news</a>.")
    ...     _ = Path(folder, "news.html").write_text("<p>We moved. <a href='./'>Back home</a>")
    ...     tree = from_site(folder)
    >>> [tree.tree_name[node] for node in tree.page_node.tolist()]
    ['index.html', 'news.html']
    >>> tree.page_node.tolist(), tree.tree_link.tolist(), tree.tree_link_weight.tolist()
    ([10, 11], [[10, 11], [11, 10]], [1.0, 1.0])
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from hsa_geo.builders._page_reader import PageOptions, check_limits, folder_of
from hsa_geo.builders._site_folder import Parts, SiteFolder, shown
from hsa_geo.builders._site_reader import SiteReader
from hsa_geo.builders._source import over_limit
from hsa_geo.builders.tokens import HASH_BUCKETS
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError

__all__ = ["from_site"]


def from_site(
    folder: str | os.PathLike[str],
    *,
    pages: Iterable[str | os.PathLike[str]] | None = None,
    max_pages: int | None = 10_000,
    max_site_bytes: int | None = 2**31,
    max_site_leaves: int | None = 2**25,
    on_error: str = "skip",
    charset: str | None = None,
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
    r"""Turn a folder of web pages into one signal tree (the rules stand in the module's docstring).

    Args:
        folder: The folder.
        pages: Paths in it of the pages to take, in this order, whatever their suffix.
            (default: all, sorted)
        max_pages: Limit on the number of pages. (default: 10,000)
        max_site_bytes: Limit on the size of all pages together. (default: 2 GiB)
        max_site_leaves: Limit on the number of leaves of all pages together. (default: 2**25)
        on_error: What to do with a page that shows nothing or cannot be read: ``"skip"`` leaves it
            out, with a warning, ``"raise"`` raises. (default: ``"skip"``)
        charset, images, patch_size, max_side, hash_buckets, field_tokens, form_tokens: As for
            :func:`~hsa_geo.builders.from_html`.
        include_hidden, tables, sets, sectioning, collapse, names: Likewise.
        max_bytes, max_nesting, max_depth, max_leaves: Limits of each page, likewise.
        on_limit: ``"error"`` raises beyond a limit; ``"truncate"`` leaves out what is beyond, of
            a page or the last pages, and warns how much that was. (default: ``"error"``)

    Returns:
        The tree, with the keys of :func:`~hsa_geo.builders.from_html` (``form_order`` counts the
        forms of each page from 0), and

        - ``page_node [K]`` int64: nodes of the pages, in their order.
        - ``tree_link [2, E]`` int64: pairs of pages joined by links, from row 0 to row 1, each
          pair once; ``tree_link_weight [E]`` float32: the number of links.

    Raises:
        BuilderError: If no page of the folder shows anything, a page is bad and ``on_error`` is
            ``"raise"``, or an argument is out of range.
        LimitError: If a limit is exceeded and ``on_limit`` is ``"error"``; it names the page.
        MissingPackageError: If selectolax or, for images, Pillow is not installed.

    Warns:
        HSAWarning: If pages are skipped; once, naming the first.
        DecodingWarning, TruncationWarning: As :func:`~hsa_geo.builders.from_html`, once for all
            pages, naming the first.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "a.html").write_text("<p>See <a href=b.html>there</a>.")
        ...     _ = pathlib.Path(folder, "b.html").write_text("<p>Here.")
        ...     site = from_site(folder)
        >>> site.num_leaves, [site.tree_name[node] for node in site.tree_link[:, 0].tolist()]
        (3, ['a.html', 'b.html'])
    """
    options = PageOptions.of(locals())
    check_limits(
        on_limit,
        max_pages=max_pages,
        max_site_bytes=max_site_bytes,
        max_site_leaves=max_site_leaves,
    )
    if on_error not in ("skip", "raise"):
        raise BuilderError(f'on_error={on_error!r} is neither "skip" nor "raise".')
    site = SiteFolder(folder_of(folder, "folder"))
    paths = _paths(site, pages, max_pages, on_limit)
    reader = SiteReader(site, paths, options, on_error, max_site_bytes, max_site_leaves)
    reader.read_all()
    reader.tell()
    return reader.tree()


def _paths(site: SiteFolder, pages: Any, max_pages: int | None, on_limit: str) -> list[Parts]:
    """The pages to read."""
    if pages is None:
        paths = site.list_pages()
        if not paths:
            raise BuilderError(
                f"the folder {os.fsdecode(site.root)!r} holds no .html or .htm file: give another, "
                "or name its pages with pages=."
            )
    else:
        if isinstance(pages, (str, bytes)) or not isinstance(pages, Iterable):
            raise BuilderError(f"pages={pages!r} is no list of paths: give one, or None.")
        paths = []
        for name in pages:
            path = site.given_page(name)
            if path is None:
                raise BuilderError(
                    f"pages names {name!r}, which is no file in the folder: give relative paths."
                )
            paths.append(path)
        if len(set(paths)) < len(paths) or not paths:
            raise BuilderError("pages is empty or names a page twice: name each page once.")
    if max_pages is not None and len(paths) > max_pages:
        over_limit(
            on_limit,
            f"the site has {len(paths)} pages, more than max_pages={max_pages}",
            "raise max_pages",
            f"the last {len(paths) - max_pages} pages, from {shown(paths[max_pages])!r} on",
        )
        paths = paths[:max_pages]
    return paths
