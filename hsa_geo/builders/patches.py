"""A picture as a grid of patches.

The picture is decoded as a browser shows it: turned by its EXIF orientation, its first frame,
transparency over white, any colour mode as RGB, 16-bit values scaled to 8 bits.  Then it is made
a thumbnail (longest side at most ``max_side`` pixels, never enlarged for its own sake), both
sides rounded to a multiple of the patch size.

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

import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from hsa_geo._optional import require
from hsa_geo.errors import LimitError

__all__ = ["MAX_PIXELS", "PatchGrid", "image_patches"]

#: Pictures with more pixels than this are not decoded ("bombs").
MAX_PIXELS = 2**25
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "ICO")  # what browsers show; no outside programs


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the decoder: the size is checked here
            with image_module.open(io.BytesIO(data), formats=_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise LimitError(f"the image has {image.width} x {image.height} pixels.")
                image.draft("RGB", (2 * max_side, 2 * max_side))
                pixels = _rgb(image)
                size = _thumbnail(pixels.size, patch_size, max_side)
                if pixels.size != size:
                    pixels = pixels.resize(size, image_module.Resampling.BOX)
    except LimitError:
        raise
    except image_module.DecompressionBombError as error:  # so large that it is not even opened
        raise LimitError(f"the image has too many pixels: {error}") from None
    except Exception:  # a decoder fed with hostile bytes raises nearly anything
        return None
    array = np.asarray(pixels, dtype=np.uint8)
    rows, cols = array.shape[0] // patch_size, array.shape[1] // patch_size
    patches = array.reshape(rows, patch_size, cols, patch_size, 3).transpose(0, 2, 4, 1, 3)
    return PatchGrid(rows, cols, patches.reshape(rows * cols, 3 * patch_size**2).copy())


def _thumbnail(size: tuple[int, int], patch: int, max_side: int) -> tuple[int, int]:
    scale = min(1.0, max_side / max(size))
    most = max(1, max_side // patch)
    width, height = (min(most, max(1, round(side * scale / patch))) * patch for side in size)
    return width, height


def _rgb(image: Any) -> Any:
    """First frame, upright, as RGB over white."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":  # 16-bit grey, whatever Pillow calls it
        grey = np.asarray(image, dtype=np.float64)
        grey = grey / 257 if grey.max(initial=0) > 255 or "16" in image.mode else grey
        return Image.fromarray(grey.clip(0, 255).round().astype(np.uint8)).convert("RGB")
    if "A" in image.getbands() or "transparency" in image.info or image.mode in ("La", "RGBa"):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
