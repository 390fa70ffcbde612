"""Training, validation and test sets of a dataset: by its own columns, the same for every dataset.

Trees may hold ``split [1]``, the set that they are in as the dataset comes: 0 for training, 1 for
validation, 2 for test, -1 for none.  They may hold ``group_id [1]``: trees of one group (a
conversation, a web domain) belong on one side.

Example:
    >>> from hsa_geo.data import SignalTree
    >>> def tree(k):
    ...     y, split = torch.tensor([k % 2]), torch.tensor([2 * (k > 7)])
    ...     return SignalTree.from_parents([1, -1], y=y, split=split)
    >>> dataset, trees = SplitTrees(), [tree(k) for k in range(10)]
    >>> dataset.data, dataset.slices = dataset.collate(trees)
    >>> [rows.tolist() for rows in dataset.split(validation=0.25)][2]
    [8, 9]
    >>> [len(rows) for rows in dataset.split(fold=0, validation=0.25)]
    [6, 2, 2]
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hsa_geo.datasets.in_memory import TreesInMemory
from hsa_geo.datasets.splits import check_share, set_apart, stratified_split
from hsa_geo.errors import UnsupportedError

__all__ = ["SplitTrees"]

Ints = NDArray[np.int64]


class SplitTrees(TreesInMemory):
    """Trees in memory that can be split.

    Example:
        See the example of :mod:`hsa_geo.datasets.split_trees`.
    """

    #: Attribute that says which trees belong together; where there is none, each is its own group.
    group_key: str = "group_id"
    #: Whether the dataset comes with a validation set, even if that is empty.
    validation_given: bool = False

    def split(
        self, fold: int | None = None, folds: int = 5, seed: int = 0, validation: float = 0.1
    ) -> tuple[Ints, Ints, Ints]:
        """Indices of a training, a validation and a test set of this (sub)set.

        What is drawn keeps every group on one side, and is stratified by ``y`` where that is one
        class for each tree; other labels (several at once, numbers) are not stratified.  Sets that
        the dataset comes with are taken as they are.

        Args:
            fold: Which part of a cross-validation over all trees is the test set; :obj:`None` for
                the test set that the dataset comes with. (default: :obj:`None`)
            folds: Number of parts. (default: :obj:`5`)
            seed: Which of the many cross-validations, and which validation set.
                (default: :obj:`0`)
            validation: Share of what is not test that is set apart; of no effect where ``fold`` is
                :obj:`None` and the dataset comes with a validation set. (default: :obj:`0.1`)

        Returns:
            Three int64 arrays, each increasing.

        Raises:
            UnsupportedError: If ``fold`` is :obj:`None` and the dataset comes with no sets.
            ShapeError: If an argument is out of range.

        Example:
            >>> train, validation, test = dataset.split(fold=0)  # doctest: +SKIP
            >>> DataLoader(dataset[train], batch_size=8, shuffle=True)  # doctest: +SKIP
        """
        labels, groups = self._strata(), self._groups()
        if fold is not None:
            return stratified_split(
                labels, groups, fold=fold, folds=folds, seed=seed, validation=validation
            )
        check_share(validation)
        if "split" not in self._data or bool((self._data.split < 0).all()):
            raise UnsupportedError(
                f"{type(self).__name__} comes without a test set: pass a fold, from 0 to "
                f"{folds - 1}."
            )
        given = self.column("split").numpy()
        train, held, test = (np.flatnonzero(given == number) for number in range(3))
        if not self.validation_given and not bool((self._data.split == 1).any()):
            train, held = set_apart(train, labels, groups, validation, seed)
        return train, held, test

    def _strata(self) -> Ints:
        """What is to be equally frequent in all sets: classes, if each tree has one."""
        y = self.column("y") if "y" in self._data else torch.zeros(len(self), dtype=torch.int64)
        one_class = y.dim() == 1 and not y.is_floating_point()
        return y.numpy().astype(np.int64) if one_class else np.zeros(len(y), dtype=np.int64)

    def _groups(self) -> Ints | None:
        """Group of each tree, :obj:`None` where each is its own."""
        return self.column(self.group_key).numpy() if self.group_key in self._data else None
