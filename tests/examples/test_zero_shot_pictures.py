"""The zero-shot example of pictures, on small models and drawings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import zero_shot_pictures as example
from zero_shot_encoding import Counter, Setting, attending, named
from zero_shot_race import Lap, cells, raced
from zero_shot_table import read

from hsa_geo.ops import flat_cost

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")


def tiny(layers=12):
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        image_size=84,
        initializer_range=0.3,
    )
    return transformers.Dinov2Model(config).eval()


@pytest.fixture
def root(tmp_path):
    """What would have been fetched: a model, and two categories of drawings, one too small."""
    tiny().save_pretrained(tmp_path / "dinov2" / "dinov2-small")
    rng = np.random.default_rng(0)
    stamps = tmp_path / "stamps" / "raw" / example.STAMPS.folder
    for kind, count in (("bright", 34), ("dark", 31), ("rare", 3)):
        (stamps / kind / "sub").mkdir(parents=True)
        for i in range(count):
            low = 150 if kind == "bright" else 0
            drawn = rng.integers(low, low + 100, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(drawn).save(stamps / kind / "sub" / f"{i}.png")
    return tmp_path


def test_program(root, capsys, monkeypatch):
    """It goes on where it was stopped: what is kept is not computed again."""
    line = ["--root", str(root), "--out", str(root / "out"), "--quick", "--size", "84"]
    assert example.main(line) == 0
    title, rows = read(root / "out" / "pictures.json")
    assert title.startswith("8 stamps of 84 pixels in 2 categories, the probe trained on ")
    assert [row.title for row in rows] == [
        "unmodified",
        "key-tied, squares of 4",
        "local, squares of 4",
    ]
    assert rows[0].accuracy == 1.0
    assert rows[0].share == rows[0].replaced == 1.0
    assert rows[1].cosine < 1 - 1e-6
    assert rows[1].share == pytest.approx((9 + 3 * rows[1].replaced) / 12)
    assert rows[2].share == pytest.approx(rows[2].replaced)
    monkeypatch.setattr(example.DINOv2, "features", None)
    assert example.main(line) == 0
    assert read(root / "out" / "pictures.json")[1] == rows
    assert "squares of 4" in capsys.readouterr().out


def test_race(root, capsys):
    line = ["--root", str(root), "--out", str(root / "out"), "--quick", "--size", "84", "--race"]
    assert example.main(line) == 0
    report = json.loads((root / "out" / "pictures_race.json").read_text())
    assert [row["setting"] is None for row in report["rows"]] == [True, False]
    assert all(0 < row["attention_seconds"] < row["seconds"] for row in report["rows"])
    assert report["rows"][0]["faster"] == 1.0
    assert (root / "out" / "pictures_race.md").read_text().count("\n| ") == 4
    assert "times faster" in capsys.readouterr().out


def test_stamps_and_parts(root):
    files, labels = example.stamps(root / "stamps")
    assert np.bincount(labels).tolist() == [32, 31]  # of the first, as many as are drawn at most
    assert {file.parts[-3] for file in files} == {"bright", "dark"}
    train, test = example.parts(labels, 20)
    assert sorted([*train, *test]) == list(range(63))
    assert np.bincount(labels[test]).tolist() == [10, 10]


def test_settings_by_name():
    assert named(example.SETTINGS, None) == example.SETTINGS
    assert len({setting.name for setting in example.SETTINGS}) == len(example.SETTINGS)
    (one,) = named(example.SETTINGS, ["key-squares2-layers7911"])
    assert (one.layers, one.kind, one.window, one.grouping) == ((7, 9, 11), "key", 2, "squares")
    with pytest.raises(ValueError, match="--only none: give some of key-clusters16-layers7911, "):
        named(example.SETTINGS, ["none"])


@pytest.mark.parametrize("more", [[], ["--race"]])
def test_unknown_settings_are_refused_before_anything_is_read(tmp_path, capsys, more):
    assert example.main(["--only", "none", "--root", str(tmp_path), *more]) == 1
    assert "--only none: give some of" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_squares_are_counted():
    """16 patches in 4 squares of 2, and a class token, in both of 2 layers."""
    model, counter = tiny(2), Counter()
    model.set_attn_implementation("sdpa")
    setting = Setting((0, 1), "key", 2, "squares")
    with attending(model, setting, (), counter), torch.no_grad():
        model(torch.randn(3, 3, 56, 56))
    assert counter.flat == flat_cost([17] * 3, 2, 8).total
    assert 0 < counter.replaced < 2 * counter.flat


def test_races_are_run_in_turns():
    model, runs = tiny(2), []
    settings = [Setting((0,), kind, 2, "squares") for kind in ("key", "local")]

    def run():
        runs.append([getattr(m, "_hsa_handler", None) for m in model.modules()])
        model(torch.randn(1, 3, 56, 56))

    laps = raced(model, settings, (), run, rounds=2)
    assert len(runs) == 2 * 3 * 3  # twice each, in a round to warm up and two others
    assert [lap.setting for lap in laps] == [None, *settings]
    assert all(lap.low <= lap.faster <= lap.high for lap in laps)
    assert all(lap.cpu_seconds > 0 for lap in laps)
    assert laps[0].low == laps[0].high == 1.0
    row = cells(Lap(settings[0], 0.5, 0.25, 0.75, 2.0, 1.5, 2.5), layers=1)
    assert row == ["all", settings[0].title, "250.0", "500.0", "750.0", "2.00", "1.50 to 2.50"]
