"""Files of the vectors of words: safetensors with checksums, and an index that comes last.

A shard holds some documents: the vectors ``token_x [R, dim]`` float16; of every word where it is
in the text ``span [W, 2]`` and its row, counted within the document, or -1 if it has no vector
``row [W]``; and for each document its ``doc_id`` and where its vectors and its words end
``ends [2, D]``.  Each file appears in one step.  The index ``features.json`` says what the vectors
are and lists the shards with their checksums; without it the folder is not complete.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> shard = shard_of([(torch.ones(1, 3), torch.tensor([1]))], [7], [np.array([[0, 2], [3, 5]])])
    >>> shard["row"], shard["ends"]
    (tensor([-1,  0], dtype=torch.int32), tensor([[1],
            [2]]))
    >>> path = Path(tempfile.mkdtemp(), "shard.safetensors")
    >>> write_shard(path, shard) == check_shard(path)
    True
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.datasets.disk import write_bytes
from hsa_geo.errors import FileFormatError, ShapeError

__all__ = [
    "check_shard",
    "damaged",
    "doc_id_of",
    "leaf_spans",
    "read_index",
    "shard_of",
    "words_of",
    "write_index",
    "write_shard",
]

#: Version of the layout; a folder of another version is refused.
SCHEMA = 1
#: Name of the index.
INDEX = "features.json"


def words_of(tree: SignalTree) -> tuple[int, NDArray[np.int64]]:
    """What a document is known by.

    Args:
        tree: A tree with ``doc_id [1]`` and ``tree_span [M, 2]``.

    Returns:
        Its ``doc_id``, and start and end of its words ``[W, 2]``: those of its leaves that are
        not empty, each once and in the order of the text, whatever the order of the leaves.

    Raises:
        ShapeError: If it lacks one of them.

    Example:
        >>> from hsa_geo.builders import from_text
        >>> tree = from_text("to be")
        >>> tree.doc_id = torch.tensor([3])
        >>> words_of(tree)
        (3, array([[0, 2],
               [3, 5]]))
    """
    spans = leaf_spans(tree)
    return doc_id_of(tree), np.unique(spans[spans[:, 1] > spans[:, 0]], axis=0)


def doc_id_of(tree: SignalTree) -> int:
    """The ``doc_id`` of a tree.

    Raises:
        ShapeError: If it has none.

    Example:
        >>> doc_id_of(SignalTree(doc_id=torch.tensor([3])))
        3
    """
    doc_id = tree.get("doc_id")
    if not isinstance(doc_id, Tensor) or doc_id.numel() != 1:
        raise ShapeError(
            "the tree has no doc_id [1], by which its features are found: set tree.doc_id = "
            "torch.tensor([i])."
        )
    return int(doc_id)


def leaf_spans(tree: SignalTree) -> NDArray[np.int64]:
    """Start and end of every leaf of a tree in its text ``[N, 2]``.

    Raises:
        ShapeError: If the tree has no ``tree_span``.

    Example:
        >>> from hsa_geo.builders import from_text
        >>> leaf_spans(from_text("to be")).tolist()
        [[0, 2], [3, 5]]
    """
    spans = tree.get("tree_span")
    if not isinstance(spans, Tensor):
        raise ShapeError(
            "the tree has no tree_span [M, 2], where its words are in the text: build it with "
            "from_text."
        )
    return spans[: tree.num_nodes].numpy().astype(np.int64)


def shard_of(
    vectors: Sequence[tuple[Tensor, Tensor]], ids: Sequence[int], spans: Sequence[NDArray[Any]]
) -> dict[str, Tensor]:
    """The tensors of a shard.

    Args:
        vectors: For every document, vectors and the words that they are of.
        ids: The ``doc_id`` of each.
        spans: The words of each.

    Raises:
        ShapeError: If a vector is beyond the range of float16.

    Example:
        See the example of :mod:`hsa_geo.datasets.feature_files`.
    """
    token_x = torch.cat([x for x, _ in vectors]).half()
    if not token_x.isfinite().all():
        raise ShapeError(
            "some vectors are not finite or beyond the range of float16: choose another layer."
        )
    rows = []
    for (_, held), words in zip(vectors, spans):
        row = torch.full((len(words),), -1, dtype=torch.int32)
        row[held] = torch.arange(len(held), dtype=torch.int32)
        rows.append(row)
    sizes = torch.tensor([[len(x) for x, _ in vectors], [len(words) for words in spans]])
    return {
        "token_x": token_x,
        "span": torch.from_numpy(np.concatenate(spans).astype(np.int32)),
        "row": torch.cat(rows),
        "ends": sizes.cumsum(1),
        "doc_id": torch.tensor(ids),
    }


def write_shard(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a shard in one step.

    Returns:
        What the index says of it: numbers of documents and vectors, checksum.

    Raises:
        OSError: If it cannot be written.

    Example:
        See the example of :mod:`hsa_geo.datasets.feature_files`.
    """
    info = _info(tensors)
    write_bytes(path, safetensors.torch.save(dict(tensors), {"crc": str(info["crc"])}))
    return info


