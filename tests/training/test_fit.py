"""The loop: what it computes, that it repeats itself exactly, what it refuses."""

import copy
import csv
import itertools
import math
import random
import sys

import numpy as np
import pytest
import torch
from torch import nn
from training_cases import Model, cross_entropy, group_loss, make_trees

from hsa_geo.data import SignalTree
from hsa_geo.errors import (
    HSAWarning,
    MissingPackageError,
    NonFiniteError,
    ResumeError,
    ShapeError,
    TrainingError,
    UnsupportedError,
)
from hsa_geo.nn import subtree_mean
from hsa_geo.training import Batches, LeafBudgetBatchSampler, Options, accuracy, fit
from hsa_geo.training.logs import Bar
from hsa_geo.training.optimizer import learning_rate, parameter_groups

TREES, HELD_OUT = make_trees(60), make_trees(20, seed=1)
FAST = Options(epochs=2, budget=100, lr=0.02)


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def train(options=FAST, *, trees=TREES, loss=cross_entropy, model=None, validation=None, **more):
    model = Model() if model is None else model
    result = fit(model, trees, validation, loss=loss, options=options, log=False, **more)
    return model, result


def assert_same(first, second, **tolerance):
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values()):
        torch.testing.assert_close(a, b, msg=lambda text, n=name: f"{n}: {text}", **tolerance)


EXACT = {"rtol": 0, "atol": 0}
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def test_it_learns():
    options = Options(epochs=25, budget=100, lr=0.03, weight_decay=0.0)
    model, result = train(options, model=Model(0.0), validation=HELD_OUT)
    assert result.metric >= 0.95
    assert result.metric == max(row["metric"] for row in result.history)
    assert result.history[-1]["loss"] < 0.3 < result.history[0]["loss"]
    assert result.parameters == sum(p.numel() for p in model.parameters())
    assert result.peak_memory > 2**20
    assert result.seconds_per_epoch > 0
    assert not model.training


