"""What would train nothing is refused."""

import pytest
import torch
from training_cases import Model, cross_entropy, make_trees

from hsa_geo.errors import ShapeError, TrainingError
from hsa_geo.training import Options, fit

TREES, OTHER = make_trees(30), Model()


def train(loss, model=None, **options):
    model = Model() if model is None else model
    given = Options(epochs=1, budget=100, lr=0.02, **options)
    return fit(model, TREES, loss=loss, options=given, log=False)


def losses_and(weights):
    def loss(model, batch):
        losses = cross_entropy(model, batch)
        return losses, weights(losses)

    return loss


def alternating(losses):
    signs = torch.ones(len(losses) // 2 * 2)
    signs[::2] = -1
    return torch.cat([signs, torch.zeros(len(losses) % 2)])


@pytest.mark.parametrize(
    ("message", "loss"),
    [
        ("does not depend on a trained .* in step 1 of", lambda m, b: cross_entropy(m, b).detach()),
        ("does not depend on", lambda m, b: torch.ones(len(b.y), dtype=torch.int64)),
        ("does not depend on", lambda m, b: cross_entropy(OTHER, b)),
        ("has weights of sum 0 in step 1 of", losses_and(torch.zeros_like)),
        ("has weights of sum 0", losses_and(alternating)),
    ],
)
def test_a_step_without_effect(message, loss):
    with pytest.raises(TrainingError, match=message):
        train(loss)


def test_no_items_are_no_fault():
    train(lambda model, batch: cross_entropy(model, batch)[:0])
    train(lambda model, batch: torch.ones(0))
    train(lambda model, batch: (torch.ones(0), torch.ones(0)))


def test_a_batch_without_weight_is_none_if_its_step_has_some():
    calls = iter(range(1000))
    loss = losses_and(lambda losses: torch.full_like(losses, float(next(calls) % 2 == 0)))
    train(loss, step_budget=400)


@pytest.mark.parametrize(
    ("message", "loss"),
    [
        ("loss gave losses .* with weights list", lambda m, b: (cross_entropy(m, b), [1.0])),
        ("loss gave tuple", lambda m, b: (cross_entropy(m, b), None, None)),
        ("loss gave torch.complex64", lambda m, b: cross_entropy(m, b) + 0j),
    ],
)
def test_what_is_no_loss(message, loss):
    with pytest.raises(ShapeError, match=message):
        train(loss)


@pytest.mark.parametrize(
    ("found", "message"), [(None, "NoneType"), (torch.ones(2), r"Tensor \[2\]"), ([1.0], "list")]
)
def test_a_metric_that_is_no_number(found, message):
    with pytest.raises(ShapeError, match=f"metric gave {message}: return one number"):
        fit(Model(), TREES, TREES, loss=cross_entropy, metric=lambda *_: found, log=False)


def test_gradients_from_before_do_not_count():
    plain, stale = Model(), Model()
    for parameter in stale.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    train(cross_entropy, plain)
    train(cross_entropy, stale)
    for a, b in zip(plain.parameters(), stale.parameters()):
        assert torch.equal(a, b)


def test_an_interrupted_step_leaves_nothing(tmp_path):
    calls = iter(range(1000))

    def broken(model, batch):
        losses = cross_entropy(model, batch)
        if next(calls) == 3:  # in the middle of the second step
            raise KeyboardInterrupt
        return losses

    options = Options(epochs=2, budget=60, step_budget=120, lr=0.02, checkpoint_steps=1)
    keep = {"loss": cross_entropy, "options": options, "log": False}
    whole, again = Model(), Model()
    fit(whole, TREES, folder=tmp_path / "whole", **keep)
    with pytest.raises(KeyboardInterrupt):
        fit(again, TREES, folder=tmp_path / "again", **{**keep, "loss": broken})
    assert any(p.grad is not None for p in again.parameters())
    fit(again, TREES, folder=tmp_path / "again", resume=True, **keep)
    for a, b in zip(whole.parameters(), again.parameters()):
        assert torch.equal(a, b)
