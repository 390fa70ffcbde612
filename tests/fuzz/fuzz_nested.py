"""Nested signals of mixed kinds, ragged, deep and cyclic, for from_nested."""

from __future__ import annotations

import decimal
import random
from collections import OrderedDict, UserDict, UserList, deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_case import ODD, Case, options_of

from hsa_geo.builders import Graph, Grid, Leaf, Sequence, Set, from_nested
from hsa_geo.errors import HSAError

SANE = [0, 1.5, -2, np.float32(3), np.array([1.0]), torch.tensor([2.0]), [1], True]
VALUES: list[Any] = [
    *SANE,
    *SANE,
    *(None, "a", b"b", 1j, float("nan"), float("inf"), 10**30, 10**5000, 1e300, object(), Ellipsis),
    *(np.zeros(3), np.zeros((2, 3)), np.zeros(0), np.zeros((0, 2)), np.array(["a"]), np.array(3)),
    *(
        np.array([None]),
        np.array([1j]),
        np.datetime64("2020"),
        np.array([1], ">i4"),
        np.longdouble(1),
    ),
    *(
        np.float16(1),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.zeros(2, dtype=[("a", int)]),
        np.ma.masked,
    ),
    *(
        torch.zeros(2),
        torch.tensor(1),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.ones(2).to_sparse(),
    ),
    *(torch.zeros(2, device="meta"), torch.zeros(0), torch.ones(1, dtype=torch.complex64)),
    *(torch.ones(1, requires_grad=True), torch.zeros(2, 2, 2), decimal.Decimal(1), Fraction(1, 2)),
    *({}, [], (), set(), "", range(3), range(0), deque([1]), UserList([1, 2]), UserDict(a=1), int),
]
NAMES = [None, None, None, "a", "x", "", "é", "\ud800", 3, b"n"]
PLACES = [
    None,
    None,
    None,
    0,
    1.5,
    (1, 2),
    [3],
    (1, 2, 3),
    "p",
    float("nan"),
    1e300,
    True,
    np.zeros(2),
]
MODALITIES = [None, None, "t", "image", "x", "", "tree", "a b", 3, "edge", "é", "x_x", "num_nodes"]
OPTIONS = {
    "modalities": [{}, {"x": 1}, {"t": (2,), "x": ()}, {"x": (1,)}, {"t": "a"}, {"image": [3, -1]}],
    "dtype": [torch.float64, torch.int64, torch.uint8, torch.float16, torch.bool, torch.complex64],
    "names": [True, False],
    "links": [True, False],
    "max_leaves": [1, 5, 1000, None],
    "max_depth": [0, 1, 3, None],
}


def case(rng: random.Random, folder: Path) -> Case:
    """A signal and options."""
    values = SANE if rng.random() < 0.4 else VALUES
    if rng.random() < 0.2:
        width = rng.randrange(4)
        values = [np.ones(width), torch.zeros(width), Leaf([2] * width)]
    signal = _signal(rng, values, rng.randrange(5))
    if rng.random() < 0.03:
        for _ in range(rng.choice((100, 3000))):
            signal = rng.choice((_in_list, _in_set, _in_sequence, _in_dict))(signal)
    if rng.random() < 0.03:
        loop: list[Any] = [signal, 1]
        loop.append(rng.choice((loop, (loop,), {"k": loop})))
        signal = loop
    options = options_of(rng, OPTIONS, likely=0.12)
    if rng.random() < 0.02:
        options["like"] = rng.choice((*ODD, from_nested([1, 2]), from_nested({"a": Graph([1, 2])})))
    return Case(from_nested, signal, options)


def _signal(rng: random.Random, values: list[Any], depth: int) -> Any:
    if depth == 0 or rng.random() < 0.1:
        return _leaf(rng, values)
    inside = [_signal(rng, values, depth - 1) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 0)))]
    kind = rng.randrange(14)
    try:
        return _container(rng, kind, inside)
    except HSAError:  # a word that refuses; its own tests see which
        return inside
    except TypeError as error:
        if "unhashable" in str(error):
            return tuple(inside)
        raise


def _container(rng: random.Random, kind: int, inside: list[Any]) -> Any:
    label: dict[str, Any] = {}
    if rng.random() < 0.2:
        label = {"name": rng.choice(NAMES), "pos": rng.choice(PLACES)}
    n = len(inside)
    if kind == 0:
        return Sequence(inside, **label)
    if kind == 1:
        return Set(inside, **label)
    if kind == 2:
        return Set({rng.choice((k, str(k), (k,), None)): v for k, v in enumerate(inside)}, **label)
    if kind == 3:
        pairs = [(rng.randrange(-1, n + 1), rng.randrange(n + 1)) for _ in range(rng.randrange(4))]
        weights = rng.choice((None, [1.0] * len(pairs), VALUES[: len(pairs)], [float("nan")]))
        return Graph(
            inside, rng.choice((pairs, [], VALUES[:2])), weights, rng.random() < 0.5, **label
        )
    if kind == 4:
        columns = rng.randrange(1, 4)
        return Grid([inside[i : i + columns] for i in range(0, n, columns)], **label)  # ragged too
    if kind == 5:
        return Grid({(k, rng.randrange(3)): v for k, v in enumerate(inside)}, **label)
    if kind == 6:
        return Sequence(
            {rng.choice((k, k / 2, f"k{k}", -k)): v for k, v in enumerate(inside)}, **label
        )
    if kind == 7:
        return {rng.choice((k, str(k), (k,), "\ud800", 10**5000)): v for k, v in enumerate(inside)}
    if kind == 8:
        return set(inside)
    if kind == 9:
        return tuple(inside)
    if kind == 10:
        return rng.choice((iter, deque, UserList, OrderedDict.fromkeys))(inside)
    if kind == 11:
        shape = [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
        array = np.zeros(shape, rng.choice((np.float32, np.int64, object, "U1", bool)))
        return rng.choice((Sequence, Set, Grid, Graph))(rng.choice((array, torch.zeros(shape))))
    if kind == 12:
        return rng.choice((Sequence, Set, Grid, Graph, Leaf))(rng.choice(VALUES))
    return inside


def _leaf(rng: random.Random, values: list[Any]) -> Any:
    value = rng.choice(values)
    if rng.random() < 0.7:
        return value
    try:
        if rng.random() < 0.2:
            value = {rng.choice(MODALITIES) or "x": rng.choice((value, [value], np.zeros((2, 3))))}
            return Leaf(value)
        label = (rng.choice(MODALITIES), rng.choice(NAMES), rng.choice(PLACES))
        return Leaf(value, *label) if rng.random() < 0.5 else Leaf(value)
    except HSAError:
        return value


def _in_list(signal: Any) -> Any:
    return [signal]


def _in_set(signal: Any) -> Any:
    return Set([signal])


def _in_sequence(signal: Any) -> Any:
    return Sequence((signal,), "deep")


def _in_dict(signal: Any) -> Any:
    return {"k": signal}
