"""From tokens and cuts to the signal tree of a text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from hsa_geo.builders._text_spans import Blanks, Ints
from hsa_geo.builders._text_tokens import Tokens
from hsa_geo.builders.tokens import Field
from hsa_geo.data import Domain, SignalTree

__all__ = ["text_tree"]


class _Nodes(NamedTuple):
    """Nodes of one kind, in reading order."""

    ids: Ints
    start: Ints
    end: Ints


class _Growing:
    """A tree that grows from its leaves to the root."""

    def __init__(self, start: Ints, end: Ints, names: list[str]) -> None:
        self.parent = [np.full(len(start), -1)]
        self.start, self.end = [start], [end]
        self.names = list(names)

    def above(self, kids: Ints, group: Ints, start: Ints, end: Ints, name: str) -> _Nodes:
        """Nodes above others: node ``group[i]`` of the new ones is the parent of ``kids[i]``."""
        ids = len(self.names) + np.arange(len(start))
        self.names += [name] * len(start)
        self.parent.append(np.full(len(start), -1))
        self.start.append(start)
        self.end.append(end)
        parent = np.concatenate(self.parent)
        parent[kids] = ids[group]
        self.parent = [parent]
        return _Nodes(ids, start, end)


def text_tree(
    text: str,
    tokens: Tokens,
    levels: list[tuple[str, Ints]],
    max_group: int | None,
    names: bool,
) -> SignalTree:
    """The tree over tokens.

    Args:
        text: The text.
        tokens: Its tokens, some of them not special.
        levels: Name and beginnings of the inner nodes, the finest first; the beginnings of each
            are among those of the one before.
        max_group: Most children of a node.
        names: Keep ``tree_name``.

    Returns:
        The tree, as :func:`~hsa_geo.builders.from_text` describes it.
    """
    grow = _Growing(tokens.start, tokens.end, tokens.names)
    regular = np.flatnonzero(~tokens.special)
    start, end = tokens.start[regular], tokens.end[regular]
    nodes = _Nodes(regular, start, end)
    blanks = Blanks(text)
    # A token lies where the first character from its beginning on lies that is not blank.
    place = blanks.next[tokens.place[regular]]
    first = np.arange(len(regular))  # the first token of every node
    for name, cuts in levels:
        tile = np.searchsorted(cuts, place, side="right") - 1
        head = np.flatnonzero(np.diff(tile, prepend=-1))
        group = np.cumsum(np.diff(tile, prepend=-1) != 0) - 1
        tile, first = tile[head], first[head]
        spans = _tile_spans(cuts, tile, first, start, end, blanks, len(text))
        nodes, group = _windows(grow, nodes, group, max_group)
        nodes = grow.above(nodes.ids, group, *spans, name)
        place = cuts[tile]
    nodes, group = _windows(grow, nodes, np.zeros(len(place), dtype=np.int64), max_group)
    kids = np.concatenate([nodes.ids, np.flatnonzero(tokens.special)])
    root = np.zeros(len(kids), dtype=np.int64)
    grow.above(kids, root, np.array([0]), np.array([len(text)]), "document")
    return _signal_tree(grow, tokens, names)


def _tile_spans(
    cuts: Ints, tile: Ints, first: Ints, start: Ints, end: Ints, blanks: Blanks, n: int
) -> tuple[Ints, Ints]:
    """Spans of tiles: without blanks at their ends, but with the whole of their tokens.

    Args:
        cuts: Beginnings of all tiles.
        tile: ``[k]``, the tiles that have tokens.
        first: ``[k]``, the first token of each.
        start, end: Spans of all tokens.
        blanks: Where the text is not blank.
        n: Number of characters.
    """
    stop = np.append(cuts, n)[tile + 1]
    reach = end[np.append(first[1:], len(end)) - 1]  # of its last token
    before = np.append(0, reach[:-1])
    own = blanks.next[np.maximum(cuts[tile], before)]  # its end or more if it is blank
    return (
        np.minimum(own, start[first]),
        np.maximum(np.where(own < stop, blanks.last[stop], 0), reach),
    )


def _windows(grow: _Growing, nodes: _Nodes, group: Ints, limit: int | None) -> tuple[_Nodes, Ints]:
    """Windows of about equal size over the nodes of every group that has more than the limit.

    Args:
        grow: The tree, which the windows are added to.
        nodes: Nodes without a parent.
        group: The group of each, ``0..G-1`` in order.
        limit: Most nodes of a group, at least 2.

    Returns:
        The nodes that the groups have now, and the group of each.
    """
    while limit is not None:
        size = np.bincount(group)
        if size.max() <= limit:
            break
        large = size[group] > limit
        rank = np.arange(len(group)) - (np.cumsum(size) - size)[group]
        number = -(-size // limit)[group]
        window = rank * number // size[group]
        head = ~large | (np.diff(group, prepend=-1) != 0) | (np.diff(window, prepend=-1) != 0)
        unit = np.cumsum(head) - 1
        at = np.flatnonzero(head)
        last = np.append(at[1:], len(group)) - 1
        made = np.flatnonzero(large[at])  # the units that are windows
        order = np.full(len(at), -1)
        order[made] = np.arange(len(made))
        windows = grow.above(
            nodes.ids[large],
            order[unit[large]],
            nodes.start[at[made]],
            nodes.end[last[made]],
            "window",
        )
        ids, start, end = nodes.ids[at], nodes.start[at], nodes.end[last]
        ids[made] = windows.ids
        nodes, group = _Nodes(ids, start, end), group[at]
    return nodes, group


def _signal_tree(grow: _Growing, tokens: Tokens, names: bool) -> SignalTree:
    fields = np.full(len(tokens.ids), int(Field.WORD))
    span = np.stack([np.concatenate(grow.start), np.concatenate(grow.end)], axis=1)
    tree: SignalTree = SignalTree.from_parents(
        np.concatenate(grow.parent),
        domain=Domain.SEQUENCE,
        name=grow.names if names else None,
        tree_span=torch.from_numpy(span),
        text_x=torch.from_numpy(np.stack([tokens.ids, fields], axis=1)),
        text_index=torch.from_numpy(np.repeat(np.arange(len(tokens.counts)), tokens.counts)),
    )
    parent, child = tree.tree_index
    # Siblings stand in order, the groups of one parent side by side.
    begin = torch.searchsorted(parent, parent)
    tree.tree_pos[child, 0] = (torch.arange(len(child)) - begin).float()
    return tree
