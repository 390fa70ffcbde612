"""Options that are none, and roots that cannot be written to: typed errors before any work."""

import os
from pathlib import Path

import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.datasets import IMDB, FormPages, ListOps, ManualPages, OnDiskTrees, Records
from hsa_geo.datasets.arguments import writable_folder
from hsa_geo.datasets.stored import StoredTrees
from hsa_geo.errors import PathError, UnsupportedError


class Stars(StoredTrees):
    """Needs no archive."""

    file_name = "stars"

    def items(self):
        return [1, 2]

    def tree(self, item):
        return SignalTree.from_parents([item] * item + [-1], y=torch.tensor([item]))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody may write to")
@pytest.mark.parametrize("dataset", [Stars, OnDiskTrees])
def test_a_root_that_cannot_be_made(dataset):
    with pytest.raises(PathError, match=r"'/proc/nope/processed' cannot be made .*: give a root"):
        dataset("/proc/nope")


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    if os.geteuid() == 0:  # who may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(PathError, match="cannot be written to: give a root"):
        writable_folder(tmp_path)


def test_what_is_built_is_read_where_nobody_may_write(tmp_path, monkeypatch):
    Stars(tmp_path, log=False)
    OnDiskTrees(tmp_path).append(SignalTree.from_parents([1, -1]))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert len(Stars(tmp_path, log=False)) == 2
    assert len(OnDiskTrees(tmp_path)) == 1


@pytest.mark.parametrize("dataset", [Stars, IMDB, ListOps, Records, FormPages, ManualPages])
@pytest.mark.parametrize("options", [-1, 2.5, object, "nowhere", [("a", 1)], {3: 1}])
def test_options_that_are_none(tmp_path, dataset, options):
    with pytest.raises(UnsupportedError, match=r"options=.* are none: give a dict"):
        dataset(tmp_path, options=options)


def test_options_that_json_cannot_hold(tmp_path):
    with pytest.raises(UnsupportedError, match=r"option 'a' is .*, which JSON cannot hold"):
        Stars(tmp_path, options={"a": object()})
