"""Nested list operations as arrays of tokens: draw, evaluate, write and read them, all at once.

ListOps (`Nangia and Bowman, 2018 <https://arxiv.org/abs/1804.06028>`_): ``[MAX 2 9 [MIN 4 7 ] 0 ]``
is the larger of 2, 9, the smaller of 4 and 7, and 0.  An expression is a list or a digit; a list
has an operator and arguments, which are expressions.  Operators: ``MAX``, ``MIN``, ``MED`` (the
median, rounded down) and ``SM`` (the sum modulo 10).

Many expressions stand one after the other in one array of token ids (:data:`TOKENS`): digits are
0..9, then the four operators, each with the bracket that opens its list, then ``]``.  An
expression is given by its tokens alone, so its hierarchy, value and text all follow from them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsa_geo.errors import BuilderError, ShapeError

__all__ = ["CLOSE", "TOKENS", "Expressions", "Layout", "draw_expressions"]

#: Names of the token ids.
TOKENS = (*"0123456789", "[MAX", "[MIN", "[MED", "[SM", "]")
#: The first operator, and the closing bracket.
MAX, CLOSE = 10, 14

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where the tokens stand in the hierarchy.

    Attributes:
        expression: ``[T]``, expression of every token.
        is_open: ``[T]`` bool, operators.
        depth: ``[T]``, number of lists that every token is in; an operator and the closing
            bracket are in their own list.
        inside: ``[T]``, token (operator) of the list that every token is in, -1 for none.
        above: ``[T]``, for an operator the operator of the list around its list, -1 for none and
            for other tokens.
    """

    expression: Ints
    is_open: NDArray[np.bool_]
    depth: Ints
    inside: Ints
    above: Ints


