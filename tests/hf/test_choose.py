"""Calibration: divergences against dense matrices, and choices against all there are."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch

from hsa_geo.errors import NonFiniteError, ShapeError, UnsupportedError
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


class Letters:
    """A tokenizer of lower-case letters: 2 begins a text, 3 ends it, 1 fills up."""

    model_max_length = 20
    cls_token_id, sep_token_id = 2, 3

    def __call__(self, texts, truncation, max_length, padding=False, return_tensors=None):
        ids = [[2, *[ord(x) - 92 for x in text][: max_length - 2], 3] for text in texts]
        if not padding:
            return {"input_ids": ids}
        longest = max(map(len, ids))
        made = [one + [1] * (longest - len(one)) for one in ids]
        mask = [[1] * len(one) + [0] * (longest - len(one)) for one in ids]
        return {"input_ids": torch.tensor(made), "attention_mask": torch.tensor(mask)}


def test_texts():
    """The same as their inputs; with a tokenizer, whose special tokens are followed."""
    texts = ["theanswer", "no", "whatabiglongtextofmanyletters", ""]
    given = Letters()(texts, True, 20, padding=True)
    options = measure_layers(make(), texts, [4], ["block", "key"], tokenizer=Letters())
    expected = measure_layers(make(), given, [4], ["block", "key"], special_ids=[2, 3])
    for one, other in zip(options, expected, strict=True):
        assert (one.flops, one.flat_flops) == (other.flops, other.flat_flops)
        assert one.kl == pytest.approx(other.kl, rel=1e-3, abs=1e-6)
    choice = choose_layers(make(), texts, tokenizer=Letters(), max_flops=1.0)
    assert choice.layers == []
    inputs = measure_layers(make(), [given], [4], tokenizer=Letters())  # for its ids alone
    assert [o.flops for o in inputs] == [o.flops for o in expected if o.tie == "key"]


@dataclass(frozen=True)
class ByLetter:
    """A hierarchy of one's own, which reads the ids."""

    def labels(self, tokens):
        return [torch.where(tokens.special, -1, 2 * tokens.text + tokens.ids % 2)]


def test_batches_of_one_shape_have_trees_of_their_own():
    first, second = batches()
    together = measure_layers(make(), [first, second], [ByLetter()])
    apart = [measure_layers(make(), one, [ByLetter()]) for one in (first, second)]
    for both, one, other in zip(together, *apart, strict=True):
        assert both.flops == one.flops + other.flops
        assert both.kl == pytest.approx((one.kl + other.kl) / 2, rel=1e-4)


def test_operations_by_hand():
    """Texts of 18 tokens and of 7, in windows of 4, special tokens at the root; 2 heads of 8.

    Root of the longer: 2 + 4 windows of 4 tokens.  Of the shorter: 2 + windows of 4 and of 1, which
    is its token.
    """
    ids = torch.randint(5, 60, (2, 18), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    batch = {"input_ids": ids, "attention_mask": mask}
    block, key = measure_layers(make(layers=1), batch, [4], ["block", "key"])
    assert block.flat_flops == 4 * 16 * (18**2 + 7**2)
    slots = (4 + 16 + 2) + (1 + 4 + 1 + 2)  # windows and tokens, but not the roots
    pairs = (6 * 5 + 4 * (4 * 3) + 18) + (4 * 3 + 4 * 3 + 7)
    means, paths = slots * 3 * 16, slots * 2 * 16
    assert block.flops == 4 * 16 * pairs + means + paths
    pairs = (16 * (3 + 5) + 2 * 5 + 18) + (4 * (3 + 3) + 3 * 3 + 7)
    assert key.flops == 4 * 16 * pairs + slots * 2 * 16


def test_what_is_not_finite():
    model = make()
    with torch.no_grad():
        model.encoder.layer[1].attention.self.query.weight[0] = float("nan")
    with pytest.raises(NonFiniteError, match="layer 1 are"):
        choose_layers(model, batches(), max_kl=1.0)
    assert not Layers.of(model).handled


def test_what_is_refused():
    for share in (1.01, 50e6):
        with pytest.raises(ShapeError, match="the share of the operations"):
            choose_layers(make(), batches(), max_flops=share)
    with pytest.raises(ShapeError, match="a budget of True"):
        choose_layers(make(), batches(), max_flops=True)
    for given in ("a text", None, 5):
        with pytest.raises(ShapeError, match="batches="):
            measure_layers(make(), given)
    with pytest.raises(ShapeError, match="texts with tokenizer="):
        measure_layers(make(), ["a text"])
    with pytest.raises(ShapeError, match="give lists"):
        measure_layers(make(), batches(), ties="key")
    for bad in (["a"], 7):
        with pytest.raises(ShapeError, match="special_ids="):
            measure_layers(make(), batches(), special_ids=bad)
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
