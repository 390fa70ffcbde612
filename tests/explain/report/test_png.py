"""PNG files, read back by another library."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from hsa_geo.errors import ShapeError
from hsa_geo.explain.report.png import data_uri, png_bytes, shrink

image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (64, 40)])
def test_pictures_come_back(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    with image.open(io.BytesIO(png_bytes(pixels))) as file:
        assert file.format == "PNG"
        assert (np.asarray(file) == pixels).all()
    prefix, _, content = data_uri(pixels).partition(",")
    assert prefix == "data:image/png;base64"
    assert base64.b64decode(content) == png_bytes(pixels)


def test_shrinking_takes_means():
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    pixels[:2, :2] = 100
    assert shrink(pixels, 6) is pixels
    small = shrink(pixels, 3)
    assert small.shape == (2, 3, 3)
    assert small[..., 0].tolist() == [[100, 0, 0], [0, 0, 0]]
    assert shrink(np.full((5, 400, 3), 9, np.uint8), 100).shape == (2, 100, 3)


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3)), np.zeros((0, 2, 3), np.uint8)]
)
def test_what_is_no_picture_is_refused(pixels):
    with pytest.raises(ShapeError, match="give uint8"):
        png_bytes(pixels)
