"""PyTorch Lightning: a data module whose batches are filled by leaves.

PyG's own ``LightningDataset`` takes datasets of signal trees as they are.  What it has not is
batches by number of leaves in all loaders, and another order in every epoch: Lightning tells the
number of the epoch to ``batch_sampler.sampler`` only.  :class:`LightningTrees` adds both.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch_geometric.loader import DataLoader

from hsa_geo._optional import require
from hsa_geo.data import SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.training import LeafBudgetBatchSampler
from hsa_geo.training.checks import check_trees
from hsa_geo.training.seeds import random_state_kept

try:
    import lightning.pytorch  # noqa: F401  # of the two, PyG takes this one where both are there
except ImportError:
    require("pytorch_lightning", extra="lightning", purpose="training with Lightning")

from torch_geometric.data.lightning import LightningDataset

__all__ = ["LightningTrees"]

#: What would fill batches in another way.
_REFUSED = ("batch_size", "sampler", "batch_sampler", "shuffle", "drop_last")
#: What PyG's loader sets itself, whatever is given.
_SET = ("collate_fn", "dataset")
#: What a loader takes.
_KNOWN = {*inspect.signature(TorchLoader.__init__).parameters, "follow_batch", "exclude_keys"}


class LightningTrees(LightningDataset):
    r"""A Lightning data module of signal trees, with at most ``budget`` leaves in a batch.

    Training, validation and test use :class:`~hsa_geo.training.LeafBudgetBatchSampler`; training in
    another order every epoch, a function of ``(seed, epoch)``.  For prediction Lightning replaces
    batch samplers, so that there a batch is one tree, in the order of the dataset.

    Args:
        train_dataset (Dataset or list): Trees for training.
        val_dataset (Dataset or list, optional): Trees for validation. (default: :obj:`None`)
        test_dataset (Dataset or list, optional): Trees for the test. (default: :obj:`None`)
        pred_dataset (Dataset or list, optional): Trees to predict. (default: :obj:`None`)
        budget (int): Most leaves of a batch.
        seed (int): Of the order. (default: :obj:`0`)
        max_trees (int, optional): Most trees of a batch. (default: any number)
        bucketing (int): As in the sampler. (default: :obj:`0`)
        **kwargs: Of PyG's ``DataLoader``, e.g. ``num_workers`` or ``follow_batch``.

    Raises:
        UnsupportedError: If an argument would fill batches in another way, have no effect, or is
            not as ``DataLoader`` takes it, or, when a loader is made, the trainer runs several
            processes.
        ShapeError: If what is given holds no trees; when a loader is made, if a number is out of
            range.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> trees = [SignalTree.from_parents([k] * k + [-1]) for k in (1, 2, 3, 4)]
        >>> loader = LightningTrees(trees, trees, budget=5).val_dataloader()
        >>> [batch.num_nodes for batch in loader]
        [3, 3, 4]
    """

    def __init__(
        self,
        train_dataset: Any,
        val_dataset: Any = None,
        test_dataset: Any = None,
        pred_dataset: Any = None,
        *,
        budget: int,
        seed: int = 0,
        max_trees: int | None = None,
        bucketing: int = 0,
        **kwargs: Any,
    ) -> None:
        refused = sorted(set(_REFUSED) & set(kwargs))
        if refused:
            raise UnsupportedError(
                f"{refused} would fill batches in another way than budget={budget}: leave them "
                "out, or use LightningDataset of PyG."
            )
        for name in kwargs:
            if name in _SET or name not in _KNOWN - {"self"}:
                raise UnsupportedError(
                    f"{name}={kwargs[name]!r:.60} is no argument that LightningTrees can give to "
                    "PyG's DataLoader: leave it out."
                )
        given = {
            "train_dataset": train_dataset,
            "val_dataset": val_dataset,
            "test_dataset": test_dataset,
            "pred_dataset": pred_dataset,
        }
        with random_state_kept():
            for name, trees in given.items():
                if trees is not None:
                    check_trees(name, trees)
        _check_values(kwargs)
        kwargs.setdefault("pin_memory", torch.cuda.is_available())
        super().__init__(train_dataset, val_dataset, test_dataset, pred_dataset, **kwargs)
        self.budget, self.seed = budget, seed
        self.max_trees, self.bucketing = max_trees, bucketing

    def dataloader(self, dataset: Any, *, shuffle: bool, **kwargs: Any) -> DataLoader:
        """A loader of batches by leaves.

        Args:
            dataset: The trees.
            shuffle: Whether every epoch has another order.
            **kwargs: Of PyG's ``DataLoader``.
        """
        trainer = getattr(self, "trainer", None)
        if trainer is not None and trainer.world_size > 1:
            raise UnsupportedError(
                f"LightningTrees runs in one process, not {trainer.world_size}: use "
                "hsa_geo.training.fit with torchrun, or LightningDataset of PyG."
            )
        sampler = _EpochSampler(
            dataset,
            self.budget,
            shuffle=shuffle,
            seed=self.seed,
            max_trees=self.max_trees,
            bucketing=self.bucketing,
        )
        return DataLoader(dataset, batch_sampler=sampler, **{**kwargs, "batch_size": 1})

    def predict_dataloader(self) -> DataLoader:
        """A loader of one tree at a time."""
        return DataLoader(self.pred_dataset, **self.kwargs)


def _check_values(kwargs: dict[str, Any]) -> None:
    """Refuse at once what a loader would refuse when it is first used, perhaps after an epoch."""
    for name in ("follow_batch", "exclude_keys"):
        keys = kwargs.get(name)
        listed = isinstance(keys, (list, tuple)) and all(isinstance(key, str) for key in keys)
        if keys is not None and not listed:
            raise UnsupportedError(
                f"{name}={keys!r:.60} is no list of names of attributes: give one, or leave it out."
            )
    if kwargs.get("timeout") and not kwargs.get("num_workers"):
        raise UnsupportedError(
            f"timeout={kwargs['timeout']!r:.60} needs num_workers of at least 1: give both."
        )
    try:
        DataLoader([SignalTree.from_parents([-1])], **kwargs)
    except (TypeError, ValueError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise UnsupportedError(
            f"{kwargs!r:.120} is not what a DataLoader takes ({said}): give arguments of PyG's "
            "DataLoader."
        ) from error


class _EpochSampler(LeafBudgetBatchSampler):
    """One that Lightning tells the epoch, which it tells ``batch_sampler.sampler``."""

    @property
    def sampler(self) -> LeafBudgetBatchSampler:
        return self
