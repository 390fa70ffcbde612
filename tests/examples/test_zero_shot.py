"""Zero-shot replacement: its rivals against dense matrices, and the program on real data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import zero_shot
import zero_shot_table
from comparison_statistics import Hits
from zero_shot_encoding import Counted, Counter, Lengths, Outcome, Setting
from zero_shot_rivals import Rival, Timed
from zero_shot_table import cells, read, row_of, save

from hsa_geo.hf import Clusters, Windows
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


def counted(setting, length=10):
    """What a replaced layer and the first layer count: two texts, one of them padded."""
    counter = Counter()
    mask = torch.ones(2, 1, 1, length, dtype=torch.bool)
    mask[1, ..., 6:] = False
    q, k, v = qkv(length)
    handler = Counted(setting.handler(()), counter, setting)
    handler(handler.begin(None, None), None, q, k, v, mask)
    first = Lengths(Timed(lambda *_, **__: None), counter)
    first.handler.handler = None
    with torch.no_grad():
        counter.see_lengths(first.begin(None, None)[0].batch(mask, k), k)
    return counter


@pytest.mark.parametrize(("kind", "window"), [("block", 4), ("key", 4), ("pooled", 4)])
def test_counted_operations(kind, window):
    """Of 2 special tokens and 8, or 4, in windows of 4: pairs by hand; the rest by `ops`."""
    setting = Setting((0,), kind, window)
    counter = counted(setting)
    assert counter.flat == 4 * 16 * (10 * 10 + 6 * 6)
    # Two windows and the root of four, every token with itself; four tokens are no more than a
    # window, so children of the root.
    if kind == "block":
        long, short = 2 * 4 * 3 + 4 * 3 + 10, 6 * 5 + 6
    else:  # specials reach 3 others, tokens 3 beside them and 3 above
        long, short = 2 * 3 + 8 * 6 + 10, 6 * 5 + 6
    below = (10 + 2) + 6  # children: their means (and for blocks, paths down)
    extra = below * 16 * (5 if kind == "block" else 2)
    assert counter.replaced == 4 * 16 * (long + short) + extra
    assert counter.seconds >= counter.inside > 0


def test_counted_local_windows_and_clusters():
    """Local windows see no means; groups by content pay for the grouping."""
    counter = counted(Setting((0,), "local", 4))
    assert counter.replaced == 4 * 16 * (2 * 1 + 8 * 5 + 10 + 6 * 5 + 6)
    windows = counted(Setting((0,), "key", 4)).replaced
    clusters = counted(Setting((0,), "key", 4, "clusters")).replaced
    grouping = Clusters(4).flops([10, 6], 16)
    assert grouping > 0
    assert clusters == windows + grouping


def rows():
    base = Outcome(np.eye(3), 100, 0)
    found = Outcome(np.eye(3)[[0, 2, 1]], 100, 60)
    hits = Hits(np.array([[1.0, 0.0, 1.0]]), np.arange(3), (0,))
    less = Hits(np.array([[1.0, 0.0, 0.0]]), np.arange(3), (0,))
    near = np.array([1, 2, 0])
    setting = Setting((1, 3, 5), "key", 8)
    return [
        row_of(None, base, base, hits, hits, near, near, 6),
        row_of(setting, found, base, less, hits, near[[0, 2, 1]], near, 6),
    ]


def test_rows_of_the_table():
    first, row = rows()
    assert (first.share, first.replaced, first.gap.mean) == (1, 1, 0)
    assert row.share == pytest.approx(0.6)
    assert row.replaced == pytest.approx(0.2)
    assert row.same == pytest.approx(1 / 3)
    assert row.cosine == pytest.approx(1 / 3)
    assert row.gap.mean == pytest.approx(-1 / 3)
    assert cells(row)[0] == "1 3 5"
    # Not itself, which is the nearest of all.
    assert zero_shot.neighbours(np.eye(3), np.eye(3)[[0, 0, 1]]).tolist() == [1, 2, 0]


def test_table_and_picture_are_kept(tmp_path):
    made = rows()
    save(tmp_path / "food.json", made, "food", "Food: 3 texts", 1.0)
    title, again = read(tmp_path / "food.json")
    assert title == "Food: 3 texts"
    assert again == made
    lines = (tmp_path / "food.md").read_text().splitlines()
    assert len(lines) == 2 + 2 + 2
    assert len({line.count("|") for line in lines[2:]}) == 1
    assert zero_shot_table.main([str(tmp_path / "food.json"), "--out", f"{tmp_path}/food.svg"]) == 0
    picture = (tmp_path / "food.svg").read_text()
    assert "<svg" in picture


def test_probes_are_asked_about_texts_they_never_saw():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4))
    fold = np.arange(200) % 5
    # Labels at random: who saw the answers would know them from one feature of each text.
    y = rng.integers(0, 2, 200)
    memory = np.concatenate([x, np.eye(200)], 1)
    probes = zero_shot.probes_of(memory, y, fold)
    assert sorted(np.concatenate([test for test, _ in probes])) == list(range(200))
    assert zero_shot.hits_of(probes, memory, y).right.mean() < 0.65
    told = np.concatenate([memory, y[:, None] * 5.0], 1)
    assert zero_shot.hits_of(zero_shot.probes_of(told, y, fold), told, y).right.mean() > 0.95


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
    _, (first, key, local) = read(tmp_path / "out" / "movie.json")
    assert first.share == 1
    assert key.replaced < 0.8
    for row in (key, local):
        assert 0.5 < row.cosine < 0.9999
        assert row.seconds > row.attention_seconds > 0
    monkeypatch.setattr(zero_shot, "outcome", None)  # vectors are kept
    assert zero_shot.main([*line, "--timed", "0"]) == 0
    assert read(tmp_path / "out" / "movie.json")[1][1].accuracy == key.accuracy
