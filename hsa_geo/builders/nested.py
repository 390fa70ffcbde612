"""Signal trees from nested signals, and back.

A nested signal is written with :class:`~hsa_geo.builders.Sequence`,
:class:`~hsa_geo.builders.Set`, :class:`~hsa_geo.builders.Grid`,
:class:`~hsa_geo.builders.Graph` and :class:`~hsa_geo.builders.Leaf`, or with plain Python: a list
or tuple is a sequence, a set a set, a dict a set of named children, an array or tensor of any
shape one leaf, a number a leaf of one feature.  So ``[[1, 2], [3]]`` has three leaves, and
``np.array([1, 2])`` is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.builders._arguments import check_flags, check_size
from hsa_geo.builders._fold import features_of, fold
from hsa_geo.builders._rows import cast
from hsa_geo.builders._signal_checks import check_modality, short
from hsa_geo.builders._unfold import Unfolded, unfold
from hsa_geo.builders.signals import Signal
from hsa_geo.data import SignalTree
from hsa_geo.errors import BuilderError

__all__ = ["from_nested", "same_signal", "to_nested"]

#: Most leaves, so that a few lists that share their parts cannot fill the memory.
MAX_LEAVES = 2**24


def from_nested(
    signal: Any,
    *,
    modalities: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = torch.float32,
    names: bool | None = None,
    links: bool | None = None,
    like: SignalTree | None = None,
    max_leaves: int | None = MAX_LEAVES,
    max_depth: int | None = None,
) -> SignalTree:
    """Build a tree from a nested signal.

    Which attributes the tree has follows from the signal, unless they are fixed: trees that are
    to be batched need the same ones, so give all of them ``modalities``, ``names`` and ``links``,
    or ``like=`` one of them.

    Args:
        signal: A :class:`~hsa_geo.builders.Sequence`, :class:`~hsa_geo.builders.Set`,
            :class:`~hsa_geo.builders.Grid`, :class:`~hsa_geo.builders.Graph` or
            :class:`~hsa_geo.builders.Leaf`, or plain Python objects as the module says.
        modalities: The modalities of the tree, no more and no less: shape of a leaf's value, or
            (shape, dtype), by name; ``"x"`` for leaves without modality.  A shape alone means
            ``dtype``. (default: those of the signal, in the shapes and types that they have)
        dtype: Type of ``x``; floats are rounded to it.  None keeps the common type of the values
            (Python numbers are int64 or float64). (default: ``torch.float32``)
        names: Whether the tree has ``tree_name``; nodes without name are called ``""``. (default:
            if any node has a name)
        links: Whether the tree has ``tree_link`` and ``tree_link_weight``, the edges of graphs;
            those without weights weigh 1. (default: ``tree_link`` if there is a ``Graph``, and
            ``tree_link_weight`` if one has weights)
        like: A tree whose attributes, shapes and types this one shall have, instead of the four
            arguments above. (default: :obj:`None`)
        max_leaves: Most leaves; None for any number. (default: ``2**24``)
        max_depth: Most levels below the root. (default: any number)

    Returns:
        The tree: ``x [N, ...]`` of leaves without modality, ``{m}_x [n, ...]`` and ``{m}_index
        [n]`` of those with modality m, domains and positions, names and links as above.

    Raises:
        BuilderError: If a container is empty, something is no signal or no numbers, leaves of one
            modality differ in shape, some have a modality and others none, or a modality is none
            of the given ones; the message names the node by its path, such as ``root[2][0]``.
        NotATreeError: If a container contains itself.
        LimitError: If there are more leaves or levels than allowed.

    Example:
        >>> from hsa_geo.builders import Graph, Grid, Sequence
        >>> site = Graph(
        ...     {"home": Sequence([1, 2, 3]), "about": Grid([[4, 5], [6, 7]])},
        ...     edges=[("home", "about")],
        ... )
        >>> tree = from_nested(site)
        >>> tree
        SignalTree(leaves=7, nodes=10, depth=2, x=[7, 1])
        >>> tree.tree_name[-3:], tree.tree_link.tolist()
        (['home', 'about', ''], [[7, 8], [8, 7]])
    """
    check_flags(names=names, links=links)
    if max_leaves is not None:
        check_size("max_leaves", max_leaves, most=2**10_000)
    if max_depth is not None:
        check_size("max_depth", max_depth, least=0, most=2**10_000)
    keys = _Keys.of(modalities, dtype, names, links, like)
    found = unfold(signal, max_leaves=max_leaves, max_depth=max_depth)
    m = len(found.parent)
    domain = np.zeros(m, dtype=np.int64)
    domain[list(found.inner)] = list(found.domain.values())
    return SignalTree.from_parents(
        np.array(found.parent),
        domain=domain,
        pos=np.stack([found.row, found.column], axis=1),
        name=_names(found, keys.names),
        **_features(found, keys),
        **_links(found, keys),
    )


def to_nested(tree: SignalTree, *, drop: Collection[str] = ()) -> Signal:
    """The nested signal of a tree, which :func:`from_nested` turns back into it.

    ``from_nested(to_nested(tree), like=tree)`` has the tensors of ``tree`` again, bit by bit:
    features and modalities in their types, domains, positions, names, links and their weights.
    Only the order of what has no order is normalised: rows of a modality come by leaf, links by
    parent.  And :func:`same_signal` says that ``to_nested(from_nested(signal, dtype=None))`` is
    ``signal``.

    Args:
        tree: One tree.
        drop: Attributes to leave out. (default: none)

    Returns:
        Sequences, sets, grids and graphs, with a :class:`~hsa_geo.builders.Leaf` for each leaf,
        whose values are arrays of numpy (tensors where numpy lacks the type), copied.  Positions
        are given where the parent's default is another, grids with holes as a mapping.

    Raises:
        UnsupportedError: For a batch, or if something would be lost: attributes with no place in
            a signal (``edge_index``, ``tree_pe``, ``tree_span``, ``leaf_weight``, ``y``,
            ``{name}_node``, ...) that ``drop`` does not name, links below another domain than
            GRAPH, leaves in another than reading order, complex features.
        TreeError, ShapeError, DomainError: If the tree is not valid.

    Example:
        >>> tree = from_nested({"a": [1, 2], "b": 3})
        >>> signal = to_nested(tree)
        >>> signal, signal.children[0], signal.children[1].value
        (Set(2 children), Sequence(2 children, name='a'), array([3.], dtype=float32))
        >>> from_nested(signal, like=tree).tree_index.equal(tree.tree_index)
        True
    """
    return fold(tree, drop)


def same_signal(a: Any, b: Any) -> bool:
    """Whether two signals mean the same: domains, positions, names, edges and values.

    The forms of :func:`from_nested` are equal: a list and a Sequence, an explicit position and
    the same one by default, numbers of any type and device.  Values are equal only exactly (nan
    equals nan), and children in the same order.  A loop over the leaves, for tests.

    Args:
        a: Any signal.
        b: Any signal.

    Raises:
        BuilderError: If one of them is no signal.

    Example:
        >>> from hsa_geo.builders import Leaf, Sequence, Set
        >>> same_signal(Sequence([1, Leaf(np.array([2.0]))]), [1, 2])
        True
        >>> same_signal(Set([1, 2]), [1, 2])
        False
    """
    found, other = unfold(a), unfold(b)
    if found.parent != other.parent or found.domain != other.domain:
        return False
    if _names(found, True) != _names(other, True):
        return False
    if found.rows.keys() != other.rows.keys():
        return False
    for place, elsewhere in ((found.row, other.row), (found.column, other.column)):
        if not np.array_equal(np.array(place, np.float32), np.array(elsewhere, np.float32)):
            return False
    if _sorted_links(found) != _sorted_links(other):
        return False
    for modality, rows in found.rows.items():
        if rows.leaf != other.rows[modality].leaf:
            return False
        for value, its in zip(rows.each(), other.rows[modality].each()):
            if (
                value.shape != its.shape
                or not ((value == its) | (value != value) & (its != its)).all()
            ):
                return False
    return True


# Which attributes ################################################################################


@dataclass(frozen=True)
class _Keys:
    """What the tree shall have; None where the signal decides."""

    modalities: dict[str, tuple[tuple[int, ...], torch.dtype]] | None
    dtype: torch.dtype | None
    names: bool | None
    links: bool | None
    weights: bool | None
    strict: bool  # whether names and links that are there may not be left out

    @classmethod
    def of(
        cls, modalities: Any, dtype: Any, names: Any, links: Any, like: SignalTree | None
    ) -> _Keys:
        if dtype is not None and not (isinstance(dtype, torch.dtype) and not dtype.is_complex):
            raise BuilderError(f"dtype={short(dtype)} is no torch.dtype of real numbers.")
        if like is None:
            fixed = None if modalities is None else _parse(modalities, dtype)
            return cls(fixed, dtype, names, links, links, strict=False)
        if not isinstance(like, SignalTree):
            raise BuilderError(f"like is a {type(like).__name__}: give a SignalTree.")
        if any(given is not None for given in (modalities, names, links)) or dtype != torch.float32:
            raise BuilderError(
                "like= says what modalities=, dtype=, names= and links= would say: give either."
            )
        fixed = {}
        for key, value in features_of(like).items():
            fixed[key] = (tuple(value.shape[1:]), value.dtype)
        keys = like.to_dict()
        weights = "tree_link_weight" in keys
        return cls(fixed, None, "tree_name" in keys, "tree_link" in keys, weights, strict=True)


def _parse(
    modalities: Any, dtype: torch.dtype | None
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    if not isinstance(modalities, Mapping):
        raise BuilderError(
            f"modalities={short(modalities)} is no mapping: give shapes by name, such as "
            "{'image': (3, 8, 8)}."
        )
    out = {}
    for name, given in modalities.items():
        check_modality(name)
        shape, kind = given, dtype
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], torch.dtype):
            shape, kind = given
        sizes = (shape,) if isinstance(shape, int) else shape
        fits = isinstance(sizes, (tuple, list)) and not any(isinstance(s, bool) for s in sizes)
        if not fits or not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise BuilderError(
                f"modalities[{name!r}] is {short(given)}: give the shape of a leaf's value, or "
                "(shape, dtype)."
            )
        if kind is None:
            raise BuilderError(
                f"modalities[{name!r}] is {short(given)} and dtype=None: give (shape, dtype), so "
                "that trees without it have the same type."
            )
        if kind.is_complex:
            raise BuilderError(f"modalities[{name!r}] has the dtype {kind}: give a real one.")
        out[name] = (tuple(sizes), kind)
    return out


# What a signal says ##############################################################################


def _names(found: Unfolded, names: bool | None) -> list[str] | None:
    if names is None:
        names = any(found.name)
    return [name or "" for name in found.name] if names else None


def _features(found: Unfolded, keys: _Keys) -> dict[str, Any]:
    fixed = keys.modalities
    if fixed is not None:
        for modality, rows in found.rows.items():
            if modality not in fixed:
                raise BuilderError(
                    f"{found.path_of_leaf(rows.leaf[0])} has the modality {modality!r}, but the "
                    f"tree shall have {sorted(fixed)}: add it there, or give the leaf one of these."
                )
    out: dict[str, Tensor] = {}
    for modality in found.rows if fixed is None else fixed:
        shape, dtype = None, keys.dtype if modality == "x" else None
        if fixed is not None:
            shape, dtype = fixed[modality]
        if modality == "x":
            _check_all_have_x(found)
            out["x"] = _values(found, "x", shape, dtype)
        else:
            leaf = found.rows[modality].leaf if modality in found.rows else []
            out[f"{modality}_x"] = _values(found, modality, shape, dtype)
            out[f"{modality}_index"] = torch.tensor(leaf, dtype=torch.int64)
    return out


def _values(
    found: Unfolded, modality: str, shape: tuple[int, ...] | None, dtype: torch.dtype | None
) -> Tensor:
    """All rows of a modality."""
    rows = found.rows.get(modality)
    if rows is None:
        return torch.zeros(0, *(shape or ()), dtype=dtype)

    def where(row: int) -> str:
        return found.path_of_leaf(rows.leaf[row])

    values = rows.stack(modality, shape, where)
    return values if dtype is None else cast(values, dtype, modality, where)


def _check_all_have_x(found: Unfolded) -> None:
    have = found.rows["x"].leaf if "x" in found.rows else []
    if len(have) == len(found.leaves):
        return
    lacks = found.path_of_leaf(int(np.setdiff1d(np.arange(len(found.leaves)), have)[0]))
    has = found.path_of_leaf(have[0]) if have else "modalities="
    raise BuilderError(
        f"{lacks} has no value without modality, but {has} has: give 'x' to all leaves or to "
        "none, e.g. by Leaf(..., modality='...')."
    )


def _links(found: Unfolded, keys: _Keys) -> dict[str, Any]:
    """``tree_link``, graph by graph in canonical order, and the weights."""
    given = any(len(graph.edges) for _, _, graph in found.graphs)
    weighted = any(graph.weights is not None for _, _, graph in found.graphs)
    if keys.strict:
        _refuse_lost(given and not keys.links, "edges", "tree_link")
        _refuse_lost(weighted and not keys.weights, "weights of edges", "tree_link_weight")
        _refuse_lost(not keys.names and any(found.name), "names", "tree_name")
    if not (found.graphs if keys.links is None else keys.links):
        return {}
    links, weights = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0, dtype=np.float32)]
    order, start = found.children()
    for _, node, graph in sorted(found.graphs, key=lambda found: (-found[0], found[1])):
        ends = order[start[node] + graph.edges]
        weight = np.ones(len(ends), np.float32) if graph.weights is None else graph.weights
        links.append(ends)
        weights.append(weight)
        if not graph.directed:  # and the way back, except of loops
            two = ends[:, 0] != ends[:, 1]
            links.append(ends[two][:, ::-1])
            weights.append(weight[two])
    out = {"tree_link": torch.from_numpy(np.concatenate(links).T.copy())}
    if weighted if keys.weights is None else keys.weights:
        out["tree_link_weight"] = torch.from_numpy(np.concatenate(weights))
    return out


def _refuse_lost(lost: bool, what: str, key: str) -> None:
    if lost:
        raise BuilderError(
            f"the signal has {what}, but the tree given as like has no {key!r}: "
            "give a tree that has it, or build both with names=False."
        )


def _sorted_links(found: Unfolded) -> list[tuple[int, int, float]]:
    keys = _Keys(None, None, None, True, True, strict=False)
    made = _links(found, keys)
    return sorted(zip(*made["tree_link"].tolist(), made["tree_link_weight"].tolist()))
