"""Batches on their way to the model: seeded, with their plans made by the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch

from hsa_geo.data import TreePlan
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.training.checks import check_trees
from hsa_geo.training.numbers import whole_number
from hsa_geo.training.samplers import LeafBudgetBatchSampler
from hsa_geo.training.seeds import random_state_kept, seed_everything

__all__ = ["Batches"]


class Batches:
    """The batches of a sampler, on a device; iterate as often as you like.

    A stock ``DataLoader`` does the work.  Trees are fetched with random numbers that depend on
    (seed, epoch, place in the epoch, rank) alone, so that random transforms are repeated exactly,
    by any number of workers, also where an iteration starts in the middle.

    Args:
        trees: A dataset or list of trees.
        sampler: Which of them go together.
        device: Where to.
        num_workers: Processes that build batches and plans; 0 for this one. (default: 0)
        seed: Of the random numbers. (default: 0)

    Raises:
        ShapeError: If ``trees`` are none or not those of the sampler, or a number is out of range.
        UnsupportedError: If ``sampler`` or ``device`` is none.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> trees = [SignalTree.from_parents([k] * k + [-1]) for k in (3, 2, 4)]
        >>> sampler = LeafBudgetBatchSampler(trees, budget=5, shuffle=False)
        >>> [batch.num_nodes for batch in Batches(trees, sampler, torch.device("cpu"))]
        [5, 4]
    """

    def __init__(
        self,
        trees: Sequence[Any],
        sampler: LeafBudgetBatchSampler,
        device: torch.device,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        if not isinstance(sampler, LeafBudgetBatchSampler):
            raise UnsupportedError(
                f"sampler={sampler!r:.60} is none: give a LeafBudgetBatchSampler."
            )
        if not isinstance(device, torch.device):
            raise UnsupportedError(f"device={device!r:.60} is none: give a torch.device.")
        num_workers = whole_number("num_workers", num_workers, 0)
        seed = whole_number("seed", seed, 0)
        with random_state_kept():
            check_trees("trees", trees)
        if len(trees) != len(sampler.sizes):
            raise ShapeError(
                f"there are {len(trees)} trees and a sampler of {len(sampler.sizes)}: make it from "
                "the same trees."
            )
        self.sampler, self.device = sampler, device
        self.loader: DataLoader[Any] = DataLoader(
            _SeededTrees(trees),
            batch_sampler=_WithKeys(sampler, seed),  # type: ignore[arg-type]
            collate_fn=_collate,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            pin_memory=device.type == "cuda",
        )

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        for batch, plan in self.loader:
            batch._remember(plan)  # what a worker remembers does not survive the way here
            yield batch.to(self.device, non_blocking=True)


class _WithKeys:
    """The sampler's batches, each with the key of its random numbers."""

    def __init__(self, sampler: LeafBudgetBatchSampler, seed: int) -> None:
        self.sampler, self.seed = sampler, seed

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        sampler = self.sampler
        first = int(sampler.steps.searchsorted(sampler.first_step))
        for number, trees in enumerate(sampler, start=first):
            yield (self.seed, sampler.epoch, number, sampler.rank, 1), trees


class _SeededTrees(Dataset[Any]):
    """The dataset, whose trees come by the batch."""

    def __init__(self, trees: Sequence[Any]) -> None:
        self.trees = trees

    def __len__(self) -> int:
        return len(self.trees)

    def __getitems__(self, batch: tuple[tuple[int, ...], list[int]]) -> list[Any]:
        key, chosen = batch
        with random_state_kept():
            seed_everything(*key)
            many = getattr(self.trees, "__getitems__", None)
            return list(many(chosen)) if many else [self.trees[i] for i in chosen]


def _collate(trees: list[Any]) -> tuple[Any, TreePlan]:
    batch = Batch.from_data_list(trees)
    plan = batch.plan
    batch.__dict__.pop("_plan")  # or it would be pinned twice
    return batch, plan
