"""RoBERTa on the paper's tasks: a small one with random weights, from a folder, on a file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from zero_shot_classifiers import TASKS, Classifier, loaded, main, texts_of
from zero_shot_encoding import Setting
from zero_shot_table import read

from hsa_geo.errors import FileFormatError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
parquet = pytest.importorskip("pyarrow.parquet")

WORDS = ["the", "film", "was", "a", "good", "bad", "long", "short", "story"]
WORDS += ["and", "we", "liked", "hated", "it", "very", "much"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A RoBERTa with a head, and its tokenizer: words, <s> text </s></s> text </s>."""
    path = tmp_path_factory.mktemp("roberta")
    vocabulary = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=512,
        **{"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    ).save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=42,
        num_labels=2,
        initializer_range=0.5,
    )
    transformers.RobertaForSequenceClassification(config).save_pretrained(path)
    return path


def texts(count=40, pair=False):
    rng = np.random.default_rng(0)

    def one():
        return " ".join(rng.choice(WORDS, rng.integers(1, 15)))

    return [(one(), one()) if pair else (one(),) for _ in range(count)]


@pytest.mark.parametrize("name", ["sst2", "rte"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_program(folder, tmp_path, name, ending, capsys):
    """From files to the table; the unmodified row is what transformers itself says."""
    columns, rows = TASKS[name].columns, texts(pair=name == "rte")
    model, tokenizer = loaded(str(folder))
    with torch.inference_mode():
        logits = torch.cat([model(**tokenizer(*row, return_tensors="pt")).logits for row in rows])
    answer = logits.argmax(1).tolist()
    labels = [1 - y if i % 4 == 0 else y for i, y in enumerate(answer)]  # right in three quarters
    pa = pytest.importorskip("pyarrow")
    table = pa.table({c: [row[i] for row in rows] for i, c in enumerate(columns)})
    table = table.append_column("label", pa.array(labels))
    path = tmp_path / f"texts.{ending}"
    if ending == "csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    out = tmp_path / "out"
    line = ["--task", name, "--model", str(folder), "--data", str(path), "--layers", "1", "3"]
    assert main([*line, "--out", str(out), "--batch", "7"]) == 0
    first, *replaced = read(out / f"{name}.json")[1]
    assert first.accuracy == 0.75
    assert len(replaced) == 6
    for row in replaced:
        assert row.setting.layers == (1, 3)
        assert 0.3 < row.cosine <= 1
        assert row.gap.mean == pytest.approx(row.accuracy - 0.75)
    assert "40 texts" in capsys.readouterr().out
    assert main([*line, "--layers", "4", "--out", str(out)]) == 1
    assert "the model has 4 layers, 0 to 3" in capsys.readouterr().err


def test_unmodified_layers_and_longest_texts(folder):
    """Batches of padded texts give what single ones do; texts of the longest length are read."""
    model, tokenizer = loaded(str(folder))
    classifier = Classifier(model, tokenizer, 4)
    assert classifier.most == 40  # positions 0 and 1 are not for tokens
    long = [(" ".join(["film"] * n),) for n in (37, 38, 39, 100)]
    assert classifier.cut(long) == 2
    one = Classifier(model, tokenizer, 1)
    for setting in (None, Setting((1, 3), "block", 4, "paper's windows")):
        some = [*texts(9), *long]
        together = classifier.classify(some, setting)
        alone = one.classify(some, setting)
        np.testing.assert_allclose(together.vectors, alone.vectors, rtol=1e-4, atol=1e-5)
        assert (together.flat, together.replaced) == (alone.flat, alone.replaced)
    np.testing.assert_array_equal(together.vectors[-2:].round(5)[0], together.vectors[-1].round(5))


def test_models_without_a_head_or_in_a_pickle(folder, tmp_path):
    """A head of random weights, or weights that would have to be unpickled, are refused."""
    model = transformers.RobertaModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "headless")
    with pytest.raises(FileFormatError, match="lacks the weights"):
        loaded(str(tmp_path / "headless"))
    (tmp_path / "pickle").mkdir()
    (tmp_path / "pickle" / "config.json").write_text((folder / "config.json").read_text())
    torch.save(model.state_dict(), tmp_path / "pickle" / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        loaded(str(tmp_path / "pickle"))


def test_bad_files(tmp_path, capsys):
    task = TASKS["sst2"]
    bad = tmp_path / "bad.csv"
    for content, why in (
        ("text,label\nx,1\n", "columns"),
        ("sentence,label\nx,1.5\n", "no labels"),
        ("sentence,label\n7,1\n", "7 where a text belongs"),
        ("sentence,label\n", "no labels"),
    ):
        bad.write_text(content)
        with pytest.raises(FileFormatError, match=why):
            texts_of(task, bad)
    assert main(["--data", str(tmp_path / "no.csv"), "--model", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
