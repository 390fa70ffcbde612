"""Expressions of lists, against a slow evaluator of their text."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsa_geo.datasets.listops_notation import CLOSE, TOKENS, Expressions, draw_expressions
from hsa_geo.errors import BuilderError, ShapeError

OPERATORS = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda args: int(statistics.median(args)),
    "[SM": lambda args: sum(args) % 10,
}


def evaluate(text: str) -> int:
    """A stack of lists, token by token."""
    stack: list[list] = [[]]
    for token in text.split():
        if token in OPERATORS:
            stack.append([token])
        elif token == "]":
            operator, *args = stack.pop()
            stack[-1].append(OPERATORS[operator](args))
        else:
            stack[-1].append(int(token))
    (value,) = stack[0]
    return value


def nested_lists(depth: int):
    """Texts of expressions, single digits and lists of one argument too."""
    digit = st.integers(0, 9).map(str)
    if depth == 0:
        return digit
    args = st.lists(nested_lists(depth - 1), min_size=1, max_size=4)
    lists = st.tuples(st.sampled_from(list(OPERATORS)), args)
    return digit | lists.map(lambda pair: " ".join([pair[0], *pair[1], "]"]))


def test_values_of_drawn_expressions():
    drawn = draw_expressions(1500, np.random.default_rng(0), max_depth=6, max_args=6, nested=0.35)
    texts = [drawn.text(i) for i in range(len(drawn))]
    assert drawn.values().tolist() == [evaluate(text) for text in texts]


@settings(max_examples=150, deadline=None)
@given(st.lists(nested_lists(4), min_size=1, max_size=5))
def test_values_and_texts_of_any_expressions(texts):
    parsed = Expressions.parse(texts)
    assert [parsed.text(i) for i in range(len(parsed))] == texts
    assert parsed.values().tolist() == [evaluate(text) for text in texts]


@settings(max_examples=50, deadline=None)
@given(nested_lists(4))
def test_values_of_every_list(text):
    parsed = Expressions.parse([text])
    values, depth = parsed.list_values(), parsed.layout().depth
    words = text.split()
    for start, word in enumerate(words):
        if word == "]":
            assert values[start] == -1
        elif word in OPERATORS:
            end = next(
                i for i in range(start, len(words)) if words[i] == "]" and depth[i] == depth[start]
            )
            assert values[start] == evaluate(" ".join(words[start : end + 1]))
        else:
            assert values[start] == int(word)


def test_layout_by_hand():
    lay = Expressions.parse(["7", "[MAX 1 [SM 2 3 ] 4 ]"]).layout()
    assert lay.expression.tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert lay.depth.tolist() == [0, 1, 1, 2, 2, 2, 2, 1, 1]
    assert lay.inside.tolist() == [-1, 1, 1, 3, 3, 3, 3, 1, 1]
    assert lay.above.tolist() == [-1, -1, -1, 1, -1, -1, -1, -1, -1]


def test_what_is_drawn():
    drawn = draw_expressions(3000, np.random.default_rng(1), max_depth=3, max_args=4, nested=0.4)
    lay = drawn.layout()
    assert lay.depth.max() == 3
    args = np.bincount(lay.inside[drawn.tokens < 10], minlength=len(lay.depth))
    args += np.bincount(lay.above[lay.above >= 0], minlength=len(lay.depth))
    numbers = args[lay.is_open]
    assert set(numbers) == {2, 3, 4}
    assert abs((numbers == 3).mean() - 1 / 3) < 0.03
    inner = (lay.depth[lay.is_open] > 1).sum()
    could = inner + ((drawn.tokens < 10) & (lay.depth < 3)).sum()
    assert abs(inner / could - 0.4) < 0.03
    for kinds in (range(10), range(10, 14)):
        counts = np.bincount(drawn.tokens, minlength=len(TOKENS))[list(kinds)]
        assert counts.max() < 1.2 * counts.min()


def test_the_same_seed_gives_the_same():
    one, two, other = (draw_expressions(50, np.random.default_rng(s)) for s in (3, 3, 4))
    assert one.encoded() == two.encoded()
    assert one.encoded() != other.encoded()


def test_picked_and_joined():
    drawn = draw_expressions(20, np.random.default_rng(0))
    again = Expressions.join([drawn[:7], drawn[np.array([], dtype=np.int64)], drawn[7:]])
    assert again.encoded() == drawn.encoded()
    picked = drawn[np.array([5, 0, 5])]
    assert picked.encoded() == [drawn.encoded()[i] for i in (5, 0, 5)]
    assert len(Expressions.join([])) == 0


def test_nothing_at_all():
    empty = Expressions.parse([])
    assert len(empty) == 0
    assert empty.values().tolist() == []
    assert draw_expressions(0, np.random.default_rng(0)).encoded() == []


def test_very_deep():
    text = "[MAX 1 " * 5000 + "9 " + "] " * 5000
    assert Expressions.parse([text, "[SM 5 6 ]"]).values().tolist() == [9, 1]


@pytest.mark.parametrize(
    "text",
    ["", "[MAX ]", "[MAX 1", "1 ]", "]", "[MAX", "1 2", "[MAX 1 ] 2", "[MAX 1 ] ]", "[SM 1 ] [SM"],
)
def test_broken_expressions(text):
    with pytest.raises(BuilderError, match="no expression"):
        Expressions.parse(["[MIN 1 2 ]", text, "3"])


@pytest.mark.parametrize("text", ["[AVG 1 2 ]", "10", "[MAX 1 2]", "-1"])
def test_unknown_tokens(text):
    with pytest.raises(BuilderError, match="is no token"):
        Expressions.parse([text])


@pytest.mark.parametrize(
    "options", [{"max_depth": 0}, {"max_args": 1}, {"nested": 1.5}, {"count": -1}]
)
def test_what_cannot_be_drawn(options):
    with pytest.raises(ShapeError, match=f"{next(iter(options))}="):
        draw_expressions(options.pop("count", 1), np.random.default_rng(0), **options)


def test_closing_bracket_is_last():
    assert TOKENS[CLOSE] == "]"
