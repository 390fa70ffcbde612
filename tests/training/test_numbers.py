"""Numbers, folders and devices that are none are told in one sentence."""

import numpy as np
import pytest
import torch

from hsa_geo.data import SignalTree
from hsa_geo.errors import CheckpointError, PathError, ShapeError, UnsupportedError
from hsa_geo.training import Checkpoints, LeafBudgetBatchSampler, connected, fit, leaf_counts
from hsa_geo.training.numbers import whole_number

TREE = SignalTree.from_parents([2, 2, -1])


@pytest.mark.parametrize("value", ["4", None, 1.5, True, [], -1])
@pytest.mark.parametrize(
    "name", ["budget", "seed", "num_replicas", "rank", "max_trees", "step_budget", "bucketing"]
)
def test_numbers_of_the_sampler(name, value):
    given = {"budget": 4, name: value}
    if value is None and name in ("max_trees", "step_budget"):
        assert list(LeafBudgetBatchSampler([3, 2, 1], shuffle=False, **given)) == [[0], [1, 2]]
        return
    with pytest.raises(ShapeError, match=f"{name}=.* must be a whole number of at least [01]"):
        LeafBudgetBatchSampler([3, 2, 1], **given)


def test_numbers_of_numpy_are_numbers():
    assert type(whole_number("budget", np.int64(4))) is int
    sampler = LeafBudgetBatchSampler(np.array([3, 2, 1]), np.int64(4), False, np.int32(0))
    assert list(sampler) == [[0], [1, 2]]


def test_shuffle_that_is_a_word():
    with pytest.raises(ShapeError, match="shuffle='no' is neither True nor False"):
        LeafBudgetBatchSampler([1], 4, "no")


@pytest.mark.parametrize("epoch", [("a",), (1.5,), (0, -1), (0, None)])
def test_epochs(epoch):
    with pytest.raises(ShapeError, match=r"(epoch|first_step)=.* must be a whole number"):
        LeafBudgetBatchSampler([1], 4).set_epoch(*epoch)


@pytest.mark.parametrize("sizes", [None, 3, 1.5, object])
def test_sizes_that_are_none(sizes):
    with pytest.raises(ShapeError, match="give a whole number for each tree, or a dataset"):
        leaf_counts(sizes)


def test_trees_among_numbers():
    with pytest.raises(ShapeError, match="tree 1 is 3: give trees alone"):
        leaf_counts([TREE, 3])


@pytest.mark.parametrize("folder", [None, 3, [], b"runs", "a\0b"])
def test_folders_that_are_none(folder):
    with pytest.raises(PathError, match="is no path: give the name of a folder"):
        Checkpoints(folder)
    if folder is not None:
        with pytest.raises(PathError, match="is no path: give the name of a folder"):
            fit(torch.nn.Linear(1, 1), [TREE], loss=lambda model, batch: None, folder=folder)


@pytest.mark.parametrize("step", ["1", None, 1.5, -1, 10**9])
def test_steps_of_checkpoints(tmp_path, step):
    checkpoints = Checkpoints(tmp_path)
    for act in (lambda: checkpoints.write(step, {}, {}), lambda: checkpoints.read(step)):
        with pytest.raises(ShapeError, match=f"step={step!r} "):
            act()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_tensor_leaves_nothing_behind(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be written"):
        checkpoints.write(1, {"a": 3}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["nowhere", None, []])
def test_devices_that_are_none(device):
    with pytest.raises(UnsupportedError, match="is no device: use 'auto'"), connected(device):
        pass


@pytest.mark.parametrize("name", ["resume", "log"])
def test_switches_of_fit(tmp_path, name):
    with pytest.raises(UnsupportedError, match=f"{name}='no' is neither True nor False"):
        fit(
            torch.nn.Linear(1, 1),
            [TREE],
            loss=lambda model, batch: None,
            folder=tmp_path,
            **{name: "no"},
        )
