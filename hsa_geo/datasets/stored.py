"""Base class of the datasets: fetched archives, trees in one file, no pickle.

A subclass names its archives and its classes, lists the items that they hold, and says how one
item becomes a tree.  Everything else is done here: fetching, building in parts that survive a
kill, the file of the trees (see :mod:`hsa_geo.datasets.collated`), the report, the checks.

Example:
    >>> import tempfile, torch
    >>> class Stars(StoredTrees):
    ...     '''Trees of one root and 1 to 4 leaves; the class says whether they are many.'''
    ...     file_name, noun, classes, stored = "stars", "stars", ("few", "many"), ("sizes",)
    ...     def items(self):
    ...         self.sizes = [1, 2, 3, 4]
    ...         return self.sizes
    ...     def tree(self, size):
    ...         tree = SignalTree.from_parents([size] * size + [-1])
    ...         tree.y = torch.tensor([int(size > 2)])
    ...         return tree
    >>> dataset = Stars(tempfile.mkdtemp(), log=False)
    >>> dataset[3], dataset.column("y"), dataset.sizes, dataset.num_classes
    (SignalTree(leaves=4, nodes=5, depth=1, y=[1]), tensor([0, 0, 1, 1]), [1, 2, 3, 4], 2)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hsa_geo
from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import options_dict, writable_folder
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.collated import save_collated
from hsa_geo.datasets.disk import alone, checked_root, remove_stale, write_bytes
from hsa_geo.datasets.labels import check_labels
from hsa_geo.datasets.parts import Part, build_in_parts
from hsa_geo.datasets.recipe import Recipe
from hsa_geo.datasets.split_trees import SplitTrees
from hsa_geo.errors import ArchiveError, FileFormatError, HSAWarning

__all__ = ["StoredTrees"]


class StoredTrees(Recipe, SplitTrees):
    r"""Trees that are built once from fetched archives, or generated, and kept in one file.

    A subclass gives :attr:`file_name`, :meth:`items` and :meth:`tree`, and what else of the
    attributes it needs (:attr:`archives`, :attr:`classes`, :attr:`stored`, :attr:`noun`); those
    may be properties that look at ``self.options``.

    Args:
        root: Folder that holds ``raw`` and ``processed``.
        transform: Applied to a tree on every access. (default: :obj:`None`)
        pre_transform: Applied once before storing; may add tensors. (default: :obj:`None`)
        pre_filter: Keeps the trees for which it is true. (default: :obj:`None`)
        force_reload: Build the trees again. (default: :obj:`False`)
        log: Show progress and a summary while building. (default: :obj:`True`)
        options: What the subclass makes of them; JSON can hold it.  Trees of different options
            are stored side by side. (default: none)

    Raises:
        PathError: If ``root`` is no path, a file, or cannot be written to where that is needed.
        UnsupportedError: If a function cannot be called, or ``options`` are no dict that JSON can
            hold.
        DownloadError: If an archive cannot be fetched.
        ArchiveError: If an archive has another sha256, or is not what it should be.
        DiskFullError: If there is no room for an archive, its files, or the trees.
        FileFormatError: If the file of the trees, or the report, is damaged.
        LabelError: If a label is not one of the classes.

    Example:
        See the example of :mod:`hsa_geo.datasets.stored`.
    """

    #: What is fetched into ``raw``, if anything.
    archives: Sequence[Archive] = ()
    #: Items that one intermediate file holds; a killed run loses at most so many.
    part_size: int = 256
    #: To be raised when the trees of the same archives become others.
    build_version: int = 1
    #: Whether raw files are read after the trees were built; else they may be removed.
    raw_needed: bool = False

    #: What was stored and what was left out while building; see :meth:`processed_file_names`.
    report: dict[str, Any]

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
        self.options = options_dict(options)
        functions = {"transform": transform, "pre_transform": pre_transform}
        path = checked_root(root, **functions, pre_filter=pre_filter)
        super().__init__(os.fspath(path), transform, pre_transform, pre_filter, log, force_reload)
        self.load(self.processed_paths[0])
        self.report = self._read_report()

    # Files ##################################################################

    @property
    def raw_file_names(self) -> list[str]:
        """The folders of the unpacked archives; each appears in one step."""
        return [archive.folder for archive in self.archives]

    @property
    def processed_file_names(self) -> list[str]:
        """The trees, and the report; each appears in one step."""
        mark = f"-{_digest(self.options)[:8]}" if self.options else ""
        start = f"{self.file_name}{mark}"
        return [f"{start}.safetensors", f"{start}.report.json"]

    def raw(self, i: int = 0) -> Path:
        """Folder of an unpacked archive.

        Args:
            i: Place in :attr:`archives`. (default: :obj:`0`)

        Returns:
            Its path.
        """
        return Path(self.raw_dir, self.archives[i].folder)

    def download(self) -> None:
        """Fetch, check and unpack the archives; see :mod:`hsa_geo.datasets.clients`."""
        for archive in self.archives:
            archive.unpacked(self.raw_dir, self.log)

    def _download(self) -> None:
        if self.archives and (self.raw_needed or not self._complete()):
            writable_folder(Path(self.raw_dir))
            super()._download()

    def _complete(self) -> bool:
        return not self.force_reload and all(map(os.path.exists, self.processed_paths))

    def _process(self) -> None:
        # PyG would keep the arguments in a pickle; they are in the report instead.
        if self._complete():
            self._warn_of_other_arguments()
            return
        writable_folder(Path(self.processed_dir))
        waiting = f"Another process builds {self.file_name}: waiting" if self.log else ""
        with alone(self._parts_folder / ".lock", waiting) as sure:
            if not self._complete():  # it came while we were waiting
                for name in self.processed_file_names:  # left by runs that were killed
                    age = {"age": 0.0} if sure else {}
                    remove_stale(Path(self.processed_dir), f".{name}-", **age)
                self.process()
        with contextlib.suppress(OSError):  # not there or not empty
            self._parts_folder.rmdir()

    def process(self) -> None:
        """Build the trees in parts, put them together and write the report."""
        items = self.items()
        if self.force_reload:
            for path in self._parts_folder.glob("*.safetensors"):
                path.unlink(missing_ok=True)
        hashes = [archive.sha256 for archive in self.archives]
        name = type(self).__name__
        mark = [hsa_geo.__version__, name, hashes, self.part_size, self.build_version]
        parts = build_in_parts(
            items,
            self._checked,
            self._parts_folder,
            mark=_digest(mark)[:12],
            size=self.part_size,
            description=f"Building trees of {self.noun}",
            log=self.log,
        )
        trees = [tree for some, _ in parts for tree in some]
        trees, more = self.finish(items, trees, [extra for _, extra in parts])
        if self.pre_filter is not None:
            trees = [tree for tree in trees if self.pre_filter(tree)]
        if self.pre_transform is not None:
            trees = [self.pre_transform(tree) for tree in trees]
        if not trees:
            raise ArchiveError(
                f"none of {len(items)} {self.noun} is left: see that pre_filter keeps some "
                f"(unreadable: {more.get('failed', {})})."
            )
        data, slices = self.collate(trees)
        check_labels(data.get("y"), self.classes)
        report = {
            "archives": [
                {"client": a.client, "requirement": a.requirement, "sha256": a.sha256}
                for a in self.archives
            ],
            "version": hsa_geo.__version__,
            "build_version": self.build_version,
            "options": self.options,
            "pre_transform": _shown(self.pre_transform),
            "pre_filter": _shown(self.pre_filter),
            "items": len(items),
            **more,
            "stored": len(trees),
        }
        # The trees last: where they are, all is.
        write_bytes(self.processed_paths[1], json.dumps(report, indent=1).encode())
        save_collated(self.processed_paths[0], data, slices, self._extra())
        shutil.rmtree(self._parts_folder, ignore_errors=True)
        if self.log:
            print(self.summary(report))

    def _checked(self, items: Iterator[Any]) -> Part:
        """A part, whose labels are looked at before it is kept."""
        trees, extra = self.build(items)
        for tree in trees:
            check_labels(tree.get("y"), self.classes)
        return trees, extra

    @property
    def _parts_folder(self) -> Path:
        return Path(self.processed_paths[0] + ".parts")

    def _read_report(self) -> dict[str, Any]:
        path = self.processed_paths[1]
        try:
            report = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(report, dict):
                raise ValueError("no JSON object")
            return report
        except ValueError as error:
            raise FileFormatError(
                f"'{path}' is damaged ({error}): remove it, or pass force_reload=True, to make it "
                "anew."
            ) from None

    def _warn_of_other_arguments(self) -> None:
        report = self._read_report()
        wanted: dict[str, Any] = {
            name: _shown(getattr(self, name)) for name in ("pre_transform", "pre_filter")
        }
        wanted["build_version"] = self.build_version
        for name, value in wanted.items():
            held = report.get(name, 1 if name == "build_version" else None)
            if held != value:
                warnings.warn(
                    f"the stored trees were built with {name}={held}, not {value}: pass "
                    "force_reload=True to build them again.",
                    HSAWarning,
                    stacklevel=6,
                )


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _shown(function: Any) -> str:
    """A transform or filter as text that is the same in every process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(function))
