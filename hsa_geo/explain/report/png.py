"""PNG files of arrays, by zlib alone."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from hsa_geo.errors import ShapeError

__all__ = ["data_uri", "png_bytes", "shrink"]


def png_bytes(pixels: np.ndarray) -> bytes:
    """A picture as PNG (`the specification <https://www.w3.org/TR/png-3/>`_, section 5).

    Args:
        pixels: uint8 ``[H, W, 3]``.

    Returns:
        The file.

    Raises:
        ShapeError: If ``pixels`` is something else.

    Example:
        >>> png_bytes(np.zeros((2, 3, 3), dtype=np.uint8))[1:4]
        b'PNG'
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ShapeError(f"pixels are {pixels.dtype} {pixels.shape}: give uint8 [H, W, 3].")
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # filter 0 before each line
    lines[:, 1:] = pixels.reshape(height, -1)
    lines[1:, 1:] -= pixels.reshape(height, -1)[:-1]  # filter 2, the difference to the line above
    lines[1:, 0] = 2

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def shrink(pixels: np.ndarray, longest: int) -> np.ndarray:
    """A picture whose sides are at most ``longest``, by means over squares.

    Args:
        pixels: uint8 ``[H, W, 3]``.
        longest: The longest side.

    Returns:
        uint8 ``[h, w, 3]``.

    Example:
        >>> shrink(np.zeros((10, 4, 3), dtype=np.uint8), 5).shape
        (5, 2, 3)
    """
    step = -(-max(pixels.shape[:2]) // longest)
    if step <= 1:
        return pixels
    high, wide = (-(-side // step) for side in pixels.shape[:2])
    padding = ((0, high * step - pixels.shape[0]), (0, wide * step - pixels.shape[1]), (0, 0))
    padded = np.pad(pixels, padding, mode="edge").astype(np.float32)
    means = padded.reshape(high, step, wide, step, 3).mean((1, 3))
    return means.round().astype(np.uint8)


def data_uri(pixels: np.ndarray) -> str:
    """A picture as the ``src`` of an ``<img>``.

    Args:
        pixels: uint8 ``[H, W, 3]``.

    Returns:
        The URI.

    Example:
        >>> data_uri(np.zeros((1, 1, 3), dtype=np.uint8))[:22]
        'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png_bytes(pixels)).decode()
