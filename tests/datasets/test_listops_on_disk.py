"""ListOps in a database."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from torch_geometric.loader import DataLoader

from hsa_geo.data import SignalTree
from hsa_geo.datasets import OnDiskTrees
from hsa_geo.datasets.listops_on_disk import listops_on_disk, split_of
from hsa_geo.errors import BuilderError, FileFormatError, ShapeError, UnsupportedError

module = sys.modules["hsa_geo.datasets.listops_on_disk"]  # the package has the function


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 64)


def symbols(dataset) -> list[list[int]]:
    return [tree.symbol_x.tolist() for tree in dataset]


def test_one_call_equals_several(tmp_path, monkeypatch):
    whole = listops_on_disk(tmp_path / "one", 90, seed=3)
    listops_on_disk(tmp_path / "two", 25, seed=3)

    done = []
    extend = module.OnDiskTrees.extend

    def killed(self, trees, batch_size=None):
        if done:
            raise KeyboardInterrupt
        done.append(len(trees))
        extend(self, trees, batch_size)

    with monkeypatch.context() as patch:
        patch.setattr(module.OnDiskTrees, "extend", killed)
        with pytest.raises(KeyboardInterrupt):
            listops_on_disk(tmp_path / "two", 90, seed=3)
    again = listops_on_disk(tmp_path / "two", 90, seed=3)
    assert len(again) == len(whole) == 90
    assert symbols(again) == symbols(whole)
    assert symbols(whole) != symbols(listops_on_disk(tmp_path / "three", 90, seed=4))


def test_trees(tmp_path):
    dataset = listops_on_disk(tmp_path, 60, min_leaves=5, max_leaves=25)
    assert dataset.leaf_counts().min() >= 5
    assert dataset.leaf_counts().max() <= 25
    batches = list(DataLoader(dataset, batch_size=20, num_workers=2))
    assert [batch.num_graphs for batch in batches] == [20] * 3
    assert torch.cat([batch.y for batch in batches]).unique().numel() > 5
    assert set(torch.cat([batch.split for batch in batches]).tolist()) <= {0, 1, 2}


def test_splits():
    parts = [split_of(i.to_bytes(4)) for i in range(5000)]
    assert abs(parts.count(0) / 5000 - 0.96) < 0.02
    assert min(parts.count(1), parts.count(2)) > 50


def test_what_cannot_be_found(tmp_path):
    with pytest.raises(BuilderError, match="no expression has 50 to 60 leaves"):
        listops_on_disk(tmp_path, 5, min_leaves=50, max_leaves=60, max_depth=1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    root = tmp_path_factory.mktemp("filled")
    listops_on_disk(root, 40, seed=3, nested=0.25)
    return root


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"seed": 4},
            r"the 40 expressions in .* were drawn with seed=3, not 4: use another root, or",
        ),
        ({"min_leaves": 11}, "min_leaves=10, not 11"),
        ({"max_leaves": 99}, "max_leaves=100, not 99"),
        ({"max_depth": 3}, "max_depth=4, not 3"),
        ({"max_args": 4}, "max_args=5, not 4"),
        ({"nested": 0.3, "seed": 0}, r"nested=0\.25, not 0\.3 and seed=3, not 0: use"),
    ],
)
@pytest.mark.parametrize("count", [20, 60])
def test_other_options_are_refused(filled, changed, told, count):
    before = symbols(OnDiskTrees(filled))
    with pytest.raises(UnsupportedError, match=told):
        listops_on_disk(filled, count, **{"seed": 3, "nested": 0.25, **changed})
    assert symbols(OnDiskTrees(filled)) == before


def test_the_same_options_in_other_types(filled):
    again = listops_on_disk(filled, 40, seed=np.int64(3), nested=np.float64(0.25))
    assert len(again) == 40


def test_a_smaller_count_gives_the_first_ones(filled):
    some = listops_on_disk(filled, 15, lambda tree: tree.y, seed=3, nested=0.25)
    assert len(some) == 15
    whole = listops_on_disk(filled, 40, seed=3, nested=0.25)
    assert [int(y) for y in some] == [int(tree.y) for tree in whole][:15]
    assert some.leaf_counts().tolist() == whole.leaf_counts()[:15].tolist()
    assert len(listops_on_disk(filled, 0, seed=3, nested=0.25)) == 0
    with pytest.raises(ShapeError, match="count=-1 is negative"):
        listops_on_disk(filled, -1, seed=3, nested=0.25)


def test_nothing_is_settled_while_there_is_no_tree(tmp_path):
    assert len(listops_on_disk(tmp_path, 0, seed=1)) == 0
    with pytest.raises(BuilderError):
        listops_on_disk(tmp_path, 5, min_leaves=50, max_leaves=60, max_depth=1)
    assert len(listops_on_disk(tmp_path, 5, seed=2)) == 5


def test_trees_that_do_not_tell_their_options(tmp_path):
    OnDiskTrees(tmp_path).append(SignalTree.from_parents([1, -1]))
    with pytest.raises(UnsupportedError, match=r"'listops_on_disk\.json' is missing.*another root"):
        listops_on_disk(tmp_path, 5)
    assert len(OnDiskTrees(tmp_path)) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_damaged_options(filled, tmp_path, content):
    shutil.copytree(filled, tmp_path / "copy")
    path = tmp_path / "copy" / "processed" / "listops_on_disk.json"
    assert json.loads(path.read_text())["seed"] == 3
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"listops_on_disk\.json' is damaged .*another root"):
        listops_on_disk(tmp_path / "copy", 40, seed=3, nested=0.25)
