"""Pages to train on, real ones with annotated forms or one's own, and their split."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets import FormPages
from hsa_geo.datasets.splits import deal
from hsa_geo.errors import BuilderError, LabelError
from hsa_geo.pages.focus import focus
from hsa_geo.pages.labelled import LabelledPage
from hsa_geo.pages.labels import check_labels
from hsa_geo.pages.reading import PageReader

__all__ = ["TrainingPages", "form_pages", "labelled_pages"]


@dataclass(frozen=True)
class TrainingPages:
    """Trees with their labels.

    Attributes:
        reader: What made the trees.
        labels: Names of the labels.
        train: Trees to train on.
        validation: Others to choose the best epoch by; none if there are too few pages.
        failed: Pages that could not be read, and why.

    Example:
        >>> TrainingPages(PageReader(), ["news", "shops"], [], []).failed
        []
    """

    reader: PageReader
    labels: list[str]
    train: list[SignalTree]
    validation: list[SignalTree]
    failed: list[tuple[Any, Exception]] = field(default_factory=list)


def form_pages(
    root: str | os.PathLike[str], share: float = 0.12, seed: int = 0, log: bool = True
) -> TrainingPages:
    """The real pages of :class:`~hsa_geo.datasets.FormPages`, cut down to their forms.

    Pages of one web domain are on one side, and only those are validated on whose forms were all
    annotated.

    Args:
        root: Folder of the dataset.
        share: Share of the validation pages. (default: 0.12)
        seed: Of the split. (default: 0)
        log: Show progress while the dataset is built. (default: :obj:`True`)

    Returns:
        The pages.

    Example:
        >>> form_pages("data/form_pages").reader.unit  # doctest: +SKIP
        'form'
    """
    reader = PageReader("form")
    dataset = FormPages(root, pre_transform=focus, options=reader.options, log=log)
    part = deal(np.zeros(len(dataset)), dataset.groups().numpy(), [1 - share, share], seed)
    complete = dataset.column("complete").numpy().reshape(-1)
    train = [dataset[i] for i in np.flatnonzero(part == 0)]
    validation = [dataset[i] for i in np.flatnonzero((part == 1) & complete)]
    return TrainingPages(reader, list(dataset.classes), train, validation)


def labelled_pages(
    pages: Sequence[LabelledPage],
    share: float = 0.15,
    seed: int = 0,
    *,
    images: bool = False,
    read: Callable[[Iterable[LabelledPage]], Iterable[LabelledPage]] = iter,
) -> TrainingPages:
    """Pages of one's own, as trees; those that cannot be read are left out.

    Args:
        pages: The files and their labels.
        share: Share of the validation pages, of every label. (default: 0.15)
        seed: Of the split. (default: 0)
        images: Read pictures, too, those within the pages and files in the folders of the pages.
            (default: :obj:`False`)
        read: Wraps the pages, to show progress. (default: nothing is shown)

    Returns:
        The pages.

    Raises:
        LabelError: If fewer than two labels are left, there are more than 10,000, or one is no
            name; the latter before a page is read.

    Example:
        >>> import tempfile
        >>> from hsa_geo.pages import find_labelled
        >>> from pathlib import Path
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("news/1.html", "shops/2.html"):
        ...     (folder / name).parent.mkdir()
        ...     _ = (folder / name).write_text("<p>words")
        >>> labelled_pages(find_labelled(folder)).labels
        ['news', 'shops']
    """
    if pages:
        check_labels(list({page.label for page in pages}))
    reader, trees, names = PageReader("page", {"images": images}), [], []
    failed: list[tuple[Any, Exception]] = []
    for page in read(pages):
        try:
            trees.append(reader(page.path, base=page.path.parent))
        except (BuilderError, OSError) as error:
            failed.append((page.path, error))
        else:
            names.append(page.label)
    labels = sorted(set(names))
    if len(labels) < 2:
        why = f", the first because {failed[0][1]}" if failed else ""
        raise LabelError(
            f"pages of {len(labels)} labels could be read, and {len(failed)} could not be{why}: "
            "give pages of at least two labels."
        )
    places = [labels.index(name) for name in names]
    for tree, place in zip(trees, places):
        tree.y = torch.tensor([place])
    part = deal(places, None, [1 - share, share], seed).tolist()
    train = [tree for tree, number in zip(trees, part) if number == 0]
    validation = [tree for tree, number in zip(trees, part) if number == 1]
    return TrainingPages(reader, labels, train, validation, failed)
