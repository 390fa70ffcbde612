"""Models as files: ``model.safetensors`` beside ``config.json``, and never a pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import Tensor, nn

from hsa_geo._files import replacing
from hsa_geo._memory import separate
from hsa_geo.errors import FileFormatError, UnsupportedError

__all__ = ["SCHEMA", "load_model", "save_model"]

#: Schema version of saved models.
SCHEMA = 1

_M = TypeVar("_M", bound=nn.Module)


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
        TypeError: If ``config`` or ``extra`` is no JSON.
        UnsupportedError: If a tensor is not dense.

    Example:
        >>> save_model(nn.Linear(2, 3), {"in_features": 2, "out_features": 3}, "a folder")
        >>> sorted(path.name for path in Path("a folder").iterdir())
        ['config.json', 'model.safetensors']
    """
    text = json.dumps({"schema": SCHEMA, "model": config, "extra": extra or {}}, indent=2)
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
            kind = value.layout if isinstance(value, Tensor) else type(value).__name__
            raise UnsupportedError(f"'{name}' is {kind}: only dense tensors are saved.")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # Both are complete before either takes its name.
    with (
        replacing(path / "config.json") as note,
        replacing(path / "model.safetensors") as weights,
    ):
        safetensors.torch.save_file(separate(state), weights)
        note.write_text(text, encoding="utf-8")


def load_model(
    folder: str | os.PathLike[str],
    name: str,
    build: Callable[[dict[str, Any]], _M],
    group: Callable[[str], str | None] = lambda name: "",
) -> tuple[_M, dict[str, Any]]:
    """Read what :func:`save_model` wrote.

    Nothing is allocated for sizes that the file only claims: the model is built without memory
    first, and what it would need compared with what the file holds.

    Args:
        folder: The folder.
        name: What the model is called in errors.
        build: Makes the model of its ``config``; called twice.
        group: Parameters (by name) for which this is the same have to be of one dtype; None for
            any. (default: all of them)

    Returns:
        The model in evaluation mode, its tensors in the dtypes of the file, and ``extra``.

    Raises:
        FileFormatError: If the folder does not hold a saved model of this schema.

    Example:
        >>> config = {"in_features": 2, "out_features": 3}
        >>> save_model(nn.Linear(2, 3), config, "model", {"classes": ["a", "b", "c"]})
        >>> load_model("model", "Linear", lambda config: nn.Linear(**config))
        (Linear(in_features=2, out_features=3, bias=True), {'classes': ['a', 'b', 'c']})
    """
    path = Path(folder)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if config["schema"] != SCHEMA:
            raise FileFormatError(
                f"{path} has schema {config['schema']!r}, but this version of hsa_geo reads "
                f"{SCHEMA}: train the model anew, or install the version that wrote it."
            )
        state = safetensors.torch.load_file(str(path / "model.safetensors"))
        _check(config["model"], state, build, group)
        model = build(config["model"])
        # Copies, which are aligned in memory: results are then the same to the last bit.
        model.load_state_dict({key: t.clone() for key, t in state.items()}, assign=True)
        extra = dict(config["extra"])
    except FileFormatError:
        raise
    except Exception as error:  # whatever a damaged or foreign file makes the readers raise
        raise FileFormatError(
            f"{path} does not hold a saved {name} ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}): give the folder that save() wrote."
        ) from error
    return model.eval(), extra


def _check(
    config: dict[str, Any],
    state: dict[str, Tensor],
    build: Callable[[dict[str, Any]], nn.Module],
    group: Callable[[str], str | None],
) -> None:
    """Refuse sizes that the tensors do not have, before a model of these sizes is built."""
    largest = sum(value.numel() for value in state.values())
    for key, limit in (("num_layers", len(state)), ("position_channels", largest)):
        if (config.get(key) or 0) > limit:
            raise ValueError(f"{key} is {config[key]}")
    with torch.device("meta"):
        model = build(config)
    blank = model.state_dict()
    if blank.keys() != state.keys():
        raise ValueError(f"the keys {sorted(blank.keys() ^ state.keys())[:5]} are in one of both")
    for key, value in blank.items():
        if value.shape != state[key].shape:
            raise ValueError(f"{key} has shape {list(state[key].shape)}, not {list(value.shape)}")
        if value.is_floating_point() != state[key].is_floating_point():
            raise ValueError(f"{key} is {state[key].dtype}")
    seen: dict[str, str] = {}
    for key, _ in model.named_parameters(remove_duplicate=False):
        kind = group(key)
        if kind is not None and state[key].dtype != state[seen.setdefault(kind, key)].dtype:
            first = seen[kind]
            raise ValueError(f"{key} is {state[key].dtype}, but {first} {state[first].dtype}")