# What a step is #############################################################


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_steps_are_those_of_a_plain_loop(ema):
    options = Options(
        epochs=4,
        budget=10_000,
        lr=0.02,
        weight_decay=0.1,
        warmup=0.3,
        final_lr=0.1,
        clip=0.5,
        ema=ema,
    )
    mine, _ = train(options, model=Model(0.0))

    model = Model(0.0)
    average = weights_of(model)
    tables = [p for p in model.parameters() if p.dim() > 1 and p is not model.words.weight]
    rest = [p for p in model.parameters() if all(p is not q for q in tables)]
    optimizer = torch.optim.AdamW(
        [{"params": tables, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    )
    (batch,) = Batches(TREES, LeafBudgetBatchSampler(TREES, 10_000), torch.device("cpu"))
    for step in range(4):  # one batch is an epoch
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, (step + 0.5) / 4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), batch.y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        decay = min(ema, (2 + step) / (11 + step))
        for name, value in model.state_dict().items():
            average[name] = decay * average[name] + (1 - decay) * value
    model.load_state_dict(average)  # with ema=0 the weights themselves
    assert_same(mine, model, **CLOSE)


@pytest.mark.parametrize("loss", [cross_entropy, group_loss])
def test_a_step_in_several_batches_is_the_same_step(loss):
    whole, _ = train(Options(epochs=2, budget=240, lr=0.02), model=Model(0.0), loss=loss)
    parts, _ = train(
        Options(epochs=2, budget=60, step_budget=240, lr=0.02), model=Model(0.0), loss=loss
    )
    assert_same(whole, parts, **CLOSE)


def test_weights_of_items_count():
    def twice(model, batch):
        losses = cross_entropy(model, batch)
        return losses, 1.0 + (batch.y == 0).float()

    doubled = TREES + [tree for tree in TREES if int(tree.y) == 0]
    one = Options(epochs=2, budget=10_000, lr=0.02)
    weighted, first = train(one, model=Model(0.0), loss=twice)
    repeated, second = train(one, model=Model(0.0), trees=doubled)
    assert_same(weighted, repeated, **CLOSE)
    assert first.history[0]["loss"] == pytest.approx(second.history[0]["loss"], rel=1e-5)


def test_a_step_without_items_changes_nothing():
    def none(model, batch):
        return cross_entropy(model, batch)[:0]

    model = Model()
    before = weights_of(model)
    _, result = train(model=model, loss=none)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert result.history[-1]["loss"] == 0.0


def test_learning_rate_rises_and_falls():
    options = Options(lr=2.0, warmup=0.1, final_lr=0.25)
    rates = [learning_rate(options, p / 100) for p in range(101)]
    assert rates[0] == 0
    assert max(rates) == rates[10] == 2.0
    assert rates[100] == 0.5
    assert rates[5] == 1.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert learning_rate(Options(lr=1.0, warmup=1.0), 1.0) >= 0
    assert learning_rate(Options(lr=1.0, warmup=0.0), 0.0) == 1.0


# Groups of parameters #######################################################


class Grouped(Model):
    """Its words are learned at a rate of their own."""

    def parameter_groups(self):
        return [{"params": [self.words.weight], "lr_factor": 0.0}]


def test_a_model_may_have_groups_of_its_own():
    model = Grouped()
    before = weights_of(model)
    train(model=model)
    assert torch.equal(model.words.weight, before["words.weight"])
    assert not torch.equal(model.head.weight, before["head.weight"])


def test_what_is_decayed():
    model = Model()
    decayed, plain = parameter_groups(model, Options(weight_decay=0.1))
    assert all(p.dim() > 1 for p in decayed["params"])
    assert any(p is model.words.weight for p in plain["params"])
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    (everything,) = parameter_groups(model, Options(decay_all=True))
    assert len(everything["params"]) == len(list(model.parameters()))


def test_groups_that_make_no_sense():
    model = Model()
    model.parameter_groups = lambda: [{"params": [model.words.weight]}] * 2
    with pytest.raises(ShapeError, match="names a parameter twice"):
        train(model=model)
    model.parameter_groups = lambda: [{"params": [], "lr": 0.1}]
    with pytest.raises(ShapeError, match=r"keys \['lr', 'params'\]"):
        train(model=model)


def test_frozen_parameters_stay():
    model = Model()
    model.words.weight.requires_grad_(False)
    before = weights_of(model)
    _, result = train(model=model)
    assert torch.equal(model.words.weight, before["words.weight"])
    assert result.frozen_parameters == 48
    for p in model.parameters():
        p.requires_grad_(False)
    with pytest.raises(ShapeError, match="nothing to train"):
        train(model=model)


# Repetition #################################################################


def test_the_seed_decides_everything():
    first, a = train()
    again, b = train()
    other, _ = train(Options(**{**vars(FAST), "seed": 1}))
    assert_same(first, again, **EXACT)
    assert a.history == b.history
    assert not torch.equal(first.head.weight, other.head.weight)


class Noisy:
    """Trees with random features of all three generators, anew each time."""

    def __len__(self):
        return len(TREES)

    def __getitem__(self, i):
        tree = copy.copy(TREES[i])
        noise = torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002
        tree.word_x = (tree.word_x + int(noise * 100)) % 6
        return tree


def test_workers_draw_what_one_process_draws():
    results = [
        train(Options(**{**vars(FAST), "num_workers": workers}), trees=Noisy())
        for workers in (0, 2)
    ]
    assert_same(results[0][0], results[1][0], **EXACT)
    assert results[0][1].history == results[1][1].history


def test_the_generators_of_the_caller_stay_as_they_were():
    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = states()
    train(validation=HELD_OUT)
    assert states() == before


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_come_with_their_plans(num_workers):
    sampler = LeafBudgetBatchSampler(TREES, 100)
    batches = Batches(TREES, sampler, torch.device("cpu"), num_workers)
    for _ in range(2):
        seen = list(batches)
        assert len(seen) == len(batches) > 3
        assert all(batch._cached_plan() is not None for batch in seen)
    mean = subtree_mean(torch.ones(seen[0].num_nodes, 1), seen[0])
    assert mean.shape == (seen[0].num_graphs, 1)


# Evaluation #################################################################


def test_the_best_weights_come_back_and_patience_ends():
    values, seen = iter([0.1, 0.7, 0.3, 0.7, 0.9]), []

    def metric(model, batches):
        assert not model.training
        assert not torch.is_grad_enabled()
        assert sum(batch.num_graphs for batch in batches) == len(HELD_OUT)
        seen.append(weights_of(model))
        return next(values)

    options = Options(epochs=9, budget=100, lr=0.02, patience=2)
    model, result = train(options, validation=HELD_OUT, metric=metric)
    assert result.best_epoch == 2
    assert result.metric == 0.7
    assert [row["metric"] for row in result.history] == [0.1, 0.7, 0.3, 0.7]
    assert all(torch.equal(seen[1][name], value) for name, value in model.state_dict().items())


def test_what_is_evaluated_is_the_average():
    seen = []

    def metric(model, batches):
        seen.append(weights_of(model))
        return float(len(seen))

    options = Options(**{**vars(FAST), "ema": 0.99})
    model, _ = train(options, validation=HELD_OUT, metric=metric)
    plain, _ = train()
    assert all(torch.equal(seen[-1][name], value) for name, value in model.state_dict().items())
    assert not torch.equal(model.head.weight, plain.head.weight)
    start = Model().head.weight
    assert (model.head.weight - start).norm() < (plain.head.weight - start).norm()


def test_buffers_go_with_the_best_weights():
    class Counting(Model):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, batch):
            return self.norm(super().forward(batch))

    values = iter([1.0, 0.0])
    model, _ = train(model=Counting(), validation=HELD_OUT, metric=lambda *_: next(values))
    steps = LeafBudgetBatchSampler(TREES, 100).num_steps
    assert int(model.norm.num_batches_tracked) == steps  # of the first epoch only


