"""Batches by number of leaves, for any number of processes.

Documents of 20 and of 20,000 words do not fit the same number to a batch.  What bounds memory
and time is the number of leaves, so a batch here is as many trees as have ``budget`` leaves.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler, Subset

from hsa_geo.errors import HSAWarning, ShapeError, UnsupportedError
from hsa_geo.training.numbers import whole_number
from hsa_geo.training.packing import Dealt, deal, pack

__all__ = ["LeafBudgetBatchSampler", "leaf_counts"]

#: Steps leave a room of one in so many leaves, without which few could be split evenly.
SLACK = 50


class LeafBudgetBatchSampler(Sampler[list[int]]):
    r"""Batches of trees with at most ``budget`` leaves; every tree once an epoch.

    Goes into the ``batch_sampler`` of PyG's (or torch's) ``DataLoader``.  An epoch is a sequence
    of *steps*, each of at most ``step_budget`` leaves, by default as many as fit all processes
    at once.  Which trees share a step depends on ``step_budget`` alone, so that 4 processes of
    8,192 leaves see the same steps as one of 32,768.  A step's trees are dealt to the processes
    in balanced batches, one each, or several where ``step_budget`` is larger than all processes
    hold at once (gradient accumulation) or where they cannot be split evenly; so that this is
    rare, steps are filled to 98 %.

    All processes get the same number of batches.  A process for which a step has no tree gets
    the smallest tree of the dataset, as a batch whose :attr:`weights` entry is 0: leave it out,
    or multiply its loss by that.

    Args:
        sizes: Leaves of every tree, or a dataset (see :func:`leaf_counts`).
        budget (int): Most leaves of a batch, for each process; a tree with more is a batch by
            itself.
        shuffle (bool): Another order in every epoch. (default: :obj:`True`)
        seed (int): Of the order; it is a function of ``(seed, epoch)``. (default: :obj:`0`)
        num_replicas (int): Number of processes. (default: :obj:`1`)
        rank (int): Which of them this is. (default: :obj:`0`)
        max_trees (int, optional): Most trees of a batch. (default: any number)
        step_budget (int, optional): Most leaves of a step. (default: ``budget * num_replicas``)
        bucketing (int): Sort by size within windows of so many steps, so that a batch holds
            trees of about one size, for models that pad; the steps are then shuffled. 0 for
            none. (default: :obj:`0`)
        on_large (str): What to do about trees with more than ``budget`` leaves: ``"alone"``
            warns and makes each a batch, ``"error"`` refuses. (default: ``"alone"``)

    Raises:
        ShapeError: If a number is out of range, a tree has no leaf, or one has too many.

    Example:
        >>> sampler = LeafBudgetBatchSampler([5, 3, 4, 4, 7, 1], budget=8, shuffle=False)
        >>> list(sampler), len(sampler)
        ([[0, 1], [2, 3], [4, 5]], 3)
        >>> for rank in (0, 1):
        ...     print(list(LeafBudgetBatchSampler([3, 3, 2, 2, 1, 1], 4, False, 0, 2, rank)))
        [[0], [1], [3]]
        [[2], [4], [4, 5]]

    The last line's ``[4]`` is a stand-in: 3 + 3 + 2 leaves are less than two processes of 4 can
    hold, but do not split so.
    """

    def __init__(
        self,
        sizes: Any,
        budget: int,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
        max_trees: int | None = None,
        *,
        step_budget: int | None = None,
        bucketing: int = 0,
        on_large: str = "alone",
    ) -> None:
        budget = whole_number("budget", budget)
        num_replicas = whole_number("num_replicas", num_replicas)
        max_trees = None if max_trees is None else whole_number("max_trees", max_trees)
        step_budget = None if step_budget is None else whole_number("step_budget", step_budget)
        bucketing, seed = whole_number("bucketing", bucketing, 0), whole_number("seed", seed, 0)
        rank = whole_number("rank", rank, 0)
        if not rank < num_replicas:
            raise ShapeError(f"rank={rank} is none of the num_replicas={num_replicas} processes.")
        if not isinstance(shuffle, (bool, np.bool_)):
            raise ShapeError(f"shuffle={shuffle!r:.60} is neither True nor False: give one.")
        if on_large not in ("alone", "error"):
            raise UnsupportedError(f"on_large={on_large!r} is unknown: use 'alone' or 'error'.")
        if step_budget is not None and step_budget < budget:
            raise ShapeError(
                f"step_budget={step_budget} is less than budget={budget}: a batch would hold more "
                "than a step, so lower budget."
            )
        self.sizes = leaf_counts(sizes)
        self.budget, self.max_trees = budget, max_trees
        self.step_budget = budget * num_replicas if step_budget is None else step_budget
        self.shuffle, self.seed, self.bucketing = shuffle, seed, bucketing
        self.num_replicas, self.rank = num_replicas, rank
        self._check_large(on_large)
        self.set_epoch(0)

    def _check_large(self, on_large: str) -> None:
        large = np.flatnonzero(self.sizes > self.budget)
        if not len(large):
            return
        worst = int(self.sizes.argmax())
        text = (
            f"{len(large)} of {len(self.sizes)} trees have more than budget={self.budget} leaves "
            f"(tree {worst} has {self.sizes[worst]})"
        )
        if on_large == "error":
            raise ShapeError(f"{text}: raise budget, or leave these trees out.")
        if self.rank == 0:
            warnings.warn(
                f"{text}: each is a batch by itself; raise budget if memory allows it.",
                HSAWarning,
                stacklevel=3,
            )

    def set_epoch(self, epoch: int, first_step: int = 0) -> None:
        """Choose the epoch of the next iteration.

        Args:
            epoch: Its number, from 0.
            first_step: Start the next iteration at this step, to go on after a kill; ``len``,
                :attr:`steps` and :attr:`weights` stay those of the whole epoch. (default: 0)

        Raises:
            ShapeError: If one is no whole number of 0 or more.

        Example:
            >>> sampler = LeafBudgetBatchSampler([4] * 100, 16)
            >>> first = list(sampler)
            >>> sampler.set_epoch(1)
            >>> list(sampler) == first
            False
        """
        self.epoch = whole_number("epoch", epoch, 0)
        self.first_step = whole_number("first_step", first_step, 0)
        self._plan: tuple[np.ndarray, Dealt, np.ndarray, np.ndarray] | None = None

    @property
    def num_steps(self) -> int:
        """Number of steps of this epoch."""
        steps = self.steps
        return int(steps[-1]) + 1 if len(steps) else 0

    @property
    def steps(self) -> np.ndarray:
        """``[len(self)]`` int64: the step to which each batch of this epoch belongs."""
        return self._planned()[3]

    @property
    def weights(self) -> np.ndarray:
        """``[len(self)]`` int64: 0 for a batch that stands in for a missing one, else 1."""
        return (self._planned()[2] >= 0).astype(np.int64)

    @property
    def fill(self) -> float:
        """Share of the budgets of this epoch's batches, of all processes, that leaves fill."""
        room = len(self) * self.num_replicas * self.budget
        return float(self.sizes.sum() / room) if room else 1.0

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[int]]:
        order, batches, mine, steps = self._planned()
        stand_in = [int(self.sizes.argmin())] if len(mine) else []
        for batch in mine[np.searchsorted(steps, self.first_step) :].tolist():
            if batch < 0:
                yield list(stand_in)
            else:
                yield order[batches.trees[batches.start[batch] : batches.start[batch + 1]]].tolist()

    def _planned(self) -> tuple[np.ndarray, Dealt, np.ndarray, np.ndarray]:
        """Order of the trees; all batches; for each of this rank its number or -1, and its step."""
        if self._plan is None:
            order, start = self._ordered_steps()
            batches = deal(self.sizes[order], start, self.budget, self.max_trees, self.num_replicas)
            in_step = np.bincount(batches.step, minlength=len(start) - 1)
            rounds = -(-in_step // self.num_replicas)
            before = np.cumsum(rounds) - rounds
            mine = np.full(int(rounds.sum()), -1, dtype=np.int64)
            own = np.flatnonzero(batches.place % self.num_replicas == self.rank)
            row = before[batches.step[own]] + batches.place[own] // self.num_replicas
            mine[row] = own
            self._plan = order, batches, mine, np.repeat(np.arange(len(rounds)), rounds)
        return self._plan

    def _ordered_steps(self) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.sizes)
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(count) if self.shuffle else np.arange(count)
        if self.bucketing and count:
            window = max(1, int(self.bucketing * self.step_budget / self.sizes.mean()))
            order = order[np.lexsort((self.sizes[order], np.arange(count) // window))]
        trees = None
        if self.max_trees is not None:
            trees = self.max_trees * max(1, self.step_budget // self.budget)
        start = pack(self.sizes[order], self.step_budget - self.step_budget // SLACK, trees)
        if self.bucketing and self.shuffle and count:
            step = random.permutation(len(start) - 1)  # or short and long would come in turns
            length = np.diff(start)[step]
            begin = np.cumsum(length) - length
            rows = np.repeat(start[:-1][step] - begin, length) + np.arange(count)
            order, start = order[rows], np.append(begin, count)
        return order, start


def leaf_counts(trees: Any) -> np.ndarray:
    """Leaves of every tree, without building the trees where that can be avoided.

    Args:
        trees: The numbers themselves (list, array or tensor of ints), a dataset that keeps its
            trees collated (``InMemoryDataset``: read off its slices), one that has a method
            ``leaf_counts()``, a ``torch.utils.data.Subset`` of one, or any sequence of trees
            (each is then looked at once).  What a dataset's ``transform`` adds or removes is
            not known from slices; give the numbers then.

    Returns:
        ``[n]`` int64.

    Raises:
        ShapeError: If they are no whole numbers of at least 1.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> leaf_counts([SignalTree.from_parents([2, 2, -1]), SignalTree.from_parents([-1])])
        array([2, 1])
    """
    if isinstance(trees, Subset):
        return leaf_counts(trees.dataset)[np.asarray(trees.indices, dtype=np.int64)]
    if isinstance(trees, Tensor):
        trees = trees.cpu().numpy()
    own = getattr(trees, "leaf_counts", None)
    if callable(own):
        trees = own()
    elif getattr(trees, "slices", None) and "tree_index" in trees.slices:
        trees = _collated_counts(trees)
    elif not isinstance(trees, np.ndarray):
        if not (hasattr(trees, "__len__") and hasattr(trees, "__getitem__")):
            raise ShapeError(
                f"sizes is {trees!r:.60}: give a whole number for each tree, or a dataset of trees."
            )
        if len(trees) and not isinstance(trees[0], (int, np.integer)) and not _is_number(trees[0]):
            trees = [_leaves(i, trees[i]) for i in range(len(trees))]
    array = np.asarray(trees)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ShapeError(
            f"sizes has shape {list(array.shape)} and dtype {array.dtype}: give a whole number for "
            "each tree, or a dataset of trees."
        )
    array = array.astype(np.int64)
    if (array < 1).any():
        bad = int(np.argmax(array < 1))
        raise ShapeError(f"tree {bad} has {array[bad]} leaves: a tree has at least one.")
    return array


def _leaves(number: int, tree: Any) -> int:
    leaves = getattr(tree, "num_nodes", None)
    if not isinstance(leaves, int):
        raise ShapeError(
            f"tree {number} is {tree!r:.60}: give trees alone, or a whole number for each of them."
        )
    return leaves


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, str)) or (isinstance(value, Tensor) and value.dim() == 0)


def _collated_counts(dataset: Any) -> np.ndarray:
    """Nodes minus inner nodes; a tree's edges are sorted by parent, so parents can be counted."""
    edge, node = dataset.slices["tree_index"], dataset.slices["tree_level"]
    parent = dataset._data.tree_index[0]
    new = torch.ones(len(parent) + 1, dtype=torch.int64)
    new[1:-1] = (parent[1:] != parent[:-1]).long()
    new[edge] = 1
    new[-1] = 0
    inner = torch.cat([new.new_zeros(1), new[:-1].cumsum(0)])
    counts = (node[1:] - node[:-1]) - (inner[edge[1:]] - inner[edge[:-1]])
    chosen: Sequence[int] = dataset.indices()
    return counts.numpy()[np.asarray(list(chosen), dtype=np.int64)]
