"""Passes of one model do not disturb each other; models, files and processes neither."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading

import pytest
import torch

from hsa_geo.errors import HSAError, ShapeError, UnsupportedError
from hsa_geo.hf import (
    Sentences,
    Windows,
    choose_layers,
    given_trees,
    load_replaced,
    replace_attention,
    restore_attention,
)
from hsa_geo.hf.intercept import tokenizer_special_ids

transformers = pytest.importorskip("transformers")

IDS = torch.randint(5, 60, (2, 20), generator=torch.Generator().manual_seed(0))
MASKS = [torch.ones(2, 20, dtype=torch.int64) for _ in range(2)]
MASKS[0][1, 12:] = 0
MASKS[1][0, 12:] = 0


def config(**change):
    size = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    return transformers.BertConfig(**size, intermediate_size=64, vocab_size=60, **change)


def bert(kind="bert", **change):
    torch.manual_seed(0)
    if kind == "bert":
        return transformers.BertModel(config(**change)).eval()
    size = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    made = transformers.MPNetConfig(**size, intermediate_size=64, vocab_size=60)
    return transformers.MPNetModel(made).eval()


def out(model, mask, ids=IDS):
    with torch.no_grad():
        return model(ids, attention_mask=mask).last_hidden_state


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_threads(kind):
    """Two at a time, on batches of one shape and other padding."""
    model = replace_attention(bert(kind), layers="all", hierarchy=3)
    expected = [out(model, mask) for mask in MASKS]
    wrong = []

    def work(number):
        for _ in range(30):
            if not torch.allclose(out(model, MASKS[number]), expected[number], atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_gradient_checkpointing_with_two_passes_before_the_backward_pass():
    def gradients(checkpointing):
        model = bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        replace_attention(model, layers="all", hierarchy=3)
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        a = model(IDS, attention_mask=MASKS[0]).last_hidden_state
        b = model(IDS.flip(1), attention_mask=MASKS[1]).last_hidden_state
        (a[:, 0].sum() + b[:, 1].square().sum()).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_layers_outside_of_their_model_are_refused():
    model = replace_attention(bert(), layers="all")
    hidden = model.embeddings(IDS)
    for call in (lambda: model.encoder(hidden), lambda: model.forward(IDS)):
        with pytest.raises(UnsupportedError, match="call the model, model"):
            call()


def test_an_encoder_that_knows_the_pass_before_is_refused():
    """MPNet's layers learn of the pass by other ways."""
    model = replace_attention(bert("mpnet"), layers="all")
    hidden = model.embeddings(IDS)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="call the model, model"):
            model.encoder(hidden)
        out(model, MASKS[0])
    with pytest.raises(IndexError):
        model(torch.full((2, 20), 999))
    with pytest.raises(UnsupportedError, match="call the model, model"):
        model.encoder(hidden)
    twin = copy.deepcopy(model)
    assert out(twin, MASKS[0]).isfinite().all()
    with pytest.raises(UnsupportedError, match="call the model, model"):
        twin.encoder(hidden)
    assert not restore_attention(model)._forward_hooks
    assert not model._forward_hooks_always_called


def test_another_implementation_is_not_silent():
    model = replace_attention(bert(), layers="all")
    model.set_attn_implementation("eager")
    with pytest.raises(UnsupportedError, match="set to 'eager' after layers were replaced"):
        model(IDS)
    restore_attention(model)
    assert model.config._attn_implementation == "eager"
    assert out(model, MASKS[0]).isfinite().all()


def test_models_of_one_config():
    shared = config()
    first, second = (transformers.BertModel(shared).eval() for _ in range(2))
    expected = out(second, MASKS[0])
    replace_attention(first, layers="all", hierarchy=3)
    assert torch.equal(out(second, MASKS[0]), expected)
    assert not hasattr(second.config, "hsa_attention")
    third = replace_attention(transformers.BertModel(first.config).eval(), layers=[1])
    assert out(third, MASKS[0]).isfinite().all()
    assert first.config.hsa_attention["layers"] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_copies_after_training(kind):
    model = replace_attention(bert(kind), layers="all")
    model.train()
    model(IDS, attention_mask=MASKS[0]).last_hidden_state.sum().backward()
    twin = copy.deepcopy(model).eval()
    torch.testing.assert_close(out(twin, MASKS[0]), out(model.eval(), MASKS[0]))


def test_another_process_reads_the_model(tmp_path):
    model = replace_attention(bert(), layers=[1], hierarchy=3)
    torch.save(model, tmp_path / "model.pt")
    size = (tmp_path / "model.pt").stat().st_size
    torch.save({"out": out(model, MASKS[0]), "ids": IDS, "mask": MASKS[0]}, tmp_path / "case.pt")
    script = (
        "import sys, torch\n"
        "case = torch.load(sys.argv[2])\n"
        "model = torch.load(sys.argv[1], weights_only=False)\n"
        "with torch.no_grad():\n"
        "    out = model(case['ids'], attention_mask=case['mask']).last_hidden_state\n"
        "torch.testing.assert_close(out, case['out'])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model.pt"), str(tmp_path / "case.pt")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert size < weights + 100_000  # no plans, no ids


