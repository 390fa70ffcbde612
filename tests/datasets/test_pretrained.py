"""Loading pretrained encoders: several kinds of models, and nothing that could run code."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from hsa_geo.datasets import TextEncoder
from hsa_geo.datasets.pretrained import load_encoder
from hsa_geo.errors import DownloadError, FileFormatError, MissingPackageError, UnsupportedError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "model")


def test_bert(tiny_bert):
    encoder = load_encoder(tiny_bert)
    assert (encoder.dim, encoder.num_layers, encoder.max_pieces) == (16, 3, 30)
    assert (encoder.before, encoder.after, encoder.pad) == ((2,), (3,), 0)
    assert not encoder.module.training
    assert type(encoder.module).__name__ == "BertModel"
    long = encoder.tokenizer.encode("the cat " * 40, add_special_tokens=False)
    assert len(long.ids) == 80  # neither cut nor filled up
    assert 3 not in encoder.tokenizer.encode("a [SEP]", add_special_tokens=False).ids


def test_the_digest_tells_models_apart(tiny_bert, folder):
    digest = load_encoder(tiny_bert).digest
    assert load_encoder(str(folder)).digest == digest
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.bias"][0] += 1e-3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert load_encoder(folder).digest != digest


def byte_tokenizer(folder, before, after, pad):
    """A tokenizer of bytes, as RoBERTa and T5 might have."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = list(dict.fromkeys([*before, *after, pad]))
    ids = {token: i for i, token in enumerate([*special, *alphabet])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(special)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]),
        special_tokens=[(token, ids[token]) for token in special],
    )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token=pad)
    fast.save_pretrained(folder)
    return ids


def test_roberta_has_two_positions_less(tmp_path):
    ids = byte_tokenizer(tmp_path, ["<s>"], ["</s>"], "<pad>")
    config = transformers.RobertaConfig(
        vocab_size=len(ids),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=514,
        pad_token_id=ids["<pad>"],
    )
    config.pad_token_id = 1
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    assert encoder.max_pieces == 510
    vectors, rows = TextEncoder(tmp_path).words(
        ["a" * 1200 + " \U0001f600"], [[[0, 1200], [1201, 1202]]]
    )[0]
    assert rows.tolist() == [0, 1]
    assert vectors.isfinite().all()


def test_the_encoder_of_t5(tmp_path):
    ids = byte_tokenizer(tmp_path, [], ["</s>"], "<pad>")
    config = transformers.T5Config(
        vocab_size=len(ids), d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2
    )
    transformers.T5Model(config).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path)
    assert type(encoder.module).__name__ == "T5EncoderModel"
    assert (encoder.dim, encoder.num_layers, encoder.max_pieces) == (8, 2, None)
    assert (encoder.before, encoder.after) == ((), (ids["</s>"],))
    for layer in (0, 1, 2):
        vectors, _ = TextEncoder(tmp_path, layer=layer).words(["a bc"], [[[0, 1], [2, 4]]])[0]
        assert vectors.shape == (2, 8)


# Refused ####################################################################


def test_pickles_are_refused(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"weights as pytorch_model\.bin only.*convert"):
        load_encoder(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(FileFormatError, match="holds no weights"):
        load_encoder(folder)


def test_code_of_a_model_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('it was run')")
    with pytest.raises(UnsupportedError, match="brings its own code, which is not run"):
        load_encoder(folder)


@pytest.mark.parametrize(
    "key", ["encoder.layer.1.output.dense.weight", "embeddings.LayerNorm.bias"]
)
def test_missing_weights_are_not_made_up(folder, key):
    weights = load_file(folder / "model.safetensors")
    del weights[key]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        FileFormatError, match=rf"lacks 1 weights of its BertModel, such as '{key}'"
    ):
        load_encoder(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"not at all"),
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "no such type"}'),
        ("tokenizer.json", b"{}"),
    ],
)
def test_damaged_folders(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(FileFormatError, match="cannot be loaded"):
        load_encoder(folder)


def test_weights_of_another_shape(folder):
    config = json.loads((folder / "config.json").read_text())
    config["intermediate_size"] = 64
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileFormatError, match="cannot be loaded"):
        load_encoder(folder)


def test_no_folder(tmp_path):
    for name in (tmp_path, tmp_path / "none", "./none", str(tmp_path / "none")):
        with pytest.raises(FileFormatError, match="is no folder with a model"):
            load_encoder(name)


def test_names_on_the_hub(monkeypatch):
    """Without a network: what is not in the cache is an error that names the ways out."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        DownloadError, match=r"'hsa-geo/no-such-model' cannot be loaded from the hub"
    ):
        load_encoder("hsa-geo/no-such-model", revision="main")


def test_a_revision_is_for_the_hub(tiny_bert):
    with pytest.raises(UnsupportedError, match="revision='main' has no effect on the folder"):
        load_encoder(tiny_bert, revision="main")


def test_without_transformers(tiny_bert, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingPackageError, match=r"hsa_geo\[hf\]"):
        load_encoder(tiny_bert)
