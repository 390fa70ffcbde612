"""Lightning trains on batches that are filled by leaves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

pl = pytest.importorskip("pytorch_lightning")

from torch_geometric.data.lightning import LightningDataset  # noqa: E402

from hsa_geo.data import SignalTree  # noqa: E402
from hsa_geo.datasets.in_memory import TreesInMemory  # noqa: E402
from hsa_geo.errors import ShapeError, UnsupportedError  # noqa: E402
from hsa_geo.lightning import LightningTrees  # noqa: E402
from hsa_geo.nn import HSAConv, subtree_mean  # noqa: E402

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def trees(n: int = 30) -> list[SignalTree]:
    return [
        SignalTree.from_parents(
            [k % 7 + 1] * (k % 7 + 1) + [-1],
            x=torch.full((k % 7 + 1, 4), float(k)),
            y=torch.tensor([k % 2]),
        )
        for k in range(n)
    ]


def in_memory(n: int = 30) -> TreesInMemory:
    dataset = TreesInMemory()
    dataset.data, dataset.slices = TreesInMemory.collate(trees(n))
    return dataset


class Watching(pl.LightningModule):
    """Remembers which trees each batch of each epoch held, by the feature that numbers them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = HSAConv(4, 4), nn.Linear(4, 2)
        self.seen: dict[str, list[list[list[int]]]] = {"train": [], "val": [], "test": []}
        self.predicted: list[int] = []

    def forward(self, batch: SignalTree) -> Tensor:
        return self.head(subtree_mean(self.conv(batch.x / 30, batch), batch))

    def _step(self, batch: SignalTree, part: str) -> Tensor:
        assert isinstance(batch, SignalTree)
        first = batch.x[batch.ptr[:-1], 0].int().tolist()
        self.seen[part][-1].append(first)
        return nn.functional.cross_entropy(self(batch), batch.y)

    def on_train_epoch_start(self) -> None:
        self.seen["train"].append([])

    def on_validation_epoch_start(self) -> None:
        self.seen["val"].append([])

    def on_test_epoch_start(self) -> None:
        self.seen["test"].append([])

    def training_step(self, batch: SignalTree, index: int) -> Tensor:
        return self._step(batch, "train")

    def validation_step(self, batch: SignalTree, index: int) -> None:
        self.log("loss", self._step(batch, "val"), batch_size=batch.num_graphs)

    def test_step(self, batch: SignalTree, index: int) -> None:
        self._step(batch, "test")

    def predict_step(self, batch: SignalTree, index: int) -> Tensor:
        self.predicted.append(int(batch.x[0, 0]))
        return self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


@pytest.mark.parametrize("made", [trees, in_memory])
def test_batches_hold_the_budget_and_epochs_differ(made):
    data = made()
    model = Watching()
    before = [p.clone() for p in model.parameters()]
    module = LightningTrees(data, data, data, data[:5], budget=12)
    trainer = pl.Trainer(max_epochs=2, num_sanity_val_steps=0, **QUIET)
    trainer.fit(model, module)
    assert torch.isfinite(trainer.callback_metrics["loss"])
    trainer.test(model, module, verbose=False)
    answers = trainer.predict(model, module)

    first, second = model.seen["train"]
    for epoch in (first, second, *model.seen["val"], *model.seen["test"]):
        assert sorted(k for batch in epoch for k in batch) == list(range(30))
        assert all(sum(k % 7 + 1 for k in batch) <= 12 for batch in epoch)
        assert len(epoch) < 15
    assert first != second
    assert model.seen["val"][0] == model.seen["val"][1] == model.seen["test"][0]
    assert model.predicted == [0, 1, 2, 3, 4]
    assert [tuple(a.shape) for a in answers] == [(1, 2)] * 5
    assert not all(map(torch.equal, before, model.parameters()))


def test_the_order_is_a_function_of_the_seed():
    def order(seed: int) -> list[list[int]]:
        model = Watching()
        module = LightningTrees(trees(), budget=12, seed=seed)
        pl.Trainer(max_epochs=1, **QUIET).fit(model, module)
        return model.seen["train"][0]

    assert order(3) == order(3) != order(4)


def test_the_module_of_pyg_takes_trees_as_they_are():
    model = Watching()
    module = LightningDataset(in_memory(), in_memory(), batch_size=10, pin_memory=False)
    pl.Trainer(max_epochs=1, num_sanity_val_steps=0, **QUIET).fit(model, module)
    assert [len(batch) for batch in model.seen["train"][0]] == [10, 10, 10]
    assert sorted(k for batch in model.seen["train"][0] for k in batch) == list(range(30))


@pytest.mark.parametrize("name", ["batch_size", "sampler", "batch_sampler", "shuffle", "drop_last"])
def test_what_fills_batches_otherwise_is_refused(name):
    with pytest.raises(UnsupportedError, match=name):
        LightningTrees(trees(), budget=12, **{name: 1})


@pytest.mark.parametrize("name", ["collate_fn", "dataset", "foo"])
def test_what_would_have_no_effect_is_refused(name):
    with pytest.raises(UnsupportedError, match=f"{name}=.* is no argument"):
        LightningTrees(trees(), budget=12, **{name: list})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_workers": -1}, r"num_workers option should be non-negative.*\): give arguments"),
        ({"num_workers": "two"}, "'num_workers': 'two'} is not what a DataLoader takes"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"timeout": 3}, "timeout=3 needs num_workers of at least 1: give both"),
        ({"follow_batch": 3}, "follow_batch=3 is no list of names"),
        ({"exclude_keys": "y"}, "exclude_keys='y' is no list of names"),
    ],
)
def test_values_that_the_loader_would_refuse_later(given, said):
    with pytest.raises(UnsupportedError, match=said):
        LightningTrees(trees(), budget=12, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([[1, 2]], r"train_dataset\[0\] is a int, no SignalTree"),
        ([3], "train_dataset is a int: give a list of trees"),
        ([trees(2), "trees"], "val_dataset is a str: give a list of trees"),
        ([trees(2), None, [None]], r"test_dataset\[0\] is a NoneType, no SignalTree"),
        ([trees(2), None, None, 1.5], "pred_dataset is a float: give a list of trees"),
    ],
)
def test_what_holds_no_trees(given, said):
    with pytest.raises(ShapeError, match=said):
        LightningTrees(*given, budget=12)


def test_arguments_of_the_loader_reach_it():
    module = LightningTrees(
        trees(), budget=12, num_workers=1, follow_batch=["x"], exclude_keys=["y"]
    )
    loader = module.train_dataloader()
    assert loader.num_workers == 1
    batch = next(iter(loader))
    assert "x_batch" in batch
    assert "y" not in batch


def test_a_compiled_model_learns_the_same():
    def weights(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = Watching()
        if compiled:
            model.conv.compile(backend="aot_eager")
        module = LightningTrees(trees(), budget=12)
        pl.Trainer(max_epochs=1, **QUIET).fit(model, module)
        return [p.detach() for p in model.parameters()]

    for a, b in zip(weights(True), weights(False), strict=True):
        torch.testing.assert_close(a, b)


def test_several_processes_are_refused():
    class Trainer:
        world_size = 2

    module = LightningTrees(trees(), budget=12)
    module.trainer = Trainer()
    with pytest.raises(UnsupportedError, match=r"not 2: use hsa_geo\.training\.fit"):
        module.train_dataloader()


def test_a_budget_that_is_none():
    with pytest.raises(ShapeError, match="budget=0"):
        LightningTrees(trees(), budget=0).train_dataloader()
