"""Files of trees without pickle: safetensors for tensors, JSON for everything else.

Layout (schema 1): a safetensors file whose metadata hold ``format`` and ``schema``; the tensor
``tree.json`` holds UTF-8 JSON that lists the attributes in order, and refers to the other
tensors by name.  Reading runs no code from the file, and what was read is validated before it
is returned.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch
import torch
from torch import Tensor
from torch_geometric.data import Batch

from hsa_geo._files import replacing
from hsa_geo.errors import FileFormatError, HSAError, UnsupportedError

__all__ = ["FORMAT", "SCHEMA", "load", "save"]

#: ``format`` in the metadata of every file.
FORMAT = "hsa_geo.SignalTree"
#: Newest layout that this version writes and reads.
SCHEMA = 1
#: Name of the tensor that holds the JSON.
CONTENT = "tree.json"
#: Largest header that is read, in bytes (a bound of safetensors itself).
MAX_HEADER = 100_000_000
#: What a batch knows beside its attributes.
PRIVATE = ("_num_graphs", "_num_nodes", "_slice_dict", "_inc_dict")
DTYPES = {
    torch.bool,
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}
STORABLE = "tensors, numbers, strings, None, and lists, tuples and dicts of these"


def save(tree: Any, path: str | os.PathLike[str]) -> None:
    """Write a tree or a batch to a file, in one step: it is complete or not there.

    Every attribute is stored: tensors (detached, wherever they are), ints, floats, bools,
    strings, None, and lists, tuples and dicts (with string keys) of these.  A batch is stored
    with its slices, so that ``to_data_list()`` works afterwards.  A subclass of SignalTree comes
    back as SignalTree.

    Args:
        tree: A SignalTree or a batch of them; it is validated first.
        path: The file; one that is there is replaced.

    Raises:
        UnsupportedError: If an attribute cannot be stored; the message names it.
        TreeError, ShapeError, DomainError: If the tree is broken.
        PathError: If ``path`` is a folder, or lies in none.
        OSError: If the file cannot be written; one that was there is then still whole.

    Example:
        >>> import tempfile
        >>> from hsa_geo.data import SignalTree
        >>> path = tempfile.mkdtemp() + "/tree.safetensors"
        >>> save(SignalTree.from_parents([2, 2, -1], name=["to", "be", "root"]), path)
        >>> load(path).tree_name
        ['to', 'be', 'root']
    """
    from hsa_geo.data.signal_tree import SignalTree

    if not isinstance(tree, SignalTree):
        raise UnsupportedError(
            f"save writes a SignalTree or a Batch of them, not a {type(tree).__name__}."
        )
    tree.validate()
    tensors: dict[str, Tensor] = {}
    content: dict[str, Any] = {"type": "batch" if isinstance(tree, Batch) else "tree"}
    content["attributes"] = [
        [key, _encode(key, value, tensors)] for key, value in tree._store._mapping.items()
    ]
    if isinstance(tree, Batch):
        private = tree._store.__dict__
        content["private"] = [
            [key, _encode(key, private[key], tensors)] for key in PRIVATE if key in private
        ]
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    tensors[CONTENT] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    data = safetensors.torch.save(tensors, {"format": FORMAT, "schema": str(SCHEMA)})
    with replacing(Path(os.path.realpath(path))) as part:
        part.write_bytes(data)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a tree or a batch that :func:`save` wrote, onto the CPU.

    Args:
        path: The file.

    Returns:
        A SignalTree or a batch, as it was saved.

    Raises:
        FileFormatError: If the file is truncated, altered, of another kind or of a newer schema,
            or if the tree in it is broken.
        OSError: If it cannot be read.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/no_tree"
        >>> _ = open(path, "w").write("something else")
        >>> try:
        ...     load(path)
        ... except FileFormatError as error:
        ...     print(str(error).partition("no_tree")[2])
        : it is no safetensors file, or cut short.
    """
    data = _read(path)
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:
        _fail(path, f"its tensors cannot be read ({error})", error)
    del data
    content = _parse(path, tensors.pop(CONTENT, None))
    if set(content) - {"private"} != {"type", "attributes"}:
        _fail(path, f"its description has the fields {sorted(content)}")
    try:
        attributes = _pairs(content["attributes"], tensors)
        private = _pairs(content.get("private", []), tensors)
        if tensors:
            raise FileFormatError(f"it holds {sorted(tensors)[0]!r}, which no attribute names")
        return _assemble(content["type"], attributes, private)
    except HSAError as error:
        _fail(path, str(error).rstrip("."), error)
    except RecursionError as error:
        _fail(path, "its description is nested too deep", error)


