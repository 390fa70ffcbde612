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

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

import hsa_geo
from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import collate_trees, load_collated, save_collated, write_bytes
from hsa_geo.datasets.fetch import pip_download, remove_stale
from hsa_geo.datasets.form_labels import CLASSES, form_codes
from hsa_geo.datasets.form_reading import (
    Annotation,
    Matching,
    label_statistics,
    read_page,
    report_text,
)
from hsa_geo.datasets.form_texts import form_texts, page_text
from hsa_geo.datasets.parts import build_in_parts
from hsa_geo.datasets.unpack import unpack
from hsa_geo.errors import ArchiveError, BuilderError, HSAWarning, ShapeError, UnsupportedError

__all__ = ["FormPages"]

#: Pages that one intermediate file holds; a killed run loses at most so many.
PAGES_PER_PART = 64


class FormPages(InMemoryDataset):
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

    Split by :meth:`groups`, never by page: pages of one domain share their templates.

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
        >>> from sklearn.model_selection import GroupKFold  # doctest: +SKIP
        >>> folds = GroupKFold(5).split(dataset, groups=dataset.groups())  # doctest: +SKIP
    """

    requirement = "formasaurus==0.10.0"
    archive = "formasaurus-0.10.0.tar.gz"
    sha256 = "e2bfdd91ffac16ae3be2238b35e4b221e8902c73d62e85ba1791a02aeec6760d"
    folder = "formasaurus-0.10.0"

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
        self.options = dict(options or {})
        if "base" in self.options:
            raise UnsupportedError("the pages come without images: leave 'base' out of options.")
        super().__init__(os.fspath(root), transform, pre_transform, pre_filter, log, force_reload)
        self.load(self.processed_paths[0])
        self.report = json.loads(Path(self.processed_paths[1]).read_text(encoding="utf-8"))

    # Files ##################################################################

    @property
    def raw_file_names(self) -> list[str]:
        """The folder of the unpacked pages; it appears in one step."""
        return [self.folder]

    @property
    def processed_file_names(self) -> list[str]:
        """The trees, and the report; each appears in one step."""
        mark = f"-{_digest(self.options)[:8]}" if self.options else ""
        return [f"form_pages{mark}.safetensors", f"report{mark}.json"]

    def download(self) -> None:
        """Fetch, check and unpack the distribution; see :mod:`hsa_geo.datasets.fetch`."""
        raw = Path(self.raw_dir)
        archive = pip_download(self.requirement, self.archive, sha256=self.sha256, folder=raw)
        unpack(
            archive,
            raw / self.folder,
            prefix=f"{self.folder}/formasaurus/data",
            patterns=("index.json", "config.json", "html/*.html"),
            max_bytes=512 << 20,
        )

    def _process(self) -> None:
        # PyG would keep the arguments in a pickle; they are in report.json instead.
        if not self.force_reload and all(map(os.path.exists, self.processed_paths)):
            report = json.loads(Path(self.processed_paths[1]).read_text(encoding="utf-8"))
            for name in ("pre_transform", "pre_filter"):
                if report.get(name) != _shown(getattr(self, name)):
                    warnings.warn(
                        f"the stored trees were built with {name}={report.get(name)}, not "
                        f"{_shown(getattr(self, name))}: pass force_reload=True to build them "
                        "again.",
                        HSAWarning,
                        stacklevel=3,
                    )
            return
        os.makedirs(self.processed_dir, exist_ok=True)
        self.process()

    def process(self) -> None:
        """Build the trees in parts, put them together and report what was aligned."""
        pages = self._annotations()
        domains = sorted({page.domain for page in pages})
        sites = sorted({page.site for page in pages})
        trees, report = self._trees(pages, domains, sites)
        report = {
            "archive": {"requirement": self.requirement, "sha256": self.sha256},
            "version": hsa_geo.__version__,
            "options": self.options,
            "pre_transform": _shown(self.pre_transform),
            "pre_filter": _shown(self.pre_filter),
            "pages": len(pages),
            "domains": len(domains),
            "sites": len(sites),
            **label_statistics(pages),
            **report,
        }
        if self.pre_filter is not None:
            trees = [tree for tree in trees if self.pre_filter(tree)]
        if self.pre_transform is not None:
            trees = [self.pre_transform(tree) for tree in trees]
        if not trees:
            raise ArchiveError(
                f"none of {len(pages)} pages is left: see that pre_filter keeps some "
                f"(unreadable: {report['failed']})."
            )
        report["stored"] = len(trees)
        names = {"domains": domains, "sites": sites, "urls": {p.page_id: p.url for p in pages}}
        for name in self.processed_file_names:
            remove_stale(Path(self.processed_dir), f".{name}-")
        write_bytes(self.processed_paths[1], json.dumps(report, indent=1).encode())
        save_collated(self.processed_paths[0], *self.collate(trees), names)
        shutil.rmtree(self._parts_folder, ignore_errors=True)
        if self.log:
            print(report_text(report))

    @property
    def _parts_folder(self) -> Path:
        return Path(self.processed_paths[0] + ".parts")

    def _annotations(self) -> list[Annotation]:
        folder = Path(self.raw_dir, self.folder)
        try:
            index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
            codes = form_codes(json.loads((folder / "config.json").read_text(encoding="utf-8")))
            pages = [Annotation.from_index(name, entry, codes) for name, entry in index.items()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArchiveError(
                f"'{folder}' does not hold the index of the pages ({error!r}): remove it, and it "
                "is unpacked again."
            ) from error
        return sorted(pages, key=lambda page: page.page_id)

    def _trees(
        self, pages: Sequence[Annotation], domains: Sequence[str], sites: Sequence[str]
    ) -> tuple[list[SignalTree], dict[str, Any]]:
        """Trees of all pages, and what went wrong."""

        def build(chunk: Iterator[Annotation]) -> tuple[list[SignalTree], dict[str, Any]]:
            trees, failed, how = [], dict[str, str](), Matching()
            for page in chunk:
                source = self._file(page.page_id).read_bytes()
                try:
                    tree, matching = read_page(source, page, self.options)
                except BuilderError as error:
                    failed[str(page.page_id)] = f"{type(error).__name__}: {error}"
                    continue
                tree.domain_id = torch.tensor([domains.index(page.domain)])
                tree.site_id = torch.tensor([sites.index(page.site)])
                trees.append(tree)
                how.add(matching)
            return trees, {"failed": failed, "matching": how.to_json()}

        if self.force_reload:
            shutil.rmtree(self._parts_folder, ignore_errors=True)
        trees, failed, how = list[SignalTree](), dict[str, str](), Matching()
        for some, extra in build_in_parts(
            pages,
            build,
            self._parts_folder,
            mark=_digest([hsa_geo.__version__, self.sha256, PAGES_PER_PART])[:12],
            size=PAGES_PER_PART,
            description="Building trees of web pages",
            log=self.log,
        ):
            trees += some
            failed.update(extra["failed"])
            how.add(Matching.from_json(extra["matching"]))
        return trees, {"failed": failed, **how.to_json()}

    def _file(self, page_id: int) -> Path:
        return Path(self.raw_dir, self.folder, "html", f"{page_id}.html")

    # Storage without pickle #################################################

    @staticmethod
    def collate(
        data_list: Sequence[SignalTree],
    ) -> tuple[SignalTree, dict[str, Tensor] | None]:
        """Put trees together; see :func:`hsa_geo.datasets.collated.collate_trees`."""
        return collate_trees(data_list)

    @classmethod
    def save(cls, data_list: Sequence[SignalTree], path: str) -> None:
        """Write trees to a file; see :func:`hsa_geo.datasets.collated.save_collated`."""
        save_collated(path, *cls.collate(data_list))

    def load(self, path: str, data_cls: type[SignalTree] = SignalTree) -> None:
        """Read what was written; see :func:`hsa_geo.datasets.collated.load_collated`."""
        if data_cls is not SignalTree:
            raise UnsupportedError(
                f"the trees are SignalTree, not {data_cls.__name__}: leave data_cls out."
            )
        data, self.slices, extra = load_collated(path)
        self._data_list = None
        self.data = data
        self.domains, self.sites = list(extra.get("domains", [])), list(extra.get("sites", []))
        self._urls = {int(page): url for page, url in extra.get("urls", {}).items()}

    def to_on_disk_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: PyG would pickle the trees and give them back as plain ``Data``.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "to_on_disk_dataset would pickle the trees and return plain Data: use the stored "
            "file, or tree.save."
        )

    # What one asks of the pages #############################################

    def column(self, name: str) -> Tensor:
        """One attribute of all pages of this (sub)set, if it has one row per page.

        Args:
            name: E.g. ``"y"``, ``"complete"``, ``"page_id"``, ``"domain_id"``.

        Returns:
            Tensor with one row per page, in the order of the (sub)set.

        Raises:
            ShapeError: If the attribute has another number of rows.

        Example:
            >>> dataset.column("y").sum(0)  # doctest: +SKIP
        """
        value = self._data[name]
        if not isinstance(value, Tensor) or value.size(0) != self.len():
            raise ShapeError(f"'{name}' does not have one row per page: read it from the trees.")
        return value[torch.as_tensor(list(self.indices()), dtype=torch.long)]

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


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _shown(function: Any) -> str:
    """A transform or filter as text that is the same in every process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(function))
