"""Compute the vectors of all words of a dataset with a frozen encoder, once.

Documents are put into shards of some ten thousand words (:mod:`hsa_geo.datasets.feature_files`);
a shard's name holds a digest of the encoder, the texts and the trees that it is for, so a run
that was killed finds what is done, and nothing that was made for something else is used.

Example:
    See the example of :mod:`hsa_geo.datasets.token_features`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hsa_geo
from hsa_geo.data import SignalTree
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
from hsa_geo.datasets.fetch import remove_stale
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
        See the example of :mod:`hsa_geo.datasets.token_features`.
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
    count = len(texts)
    ids, spans = [], []
    for i in range(count):
        doc_id, words = words_of(dataset[i])
        ids.append(doc_id)
        spans.append(words)
    if len(set(ids)) < len(ids):
        twice = next(k for k in ids if ids.count(k) > 1)
        raise ShapeError(f"doc_id={twice} comes twice: give every tree its own.")
    shards = _cut(spans, shard_words)
    names = []
    for k, shard in enumerate(shards):
        digest = hashlib.sha256(json.dumps([SCHEMA, settings], sort_keys=True).encode())
        for i in shard:
            for part in (str(ids[i]).encode(), spans[i].tobytes(), _bytes(texts[i])):
                digest.update(len(part).to_bytes(8, "little") + part)
        names.append(f"{k:05d}-{digest.hexdigest()[:12]}.safetensors")
    _check_other(folder, names, settings, force)
    folder.mkdir(parents=True, exist_ok=True)
    remove_stale(folder, ".?????-????????????.safetensors-")

    infos: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            infos[name] = check_shard(folder / name)
        except (FileNotFoundError, FileFormatError):
            continue  # not made yet, or damaged: made anew
    todo = [(name, shard) for name, shard in zip(names, shards) if name not in infos]
    waiting = [i for _, shard in todo for i in shard]
    bar = iter(track(waiting, f"Encoding words with {settings['model']}", enabled=log))
    for name, shard in todo:
        vectors = encoder.words(
            [texts[i] for i in shard],
            [spans[i] for i in shard],
            done=lambda n: [next(bar, None) for _ in range(n)],
        )
        tensors = shard_of(vectors, [ids[i] for i in shard], [spans[i] for i in shard])
        infos[name] = write_shard(folder / name, tensors)
    for _ in bar:  # lets the bar end
        pass

    content = {
        "version": hsa_geo.__version__,
        **settings,
        "documents": count,
        "words": sum(map(len, spans)),
        "vectors": sum(infos[name]["vectors"] for name in names),
        "shards": {name: infos[name] for name in names},
    }
    write_index(folder, content)
    for path in folder.glob("?????-????????????.safetensors"):
        if path.name not in infos:
            path.unlink(missing_ok=True)
    return TokenFeatures(folder)


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


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cut(spans: Sequence[Any], words: int) -> list[list[int]]:
    """Documents in order, in parts of at least so many words but for the last."""
    if words < 1:
        raise ShapeError(f"shard_words={words} is no number of words: give 1 or more.")
    shards: list[list[int]] = []
    held = words
    for i, span in enumerate(spans):
        if held >= words:
            shards.append([])
            held = 0
        shards[-1].append(i)
        held += max(1, len(span))
    return shards


def _check_other(folder: Path, names: list[str], settings: dict[str, Any], force: bool) -> None:
    """Refuse to replace finished features of something else."""
    if force or not (folder / INDEX).exists():
        return
    index = read_index(folder)
    if list(index["shards"]) == names:
        return
    differ = [key for key, value in settings.items() if index.get(key) != value]
    what = f"of another {', '.join(differ)}" if differ else "of other documents or texts"
    raise FileFormatError(
        f"'{folder}' holds features {what}: give another folder, or pass force=True to replace "
        "them."
    )
