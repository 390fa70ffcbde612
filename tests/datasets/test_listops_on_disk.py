"""ListOps in a database."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.loader import DataLoader

import hsa_geo.datasets.listops_on_disk as module
from hsa_geo.datasets.listops_on_disk import listops_on_disk, split_of
from hsa_geo.errors import BuilderError


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 64)


def symbols(dataset) -> list[list[int]]:
    return [tree.symbol_x.tolist() for tree in dataset]


def test_one_call_equals_several(tmp_path, monkeypatch):
    whole = listops_on_disk(tmp_path / "one", 90, seed=3)
    listops_on_disk(tmp_path / "two", 25, seed=3)
    listops_on_disk(tmp_path / "two", 20, seed=3)  # nothing to do

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
