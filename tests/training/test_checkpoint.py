"""Checkpoints: complete or none, exact, and of the same training."""

import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import pytest
import safetensors.torch
import torch
import training_cases
from training_cases import Model, cross_entropy, make_trees, minus_loss

from hsa_geo.errors import CheckpointError, DiskFullError, HSAWarning, ResumeError
from hsa_geo.training import Checkpoints, Options, fit
from hsa_geo.training.checkpoint import fingerprint
from hsa_geo.training.logs import COLUMNS, Log
from hsa_geo.training.state import Progress

TREES, HELD_OUT = make_trees(60), make_trees(20, seed=1)
OPTIONS = Options(epochs=2, budget=100, lr=0.02, ema=0.8, checkpoint_steps=2)


@pytest.fixture(scope="module")
def children():
    """Starts processes that have imported everything and share nothing with this one."""
    context = multiprocessing.get_context("forkserver")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        context.set_forkserver_preload(["training_cases"])
        forkserver.ensure_running()
    return context


def train(folder, options=OPTIONS, *, trees=TREES, model=None, resume=True, loss=cross_entropy):
    model = Model() if model is None else model
    result = fit(
        model,
        trees,
        HELD_OUT,
        loss=loss,
        metric=minus_loss,
        options=options,
        folder=folder,
        resume=resume,
        log=False,
    )
    return model, result


# Files ######################################################################


def test_the_newest_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new")
    assert checkpoints.newest() is None
    for step in (3, 6, 9):
        checkpoints.write(step, {"a": torch.full((3,), step)}, {"x": 1 / step, "deep": [None, "é"]})
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        *("checkpoint-000000006.json", "checkpoint-000000006.safetensors"),
        *("checkpoint-000000009.json", "checkpoint-000000009.safetensors"),
    ]
    step, tensors, content = checkpoints.newest()
    assert (step, content) == (9, {"x": 1 / 9, "deep": [None, "é"]})
    assert tensors["a"].tolist() == [9, 9, 9]


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)


def remove(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def other_number(path):
    path.write_text(path.read_text().replace('"x": 5', '"x": 6'))


@pytest.mark.parametrize("damage", [cut, flip, remove, empty])
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_damaged_one_is_passed_over(tmp_path, damage, suffix):
    checkpoints = Checkpoints(tmp_path)
    for step in (3, 6):
        checkpoints.write(step, {"a": torch.arange(step)}, {"x": step})
    damage(tmp_path / f"checkpoint-000000006.{suffix}")
    if (damage, suffix) == (remove, "json"):
        assert checkpoints.newest()[0] == 3  # it was never finished
    else:
        with pytest.warns(HSAWarning, match=r"000006\.\w+' is damaged .*: going on .* step 3\."):
            assert checkpoints.newest()[0] == 3
    checkpoints.write(4, {"a": torch.arange(4)}, {"x": 4})
    assert checkpoints.steps() == [3, 4]  # what is newer was damaged
    assert checkpoints.newest()[2] == {"x": 4}


def test_numbers_are_hashed_too(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {}, {"x": 5})
    other_number(tmp_path / "checkpoint-000000001.json")
    with pytest.raises(CheckpointError, match=r"own hash does not fit.*no other .* remove"):
        checkpoints.newest()


def test_another_schema_is_told(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {}, {})
    path = tmp_path / "checkpoint-000000001.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(CheckpointError, match=r"schema 7 of format 'hsa_geo\.checkpoint', not 1"):
        checkpoints.newest()


def test_unrelated_files_stay(tmp_path):
    names = ["checkpoint-last.safetensors", "checkpoint-000000001.txt", "model.safetensors"]
    for name in names:
        (tmp_path / name).write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        checkpoints.write(step, {}, {})
    assert all((tmp_path / name).read_text() == "mine" for name in names)


def write_with_little_room(folder, room):
    """In a child: files cannot grow beyond ``room`` bytes, as on a disk that is nearly full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        Checkpoints(folder).write(2, {"a": torch.ones(1000)}, {"x": ["long"] * 1000})
    except DiskFullError as error:
        os._exit(0 if "step 1 is whole" in str(error) and "free some" in str(error) else 3)
    os._exit(4)


@pytest.mark.parametrize("room", [100, 6000])  # no room for the tensors, or for the JSON alone
def test_a_full_disk_leaves_the_old_one_whole(tmp_path, children, room):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {"a": torch.zeros(1000)}, {"x": 1})
    before = sorted(path.name for path in tmp_path.iterdir())
    child = children.Process(target=write_with_little_room, args=(tmp_path, room))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert checkpoints.newest()[0] == 1


def log_with_little_room(folder, room):
    """In a child: ``metrics.csv`` does not fit any more."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    rows = [dict.fromkeys(COLUMNS, 1)] * 1000
    with Log(Path(folder), Options(), Progress()) as log:
        try:
            log.row(rows)
        except DiskFullError as error:
            os._exit(0 if "no room for metrics.csv" in str(error) else 3)
    os._exit(4)


def test_a_full_disk_leaves_the_old_metrics_whole(tmp_path, children):
    child = children.Process(target=log_with_little_room, args=(tmp_path, 100))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]
    assert (tmp_path / "metrics.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_metrics_that_cannot_be_written_for_another_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"metrics\.csv cannot be written"):
        Log(tmp_path / "file", Options(), Progress())


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"step 1 cannot be written to .*file"):
        Checkpoints(tmp_path / "file").write(1, {}, {})


