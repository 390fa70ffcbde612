"""Two processes, started by torchrun, take the steps of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import training_cases
from torch import nn

from hsa_geo.training import Checkpoints, LeafBudgetBatchSampler, World, connected

#: Two processes of 70 leaves, one of 140: the same steps.
TRAINING = {"epochs": 2, "budget": 70, "lr": 0.02, "dropout": 0.0, "ema": 0.8}
ALONE = {**TRAINING, "budget": 140}
#: One that the first process does not survive.
KILLED = {**TRAINING, "folder": "killed", "dropout": 0.3, "trees": 43, "checkpoint_steps": 2}


def run_two(folder, *jobs):
    """Run the jobs, one after the other, in two processes; returns the exit code."""
    script = Path(training_cases.__file__)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(script), str(folder), json.dumps(jobs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes made of several trainings, and one of the same."""
    folder = tmp_path_factory.mktemp("distributed")
    code, errors = run_two(
        folder,
        {**TRAINING, "folder": "two"},
        {**TRAINING, "folder": "two-groups", "loss": "groups", "trees": 57},
        {**TRAINING, "folder": "two-parts", "budget": 30, "step_budget": 140},
        {**TRAINING, "folder": "two-dropout", "dropout": 0.3, "trees": 43},
        {**KILLED, "die_after": 6},
    )
    assert code != 0
    assert (folder / "two-dropout" / "final-1.safetensors").is_file(), errors
    training_cases.main(
        folder,
        json.dumps(
            [
                {**ALONE, "folder": "one"},
                {**ALONE, "folder": "one-groups", "loss": "groups", "trees": 57},
            ]
        ),
    )
    return folder


def result_of(folder, rank=0):
    return json.loads((folder / f"result-{rank}.json").read_text())


def weights_of(folder, rank=0):
    return safetensors.torch.load_file(folder / f"final-{rank}.safetensors")


@pytest.mark.parametrize(
    ("two", "one"), [("two", "one"), ("two-groups", "one-groups"), ("two-parts", "one")]
)
def test_two_agree_with_one(folder, two, one):
    """Also where the last step has fewer trees, items are no trees, or steps are accumulated."""
    first, second = result_of(folder / two), result_of(folder / one)
    assert [row["step"] for row in first["history"]] == [row["step"] for row in second["history"]]
    for a, b in zip(first["history"], second["history"]):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
        assert a["metric"] == pytest.approx(b["metric"], rel=1e-4)
    for name, value in weights_of(folder / one).items():
        torch.testing.assert_close(
            weights_of(folder / two)[name], value, rtol=1e-4, atol=1e-6, msg=lambda t, n=name: n + t
        )


def test_steps_were_uneven():
    """The cases above hold a step of which one process has nothing."""
    trees = training_cases.make_trees(57)
    assert 0 in LeafBudgetBatchSampler(trees, 70, True, 0, 2, 1).weights
    sampler = LeafBudgetBatchSampler(trees, 30, True, 0, 2, 0, step_budget=140)
    assert len(sampler) > sampler.num_steps


@pytest.mark.parametrize("name", ["two", "two-groups", "two-parts", "two-dropout"])
def test_all_processes_end_with_the_same(folder, name):
    first, second = weights_of(folder / name), weights_of(folder / name, rank=1)
    assert all(torch.equal(second[key], value) for key, value in first.items())
    one, two = result_of(folder / name), result_of(folder / name, rank=1)
    for key in ("history", "best_epoch", "metric", "peak_memory"):
        assert one[key] == two[key]


def test_only_the_first_writes(folder):
    names = {path.name for path in (folder / "two").iterdir()}
    assert "metrics.csv" in names
    assert not [name for name in names if name.startswith(".") or name.endswith("part")]
    assert len(Checkpoints(folder / "two").steps()) == 2


def test_two_go_on_after_a_kill(folder):
    reached = Checkpoints(folder / "killed").steps()
    assert reached
    assert reached[-1] == 4
    code, errors = run_two(folder, KILLED)
    assert code == 0, errors
    for rank in (0, 1):
        expected = weights_of(folder / "two-dropout", rank)
        for name, value in weights_of(folder / "killed", rank).items():
            assert torch.equal(value, expected[name]), name
    table = [(folder / name / "metrics.csv").read_bytes() for name in ("killed", "two-dropout")]
    assert table[0] == table[1]


def test_one_process_is_not_two(folder, tmp_path):
    """The number of processes is part of a training; here alone, without torchrun."""
    from hsa_geo.errors import ResumeError

    with pytest.raises(ResumeError, match="processes was 2 and is 1"):
        training_cases.main(folder, json.dumps({**TRAINING, "folder": "two"}))


def test_one_process_needs_no_group(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with connected("cpu") as world:
        assert (world.rank, world.size, world.is_first) == (0, 1, True)
        parameter = nn.Parameter(torch.zeros(2))
        totals = torch.tensor([2.0], dtype=torch.float64)
        assert world.sum_gradients([parameter], totals) is totals
        world.broadcast([parameter])
        assert parameter.grad is None
    assert not torch.distributed.is_initialized()
    assert World(1, 2, torch.device("cpu")).is_first is False
