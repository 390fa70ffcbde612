"""Trees of a dataset in memory, and in a file without pickle.

PyG's ``InMemoryDataset`` stores its trees with pickle, or falls back to it; here they go into a
file of tensors (see :mod:`hsa_geo.datasets.collated`), which is checked when it is read.

Example:
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/trees.safetensors"
    >>> trees = [SignalTree.from_parents([1, -1], y=torch.tensor([k])) for k in (0, 1, 0)]
    >>> TreesInMemory.save(trees, path)
    >>> dataset = TreesInMemory()
    >>> dataset.load(path)
    >>> len(dataset), dataset[1:].column("y")
    (3, tensor([1, 0]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import collate_trees, load_collated, save_collated
from hsa_geo.datasets.labels import check_labels
from hsa_geo.errors import FileFormatError, LabelError, ShapeError, UnsupportedError

__all__ = ["TreesInMemory"]


class TreesInMemory(InMemoryDataset):
    r"""An ``InMemoryDataset`` of :class:`~hsa_geo.data.SignalTree` that never pickles.

    Example:
        See the example of :mod:`hsa_geo.datasets.in_memory`.
    """

    #: Names of the classes, by ``y``; empty where ``y`` is no class.
    classes: Sequence[str] = ()
    #: Names of attributes that are stored with the trees: what JSON can hold.
    stored: Sequence[str] = ()
    #: What the items are, in the plural, for messages.
    noun: str = "trees"

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Set the attributes that were stored.

        Args:
            extra: Their values by name.
        """
        for name in self.stored:
            if name not in extra:
                raise FileFormatError(f"it lacks '{name}'")
            setattr(self, name, extra[name])

    def _extra(self) -> dict[str, Any]:
        """What is stored beside the trees, by name."""
        return {name: getattr(self, name) for name in self.stored}

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
        """Read what was written; see :func:`hsa_geo.datasets.collated.load_collated`.

        Raises:
            FileFormatError: If the file is damaged.
            LabelError: If it holds a label that is not one of the classes.
            UnsupportedError: If ``data_cls`` is another class.
        """
        if data_cls is not SignalTree:
            raise UnsupportedError(
                f"the trees are SignalTree, not {data_cls.__name__}: leave data_cls out."
            )
        remedy = "pass force_reload=True, or remove that file, to build the trees again"
        try:
            data, self.slices, extra = load_collated(path)
        except FileFormatError as error:
            raise FileFormatError(f"{error} In a dataset, {remedy}.") from None
        self._data_list = None
        self.data = data
        try:
            self.restore(extra)
            check_labels(data.get("y"), self.classes)
        except (LabelError, FileFormatError) as error:
            raise type(error)(f"'{path}' is no file of these trees ({error}): {remedy}.") from None

    def to_on_disk_dataset(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: PyG would pickle the trees and give them back as plain ``Data``.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "to_on_disk_dataset would pickle the trees and return plain Data: use OnDiskTrees of "
            "hsa_geo.datasets, or the stored file."
        )

    # What one asks of the trees #############################################

    @property
    def num_classes(self) -> int:
        """Number of :attr:`classes`, also in a subset that lacks some."""
        return len(self.classes) if self.classes else super().num_classes

    def column(self, name: str) -> Tensor:
        """One attribute of all trees of this (sub)set, if it has one row per tree.

        Args:
            name: E.g. ``"y"``.

        Returns:
            Tensor with one row per tree, in the order of the (sub)set.

        Raises:
            ShapeError: If the attribute has another number of rows.

        Example:
            >>> dataset.column("y").sum(0)  # doctest: +SKIP
        """
        value = self._data[name]
        count = self.len()
        slices = (self.slices or {}).get(name)
        if (
            not isinstance(value, Tensor)
            or value.size(0) != count
            or (slices is not None and not torch.equal(slices, torch.arange(count + 1)))
        ):
            raise ShapeError(
                f"'{name}' does not have one row per {self.noun.removesuffix('s')}: read it from "
                "the trees."
            )
        return value[torch.as_tensor(list(self.indices()), dtype=torch.long)]