def test_links_that_were_put_there_are_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    folder.mkdir()
    stem = "checkpoint-000000001"
    for name in (f"{stem}.part", f"{stem}.safetensors", f"{stem}.json"):
        for link in (name, f".{name}.part"):
            (folder / link).symlink_to(victim)
    (folder / ".metrics.csv.part").symlink_to(victim)
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, {"a": torch.zeros(2)}, {"x": 1})
    assert victim.read_text() == "precious"
    assert checkpoints.newest()[2] == {"x": 1}
    assert not (folder / f"{stem}.safetensors").is_symlink()


@pytest.mark.parametrize("content", [{"x": float("inf")}, {"x": {1}}, {"x": object()}])
def test_what_is_no_json_leaves_nothing_behind(tmp_path, content):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="step 1 cannot be written"):
        checkpoints.write(1, {"a": torch.zeros(2)}, content)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_one_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("hsa_geo.training.checkpoint.write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Checkpoints(tmp_path).write(1, {"a": torch.zeros(2)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["step", "sha256", "content"])
def test_one_that_lacks_a_part(tmp_path, missing):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {"a": torch.zeros(2)}, {})
    path = tmp_path / "checkpoint-000000001.json"
    body = json.loads(path.read_text())
    del body["own_sha256"], body[missing]
    path.write_text(json.dumps({**body, "own_sha256": fingerprint(body)}))
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoints.newest()


