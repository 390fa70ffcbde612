"""Models of transformers from ONNX files: every weight is found, or the file is refused.

The result is a folder with ``config.json`` and ``model.safetensors``, as ``save_pretrained`` makes
it, so that the ONNX file and the extra ``onnx`` are needed once.

Example:
    >>> weights_from_onnx("model.onnx", model, prefix="bert.")  # doctest: +SKIP
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo._optional import require
from hsa_geo.datasets.disk import alone, remove_stale, telling_when_full
from hsa_geo.datasets.onnx_graph import OnnxGraph
from hsa_geo.datasets.pretrained import quiet
from hsa_geo.errors import FileFormatError

__all__ = ["converted", "loaded", "weights_from_onnx"]


def weights_from_onnx(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    prefix: str = "",
    renamed: Mapping[str, str] | None = None,
    absent: Mapping[str, Tensor] | None = None,
    positions: Mapping[str, str] | None = None,
) -> nn.Module:
    """Load the weights of an ONNX file into a model.

    Matrices of linear layers are found from their biases, tables of embeddings from where their
    rows are looked up, and the rest by names.

    Args:
        path: The file.
        model: The model; changed in place.
        prefix: Before the model's names in the file. (default: :obj:`""`)
        renamed: Parts of the model's names, and what the file has instead, where it knows only
            that. (default: none)
        absent: Weights that no such file has, and what they are to be. (default: none)
        positions: Names of tables of positions, and of the first tokens before those that they
            are added to; see :meth:`~hsa_geo.datasets.onnx_graph.OnnxGraph.position`.
            (default: none)

    Returns:
        ``model``, in eval mode.

    Raises:
        FileFormatError: If the file lacks a weight, has one of another shape or one too many, or
            computes in a way that is not known; or if the model lacks a name that is given.
        MissingPackageError: If onnx is not installed.
    """
    wanted = model.state_dict()
    strange = sorted({*(absent or {}), *(positions or {})} - set(wanted))
    if strange:
        raise FileFormatError(
            f"absent= and positions= name {strange}, which {type(model).__name__} does not have: "
            "give names of its weights."
        )
    graph = OnnxGraph(path)
    used: set[str] = set()

    def stored(key: str) -> str:
        name = prefix + key
        for ours, theirs in (renamed or {}).items():
            other = prefix + key.replace(ours, theirs)
            if not _known(graph, name) and _known(graph, other):
                name = other
        used.add(name)
        return name

    state: dict[str, Tensor] = {}
    for key, weight in wanted.items():
        owner, _, kind = key.rpartition(".")
        module = model.get_submodule(owner)
        if key in (absent or {}):
            found = (absent or {})[key]
        elif key in (positions or {}):
            found = graph.position(stored((positions or {})[key]))
        elif isinstance(module, nn.Linear) and kind == "weight":
            used.add(stored(key))
            found = graph.linear(stored(f"{owner}.bias"))
        elif isinstance(module, nn.Embedding):
            found = graph.table(stored(key))
        else:
            found = graph.tensor(stored(key))
        if found.shape != weight.shape:
            raise FileFormatError(
                f"'{path}': {key!r} is {list(found.shape)} and not {list(weight.shape)}: it is a "
                "model of another size."
            )
        if not bool(found.isfinite().all()):
            raise FileFormatError(f"'{path}': {key!r} is not finite: get the file again.")
        state[key] = found
    _nothing_left(graph, path, prefix, used)
    model.load_state_dict(state)
    return model.eval()


def _known(graph: OnnxGraph, name: str) -> bool:
    """Whether a parameter of this name, or the bias beside it, is stored."""
    bias = name.removesuffix("weight") + "bias"
    return bool({name, name + "_quantized", bias} & graph.names)


def _nothing_left(graph: OnnxGraph, path: Any, prefix: str, used: set[str]) -> None:
    """Weights of more layers than the model has would be a model of another size."""
    ends = (".weight", ".bias", ".lambda1", "_token")
    for name in sorted(graph.names):
        plain = name.removesuffix("_quantized")
        if plain.startswith(prefix) and plain.endswith(ends) and plain not in used:
            raise FileFormatError(
                f"'{path}' has {plain!r}, which the model has not: it is a model of another size "
                "or kind."
            )


def converted(
    folder: Path, make: Callable[[], Any], extra: Callable[[Path], None] | None = None
) -> Path:
    """A folder with a model, made once and in one step.

    Args:
        folder: The folder; if it is there it is left alone.
        make: Makes the model.
        extra: Writes what else belongs there, such as a tokenizer. (default: nothing)

    Returns:
        ``folder``.

    Raises:
        DiskFullError: If there is no room.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with telling_when_full(folder), alone(folder.parent / f".lock-{folder.name}") as sure:
        if folder.is_dir():  # it came while we were waiting
            return folder
        start = f".convert-{folder.name}-"
        if sure:
            remove_stale(folder.parent, start, age=0)
        with torch.no_grad():
            model = make()
        temporary = Path(tempfile.mkdtemp(prefix=start, dir=folder.parent))
        try:
            os.chmod(temporary, 0o755)
            with quiet(require("transformers", extra="hf", purpose="a pretrained model")):
                model.save_pretrained(temporary)
            if extra is not None:
                extra(temporary)
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def loaded(folder: Path, kind: str) -> Any:
    """A model or tokenizer of transformers from a converted folder.

    Args:
        folder: The folder.
        kind: Name of its class.

    Returns:
        The model, in eval mode and without gradients; or the tokenizer.

    Raises:
        FileFormatError: If it cannot be loaded, or lacks weights.
        MissingPackageError: If transformers is not installed.
    """
    transformers = require("transformers", extra="hf", purpose="a pretrained model")
    remedy = "remove the folder, and it is made anew"
    tokens = kind == "AutoTokenizer"
    options = {} if tokens else {"use_safetensors": True, "output_loading_info": True}
    try:
        with quiet(transformers):
            made = getattr(transformers, kind).from_pretrained(
                folder, local_files_only=True, **options
            )
    except Exception as error:  # whatever it is, the model cannot be used
        said = " ".join(str(error).split())[:300]
        raise FileFormatError(
            f"'{folder}' cannot be loaded ({type(error).__name__}: {said}): {remedy}."
        ) from error
    if tokens:
        return made
    model, info = made
    if info["missing_keys"]:
        raise FileFormatError(f"'{folder}' lacks {sorted(info['missing_keys'])[0]!r}: {remedy}.")
    return model.eval().requires_grad_(False)
