"""From what the caller gives as a picture or a video to RGB pixels, within limits.

The rules of colour stand in :mod:`hsa_geo.builders.patches`; here are those of sources: which
axis is which, which files are read, which frame is taken.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.builders._arguments import shown
from hsa_geo.builders._source import over_limit
from hsa_geo.builders.patches import check_pixels, decoding, to_bytes, upright_rgb
from hsa_geo.errors import BuilderError

__all__ = ["FORMATS", "PixelSource"]

#: Files that are read; Pillow decodes them without outside programs.
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "ICO", "TIFF", "PPM", "TGA", "AVIF", "JPEG2000")
_FILES = (str, os.PathLike, bytes, bytearray, memoryview)


@dataclass(frozen=True)
class PixelSource:
    """How sources are read.

    Attributes:
        channel_first: Whether the channels of arrays come before height and width; None for the
            rule: those of tensors do.
        max_side: Longest side that pictures are reduced to, or None.
        max_pixels: Most pixels, of all frames together, or None.
    """

    channel_first: bool | None = None
    max_side: int | None = None
    max_pixels: int | None = None

    def picture(self, source: Any, frame: int | None = None) -> np.ndarray:
        """RGB pixels ``[H, W, 3]`` uint8 of one picture.

        Args:
            source: The picture.
            frame: Frame or page of a file or PIL image; None for the first of a file and the
                present one of an image. (default: :obj:`None`)

        Raises:
            BuilderError: If the source is no picture.
            LimitError: If it has too many pixels.
            OSError: If a file cannot be read.

        Example:
            >>> PixelSource().picture(np.array([[True, False]])).tolist()
            [[[255, 255, 255], [0, 0, 0]]]
        """
        if isinstance(source, Tensor | np.ndarray):
            if frame is not None:
                raise BuilderError(
                    f"frame={shown(frame)} has no meaning for an array: give that frame."
                )
            return self._array(source, video=False)
        self._refuse_channels(source)
        with _opened(source) as image, decoding():
            if frame is not None and not _seek(image, frame):
                raise BuilderError(
                    f"frame={shown(frame)} is behind the image's last frame: give a smaller "
                    "one, from 0."
                )
            return self._decode(image, own=image is not source)

    def frames(self, source: Any, max_frames: int | None, on_limit: str) -> np.ndarray:
        """RGB pixels ``[T, H, W, 3]`` uint8 of a video.

        Args:
            source: An array of frames, an animated file or PIL image, or an iterable of pictures.
            max_frames: Most frames, or None.
            on_limit: ``"error"``, or ``"truncate"`` to leave out later frames with a warning.

        Raises:
            BuilderError: If the source is no video, has no frame, or frames differ in size.
            LimitError: If there are too many frames or pixels.
            OSError: If a file cannot be read.
        """
        if isinstance(source, Tensor | np.ndarray):
            more = source.ndim > 0 and max_frames is not None and len(source) > max_frames
            video = self._array(source[:max_frames] if more else source, video=True)
        else:
            video, more = self._stack(self._each(source), max_frames)
        if more:
            over_limit(
                on_limit,
                f"the video has more than max_frames={max_frames} frames",
                "raise max_frames",
                "the later ones",
            )
        return video

    def _each(self, source: Any) -> Iterator[np.ndarray]:
        """The frames of a file, a PIL image or an iterable, one after the other."""
        if _is_image(source) or isinstance(source, _FILES):
            self._refuse_channels(source)
            with _opened(source) as image:
                for number in itertools.count():
                    with decoding():
                        if not _seek(image, number):
                            return
                        pixels = self._decode(image, own=image is not source)
                    yield pixels
        if not isinstance(source, Iterable):
            raise BuilderError(
                f"the video is a {type(source).__name__}: give an array of frames, an animated "
                "file, or a list of pictures."
            )
        for number, item in enumerate(source):
            try:
                pixels = self.picture(item)
            except BuilderError as error:
                raise type(error)(f"frame {number}: {error}") from error
            yield pixels

    def _stack(self, each: Iterator[np.ndarray], most: int | None) -> tuple[np.ndarray, bool]:
        """All frames, and whether there are more."""
        kept: list[np.ndarray] = []
        with contextlib.closing(each):  # type: ignore[type-var]
            for pixels in each:
                height, width = pixels.shape[:2]
                if len(kept) == most:
                    return np.stack(kept), True
                if kept and pixels.shape != kept[0].shape:
                    raise BuilderError(
                        f"frame {len(kept)} has {width} x {height} pixels and frame 0 "
                        f"{kept[0].shape[1]} x {kept[0].shape[0]}: give frames of one size."
                    )
                check_pixels(height, width, self.max_pixels, len(kept) + 1)
                kept.append(pixels)
        if not kept:
            raise BuilderError("the video has no frame: give at least one, or skip it.")
        return np.stack(kept), False

    def _refuse_channels(self, source: Any) -> None:
        if self.channel_first is not None:
            raise BuilderError(
                f"channel_first={self.channel_first} has no meaning for a {type(source).__name__}: "
                "it says which axis of an array holds the channels."
            )

    def _decode(self, image: Any, own: bool) -> np.ndarray:
        check_pixels(image.height, image.width, self.max_pixels)
        if own and self.max_side is not None:  # JPEG files are decoded at a fraction of their size
            image.draft("RGB", (2 * self.max_side, 2 * self.max_side))
        return self._fitted(upright_rgb(image))

    def _fitted(self, image: Any) -> np.ndarray:
        """Pixels of an RGB image, its longest side reduced to ``max_side``."""
        if self.max_side is not None and max(image.size) > self.max_side:
            from PIL import Image

            scale = self.max_side / max(image.size)
            width, height = (max(1, round(side * scale)) for side in image.size)
            image = image.resize((width, height), Image.Resampling.BOX)
        return np.asarray(image, dtype=np.uint8)

    def _array(self, source: Tensor | np.ndarray, *, video: bool) -> np.ndarray:
        """Pixels of an array ``[H, W]``, ``[H, W, C]`` or ``[C, H, W]``; of a video behind T."""
        is_tensor, lead = isinstance(source, Tensor), int(video)
        values = _numpy(source) if isinstance(source, Tensor) else np.asarray(source)
        first = is_tensor if self.channel_first is None else self.channel_first
        axes = "T, " * lead + ("C, H, W" if first else "H, W, C")
        if values.ndim not in (lead + 2, lead + 3):
            raise BuilderError(
                f"the {'video' if video else 'image'} has shape {list(values.shape)}: give "
                f"[{axes}], or [{'T, ' * lead}H, W] of grey."
            )
        if values.ndim == lead + 2:
            values = values[..., None]
        elif first:
            values = np.moveaxis(values, lead, -1)
        channels = values.shape[-1]
        if channels not in (1, 2, 3, 4):
            raise BuilderError(
                f"the {'tensor' if is_tensor else 'array'} has shape {list(source.shape)}, read as "
                f"[{axes}], so {channels} channels: give 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 "
                f"(RGBA), or pass channel_first={not first}."
            )
        if video and len(values) == 0:
            raise BuilderError("the video has no frame: give at least one, or skip it.")
        height, width = values.shape[lead : lead + 2]
        check_pixels(height, width, self.max_pixels, len(values) if video else 1)
        tall = to_bytes(values).reshape(-1, width, channels)  # frames on top of each other
        return self._reduced(_over_white(tall).reshape(*values.shape[:-1], 3))

    def _reduced(self, pixels: np.ndarray) -> np.ndarray:
        if self.max_side is None or max(pixels.shape[-3:-1]) <= self.max_side:
            return pixels
        module = require("PIL.Image", extra="image", purpose="resizing images")
        if pixels.ndim == 3:
            return self._fitted(module.fromarray(pixels))
        return np.stack([self._fitted(module.fromarray(frame)) for frame in pixels])


def _over_white(values: np.ndarray) -> np.ndarray:
    """``[H, W, C]`` uint8 with 1 to 4 channels as RGB, by the rules of files."""
    channels = values.shape[-1]
    if channels == 3:
        return values
    if channels == 1:
        return values.repeat(3, axis=-1)
    module = require("PIL.Image", extra="image", purpose="reading images with alpha")
    return np.asarray(upright_rgb(module.fromarray(np.ascontiguousarray(values))))


def _numpy(tensor: Tensor) -> np.ndarray:
    try:
        dense = tensor.detach().cpu().to_dense() if tensor.layout != torch.strided else tensor
        dense = dense.detach().cpu().resolve_conj().resolve_neg()
        return (dense.float() if dense.is_floating_point() else dense).numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise BuilderError(
            f"the tensor of dtype {tensor.dtype} on {tensor.device} cannot be read ({error}): give "
            "a dense one with values."
        ) from error


def _is_image(source: Any) -> bool:
    module = sys.modules.get("PIL.Image")  # loaded, if there is an image of it
    return module is not None and isinstance(source, module.Image)


def _seek(image: Any, frame: int) -> bool:
    try:
        image.seek(frame)
    except EOFError:
        return False
    return True


@contextlib.contextmanager
def _opened(source: Any) -> Iterator[Any]:
    """A PIL image, which is left at the frame it is at, or that of a file, not yet decoded."""
    if _is_image(source):
        at = source.tell()
        try:
            yield source
        finally:
            if source.tell() != at:
                source.seek(at)
        return
    module = require("PIL.Image", extra="image", purpose="reading images")
    with _file(source) as file:
        with decoding():
            module.init()
            image = module.open(file, formats=[f for f in FORMATS if f in module.OPEN])
        with image:
            yield image


def _file(source: Any) -> BinaryIO:
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source)
    if isinstance(source, str | os.PathLike):
        try:
            return open(source, "rb")
        except ValueError as error:  # a NUL or a lone surrogate
            raise BuilderError(f"{os.fspath(source)!r} is no path of a file: {error}.") from None
    raise BuilderError(
        f"the image is a {type(source).__name__}: give a PIL image, an array, a tensor, the bytes "
        "of an image file, or a path to one."
    )
