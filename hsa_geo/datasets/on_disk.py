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

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import OnDiskDataset

from hsa_geo.data import SignalTree
from hsa_geo.datasets.disk import write_bytes
from hsa_geo.datasets.on_disk_rows import DTYPES, fields_of, row_of, unpacked
from hsa_geo.errors import DiskFullError, FileFormatError, MixedKeysError, UnsupportedError

__all__ = ["OnDiskTrees"]

#: Version of the layout; a database of another version is refused.
SCHEMA = 1


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
        FileFormatError: If the files in the folder are damaged or of another version.

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
        super().__init__(os.fspath(root), transform, log=False)
        fields = self._read_schema()
        if fields is not None:
            self._set_schema(fields)
            with _told(self.processed_paths[0]):
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
            DiskFullError: If there is no room.
        """
        if self._indices is not None:
            raise UnsupportedError("this is a part of a dataset: extend the whole one.")
        trees = list(data_list)
        if not trees:
            return
        fields = self._fields or fields_of(trees)
        rows = [row_of(tree, fields) for tree in trees]  # all, before anything is written
        if self._fields is None:
            content = {"format": "hsa_geo.OnDiskTrees", "schema": SCHEMA, "fields": fields}
            os.makedirs(self.processed_dir, exist_ok=True)
            write_bytes(self._schema_path, json.dumps(content, indent=1).encode())
            self._set_schema(fields)
        step = len(rows) if batch_size is None else batch_size
        with _told(self.processed_paths[0]):
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
        """
        tree = SignalTree()
        for key, field in (self._fields or {}).items():
            tree[key] = unpacked(data[key], field)
        return tree

    def get(self, idx: int) -> SignalTree:
        """The tree at a place of the whole dataset.

        Args:
            idx: The place.

        Returns:
            The tree, without ``transform``.
        """
        with _told(self.processed_paths[0]):
            return self.deserialize(self.db.get(int(idx)))

    def multi_get(self, indices: Any, batch_size: int | None = None) -> list[SignalTree]:
        """Trees at some places of the whole dataset, with ``transform``.

        Args:
            indices: The places.
            batch_size: How many are fetched at a time. (default: all)

        Returns:
            The trees, in order.
        """
        if isinstance(indices, slice):
            indices = range(*indices.indices(super().len()))
        places = [int(i) for i in indices]
        with _told(self.processed_paths[0]):
            rows = self.db.multi_get(places, batch_size) if places else []
            trees = [self.deserialize(row) for row in rows]
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
        with _told(self.processed_paths[0]):
            cursor = self.db.cursor
            cursor.execute(f"SELECT COL_num_nodes FROM {self.db.name} ORDER BY id")
            counts = torch.tensor([row[0] for row in cursor.fetchall()], dtype=torch.int64)
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

    def _set_schema(self, fields: dict[str, dict[str, Any]]) -> None:
        self._fields = fields
        blob = {"dtype": torch.uint8, "size": (-1,)}
        kinds = {"count": int, "strings": str}
        self.schema = {key: kinds.get(field["kind"], blob) for key, field in fields.items()}

    def _read_schema(self) -> dict[str, dict[str, Any]] | None:
        path = self._schema_path
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            fields = content["fields"]
            if content["format"] != "hsa_geo.OnDiskTrees" or "num_nodes" not in fields:
                raise ValueError("something else")
            for key, field in fields.items():
                if field["kind"] not in ("count", "strings") and field["dtype"] not in DTYPES:
                    raise ValueError(f"a strange {key!r}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(
                f"'{path}' does not describe trees ({error}): remove the folder and build anew."
            ) from None
        if content.get("schema") != SCHEMA:
            raise FileFormatError(
                f"'{path}' has schema version {content.get('schema')!r}, this hsa_geo reads "
                f"{SCHEMA}: build the dataset anew."
            )
        return dict(fields)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of the database in words."""
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise DiskFullError(f"no room for '{path}' ({error}): free some.") from error
        raise FileFormatError(
            f"'{path}' cannot be read or written ({error}): let one process write at a time; if "
            "the file is damaged, remove it and its schema.json, and build anew."
        ) from error
    except (TypeError, RuntimeError, ValueError) as error:
        if isinstance(error, FileFormatError | UnsupportedError | MixedKeysError):
            raise
        raise FileFormatError(f"'{path}' holds no such tree, or is damaged ({error}).") from error
