"""The database and its schema: one without the other, or of another."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets import on_disk as module
from hsa_geo.datasets.on_disk import OnDiskTrees
from hsa_geo.datasets.on_disk_files import read_schema
from hsa_geo.errors import DiskFullError, FileFormatError, TreeError


def tree(n: int, **more) -> SignalTree:
    return SignalTree.from_parents([n] * n + [-1], y=torch.tensor([n]), **more)


@pytest.fixture
def root(tmp_path):
    dataset = OnDiskTrees(tmp_path)
    dataset.extend([tree(n) for n in (1, 2, 3)])
    dataset.close()
    return tmp_path


def change(root: Path, query: str, *values) -> None:
    connection = sqlite3.connect(root / "processed" / "sqlite.db")
    connection.execute(query, values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("empty", [False, True])
def test_no_database(root, empty):
    path = root / "processed" / "sqlite.db"
    opened = OnDiskTrees(root)
    opened.close()
    path.unlink()
    if empty:
        path.touch()
    message = "do not belong together" if empty else r"sqlite\.db' is missing.*build anew"
    with pytest.raises(FileFormatError, match=message):
        OnDiskTrees(root)
    with pytest.raises(FileFormatError, match=message):
        opened[0]
    assert path.exists() == empty  # nothing was made


def test_no_schema(root):
    early = OnDiskTrees(root / "other")
    (root / "processed" / "schema.json").rename(root / "schema.json")
    with pytest.raises(FileFormatError, match=r"sqlite\.db' holds trees, but its schema\.json is"):
        OnDiskTrees(root)
    (root / "other" / "processed").mkdir(parents=True, exist_ok=True)
    (root / "processed" / "sqlite.db").rename(root / "other" / "processed" / "sqlite.db")
    with pytest.raises(FileFormatError, match="holds trees, but"):
        early.append(tree(1))
    (root / "schema.json").rename(root / "other" / "processed" / "schema.json")
    assert len(OnDiskTrees(root / "other")) == 3


def test_killed_before_the_schema(tmp_path, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_schema", killed)
        with pytest.raises(KeyboardInterrupt):
            OnDiskTrees(tmp_path).append(tree(1, z=torch.zeros(1)))
    assert (tmp_path / "processed" / "sqlite.db").exists()
    dataset = OnDiskTrees(tmp_path)
    assert len(dataset) == 0
    dataset.append(tree(2))  # of other attributes
    assert OnDiskTrees(tmp_path)[0].y.tolist() == [2]


def test_killed_before_the_first_trees(tmp_path, monkeypatch):
    dataset = OnDiskTrees(tmp_path)
    dataset._begin(module.fields_of([tree(1)]))
    dataset.close()
    dataset = OnDiskTrees(tmp_path)
    assert len(dataset) == 0
    dataset.append(tree(2))
    assert len(OnDiskTrees(tmp_path)) == 1


def test_no_room_for_the_schema(tmp_path, monkeypatch):
    def full(*args):
        raise DiskFullError(28, "no room")

    dataset = OnDiskTrees(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_schema", full)
        with pytest.raises(DiskFullError):
            dataset.append(tree(1))
    assert len(dataset) == 0
    dataset.append(tree(1))
    assert len(OnDiskTrees(tmp_path)) == 1


def test_begun_by_two(tmp_path):
    one, two = OnDiskTrees(tmp_path), OnDiskTrees(tmp_path)
    one.extend([tree(1), tree(2)])
    two.extend([tree(3)])
    assert OnDiskTrees(tmp_path).leaf_counts().tolist() == [1, 2, 3]


@pytest.mark.parametrize("place", [0, 1])
def test_a_tree_is_lost(root, place):
    change(root, "DELETE FROM OnDiskTrees WHERE id = ?", place)
    with pytest.raises(FileFormatError, match="holds 2 trees, but"):
        OnDiskTrees(root)


def test_schema_of_another_database(root):
    path = root / "processed" / "schema.json"
    content = json.loads(path.read_text())
    del content["fields"]["y"]
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"do not belong together \(\['COL_y'\] are"):
        OnDiskTrees(root)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("y", {"kind": "zz"}),
        ("y", {"kind": "tensor", "dtype": "object", "shape": [-1]}),
        ("y", {"kind": "tensor", "dtype": "int64", "shape": [-1, -1]}),
        ("y", {"kind": "tensor", "dtype": "int64", "shape": "-1"}),
        ("y", {"kind": "tensor", "dtype": [], "shape": [-1]}),
        ("y", {"kind": "tensor", "shape": [-1]}),
        ("y", {"kind": "count"}),
        ("num_nodes", {"kind": "strings"}),
        ("y); DROP TABLE OnDiskTrees;--", {"kind": "strings"}),
    ],
)
def test_strange_fields(root, key, value):
    path = root / "processed" / "schema.json"
    content = json.loads(path.read_text())
    content["fields"][key] = value
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match="does not describe trees"):
        OnDiskTrees(root)


@pytest.mark.parametrize("content", ["[" * 99_999, "[1]", "null", "\xff"])
def test_strange_schema(tmp_path, content):
    path = tmp_path / "schema.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(FileFormatError, match="does not describe trees"):
        read_schema(path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tree_index", b"\0"),
        ("tree_index", b""),
        ("tree_index", b"\0\2\2\0\0"),
        ("tree_level", b"\0\1\1"),
        ("y", b"\x80\x04cos\nsystem\n"),
        ("y", b"\x09\1"),
        ("y", b"\4\1"),
        ("y", "text"),
        ("num_nodes", -3),
        ("num_nodes", 3),
        ("num_nodes", 9 * 10**18),
        ("num_nodes", "text"),
    ],
)
def test_damaged_columns(root, column, value):
    change(root, f"UPDATE OnDiskTrees SET COL_{column} = ? WHERE id = 1", value)
    dataset = OnDiskTrees(root)
    assert dataset[0].num_leaves == 1
    with pytest.raises(FileFormatError, match=r"tree 1 of|is damaged"):
        dataset[1]
    with pytest.raises(FileFormatError, match=r"build anew"):
        dataset.multi_get([0, 1])
    if value in (-3, "text") and column == "num_nodes":
        with pytest.raises(FileFormatError, match="is no number of leaves"):
            dataset.leaf_counts()


def test_places_that_are_not_there(root):
    with pytest.raises(FileFormatError, match="1 of 2 places are not there"):
        OnDiskTrees(root).multi_get([0, 7])


def test_trees_are_checked_before_they_are_written(root):
    bad = tree(3)
    bad.tree_index[0, 0] = 1
    dataset = OnDiskTrees(root)
    with pytest.raises(TreeError):
        dataset.extend([tree(1), bad])
    assert len(OnDiskTrees(root)) == 3


def test_folders_of_odd_names(tmp_path):
    root = tmp_path / "ü %3f?#x"
    OnDiskTrees(root).append(tree(2))
    assert len(OnDiskTrees(root)) == 1


@pytest.mark.skipif(os.name == "nt", reason="needs permissions")
def test_read_only(root):
    folder = root / "processed"
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert OnDiskTrees(root)[2].num_leaves == 3
    finally:
        folder.chmod(0o755)
