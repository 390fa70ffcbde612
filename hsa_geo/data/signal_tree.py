"""SignalTree: a nested signal as a PyG ``Data`` whose nodes are the leaves.

Conventions, used everywhere in hsa_geo:

- N leaves are the ``Data``'s nodes, so ``x``, ``edge_index``, pooling and every PyG layer work on
  them as always.  The hierarchy of M tree nodes (leaves included) stands beside them.
- Canonical ids of one tree: leaves ``0..N-1`` in reading order (depth-first), then inner nodes,
  deepest level first and in reading order within a level; the root is ``M - 1``.
- ``tree_index [2, M-1]`` holds parents in row 0 and children in row 1, sorted by (parent, rank);
  sibling order is column order.
- Other attributes with N rows belong to the leaves, those with ``edge`` in their name and as many
  rows as ``edge_index`` has columns to the edges among leaves; what belongs to the whole tree has
  one row (``y [1, C]``).
- ``tree_link [2, E]`` holds edges among siblings, ids of tree nodes, where their domain is a
  graph; ``tree_link_weight [E]`` and other ``tree_link_...`` belong to its columns.
- ``leaf_weight [N]`` int64, where a tree has it, lets a leaf count as that many equal leaves.
- In a batch ``tree_index``, ``tree_link`` and ``{name}_node`` shift by M, ``edge_index`` and a
  modality's ``{m}_index`` by N, and nothing else shifts, whatever its name.  ``to_data_list()``
  gives every tensor, list and string back exactly; Python numbers become tensors, as PyG batches
  them.

Leaves in another order than depth-first (``keep_leaf_order``) are fine for everything that
computes; the reading order is then ``plan.leaf_order``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hsa_geo.data.canonical import canonical_order, with_leaves_sorted
from hsa_geo.data.domain import LEAF
from hsa_geo.data.parents import (
    Renumbering,
    check_domains,
    domain_tensor,
    int_array,
    pos_tensor,
    to_tensors,
)
from hsa_geo.data.plan_cache import PlanCache
from hsa_geo.data.store import Kind, SignalStore, kind_of, leaf_count
from hsa_geo.errors import ShapeError, UnsupportedError

if TYPE_CHECKING:
    import os

__all__ = ["SignalTree"]


class SignalTree(PlanCache, Data):
    r"""A nested signal: leaves with features, and the rooted ordered tree above them.

    Build one with :meth:`from_parents` or a builder of :mod:`hsa_geo.builders`; the constructor
    takes ready tensors in canonical order and checks nothing (call :meth:`validate`).

    Args:
        x (Tensor, optional): Leaf features ``[N, F]``. (default: :obj:`None`)
        tree_index (Tensor, optional): Tree edges ``[2, M-1]``, parent above child.
            (default: :obj:`None`)
        tree_level (Tensor, optional): Level of every tree node ``[M]``, root 0.
            (default: :obj:`None`)
        tree_domain (Tensor, optional): :class:`~hsa_geo.data.Domain` of every node's children
            ``[M]``, -1 at leaves. (default: :obj:`None`)
        tree_pos (Tensor, optional): Position in the parent's domain ``[M, 2]``, zero where there
            is none. (default: :obj:`None`)
        tree_name (list of str, optional): Names of the tree nodes. (default: :obj:`None`)
        edge_index (Tensor, optional): Graph among the leaves ``[2, E]``. (default: :obj:`None`)
        **kwargs: Further attributes; ``{m}_x [n_m, ...]`` with ``{m}_index [n_m]`` hold the
            features of modality m and the leaf row of each, ``{name}_node`` ids of tree nodes.

    Example:
        >>> import torch
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.rand(4, 8))
        >>> tree.num_nodes, tree.num_tree_nodes, tree.depth
        (4, 7, 2)
        >>> tree.tree_index
        tensor([[4, 4, 5, 5, 6, 6],
                [0, 1, 2, 3, 4, 5]])
    """

    def __init__(
        self,
        x: Tensor | None = None,
        tree_index: Tensor | None = None,
        tree_level: Tensor | None = None,
        tree_domain: Tensor | None = None,
        tree_pos: Tensor | None = None,
        tree_name: list[str] | None = None,
        edge_index: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.__dict__["_store"] = SignalStore(_parent=self)
        if "num_nodes" not in kwargs and tree_index is not None and tree_level is not None:
            kwargs = {"num_nodes": leaf_count(tree_index, len(tree_level)), **kwargs}
        if kwargs.get("num_nodes") is not None:  # first, so that nothing is guessed from sizes
            self.num_nodes = kwargs.pop("num_nodes")
        named = {
            "x": x,
            "edge_index": edge_index,
            "tree_index": tree_index,
            "tree_level": tree_level,
            "tree_domain": tree_domain,
            "tree_pos": tree_pos,
            "tree_name": tree_name,
            **kwargs,
        }
        for key, value in named.items():
            if value is not None:
                setattr(self, key, value)

    @overload
    @classmethod
    def from_parents(
        cls,
        parent: Sequence[int] | np.ndarray | Tensor,
        *,
        domain: int | Sequence[int] | np.ndarray | Tensor | None = ...,
        pos: Sequence[Any] | np.ndarray | Tensor | None = ...,
        name: Sequence[str] | None = ...,
        keep_leaf_order: bool = ...,
        return_order: Literal[False] = False,
        **attrs: Any,
    ) -> Self: ...

    @overload
    @classmethod
    def from_parents(
        cls,
        parent: Sequence[int] | np.ndarray | Tensor,
        *,
        domain: int | Sequence[int] | np.ndarray | Tensor | None = ...,
        pos: Sequence[Any] | np.ndarray | Tensor | None = ...,
        name: Sequence[str] | None = ...,
        keep_leaf_order: bool = ...,
        return_order: Literal[True],
        **attrs: Any,
    ) -> tuple[Self, Tensor]: ...

    @classmethod
    def from_parents(
        cls,
        parent: Sequence[int] | np.ndarray | Tensor,
        *,
        domain: int | Sequence[int] | np.ndarray | Tensor | None = None,
        pos: Sequence[Any] | np.ndarray | Tensor | None = None,
        name: Sequence[str] | None = None,
        keep_leaf_order: bool = False,
        return_order: bool = False,
        **attrs: Any,
    ) -> Self | tuple[Self, Tensor]:
        r"""Build a tree from the parent of every node, given in any order.

        Children rank by the smallest leaf id below them.  If the ids are not canonical, nodes
        are renumbered and everything passed in is permuted along; canonical ids stay.

        Args:
            parent: ``[M]`` ints, the parent of every node, -1 for the root.
            domain: Domain of every node's children ``[M]`` (ignored at leaves), or one for all
                inner nodes. (default: :obj:`Domain.SET`)
            pos: Position of every node in its parent's domain, ``[M]``, ``[M, 1]`` or ``[M, 2]``.
                (default: zeros)
            name: Names of the nodes ``[M]``. (default: :obj:`None`)
            keep_leaf_order: Number the leaves in order of increasing input id, even if that is no
                reading order: leaf attributes, ``edge_index`` and ``{m}_index`` stay as given, as
                when a hierarchy is laid over an existing graph. (default: :obj:`False`)
            return_order: Also return the input id of every canonical node. (default:
                :obj:`False`)
            **attrs: Further attributes.  Tensors, arrays and lists with N rows are leaf
                attributes in order of increasing leaf id (so give what belongs to the whole tree
                one row, e.g. ``y [1, C]``); ``{m}_index`` (beside ``{m}_x``) and ``edge_index``
                hold leaf rows in that order, ``{name}_node`` ids of nodes; ``tree_span [M, 2]`` and
                ``tree_pe [M, K]`` have a row for each node.

        Returns:
            The tree, or with ``return_order`` the pair (tree, order ``[M]``).

        Raises:
            TreeError: If ``parent`` is not one rooted tree; the message names the node.
            DomainError: If a domain is unknown.
            ShapeError: If a per-node argument does not have M rows, ``x`` not N rows, a position
                is not finite, or an id or row is out of range.

        Example:
            >>> tree, order = SignalTree.from_parents(
            ...     [-1, 0, 0, 1, 1], name=["page", "box", "image", "to", "be"], return_order=True
            ... )
            >>> tree.tree_name, order.tolist()
            (['image', 'to', 'be', 'box', 'page'], [2, 3, 4, 1, 0])
        """
        ids = int_array(parent)
        canonical = canonical_order(ids)
        if keep_leaf_order:
            canonical = with_leaves_sorted(canonical)
        m, n, order = len(ids), canonical.num_leaves, canonical.order
        order_t = torch.from_numpy(order)
        leaf = torch.zeros(m, dtype=torch.bool)
        leaf[:n] = True

        tree = cls()
        tree.num_nodes = n
        tree.tree_index = torch.from_numpy(canonical.tree_index)
        tree.tree_level = torch.from_numpy(canonical.level)
        tree.tree_domain = domain_tensor(domain, m)[order_t].masked_fill(leaf, LEAF)
        check_domains(tree.tree_domain[n:], order[n:])
        tree.tree_pos = pos_tensor(pos, m)[order_t]
        if name is not None:
            if isinstance(name, str) or not hasattr(name, "__len__"):
                raise ShapeError(f"name is {name!r}: give a list of {m} strings, one per node.")
            if len(name) != m:
                raise ShapeError(f"name has {len(name)} entries for {m} nodes: give one for each.")
            tree.tree_name = [str(name[i]) for i in order.tolist()]

        attrs = to_tensors(attrs)
        renumbering = Renumbering.of(canonical)
        for key, value in attrs.items():
            tree[key] = renumbering.apply(key, value, attrs)
        return (tree, order_t) if return_order else tree

    # Sizes ##################################################################

    @property
    def num_leaves(self) -> int:
        """Number of leaves N, the same as ``num_nodes``."""
        return int(self.num_nodes or 0)

    @property
    def num_tree_nodes(self) -> int:
        """Number of tree nodes M, leaves included."""
        return len(self.tree_level) if "tree_level" in self else 0

    @property
    def depth(self) -> int:
        """Largest level: 0 for a single leaf."""
        return int(self.tree_level.max()) if self.num_tree_nodes else 0

    # What PyG asks ##########################################################

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        kind = kind_of(key, self._store._mapping, value)
        if kind is Kind.GRAPH_EDGES:
            return super().__cat_dim__(key, value, *args, **kwargs)
        return 1 if kind in (Kind.TREE_EDGES, Kind.TREE_LINKS) else 0

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        keys = self._store._mapping
        kind = kind_of(key, keys, value)
        if kind in (Kind.NODE_IDS, Kind.LEAF_ROWS, Kind.TREE_LINKS) and value.dtype not in (
            torch.int64,
            torch.int32,
        ):
            raise ShapeError(
                f"'{key}' has dtype {value.dtype}, too small for the ids of a batch: give int64."
            )
        if kind in (Kind.TREE_EDGES, Kind.TREE_LINKS, Kind.NODE_IDS):
            return self.num_tree_nodes
        if kind in (Kind.LEAF_ROWS, Kind.GRAPH_EDGES):
            return self.num_leaves
        if "batch" in keys and (key == "batch" or key.removesuffix("_batch") in keys):
            follows = key == "batch" or key.endswith("_batch")
            if follows and isinstance(value, Tensor):  # a batch of batches
                return int(self.batch.max()) + 1 if self.batch.numel() else 0
        return 0

    def subgraph(self, subset: Tensor) -> Self:
        """The tree over a subset of the leaves, as :meth:`restrict`; used by PyG transforms."""
        return self.restrict(subset)

    def snapshot(self, start_time: float, end_time: float, attr: str = "time") -> Self:
        """The tree over the leaves whose time is in the interval, as :meth:`restrict`."""
        if attr not in self or not self.is_node_attr(attr):
            return super().snapshot(start_time, end_time, attr)
        return self.restrict((self[attr] >= start_time) & (self[attr] <= end_time))

    def up_to(self, end_time: float) -> Self:
        """The tree over the leaves whose time is at most ``end_time``, as :meth:`restrict`."""
        if "time" not in self or not self.is_node_attr("time"):
            return super().up_to(end_time)
        return self.restrict(self.time <= end_time)

    def concat(self, data: Any) -> Self:
        """Refused: two trees have no common root, so batch them with ``Batch`` instead."""
        raise UnsupportedError(
            "SignalTree.concat would join two trees without a root: use "
            "Batch.from_data_list([tree, other]), or build one tree of both."
        )

    # Rooms of their own #####################################################

    def validate(self, raise_on_error: bool = True) -> bool:
        """Check every field; see :func:`hsa_geo.data.validation.validate`."""
        from hsa_geo.data.validation import validate

        return validate(self, raise_on_error)

    def restrict(self, leaves: Tensor, *, keep_order: bool = False) -> Self:
        """The tree over a subset of leaves; see :func:`hsa_geo.data.restriction.restrict`."""
        from hsa_geo.data.restriction import restrict

        return restrict(self, leaves, keep_order=keep_order)

    def as_graph(self) -> Data:
        """The tree as plain PyG ``Data``; see :func:`hsa_geo.data.views.as_graph`."""
        from hsa_geo.data.views import as_graph

        return as_graph(self)

    def describe(self, max_nodes: int = 40) -> None:
        """Print the tree; see :func:`hsa_geo.data.views.tree_text`."""
        from hsa_geo.data.views import tree_text

        print(tree_text(self, max_nodes))

    def to_networkx(self) -> Any:
        """The tree as a networkx ``DiGraph``; see :func:`hsa_geo.data.views.to_networkx`."""
        from hsa_geo.data.views import to_networkx

        return to_networkx(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file without pickle; see :func:`hsa_geo.data.io.save`."""
        from hsa_geo.data.io import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SignalTree:
        """Read what :meth:`save` wrote; see :func:`hsa_geo.data.io.load`."""
        from hsa_geo.data.io import load

        return load(path)

    def __copy__(self) -> Self:
        out = super().__copy__()
        out.__dict__["_store"]._parent = out
        return out

    def __repr__(self) -> str:
        name = type(self).__name__
        if "tree_index" not in self:
            return str(super().__repr__())
        trees = getattr(self, "_num_graphs", None)
        head = [f"trees={trees}"] if trees is not None else []
        head += [f"leaves={self.num_leaves}", f"nodes={self.num_tree_nodes}", f"depth={self.depth}"]
        rest = [
            f"{key}={_size(value)}"
            for key, value in self._store.items()
            if not key.startswith("tree_") and key != "num_nodes"
        ]
        return f"{name}({', '.join(head + rest)})"

    def clone(self, *args: str) -> Self:
        """A copy with cloned tensors; the plan is not copied."""
        out = copy.copy(self).apply(lambda x: x.clone(), *args)
        return out


def _size(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape)) if value.dim() else str(value.item())
    if isinstance(value, (list, tuple)):
        return f"[{len(value)}]"
    return repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
