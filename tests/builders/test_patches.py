import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from hsa_geo.builders.patches import MAX_PIXELS, PatchGrid, image_patches
from hsa_geo.errors import LimitError


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(grid: PatchGrid | None, p: int = 8) -> np.ndarray:
    """[rows * p, cols * p, 3], put together again."""
    assert grid is not None
    cells = grid.patches.reshape(grid.rows, grid.cols, 3, p, p)
    return cells.transpose(0, 3, 1, 4, 2).reshape(grid.rows * p, grid.cols * p, 3)


def halves(mode: str, left: object, right: object, size: tuple[int, int] = (16, 8)) -> Image.Image:
    image = Image.new(mode, size, left)  # type: ignore[arg-type]
    ImageDraw.Draw(image).rectangle((size[0] // 2, 0, *size), fill=right)  # type: ignore[arg-type]
    return image


def test_patches_are_the_pixels_in_reading_order() -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)
    grid = image_patches(encode(Image.fromarray(array)))
    assert (grid.rows, grid.cols) == (2, 3)
    assert grid.patches.dtype == np.uint8
    np.testing.assert_array_equal(pixels(grid), array)


@pytest.mark.parametrize(
    ("size", "rows", "cols"),
    [
        ((1, 1), 1, 1),
        ((8, 8), 1, 1),
        ((20, 9), 1, 2),
        ((640, 480), 6, 8),
        ((480, 640), 8, 6),
        ((5000, 1), 1, 8),
        ((1, 5000), 8, 1),
        ((64, 64), 8, 8),
    ],
)
def test_thumbnails(size: tuple[int, int], rows: int, cols: int) -> None:
    grid = image_patches(encode(Image.new("RGB", size, "red")))
    assert (grid.rows, grid.cols) == (rows, cols)
    assert (pixels(grid) == (255, 0, 0)).all()


def test_patch_size_and_max_side() -> None:
    grid = image_patches(encode(Image.new("RGB", (100, 100))), patch_size=16, max_side=40)
    assert (grid.rows, grid.cols, grid.patches.shape) == (2, 2, (4, 768))
    grid = image_patches(encode(Image.new("RGB", (100, 100))), patch_size=50, max_side=10)
    assert (grid.rows, grid.cols) == (1, 1)


@pytest.mark.parametrize(
    ("mode", "left", "right"),
    [("RGBA", (255, 0, 0, 255), (0, 0, 255, 0)), ("LA", (80, 255), (0, 0))],
)
def test_transparency_is_white(mode: str, left: object, right: object) -> None:
    shown = pixels(image_patches(encode(halves(mode, left, right))))
    assert shown[0, 0].tolist() == ([255, 0, 0] if mode == "RGBA" else [80, 80, 80])
    assert shown[0, 15].tolist() == [255, 255, 255]


def test_half_transparent() -> None:
    shown = pixels(image_patches(encode(Image.new("RGBA", (8, 8), (0, 0, 0, 128)))))
    assert shown[0, 0].tolist() == [127, 127, 127]


def test_palette_is_colour() -> None:
    image = halves("RGB", "red", "blue").convert("P", palette=Image.Palette.ADAPTIVE)
    shown = pixels(image_patches(encode(image)))
    assert shown[0, 0].tolist() == [255, 0, 0]
    assert shown[0, 15].tolist() == [0, 0, 255]


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palette_with_transparency(kind: str) -> None:
    image = halves("P", 0, 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    shown = pixels(image_patches(encode(image, kind, transparency=1)))
    assert shown[0, 0].tolist() == [255, 0, 0]
    assert shown[0, 15].tolist() == [255, 255, 255]


def test_grey_with_a_transparent_value() -> None:
    shown = pixels(image_patches(encode(halves("L", 10, 200), transparency=200)))
    assert shown[0, 0].tolist() == [10, 10, 10]
    assert shown[0, 15].tolist() == [255, 255, 255]


def test_cmyk_jpeg() -> None:
    shown = pixels(image_patches(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG")))
    assert abs(shown[4, 4].astype(int) - [255, 0, 0]).max() < 10


@pytest.mark.parametrize("mode", ["1", "L"])
def test_grey_and_bilevel(mode: str) -> None:
    shown = pixels(image_patches(encode(halves(mode, 0, 255))))
    assert shown[0, 0].tolist() == [0, 0, 0]
    assert shown[0, 15].tolist() == [255, 255, 255]


def test_sixteen_bit_is_scaled() -> None:
    array = np.full((8, 16), 257 * 100, dtype=np.uint16)
    array[:, 8:] = 257 * 200
    shown = pixels(image_patches(encode(Image.fromarray(array))))
    assert shown[0, 0].tolist() == [100, 100, 100]
    assert shown[0, 15].tolist() == [200, 200, 200]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    upright = Image.new("RGB", (32, 16), "white")
    ImageDraw.Draw(upright).rectangle((0, 0, 15, 7), fill="black")  # a mark at the upper left
    stored = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    image = upright if stored is None else upright.transpose(stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    grid = image_patches(encode(image, "JPEG", exif=exif, quality=95))
    assert (grid.rows, grid.cols) == (2, 4)
    assert pixels(grid)[2, 2].max() < 60
    assert pixels(grid)[14, 30].min() > 200


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_animation_shows_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert pixels(image_patches(data))[0, 0].tolist() == [255, 0, 0]


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [int(MAX_PIXELS**0.5) + 1, 30_000, 2**31 - 1])
def test_bombs_are_not_decoded(side: int) -> None:
    with pytest.raises(LimitError, match="pixels"):
        image_patches(png_header(side, side))


@pytest.mark.parametrize(
    "data",
    [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>"],
)
def test_no_picture(data: bytes) -> None:
    assert image_patches(data) is None


@pytest.mark.parametrize("kind", ["TIFF", "PPM", "TGA"])
def test_formats_that_browsers_do_not_show(kind: str) -> None:
    assert image_patches(encode(Image.new("RGB", (8, 8)), kind)) is None


def test_a_cut_file() -> None:
    data = encode(Image.effect_noise((64, 64), 50))
    assert image_patches(data[: len(data) // 2]) is None


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP"]), st.data())
def test_damaged_files_are_no_image_or_too_large(
    noise: bytes, kind: str, draw: st.DataObject
) -> None:
    data = bytearray(encode(Image.new("RGB", (9, 9), "red"), kind))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at : at + len(noise)] = noise
    try:
        grid = image_patches(bytes(data))
    except LimitError:  # the noise may say that the image is huge
        return
    assert grid is None or grid.patches.shape == (grid.rows * grid.cols, 192)
