"""Trees in a database on disk, for sets that do not fit in memory: SQLite, tensors, never pickle.

A PyG ``OnDiskDataset`` whose schema is made from the first trees: a column for each attribute, of
bytes whose shape and dtype the file ``schema.json`` beside the database holds.  Integers are stored
in the narrowest type that holds them and come back in their own.

Example:
    >>> import tempfile, torch
    >>> dataset = OnDiskTrees(tempfile.mkdtemp())
    >>> dataset.extend([SignalTree.from_parents([n] * n + [-1]) for n in (1, 2, 3)])
    >>> len(dataset), dataset[2], dataset.leaf_counts().tolist()
    (3, SignalTree(leaves=3, nodes=4, depth=1), [1, 2, 3])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import OnDiskDataset

from hsa_geo.data import SignalTree
from hsa_geo.datasets.arguments import writable_folder
from hsa_geo.datasets.disk import checked_root
from hsa_geo.datasets.on_disk_checks import check_tree
from hsa_geo.datasets.on_disk_files import (
    check_table,
    forget_empty,
    read_schema,
    telling,
    write_schema,
)
from hsa_geo.datasets.on_disk_rows import fields_of, row_of, unpacked
from hsa_geo.errors import FileFormatError, UnsupportedError

__all__ = ["OnDiskTrees"]


class OnDiskTrees(OnDiskDataset):
    r"""Trees in a SQLite database; :meth:`extend` it, then read any of them.

    All trees have the attributes of the first ones: tensors of one dtype whose shapes differ in one
    dimension, the same for all, and lists of strings.  What :meth:`extend` was given is there
    completely or not at all, also after a kill.  Data loaders with several processes open a
    connection each.

    Args:
        root: Folder that holds ``processed``; made if missing.
        transform: Applied to a tree on every access. (default: :obj:`None`)

    Raises:
        FileFormatError: If the files in the folder are damaged or of another version, or one of
            the two is missing.
        PathError: If ``root`` is no path, a file, or cannot be made.
        UnsupportedError: If ``transform`` is no function.

    Example:
        >>> import tempfile
        >>> dataset = OnDiskTrees(tempfile.mkdtemp())
        >>> dataset.append(SignalTree.from_parents([2, 2, -1]))
        >>> dataset[0]
        SignalTree(leaves=2, nodes=3, depth=1)
    """

    _db: Any

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[SignalTree], Any] | None = None,
    ) -> None:
        self._process_id = os.getpid()
        self._left: list[Any] = []  # connections of the parent process, never to be closed here
        self._fields: dict[str, dict[str, Any]] | None = None
        path = checked_root(root, transform=transform)
        processed = path.expanduser() / "processed"  # which PyG would make
        if not processed.is_dir():
            writable_folder(processed)
        super().__init__(os.fspath(path), transform, log=False)
        fields = read_schema(self._schema_path)
        if fields is None:
            forget_empty(self.processed_paths[0], type(self).__name__)
        else:
            self._set_schema(fields)
            self.len()

    # Writing ################################################################

    def append(self, data: SignalTree) -> None:
        """Append a tree; many at once are much faster with :meth:`extend`.

        Args:
            data: The tree.

        Raises:
            As :meth:`extend`.
        """
        self.extend([data])

    def extend(self, data_list: Sequence[SignalTree], batch_size: int | None = None) -> None:
        """Append trees, in one step for each batch of them.

        Args:
            data_list: The trees.
            batch_size: How many are written in one step. (default: all)

        Raises:
            MixedKeysError: If a tree has other attributes than the first ones.
            UnsupportedError: If an attribute has another shape or dtype, or can not be stored, or
                this is a part of a dataset.
            TreeError, ShapeError, DomainError: If a tree is none; see
                :meth:`~hsa_geo.data.SignalTree.validate`.
            DiskFullError: If there is no room.
        """
        if self._indices is not None:
            raise UnsupportedError("this is a part of a dataset: extend the whole one.")
        trees = list(data_list)
        if not trees:
            return
        fields = self._fields or read_schema(self._schema_path)  # of who was faster, too
        fields = fields or fields_of(trees)
        rows = [row_of(tree, fields) for tree in trees]  # all, before anything is written
        for tree in trees:
            check_tree(tree)
        if self._fields is None:
            self._begin(fields)
        step = len(rows) if batch_size is None else batch_size
        with telling(self.processed_paths[0]):
            for first in range(0, len(rows), step):
                start = self.len()
                some = rows[first : first + step]
                try:
                    self.db.multi_insert(range(start, start + len(some)), some, None)
                except BaseException:
                    self.db.connection.rollback()
                    raise
                self._numel = start + len(some)

    def serialize(self, data: SignalTree) -> dict[str, Any]:
        """A tree as columns.

        Args:
            data: The tree.

        Returns:
            Values by name: bytes as uint8 tensors.
        """
        return row_of(data, self._fields or {})

    # Reading ################################################################

    def deserialize(self, data: dict[str, Any]) -> SignalTree:
        """A tree from columns.

        Args:
            data: What :meth:`serialize` gave.

        Returns:
            The tree.

        Raises:
            ValueError, RuntimeError, TypeError: If the columns are damaged.
        """
        tree = SignalTree()
        for key, field in (self._fields or {}).items():
            tree[key] = unpacked(data[key], field)
        check_tree(tree)
        return tree

    def get(self, idx: int) -> SignalTree:
        """The tree at a place of the whole dataset.

        Args:
            idx: The place.

        Returns:
            The tree, without ``transform``.

        Raises:
            FileFormatError: If there is none, or it is damaged.
        """
        with telling(self.processed_paths[0]):
            return self._read(int(idx), self.db.get(int(idx)))

    def multi_get(self, indices: Any, batch_size: int | None = None) -> list[SignalTree]:
        """Trees at some places of the whole dataset, with ``transform``.

        Args:
            indices: The places.
            batch_size: How many are fetched at a time. (default: all)

        Returns:
            The trees, in order.

        Raises:
            FileFormatError: If one is not there, or damaged.
        """
        if isinstance(indices, slice):
            indices = range(*indices.indices(super().len()))
        places = [int(i) for i in indices]
        with telling(self.processed_paths[0]):
            rows = self.db.multi_get(places, batch_size) if places else []
            if len(rows) < len(places):
                raise ValueError(f"{len(places) - len(rows)} of {len(places)} places are not there")
            trees = [self._read(place, row) for place, row in zip(places, rows)]
        return trees if self.transform is None else [self.transform(tree) for tree in trees]

    def __getitems__(self, indices: list[int]) -> list[SignalTree]:
        """What a data loader asks for: places in this (part of the) dataset."""
        own = self.indices()
        return self.multi_get([own[i] for i in indices])

    def leaf_counts(self) -> Tensor:
        """Number of leaves of every tree of this (part of the) dataset, read without the trees.

        Returns:
            ``[n]`` int64.
        """
        if self._fields is None:
            return torch.empty(0, dtype=torch.int64)
        with telling(self.processed_paths[0]):
            cursor = self.db.cursor
            cursor.execute(f"SELECT COL_num_nodes FROM {self.db.name} ORDER BY id")
            found = [unpacked(row[0], {"kind": "count"}) for row in cursor.fetchall()]
            counts = torch.tensor(found, dtype=torch.int64)
        return counts if self._indices is None else counts[torch.tensor(list(self.indices()))]

    def len(self) -> int:
        """Number of trees of the whole dataset."""
        return 0 if self._fields is None else int(super().len())

    # Files and connections ##################################################

    @property
    def db(self) -> Any:
        """The database, through a connection of this process."""
        if self._fields is None:
            raise UnsupportedError("there are no trees yet: extend the dataset first.")
        if self._process_id != os.getpid():  # a connection must not be carried over a fork
            self._left.append(self._db)
            self._db, self._process_id = None, os.getpid()
        if self._db is None:
            check_table(self.processed_paths[0], type(self).__name__, self._fields)
        return super().db

    def close(self) -> None:
        """Close the connection; the next access opens another."""
        super().close()
        self._db = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_db": None, "_left": []}

    @property
    def _schema_path(self) -> Path:
        return Path(self.processed_dir, "schema.json")

    def _begin(self, fields: dict[str, dict[str, Any]]) -> None:
        """Both files, without trees: whenever this is killed, there are none afterwards."""
        self._set_schema(fields)
        if self._schema_path.exists():  # another process was faster
            return
        path = self.processed_paths[0]
        try:
            os.makedirs(self.processed_dir, exist_ok=True)
            forget_empty(path, type(self).__name__, drop=True)
            with telling(path):
                super().db.connection.commit()
            write_schema(self._schema_path, fields)
        except BaseException:
            self.close()
            self._fields = None
            raise

    def _read(self, place: int, row: dict[str, Any]) -> SignalTree:
        try:
            return self.deserialize(row)
        except (TypeError, RuntimeError, ValueError, KeyError) as error:
            raise FileFormatError(
                f"tree {place} of '{self.processed_paths[0]}' is damaged ({error}): remove it and "
                "its schema.json, and build anew."
            ) from error

    def _set_schema(self, fields: dict[str, dict[str, Any]]) -> None:
        self._fields = fields
        blob = {"dtype": torch.uint8, "size": (-1,)}
        kinds = {"count": int, "strings": str}
        self.schema = {key: kinds.get(field["kind"], blob) for key, field in fields.items()}
