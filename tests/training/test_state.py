"""Checkpoints that fit did not write, or that were altered."""

import shutil

import pytest
import torch
from training_cases import Model, cross_entropy, make_trees

from hsa_geo.errors import CheckpointError, ResumeError
from hsa_geo.training import Checkpoints, Options, fit

TREES = make_trees(30)
OPTIONS = Options(epochs=2, budget=100, lr=0.02, ema=0.5)


def train(folder, trees=TREES, resume=True):
    model = Model()
    fit(
        model,
        trees,
        TREES,
        loss=cross_entropy,
        options=OPTIONS,
        folder=folder,
        resume=resume,
        log=False,
    )
    return model


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    train(folder)
    return folder


def edit(finished, folder, change):
    """A copy whose newest checkpoint is changed, with hashes that fit."""
    shutil.copytree(finished, folder)
    checkpoints = Checkpoints(folder)
    step, tensors, content = checkpoints.newest()
    change(tensors, content)
    checkpoints.write(step, tensors, content)
    return folder


def progress(**values):
    return lambda tensors, content: content["progress"].update(values)


def tensor(name, value):
    return lambda tensors, content: tensors.update({name: value})


def without(name):
    return lambda tensors, content: tensors.pop(name)


def no_best(tensors, content):
    for name in [name for name in tensors if name.startswith("best/")]:
        del tensors[name]


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("of what training", lambda tensors, content: content.clear()),
        ("of what training", lambda tensors, content: content.update(identity=None)),
        ("progress of a training", lambda tensors, content: content.pop("progress")),
        ("progress of a training", progress(more=1)),
        ("epoch is 'x'", progress(epoch="x")),
        ("total_steps is -1", progress(total_steps=-1)),
        ("step is True", progress(step=True)),
        ("best_metric is 'x'", progress(best_metric="x")),
        ("epoch and history do not fit", progress(history=[])),
        ("epoch and history do not fit", progress(history=[None, None])),
        ("times of the epochs", progress(epoch_seconds=["a", "b"])),
        ("'model/other' is new", tensor("model/other", torch.zeros(1))),
        ("something else", tensor("other", torch.zeros(1))),
        ("'model/head.bias' is missing", without("model/head.bias")),
        (r"'model/head.bias' is .* \[1\], not .* \[2\]", tensor("model/head.bias", torch.zeros(1))),
        ("'model/head.bias' is torch.int64", tensor("model/head.bias", torch.zeros(2).long())),
        ("'average/head.bias' is missing", without("average/head.bias")),
        (r"'best/head.bias' is .* \[1\]", tensor("best/head.bias", torch.zeros(1))),
        ("best weights and their metric do not fit", no_best),
        ("'optimizer/0/exp_avg' is missing", without("optimizer/0/exp_avg")),
        (r"'optimizer/0/exp_avg' is .* \[1\]", tensor("optimizer/0/exp_avg", torch.zeros(1))),
        ("'optimizer/99/step' belongs to no", tensor("optimizer/99/step", torch.zeros(()))),
        ("'optimizer/x' belongs to no", tensor("optimizer/x", torch.zeros(()))),
    ],
)
def test_altered_checkpoints_are_refused(finished, tmp_path, message, change):
    folder = edit(finished, tmp_path / "copy", change)
    with pytest.raises(CheckpointError, match=f"is not as fit wrote it .*{message}.*remove"):
        train(folder)


def test_an_unchanged_one_is_read(finished, tmp_path):
    train(edit(finished, tmp_path / "copy", lambda tensors, content: None))


def test_other_data_of_the_same_sizes_is_refused(finished):
    labels = [tree.clone() for tree in TREES]
    labels[3].y = 1 - labels[3].y
    with pytest.raises(ResumeError, match=r"train\.labels was"):
        train(finished, labels)
    words = [tree.clone() for tree in TREES]
    for tree in words:
        tree.word_x = 5 - tree.word_x
    with pytest.raises(ResumeError, match=r"train\.some\.tree 0 was"):
        train(finished, words)