def test_accuracy_wants_a_class_for_each_output():
    with pytest.raises(ShapeError, match=r"outputs \[3, 2\] with y \[2\]"):
        accuracy(lambda batch: torch.zeros(3, 2), [SignalTree(y=torch.zeros(2))])


# Precision and numbers that are none ########################################


def test_bf16_is_close_to_float32():
    _, full = train(model=Model(0.0))
    half, result = train(Options(**{**vars(FAST), "precision": "bf16"}), model=Model(0.0))
    assert half.head.weight.dtype == torch.float32
    assert result.history[-1]["loss"] == pytest.approx(full.history[-1]["loss"], rel=0.05)
    assert result.history[-1]["loss"] != full.history[-1]["loss"]


def test_a_loss_that_is_no_number_is_found_at_once():
    calls = iter(range(100))

    def loss(model, batch):
        return cross_entropy(model, batch) * (math.nan if next(calls) == 2 else 1.0)

    with pytest.raises(NonFiniteError, match=r"loss is nan in step 3 of \d+ of epoch 1: .*lr=0.02"):
        train(loss=loss)


def test_a_gradient_that_is_no_number_is_found_at_once():
    def loss(model, batch):
        return cross_entropy(model, batch) + (model(batch).sum(-1) * 0.0).sqrt()

    model = Model()
    before = weights_of(model)
    with pytest.raises(NonFiniteError, match=r"norm of the gradient is (nan|inf) in step 1"):
        train(loss=loss, model=model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_metric_that_is_no_number_is_refused():
    with pytest.raises(NonFiniteError, match="metric is nan after epoch 1"):
        train(validation=HELD_OUT, metric=lambda *_: math.nan)


# What is refused ############################################################


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda m, b: cross_entropy(m, b).mean(), r"loss gave \[\].*reduction='none'"),
        (lambda m, b: m(b), r"loss gave \[\d+, 2\]"),
        (lambda m, b: 3.0, "loss gave float"),
        (lambda m, b: (cross_entropy(m, b), torch.ones(1)), r"with weights \[1\]"),
    ],
)
def test_a_loss_that_is_not_one_per_item(loss, message):
    with pytest.raises(ShapeError, match=message):
        train(loss=loss)


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ShapeError, "epochs=0", {"epochs": 0}),
        (ShapeError, "betas=0.9", {"betas": 0.9}),
        (ShapeError, r"betas=\(2, 3\)", {"betas": (2, 3)}),
        (UnsupportedError, "device='nope'", {"device": "nope"}),
        (ShapeError, "budget=1.5", {"budget": 1.5}),
        (ShapeError, "seed=-1", {"seed": -1}),
        (ShapeError, "patience=0", {"patience": 0}),
        (ShapeError, "lr=-0.1", {"lr": -0.1}),
        (ShapeError, "lr=nan", {"lr": math.nan}),
        (ShapeError, "warmup=1.5", {"warmup": 1.5}),
        (ShapeError, "clip=0 ", {"clip": 0}),
        (ShapeError, "clip=inf must be a finite number; None is", {"clip": math.inf}),
        (ShapeError, "lr=inf must be a finite", {"lr": math.inf}),
        (ShapeError, "weight_decay=inf must", {"weight_decay": math.inf}),
        (ShapeError, "lr=True", {"lr": True}),
        (ShapeError, "ema=1", {"ema": 1.0}),
        (ShapeError, "epochs=None", {"epochs": None}),
        (UnsupportedError, "precision='fp16' needs", {"precision": "fp16"}),
        (UnsupportedError, "precision='int8' is unknown", {"precision": "int8"}),
        (UnsupportedError, "on_large='cut'", {"on_large": "cut"}),
    ],
)
def test_options_out_of_range(error, message, options):
    with pytest.raises(error, match=message):
        Options(**options)


