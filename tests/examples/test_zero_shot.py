"""Zero-shot replacement: its rivals against dense matrices, and the program on real data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import zero_shot
from zero_shot_rivals import Rival, Timed

from hsa_geo.hf import Windows
from hsa_geo.hf.intercept import Layers
from hsa_geo.hf.plans import Plans
from hsa_geo.hf.replace import Hierarchical

transformers = pytest.importorskip("transformers")


def model():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
    )
    made = transformers.BertModel(config).eval()
    with torch.no_grad():
        for layer in Layers.of(made).modules:
            layer.query.weight.mul_(20)
            layer.key.weight.mul_(20)
    return made


def qkv(length=11, size=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, size, 2, length, 8, generator=generator)


def dense(kind, q, k, v, window):
    """One text without padding: first and last token special, the others in windows."""
    n = q.size(1)
    of = torch.tensor([-1, *[(i // window) for i in range(n - 2)], -2])
    out = torch.zeros_like(v)
    for i in range(n):
        keys, values, alone = [], [], of[i] < 0
        for j in range(n):  # special tokens, and the own window
            if of[j] < 0 or (not alone and of[j] == of[i]):
                keys.append(k[:, j])
                values.append(v[:, j])
        if kind == "pooled":
            for other in range(int(of.max()) + 1):
                if alone or other != of[i]:
                    keys.append(k[:, of == other].mean(1))
                    values.append(v[:, of == other].mean(1))
        scores = torch.stack([(q[:, i] * key).sum(-1) for key in keys], -1) / 8**0.5
        weights = scores.softmax(-1)
        out[:, i] = torch.einsum("hr,rhd->hd", weights, torch.stack(values))
    return out.transpose(0, 1)


@pytest.mark.parametrize("kind", ["local", "pooled"])
def test_rivals(kind):
    """Nine ordinary tokens are three windows of 3, which are children of the root."""
    q, k, v = qkv()
    rival = Rival(kind, Windows(3), ())
    out, weights = rival(rival.begin(None, None), None, q, k, v, None)
    assert weights is None
    for text in range(2):
        expected = dense(kind, q[text], k[text], v[text], 3)
        torch.testing.assert_close(out[text], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="no rival 'far'"):
        Rival("far", Windows(3), ())


def test_timed_layers_do_what_they_did():
    made, ids = model(), torch.randint(5, 50, (2, 20))
    with torch.no_grad():
        expected = made(ids).last_hidden_state
        timed = Timed()
        with Layers.of(made).intercepted(timed):
            assert torch.equal(made(ids).last_hidden_state, expected)
        assert timed.seconds > 0
        other = Timed(Hierarchical(Plans(Windows(4)), "key"))
        with Layers.of(made).intercepted(other):
            assert not torch.allclose(made(ids).last_hidden_state, expected, atol=1e-4)


def test_counted_pairs():
    """Of two texts, one of them padded: 2 special tokens and 8, or 4, in windows of 4."""
    counter = zero_shot.Counter((), zero_shot.Setting((0,), "block", 4))
    mask = torch.ones(2, 1, 1, 10, dtype=torch.bool)
    mask[1, ..., 6:] = False
    counter.see(counter.plans.begin(None, None), torch.zeros(2, 2, 10, 8), mask)
    assert counter.flat == 10 * 10 + 6 * 6
    long = 2 * 4 * 3 + 4 * 3 + 10  # two windows, the root of four, every token with itself
    short = 6 * 5 + 6  # four tokens are no more than a window, so children of the root
    assert counter.tied == long + short


def test_rows_of_the_table():
    base = zero_shot.Outcome(np.eye(3), 2.0, 1.0, 600)
    found = zero_shot.Outcome(np.eye(3)[[0, 2, 1]], 1.0, 0.5, 360)
    hits = zero_shot.Hits(np.array([[1.0, 0.0, 1.0]]), np.arange(3), (0,))
    near = np.array([0, 1, 2])
    row = zero_shot.row_of("x", (1, 3, 5), found, base, hits, hits, near[[0, 2, 1]], near)
    assert row["share of operations"] == pytest.approx(0.6)
    assert row["share in replaced layers"] == pytest.approx(0.2)
    assert row["same neighbour"] == pytest.approx(1 / 3)
    assert row["cosine"] == pytest.approx(1 / 3)
    assert zero_shot.cells(row)[0] == "1 3 5"
    assert zero_shot.neighbours(np.eye(3), np.eye(3)[::-1]).tolist() == [2, 1, 0]


@pytest.mark.skipif("HSA_GEO_DATA" not in os.environ, reason="needs the real model and texts")
def test_the_program(tmp_path, monkeypatch):
    data = Path(os.environ["HSA_GEO_DATA"])
    for name in ("movie_sentences", "minilm", "glove"):
        if not any((data / name / "raw").glob("*")):
            pytest.skip(f"'{data / name / 'raw'}' is empty")
        (tmp_path / name).mkdir()
        (tmp_path / name / "raw").symlink_to(data / name / "raw")
    line = ["--task", "movie", "--quick", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert zero_shot.main(line) == 0
    report = json.loads((tmp_path / "out" / "movie.json").read_text())
    first, key, local = report["rows"]
    assert first["share of operations"] == 1
    assert key["share in replaced layers"] < 0.5
    for row in (key, local):
        assert 0.5 < row["cosine"] < 0.9999
        assert row["seconds"] > row["attention seconds"] > 0
