"""What has to be the same for a training to go on, and what is said if it is not."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from hsa_geo.errors import ResumeError
from hsa_geo.training.checkpoint import fingerprint
from hsa_geo.training.options import Options
from hsa_geo.training.state import kept_tensors

__all__ = ["check_same", "differences", "identity"]

#: Options that change nothing in what is learned.
FREE = ("num_workers", "device", "checkpoint_steps", "checkpoint_seconds", "tensorboard")


def identity(
    model: nn.Module,
    options: Options,
    data: Mapping[str, Mapping[str, Any]],
    processes: int,
) -> dict[str, Any]:
    """What has to be the same for a training to go on, as JSON would give it back.

    Args:
        model: Its structure, and the values of what is not trained.
        options: But for those that change nothing in what is learned.
        data: The :func:`~hsa_geo.training.contents.contents` of each set of trees.
        processes: How many.

    Returns:
        A dict of dicts.

    Example:
        >>> identity(nn.Linear(1, 1), Options(), {"train": {"leaves": 5}}, 1)["train"]
        {'leaves': 5}
    """
    trained = kept_tensors(model)
    out = {
        "options": {k: v for k, v in dataclasses.asdict(options).items() if k not in FREE},
        "processes": processes,
        **data,
        "model": {
            "parts": {name or "itself": _settings(part) for name, part in model.named_modules()},
            "tensors": {k: f"{v.dtype} {list(v.shape)}" for k, v in trained.items()},
            "frozen": {
                name: fingerprint(p) for name, p in model.named_parameters() if not p.requires_grad
            },
        },
    }
    return dict(json.loads(json.dumps(out)))


def _settings(module: nn.Module) -> dict[str, Any]:
    """Class and plain attributes of a module, such as the rate of a dropout."""
    plain = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name != "training"
    }
    kept = {k: v for k, v in plain.items() if v is None or isinstance(v, (bool, int, float, str))}
    for name, value in kept.items():
        if isinstance(value, float) and not math.isfinite(value):
            kept[name] = repr(value)  # JSON has no such numbers, and nan is not nan
    return {"class": type(module).__qualname__, **kept}


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """What differs between two things that JSON can hold, in words.

    Example:
        >>> differences({"options": {"lr": 0.1, "seed": 1}}, {"options": {"lr": 0.2, "seed": 1}})
        ['options.lr was 0.1 and is 0.2']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        out = []
        for key in [*before, *(k for k in now if k not in before)]:
            path = f"{name}.{key}" if name else str(key)
            if key not in now or key not in before:
                out.append(f"{path} is {'new' if key in now else 'gone'}")
            else:
                out += differences(before[key], now[key], path)
        return out
    if before == now:
        return []
    if isinstance(before, str) and isinstance(now, str) and max(len(before), len(now)) > 60:
        same = (a == b for a, b in zip(f"{before}\0", f"{now}\1"))
        at = list(same).index(False)
        before, now = (f"...{text[max(at - 20, 0) : at + 30]}..." for text in (before, now))
    return [f"{name} was {before!r} and is {now!r}"]


def check_same(before: Any, now: Any, folder: Path) -> None:
    """Refuse to go on with another training.

    Raises:
        ResumeError: If anything differs; the message names up to four things.

    Example:
        >>> check_same({"lr": 1}, {"lr": 1}, Path("runs"))
    """
    other = differences(before, now)
    if other:
        more = f", and {len(other) - 4} more" if len(other) > 4 else ""
        raise ResumeError(
            f"the checkpoint in '{folder}' is of another training ({'; '.join(other[:4])}{more}): "
            "give what it was, or another folder."
        )
