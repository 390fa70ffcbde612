"""Replaced attention in small encoders with random weights: equality, padding, files, refusals."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from hsa_geo.errors import HSAWarning, ShapeError, UnsupportedError
from hsa_geo.hf import (
    Flat,
    Sentences,
    Squares,
    Windows,
    load_replaced,
    replace_attention,
    restore_attention,
)
from hsa_geo.hf.intercept import Layers
from hsa_geo.hf.plans import valid_tokens

transformers = pytest.importorskip("transformers")

SIZE = {"num_hidden_layers": 3, "num_attention_heads": 2}
TEXT = {**SIZE, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 60}
PICTURE = {**SIZE, "hidden_size": 16, "image_size": 32, "patch_size": 4}
TEXTS = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet")
PICTURES = ("vit", "dinov2")


def make(kind, implementation="sdpa", **change):
    """A model with attention that is not uniform: larger queries and keys than it starts with."""
    torch.manual_seed(0)
    implementation = "eager" if kind == "mpnet" else implementation  # it knows no other
    size = dict(PICTURE if kind in PICTURES else TEXT)
    if kind == "distilbert":
        size = {"n_layers": 3, "n_heads": 2, "dim": 16, "hidden_dim": 32, "vocab_size": 60}
    config = transformers.AutoConfig.for_model(
        kind, **size, attn_implementation=implementation, **change
    )
    model = transformers.AutoModel.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for layer in Layers.of(model).modules:
            for name, parameter in layer.named_parameters():
                if "weight" in name:
                    parameter.mul_(20)
        if kind == "mpnet":
            model.encoder.relative_attention_bias.weight.mul_(50)
    return model


def inputs(kind, seed=0, size=3, length=21):
    generator = torch.Generator().manual_seed(seed)
    if kind in PICTURES:
        return {"pixel_values": torch.randn(size, 3, 32, 32, generator=generator)}
    return {"input_ids": torch.randint(5, 60, (size, length), generator=generator)}


def padded(lengths, left=False, pad=1):
    """Ids and mask of texts of several lengths."""
    ids = torch.randint(
        5, 60, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1)
    )
    place = torch.arange(max(lengths))
    mask = torch.stack([place >= max(lengths) - n if left else place < n for n in lengths])
    return {"input_ids": torch.where(mask, ids, pad), "attention_mask": mask.long()}


def out(model, **given):
    with torch.no_grad():
        return model(**given).last_hidden_state


every = pytest.mark.parametrize("kind", [*TEXTS, *PICTURES])
texts = pytest.mark.parametrize("kind", TEXTS)
ties = pytest.mark.parametrize("tie", ["block", "key"])
implementations = pytest.mark.parametrize("implementation", ["sdpa", "eager"])


@every
@implementations
def test_no_layer_changes_no_bit(kind, implementation):
    model = make(kind, implementation)
    given = inputs(kind)
    expected = out(model, **given)
    assert torch.equal(out(replace_attention(model, layers=[]), **given), expected)


@every
@implementations
@ties
def test_depth_one_is_the_original(kind, implementation, tie):
    model = make(kind, implementation)
    given = inputs(kind)
    expected = out(model, **given)
    found = out(replace_attention(model, layers="all", hierarchy=Flat(), tie=tie), **given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@every
def test_windows_change_what_comes_out_and_only_from_their_layer_on(kind):
    model = make(kind)
    given = inputs(kind)
    with torch.no_grad():
        before = model(**given, output_hidden_states=True).hidden_states
        replace_attention(model, layers=[1])
        after = model(**given, output_hidden_states=True).hidden_states
    assert torch.equal(before[1], after[1])
    assert not torch.allclose(before[2], after[2], atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "left"),
    # MPNet's places count padding on the left and cannot be given.
    [(kind, left) for kind in TEXTS for left in (False, True) if not (left and kind == "mpnet")],
)
@ties
@implementations
def test_a_padded_batch_equals_its_texts_one_by_one(kind, tie, left, implementation):
    model = replace_attention(make(kind, implementation), layers=[0, 2], hierarchy=3, tie=tie)
    lengths = [19, 1, 7, 2]
    batch = padded(lengths, left)
    mask = batch["attention_mask"].bool()
    if left and kind in ("bert", "distilbert"):  # whose places count padding if they are not given
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    found = out(model, **batch)
    for row in range(len(lengths)):
        alone = out(model, input_ids=batch["input_ids"][row, mask[row]][None])
        torch.testing.assert_close(found[row, mask[row]][None], alone, rtol=1e-5, atol=1e-5)


@texts
def test_depth_one_with_padding_is_the_original(kind):
    model, batch = make(kind), padded([19, 4, 9])
    expected = out(model, **batch)
    replace_attention(model, layers="all", hierarchy=Flat())
    mask = batch["attention_mask"].bool()
    torch.testing.assert_close(out(model, **batch)[mask], expected[mask], rtol=1e-5, atol=1e-5)


@every
def test_restored_models_are_as_they_were(kind):
    model, given = make(kind), inputs(kind)
    expected, before = out(model, **given), model.config.to_dict()
    replace_attention(model, layers="all")
    assert model.config.hsa_attention["layers"] == [0, 1, 2]
    assert not torch.equal(out(model, **given), expected)
    restore_attention(model)
    assert torch.equal(out(model, **given), expected)
    assert model.config.to_dict() == before
    assert not model._forward_pre_hooks
    assert restore_attention(model) is model


def test_replacing_again_replaces_the_setting():
    model, given = make("bert"), inputs("bert")
    first = out(replace_attention(model, layers=[0], hierarchy=4), **given)
    with pytest.warns(HSAWarning, match=r"layers \[0\]"):
        replace_attention(model, layers=[2], hierarchy=2, tie="block")
    other = out(model, **given)
    assert not torch.equal(first, other)
    again = out(replace_attention(make("bert"), layers=[2], hierarchy=2, tie="block"), **given)
    assert torch.equal(other, again)
    assert len(model._forward_pre_hooks) == 1


def test_copies_stand_by_themselves():
    model, given = replace_attention(make("bert"), layers=[1]), inputs("bert")
    twin = copy.deepcopy(model)
    expected = out(model, **given)
    assert torch.equal(out(twin, **given), expected)
    restore_attention(model)
    assert torch.equal(out(twin, **given), expected)
    restore_attention(twin)
    assert torch.equal(out(twin, **given), out(model, **given))


@every
def test_files_keep_the_setting(kind, tmp_path):
    model, given = make(kind), inputs(kind)
    hierarchy = Squares(2) if kind in PICTURES else Sentences((9, 11), 3)
    replace_attention(model, layers=[0, 2], hierarchy=hierarchy, tie="block", special_ids=[7])
    expected = out(model, **given)
    model.save_pretrained(tmp_path)
    plain = transformers.AutoModel.from_pretrained(tmp_path).eval()
    assert plain.config._attn_implementation == model.config._attn_implementation.removeprefix(
        "hsa_geo_"
    )
    assert not torch.allclose(out(plain, **given), expected, atol=1e-4)
    loaded = load_replaced(transformers.AutoModel, tmp_path)
    assert loaded.config.hsa_attention == model.config.hsa_attention
    torch.testing.assert_close(out(loaded, **given), expected)
    del plain.config.hsa_attention
    with pytest.raises(UnsupportedError, match="names none"):
        replace_attention(plain)


@every
def test_heads_on_top(kind):
    """A model for classification is replaced in its base."""
    name = (
        "AutoModelForImageClassification"
        if kind in PICTURES
        else ("AutoModelForSequenceClassification")
    )
    torch.manual_seed(0)
    config = make(kind).config
    options = {"attn_implementation": config._attn_implementation}
    model = getattr(transformers, name).from_config(config, **options).eval()
    given = inputs(kind)
    with torch.no_grad():
        expected = model(**given).logits
        replace_attention(model, layers="all", hierarchy=Flat())
        torch.testing.assert_close(model(**given).logits, expected, rtol=1e-5, atol=1e-5)


@ties
@implementations
def test_training(tie, implementation):
    """Gradients reach the projections; dropout is on in training alone."""
    model = make("bert", implementation, attention_probs_dropout_prob=0.5)
    replace_attention(model, layers="all", hierarchy=3, tie=tie)
    given = padded([15, 6])
    assert torch.equal(out(model, **given), out(model, **given))
    model.train()
    assert not torch.equal(out(model, **given), out(model, **given))
    model(**given).last_hidden_state.square().sum().backward()
    for layer in Layers.of(model).modules:
        for projection in (layer.query, layer.key, layer.value):
            assert projection.weight.grad.abs().sum() > 0


@ties
def test_attention_weights(tie):
    model = replace_attention(make("bert", "eager"), layers=[1], hierarchy=3, tie=tie)
    batch = padded([15, 6])
    with torch.no_grad():
        found = model(**batch, output_attentions=True).attentions
    assert [w.shape for w in found] == [(2, 2, 15, 15)] * 3
    mask = batch["attention_mask"].bool()
    total = found[1].sum(-1)
    torch.testing.assert_close(total[0], torch.ones(2, 15))
    torch.testing.assert_close(total[1], mask[1].float().expand(2, -1))
    row = found[1][0, 0, 1]  # of the first token of the first window
    assert len(row.unique()) < len(row)  # windows share weights


def test_weights_give_the_output():
    model = make("bert", "eager")
    layer = Layers.of(model).modules[0]
    replace_attention(model, layers=[0], hierarchy=3)
    seen = {}
    hook = layer.register_forward_hook(lambda m, a, o: seen.update(out=o[0], x=a, weights=o[1]))
    x = inputs("bert")
    with torch.no_grad():
        options = {"output_hidden_states": True, "output_attentions": True}
        hidden = model(**x, **options).hidden_states[0]
        v = layer.value(hidden).view(3, 21, 2, 8).transpose(1, 2)
    hook.remove()
    again = (seen["weights"] @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(seen["out"], again, rtol=1e-5, atol=1e-5)


def test_embeddings_instead_of_ids():
    """Without ids the first and the last token of each text are special."""
    model, given = make("bert"), inputs("bert")
    embeddings = model.embeddings.word_embeddings(given["input_ids"])
    replace_attention(model, layers=[1], hierarchy=4)
    torch.testing.assert_close(
        out(model, inputs_embeds=embeddings), out(model, **given), rtol=1e-5, atol=1e-5
    )


def test_special_tokens_within_a_text():
    given = inputs("bert", length=12)
    given["input_ids"][:, 5] = 3
    model = replace_attention(make("bert"), layers=[1], hierarchy=4, special_ids=[3])
    other = replace_attention(make("bert"), layers=[1], hierarchy=4)
    assert not torch.allclose(out(model, **given), out(other, **given), atol=1e-4)


@texts
@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_lengths(kind, length):
    model = replace_attention(make(kind), layers="all")
    found = out(model, **inputs(kind, size=2, length=length))
    assert found.isfinite().all()


@texts
def test_the_limit_of_a_model(kind):
    """Positions of the kin of RoBERTa begin behind that of the padding, 1."""
    most = 64 if kind in ("bert", "distilbert") else 62
    model = replace_attention(make(kind, max_position_embeddings=64), layers="all")
    assert out(model, **inputs(kind, length=most)).isfinite().all()
    with pytest.raises(ShapeError, match=f"has {most + 1} tokens, and the model takes {most}"):
        out(model, **inputs(kind, length=most + 1))


def test_padding_is_not_counted_where_it_has_no_position():
    model = replace_attention(make("roberta", max_position_embeddings=64), layers="all")
    batch = padded([62, 3])
    expected = out(model, **batch)
    wider = {
        k: torch.nn.functional.pad(x, (0, 2), value=k == "input_ids") for k, x in batch.items()
    }
    torch.testing.assert_close(out(model, **wider)[:, :62], expected, rtol=1e-5, atol=1e-5)


def test_pictures_of_other_sizes():
    model = replace_attention(make("dinov2"), layers="all", hierarchy=Squares(2))
    for height, width in ((32, 32), (16, 40), (4, 4)):
        found = out(model, pixel_values=torch.randn(2, 3, height, width))
        assert found.shape == (2, height * width // 16 + 1, 16)


def test_compiled():
    """Batches of one shape, too, whose trees differ."""
    model = replace_attention(make("bert"), layers=[1], hierarchy=Sentences((9, 11, 13), 3))
    fast = torch.compile(model, backend="eager")
    for seed in range(2):
        given = inputs("bert", seed)
        torch.testing.assert_close(out(fast, **given), out(model, **given))


def test_half_precision():
    model, given = replace_attention(make("bert"), layers="all"), inputs("bert")
    expected = out(model, **given)
    half = out(model.bfloat16(), **given)
    assert half.dtype == torch.bfloat16
    assert (half.float() - expected).abs().mean() < 0.1


def test_masks():
    assert valid_tokens(None) is None
    assert valid_tokens(torch.tensor([[1, 0]])).tolist() == [[True, False]]
    whole = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    assert valid_tokens(whole).all()
    with pytest.raises(UnsupportedError, match="hides more than padding"):
        valid_tokens(whole.tril())
    with pytest.raises(UnsupportedError, match="weighs tokens"):
        valid_tokens(torch.full((1, 1, 1, 2), -2.0))


def test_what_is_refused():
    gpt = transformers.GPT2Model(transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(UnsupportedError, match="type 'gpt2' are not known"):
        replace_attention(gpt, layers=[0])
    with pytest.raises(UnsupportedError, match="is a decoder"):
        replace_attention(make("bert", is_decoder=True), layers=[0])
    model = make("bert")
    with pytest.raises(UnsupportedError, match="is a Linear"):
        replace_attention(torch.nn.Linear(2, 2), layers=[0])
    with pytest.raises(UnsupportedError, match="names none"):
        replace_attention(model)
    with pytest.raises(ShapeError, match="holds 3, but layers are 0 to 2"):
        replace_attention(model, layers=[3])
    with pytest.raises(ShapeError, match="twice"):
        replace_attention(model, layers=[1, 1])
    with pytest.raises(ShapeError, match="layers='some'"):
        replace_attention(model, layers="some")
    with pytest.raises(UnsupportedError, match="reads texts"):
        replace_attention(model, layers=[1], hierarchy=Squares(2))
    with pytest.raises(UnsupportedError, match="tie='row'"):
        replace_attention(model, layers=[1], tie="row")
    replace_attention(model, layers=[1], hierarchy=Sentences((9,)))
    with pytest.raises(UnsupportedError, match="inputs_embeds"):
        model(inputs_embeds=torch.randn(1, 5, 16))
    replace_attention(model, layers=[1], hierarchy=Windows(3))
    mask = torch.tensor([[1] * 4, [0] * 4])
    with pytest.raises(ShapeError, match="text 1 of the batch is all padding"):
        model(input_ids=torch.full((2, 4), 9), attention_mask=mask)


def test_layers_that_are_not_named_again_are_told():
    model = make("bert")
    replace_attention(model, [0, 1])
    with pytest.warns(HSAWarning, match=r"layers \[0\], replaced before, .* own attention again"):
        replace_attention(model, [1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace_attention(model, [0, 1, 2])  # none is left out
        restore_attention(model)
        replace_attention(model, [0])
        replace_attention(model, [])  # which can only be meant
