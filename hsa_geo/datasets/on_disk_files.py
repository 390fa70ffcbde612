"""The two files of trees on disk, ``sqlite.db`` and ``schema.json``: do they belong together?

Example:
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "schema.json")
    >>> write_schema(path, {"num_nodes": {"kind": "count"}})
    >>> read_schema(path)
    {'num_nodes': {'kind': 'count'}}
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hsa_geo.datasets.disk import write_bytes
from hsa_geo.datasets.on_disk_rows import DTYPES
from hsa_geo.errors import DiskFullError, FileFormatError, HSAError

__all__ = ["check_table", "forget_empty", "read_schema", "telling", "write_schema"]

#: Version of the layout; a database of another version is refused.
SCHEMA = 1


@contextmanager
def telling(path: str) -> Iterator[None]:
    """Errors of a database in words.

    Args:
        path: The database.

    Raises:
        DiskFullError: If there is no room.
        FileFormatError: In place of what a damaged database makes the readers raise.

    Example:
        >>> with telling("sqlite.db"):
        ...     raise IndexError("no such place")
        Traceback (most recent call last):
        ...
        hsa_geo.errors.FileFormatError: 'sqlite.db' holds no such tree, or is damaged (no such ...
    """
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error):
            raise DiskFullError(f"no room for '{path}' ({error}): free some.") from error
        raise FileFormatError(
            f"'{path}' cannot be read or written ({error}): let one process write at a time; if "
            "the file is damaged, remove it and its schema.json, and build anew."
        ) from error
    except HSAError:
        raise
    except (TypeError, RuntimeError, ValueError, IndexError, OverflowError) as error:
        raise FileFormatError(
            f"'{path}' holds no such tree, or is damaged ({error}): if it is, remove it and its "
            "schema.json, and build anew."
        ) from error


def write_schema(path: Path, fields: dict[str, dict[str, Any]]) -> None:
    """Write what the columns of the database are.

    Args:
        path: The file.
        fields: What :func:`~hsa_geo.datasets.on_disk_rows.fields_of` gave.

    Raises:
        DiskFullError: If there is no room.

    Example:
        See the example of :mod:`hsa_geo.datasets.on_disk_files`.
    """
    content = {"format": "hsa_geo.OnDiskTrees", "schema": SCHEMA, "fields": fields}
    write_bytes(path, json.dumps(content, indent=1).encode())


def read_schema(path: Path) -> dict[str, dict[str, Any]] | None:
    """Read what the columns of the database are.

    Args:
        path: The file.

    Returns:
        What was written, or None if there is no file.

    Raises:
        FileFormatError: If it is damaged or of another version.

    Example:
        See the example of :mod:`hsa_geo.datasets.on_disk_files`.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fields = content["fields"]
        if content["format"] != "hsa_geo.OnDiskTrees" or "num_nodes" not in fields:
            raise ValueError("something else")
        for key, field in fields.items():
            kind = field["kind"]
            known = kind in ("count", "strings") or (
                kind == "tensor"
                and field["dtype"] in DTYPES
                and field["shape"].count(-1) == 1
                and all(type(n) is int and n >= -1 for n in field["shape"])
            )
            if not known or not key.isidentifier() or (key == "num_nodes") != (kind == "count"):
                raise ValueError(f"a strange {key!r:.40}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"'{path}' does not describe trees ({error}): remove the folder and build anew."
        ) from None
    if content.get("schema") != SCHEMA:
        raise FileFormatError(
            f"'{path}' has schema version {content.get('schema')!r}, this hsa_geo reads "
            f"{SCHEMA}: build the dataset anew."
        )
    return dict(fields)


def check_table(path: str, name: str, fields: dict[str, Any]) -> None:
    """See that a database is there and has a table of these columns, without gaps in its ids.

    Args:
        path: The database.
        name: Name of the table.
        fields: The columns.

    Raises:
        FileFormatError: If not.

    Example:
        >>> check_table("nowhere.db", "OnDiskTrees", {"num_nodes": {"kind": "count"}})
        Traceback (most recent call last):
        ...
        hsa_geo.errors.FileFormatError: 'nowhere.db' is missing, but its schema.json is there: ...
    """
    if not Path(path).is_file():
        raise FileFormatError(
            f"'{path}' is missing, but its schema.json is there: put it back, or remove "
            "schema.json and build anew."
        )
    with telling(path), closing(_opened(path)) as connection:
        found = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
        wanted = ["id", *(f"COL_{key}" for key in fields)]
        if sorted(found) != sorted(wanted):
            odd = sorted(set(found) ^ set(wanted))[:5]
            raise FileFormatError(
                f"'{path}' and its schema.json do not belong together ({odd} are in one of both): "
                "put the right one back, or remove both and build anew."
            )
        query = f'SELECT COUNT(*), MIN(id), MAX(id) FROM "{name}"'
        count, first, last = connection.execute(query).fetchone()
        if count and (first, last) != (0, count - 1):
            raise FileFormatError(
                f"'{path}' holds {count} trees, but their numbers go from {first} to {last}, so "
                "some are lost: remove it and its schema.json, and build anew."
            )


def forget_empty(path: str, name: str, drop: bool = False) -> None:
    """See that a database without a schema holds no trees, as a killed run may leave it.

    Args:
        path: The database.
        name: Name of the table.
        drop: Remove the table. (default: :obj:`False`)

    Raises:
        FileFormatError: If there are trees, which cannot be read any more, or it is no database.

    Example:
        >>> forget_empty("nowhere.db", "OnDiskTrees")
    """
    if not Path(path).exists():
        return
    with telling(path), closing(_opened(path)) as connection:
        query = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not connection.execute(query, (name,)).fetchone()[0]:
            return
        if connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]:
            raise FileFormatError(
                f"'{path}' holds trees, but its schema.json is missing, without which they cannot "
                "be read: put it back, or remove the database and build anew."
            )
        if drop:
            connection.execute(f'DROP TABLE "{name}"')


def _opened(path: str) -> sqlite3.Connection:
    """A database that is there: sqlite would make it otherwise."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True)
