"""Pages for the web page classifier: trees cut down to what matters, folds, batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.datasets import FormPages
from hsa_geo.pages import PageReader, focus
from hsa_geo.pages.forms import form_targets

#: How pages are read, and cut down to their forms.
READER = PageReader("form")
#: Outputs beyond the classes of the dataset: a form that the annotators skipped.
SKIPPED = 8


@dataclass
class Pages:
    """All pages, with what is asked about them often."""

    dataset: FormPages
    trees: list[SignalTree]
    y: np.ndarray  # [pages, 8]
    complete: np.ndarray  # [pages]
    group: np.ndarray  # [pages], web domain

    @classmethod
    def read(cls, root: Path, log: bool = False) -> Pages:
        """Fetch (the first time) and load the pages."""
        dataset = FormPages(root, pre_transform=focus, options=READER.options, log=log)
        return cls(
            dataset,
            [dataset[i] for i in range(len(dataset))],
            dataset.column("y").numpy(),
            dataset.column("complete").numpy().reshape(-1),
            np.asarray(dataset.groups()),
        )

    def split(self, fold: int | None, folds: int = 5) -> tuple[np.ndarray, ...]:
        """Pages to train on, to validate on, and to test on; no web domain is in two of them.

        Test pages are completely annotated ones, validation pages too; pages with forms left
        without annotation only help to train.  ``fold=None`` tests on nothing.
        """
        complete = np.flatnonzero(self.complete)
        test = np.array([], dtype=np.int64)
        if fold is not None:
            splits = GroupKFold(folds).split(complete, groups=self.group[complete])
            test = complete[list(splits)[fold][1]]
        rest = np.flatnonzero(~np.isin(self.group, self.group[test]))
        cut = GroupShuffleSplit(1, test_size=0.12, random_state=0 if fold is None else fold)
        train, validate = next(cut.split(rest, groups=self.group[rest]))
        validate = rest[validate]
        return rest[train], validate[self.complete[validate]], test

    def batches(
        self, pages: np.ndarray, size: int, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[np.ndarray, Batch]]:
        """Batches of pages, shuffled if a generator is given."""
        pages = pages if rng is None else rng.permutation(pages)
        for i in range(0, len(pages), size):
            chosen = pages[i : i + size]
            yield chosen, Batch.from_data_list([self.trees[j] for j in chosen])


def targets(label: Tensor) -> Tensor:
    """Training targets of forms: 0..7 the classes, 8 skipped, -1 not annotated."""
    return form_targets(label, SKIPPED)