# Going on ###################################################################


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A folder of a training that stopped in the middle of its second epoch."""
    folder = tmp_path_factory.mktemp("interrupted")
    calls = iter(range(1000))

    def loss(model, batch):
        if next(calls) == 9:
            raise KeyboardInterrupt
        return cross_entropy(model, batch)

    with pytest.raises(KeyboardInterrupt):
        train(folder, loss=loss)
    assert Checkpoints(folder).steps() == [6, 8]
    return folder


def copied(folder, tmp_path):
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same training without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    model, result = train(folder, resume=False)
    assert result.best_epoch == OPTIONS.epochs  # or the end would not be compared
    return folder, model, result


def assert_equal(whole, folder, model, result):
    for name, value in whole[1].state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert (folder / "metrics.csv").read_bytes() == (whole[0] / "metrics.csv").read_bytes()
    assert result.history == whole[2].history
    assert (result.best_epoch, result.metric) == (whole[2].best_epoch, whole[2].metric)


def test_it_goes_on_in_the_middle_of_an_epoch(interrupted, whole, tmp_path):
    folder = copied(interrupted, tmp_path)
    model, result = train(folder, model=Model(seed=5))  # its first weights do not matter
    assert_equal(whole, folder, model, result)


def test_it_goes_on_from_the_one_before(interrupted, whole, tmp_path):
    folder = copied(interrupted, tmp_path)
    cut(folder / "checkpoint-000000008.safetensors")
    with pytest.warns(HSAWarning, match="going on from that of step 6"):
        model, result = train(folder)
    assert_equal(whole, folder, model, result)


def test_it_goes_on_with_other_workers_and_intervals(interrupted, whole, tmp_path):
    folder = copied(interrupted, tmp_path)
    options = replace(OPTIONS, num_workers=1, checkpoint_steps=None, checkpoint_seconds=0.0)
    assert_equal(whole, folder, *train(folder, options))


def test_a_finished_training_is_read(whole, tmp_path):
    folder = copied(whole[0], tmp_path)

    def never(model, batch):
        raise AssertionError

    model, result = train(folder, loss=never, model=Model(seed=5))
    assert_equal(whole, folder, model, result)
    assert not model.training


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (r"options\.lr was 0\.02 and is 0\.03", {"options": replace(OPTIONS, lr=0.03)}),
        (r"options\.seed was 0 and is 1", {"options": replace(OPTIONS, seed=1)}),
        (r"train\.trees was 60 and is 59", {"trees": TREES[:-1]}),
        (r"train\.sizes was", {"trees": [TREES[1], TREES[0], *TREES[2:]]}),
        (r"parts\.encoder\.blocks\.0\.dropout\.p was 0\.2 and is 0\.3", {"model": Model(0.3)}),
        (r"words\.embedding_dim was 8 and is 16.*and \d+ more", {"model": Model(channels=16)}),
    ],
)
def test_another_training_is_refused(interrupted, tmp_path, message, change):
    folder = copied(interrupted, tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ResumeError, match=message):
        train(folder, **change)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_other_frozen_weights_are_refused(tmp_path):
    def frozen(seed):
        model = Model(seed=seed)
        model.words.weight.requires_grad_(False)
        return model

    train(tmp_path, model=frozen(0))
    train(tmp_path, model=frozen(0))
    with pytest.raises(ResumeError, match=r"model\.frozen\.words\.weight was"):
        train(tmp_path, model=frozen(1))


# Kills ######################################################################


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kills_change_nothing(tmp_path, children):
    job = {"epochs": 6, "budget": 60, "lr": 0.02, "ema": 0.8, "checkpoint_steps": 3}
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()

    def start(name, **more):
        text = json.dumps({**job, **more})
        child = children.Process(target=training_cases.main, args=(str(tmp_path / name), text))
        child.start()
        return child

    whole = start("whole")
    generator, kills, reached = random.Random(0), 0, []
    checkpoints = Checkpoints(tmp_path / "killed")
    while kills < 4:
        child = start("killed", seconds_per_step=0.02)
        before = checkpoints.steps()
        while child.is_alive() and checkpoints.steps() == before:
            time.sleep(0.005)
        child.join(generator.uniform(0.0, 0.2))
        if not child.is_alive():
            break
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
        calls = (tmp_path / "killed" / "calls").stat().st_size
        reached.append(checkpoints.newest()[0])
        began = before[-1] if before else 0
        assert began + calls - 1 - reached[-1] <= 3  # steps that are lost
    assert kills >= 3
    assert reached == sorted(reached)
    child = start("killed")
    child.join()
    whole.join()
    assert child.exitcode == whole.exitcode == 0
    for file in ("final-0.safetensors", "metrics.csv"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes()
    final = safetensors.torch.load_file(tmp_path / "killed" / "final-0.safetensors")
    assert not torch.equal(final["head.weight"], Model(seed=0).head.weight)
