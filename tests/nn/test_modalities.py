"""Encoders of one modality."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hsa_geo.builders import from_image
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.nn import FrozenModule, LinearFeatures, PatchConv, Symbols, WordEmbedding

IDS = torch.tensor([2, 0, 2])
PIXELS = torch.randint(0, 256, (3, 3 * 5 * 5), dtype=torch.uint8)
MAKERS = {
    "words": (lambda: WordEmbedding(3, 8), IDS),
    "words with a table": (lambda: WordEmbedding(3, 8, torch.randn(3, 5)), IDS),
    "words with a table to learn": (lambda: WordEmbedding(3, 8, torch.randn(3, 5), False), IDS),
    "symbols": (lambda: Symbols(3, 8), IDS),
    "features": (lambda: LinearFeatures(6, 8), torch.randn(3, 6).half()),
    "normed features": (lambda: LinearFeatures(6, 8, norm=True), torch.randn(3, 6)),
    "patches": (lambda: PatchConv(5, 8), PIXELS),
}
makers = pytest.mark.parametrize("name", MAKERS)


@makers
def test_rows_become_vectors(name):
    make, x = MAKERS[name]
    module = make()
    out = module(x)
    assert out.shape == (3, 8)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert module.channels == 8


@makers
def test_row_by_row(name):
    make, x = MAKERS[name]
    module = make()
    singles = torch.cat([module(x[i : i + 1]) for i in range(3)])
    assert torch.allclose(module(x), singles, atol=1e-5)


@makers
def test_no_rows(name):
    make, x = MAKERS[name]
    module = make()
    out = module(x[:0])
    assert out.shape == (0, 8)
    out.sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in module.parameters())


@makers
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(name, dtype):
    make, x = MAKERS[name]
    module = make()
    out = copy.deepcopy(module).to(dtype)(x)
    assert out.dtype == dtype
    assert torch.allclose(out.float(), module(x), atol=0.1)


@makers
def test_under_autocast(name):
    make, x = MAKERS[name]
    module = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = module(x)
    assert torch.allclose(out.float(), module(x), atol=0.1)


@makers
def test_drawn_anew(name):
    make, _ = MAKERS[name]
    module = make()
    given = module.table.clone() if "table" in name else None
    learned = {k: p for k, p in module.named_parameters() if k != "table" or given is None}
    for parameter in learned.values():
        nn.init.constant_(parameter, 0.123)
    module.reset_parameters()
    assert not any((p == 0.123).all() for p in learned.values())
    assert given is None or torch.equal(module.table, given)


@makers
def test_its_config_makes_it_again(name):
    make, x = MAKERS[name]
    module = make()
    again = getattr(type(module), "from_config", lambda config: type(module)(**config))
    other = again(module.config)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), module(x))


# Words ######################################################################


def test_a_frozen_table_by_hand():
    table = torch.randn(4, 5).half()
    embed = WordEmbedding(4, 3, table)
    assert embed.table.dtype == torch.float16
    assert {name for name, _ in embed.named_parameters()} == {"lin.weight", "lin.bias"}
    expected = table[IDS].float() @ embed.lin.weight.t() + embed.lin.bias
    assert torch.allclose(embed(IDS), expected, atol=1e-6)
    assert "table" in embed.state_dict()


def test_the_given_table_is_not_written_to():
    table = torch.randn(4, 5)
    for freeze in (True, False):
        embed = WordEmbedding(4, 3, table, freeze)
        with torch.no_grad():
            embed.table.zero_()
        assert table.abs().min() > 0


def test_a_table_to_learn():
    embed = WordEmbedding(4, 3, torch.randn(4, 5).half(), freeze=False)
    assert embed.table.dtype == torch.float32  # not half, in which steps are lost
    embed(IDS).sum().backward()
    assert (embed.table.grad[[0, 2]] != 0).all()
    assert (embed.table.grad[[1, 3]] == 0).all()


def test_dropped_words_have_no_vector():
    embed = WordEmbedding(1000, 3, torch.randn(1000, 5), dropout=0.3).train()
    out = embed(torch.arange(1000))
    dropped = (out - embed.lin.bias).abs().amax(1) < 1e-6
    assert 200 < int(dropped.sum()) < 400
    kept = ~dropped
    expected = embed.eval()(torch.arange(1000))
    assert torch.allclose(out[kept], expected[kept], atol=1e-6)  # whole, and not scaled
    learned = WordEmbedding(1000, 3, dropout=1.0)
    assert (learned(torch.arange(1000)) == 0).all()


@pytest.mark.parametrize("bad", [[3], [-1], [0, 7]])
@pytest.mark.parametrize("make", [lambda: WordEmbedding(3, 8), lambda: Symbols(3, 8)])
def test_ids_out_of_range(make, bad):
    with pytest.raises(ShapeError, match=rf"from {min(bad)} to {max(bad)}, .* knows 0\.\.2"):
        make()(torch.tensor(bad))


@pytest.mark.parametrize(
    ("make", "x", "quote"),
    [
        (lambda: Symbols(3, 8), torch.zeros(2, 1).long(), r"shape \[2, 1\]"),
        (lambda: Symbols(3, 8), torch.zeros(2), r"dtype torch\.float32"),
        (lambda: LinearFeatures(6, 8), torch.zeros(2, 5), r"give floating point \[n, 6\]"),
        (lambda: LinearFeatures(6, 8), torch.zeros(2, 6).long(), r"dtype torch\.int64"),
        (lambda: LinearFeatures(6, 8), torch.zeros(6), r"shape \[6\]"),
        (lambda: PatchConv(5, 8), torch.zeros(2, 48, dtype=torch.uint8), r"\[n, 75\]"),
        (lambda: PatchConv(5, 8), torch.zeros(2, 75), r"dtype torch\.float32"),
    ],
)
def test_rows_that_do_not_fit(make, x, quote):
    with pytest.raises(ShapeError, match=quote):
        make()(x)


@pytest.mark.parametrize(
    ("make", "quote"),
    [
        (lambda: WordEmbedding(0, 8), "num_words=0"),
        (lambda: WordEmbedding(3, 8, dropout=1.5), "dropout=1.5"),
        (lambda: WordEmbedding(3, 8, torch.randn(4, 5)), r"table has shape \[4, 5\]"),
        (lambda: WordEmbedding(3, 8, torch.zeros(3, 5).long()), r"torch\.int64"),
        (lambda: Symbols(3, 0), "channels=0"),
        (lambda: Symbols(True, 8), "num=True"),
        (lambda: LinearFeatures(2.5, 8), "in_channels=2.5"),
        (lambda: LinearFeatures(2, 8, dropout=-1), "dropout=-1"),
        (lambda: PatchConv(8, 8, hidden_channels=0), "hidden_channels=0"),
    ],
)
def test_arguments_out_of_range(make, quote):
    with pytest.raises(ShapeError, match=quote):
        make()


def test_frozen_without_a_table_is_refused():
    with pytest.raises(UnsupportedError, match="give table="):
        WordEmbedding(3, 8, freeze=True)


# Features and patches #######################################################


def test_normed_features_do_not_feel_their_scale():
    module = LinearFeatures(6, 8, norm=True)
    x = torch.randn(3, 6)
    assert torch.allclose(module(x), module(100 * x + 7), atol=1e-3)
    assert not torch.allclose(LinearFeatures(6, 8)(x), LinearFeatures(6, 8)(100 * x))


def test_features_are_dropped_in_training():
    module = LinearFeatures(6, 8, dropout=0.5)
    x = torch.randn(3, 6)
    assert not torch.equal(module(x), module(x))
    assert torch.equal(module.eval()(x), module(x))


@pytest.mark.parametrize("patch", [1, 2, 4, 7])
def test_patches_of_a_picture(patch):
    """Channel first: a patch that is red all over differs from a green one."""
    picture = torch.zeros(3, 2 * patch, patch, dtype=torch.uint8)
    picture[0, :patch], picture[1, patch:] = 255, 255
    tree = from_image(picture.permute(1, 2, 0).numpy(), patch_size=patch)
    seen = []
    module = PatchConv(patch, 4)
    module.first.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    out = module(tree.image_x)
    assert out.shape == (2, 4)
    color = torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]])
    assert torch.allclose(seen[0], color[:, :, None, None].expand(2, 3, patch, patch), atol=1e-6)


def test_patches_tell_where_something_is():
    cells = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    cells[0, :, 1, 1], cells[1, :, 6, 6] = 255, 255
    out = PatchConv(8, 4)(cells.flatten(1))
    assert (out[0] - out[1]).abs().max() > 1e-3


# Frozen #####################################################################


class Pretrained(nn.Module):
    """Has everything that training would change."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm, self.dropout = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.norm(self.lin(x)))


def test_frozen_stays_as_it_is():
    module = Pretrained()
    before = copy.deepcopy(module.state_dict())
    model = nn.Sequential(FrozenModule(module), LinearFeatures(6, 8))
    model.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=1.0)
    x = torch.randn(5, 4, requires_grad=True)
    first = model[0](x)
    for _ in range(3):
        model(x).square().sum().backward()
        optimizer.step()
    assert x.grad is None
    assert not module.training
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert torch.equal(model[0](x), first)
    assert all(p.grad is None for p in module.parameters())
    assert model[1].lin.weight.grad is not None


def test_frozen_is_not_drawn_anew():
    frozen = FrozenModule(nn.Linear(4, 6))
    before = frozen.module.weight.clone()
    frozen.reset_parameters()
    assert torch.equal(frozen.module.weight, before)
    frozen.requires_grad_(True)
    assert not frozen.module.weight.requires_grad