@dataclass(frozen=True)
class Expressions:
    """Expressions as tokens, one after the other.

    Attributes:
        tokens: ``[T]`` uint8, ids of :data:`TOKENS`.
        ptr: ``[E + 1]``, the tokens of expression e are ``ptr[e]:ptr[e+1]``.

    Example:
        >>> some = Expressions.parse(["[MAX 2 9 [MIN 4 7 ] 0 ]", "[SM 8 5 ]"])
        >>> some.values().tolist(), some.text(1), len(some)
        ([9, 3], '[SM 8 5 ]', 2)
    """

    tokens: NDArray[np.uint8]
    ptr: Ints

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def __getitem__(self, index: Ints | slice) -> Expressions:
        """Some of the expressions, in the order of the index array or slice."""
        pick = np.arange(len(self))[index]
        size = np.diff(self.ptr)[pick]
        ptr = np.append(0, np.cumsum(size))
        at = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][pick] - ptr[:-1], size)
        return Expressions(self.tokens[at], ptr)

    @classmethod
    def join(cls, parts: list[Expressions]) -> Expressions:
        """One after the other.

        Example:
            >>> len(Expressions.join([Expressions.parse(["1"]), Expressions.parse(["2", "3"])]))
            3
        """
        sizes = [np.diff(part.ptr) for part in parts]
        ptr = np.append(0, np.cumsum(np.concatenate([*sizes, np.empty(0, np.int64)])))
        tokens = [part.tokens for part in parts]
        return cls(np.concatenate([*tokens, np.empty(0, np.uint8)]), ptr.astype(np.int64))

    @classmethod
    def parse(cls, texts: list[str]) -> Expressions:
        """Read expressions.

        Args:
            texts: Expressions, tokens separated by white space.  Parentheses, which the files of
                the original data and of the Long Range Arena hold, say nothing and are skipped.

        Returns:
            The expressions.

        Raises:
            BuilderError: If a token is unknown, brackets do not fit, a list has no arguments, or
                there is more than one expression in a text.

        Example:
            >>> Expressions.parse(["( ( ( [MED 3 ) 8 ) ] )"]).values().tolist()
            [5]
        """
        ids = {token: number for number, token in enumerate(TOKENS)}
        tokens: list[int] = []
        ptr = [0]
        for text in texts:
            words = [word for word in text.split() if word not in ("(", ")")]
            unknown = [word for word in words if word not in ids]
            if unknown:
                raise BuilderError(
                    f"{unknown[0]!r} in {text[:60]!r} is no token: use {' '.join(TOKENS)}."
                )
            tokens += [ids[word] for word in words]
            ptr.append(len(tokens))
        out = cls(np.array(tokens, dtype=np.uint8), np.array(ptr, dtype=np.int64))
        bad = out._broken()
        if bad >= 0:
            raise BuilderError(
                f"{texts[bad][:60]!r} is no expression: give one digit or one list such as "
                "'[MAX 1 2 ]', with an argument at least and a bracket for every operator."
            )
        return out

    def _broken(self) -> int:
        """The first text that is no expression, or -1."""
        empty = np.flatnonzero(np.diff(self.ptr) == 0)
        change = ((self.tokens >= MAX) & (self.tokens < CLOSE)).astype(np.int64)
        change -= self.tokens == CLOSE
        depth = np.cumsum(change)  # behind every token
        of = np.repeat(np.arange(len(self)), np.diff(self.ptr))
        before = np.append(0, depth)[self.ptr[of]]
        depth = depth - before
        last = np.zeros(len(depth), dtype=bool)
        last[self.ptr[1:][np.diff(self.ptr) > 0] - 1] = True
        bad = np.where(last, depth != 0, depth <= 0)  # ends at 0 and not before
        bad |= last & (change > 0)
        bad[1:] |= (change[1:] < 0) & (change[:-1] > 0)  # "[MAX ]"
        bad |= depth < 0
        found = np.concatenate([empty, of[bad]])
        return int(found.min()) if found.size else -1

    def text(self, index: int) -> str:
        """An expression as it is written."""
        return " ".join(TOKENS[t] for t in self.tokens[self.ptr[index] : self.ptr[index + 1]])

    def encoded(self) -> list[bytes]:
        """The tokens of every expression as bytes, by which equal ones are found."""
        whole = self.tokens.tobytes()
        return [whole[a:b] for a, b in zip(self.ptr[:-1].tolist(), self.ptr[1:].tolist())]

    def layout(self) -> Layout:
        """Where the tokens stand; see :class:`Layout`."""
        tokens = self.tokens
        is_open, close = (tokens >= MAX) & (tokens < CLOSE), tokens == CLOSE
        depth = np.cumsum(is_open) - np.cumsum(close) + close
        inside = _last_open(depth, is_open, depth)
        above = np.where(is_open, _last_open(depth - is_open, is_open, depth), -1)
        inside = np.where(depth > 0, inside, -1)
        expression = np.repeat(np.arange(len(self)), np.diff(self.ptr))
        return Layout(expression, is_open, depth, inside, above)

    def list_values(self) -> Ints:
        """Values ``[T]``: of digits themselves, at operators those of their lists; else -1."""
        lay = self.layout()
        value = np.where(self.tokens < MAX, self.tokens.astype(np.int64), -1)
        # Arguments: digits, and operators for their lists; by the list that they are in.
        owner = np.where(lay.is_open, lay.above, lay.inside)
        argument = (owner >= 0) & (self.tokens != CLOSE)
        argument_at = np.flatnonzero(argument)
        level = lay.depth[owner[argument_at]]  # of the list
        order = np.lexsort((owner[argument_at], -level))
        argument_at, level = argument_at[order], level[order]
        cuts = np.flatnonzero(np.diff(level)) + 1
        for at in np.split(argument_at, cuts) if len(argument_at) else []:
            lists, start = np.unique(owner[at], return_index=True)
            value[lists] = _reduce(self.tokens[lists], value[at], start)
        return value

    def values(self) -> Ints:
        """Values ``[E]`` of the expressions."""
        return self.list_values()[self.ptr[:-1]]


