"""Pictures: decoded by one set of rules, and cut into a grid of patches.

A picture is decoded as a browser shows it, whatever file or array it comes from:

- turned upright by its EXIF orientation; the first frame or page, unless another is asked for;
- any colour mode as RGB: palettes looked up, grey repeated, CMYK converted;
- transparency over white (alpha channels, transparent palette entries and single colours);
- other ranges as 8 bits: two levels as 0 and 255, 16 bits divided by 257, floats of 0..1 times
  255, rounded.  Modes I and F of Pillow do not say their range: values up to 255 count as 8 bits,
  larger ones as 16 bits, floats up to 1 as 0..1.

:func:`image_patches` is what web pages use: a thumbnail (longest side at most ``max_side`` pixels,
never enlarged for its own sake), both sides rounded to a multiple of the patch size.

Example:
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (100, 50), "red").save(file, "PNG")
    >>> grid = image_patches(file.getvalue(), patch_size=8, max_side=64)
    >>> grid.rows, grid.cols, grid.patches.shape
    (4, 8, (32, 192))
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hsa_geo._optional import require
from hsa_geo.errors import BuilderError, HSAError, LimitError

__all__ = [
    "MAX_PIXELS",
    "PatchGrid",
    "check_pixels",
    "cut_patches",
    "decoding",
    "image_patches",
    "to_bytes",
    "upright_rgb",
]

#: Pictures with more pixels than this are not decoded ("bombs").
MAX_PIXELS = 2**25
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "ICO")  # what browsers show; no outside programs
_SLACK = 1e-3  # a quarter of a level: rounding errors of floats beyond 0..1 are forgiven


@dataclass(frozen=True)
class PatchGrid:
    """Patches of one picture in reading order.

    Attributes:
        rows: Rows of the grid.
        cols: Columns of the grid.
        patches: ``[rows * cols, 3 * p * p]`` uint8, channel first within a patch.
    """

    rows: int
    cols: int
    patches: np.ndarray


def image_patches(data: bytes, *, patch_size: int = 8, max_side: int = 64) -> PatchGrid | None:
    """Decode a picture and cut it into square patches.

    Args:
        data: An image file (PNG, JPEG, GIF, WebP, BMP or ICO).
        patch_size: Side p of a patch in pixels. (default: 8)
        max_side: Longest side of the thumbnail in pixels. (default: 64)

    Returns:
        The grid, or None if the bytes cannot be decoded.

    Raises:
        LimitError: If the image has more than ``MAX_PIXELS`` pixels.
        MissingPackageError: If Pillow is not installed.
    """
    image_module = require("PIL.Image", extra="html", purpose="reading images")
    try:
        with decoding(), image_module.open(io.BytesIO(data), formats=_FORMATS) as image:
            check_pixels(image.height, image.width, MAX_PIXELS)
            image.draft("RGB", (2 * max_side, 2 * max_side))
            pixels = upright_rgb(image)
            size = _thumbnail(pixels.size, patch_size, max_side)
            if pixels.size != size:
                pixels = pixels.resize(size, image_module.Resampling.BOX)
    except LimitError:
        raise
    except BuilderError:
        return None
    cells = cut_patches(np.asarray(pixels, dtype=np.uint8), patch_size)
    rows, cols = cells.shape[:2]
    return PatchGrid(rows, cols, cells.reshape(rows * cols, 3 * patch_size**2).copy())


def _thumbnail(size: tuple[int, int], patch: int, max_side: int) -> tuple[int, int]:
    scale = min(1.0, max_side / max(size))
    most = max(1, max_side // patch)
    width, height = (min(most, max(1, round(side * scale / patch))) * patch for side in size)
    return width, height


@contextlib.contextmanager
def decoding() -> Iterator[None]:
    """Inside it, whatever a decoder raises when fed with hostile bytes is a typed error.

    Raises:
        LimitError: If Pillow finds the image too large even to open.
        BuilderError: If anything else goes wrong.

    Example:
        >>> with decoding():
        ...     raise EOFError("no more bytes")
        Traceback (most recent call last):
        hsa_geo.errors.BuilderError: the image cannot be decoded (EOFError: no more bytes): ...
    """
    image_module = require("PIL.Image", extra="image", purpose="reading images")
    unknown = require("PIL", extra="image", purpose="reading images").UnidentifiedImageError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the decoder: sizes are checked here
            yield
    except HSAError:
        raise
    except unknown:
        raise BuilderError(
            "the bytes are no image of a known format: skip them, or decode a video first."
        ) from None
    except image_module.DecompressionBombError as error:
        raise LimitError(
            f"the image has too many pixels: {error} If you trust it, raise "
            "PIL.Image.MAX_IMAGE_PIXELS and max_pixels."
        ) from None
    except Exception as error:
        raise BuilderError(
            f"the image cannot be decoded ({type(error).__name__}: {error}): skip it, or convert "
            "it to PNG with a program that reads it."
        ) from error


def check_pixels(height: int, width: int, max_pixels: int | None, frames: int = 1) -> None:
    """Refuse pictures that are too large, or empty.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        max_pixels: Most pixels, of all frames together; None for any number.
        frames: Number of frames. (default: 1)

    Raises:
        LimitError: If there are more pixels.
        BuilderError: If a side is zero.

    Example:
        >>> check_pixels(480, 640, MAX_PIXELS)
    """
    if height < 1 or width < 1:
        raise BuilderError(
            f"the image has {width} x {height} pixels: give at least one, or skip it."
        )
    if max_pixels is not None and height * width * frames > max_pixels:
        times = f"{frames} frames of " if frames > 1 else ""
        raise LimitError(
            f"the image has {times}{width} x {height} pixels, more than max_pixels={max_pixels}: "
            "raise max_pixels if you trust it."
        )


def cut_patches(pixels: np.ndarray, patch_size: int) -> np.ndarray:
    """Cut pictures into square patches; incomplete ones at the right and lower border are filled
    up with copies of the last column and row.

    Args:
        pixels: ``[..., H, W, 3]``.
        patch_size: Side p of a patch in pixels.

    Returns:
        ``[..., rows, cols, 3, p, p]`` of the same type, a view where nothing had to be filled up.

    Example:
        >>> cut_patches(np.arange(6).reshape(1, 2, 3), 2)[0, 0, 0].tolist()
        [[0, 3], [0, 3]]
    """
    p = patch_size
    lead, (height, width, channels) = pixels.shape[:-3], pixels.shape[-3:]
    rows, cols = -(-height // p), -(-width // p)
    if (rows * p, cols * p) != (height, width):
        border = [(0, 0)] * len(lead) + [(0, rows * p - height), (0, cols * p - width), (0, 0)]
        pixels = np.pad(pixels, border, mode="edge")
    cells = pixels.reshape(*lead, rows, p, cols, p, channels)
    k = len(lead)
    return cells.transpose(*range(k), k, k + 2, k + 4, k + 1, k + 3)


def to_bytes(values: np.ndarray) -> np.ndarray:
    """Pixel values of any type as 8 bits.

    Args:
        values: bool, uint8 (0..255), uint16 (0..65535) or floating point (0..1), at least one.

    Returns:
        uint8 of the same shape.

    Raises:
        BuilderError: If the type is another, or a float is NaN, infinite or beyond 0..1.

    Example:
        >>> to_bytes(np.array([0.0, 0.5, 1.0])).tolist(), to_bytes(np.array([True])).tolist()
        ([0, 128, 255], [255])
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "u" and size == 1:
        return values
    if kind == "u" and size == 2:
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if kind == "b":
        return values.astype(np.uint8) * np.uint8(255)
    if kind != "f":
        raise BuilderError(
            f"the image has values of type {values.dtype}: give uint8 (0..255), uint16 "
            "(0..65535), floats of 0..1 or bool."
        )
    low, high = float(values.min()), float(values.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # NaN is neither
        bad = low if not low >= -_SLACK else high
        raise BuilderError(
            f"the image has the value {bad:g}, but floats must be 0..1: divide by 255 or clip "
            "them, and replace NaN."
        )
    return np.rint(np.clip(values.astype(np.float32), 0, 1) * np.float32(255)).astype(np.uint8)


def upright_rgb(image: Any) -> Any:
    """A Pillow image, at its present frame, as RGB over white, turned by its EXIF orientation.

    Args:
        image: The ``PIL.Image.Image``; it is left as it is.

    Returns:
        A ``PIL.Image.Image`` of mode RGB.

    Raises:
        BuilderError: If it has mode I or F with values beyond 0..65535 or NaN.

    Example:
        >>> from PIL import Image
        >>> upright_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":  # 16-bit grey, whatever Pillow calls it
        return Image.fromarray(_grey(image)).convert("RGB")
    if image.mode == "La":  # which Pillow converts to nothing else
        image = image.convert("LA")
    if "A" in image.getbands() or "transparency" in image.info or image.mode == "RGBa":
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _grey(image: Any) -> np.ndarray:
    """``[H, W]`` uint8 of modes I, I;16 (of any byte order) and F."""
    values = np.asarray(image)
    if values.dtype.kind == "u":
        grey = to_bytes(values)
    else:
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 65535):
            raise BuilderError(
                f"the image of mode {image.mode} has the value {high if low >= 0 else low:g}, but "
                "0..65535 is what can be shown: scale it, e.g. to floats of 0..1."
            )
        if values.dtype.kind == "f" and high <= 1:
            grey = to_bytes(values)
        else:
            grey = np.rint(values).astype(np.uint16)
            grey = to_bytes(grey) if high > 255 else grey.astype(np.uint8)
    clear = image.info.get("transparency")
    return np.where(values == clear, np.uint8(255), grey) if isinstance(clear, int) else grey
