"""Which models are refused before a training begins, and which are kept whole."""

import pytest
import torch
from torch import nn
from training_cases import Model, cross_entropy, make_trees

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.training import Options, fit

TREES = make_trees(30)
OPTIONS = Options(epochs=2, budget=100, lr=0.02)


def train(model, folder, resume=False, loss=cross_entropy, options=OPTIONS):
    fit(model, TREES, TREES, loss=loss, options=options, folder=folder, resume=resume, log=False)


def with_buffers(**buffers):
    model = Model()
    for name, value in buffers.items():
        model.register_buffer(name, value)
    return model


def never(model, batch):
    raise AssertionError


@pytest.mark.parametrize(
    ("message", "make"),
    [
        (r"'a' is expanded, \[4\]", lambda: with_buffers(a=torch.zeros(1).expand(4))),
        ("'a' is no dense tensor", lambda: with_buffers(a=torch.eye(3).to_sparse())),
        ("'a' is torch.complex128, which", lambda: with_buffers(a=torch.zeros(3).cdouble())),
        ("'weight' is torch.complex64", lambda: nn.Linear(2, 2, dtype=torch.complex64)),
        ("'0' gives sparse", lambda: nn.Sequential(nn.Embedding(3, 2, sparse=True))),
    ],
)
def test_what_cannot_be_kept_is_refused_before_the_first_step(tmp_path, message, make):
    with pytest.raises(UnsupportedError, match=message):
        train(make(), tmp_path, loss=never)
    assert not list(tmp_path.iterdir())


def test_a_lazy_model_has_to_be_called_first(tmp_path):
    with pytest.raises(ShapeError, match="'weight' has no size yet"):
        train(nn.LazyLinear(2), tmp_path, loss=never)


def test_sparse_gradients_of_other_modules_are_refused():
    def sparse(model, batch):
        table = model.words.weight
        return nn.functional.embedding(batch.y, table, sparse=True).sum(1)

    with pytest.raises(UnsupportedError, match=r"gradient of a parameter \[6, 8\] is sparse"):
        train(Model(), None, loss=sparse)


def test_buffers_that_share_memory_are_written_and_read(tmp_path):
    def model():
        both = torch.arange(6.0)
        return with_buffers(a=both, b=both.view(2, 3), c=both[:3], d=both[::2], e=both[:0])

    train(model(), tmp_path)
    train(again := model(), tmp_path, resume=True)
    assert again.b.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert again.d.tolist() == [0, 2, 4]


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_settings_that_are_no_finite_numbers(tmp_path, value):
    def model():
        made = Model()
        made.limit = value
        return made

    train(model(), tmp_path)
    train(model(), tmp_path, resume=True)
