"""Calibration: divergences against dense matrices, and choices against all there are."""

from __future__ import annotations

import itertools

import pytest
import torch

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.hf import Windows, choose, choose_layers, measure_layers, replace_attention
from hsa_geo.hf.choose import Option, _hull
from hsa_geo.hf.intercept import Layers

transformers = pytest.importorskip("transformers")


def make(implementation="eager", layers=3):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=60,
        attn_implementation=implementation,
    )
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        for number, layer in enumerate(Layers.of(model).modules):
            layer.query.weight.mul_(8 * (number + 1))  # layers differ in how sharply they attend
            layer.key.weight.mul_(8)
    return model


def batches(count=2, length=23):
    generator = torch.Generator().manual_seed(0)
    out = []
    for _ in range(count):
        ids = torch.randint(5, 60, (3, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[1, 11:] = 0
        out.append({"input_ids": ids, "attention_mask": mask})
    return out


def dense_kl(layer, hierarchy, tie):
    """The same by matrices: those of the original layer and of the replaced one, on equal input."""
    total, tokens = 0.0, 0
    for batch in batches():
        with torch.no_grad():
            own = make()(**batch, output_attentions=True).attentions[layer].double()
            model = replace_attention(make(), layers=[layer], hierarchy=hierarchy, tie=tie)
            other = model(**batch, output_attentions=True).attentions[layer].double()
        valid = batch["attention_mask"].bool()
        pair = valid[:, None, :, None] & valid[:, None, None, :]
        terms = torch.where(
            pair, other * (other.clamp(min=1e-300) / own.clamp(min=1e-300)).log(), 0
        )
        total += float(terms.sum()) / 2  # two heads
        tokens += int(valid.sum())
    return total / tokens


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_divergences_are_those_of_the_matrices(implementation):
    model = make(implementation)
    options = measure_layers(model, batches(), hierarchies=[2, 4], ties=["block", "key"])
    assert len(options) == 3 * 2 * 2
    assert model.config._attn_implementation == implementation
    for option in options:
        expected = dense_kl(option.layer, option.hierarchy, option.tie)
        assert option.kl == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_hierarchies_rank_as_their_matrices_do():
    options = measure_layers(make(), batches(), hierarchies=[2, 3, 5, 8], ties=["block", "key"])
    for layer in range(3):
        mine = [option for option in options if option.layer == layer]
        exact = [dense_kl(layer, option.hierarchy, option.tie) for option in mine]
        for (a, x), (b, y) in itertools.combinations(zip(mine, exact), 2):
            if abs(x - y) > 1e-3:
                assert (a.kl < b.kl) == (x < y)


def test_the_model_is_left_as_it_was():
    model = make("sdpa").train()
    batch = batches()[0]
    model.eval()
    expected = model(**batch).last_hidden_state
    model.train()
    measure_layers(model, [batch])
    assert model.training
    assert not Layers.of(model).handled
    assert torch.equal(model.eval()(**batch).last_hidden_state, expected)


def test_a_failing_batch_leaves_no_handler():
    model = make()
    with pytest.raises(IndexError):
        measure_layers(model, [{"input_ids": torch.full((1, 3), 999)}])
    assert not Layers.of(model).handled
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("share", [0.95, 0.8, 0.6, 0.45])
def test_a_budget_of_operations(share):
    """Kept, and no choice on the hulls of the layers is better but for the last step."""
    options = measure_layers(make(), batches(), hierarchies=[2, 4, 8], ties=["block", "key"])
    choice = choose_layers(
        make(), batches(), hierarchies=[2, 4, 8], ties=["block", "key"], max_flops=share
    )
    assert choice.flops <= share * choice.flat_flops
    assert choice.kl == pytest.approx(sum(option.kl for option in choice.options))
    by_layer = [[o for o in options if o.layer == n] for n in range(3)]
    best = float("inf")
    for combination in itertools.product(*[[None, *some] for some in by_layer]):
        flops = sum(
            some[0].flat_flops if o is None else o.flops for o, some in zip(combination, by_layer)
        )
        if flops <= share * choice.flat_flops:
            best = min(best, sum(o.kl for o in combination if o is not None))
    last = max(option.kl for option in choice.options)
    assert best - 1e-9 <= choice.kl <= best + last + 1e-9


def test_a_budget_of_divergence():
    everything = measure_layers(make(), batches(), hierarchies=[4])
    total = sum(option.kl for option in everything)
    none = choose_layers(make(), batches(), hierarchies=[4], max_kl=0.0)
    assert none.layers == []
    assert none.flops == none.flat_flops
    some = choose_layers(make(), batches(), hierarchies=[4], max_kl=0.6 * total)
    every = choose_layers(make(), batches(), hierarchies=[4], max_kl=1.01 * total)
    assert every.layers == [0, 1, 2]
    assert 0 < len(some.layers) < 3
    assert some.kl <= 0.6 * total
    model = replace_attention(
        make(), some.layers, some.options[0].hierarchy, tie=some.options[0].tie
    )
    assert model.config.hsa_attention["layers"] == some.layers


def test_the_hull():
    def option(kl, flops):
        return Option(0, Windows(4), "key", kl, flops, 100)

    # (1, 90) lies above the line from (0, 100) to (2, 40); (4, 45) is dominated.
    given = [option(1.0, 90), option(2.0, 40), option(4.0, 45), option(5.0, 10)]
    assert [(o.kl, o.flops) for o in _hull(given)] == [(2.0, 40), (5.0, 10)]
    assert _hull([option(1.0, 120)]) == []


@pytest.mark.parametrize("seed", range(40))
def test_budgets_of_divergence_are_kept(seed, monkeypatch):
    """Whatever the options: what is reported is what was chosen, and fits."""
    rng = torch.Generator().manual_seed(seed)
    options = [
        Option(layer, Windows(2 + i), "key", float(torch.rand((), generator=rng)), flops, 100)
        for layer in range(4)
        for i in range(4)
        for flops in [int(torch.randint(5, 110, (), generator=rng))]
    ]
    monkeypatch.setattr(choose, "measure_layers", lambda *_, **__: options)
    for budget in (0.0, 0.05, 0.3, 0.8, 5.0):
        choice = choose_layers(None, [], max_kl=budget)
        assert choice.kl == pytest.approx(sum(option.kl for option in choice.options))
        assert choice.kl <= budget
        taken = {option.layer: option.flops for option in choice.options}
        assert choice.flops == sum(taken.get(layer, 100) for layer in range(4))


def test_modes_of_parts_are_left():
    model = make("sdpa").train()
    model.embeddings.eval()
    measure_layers(model, batches()[0])
    assert model.training
    assert not model.embeddings.training


def test_what_is_refused():
    with pytest.raises(ShapeError, match="give one budget"):
        choose_layers(make(), batches())
    with pytest.raises(ShapeError, match="give one budget"):
        choose_layers(make(), batches(), max_kl=1.0, max_flops=0.5)
    with pytest.raises(ShapeError, match="cannot be kept"):
        choose_layers(make(), batches(), max_flops=0.01)
    with pytest.raises(ShapeError, match="holds none"):
        measure_layers(make(), [])
    with pytest.raises(ShapeError, match="nothing to measure"):
        measure_layers(make(), batches(), hierarchies=[])
    with pytest.raises(UnsupportedError, match="replaced already"):
        measure_layers(replace_attention(make(), layers=[0]), batches())
