"""Trees over tokens, from labels: which window each token lies in, at every level.

Encoders call for a tree in every forward pass, so trees are made of arrays and not of objects: a
*label* of a level is a number for every token, equal for the tokens of one node, and -1 where the
token has no node at that level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hsa_geo.data.plan import TreePlan

__all__ = ["Tokens", "grid_labels", "plan_from_labels", "runs", "several_runs", "window_labels"]


@dataclass(frozen=True)
class Tokens:
    """The tokens of a batch that are no padding, text by text; N of them.

    Attributes:
        text: ``[N]``, number of each token's text (or picture), not decreasing.
        place: ``[N]``, its place in the padded row.
        special: ``[N]`` bool, whether it is special, such as a class token or a separator.
        ids: ``[N]``, its id in the vocabulary, or None.
        grid: Rows and columns of the patches, for pictures.
        num_texts: Number of texts.
    """

    text: Tensor
    place: Tensor
    special: Tensor
    ids: Tensor | None
    grid: tuple[int, int] | None
    num_texts: int


def runs(tokens: Tokens) -> Tensor:
    """Runs of ordinary tokens between special ones.

    Args:
        tokens: The tokens.

    Returns:
        ``[N]``, number of each token's run over all texts, increasing; -1 for special tokens.

    Example:
        >>> special = torch.tensor([True, False, False, True, False, True])
        >>> zero = torch.zeros(6, dtype=torch.int64)
        >>> runs(Tokens(zero, torch.arange(6), special, None, None, 1)).tolist()
        [-1, 0, 0, -1, 1, -1]
    """
    ordinary = ~tokens.special
    starts = ordinary.clone()
    starts[1:] &= ~ordinary[:-1] | (tokens.text[1:] != tokens.text[:-1])
    return torch.where(ordinary, starts.cumsum(0) - 1, -1)


def several_runs(tokens: Tokens, group: Tensor) -> list[Tensor]:
    """A level of the runs of texts that have more than one, such as the two of a pair.

    Args:
        tokens: The tokens.
        group: ``[N]``, run of every token, -1 for none; see :func:`runs`.

    Returns:
        No level, or one.

    Example:
        >>> special = torch.tensor([True, False, False, True, False, True])
        >>> zero = torch.zeros(6, dtype=torch.int64)
        >>> tokens = Tokens(zero, torch.arange(6), special, None, None, 1)
        >>> several_runs(tokens, runs(tokens))
        [tensor([-1,  0,  0, -1,  1, -1])]
    """
    inside = group >= 0
    value, place = torch.unique(group[inside], return_inverse=True)
    of = torch.empty_like(value)
    of[place] = tokens.text[inside]
    many = (torch.bincount(of, minlength=tokens.num_texts) > 1)[tokens.text]
    return [torch.where(many, group, -1)] if bool((many & inside).any()) else []


def window_labels(group: Tensor, window: int) -> list[Tensor]:
    """Windows of ``window`` members, windows of windows, and so on, within each group, until no
    group has more than ``window`` of them.

    Args:
        group: ``[N]``, group of every token, whose tokens lie side by side; -1 for none.
        window: Members of a window, at least 2.

    Returns:
        Labels ``[N]`` of each level, lowest first.

    Example:
        >>> [level.tolist() for level in window_labels(torch.tensor([0, 0, 0, 0, 0, -1]), 2)]
        [[0, 0, 1, 1, 2, -1], [0, 0, 0, 0, 1, -1]]
    """
    inside = group >= 0
    change = torch.ones_like(inside)
    change[1:] = group[1:] != group[:-1]
    at = torch.arange(len(group), device=group.device)
    begin = torch.where(change, at, 0).cummax(0).values
    rank = at - begin
    run = change.cumsum(0) - 1
    count = torch.bincount(run) if len(group) else run
    out: list[Tensor] = []
    while True:
        wide = inside & (count > window)[run] if len(group) else inside
        if not bool(wide.any()):
            break
        count = torch.where(count > window, (count + window - 1) // window, count)
        rank = torch.where(wide, rank // window, rank)
        first = torch.ones_like(inside)
        first[1:] = (rank[1:] != rank[:-1]) | change[1:]
        out.append(torch.where(wide, first.cumsum(0) - 1, -1))
    return out


def grid_labels(row: Tensor, column: Tensor, picture: Tensor, window: int) -> list[Tensor]:
    """Squares of ``window`` by ``window`` patches, squares of squares, and so on.

    Args:
        row: ``[N]``, row of every patch; -1 for tokens that are none.
        column: ``[N]``, its column.
        picture: ``[N]``, its picture.
        window: Side of a square, at least 2.

    Returns:
        Labels ``[N]`` of each level, lowest first, as long as a picture has more squares than one
        square would hold.

    Example:
        >>> row, column = torch.arange(16) // 4, torch.arange(16) % 4
        >>> grid_labels(row, column, row * 0, 2)[0].view(4, 4).tolist()
        [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    """
    patch = row >= 0
    out: list[Tensor] = []
    if not bool(patch.any()):
        return out
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    while rows > window or columns > window:
        row, column = row // window, column // window  # -1 stays -1
        rows, columns = -(-rows // window), -(-columns // window)
        label = (picture * rows + row) * columns + column
        out.append(torch.where(patch, label, -1))
    return out


def plan_from_labels(text: Tensor, labels: Sequence[Tensor], num_texts: int) -> TreePlan:
    """The plan of one tree for each text: its tokens are the leaves, labels their ancestors.

    Args:
        text: ``[N]``, text of every token.
        labels: Of each level, lowest first, ``[N]``; -1 where a token has no node at that level.
            Tokens of one label must share all labels above it.
        num_texts: Number of texts; those without tokens get no tree.

    Returns:
        The plan; leaf i is token i, and trees come in the order of the texts.

    Example:
        >>> label = torch.tensor([-1, 0, 0, 1, 1])
        >>> plan_from_labels(torch.zeros(5, dtype=torch.int64), [label], 1)
        TreePlan(trees=1, leaves=5, nodes=8, groups=3, levels=3, pairs=10)
    """
    device, n = text.device, len(text)
    top = torch.arange(n, device=device)  # highest node so far above every token
    parents: list[Tensor] = []  # of all nodes in order of their ids, level by level of labels
    child_ids: list[Tensor] = []
    total = n
    sizes = [n]
    present = torch.bincount(text, minlength=num_texts) > 0
    root = present.cumsum(0) - 1  # number of each text's tree
    for label in [*labels, root[text]]:
        has = label >= 0
        value, place = torch.unique(label[has], return_inverse=True)
        below, parent = top[has], place + total
        child_ids.append(below)
        parents.append(parent)
        top = top.masked_scatter(has, parent)
        total += len(value)
        sizes.append(len(value))
    parent_of = torch.full((total,), -1, dtype=torch.int64, device=device)
    for below, parent in zip(child_ids, parents):
        parent_of[below] = parent
    level = torch.zeros(total, dtype=torch.int64, device=device)
    high = total - sizes[-1]
    for size in reversed(sizes[:-1]):  # every parent lies in a block of higher ids
        low = high - size
        level[low:high] = level[parent_of[low:high]] + 1
        high = low
    child = torch.sort(parent_of, stable=True).indices[sizes[-1] :]
    return TreePlan.from_index(torch.stack([parent_of[child], child]), level)
