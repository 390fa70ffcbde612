"""A file for the collated trees of an in-memory dataset: tensors and JSON, never pickle.

PyG keeps the trees of an ``InMemoryDataset`` concatenated, with slices that cut them apart.
Here both go into one safetensors file: integers in the narrowest type that holds them, strings
as a vocabulary with one id each, everything else in a JSON header.  The file appears under its
name in one step, so it is either complete or not there.

Example:
    >>> import tempfile, torch
    >>> from hsa_geo.data import SignalTree
    >>> trees = [SignalTree.from_parents([1, -1], name=["a", "b"]) for _ in range(2)]
    >>> path = tempfile.mkdtemp() + "/trees.safetensors"
    >>> save_collated(path, *collate_trees(trees), extra={"note": "two"})
    >>> data, slices, extra = load_collated(path)
    >>> slices["tree_name"].tolist(), data.tree_name, extra
    ([0, 1, 2], [['a', 'b'], ['a', 'b']], {'note': 'two'})
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset
from torch_geometric.data.separate import separate

from hsa_geo.data import SignalTree
from hsa_geo.datasets.disk import write_bytes
from hsa_geo.errors import FileFormatError, UnsupportedError

__all__ = ["collate_trees", "load_collated", "save_collated", "trees_of", "write_bytes"]

#: Version of the layout; a file of another version is refused.
SCHEMA = 1

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32)
_LISTS = ("ints", "strings", "lists of strings")

#: Lists of more strings than this are no JSON: the header of a file is limited.
_LONG = 256


def save_collated(
    path: str | os.PathLike[str],
    data: SignalTree,
    slices: Mapping[str, Tensor] | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write collated trees.

    Args:
        path: The file to write.
        data: The trees, as :func:`collate_trees` gives them.
        slices: Its slices, :obj:`None` for a single tree.
        extra: Anything that JSON can hold, kept along. (default: :obj:`None`)

    Raises:
        OSError: If the file cannot be written; then an old one is still whole.
        UnsupportedError: If an attribute is neither a tensor nor a number, a string, or a list
            of ints, strings or lists of strings.

    Example:
        See the example of :mod:`hsa_geo.datasets.collated`.
    """
    tensors: dict[str, Tensor] = {}
    fields: dict[str, Any] = {}
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor):
            fields[key] = {"kind": "tensor", "dtype": str(value.dtype).removeprefix("torch.")}
            tensors[f"data/{key}"] = _narrow(value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            fields[key] = {"kind": "value", "value": value}
        else:
            kind, parts = _pack(key, value)
            fields[key] = {"kind": kind}
            tensors.update({f"data/{key}/{part}": _narrow(t) for part, t in parts.items()})
    for key, value in (slices or {}).items():
        tensors[f"slices/{key}"] = _narrow(value)
    kept, packed = dict(extra or {}), []
    for key, value in list(kept.items()):
        if isinstance(value, list) and len(value) > _LONG and all(type(v) is str for v in value):
            del kept[key]
            packed.append(key)
            parts = _pack_strings(value)
            tensors.update({f"extra/{key}/{part}": _narrow(t) for part, t in parts.items()})
    header = {
        "format": "hsa_geo.collated",
        "schema": SCHEMA,
        "fields": fields,
        "slices": None if slices is None else list(slices),
        "extra": kept,
        "strings": packed,
        "crc32": _checksum(tensors),
    }
    write_bytes(path, safetensors.torch.save(tensors, {"hsa_geo": json.dumps(header)}))


def load_collated(
    path: str | os.PathLike[str],
) -> tuple[SignalTree, dict[str, Tensor] | None, dict[str, Any]]:
    """Read what :func:`save_collated` wrote.

    Args:
        path: The file.

    Returns:
        The collated trees, their slices, and the extra.

    Raises:
        FileNotFoundError: If there is no such file.
        FileFormatError: If the file is not one of ours, or of another version.

    Example:
        See the example of :mod:`hsa_geo.datasets.collated`.
    """
    try:
        with safetensors.safe_open(os.fspath(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("hsa_geo", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
    except (safetensors.SafetensorError, ValueError, RuntimeError) as error:
        if not os.path.exists(path):  # removed in between
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise FileFormatError(
            f"'{path}' is damaged ({error}): remove it to make it anew."
        ) from None
    if header.get("format") != "hsa_geo.collated" or header.get("schema") != SCHEMA:
        raise FileFormatError(
            f"'{path}' has schema {header.get('schema')!r} of format {header.get('format')!r}, "
            f"but this version reads schema {SCHEMA} of 'hsa_geo.collated': remove it to make it "
            "anew."
        )
    if "crc32" in header and header["crc32"] != _checksum(tensors):
        raise FileFormatError(
            f"'{path}' is damaged (its tensors are not those that were written): remove it to "
            "make it anew."
        )
    try:
        mapping: dict[str, Any] = {}
        for key, field in header["fields"].items():
            if field["kind"] == "tensor":
                mapping[key] = tensors[f"data/{key}"].to(getattr(torch, field["dtype"]))
            elif field["kind"] == "value":
                mapping[key] = field["value"]
            else:
                mapping[key] = _unpack(field["kind"], _parts_of(tensors, f"data/{key}/"))
        extra = dict(header["extra"])
        for key in header.get("strings", ()):
            extra[key] = _unpack("strings", _parts_of(tensors, f"extra/{key}/"))
        names = header["slices"]
        slices = None if names is None else {n: tensors[f"slices/{n}"].long() for n in names}
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise FileFormatError(
            f"'{path}' lacks a part ({error!r}): remove it to make it anew."
        ) from error
    return SignalTree.from_dict(mapping), slices, extra


def collate_trees(
    trees: Sequence[SignalTree],
) -> tuple[SignalTree, dict[str, Tensor] | None]:
    """Collate trees as ``InMemoryDataset.collate``, also those that were cut out of a dataset.

    Args:
        trees: The trees, any number.

    Returns:
        The collated trees and their slices (:obj:`None` for a single tree, empty for none).

    Raises:
        MixedKeysError: If the trees do not hold the same attributes.

    Example:
        >>> trees = trees_of(*collate_trees([SignalTree.from_parents([1, -1])] * 3))
        >>> collate_trees(trees)[1]["tree_level"]
        tensor([0, 2, 4, 6])
    """
    if not trees:
        return SignalTree(), {}
    # PyG takes the order of attributes from the first tree; num_nodes has to come first there.
    first = SignalTree.from_dict(trees[0].to_dict())
    data, slices = InMemoryDataset.collate([first, *trees[1:]])
    return data, slices


def trees_of(data: SignalTree, slices: Mapping[str, Tensor] | None) -> list[SignalTree]:
    """Collated trees, one by one.

    Args:
        data: The trees, as :func:`collate_trees` gives them.
        slices: Its slices, :obj:`None` for a single tree.

    Returns:
        The trees; they share memory with ``data``.

    Example:
        >>> trees = [SignalTree.from_parents([k] * k + [-1]) for k in (1, 2)]
        >>> trees_of(*collate_trees(trees))
        [SignalTree(leaves=1, nodes=2, depth=1), SignalTree(leaves=2, nodes=3, depth=1)]
    """
    if slices is None:
        return [data]
    if not slices:
        return []
    count = len(next(iter(slices.values()))) - 1
    return [
        separate(SignalTree, batch=data, idx=i, slice_dict=dict(slices), decrement=False)
        for i in range(count)
    ]


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Of the bytes of all tensors, in the order of their names."""
    crc = 0
    for name in sorted(tensors):
        if tensors[name].numel():
            flat = tensors[name].contiguous().view(-1).view(torch.uint8)
            crc = zlib.crc32(flat.numpy().data, crc)
    return crc


def _parts_of(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {n[len(start) :]: t for n, t in tensors.items() if n.startswith(start)}


def _narrow(value: Tensor) -> Tensor:
    """A copy, integers in the narrowest type that holds them."""
    value = value.detach().cpu()
    if value.dtype == torch.int64 and value.numel():
        low, high = int(value.min()), int(value.max())
        for dtype in _INTEGERS:
            info = torch.iinfo(dtype)
            if info.min <= low and high <= info.max:
                return value.to(dtype).contiguous()
    return value.clone(memory_format=torch.contiguous_format)


def _pack(key: str, value: Any) -> tuple[str, dict[str, Tensor]]:
    """A list as tensors."""
    if isinstance(value, Sequence):
        if all(type(item) is int for item in value):
            return "ints", {"values": torch.tensor(value, dtype=torch.int64)}
        if all(isinstance(item, str) for item in value):
            return "strings", _pack_strings(value)
        if all(isinstance(item, list) for item in value):
            flat = [text for item in value for text in item]
            if all(isinstance(text, str) for text in flat):
                lengths = torch.tensor([len(item) for item in value])
                return "lists of strings", {"lengths": lengths, **_pack_strings(flat)}
    raise UnsupportedError(
        f"'{key}' is a {type(value).__name__}, which is not stored: make it a tensor, or set it in "
        "transform instead of pre_transform."
    )


def _pack_strings(strings: Sequence[str]) -> dict[str, Tensor]:
    ids = dict[str, int]()
    index = [ids.setdefault(text, len(ids)) for text in strings]
    blob = bytearray("".join(ids).encode("utf-8", "surrogatepass"))
    return {
        "index": torch.tensor(index, dtype=torch.int64),
        "sizes": torch.tensor([len(text) for text in ids], dtype=torch.int64),  # in characters
        "text": torch.frombuffer(blob, dtype=torch.uint8) if blob else torch.empty(0).byte(),
    }


def _unpack(kind: str, parts: Mapping[str, Tensor]) -> list[Any]:
    if kind not in _LISTS:
        raise ValueError(f"unknown kind '{kind}'")
    if kind == "ints":
        return parts["values"].tolist()
    text = parts["text"].numpy().tobytes().decode("utf-8", "surrogatepass")
    ends = np.cumsum(parts["sizes"].numpy(), dtype=np.int64).tolist()
    table = [text[a:b] for a, b in zip([0, *ends], ends)]
    flat = [table[i] for i in parts["index"].tolist()]
    if kind == "strings":
        return flat
    cuts = np.cumsum(parts["lengths"].numpy(), dtype=np.int64).tolist()
    return [flat[a:b] for a, b in zip([0, *cuts], cuts)]
