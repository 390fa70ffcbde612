"""Real web pages with the types of their forms, as signal trees.

The pages come with the source distribution of `formasaurus
<https://pypi.org/project/formasaurus/>`_ 0.10.0 (MIT licence): 954 pages of 392 sites, 2,649
forms, of which 1,585 are annotated.  Only its pages, its index and its configuration are
read; the models in it are never touched, and nothing is unpickled.

Example:
    >>> dataset = FormPages("data/form_pages")  # doctest: +SKIP
    >>> page = dataset[0]  # doctest: +SKIP
    >>> page.y, page.form_label  # doctest: +SKIP
    (tensor([[1., 0., 0., 0., 0., 0., 0., 0.]]), tensor([0]))
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import options_dict
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.form_labels import CLASSES, form_codes
from hsa_geo.datasets.form_reading import (
    Annotation,
    Matching,
    label_statistics,
    read_page,
    report_text,
)
from hsa_geo.datasets.form_texts import form_texts, page_text
from hsa_geo.datasets.parts import Part
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import ArchiveError, BuilderError, ShapeError, UnsupportedError

__all__ = ["FormPages"]

#: Pages that one intermediate file holds; a killed run loses at most so many.
PAGES_PER_PART = 64
_NO_INDEX = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class FormPages(StoredTrees):
    r"""954 web pages as trees, with the types of their forms.

    The first use fetches the source distribution through pip (13 MB; pip runs its set-up code
    to read the metadata, after it checked the sha256), checks the sha256 again, unpacks the
    pages and builds the trees.  Without a network put ``formasaurus-0.10.0.tar.gz`` into
    ``root/raw`` by hand.  A run that was killed continues where it was.

    Each tree has the fields of :func:`hsa_geo.builders.from_html` and

    ===============  ==================  =====================================================
    ``page_id``      ``[1]`` int64       number of the page in the distribution
    ``domain_id``    ``[1]`` int64       registered domain, place in :attr:`domains`
    ``site_id``      ``[1]`` int64       host without ``www.``, place in :attr:`sites`
    ``form_label``   ``[K]`` int64       class of each form of ``form_node``, place in
                                         :attr:`classes`; -1 not annotated, -2 skipped by the
                                         annotators
    ``y``            ``[1, 8]`` float32  1 for each class of which the page holds a form (also
                                         a form that no tree node stands for)
    ``y_mask``       ``[1, 8]`` bool     entries of ``y`` that are certain: all if every form
                                         was annotated, else only the ones
    ``complete``     ``[1]`` bool        no form is left without annotation (599 pages);
                                         skipped forms count for nothing
    ===============  ==================  =====================================================

    :meth:`split` keeps the pages of one domain on one side, as they share their templates.  A page
    may hold forms of several classes, so it is not stratified; and it deals out all pages: test
    on those that are ``complete``.

    Args:
        root: Folder that holds ``raw`` and ``processed``.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing; may add tensors. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress and the report while building. (default: :obj:`True`)
        options: Keyword arguments of :func:`hsa_geo.builders.from_html`, e.g.
            ``{"include_hidden": True}`` (many labelled forms are hidden until a click).  Trees
            of different options are stored side by side. (default: none)

    Raises:
        DownloadError: If the distribution cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        MissingPackageError: If selectolax is not installed.

    Example:
        >>> dataset = FormPages("data/form_pages")  # doctest: +SKIP
        >>> train, validation, test = dataset.split(fold=0)  # doctest: +SKIP
        >>> test = test[dataset.column("complete").numpy()[test]]  # doctest: +SKIP
    """

    requirement = "formasaurus==0.10.0"
    archive = "formasaurus-0.10.0.tar.gz"
    sha256 = "e2bfdd91ffac16ae3be2238b35e4b221e8902c73d62e85ba1791a02aeec6760d"
    folder = "formasaurus-0.10.0"

    file_name = "form_pages"
    noun = "pages"
    stored = ("domains", "sites")
    raw_needed = True
    group_key = "domain_id"

    #: Names of the classes.
    classes: tuple[str, ...] = CLASSES
    #: What was aligned, counted and left out while building; see ``processed/report.json``.
    report: dict[str, Any]
    #: Names of the registered domains, by ``domain_id``.
    domains: list[str]
    #: Names of the sites, by ``site_id``.
    sites: list[str]

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[SignalTree], Any] | None = None,
        pre_transform: Callable[[SignalTree], SignalTree] | None = None,
        pre_filter: Callable[[SignalTree], bool] | None = None,
        force_reload: bool = False,
        log: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if "base" in options_dict(options):
            raise UnsupportedError("the pages come without images: leave 'base' out of options.")
        super().__init__(root, transform, pre_transform, pre_filter, force_reload, log, options)

    # How pages become trees #################################################

    @property
    def archives(self) -> tuple[Archive, ...]:  # type: ignore[override]
        """The source distribution and what of it is read."""
        name, _, version = self.requirement.partition("==")
        wanted = Archive(
            client="pip-sdist",
            name=name,
            version=version,
            filename=self.archive,
            sha256=self.sha256,
            prefix=f"{self.folder}/formasaurus/data",
            patterns=("index.json", "config.json", "html/*.html"),
            folder=self.folder,
            max_bytes=512 << 20,
            size=13439867,
        )
        return (wanted,)

    @property
    def processed_file_names(self) -> list[str]:
        """The trees, and the report; each appears in one step."""
        trees, _ = super().processed_file_names
        mark = trees.removeprefix(self.file_name).removesuffix(".safetensors")
        return [trees, f"report{mark}.json"]

    @property
    def part_size(self) -> int:  # type: ignore[override]
        """Pages that one intermediate file holds."""
        return PAGES_PER_PART

    def items(self) -> list[Annotation]:
        """What the index says of each page."""
        folder = self.raw()
        try:
            index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
            codes = form_codes(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            pages = [Annotation.from_index(name, entry, codes) for name, entry in index.items()]
        except _NO_INDEX as error:
            raise ArchiveError(
                f"'{folder}' does not hold the index of the pages ({error!r}): remove it, and it "
                "is unpacked again."
            ) from error
        pages.sort(key=lambda page: page.page_id)
        self.domains = sorted({page.domain for page in pages})
        self.sites = sorted({page.site for page in pages})
        self._urls = {page.page_id: page.url for page in pages}
        return pages

    def build(self, items: Iterator[Annotation]) -> Part:
        """Trees of some pages, and how their forms were aligned with the index."""
        trees, failed, how = [], dict[str, str](), Matching()
        for page in items:
            source = self._file(page.page_id).read_bytes()
            try:
                tree, matching = read_page(source, page, self.options)
            except BuilderError as error:
                failed[str(page.page_id)] = f"{type(error).__name__}: {error}"
                continue
            tree.domain_id = torch.tensor([self.domains.index(page.domain)])
            tree.site_id = torch.tensor([self.sites.index(page.site)])
            trees.append(tree)
            how.add(matching)
        return trees, {"failed": failed, "matching": how.to_json()}

    def finish(
        self,
        items: Sequence[Annotation],
        trees: list[SignalTree],
        extras: Sequence[Mapping[str, Any]],
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """The trees, and what the report says of the pages and of their labels."""
        trees, more = super().finish(items, trees, extras)
        how = Matching()
        for extra in extras:
            how.add(Matching.from_json(extra["matching"]))
        counts = {"pages": len(items), "domains": len(self.domains), "sites": len(self.sites)}
        archive = {"requirement": self.requirement, "sha256": self.sha256}
        more = {**label_statistics(items), **more, **how.to_json()}
        return trees, {"archive": archive, **counts, **more}

    def summary(self, report: Mapping[str, Any]) -> str:
        """What was aligned, counted and left out."""
        return report_text(report)

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Set the names of domains and sites, and the addresses."""
        super().restore(extra)
        self._urls = {int(page): url for page, url in extra.get("urls", {}).items()}

    def _extra(self) -> dict[str, Any]:
        return {**super()._extra(), "urls": self._urls}

    def _file(self, page_id: int) -> Path:
        return Path(self.raw_dir, self.folder, "html", f"{page_id}.html")

    # What one asks of the pages #############################################

    def groups(self, by: str = "domain") -> Tensor:
        """Group of every page, for ``GroupKFold`` and the bootstrap.

        Args:
            by: ``"domain"`` for registered domains (356), ``"site"`` for hosts without ``www.``
                (392). (default: :obj:`"domain"`)

        Returns:
            ``[len(self)]`` int64.

        Raises:
            ShapeError: If ``by`` is another word.

        Example:
            >>> dataset.groups().unique().numel()  # doctest: +SKIP
            356
        """
        if by not in ("domain", "site"):
            raise ShapeError(f"by={by!r} is no grouping: use 'domain' or 'site'.")
        return self.column(f"{by}_id")

    def _page_id(self, i: int) -> int:
        return int(self._data.page_id[self.indices()[i]])

    def url(self, i: int) -> str:
        """Address from which page ``i`` was taken.

        Example:
            >>> dataset.url(0)  # doctest: +SKIP
            'http://5kaixin.net/'
        """
        return self._urls[self._page_id(i)]

    def html(self, i: int) -> bytes:
        """Source of page ``i``, as it was downloaded.

        Raises:
            ArchiveError: If the file of the page is gone.

        Example:
            >>> dataset.html(0)[:15]  # doctest: +SKIP
        """
        path = self._file(self._page_id(i))
        try:
            return path.read_bytes()
        except OSError as error:
            raise ArchiveError(
                f"'{path}' cannot be read ({error}): remove the folder '{path.parent.parent}', "
                "and it is unpacked again."
            ) from error

    def page_text(self, i: int, attributes: bool = False) -> str:
        """Text of page ``i``; see :func:`hsa_geo.datasets.form_texts.page_text`."""
        return page_text(self.html(i), attributes)

    def form_texts(self, i: int, attributes: bool = False) -> list[str]:
        """Text of each form of page ``i``, in the order of ``form_label``.

        See :func:`hsa_geo.datasets.form_texts.form_texts`.
        """
        texts = form_texts(self.html(i), attributes)
        return [texts[k] for k in self.get(self.indices()[i]).form_order.tolist()]
