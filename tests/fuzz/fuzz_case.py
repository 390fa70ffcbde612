"""What all fuzzers share: a case, odd values for options, mutated bytes, draws from bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

#: Options that nobody should give, and everybody does.
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    10**20,
    2**63,
    10**5000,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "grid",
    "\ud800",
    b"x",
    (),
    [],
    ["x", 1],
    {},
    {"a": 1},
    1j,
    object(),
    bool,
    len,
    np.int64(3),
    np.float32(2),
    np.zeros(3),
    torch.tensor(4),
    torch.zeros(2),
)


@dataclass
class Case:
    """One call of a builder.

    Attributes:
        builder: The function.
        source: Its first argument.
        options: Its other arguments.
        allowed: Errors that it documents besides those of hsa_geo.
        keys: Attributes that the tree must have; None where they depend on the source.
        repeatable: Whether a second call must give the same.
    """

    builder: Callable[..., Any]
    source: Any
    options: dict[str, Any] = field(default_factory=dict)
    allowed: tuple[type[Exception], ...] = ()
    keys: frozenset[str] | None = None
    repeatable: bool = True

    def __call__(self) -> Any:
        return self.builder(self.source, **self.options)

    def __repr__(self) -> str:
        options = "".join(f", {key}={_shown(value)}" for key, value in self.options.items())
        return f"{self.builder.__name__}({_shown(self.source)}{options})"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
    return text if len(text) <= 100_000 else f"{text[:100_000]}... ({len(text)} characters)"


class FromBytes(random.Random):
    """Random numbers that are read from bytes, for a fuzzer that is guided by coverage.

    When the bytes are used up, a generator seeded by them goes on.
    """

    def __new__(cls, data: bytes) -> FromBytes:
        return super().__new__(cls, 0)

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.rest = data, 0, random.Random(data)
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        if self.at >= len(self.data):
            return self.rest.getrandbits(k)
        count = -(-k // 8)
        part = self.data[self.at : self.at + count]
        self.at += count
        return int.from_bytes(part, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / 2**53

    def seed(self, *args: Any) -> None:
        """The bytes are the seed."""


def truth(value: Any) -> bool:
    """Whether a flag is set; one that has no truth value is not."""
    try:
        return bool(value)
    except Exception:
        return False


def options_of(
    rng: random.Random,
    table: dict[str, Sequence[Any]],
    *,
    likely: float = 0.2,
    odd: float = 0.004,
) -> dict[str, Any]:
    """Some options, each with one of its values, rarely with an odd one."""
    out = {}
    for name, values in table.items():
        draw = rng.random()
        if draw < odd:
            out[name] = rng.choice(ODD)
        elif draw < odd + likely:
            out[name] = rng.choice(values)
    return out


def mutated_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """A few changes anywhere: bits, bytes, numbers, runs, cuts, copies, splices."""
    out = bytearray(data)
    for _ in range(min(1 + int(rng.expovariate(0.7)), 12)):
        if not out:
            break
        at = rng.randrange(len(out))
        size = min(1 + int(rng.expovariate(0.05)), len(out) - at)
        kind = rng.randrange(10)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:  # a number of 2 or 4 bytes, of either end
            width = rng.choice((2, 4))
            number = rng.choice((0, 1, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 513))
            order = rng.choice(("big", "little"))
            out[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, order)
        elif kind == 3:
            del out[at : at + size]
        elif kind == 4:
            out[at:at] = out[at : at + size]
        elif kind == 5:
            out[at:at] = rng.randbytes(size)
        elif kind == 6:
            out[at : at + size] = bytes([rng.choice((0, 255, 32))]) * size
        elif kind == 7:
            to = rng.randrange(len(out))
            out[to : to + size] = out[at : at + size]
        elif kind == 8 and others:
            other = rng.choice(others)
            out = out[:at] + other[rng.randrange(len(other) + 1) :]
        elif rng.random() < 0.5:
            del out[at:]
    return bytes(out)