def check_shard(path: Path, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read all of a shard and compare its checksum.

    Args:
        path: The file.
        wanted: What the index says of it. (default: not compared)

    Returns:
        What the index is to say of it.

    Raises:
        FileNotFoundError: If there is none.
        FileFormatError: If it is damaged.

    Example:
        See the example of :mod:`hsa_geo.datasets.feature_files`.
    """
    try:
        with safetensors.safe_open(os.fspath(path), framework="pt") as file:
            crc = (file.metadata() or {}).get("crc")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        info = _info(tensors)
    except FileNotFoundError:
        raise
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise damaged(path, error) from None
    if crc != str(info["crc"]) or (wanted is not None and info != wanted):
        raise damaged(path, "its checksum is another one")
    return info


def damaged(path: Path, why: object) -> FileFormatError:
    """The error for a damaged file.

    Example:
        >>> damaged(Path("a"), "it is empty")  # doctest: +ELLIPSIS
        FileFormatError("'a' is damaged (it is empty): remove it ...
    """
    return FileFormatError(
        f"'{path}' is damaged ({why}): remove it and call make_token_features, which makes it anew."
    )


def write_index(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the index; the folder is complete then.

    Raises:
        OSError: If it cannot be written.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_index(folder, {"shards": {}})
        >>> read_index(folder)["shards"]
        {}
    """
    index = {"format": "hsa_geo.token_features", "schema": SCHEMA, **content}
    write_bytes(folder / INDEX, json.dumps(index, indent=1).encode())


def read_index(folder: Path) -> dict[str, Any]:
    """Read the index.

    Raises:
        FileFormatError: If there is none, it is damaged, or of another version.

    Example:
        See the example of :func:`write_index`.
    """
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(
            f"'{folder}' holds no complete features: call make_token_features, which goes on "
            "where it was."
        ) from None
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    if not isinstance(index, dict) or not isinstance(index.get("shards"), dict):
        raise damaged(path, "it lists no shards")
    if index.get("format") != "hsa_geo.token_features" or index.get("schema") != SCHEMA:
        raise FileFormatError(
            f"'{path}' has schema {index.get('schema')!r} of format {index.get('format')!r}, but "
            f"this version reads schema {SCHEMA} of 'hsa_geo.token_features': make it anew."
        )
    return index


def _info(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    crc = 0
    for key in sorted(tensors):
        flat = tensors[key].contiguous().view(-1).view(torch.uint8)
        crc = zlib.crc32(flat.numpy().tobytes(), crc)
    return {
        "documents": len(tensors["doc_id"]),
        "words": len(tensors["row"]),
        "vectors": len(tensors["token_x"]),
        "crc": crc,
    }
