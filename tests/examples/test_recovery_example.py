"""The examples of recovery and fine-tuning: their parts, and the programs on real data."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import fine_tuning
import numpy as np
import pytest
import recovery
import torch
from zero_shot_encoding import Outcome, Setting

from hsa_geo.hf import replace_attention
from hsa_geo.hf.unlabelled import Texts

transformers = pytest.importorskip("transformers")


class Same:
    """A probe that says the class that stands in the first feature."""

    def predict(self, x):
        return x[:, 0].astype(int)


def test_every_text_is_asked_by_the_probe_of_its_fold():
    asked = np.array([1, 3, 4])
    vectors = np.array([[5.0], [7.0], [9.0]])  # of the asked texts

    class Other(Same):
        def predict(self, x):
            return -super().predict(x)

    probes = [(np.array([0, 3]), Other()), (np.array([1, 4]), Same())]
    assert recovery.answers(probes, vectors, asked).tolist() == [5, -7, 9]


def test_the_nearest_other_text():
    known = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
    asked = np.array([1, 2])
    assert recovery.neighbours(known[asked], known, asked).tolist() == [3, 3]


def test_parts():
    texts = ["a b c d e", "", "f"]
    assert list(recovery.parts(texts, 2)) == ["a b", "c d", "e", "f"]


def test_kept_vectors(tmp_path):
    made = Outcome(np.eye(2, dtype=np.float32), 7, 3)
    first = recovery.kept(tmp_path / "a" / "b.npz", lambda: made)
    again = recovery.kept(tmp_path / "a" / "b.npz", None)
    for one in (first, again):
        assert np.array_equal(one.vectors, made.vectors)
        assert (one.flat, one.replaced) == (7, 3)


def test_titles():
    setting = Setting((0, 1), "key", 4)
    assert recovery.Recovered((0, 1), "key", 4).title == f"{setting.title}, recovered"


def test_fine_tuning_learns():
    class Letters:
        def __call__(self, texts, padding=False, return_tensors=None, **_):
            ids = [[2, *[ord(x) - 92 for x in text], 3] for text in texts]
            return {"input_ids": torch.tensor(ids) if padding else ids}

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=40,
    )
    model = transformers.BertForSequenceClassification(config)
    replace_attention(model, "all", 3)
    labels = torch.arange(120) % 2
    generator = torch.Generator().manual_seed(0)
    letters = [
        "".join(
            chr(97 + 10 * int(y) + int(x)) for x in torch.randint(0, 12, (9,), generator=generator)
        )
        for y in labels
    ]
    texts, rows = Texts(letters, Letters(), 16), np.arange(120)
    given = argparse.Namespace(lr=3e-3, epochs=3, batch_tokens=110, seed=0)
    steps = fine_tuning.fine_tune(model, texts, labels, rows[:90], given)
    assert steps == 27
    assert fine_tuning.accuracy(model, texts, labels, rows[90:]) > 0.8
    assert not model.training


@pytest.fixture
def data(tmp_path):
    """Real texts and the real model."""
    if "HSA_GEO_DATA" not in os.environ:
        pytest.skip("needs the real model and texts")
    data = Path(os.environ["HSA_GEO_DATA"])
    for name in ("movie_sentences", "minilm", "glove"):
        if not any((data / name / "raw").glob("*")):
            pytest.skip(f"'{data / name / 'raw'}' is empty")
        (tmp_path / name).mkdir()
        (tmp_path / name / "raw").symlink_to(data / name / "raw")
    return tmp_path


def test_the_programs(data, monkeypatch):
    line = ["--task", "movie", "--quick", "--root", str(data), "--out", str(data / "out")]
    monkeypatch.setattr("zero_shot.STRENGTHS", (1e-2,))
    assert recovery.main([*line, "--asked", "0"]) == 0
    report = json.loads((data / "out" / "movie-key4.json").read_text())
    first, before, after = report["rows"]
    assert first["share"] == 1
    assert before["replaced"] == after["replaced"] < 0.9
    assert before["cosine"] < after["cosine"] < 0.9999
    assert report["recovery"]["after"] < report["recovery"]["before"]
    assert fine_tuning.main(line) == 0
    found = json.loads((data / "out" / "movie-key.json").read_text())
    assert 0 <= found["accuracy"] <= 1
    assert found["steps"] >= 1
