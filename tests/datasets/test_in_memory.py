"""Trees in memory and in a file: no pickle, and what is wrong is told."""

import pytest
import torch
from torch_geometric.data import Data

from hsa_geo.data import SignalTree
from hsa_geo.datasets.collated import collate_trees, save_collated
from hsa_geo.datasets.in_memory import TreesInMemory
from hsa_geo.errors import FileFormatError, LabelError, ShapeError, UnsupportedError


def some_trees(labels=(0, 1, 0)):
    return [SignalTree.from_parents([2, 2, -1], y=torch.tensor([k])) for k in labels]


class Named(TreesInMemory):
    classes, stored, noun = ("a", "b"), ("names",), "pages"


def test_round_trip(tmp_path):
    path = str(tmp_path / "f")
    TreesInMemory.save(some_trees(), path)
    dataset = TreesInMemory()
    dataset.load(path)
    assert len(dataset) == 3
    assert all(type(tree) is SignalTree for tree in dataset)
    assert dataset[1:].column("y").tolist() == [1, 0]
    assert dataset.num_classes == 2
    assert dataset[:1].copy().num_classes == 1  # no classes are named, so PyG counts
    with pytest.raises(ShapeError, match="'tree_level' does not have one row per tree"):
        dataset.column("tree_level")
    with pytest.raises(ShapeError, match="'num_nodes' does not"):
        dataset.column("num_nodes")


def test_as_many_rows_as_trees_are_not_yet_a_row_for_each(tmp_path):
    trees = some_trees()
    for tree, rows in zip(trees, (0, 2, 1)):
        tree.odd, tree.even = torch.arange(rows), torch.tensor([[rows, 1]])
    TreesInMemory.save(trees, str(tmp_path / "f"))
    dataset = TreesInMemory()
    dataset.load(str(tmp_path / "f"))
    assert dataset.column("even").tolist() == [[0, 1], [2, 1], [1, 1]]
    with pytest.raises(ShapeError, match="'odd' does not have one row per tree"):
        dataset.column("odd")
    one = dataset.copy([2])
    assert one.column("even").tolist() == [[1, 1]]


def test_stored_attributes_come_back_before_labels_are_checked(tmp_path):
    path = str(tmp_path / "f")
    save_collated(path, *collate_trees(some_trees()), {"names": ["x"], "classes": ["only"]})
    dataset = Named()
    dataset.load(path)
    assert dataset.names == ["x"]
    assert dataset[:1].num_classes == 2
    Named.stored = ("names", "classes")
    try:
        with pytest.raises(LabelError, match=r"'.*f' is no file of these trees \(y holds 1"):
            dataset.load(path)
    finally:
        Named.stored = ("names",)
    save_collated(path, *collate_trees(some_trees()))
    with pytest.raises(FileFormatError, match="it lacks 'names'"):
        dataset.load(path)


def test_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="SignalTree, not Data: leave data_cls out"):
        TreesInMemory().load("x", Data)
    with pytest.raises(UnsupportedError, match="would pickle"):
        TreesInMemory().to_on_disk_dataset()
    (tmp_path / "f").write_bytes(b"no")
    with pytest.raises(FileFormatError, match=r"is damaged.*force_reload=True, or remove that"):
        TreesInMemory().load(str(tmp_path / "f"))
