"""Trees as rows of a database: columns of bytes, whose dtypes and shapes are kept apart.

Integers are stored in the narrowest type that holds them, which the first byte of a column says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hsa_geo.data import SignalTree
from hsa_geo.errors import MixedKeysError, UnsupportedError

__all__ = ["DTYPES", "fields_of", "row_of", "unpacked"]

NARROW = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OTHER = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*NARROW, *OTHER)}


def fields_of(trees: Sequence[SignalTree]) -> dict[str, dict[str, Any]]:
    """Kind, dtype and shape of every attribute of trees.

    Args:
        trees: Trees of the same attributes; the first one tells.

    Returns:
        By name; a shape has -1 for the dimension in which trees differ.

    Raises:
        UnsupportedError: If an attribute cannot be stored.

    Example:
        >>> fields_of([SignalTree.from_parents([2, 2, -1])])["tree_index"]
        {'kind': 'tensor', 'dtype': 'int64', 'shape': [2, -1]}
    """
    fields: dict[str, dict[str, Any]] = {}
    first = trees[0]
    for key, value in first.to_dict().items():
        if key == "num_nodes":
            fields[key] = {"kind": "count"}
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            fields[key] = {"kind": "strings"}
        elif isinstance(value, Tensor) and _plain(value) and value.dim() > 0:
            varied = first.__cat_dim__(key, value)
            shape = list(value.shape)
            shape[int(varied or 0)] = -1
            dtype = str(value.dtype).removeprefix("torch.")
            fields[key] = {"kind": "tensor", "dtype": dtype, "shape": shape}
        else:
            raise UnsupportedError(
                f"'{key}' is a {type(value).__name__}: only real tensors with a dimension and "
                "lists of strings can be stored on disk."
            )
    if "num_nodes" not in fields:
        raise UnsupportedError("the first tree has no leaves and no hierarchy: give one.")
    return fields


def _plain(value: Tensor) -> bool:
    return value.dtype in DTYPES.values() and value.layout is torch.strided


def row_of(tree: SignalTree, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A tree as columns.

    Args:
        tree: The tree.
        fields: What :func:`fields_of` gave.

    Returns:
        Values by name: an int, text, or bytes as a uint8 tensor.

    Raises:
        MixedKeysError: If the tree has other attributes.
        UnsupportedError: If an attribute has another dtype or shape.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> row_of(tree, fields_of([tree]))["tree_level"].tolist()
        [0, 1, 1, 0]
    """
    mapping = tree.to_dict()
    if set(mapping) != set(fields):
        odd = sorted(set(mapping) ^ set(fields))
        raise MixedKeysError(
            f"a tree differs from those in the database in its attributes {odd}: build all with "
            "the same options."
        )
    return {key: _packed(key, mapping[key], field) for key, field in fields.items()}


def _packed(key: str, value: Any, field: dict[str, Any]) -> Any:
    if field["kind"] == "count":
        return int(value)
    if field["kind"] == "strings":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UnsupportedError(f"'{key}' is no list of strings as in the first trees.")
        return json.dumps(value)
    shape, dtype = field["shape"], DTYPES[field["dtype"]]
    fits = isinstance(value, Tensor) and _plain(value) and value.dtype == dtype
    fits = fits and value.dim() == len(shape)
    if not fits or any(want not in (-1, have) for have, want in zip(value.shape, shape)):
        what = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise UnsupportedError(f"'{key}' is {what[:80]}: {dtype} {shape} is stored (-1: any size).")
    flat = value.detach().cpu().contiguous().flatten()
    if dtype in NARROW and flat.numel():
        low, high = flat.min().item(), flat.max().item()
        narrow = next(d for d in NARROW if torch.iinfo(d).min <= low and high <= torch.iinfo(d).max)
        flat = flat.to(narrow)
    code = NARROW.index(flat.dtype) if flat.dtype in NARROW else 0
    data = flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
    return torch.cat([torch.tensor([code], dtype=torch.uint8), data])


def unpacked(value: Any, field: dict[str, Any]) -> Any:
    """An attribute from its column.

    Args:
        value: What :func:`row_of` gave.
        field: Its entry in :func:`fields_of`.

    Returns:
        The attribute, in memory of its own.

    Raises:
        ValueError, RuntimeError, TypeError: If the column is damaged.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> fields = fields_of([tree])
        >>> unpacked(row_of(tree, fields)["tree_level"], fields["tree_level"])
        tensor([1, 1, 0])
    """
    if field["kind"] == "count":
        if type(value) is not int or value < 0:
            raise ValueError(f"{value!r:.40} is no number of leaves")
        return value
    if field["kind"] == "strings":
        found = json.loads(value)
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise ValueError("a list of strings is none")
        return found
    dtype = DTYPES[field["dtype"]]
    shape = list(field["shape"])
    data = value[1:].clone()  # of memory that may be written to
    code = int(value[0]) if len(value) else -1
    if not 0 <= code < (len(NARROW) if dtype in NARROW else 1):
        raise ValueError(f"a column begins with {code}")
    stored = NARROW[code] if dtype in NARROW else dtype
    if not len(data):
        return torch.empty([0 if n == -1 else n for n in shape], dtype=dtype)
    return data.view(stored).to(dtype).view(shape)
