"""Training on a GPU: close to the CPU, in two precisions, and going on from a checkpoint."""

import pytest
import torch
from torch import nn

from hsa_geo.data import Domain
from hsa_geo.nn import HSAEncoder, subtree_mean
from hsa_geo.testing import random_tree
from hsa_geo.training import Options, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Classifier(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = HSAEncoder(16, num_layers=1, dropout=dropout)
        self.head = nn.Linear(16, 2)

    def forward(self, batch):
        return self.head(subtree_mean(self.encoder(batch.x, batch), batch))


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")


def trees(count):
    made = [random_tree(seed, shape="mixed") for seed in range(count)]
    for seed, tree in enumerate(made):
        generator = torch.Generator().manual_seed(seed)
        tree.y = torch.tensor([seed % 2])
        tree.x = torch.randn(tree.num_leaves, 16, generator=generator) + tree.y
        tree.tree_domain[tree.tree_domain == Domain.GRAPH] = int(Domain.SET)
    return made


def train(device, *, dropout=0.0, **more):
    options = Options(epochs=3, budget=100, lr=0.01, device=device, **more.pop("options", {}))
    model = Classifier(dropout)
    return model, fit(model, trees(60), trees(10), loss=loss, options=options, log=False, **more)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bf16", 5e-2)])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_it_is_close_to_the_cpu(precision, tolerance, num_workers):
    options = {"precision": precision, "num_workers": num_workers, "ema": 0.5}
    model, result = train("cuda", options=options)
    _, expected = train("cpu", options={"ema": 0.5})
    assert model.head.weight.is_cuda
    assert result.peak_memory > 0
    for row, other in zip(result.history, expected.history):
        assert row["loss"] == pytest.approx(other["loss"], rel=tolerance)


def test_it_goes_on(tmp_path):
    calls = iter(range(1000))

    def broken(model, batch):
        if next(calls) == 9:
            raise KeyboardInterrupt
        return loss(model, batch)

    options = {"checkpoint_steps": 2}
    with pytest.raises(KeyboardInterrupt):
        fit(
            Classifier(0.2),
            trees(60),
            trees(10),
            loss=broken,
            options=Options(epochs=3, budget=100, lr=0.01, device="cuda", **options),
            folder=tmp_path / "a",
            log=False,
        )
    resumed, _ = train("cuda", dropout=0.2, options=options, folder=tmp_path / "a", resume=True)
    whole, _ = train("cuda", dropout=0.2, options=options, folder=tmp_path / "b")
    for a, b in zip(resumed.state_dict().values(), whole.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
