"""Compute the vectors of all words of a dataset with a frozen encoder, once.

Documents are put into shards of some ten thousand words (:mod:`hsa_geo.datasets.feature_files`);
a shard's name holds a digest of the encoder, the texts and the trees that it is for, so a run
that was killed finds what is done, and nothing that was made for something else is used.  One
process at a time is at work in a folder, others wait for it.

Example:
    See the example of :mod:`hsa_geo.datasets.token_features`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hsa_geo
from hsa_geo.data import SignalTree
from hsa_geo.datasets.disk import alone, remove_stale
from hsa_geo.datasets.feature_files import (
    INDEX,
    SCHEMA,
    check_shard,
    read_index,
    shard_of,
    words_of,
    write_index,
    write_shard,
)
from hsa_geo.datasets.progress import track
from hsa_geo.datasets.text_encoder import TextEncoder
from hsa_geo.datasets.token_features import TokenFeatures
from hsa_geo.errors import FileFormatError, ShapeError

__all__ = ["make_token_features"]


def make_token_features(
    dataset: Sequence[SignalTree],
    encoder: TextEncoder,
    folder: str | os.PathLike[str] | None = None,
    *,
    texts: Sequence[str] | None = None,
    shard_words: int = 30_000,
    force: bool = False,
    log: bool = True,
) -> TokenFeatures:
    """Compute the vectors of all words of a dataset, or go on where a killed run was.

    Args:
        dataset: Trees with ``doc_id [1]`` and ``tree_span [M, 2]``, such as a dataset of texts;
            the transform of a dataset is left aside.
        encoder: What computes the vectors.
        folder: Where they go.  (default: ``features/{model}-{layer}`` in the dataset's root)
        texts: The text of every tree. (default: ``dataset.text(i)``)
        shard_words: A file is closed when it holds so many words; a kill loses at most one.
            (default: ``30000``)
        force: Replace what the folder holds of another encoder or of other documents, which is
            an error otherwise. (default: :obj:`False`)
        log: Show progress. (default: :obj:`True`)

    Returns:
        The transform that reads them.

    Raises:
        ShapeError: If a tree has no ``doc_id`` or ``tree_span``, two have the same ``doc_id``,
            there is not one text for each, or vectors are beyond the range of float16.
        FileFormatError: If the folder holds other features.
        OSError: If a file cannot be written.

    Example:
        >>> dataset = FoodReviews("data/food_reviews")  # doctest: +SKIP
        >>> features = make_token_features(dataset, MiniLM("data/minilm"))  # doctest: +SKIP
        >>> features(dataset[0]).token_x.shape  # doctest: +SKIP
    """
    settings = encoder.settings
    if folder is None:
        root = getattr(dataset, "root", None)
        if not root:
            raise ShapeError("the dataset has no root folder: give a folder for the features.")
        folder = Path(root, "features", f"{settings['model']}-{settings['layer']}")
    folder = Path(folder)
    if hasattr(dataset, "transform"):
        dataset = copy.copy(dataset)
        dataset.transform = None  # type: ignore[attr-defined]
    texts = _texts(dataset, texts)
    documents = _documents(dataset, texts)
    digest = hashlib.sha256(b"".join(item.digest for item in documents)).hexdigest()
    shards = _cut(documents, shard_words)
    names = [
        f"{k:05d}-{_digest([SCHEMA, settings], shard)[:12]}.safetensors"
        for k, shard in enumerate(shards)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    waiting = f"Another process makes the features in '{folder}': waiting" if log else ""
    with alone(folder / ".lock", waiting) as sure:
        if _complete(folder, settings, digest, force):
            return TokenFeatures(folder)
        for name in names:  # left by runs that were killed
            remove_stale(folder, f".{name}-", **({"age": 0.0} if sure else {}))
        infos = _make_shards(folder, dict(zip(names, shards)), encoder, log)
        content = {
            "version": hsa_geo.__version__,
            **settings,
            "texts": digest,
            "documents": len(documents),
            "words": sum(len(item.words) for item in documents),
            "vectors": sum(info["vectors"] for info in infos.values()),
            "shards": infos,
        }
        write_index(folder, content)
        for path in folder.glob("?????-????????????.safetensors"):
            if path.name not in infos:
                path.unlink(missing_ok=True)
    return TokenFeatures(folder)


@dataclass(frozen=True)
class _Document:
    doc_id: int
    text: str
    words: NDArray[np.int64]  # start and end [W, 2]

    @property
    def digest(self) -> bytes:
        text = self.text.encode("utf-8", "surrogatepass")
        parts = (str(self.doc_id).encode(), self.words.tobytes(), text)
        return b"".join(hashlib.sha256(part).digest() for part in parts)


def _documents(dataset: Sequence[SignalTree], texts: Sequence[str]) -> list[_Document]:
    found: dict[int, _Document] = {}
    for i, text in enumerate(texts):
        doc_id, words = words_of(dataset[i])
        if doc_id in found:
            raise ShapeError(f"doc_id={doc_id} comes twice: give every tree its own.")
        found[doc_id] = _Document(doc_id, text, words)
    return list(found.values())


def _make_shards(
    folder: Path, shards: Mapping[str, Sequence[_Document]], encoder: TextEncoder, log: bool
) -> dict[str, dict[str, Any]]:
    """Make the shards that are not there, and say of all of them what they hold."""
    infos: dict[str, dict[str, Any]] = {}
    for name in shards:
        with contextlib.suppress(FileNotFoundError, FileFormatError):
            infos[name] = check_shard(folder / name)
    waiting = [item for name, shard in shards.items() if name not in infos for item in shard]
    bar = iter(track(waiting, f"Encoding words with {encoder.settings['model']}", enabled=log))
    for name, shard in shards.items():
        if name in infos:
            continue
        words = [item.words for item in shard]
        vectors = encoder.words(
            [item.text for item in shard],
            words,
            done=lambda n: [next(bar, None) for _ in range(n)],
        )
        tensors = shard_of(vectors, [item.doc_id for item in shard], words)
        infos[name] = write_shard(folder / name, tensors)
    for _ in bar:  # lets the bar end
        pass
    return {name: infos[name] for name in shards}


def _complete(folder: Path, settings: Mapping[str, Any], digest: str, force: bool) -> bool:
    """Whether all is there; what is there of something else is an error unless ``force``."""
    if not (folder / INDEX).exists():
        return False
    try:
        index = read_index(folder)
        differ = [key for key, value in settings.items() if index.get(key) != value]
        if not differ and index.get("texts") == digest:
            for name, info in index["shards"].items():
                check_shard(folder / name, info)
            return True
    except (FileFormatError, FileNotFoundError):
        return False  # made anew
    if force:
        return False
    what = f"of another {', '.join(differ)}" if differ else "of other documents or texts"
    raise FileFormatError(
        f"'{folder}' holds features {what}: give another folder, or pass force=True to replace "
        "them."
    )


def _digest(settings: Any, shard: Sequence[_Document]) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for item in shard:
        digest.update(item.digest)
    return digest.hexdigest()


def _texts(dataset: Sequence[SignalTree], texts: Sequence[str] | None) -> Sequence[str]:
    if texts is None:
        if not hasattr(dataset, "text"):
            raise ShapeError(
                f"a {type(dataset).__name__} has no text(i): give the texts, one for each tree."
            )
        return [dataset.text(i) for i in range(len(dataset))]
    if len(texts) != len(dataset):
        raise ShapeError(f"{len(texts)} texts for {len(dataset)} trees: give one for each.")
    return texts


def _cut(documents: Sequence[_Document], words: int) -> list[list[_Document]]:
    """Documents in order, in shards of at least so many words but for the last."""
    if words < 1:
        raise ShapeError(f"shard_words={words} is no number of words: give 1 or more.")
    shards: list[list[_Document]] = []
    held = words
    for item in documents:
        if held >= words:
            shards.append([])
            held = 0
        shards[-1].append(item)
        held += max(1, len(item.words))
    return shards