def _last_open(depth: Ints, is_open: NDArray[np.bool_], open_depth: Ints) -> Ints:
    """For every token the last operator before it (or it) whose depth is the given one, or -1."""
    n = len(depth)
    queries = np.arange(n)
    opens = np.flatnonzero(is_open)
    # Sort operators and queries by (depth, position); an operator's own query at its depth
    # follows it, so that a token is in the list that it opens.
    d = np.concatenate([open_depth[opens], depth])
    p = np.concatenate([2 * opens, 2 * queries + 1])
    order = np.lexsort((p, d))
    found = np.where(order < len(opens), order, -1)
    new = np.append(True, np.diff(d[order]) != 0)
    start = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    place = np.maximum.accumulate(np.where(found >= 0, np.arange(len(order)), -1))
    last = np.where(place >= start, found[np.maximum(place, 0)], -1)
    out = np.full(n, -1)
    is_query = order >= len(opens)
    hit = last[is_query]
    out[order[is_query] - len(opens)] = np.where(hit >= 0, opens[hit], -1) if len(opens) else -1
    return out


def _reduce(operator: NDArray[np.uint8], value: Ints, start: Ints) -> Ints:
    """Values of lists whose arguments are consecutive."""
    count = np.diff(np.append(start, len(value)))
    ordered = value[np.lexsort((value, np.repeat(np.arange(len(start)), count)))]
    middle = (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) // 2
    by_operator = (
        ordered[start + count - 1],
        ordered[start],
        middle,
        np.add.reduceat(value, start) % 10,
    )
    return np.choose(operator.astype(np.int64) - MAX, by_operator)


def draw_expressions(
    count: int,
    rng: np.random.Generator,
    *,
    max_depth: int = 4,
    max_args: int = 5,
    nested: float = 0.25,
) -> Expressions:
    """Random lists, as those of the original data are drawn.

    Every argument is a list with probability ``nested``, unless it would lie in ``max_depth``
    lists; else a digit.  Operators, digits and numbers of arguments (from 2) are uniform.  Unlike
    there an expression is never a single digit.

    Args:
        count: Number of expressions.
        rng: Where randomness comes from.
        max_depth: Largest number of lists around an argument. (default: ``4``)
        max_args: Largest number of arguments. (default: ``5``)
        nested: Probability of a list. (default: ``0.25``)

    Returns:
        The expressions.

    Raises:
        ShapeError: If a number is too small or no probability.

    Example:
        >>> draw_expressions(1, np.random.default_rng(3), max_depth=2).text(0)
        '[SM 1 [SM 4 6 4 ] ]'
    """
    if count < 0 or max_depth < 1 or max_args < 2 or not 0 <= nested <= 1:
        raise ShapeError(
            f"count={count}, max_depth={max_depth}, max_args={max_args}, nested={nested}: at least "
            "0, 1 and 2, and a probability, are needed."
        )
    parents, kinds, bounds = [np.full(count, -1)], [rng.integers(MAX, CLOSE, count)], [0, count]
    for depth in range(1, max_depth + 1):
        lists = np.flatnonzero(kinds[-1] >= MAX) + bounds[-2]
        args = rng.integers(2, max_args + 1, len(lists))
        parent = np.repeat(lists, args)
        kind = rng.integers(0, 10, len(parent))
        if depth < max_depth:
            operator = rng.integers(MAX, CLOSE, len(parent))
            kind = np.where(rng.random(len(parent)) < nested, operator, kind)
        parents.append(parent)
        kinds.append(kind)
        bounds.append(bounds[-1] + len(parent))
    parent, kind = np.concatenate(parents), np.concatenate(kinds)
    size = np.where(kind >= MAX, 2, 1)  # number of tokens
    for low, high in zip(bounds[-2:0:-1], bounds[:0:-1]):
        np.add.at(size, parent[low:high], size[low:high])
    start = np.zeros(len(kind), dtype=np.int64)
    start[:count] = np.cumsum(size[:count]) - size[:count]
    for low, high in itertools.pairwise(bounds[1:]):
        # Siblings are consecutive: those before, within the same parent.
        before = np.cumsum(size[low:high]) - size[low:high]
        own = parent[low:high]
        first = np.append(True, np.diff(own) != 0) if high > low else np.empty(0, bool)
        base = np.maximum.accumulate(np.where(first, np.arange(high - low), 0))
        start[low:high] = start[own] + 1 + before - before[base]
    tokens = np.full(int(size[:count].sum()), CLOSE, dtype=np.uint8)
    tokens[start] = kind
    return Expressions(tokens, np.append(0, np.cumsum(size[:count])).astype(np.int64))
