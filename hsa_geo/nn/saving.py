"""Models as files: ``model.safetensors`` beside ``config.json``, and never a pickle.

``config.json`` (schema 2) holds

- ``schema``: the version of this layout;
- ``hsa_geo``: the version of the library that wrote it, and ``class``: the name of the model's
  class, which only explain an error;
- ``model``: what makes the model again;
- ``extra``: what else belongs to it, such as labels and the options of a builder.

Files of schema 1, which lack ``hsa_geo`` and ``class``, are read as well.

A model's files may come from anywhere.  Reading them runs nothing; nothing but these two files is
read, and only if they lie in the folder itself; and no tensor is read, and no memory taken for one,
before the sizes are found to fit: those of the file, those that its header claims, and those of the
model that ``config.json`` describes.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

import hsa_geo
from hsa_geo._files import make_folder, replacing
from hsa_geo._memory import separate
from hsa_geo.errors import FileFormatError, UnsupportedError

__all__ = ["MAX_BYTES", "SCHEMA", "PretrainedModel", "load_model", "save_model"]

#: Schema version of saved models, and the oldest that is read.
SCHEMA, OLDEST = 2, 1
#: Largest ``config.json`` and, unless the caller says otherwise, largest file of tensors.
MAX_CONFIG, MAX_BYTES = 2**26, 2**32
#: Types of numbers that models are of, by their names in safetensors.
_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}

_M = TypeVar("_M", bound=nn.Module)


class PretrainedModel:
    """``save_pretrained`` and ``from_pretrained``, as Hugging Face calls them.

    The model has ``save(folder, extra)`` and ``load(folder, ...)``, which also returns ``extra``.
    """

    def save_pretrained(
        self, folder: str | os.PathLike[str], extra: dict[str, Any] | None = None
    ) -> None:
        """The same as ``save``.

        Args:
            folder: Where to write; made if it does not exist.
            extra: What else belongs to the model, as JSON. (default: :obj:`None`)
        """
        self.save(folder, extra)  # type: ignore[attr-defined]

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
        """The model alone of what ``load`` reads.

        Args:
            folder: The folder.
            **options: As for ``load``.

        Returns:
            The model in evaluation mode.

        Raises:
            FileFormatError: As ``load``.
        """
        model: Self = cls.load(folder, **options)[0]  # type: ignore[attr-defined]
        return model


def save_model(
    model: nn.Module,
    config: dict[str, Any],
    folder: str | os.PathLike[str],
    extra: dict[str, Any] | None = None,
) -> None:
    """Write ``model.safetensors`` and ``config.json`` into a folder.

    Args:
        model: The model, whose ``state_dict`` is written.
        config: What its constructor needs, as JSON.
        folder: Where to write; made if it does not exist.
        extra: What else belongs to the model, as JSON. (default: :obj:`None`)

    Raises:
        PathError: If there is a file where the folder should be.
        TypeError: If ``config`` or ``extra`` is no JSON.
        UnsupportedError: If a tensor is not dense.

    Example:
        >>> save_model(nn.Linear(2, 3), {"in_features": 2, "out_features": 3}, "a folder")
        >>> sorted(path.name for path in Path("a folder").iterdir())
        ['config.json', 'model.safetensors']
    """
    content = {
        "schema": SCHEMA,
        "hsa_geo": hsa_geo.__version__,
        "class": type(model).__name__,
        "model": config,
        "extra": extra or {},
    }
    text = json.dumps(content, indent=2, default=_plain)
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
            kind = value.layout if isinstance(value, Tensor) else type(value).__name__
            raise UnsupportedError(f"'{name}' is {kind}: only dense tensors are saved.")
    path = Path(folder)
    make_folder(path)
    # Both are complete before either takes its name.
    with (
        replacing(path / "config.json") as note,
        replacing(path / "model.safetensors") as weights,
    ):
        safetensors.torch.save_file(separate(state), weights)
        note.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.80} is no JSON: give numbers, str, lists and dicts.")


def load_model(
    folder: str | os.PathLike[str],
    name: str,
    build: Callable[[dict[str, Any]], _M],
    group: Callable[[str], str | None] = lambda name: "",
    max_bytes: int | None = MAX_BYTES,
) -> tuple[_M, dict[str, Any]]:
    """Read what :func:`save_model` wrote.

    Nothing is allocated for sizes that the files only claim: the model is built without memory
    first, and what it would need compared with what the file holds.

    Args:
        folder: The folder.
        name: What the model is called in errors.
        build: Makes the model of its ``config``; called twice.
        group: Parameters (by name) for which this is the same have to be of one dtype; None for
            any. (default: all of them)
        max_bytes: Largest file of tensors that is read; None for any. (default: 4 GiB)

    Returns:
        The model in evaluation mode, its tensors in the dtypes of the file, and ``extra``.

    Raises:
        FileFormatError: If the folder does not hold a saved model of a schema that this version
            reads.

    Example:
        >>> config = {"in_features": 2, "out_features": 3}
        >>> save_model(nn.Linear(2, 3), config, "model", {"classes": ["a", "b", "c"]})
        >>> load_model("model", "Linear", lambda config: nn.Linear(**config))
        (Linear(in_features=2, out_features=3, bias=True), {'classes': ['a', 'b', 'c']})
    """
    path, told = Path(folder), ""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise FileFormatError(
            f"'{path}' {what}: give the folder that save() wrote, which holds config.json and "
            "model.safetensors."
        )
    try:
        text = _file_of(path, "config.json", MAX_CONFIG).read_text(encoding="utf-8")
        config = json.loads(text)
        _check_schema(config, path)
        told = f"; it calls itself a {config['class']!r:.80}" if "class" in config else ""
        weights = _file_of(path, "model.safetensors", max_bytes)
        with safetensors.safe_open(str(weights), framework="pt") as file:
            _check(config["model"], _claims(file), build, group)
            model = build(config["model"])
            # Copies, which are aligned in memory: results are then the same to the last bit.
            state = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
        model.load_state_dict(state, assign=True)
        extra = dict(config["extra"])
    except FileFormatError:
        raise
    except Exception as error:  # whatever a damaged or foreign file makes the readers raise
        raise FileFormatError(
            f"{path} does not hold a saved {name} ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}{told}): give the folder that save() wrote."
        ) from error
    return model.eval(), extra


def _difference(model: set[str], file: set[str]) -> str:
    """What a file lacks and has too much, by name, and what may have been forgotten."""
    sides = (("lacks", sorted(model - file)), ("has besides", sorted(file - model)))
    told = " and ".join(
        f"{verb} {names[0]!r:.80}" + (f" (and {len(names) - 1} more)" if names[1:] else "")
        for verb, names in sides
        if names
    )
    return f"it {told}: register_position what it was made with, or give its encoders"


def _check_schema(config: Any, path: Path) -> None:
    schema = config["schema"]
    if isinstance(schema, int) and OLDEST <= schema <= SCHEMA and schema is not True:
        return
    writer = f"{config.get('hsa_geo', 'another version')!r:.40}"
    raise FileFormatError(
        f"{path} has schema {schema!r:.40}, written by hsa_geo {writer}, but this is hsa_geo "
        f"{hsa_geo.__version__}, which reads {OLDEST} to {SCHEMA}: install the version that wrote "
        "it or a newer one, or train the model anew."
    )


def _file_of(folder: Path, name: str, limit: int | None) -> Path:
    """A regular file in the folder itself, of limited size."""
    path = Path(os.path.realpath(folder / name))
    if path.parent != Path(os.path.realpath(folder)):
        raise ValueError(f"{name} is a link out of the folder")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{name} is no regular file")
    if limit is not None and status.st_size > limit:
        raise ValueError(f"{name} has {status.st_size} bytes, more than the limit of {limit}")
    return path


class _Claim(NamedTuple):
    """What the header of a file says of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _claims(file: Any) -> dict[str, _Claim]:
    """What the header says, before any tensor is read."""
    out = {}
    for key in file.keys():  # noqa: SIM118
        part = file.get_slice(key)
        if part.get_dtype() not in _DTYPES:
            raise ValueError(f"{key} is of type {part.get_dtype()}")
        out[key] = _Claim(tuple(part.get_shape()), _DTYPES[part.get_dtype()])
    return out