def _encode(key: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON; tensors go to ``tensors``."""
    try:
        return _node(key, value, tensors)
    except RecursionError:
        raise UnsupportedError(
            f"'{key}' is nested too deep, or holds itself: store flat lists or tensors."
        ) from None


def _node(key: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_node(key, item, tensors) for item in value]}
    if type(value) is dict and all(type(name) is str for name in value):
        return {"dict": [[name, _node(key, item, tensors)] for name, item in value.items()]}
    if type(value) in (Tensor, torch.nn.Parameter):
        plain = value.layout is torch.strided and value.device.type != "meta"
        if not plain or value.dtype not in DTYPES or value.is_nested:
            raise UnsupportedError(
                f"'{key}' is a tensor of dtype {value.dtype} and layout {value.layout}, which "
                "cannot be saved: make it a dense tensor of real numbers."
            )
        name = f"{len(tensors)}.{key}"
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    what = f"{type(value).__module__}.{type(value).__qualname__}"
    raise UnsupportedError(
        f"'{key}' holds a {what}, which cannot be saved without pickle: store {STORABLE}."
    )


def _decode(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The value of a JSON node; tensors are taken out of ``tensors``."""
    if node is None or isinstance(node, (bool, int, float, str)):
        return node
    if isinstance(node, dict) and len(node) == 1:
        ((tag, value),) = node.items()
        if tag == "float" and value in ("nan", "inf", "-inf"):
            return float(value)
        if tag in ("list", "tuple") and isinstance(value, list):
            items = [_decode(item, tensors) for item in value]
            return items if tag == "list" else tuple(items)
        if tag == "dict":
            return _pairs(value, tensors)
        if tag == "tensor" and isinstance(value, str) and value in tensors:
            return tensors.pop(value)
    raise FileFormatError(f"its description holds {str(node)[:80]!r}, which means nothing")


def _pairs(pairs: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise FileFormatError("its description lists no names and values")
        if pair[0] in out:
            raise FileFormatError(f"its description lists {pair[0]!r} twice")
        out[pair[0]] = _decode(pair[1], tensors)
    return out


def _assemble(kind: Any, attributes: dict[str, Any], private: dict[str, Any]) -> Any:
    from hsa_geo.data.signal_tree import SignalTree

    if kind not in ("tree", "batch") or (kind == "tree" and private):
        raise FileFormatError(f"it holds a {str(kind)[:80]!r}, which is neither tree nor batch")
    if type(attributes.get("num_nodes")) is not int or any(
        value is None for value in attributes.values()
    ):
        raise FileFormatError("num_nodes is no integer, or an attribute is empty")
    tree = SignalTree() if kind == "tree" else Batch(_base_cls=SignalTree)
    tree._store._mapping.update(attributes)
    tree._store.__dict__.update(private)
    tree.validate()
    if not private:
        return tree
    slices, count = private.get("_slice_dict"), private.get("_num_graphs")
    if set(private) != set(PRIVATE) or type(count) is not int or not isinstance(slices, dict):
        raise FileFormatError(f"the batch has {sorted(private)} instead of {sorted(PRIVATE)}")
    ends = slices.get("tree_level")
    if (
        not isinstance(ends, Tensor)
        or ends.shape != (count + 1,)
        or ends[-1] != len(tree.tree_level)
    ):
        raise FileFormatError(f"the slices of the batch do not make {count} trees of its nodes")
    for i in range(count):
        try:
            tree.get_example(i).validate()
        except HSAError:
            raise
        except Exception as error:
            raise FileFormatError(f"tree {i} cannot be cut out of the batch ({error})") from error
    return tree


def _read(path: str | os.PathLike[str]) -> bytes:
    """The whole file, once its header says that it is one of ours."""
    if os.path.isdir(path):
        _fail(path, "it is a folder")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8:
            _fail(path, f"it has {size} bytes only")
        if length > min(size - 8, MAX_HEADER):
            _fail(path, "it is no safetensors file, or cut short")
        header = _json(path, file.read(length))
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            _fail(path, f"it is a file of another program (its format is not {FORMAT!r})")
        schema = metadata.get("schema")
        if not (isinstance(schema, str) and schema.isascii() and schema.isdigit()):
            _fail(path, f"it has the schema version {str(schema)[:80]!r}")
        if len(schema) > 9 or int(schema) > SCHEMA:
            _fail(
                path,
                f"it has schema version {schema[:80]}, newer than {SCHEMA}, the newest that this "
                "hsa_geo reads; upgrade hsa_geo",
            )
        if int(schema) < 1:
            _fail(path, f"it has schema version {schema}, but the first is 1")
        file.seek(0)
        return file.read()


def _parse(path: str | os.PathLike[str], text: Tensor | None) -> dict[str, Any]:
    if text is None or text.dtype != torch.uint8 or text.dim() != 1:
        _fail(path, f"it has no description ({CONTENT!r})")
    content = _json(path, text.numpy().tobytes())
    if not isinstance(content, dict):
        _fail(path, "its description is no JSON object")
    return content


def _json(path: str | os.PathLike[str], text: bytes) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            raise ValueError("a name is given twice")
        return out

    def number(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(text.decode(), object_pairs_hook=unique, parse_constant=number)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        _fail(path, f"its JSON cannot be read ({error})", error)


def _fail(path: str | os.PathLike[str], why: str, cause: BaseException | None = None) -> NoReturn:
    raise FileFormatError(f"cannot read a tree from {os.fspath(path)}: {why}.") from cause
