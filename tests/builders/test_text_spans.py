import re

import numpy as np
import pytest
import torch
from hypothesis import given
from text_cases import TEXTS

from hsa_geo.builders._text_spans import Blanks, spans_of
from hsa_geo.errors import BuilderError


@given(text=TEXTS)
def test_blanks(text: str) -> None:
    blanks = Blanks(text)
    for at in range(len(text) + 1):
        assert blanks.next[at] == len(text) - len(text[at:].lstrip())
        assert blanks.last[at] == len(text[:at].rstrip())


@pytest.mark.parametrize(
    ("pieces", "spans"),
    [
        (["to", "be"], [(0, 2), (3, 5)]),
        (["o", "", "b", "e"], [(1, 2), (3, 4), (4, 5)]),
        ([(0, 2), (2, 2), (3, 5)], [(0, 2), (3, 5)]),
        (np.array([[0, 5]], dtype=np.uint8), [(0, 5)]),
        (torch.tensor([[0, 1], [1, 5]]), [(0, 1), (1, 5)]),
        (iter(["to"]), [(0, 2)]),
        ({"to": 1, "be": 2}, [(0, 2), (3, 5)]),
        ([], []),
        ((), []),
        ("tobe", [(0, 1), (1, 2), (3, 4), (4, 5)]),
    ],
)
def test_spans(pieces: object, spans: list[tuple[int, int]]) -> None:
    start, end = spans_of(pieces, "to be", "the tokenizer")
    assert list(zip(start.tolist(), end.tolist())) == spans
    assert start.dtype == end.dtype == np.int64


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (None, "returned None, which is no list"),
        (3, "returned 3, which is no list"),
        (["to", "too"], "'too' as number 1, which does not stand in the text behind character 2"),
        (["be", "to"], "'to' as number 1"),
        (["x" * 99], "'x{40}'... as number 0"),
        (["to", (3, 5)], "only strings"),
        ([None], "None as number 0 of 1"),
        ([(0, 2, 3)], "as number 0"),
        ([(0,), (1, 2)], "as number 0"),
        ([(0.0, 2.0)], "as number 0"),
        ([(True, False)], "as number 0"),
        ([3, 4], "3 as number 0 of 2"),
        ([(0, 10**30)], "as number 0"),
        ([b"to"], "b'to' as number 0"),
        ([(-1, 2)], r"span \(-1, 2\) as number 0 of a text of 5 characters"),
        ([(0, 6)], r"\(0, 6\)"),
        ([(2, 1)], r"\(2, 1\)"),
        ([(0, 3), (2, 5)], r"\(2, 5\) as number 1.*behind the one that ends at 3"),
        ([(3, 5), (0, 2)], r"\(0, 2\) as number 1"),
        (np.array([[0, 2**64 - 1]], dtype=np.uint64), "as number 0"),
        (np.zeros((2, 2, 2), dtype=int), "as number 0"),
        (np.zeros((2, 2)), "as number 0"),
        (np.array(5), "no list"),
    ],
)
def test_wrong_spans(pieces: object, message: str) -> None:
    with pytest.raises(BuilderError, match=re.compile(message, re.S)):
        spans_of(pieces, "to be", "the tokenizer")
