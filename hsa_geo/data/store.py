"""Storage behind a :class:`~hsa_geo.data.SignalTree`: what each attribute is.

PyG guesses from names and sizes how an attribute batches and whether it belongs to nodes or
edges.  A tree brings tensors of three sizes (N leaves, M tree nodes, M - 1 tree edges), so the
guesses are replaced by one rule, :func:`kind_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.storage import GlobalStorage

from hsa_geo.errors import MixedKeysError, ShapeError, TreeError, UnsupportedError

__all__ = ["GIVEN_NODE_KEYS", "NODE_KEYS", "Kind", "SignalStore", "kind_of", "leaf_count"]

#: Attributes with one row per tree node; the first four say what the tree is.
NODE_KEYS = ("tree_level", "tree_domain", "tree_pos", "tree_name", "tree_pe", "tree_span")
#: Those of them that builders give as they are: encodings of positions, places in the source.
GIVEN_NODE_KEYS = ("tree_pe", "tree_span")


class Kind(Enum):
    """What the rows of an attribute stand for."""

    TREE_EDGES = "tree edges"  # tree_index: ids of tree nodes, [2, M-1]
    TREE_NODES = "tree nodes"  # tree_level, ...: one row per tree node
    TREE_LINKS = "tree links"  # tree_link: ids of siblings joined by an edge, [2, E]
    LINK_ROWS = "rows beside tree links"  # tree_link_...: one row per column of tree_link
    NODE_IDS = "tree node ids"  # {name}_node: values are ids of tree nodes
    NODE_ROWS = "rows beside node ids"  # {name}_...: one row per entry of {name}_node
    LEAF_ROWS = "leaf rows"  # {m}_index of a modality: values are leaf rows
    MODALITY = "modality rows"  # {m}_x of a modality
    GRAPH_EDGES = "leaf edges"  # edge_index and its relatives: values are leaf rows
    OTHER = "other"  # left to PyG: leaf, edge or graph attribute


def _is_integer(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (
        torch.int64,
        torch.int32,
        torch.int16,
        torch.uint8,
        torch.int8,
    )


def kind_of(key: str, keys: Iterable[str], value: Any = None) -> Kind:
    """The rule that says what attribute ``key`` is.

    Args:
        key: The attribute's name.
        keys: Names of all attributes beside it, or a mapping of them to their values
            (``{m}_x`` and ``{m}_index`` go together).
        value: The attribute's value; ``{m}_index`` and ``{name}_node`` are references only if
            they are integer tensors, so a float ``image_index`` is ordinary data.

    Returns:
        The kind.

    Example:
        >>> kind_of("tree_level", ["tree_level"]).value
        'tree nodes'
        >>> kind_of("image_index", ["image_index"]).value
        'other'
    """
    if key == "tree_index":
        return Kind.TREE_EDGES
    if key in NODE_KEYS:
        return Kind.TREE_NODES
    if key == "tree_link":
        return Kind.TREE_LINKS
    if key.startswith("tree_link_"):
        return Kind.LINK_ROWS
    if key in ("edge_index", "adj_t", "face"):
        return Kind.GRAPH_EDGES
    if key.endswith("_node") and _is_integer(value):
        return Kind.NODE_IDS
    stem, _, tail = key.rpartition("_")
    if tail == "index" and "edge" in stem.split("_"):  # neg_edge_index, edge_label_index, ...
        return Kind.GRAPH_EDGES if value is None or _is_integer(value) else Kind.OTHER
    if stem and stem not in ("edge", "tree"):
        if tail == "index" and f"{stem}_x" in keys and _is_integer(value):
            return Kind.LEAF_ROWS
        if tail == "x" and f"{stem}_index" in keys:
            index = keys[f"{stem}_index"] if isinstance(keys, Mapping) else None
            return Kind.MODALITY if index is None or _is_integer(index) else Kind.OTHER
    if stem and tail != "node" and f"{stem}_node" in keys:  # form_label beside form_node
        return Kind.NODE_ROWS
    return Kind.OTHER


def leaf_count(tree_index: Tensor, num_tree_nodes: int) -> int:
    """Number of leaves: tree nodes that are nobody's parent.

    Raises:
        TreeError: If ``tree_index`` holds an id that is not a node.

    Example:
        >>> leaf_count(torch.tensor([[2, 2], [0, 1]]), 3)
        2
    """
    parent = tree_index[0]
    if parent.numel() and not 0 <= int(parent.min()) <= int(parent.max()) < num_tree_nodes:
        bad = parent[(parent < 0) | (parent >= num_tree_nodes)]
        raise TreeError(
            f"tree_index holds node {int(bad[0])}, but the tree has {num_tree_nodes} nodes: ids "
            f"are 0..{num_tree_nodes - 1}, and the root has no edge (no -1)."
        )
    is_parent = torch.zeros(num_tree_nodes, dtype=torch.bool, device=tree_index.device)
    is_parent[parent] = True
    return num_tree_nodes - int(is_parent.sum())


class _Count(int):
    """``num_nodes`` as collate reads it, with the keys of the tree it comes from."""

    keys: frozenset[str]
    lengths: dict[str, int]  # rows of what has one for each tree node


class SignalStore(GlobalStorage):
    """PyG's storage with the rule of :func:`kind_of`.

    - Tree and modality attributes are neither node nor edge attributes, so that transforms
      leave them alone.
    - ``num_nodes`` cannot be assigned once the tree is there, so that a transform or loader
      that adds, removes or reorders nodes behind the tree's back (assigning their number,
      which may be the same) fails instead of returning a broken tree.
    - Batching trees with different attributes raises, instead of dropping what the first lacks.
    """

    def __getitem__(self, key: str) -> Any:
        try:
            value = self._mapping[key]
        except KeyError:
            raise MixedKeysError(
                f"this tree has no attribute '{key}' (it has {sorted(self._mapping)}): trees in "
                "one batch need the same attributes, as a builder emits them with the same options."
            ) from None
        if key == "num_nodes" and isinstance(value, int):
            # The one value that PyG's collate reads from every tree, whatever the first holds.
            count = _Count(value)
            count.keys = frozenset(self._mapping)
            count.lengths = {
                key: len(value)
                for key in NODE_KEYS
                if hasattr(value := self._mapping.get(key), "__len__")
                and not (isinstance(value, list) and value and isinstance(value[0], list))
            }  # a batch has a list of names for each tree
            return count
        return value

    def __setattr__(self, key: str, value: Any) -> None:
        if key == "_num_nodes" and isinstance(value, list):  # collate, in Batch.from_data_list
            value = [int(count) for count in _same_keys(value)]
        elif key == "num_nodes":
            self._check_num_nodes(value, again="num_nodes" in self._mapping)
            value = None if value is None else int(value)
        super().__setattr__(key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "num_nodes":
            if value is None or value != self._mapping.get(key):  # the same after .to(), clone()
                self._check_num_nodes(value)
            value = None if value is None else int(value)
        super().__setitem__(key, value)

    def _check_num_nodes(self, num_nodes: int | None, again: bool = False) -> None:
        tree_index, level = self._mapping.get("tree_index"), self._mapping.get("tree_level")
        if not isinstance(tree_index, Tensor) or level is None:
            return
        if "_num_nodes" in self.__dict__ and "num_nodes" not in self._mapping:
            return  # collate, perhaps without increments, as InMemoryDataset does
        leaves = leaf_count(tree_index, len(level))
        if num_nodes != leaves or again:
            raise TreeError(
                f"num_nodes={num_nodes} was assigned to a tree, which has {leaves} leaves by its "
                "hierarchy: whatever adds, removes or reorders leaves must use restrict(leaves) "
                "or build a new tree."
            )

    def sort_by_time(self) -> Any:
        """Refused where it would reorder the leaves under the tree."""
        if self.is_sorted_by_time() or not self.is_node_attr("time"):
            return super().sort_by_time()
        raise UnsupportedError(
            "sort_by_time would reorder the leaves under the tree: sort them before building it."
        )

    def is_node_attr(self, key: str) -> bool:
        """Whether ``key`` has one row per leaf (False for everything of the tree)."""
        if kind_of(key, self._mapping, self._mapping.get(key)) is not Kind.OTHER:
            return False
        return bool(super().is_node_attr(key))

    def is_edge_attr(self, key: str) -> bool:
        """Whether ``key`` has one row per edge of ``edge_index``.

        Only if its name says so, too: it contains ``edge``, or is ``e_id``.  By size alone
        ``y [1, C]`` would be an attribute of the edge of a graph with one edge.
        """
        kind = kind_of(key, self._mapping, self._mapping.get(key))
        if kind not in (Kind.OTHER, Kind.GRAPH_EDGES) or not ("edge" in key or key == "e_id"):
            return False
        return bool(super().is_edge_attr(key))


def _same_keys(counts: list[int]) -> list[int]:
    first = getattr(counts[0], "keys", None) if counts else None
    for i, count in enumerate(counts):
        keys = getattr(count, "keys", first)
        if first is not None and keys != first:
            odd = sorted(first ^ keys)
            raise MixedKeysError(
                f"trees 0 and {i} of the batch do not hold the same attributes; {odd} are in one "
                "of them only: build all with the same options, or delete it from those that have "
                "it (del tree.name); a modality {m}_x, {m}_index may be empty."
            )
        lengths = getattr(count, "lengths", {})
        for key, length in lengths.items():
            if length != lengths.get("tree_level", length):
                raise ShapeError(
                    f"'{key}' of tree {i} has {length} rows for {lengths['tree_level']} tree "
                    "nodes: give one for each, or delete it from all trees of the batch."
                )
    return counts
