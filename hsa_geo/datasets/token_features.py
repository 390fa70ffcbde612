"""Vectors of a frozen encoder for the words of a whole dataset, kept in files beside it.

:func:`~hsa_geo.datasets.make_features.make_token_features` computes them once, in parts that
survive a kill; :class:`TokenFeatures` is a transform that reads those of a tree when it is
accessed, from mapped files, so that they need not fit in memory.

Documents are found by their ``doc_id`` and words by their place in the text.  So subsets, shuffled
loaders, trees with another hierarchy above the same words and trees with fewer words need no care,
and features of other words are not taken for theirs.

Example:
    >>> from hsa_geo.datasets import FoodReviews, MiniLM, make_token_features  # doctest: +SKIP
    >>> dataset = FoodReviews("data/food_reviews")  # doctest: +SKIP
    >>> features = make_token_features(dataset, MiniLM("data/minilm"))  # doctest: +SKIP
    >>> dataset = with_features(dataset, features.folder)  # doctest: +SKIP
    >>> dataset[0].token_x.shape, dataset[0].token_index.shape  # doctest: +SKIP
    (torch.Size([57, 384]), torch.Size([57]))
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor
from torch_geometric.transforms import BaseTransform, Compose

from hsa_geo.data import SignalTree
from hsa_geo.datasets.feature_files import check_shard, damaged, doc_id_of, leaf_spans, read_index
from hsa_geo.errors import FileFormatError, ShapeError, UnsupportedError

__all__ = ["TokenFeatures", "with_features"]


def with_features(
    dataset: Any, folder: str | os.PathLike[str], modality: str = "token", check: bool = False
) -> Any:
    """A dataset whose trees come with the features of a folder; its own transform follows them.

    Args:
        dataset: A PyG dataset of trees, or a subset of one.
        folder: What :func:`~hsa_geo.datasets.make_features.make_token_features` made.
        modality: Name m of ``{m}_x`` and ``{m}_index``. (default: ``"token"``)
        check: Compare the checksums of all files. (default: :obj:`False`)

    Returns:
        A copy of the dataset that shares its data.

    Raises:
        ShapeError: If it is no PyG dataset.
        FileFormatError: As :class:`TokenFeatures`.

    Example:
        >>> folder = "data/food_reviews/features/all-MiniLM-L6-v2-6"  # doctest: +SKIP
        >>> dataset = with_features(dataset, folder)  # doctest: +SKIP
        >>> dataset[0].token_x.dtype  # doctest: +SKIP
        torch.float16
    """
    if not hasattr(dataset, "transform"):
        raise ShapeError(
            f"a {type(dataset).__name__} has no transform: apply TokenFeatures(folder) to every "
            "tree."
        )
    features = TokenFeatures(folder, modality=modality, check=check)
    dataset = copy.copy(dataset)
    before = [] if dataset.transform is None else [dataset.transform]
    dataset.transform = Compose([features, *before])
    return dataset


class TokenFeatures(BaseTransform):
    """Add the stored vectors of its words to a tree: ``token_x [n, dim]`` float16, ``token_index``.

    Words that the tokenizer made nothing of have no row.  It can be pickled and used in workers of
    a loader; files are opened where needed.

    Args:
        folder: What :func:`~hsa_geo.datasets.make_features.make_token_features` made.
        modality: Name m of ``{m}_x`` and ``{m}_index``. (default: ``"token"``)
        check: Compare the checksums of all files with those that were written.
            (default: :obj:`False`)

    Raises:
        FileFormatError: If the folder holds no (complete) features, or they are damaged; on
            access, if a word of the tree is not among those that were encoded.
        ShapeError: On access, if a tree has no ``doc_id``, or one that was not there.
        UnsupportedError: On access, if the input is no single SignalTree.

    Example:
        >>> features = TokenFeatures("data/food_reviews/features/model-6")  # doctest: +SKIP
        >>> tree = features(dataset[0])  # doctest: +SKIP
    """

    def __init__(
        self, folder: str | os.PathLike[str], modality: str = "token", check: bool = False
    ) -> None:
        self.folder, self.modality = Path(folder), modality
        self.index = read_index(self.folder)
        self._open: dict[str, Any] = {}
        self._place: dict[int, tuple[str, int, int, int, int]] = {}
        for name, info in self.index["shards"].items():
            if check:
                check_shard(self.folder / name, info)
            doc_id, ends = self._read(name, "doc_id"), self._read(name, "ends")
            if len(doc_id) != info["documents"] or ends.shape != (2, len(doc_id)):
                raise damaged(self.folder / name, "it is another file than the index says")
            starts = torch.cat([ends.new_zeros(2, 1), ends[:, :-1]], dim=1)
            where = torch.cat([starts, ends]).T.tolist()  # first vector and word, last ones
            for key, (x0, w0, x1, w1) in zip(doc_id.tolist(), where):
                self._place[key] = (name, x0, x1, w0, w1)

    def __len__(self) -> int:
        return len(self._place)

    def __repr__(self) -> str:
        return f"TokenFeatures('{self.folder}', modality='{self.modality}')"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def read(self, doc_id: int) -> tuple[Tensor, Tensor, Tensor]:
        """All that is stored of a document.

        Args:
            doc_id: Of the document.

        Returns:
            Vectors ``[R, dim]`` float16; start and end of every word ``[W, 2]``, in order; and the
            row of its vector, or -1 ``[W]``.

        Raises:
            ShapeError: If there is no such document.
            FileFormatError: If the file is damaged.

        Example:
            >>> features.read(0)[0].dtype  # doctest: +SKIP
            torch.float16
        """
        if doc_id not in self._place:
            raise ShapeError(
                f"'{self.folder}' holds no document {doc_id}: make the features of all documents."
            )
        name, x0, x1, w0, w1 = self._place[doc_id]
        return (
            self._read(name, "token_x", x0, x1),
            self._read(name, "span", w0, w1),
            self._read(name, "row", w0, w1),
        )

    def forward(self, data: Any) -> SignalTree:
        """The tree with its vectors."""
        if not isinstance(data, SignalTree) or hasattr(data, "ptr"):
            raise UnsupportedError(
                f"TokenFeatures takes single trees, not a {type(data).__name__}: make it the "
                "dataset's transform."
            )
        doc_id, leaves = doc_id_of(data), leaf_spans(data)
        vectors, span, row = self.read(doc_id)
        index = np.flatnonzero(leaves[:, 1] > leaves[:, 0])
        words, wanted = span.numpy(), leaves[index]
        place = np.searchsorted(words[:, 0], wanted[:, 0])
        known = place < len(words)
        known[known] = (words[place[known]] == wanted[known]).all(axis=1)
        if not known.all():
            start, end = wanted[np.flatnonzero(~known)[0]].tolist()
            raise FileFormatError(
                f"the features in '{self.folder}' are of other words than those of document "
                f"{doc_id}, which has one at {start}:{end}: make them of these trees, in another "
                "folder or with force=True."
            )
        rows = row.numpy()[place]
        held = rows >= 0
        if not np.array_equal(rows, np.arange(len(vectors))):  # another order, or not all
            vectors = vectors[torch.from_numpy(rows[held])]
        data[f"{self.modality}_x"] = vectors
        data[f"{self.modality}_index"] = torch.from_numpy(index[held])
        return data

    def _read(self, name: str, key: str, start: int = 0, end: int | None = None) -> Tensor:
        path = self.folder / name
        try:
            if name not in self._open:
                self._open[name] = safetensors.safe_open(os.fspath(path), framework="pt")
            part = self._open[name].get_slice(key)
            return part[start : part.get_shape()[0] if end is None else end]
        except (OSError, safetensors.SafetensorError) as error:
            raise damaged(path, error) from None
