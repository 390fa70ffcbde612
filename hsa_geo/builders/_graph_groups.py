"""How the nodes of any networkx graph are grouped: the kinds of ``hierarchy=``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from torch import Tensor

from hsa_geo.builders._graph_attrs import Attrs, attribute_of, shown, text_of
from hsa_geo.builders._graph_edges import parts_of
from hsa_geo.builders._louvain import Ints
from hsa_geo.builders.communities import partition_recursively
from hsa_geo.errors import BuilderError

__all__ = ["Groups", "by_attributes", "by_function", "by_nesting"]


@dataclass(frozen=True)
class Groups:
    """A hierarchy over n graph nodes.

    Attributes:
        parent: ``[M]``, parents: graph nodes ``0..n-1`` in the order of ``nodes``, then groups.
        nodes: Labels of the graph nodes in reading order.
        keys: Of every group the key or value that its source calls it by, :obj:`None` if none.
    """

    parent: Ints
    nodes: list[Hashable]
    keys: list[Any]

    @classmethod
    def plain(cls, parent: Ints, nodes: list[Hashable]) -> Groups:
        """Groups that have no names.

        Example:
            >>> Groups.plain(np.array([2, 2, -1]), ["a", "b"]).keys
            [None]
        """
        return cls(parent, nodes, [None] * (len(parent) - len(nodes)))


def by_attributes(nodes: list[Hashable], attrs: Attrs, path: Sequence[Any]) -> Groups:
    """Group by the values of attributes, the coarsest first.

    Example:
        >>> attrs = {1: {"city": "Rome"}, 2: {"city": "Bern"}, 3: {"city": "Rome"}}
        >>> groups = by_attributes([1, 2, 3], attrs, ["city"])
        >>> groups.parent.tolist(), groups.keys
        ([4, 5, 4, -1, 3, 3], [None, 'Rome', 'Bern'])
    """
    if not path:
        raise BuilderError("hierarchy=() names no attribute: give one or several.")
    n = len(nodes)
    group_of: dict[tuple[int, Hashable], int] = {}
    parent, above, keys = [0] * n, [-1], [None]
    for i, node in enumerate(nodes):
        group = n
        for attribute in path:
            value = attribute_of(attrs, node, attribute)
            try:
                with np.errstate(all="ignore"):  # numpy's floats overflow beside large numbers
                    known = group_of.get((group, value))
                # Neither nan nor a tensor is the same as another one.
                same = bool(value == value) and not isinstance(value, Tensor)
            except Exception:  # whatever the values' own comparison raises
                same = False
            if not same:
                raise BuilderError(
                    f"node {shown(node)} has {shown(attribute)} = {shown(value)}, by which nothing "
                    "can be grouped: give strings or numbers."
                )
            if known is None:
                known = group_of[group, value] = n + len(above)
                above.append(group)
                keys.append(value)
            group = known
        parent[i] = group
    return Groups(np.array(parent + above), nodes, keys)


def by_nesting(nodes: list[Hashable], structure: Any) -> Groups:
    """Group by nested dicts (name: content), lists, tuples and sets of labels.

    What is a label of the graph is a leaf; in a dict only values are looked at, keys are names.
    The leaves come in reading order, in a set in the order of the graph.

    Example:
        >>> groups = by_nesting(["a", "b", "c"], {"x": ["c", "a"], "y": "b"})
        >>> groups.nodes, groups.parent.tolist(), groups.keys
        (['c', 'a', 'b'], [4, 4, 5, -1, 3, 3], [None, 'x', 'y'])
    """
    n = len(nodes)
    place = {node: i for i, node in enumerate(nodes)}
    order: list[Hashable] = []
    home: dict[Hashable, int] = {}
    above, keys, filled = [-1], [None], [False]
    open_now = {id(structure)}
    stack = [(0, structure, _contents(structure, place))]
    while stack:
        group, container, items = stack[-1]
        try:
            key, content, named = next(items)
        except StopIteration:
            if not filled[group]:
                raise BuilderError(
                    f"the group {_called(keys[group])}of hierarchy holds no nodes: leave it out."
                ) from None
            stack.pop()
            open_now.discard(id(container))
            continue
        filled[group] = True
        leaf = _is_node(content, place)
        if named or not leaf:
            above.append(group)
            keys.append(key)
            filled.append(leaf)
            group = len(above) - 1
        if leaf:
            if content in home:
                raise BuilderError(
                    f"node {shown(content)} is in two groups of hierarchy: name it once."
                )
            home[content] = group
            order.append(nodes[place[content]])
            continue
        if id(content) in open_now:
            raise BuilderError(f"the group {_called(key)}of hierarchy contains itself.")
        open_now.add(id(content))
        stack.append((group, content, _contents(content, place)))
    for node in nodes:
        if node not in home:
            raise BuilderError(
                f"node {shown(node)} is in no group of hierarchy: add it, or give "
                "graph.subgraph(nodes) without it."
            )
    parent = [n + home[node] for node in order]
    parent += [n + group if group >= 0 else -1 for group in above]
    return Groups(np.array(parent), order, keys)


def _called(key: Any) -> str:
    return "" if key is None else f"{shown(key)} "


def _is_node(item: Any, place: Mapping[Hashable, int]) -> bool:
    try:
        return item in place
    except TypeError:  # unhashable
        return False


def _contents(container: Any, place: Mapping[Hashable, int]) -> Iterator[tuple[Any, Any, bool]]:
    """(key, content, whether the key names a group) of all that a container holds."""
    if isinstance(container, Mapping):
        return iter([(key, content, True) for key, content in container.items()])
    if isinstance(container, Set):

        def first(item: Any) -> int:
            below = [item] if _is_node(item, place) or not isinstance(item, Iterable) else item
            return min((place[x] for x in below if _is_node(x, place)), default=len(place))

        container = sorted(container, key=first)
    try:
        if isinstance(container, (str, bytes)):
            raise TypeError
        items = iter(container)
    except TypeError:
        raise BuilderError(
            f"hierarchy holds {shown(container)}, which is no node of the graph: give labels of "
            "nodes, and dicts, lists or sets of them."
        ) from None
    return ((None, item, False) for item in items)


def by_function(
    graph: nx.Graph, nodes: list[Hashable], function: Callable[[Any], Any], max_group: int
) -> Groups:
    """Group by a partition function, applied to groups of more than ``max_group`` nodes again.

    Example:
        >>> groups = by_function(nx.Graph(["ab", "cd"]), list("abcd"), nx.connected_components, 2)
        >>> groups.parent.tolist()
        [5, 5, 6, 6, -1, 4, 4]
    """
    place = {node: i for i, node in enumerate(nodes)}

    def split(group: nx.Graph, members: Ints) -> tuple[list[Ints], Callable[[int], nx.Graph]]:
        try:
            found = _blocks(function(group))
        except Exception as error:
            raise BuilderError(
                f"hierarchy={shown(function)} failed on a group of {len(members)} nodes with node "
                f"{shown(nodes[members[0]])}: {type(error).__name__}: {text_of(error)}."
            ) from error
        parts = _checked(found, nodes, members, place)
        subgraphs: list[nx.Graph | None] = []

        def content_of(k: int) -> nx.Graph:
            if not subgraphs:
                labels = [[nodes[i] for i in part.tolist()] for part in parts]
                subgraphs.extend(parts_of(group, labels, [len(p) > max_group for p in labels]))
            return subgraphs[k]

        return parts, content_of

    parent = partition_recursively(len(nodes), split, graph, max_group)
    return Groups.plain(parent, nodes)


def _blocks(partition: Any) -> list[list[Hashable]]:
    """Blocks of nodes from an iterable of them, or from the block of every node."""
    if isinstance(partition, Mapping):
        blocks: dict[Hashable, list[Hashable]] = {}
        for node, block in partition.items():
            blocks.setdefault(block, []).append(node)
        return list(blocks.values())
    found = []
    for block in partition:
        if isinstance(block, (str, bytes)):
            raise TypeError(f"it gives {shown(block)} as a group, which is no set of nodes")
        found.append(list(block))
    return found


def _checked(
    blocks: list[list[Hashable]],
    nodes: list[Hashable],
    members: Ints,
    place: Mapping[Hashable, int],
) -> list[Ints]:
    """The blocks as places in order; BuilderError unless each member is in exactly one."""
    owner = dict.fromkeys(members.tolist(), -1)
    for k, block in enumerate(blocks):
        for node in block:
            i = place[node] if _is_node(node, place) else -1
            if owner.get(i) != -1:
                what = "two groups" if i in owner else "a group, which it was not given"
                raise BuilderError(
                    f"the partition puts node {shown(node)} into {what}: give every node one group."
                )
            owner[i] = k
    for i, k in owner.items():
        if k < 0:
            raise BuilderError(
                f"the partition leaves out node {shown(nodes[i])}: give every node one group."
            )
    which = np.array(list(owner.values()))  # members are in increasing order
    order = np.argsort(which, kind="stable")
    parts = np.split(members[order], np.cumsum(np.bincount(which))[:-1])
    return sorted((part for part in parts if len(part)), key=lambda part: int(part[0]))
