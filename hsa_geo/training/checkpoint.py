"""Checkpoints without pickle: tensors in safetensors, everything else in JSON.

A checkpoint is two files, ``checkpoint-<step>.safetensors`` and ``checkpoint-<step>.json``.  Both
appear in one step each, the JSON last and with the hash of the other, so a kill at any time leaves
a checkpoint that is complete or none.  The newest two are kept: one that was damaged on the disk
is found by its hash, and the one before it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hsa_geo._files import disk_is_full, folder_path, replacing, write_text
from hsa_geo._memory import separate
from hsa_geo.errors import CheckpointError, DiskFullError, HSAWarning, ShapeError
from hsa_geo.training.numbers import whole_number

__all__ = ["Checkpoints", "fingerprint"]

#: ``format`` in every JSON file.
FORMAT = "hsa_geo.checkpoint"
#: Layout that this version writes and reads.
SCHEMA = 1
#: Checkpoints that are kept.
KEPT = 2
#: The largest step, by the digits of a file's name.
LAST = 10**9 - 1
_NAME = re.compile(r"checkpoint-(\d{9})\.json")
#: All files that are made here; those with a dot are of a process that was killed.
_OURS = re.compile(r"checkpoint-\d{9}\.(json|safetensors)|\.checkpoint-\d{9}\.\w+\.\w+\.part")
#: What it means that something cannot be written: the disk, or what is to be written.
_UNWRITTEN = (
    *(OSError, safetensors.SafetensorError),
    *(ValueError, TypeError, KeyError, AttributeError),
)


class Checkpoints:
    """The checkpoints in a folder.

    Args:
        folder: Where; made when the first is written.

    Raises:
        PathError: If that is no path.

    Example:
        >>> import tempfile
        >>> checkpoints = Checkpoints(tempfile.mkdtemp())
        >>> for step in (10, 20, 30):
        ...     checkpoints.write(step, {"w": torch.full((2,), step)}, {"loss": 1 / step})
        >>> checkpoints.steps()
        [20, 30]
        >>> checkpoints.newest()
        (30, {'w': tensor([30, 30])}, {'loss': 0.03333333333333333})
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder_path("folder", folder)

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, increasing; they are not looked into."""
        if not self.folder.is_dir():
            return []
        found = map(_NAME.fullmatch, sorted(os.listdir(self.folder)))
        return [int(match[1]) for match in found if match]

    def write(self, step: int, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        """Write a checkpoint; then remove all but this one and the newest before it.

        Args:
            step: Number of steps that were taken; newer checkpoints are damaged ones, and go.
            tensors: Any dense tensors, on any device; those that share memory are written each.
            content: What JSON can hold; numbers come back exactly.

        Raises:
            DiskFullError: If there is no room; the checkpoints before are still whole.
            CheckpointError: If it cannot be written for another reason.
            ShapeError: If ``step`` is no whole number from 0 to 999,999,999.
        """
        weights, note = self._paths(step)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(weights) as part:
                safetensors.torch.save_file(separate(tensors), part, {"format": FORMAT})
                digest = _hash(part)
            body = {
                "format": FORMAT,
                "schema": SCHEMA,
                "step": step,
                "sha256": digest,
                "content": dict(content),
            }
            text = json.dumps({**body, "own_sha256": fingerprint(body)}, allow_nan=False, indent=1)
            write_text(note, text)
        except BaseException as error:
            with contextlib.suppress(OSError):
                if not note.exists():
                    weights.unlink(missing_ok=True)
            if not isinstance(error, _UNWRITTEN):
                raise
            old = [s for s in self.steps() if s < step]
            rest = f"that of step {old[-1]} is whole" if old else "there is none before it"
            if disk_is_full(error):
                raise DiskFullError(
                    f"no room for the checkpoint of step {step} in '{self.folder}' ({error}); "
                    f"{rest}: free some, and go on with resume=True."
                ) from error
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be written to '{self.folder}' ({error}); "
                f"{rest}: see to the folder, and go on with resume=True."
            ) from error
        self._remove_others(step)

    def newest(self) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
        """Read the newest checkpoint that is whole, with a warning about damaged ones.

        Returns:
            Its step, tensors (on the CPU) and content, or :obj:`None` if there never was one.

        Raises:
            CheckpointError: If all that are there are damaged, or of another version.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                out = self.read(step)
            except CheckpointError as error:
                damaged.append(str(error))
                continue
            for text in damaged:
                warnings.warn(
                    f"{text.rstrip('.')}: going on from that of step {step}.",
                    HSAWarning,
                    stacklevel=3,
                )
            return step, *out
        if damaged:
            raise CheckpointError(
                f"{damaged[0].rstrip('.')}, and no other checkpoint is whole: remove "
                f"'{self.folder}' to begin anew."
            )
        return None

    def read(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read one checkpoint.

        Args:
            step: One of :meth:`steps`.

        Returns:
            Its tensors (on the CPU) and its content.

        Raises:
            CheckpointError: If it is damaged or of another version; the message says which file.
            ShapeError: If ``step`` is no whole number from 0 to 999,999,999.

        Example:
            >>> Checkpoints("nowhere").read(3)
            Traceback (most recent call last):
            ...
            hsa_geo.errors.CheckpointError: 'nowhere/checkpoint-000000003.json' is damaged ...
        """
        weights, note = self._paths(step)
        try:
            body = json.loads(note.read_text(encoding="utf-8"))
            own = body.pop("own_sha256")
            fits = own == fingerprint(body)
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise CheckpointError(f"'{note}' is damaged ({error!r}).") from error
        if body.get("format") != FORMAT or body.get("schema") != SCHEMA:
            raise CheckpointError(
                f"'{note}' has schema {body.get('schema')!r} of format {body.get('format')!r}, "
                f"not {SCHEMA} of {FORMAT!r}."
            )
        if not fits or body.get("step") != step:
            raise CheckpointError(f"'{note}' is damaged (its own hash does not fit).")
        content = body.get("content")
        if not isinstance(content, dict):
            raise CheckpointError(f"'{note}' is damaged (it has no content).")
        try:
            if _hash(weights) != body.get("sha256"):
                raise CheckpointError(f"'{weights}' is damaged (its hash does not fit).")
            return safetensors.torch.load_file(weights), content
        except (OSError, safetensors.SafetensorError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"'{weights}' is damaged ({error}).") from error

    def _paths(self, step: int) -> tuple[Path, Path]:
        if whole_number("step", step, 0) > LAST:
            raise ShapeError(f"step={step} is more than {LAST}: give another number.")
        stem = self.folder / f"checkpoint-{step:09d}"
        return stem.with_suffix(".safetensors"), stem.with_suffix(".json")

    def _remove_others(self, step: int) -> None:
        keep = {*[s for s in self.steps() if s < step][1 - KEPT :], step}
        names = {path.name for s in keep for path in self._paths(s)}
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in names:
                with contextlib.suppress(OSError):
                    path.unlink()


def fingerprint(content: Any) -> str:
    """A sha256 of what JSON can hold, or of a tensor.

    Example:
        >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
        True
    """
    if isinstance(content, Tensor):
        flat = content.detach().cpu().reshape(-1)
        if flat.stride(0) != 1:
            flat = flat.clone(memory_format=torch.contiguous_format)
        return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
