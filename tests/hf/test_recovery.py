"""Recovery: the loss falls, outputs come closer to the original's, all else is left as it was."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hsa_geo.errors import HSAError, NonFiniteError, ShapeError, UnsupportedError
from hsa_geo.hf import Clusters, Windows, recover, recovery, replace_attention, restore_attention
from hsa_geo.hf.intercept import Layers
from hsa_geo.hf.matching import matching_loss
from hsa_geo.hf.unlabelled import Inputs

transformers = pytest.importorskip("transformers")

TEXTS = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet")
PICTURES = ("vit", "dinov2")


def make(kind="bert", head="AutoModel", seed=0, **change):
    """A small model with attention that is not uniform."""
    torch.manual_seed(seed)
    size = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    size |= {"image_size": 32, "patch_size": 4} if kind in PICTURES else {"vocab_size": 60}
    if kind not in PICTURES:
        size["intermediate_size"] = 32
    if kind == "distilbert":
        size = {"n_layers": 3, "n_heads": 2, "dim": 16, "hidden_dim": 32, "vocab_size": 60}
    implementation = "eager" if kind == "mpnet" else "sdpa"
    config = transformers.AutoConfig.for_model(kind, **size, **change)
    auto = getattr(transformers, head)
    model = auto.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for layer in Layers.of(model).modules:
            for name, parameter in layer.named_parameters():
                if "weight" in name:
                    parameter.mul_(8 if kind in PICTURES else 12)
    return model


def batches(kind="bert", count=10, seed=1, size=4, length=22):
    generator = torch.Generator().manual_seed(seed)
    if kind in PICTURES:
        return [
            {"pixel_values": torch.randn(size, 3, 32, 32, generator=generator)}
            for _ in range(count)
        ]
    made = []
    for _ in range(count):
        ids = torch.randint(5, 60, (size, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, length - 6 :] = 0
        made.append({"input_ids": torch.where(mask == 1, ids, 1), "attention_mask": mask})
    return made


def loss_between(model, teacher, given):
    """The loss on other inputs, by the outputs of the models alone."""
    with torch.no_grad():
        h, t = (m(**given).last_hidden_state for m in (model, teacher))
    mask = given.get("attention_mask", torch.ones(h.shape[:2])).bool()
    return float(matching_loss([h], [t], mask))


class Letters:
    """A tokenizer of lower-case letters: 2 begins a text, 3 ends it, 1 fills up."""

    model_max_length = 20

    def __call__(self, texts, truncation, max_length, padding=False, return_tensors=None):
        assert truncation
        ids = [[2, *[ord(x) - 92 for x in text][: max_length - 2], 3] for text in texts]
        if not padding:
            return {"input_ids": ids}
        longest = max(map(len, ids))
        made = [one + [1] * (longest - len(one)) for one in ids]
        mask = [[1] * len(one) + [0] * (longest - len(one)) for one in ids]
        return {"input_ids": torch.tensor(made), "attention_mask": torch.tensor(mask)}


def words(count=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        "".join(chr(97 + int(x)) for x in torch.randint(0, 26, (n,), generator=generator))
        for n in torch.randint(4, 30, (count,), generator=generator).tolist()
    ]


@pytest.mark.parametrize("kind", [*TEXTS, *PICTURES])
@pytest.mark.parametrize("tie", ["block", "key"])
def test_outputs_come_closer_to_the_originals(kind, tie):
    teacher = make(kind)
    hierarchy = 3 if kind in TEXTS else None
    model = replace_attention(copy.deepcopy(teacher), "all", hierarchy, tie)
    other = batches(kind, 1, seed=9)[0]
    before = loss_between(model, teacher, other)
    lr = 3e-4 if kind in PICTURES else 1e-3
    found = recover(model, batches(kind), epochs=3, lr=lr, log=False)
    assert found.after < found.before
    assert loss_between(model, teacher, other) < before
    tokens = {"vit": 4 * 65, "dinov2": 4 * 65}.get(kind, 4 * 22 - 6)
    assert (found.steps, found.tokens) == (27, 27 * tokens)


def test_texts_with_a_tokenizer():
    teacher = make()
    model = replace_attention(copy.deepcopy(teacher), "all", Windows(3), "block")
    found = recover(model, words(), Letters(), epochs=6, lr=2e-3, batch_tokens=128, log=False)
    assert found.after < 0.9 * found.before
    lengths = [min(len(word), 18) + 2 for word in words()]
    assert 6 * (sum(lengths) - 4 * 20) <= found.tokens <= 6 * (sum(lengths) - 4 * 6)
    assert found.steps > 6 * sum(lengths) / 128 * 0.8


@pytest.mark.parametrize("train", ["attention", "layers", "after"])
def test_what_is_trained(train):
    model = replace_attention(make(), [1], 3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    found = recover(model, batches(), train=train, log=False)
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    start = {
        "attention": ("encoder.layer.1.attention.self.",),
        "layers": ("encoder.layer.1.",),
        "after": ("encoder.layer.1.", "encoder.layer.2."),
    }[train]
    # A bias of the keys changes nothing in a softmax over single keys, and gets next to nothing.
    expected = {name for name in before if name.startswith(start) and "LayerNorm" not in name}
    assert changed <= expected
    assert {name for name in expected if "key.bias" not in name} <= changed
    assert found.parameters == sum(before[name].numel() for name in expected)


def count_hooks(module):
    return len(module._forward_pre_hooks), len(module._forward_hooks)


def test_all_else_is_left_as_it_was():
    model = replace_attention(make(), [0, 2], 3)
    model.train()
    model.encoder.layer[1].eval()
    model.encoder.layer[0].requires_grad_(False)
    model.embeddings.word_embeddings.weight.grad = torch.ones(60, 16)
    model.encoder.layer[2].output.dense.weight.grad = torch.full((16, 32), 2.0)
    modes = [module.training for module in model.modules()]
    needed = [p.requires_grad for p in model.parameters()]
    grads = [p.grad for p in model.parameters()]
    with torch.no_grad():  # transformers leaves hooks of its own, the first time
        model(**batches(count=1)[0], output_hidden_states=True)
    config, hooks = model.config.to_dict(), [count_hooks(m) for m in model.modules()]
    state = torch.get_rng_state()
    recover(model, batches(), log=False)
    assert [module.training for module in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == needed
    assert all(p.grad is grad for p, grad in zip(model.parameters(), grads))
    assert model.config.to_dict() == config
    assert [count_hooks(m) for m in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), state)
    restore_attention(model)
    assert not model._forward_pre_hooks
    assert "hsa_attention" not in model.config.to_dict()


def test_the_seed_decides():
    def trained(seed):
        model = replace_attention(make(), "all", 3)
        torch.manual_seed(seed + 5)  # not this one
        found = recover(model, words(), Letters(), epochs=2, seed=seed, log=False)
        return model.state_dict(), found

    (first, one), (again, two), (other, _) = trained(0), trained(0), trained(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)
    name = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(first[name], other[name])


def test_heads_stay_and_profit():
    name = "AutoModelForSequenceClassification"
    teacher = make("roberta", name)
    model = replace_attention(copy.deepcopy(teacher), "all", 3, "block")
    given, other = batches(), batches(count=1, seed=9)[0]
    given = [one | {"labels": torch.tensor([0, 1, 0, 1])} for one in given]

    def gap():
        with torch.no_grad():
            return float((model(**other).logits - teacher(**other).logits).square().mean())

    before, head = gap(), copy.deepcopy(model.classifier.state_dict())
    recover(model, given, epochs=6, lr=2e-3, log=False)
    assert gap() < before
    assert all(torch.equal(x, head[key]) for key, x in model.classifier.state_dict().items())


def test_groups_by_content():
    model = replace_attention(make(), "all", Clusters(4))
    found = recover(model, batches(), epochs=4, lr=2e-3, log=False)
    assert found.after < found.before


def test_it_works_without_gradients_around_it():
    model = replace_attention(make(), "all", 3)
    with torch.no_grad():
        found = recover(model, batches(), epochs=4, lr=2e-3, log=False)
        assert not torch.is_grad_enabled()
    assert found.after < found.before


def test_the_clock_ends_it(monkeypatch):
    """A clock that goes on by a second whenever it is read, and a limit of 20 seconds."""
    now, rates = iter(range(10**6)), []
    monkeypatch.setattr(recovery.time, "monotonic", lambda: float(next(now)))
    rate = recovery.learning_rate

    def seen(options, done):
        rates.append(rate(options, done))
        return rates[-1]

    monkeypatch.setattr(recovery, "learning_rate", seen)
    model = replace_attention(make(), "all", 3)
    found = recover(model, batches(count=20), epochs=100, seconds=20, lr=5e-4, log=False)
    assert 15 <= found.steps < 20
    assert max(rates) > 0.9 * 5e-4 > 0.1 * 5e-4 > rates[-1]


def test_ctrl_c_leaves_a_model(monkeypatch):
    model = replace_attention(make().train(), "all", 3)
    before = copy.deepcopy(model.state_dict())
    inputs, calls = Inputs.inputs, []

    def stopped(self, rows):
        calls.append(rows)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return inputs(self, rows)

    monkeypatch.setattr(Inputs, "inputs", stopped)
    with pytest.raises(KeyboardInterrupt):
        recover(model, batches(), log=False)
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert len(model._forward_pre_hooks) == 1
    assert any(not torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert model(**batches(count=1)[0]).last_hidden_state.isfinite().all()


def test_what_diverges_is_undone():
    model = replace_attention(make(), "all", 3)
    before = copy.deepcopy(model.state_dict())
    given = batches("bert", 10)
    with pytest.raises(NonFiniteError, match="the model is as it was"):
        recover(model, given, lr=1e30, warmup=0.0, log=False)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_a_last_step_that_diverges_is_undone():
    """Only the measurement after it can tell."""
    model = replace_attention(make(), "all", 3)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NonFiniteError, match="the model is as it was"):
        recover(model, batches(count=1), lr=1e30, warmup=0.0, log=False)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_what_is_not_finite_from_the_start():
    """It is not the learning rate."""
    model = replace_attention(make(), "all", 3)
    given = batches()
    held = int(np.random.default_rng(0).permutation(10)[0])
    for at, match in ((held, "before the training"), ((held + 1) % 10, "what went in")):
        some = [dict(one) for one in given]
        embeddings = model.embeddings.word_embeddings(some[at].pop("input_ids")).detach()
        embeddings[1, 2] = float("nan")
        some[at]["inputs_embeds"] = embeddings
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(NonFiniteError, match=match):
            recover(model, some, log=False)
        assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_within_inference_mode():
    model = replace_attention(make(), "all", 3)
    with torch.inference_mode():
        found = recover(model, batches(), epochs=4, lr=2e-3, log=False)
    assert found.after < found.before


def test_within_autocast():
    """Which keeps copies of parameters, as they were before the training."""
    model = replace_attention(make(), "all", 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = recover(model, batches(), epochs=4, lr=2e-3, log=False)
        assert torch.is_autocast_cache_enabled()
    assert found.after < 0.95 * found.before


def test_more_tokens_than_the_model_takes():
    model = replace_attention(make(max_position_embeddings=24), "all", 3)
    with pytest.raises(ShapeError, match="max_tokens=25: the model takes 24"):
        recover(model, ["a" * 60], Letters(), max_tokens=25, log=False)
    assert recover(model, ["a" * 60], Letters(), max_tokens=24, log=False).tokens == 24


def test_few_texts_are_measured_and_trained_on():
    model = replace_attention(make(), "all", 3)
    found = recover(model, batches(count=1), epochs=20, lr=2e-3, log=False)
    assert found.steps == 20
    assert found.after < 0.9 * found.before
    assert recover(model, [""], Letters(), log=False).steps == 1
    one = recover(model, batches(count=1)[0], log=False)  # a single one, not in a list
    assert one.steps == 1


def test_progress_on_stderr(capsys):
    model = replace_attention(make(), [0], 3)
    recover(model, batches(count=2))
    said = capsys.readouterr().err
    assert "before" in said
    assert "after 2 steps" in said


PLAIN = {"log": False}


@pytest.mark.parametrize(
    ("texts", "options", "error", "match"),
    [
        ([], {}, ShapeError, "leaves nothing"),
        ("a text", {}, ShapeError, "give a list of str"),
        (None, {}, ShapeError, "give a list of str"),
        (torch.ones(2, 3), {}, ShapeError, "give a list of str"),
        (["a", 3], {}, ShapeError, "texts holds int, str"),
        (["a"], {}, UnsupportedError, "tokenizer=None"),
        (batches(count=1), {"tokenizer": Letters()}, UnsupportedError, "no effect"),
        (batches(count=1), {"max_tokens": 9}, UnsupportedError, "no effect"),
        (["a"], {"max_tokens": 2}, ShapeError, "max_tokens=2"),
        (["a"], {"batch_tokens": 0}, ShapeError, "batch_tokens=0"),
        (["a"], {"train": "heads"}, UnsupportedError, "train='heads'"),
        (["a"], {"seconds": 0}, ShapeError, "seconds=0"),
        (["a"], {"seconds": math.nan}, ShapeError, "seconds=nan"),
        (["a"], {"seconds": True}, ShapeError, "seconds=True"),
        (["a"], {"epochs": 0}, ShapeError, "epochs=0"),
        (["a"], {"lr": -1.0}, ShapeError, "lr=-1.0"),
        (["a"], {"clip": 0.0}, ShapeError, "clip=0.0"),
    ],
)
def test_refusals(texts, options, error, match):
    model = replace_attention(make(), [1], 3)
    with pytest.raises(error, match=match) as found:
        recover(model, texts, **options, **PLAIN)
    assert isinstance(found.value, HSAError)


def test_models_that_are_refused():
    with pytest.raises(UnsupportedError, match="no layer of the model is replaced"):
        recover(make(), batches(), log=False)
    restored = restore_attention(replace_attention(make(), "all"))
    with pytest.raises(UnsupportedError, match="no layer of the model is replaced"):
        recover(restored, batches(), log=False)
    with pytest.raises(UnsupportedError, match="bfloat16"):
        recover(replace_attention(make().bfloat16(), "all", 3), batches(), log=False)
    with pytest.raises(UnsupportedError, match="reads pictures"):
        recover(replace_attention(make("vit"), "all"), ["a"], Letters(), log=False)
    with pytest.raises(UnsupportedError, match="give a model of transformers"):
        recover(torch.nn.Linear(2, 2), batches(), log=False)