def _check(
    config: dict[str, Any],
    state: Mapping[str, _Claim],
    build: Callable[[dict[str, Any]], nn.Module],
    group: Callable[[str], str | None],
) -> None:
    """Refuse sizes that the tensors do not have, before a model of these sizes is built."""
    largest = sum(math.prod(claim.shape) for claim in state.values())
    for key, limit in (("num_layers", len(state)), ("position_channels", largest)):
        if (config.get(key) or 0) > limit:
            raise ValueError(f"{key} is {config[key]}")
    with torch.device("meta"):
        model = build(config)
    blank = model.state_dict()
    if blank.keys() != state.keys():
        raise ValueError(_difference(set(blank), set(state)))
    for key, value in blank.items():
        if tuple(value.shape) != state[key].shape:
            raise ValueError(f"{key} has shape {list(state[key].shape)}, not {list(value.shape)}")
        if value.is_floating_point() != state[key].dtype.is_floating_point:
            raise ValueError(f"{key} is {state[key].dtype}")
    seen: dict[str, str] = {}
    for key, _ in model.named_parameters(remove_duplicate=False):
        kind = group(key)
        if kind is not None and state[key].dtype != state[seen.setdefault(kind, key)].dtype:
            first = seen[kind]
            raise ValueError(f"{key} is {state[key].dtype}, but {first} {state[first].dtype}")