def test_arguments_without_effect_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="need validation"):
        train(metric=accuracy)
    with pytest.raises(UnsupportedError, match="need validation"):
        train(Options(patience=2))
    with pytest.raises(UnsupportedError, match="resume needs a folder"):
        train(resume=True)
    with pytest.raises(UnsupportedError, match="checkpoint_steps needs a folder"):
        train(Options(checkpoint_steps=2))
    with pytest.raises(ShapeError, match="train holds no tree"):
        train(trees=[])
    with pytest.raises(ShapeError, match="validation holds no tree"):
        train(validation=[])
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="no CUDA device"):
            train(Options(device="cuda"))


def test_large_trees_are_told():
    with pytest.warns(HSAWarning, match="more than budget=10 leaves"):
        train(Options(epochs=1, budget=10))
    with pytest.raises(ShapeError, match="more than budget=10 leaves"):
        train(Options(epochs=1, budget=10, on_large="error"))


# What is written ############################################################


def test_metrics_are_a_table(tmp_path):
    _, result = train(validation=HELD_OUT, folder=tmp_path)
    with open(tmp_path / "metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in result.history]
    assert [float(row["metric"]) for row in rows] == [row["metric"] for row in result.history]
    assert [int(row["epoch"]) for row in rows] == [1, 2]
    with pytest.raises(TrainingError, match=r"holds checkpoints: .*resume=True"):
        train(validation=HELD_OUT, folder=tmp_path)


def test_tensorboard(tmp_path):
    """What its files hold is what the history says, also after going on."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = {**vars(FAST), "tensorboard": True}
    train(Options(**{**options, "epochs": 1, "final_lr": 1.0, "warmup": 0.0}), folder=tmp_path)
    assert list((tmp_path / "tensorboard").glob("events*"))

    _, result = train(Options(**options), folder=tmp_path / "whole")
    read = accumulator.EventAccumulator(str(tmp_path / "whole" / "tensorboard")).Reload()
    assert set(read.Tags()["scalars"]) == {"learning_rate", "loss"}
    for name in ("learning_rate", "loss"):
        events = [(event.step, event.value) for event in read.Scalars(name)]
        expected = [(row["epoch"], pytest.approx(row[name])) for row in result.history]
        assert events == expected


def test_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hsa_geo\[training\]'"):
        train(Options(**{**vars(FAST), "tensorboard": True}), folder=tmp_path)


def test_lines_where_there_is_no_terminal(capsys):
    model = Model()
    fit(model, TREES, HELD_OUT, loss=cross_entropy, options=FAST)
    said = capsys.readouterr().err.splitlines()
    lines = [line for line in said if not line.startswith("compiling kernels")]  # the first time
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2: loss ")
    assert "(best" in lines[1]


def test_a_long_epoch_is_one_line_too(monkeypatch, capsys):
    clock = iter(range(0, 10**6, 100))  # every look at it is 100 seconds later
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with Bar(1) as bar:
        bar.epoch(0, steps=3, done=0)
        for _ in range(3):
            bar.step(0.5)
        bar.row({"epoch": 1, "loss": 0.5, "metric": None}, 300.0, best_epoch=1)
    assert capsys.readouterr().err == "epoch 1/1: loss 0.5, 300.0 s\n"


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Bar(2) as bar:
        for epoch in range(2):
            bar.epoch(epoch, steps=3, done=1)
            bar.step(0.5)
            row = {"epoch": epoch + 1, "loss": 0.5, "metric": None}
            bar.row(row, 1.0, best_epoch=epoch + 1)
    assert "epoch 2/2: loss 0.5, 1.0 s" in capsys.readouterr().err


# torch.compile ##############################################################


def test_compiled_models_learn_the_same():
    plain, _ = train(model=Model(0.0))
    wrapped, _ = train(model=torch.compile(Model(0.0), backend="aot_eager"))
    assert_same(plain, wrapped, **CLOSE)
    inside = Model(0.0)
    inside.compile(backend="aot_eager")
    train(model=inside)
    assert_same(plain, inside, **CLOSE)


def test_a_training_goes_on_with_a_model_that_compiles_itself(tmp_path):
    train(model=Model(0.0), folder=tmp_path)
    inside = Model(0.0)
    inside.compile(backend="aot_eager")
    _, result = train(model=inside, folder=tmp_path, resume=True)
    assert len(result.history) == 2
    wrapped = torch.compile(Model(0.0), backend="aot_eager")
    with pytest.raises(ResumeError, match="was 'Model' and is 'OptimizedModule'"):
        train(model=wrapped, folder=tmp_path, resume=True)