def test_a_choice_is_applied_and_kept(tmp_path):
    model = bert()
    with torch.no_grad():
        for number, layer in enumerate(model.encoder.layer):
            layer.attention.self.query.weight.mul_(10 * (number + 1))
    choice = choose_layers(model, [{"input_ids": IDS}], [2, 4], ["block", "key"], max_flops=0.55)
    replace_attention(model, choice)
    assert model.config.hsa_attention["layers"] == choice.layers
    expected = out(model, MASKS[0])
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(
        out(load_replaced(transformers.AutoModel, tmp_path), MASKS[0]), expected
    )
    mixed = {0: (Windows(2), "block"), 2: (Windows(4), "key")}
    replace_attention(restore_attention(model), mixed)
    assert model.config.hsa_attention["tie"] == ["block", "key"]
    expected = out(model, MASKS[0])
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(
        out(load_replaced(transformers.AutoModel, tmp_path), MASKS[0]), expected
    )


GOOD = {
    "layers": [0],
    "hierarchy": {"kind": "windows", "window": 4},
    "tie": "key",
    "special_ids": [],
}


@pytest.mark.parametrize(
    "change",
    [
        *(
            {"layers": bad}
            for bad in (None, 3, ["a"], [None], [1.7], [True], ["1"], [9], [0, 0], "x")
        ),
        *({"special_ids": bad} for bad in (None, 7, "ab", ["x"], [10**30], [1.5], [-1])),
        *({"tie": bad} for bad in (None, 5, "row", [], ["key", "key"])),
        *(
            {"hierarchy": bad}
            for bad in (None, 1, "x", [], {}, {"kind": []}, {"kind": "windows"} | {"x": 1})
        ),
        {"hierarchy": {"kind": "windows", "window": 10**30}},
        {"hierarchy": {"kind": "windows", "window": 2.0}},
        {"hierarchy": {"kind": "windows", "special": "false"}},
        {"hierarchy": {"kind": "sentences", "ends": "ab"}},
        {"hierarchy": {"kind": "sentences", "ends": ["."]}},
        {"hierarchy": {"kind": "sentences", "ends": [10**30]}},
        {"hierarchy": {"kind": "squares"}},
        {"more": 1},
    ],
    ids=str,
)
def test_hostile_configs(change):
    model = bert()
    model.config.hsa_attention = GOOD | change
    with pytest.raises(HSAError):
        replace_attention(model)
    model.config.hsa_attention = GOOD
    assert out(replace_attention(model), MASKS[0]).isfinite().all()


@pytest.mark.parametrize("setting", [5, "x", [], True])
def test_settings_of_another_kind(setting):
    model = bert()
    model.config.hsa_attention = setting
    with pytest.raises(HSAError, match=r"give layers=\[\.\.\.\]"):
        replace_attention(model)
    replace_attention(model, layers=[1])  # as it says
    assert model.config.hsa_attention["layers"] == [1]


def test_other_layers_than_those_of_the_config():
    """Its special tokens remain those that it names, if they are some."""
    model = bert()
    model.config.hsa_attention = GOOD | {"layers": [9], "special_ids": [7]}
    assert replace_attention(model, layers=[1]).config.hsa_attention["special_ids"] == [7]
    model.config.hsa_attention = GOOD | {"special_ids": ["a"]}
    assert replace_attention(model, layers=[1]).config.hsa_attention["special_ids"] == []


def test_no_layers_leave_no_setting(tmp_path):
    model = bert()
    model.config.hsa_attention = GOOD
    replace_attention(model, layers=[]).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="names none"):
        load_replaced(transformers.AutoModel, tmp_path)


def test_other_refusals():
    model = replace_attention(bert(), layers=[0])
    for trees in ([None], 5 * [1], bert):
        with pytest.raises((ShapeError, TypeError)), given_trees(model, trees):
            pass
    with pytest.raises(ShapeError, match="layers=1"):
        replace_attention(model, layers=1)
    with pytest.raises(ShapeError, match=r"give \(hierarchy, tie\)"):
        replace_attention(model, layers={0: 4})
    with pytest.raises(ShapeError, match="special_ids=5"):
        replace_attention(model, layers=[0], special_ids=5)
    with pytest.raises(UnsupportedError, match="names no class"):
        replace_attention(model, layers=[0], tokenizer=5)
    for budget in (float("nan"), float("inf"), -1, "a"):
        with pytest.raises(ShapeError, match="a budget of"):
            choose_layers(bert(), [{"input_ids": IDS}], max_kl=budget)
    with pytest.raises(UnsupportedError, match=r"dtype torch\.int64"):
        model(IDS, attention_mask=torch.ones(2, 1, 20, 20, dtype=torch.int64))
    vit = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4
        )
    )
    with pytest.raises(UnsupportedError, match="this model reads pictures"):
        replace_attention(vit, layers=[0], hierarchy=Sentences((4,)))


def test_unknown_and_masked_words_are_words():
    class Tokenizer:
        cls_token_id, sep_token_id, unk_token_id, mask_token_id = 2, 3, 1, 4

    assert tokenizer_special_ids(Tokenizer()) == [2, 3]
