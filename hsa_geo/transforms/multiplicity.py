"""Equal leaves as one leaf with a weight, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from hsa_geo.data import Domain, SignalTree
from hsa_geo.data.contraction import check_weights
from hsa_geo.data.forest import Forest
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import BuilderError, LimitError, UnsupportedError
from hsa_geo.transforms.arguments import attributes, counts
from hsa_geo.transforms.attach import check_tree
from hsa_geo.transforms.rebuild import reading_canonical, reading_order

__all__ = ["MergeEqualLeaves", "RepeatLeaves"]

Ints = NDArray[np.int64]


class MergeEqualLeaves(BaseTransform):
    r"""Equal leaves of one node become one leaf that counts as many: ``leaf_weight``.

    Words of a bag, points of a cloud that coincide: HSA gives equal leaves equal outputs, and gives
    them to the one that stands for them at less cost.  Leaves are merged if they are children of
    one node whose domain is a ``SET`` (elsewhere their positions tell them apart) and are equal in
    all leaf attributes, features of modalities, names and encodings.  Left alone are leaves with
    more than one row of a modality, with edges or links, and those that ``{name}_node`` refers to.

    The first of equal leaves, by row, stays; weights that leaves have are added up.  All else is as
    after :meth:`SignalTree.restrict`; spans are those of the first.  ``leaf_weight`` is always
    there afterwards, so that trees batch.

    Args:
        attrs (sequence of str, optional): Leaf attributes that must be equal; of others the first
            leaf's stays. (default: all)

    Raises:
        UnsupportedError: If the input is no single SignalTree, or an attribute cannot be compared.
        BuilderError: If ``attrs`` are no names, or one is missing.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 3, -1], x=torch.tensor([[1.0], [2.0], [1.0]]))
        >>> tree = MergeEqualLeaves()(tree)
        >>> tree.x.tolist(), tree.leaf_weight.tolist()
        ([[1.0], [2.0]], [2, 1])
    """

    def __init__(self, attrs: Sequence[str] | None = None) -> None:
        self.attrs = None if attrs is None else attributes(attrs, "attrs")

    def forward(self, data: Any) -> SignalTree:
        """The tree with equal leaves merged."""
        tree = check_tree(data, "MergeEqualLeaves")
        forest, n, values = Forest.of(tree), tree.num_leaves, tree.to_dict()
        for key in self.attrs or ():
            if key not in values or not tree.is_node_attr(key):
                raise BuilderError(
                    f"attrs names '{key}', which is no leaf attribute (the tree has "
                    f"{sorted(values)})."
                )
        above = forest.parent[:n]
        alone = (above < 0) | (tree.tree_domain.cpu().numpy()[above] != Domain.SET)
        label = above.copy()
        for key, value in values.items():
            kind = kind_of(key, values, value)
            if kind in (Kind.GRAPH_EDGES, Kind.TREE_LINKS, Kind.NODE_IDS):
                if value.layout is not torch.strided:
                    raise UnsupportedError(
                        f"'{key}' is a sparse matrix, whose leaves cannot be merged: keep "
                        "edge_index instead."
                    )
                used = value[value < n].cpu().numpy()
                alone[used] = True
            elif kind is Kind.MODALITY:
                rows = values[f"{key.removesuffix('x')}index"].cpu().numpy()
                alone |= np.bincount(rows, minlength=n) > 1
                own: Ints = np.full(n, -1)
                own[rows] = _rows(key, value)
                label = _both(label, own)
            elif key in ("tree_name", "tree_pe"):
                label = _both(label, _rows(key, value[:n]))
            elif self._compares(tree, key, kind):
                label = _both(label, _rows(key, value))
        label = _both(label, np.where(alone, np.arange(n), -1))
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        stays = np.sort(first)
        weight = _weights(tree)
        total = np.zeros(n, dtype=np.int64)
        np.add.at(total, first[inverse], weight)
        out = tree.restrict(torch.from_numpy(stays)) if len(stays) < n else tree
        out.leaf_weight = torch.from_numpy(total[stays]).to(tree.tree_index.device)
        return out

    def _compares(self, tree: SignalTree, key: str, kind: Kind) -> bool:
        """Whether an attribute tells leaves apart."""
        if kind is not Kind.OTHER or key in ("num_nodes", "leaf_weight"):
            return False
        return tree.is_node_attr(key) and (self.attrs is None or key in self.attrs)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({'' if self.attrs is None else list(self.attrs)})"


class RepeatLeaves(BaseTransform):
    """Leaves with a weight become as many equal leaves; the inverse of :class:`MergeEqualLeaves`.

    A leaf of weight w stands w times in its place, with w rows of each leaf attribute and of its
    modalities, and ``leaf_weight`` goes.  ``{name}_node`` and edges follow leaves of weight 1.
    Without positions HSA's output is the same.

    Args:
        max_leaves (int): Refuse trees that would have more. (default: ``1_000_000``)

    Raises:
        LimitError: If there would be more than ``max_leaves``.
        BuilderError: If ``max_leaves`` is no whole number from 1.
        UnsupportedError: If the input is no single SignalTree, or a leaf with a weight has edges,
            links, or is referred to by ``{name}_node``: which of the copies would have them?

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1], leaf_weight=torch.tensor([1, 3]))
        >>> RepeatLeaves()(tree)
        SignalTree(leaves=4, nodes=5, depth=1)
    """

    def __init__(self, max_leaves: int = 1_000_000) -> None:
        self.max_leaves = counts([max_leaves], "max_leaves")[0]

    def forward(self, data: Any) -> SignalTree:
        """The tree without weights."""
        tree = check_tree(data, "RepeatLeaves")
        forest, n, values = Forest.of(tree), tree.num_leaves, tree.to_dict()
        weight = _weights(tree)
        if weight.sum() > self.max_leaves:
            raise LimitError(
                f"the weights make {weight.sum()} leaves, above max_leaves={self.max_leaves}."
            )
        if (weight == 1).all():
            if "leaf_weight" in tree:
                del tree.leaf_weight
            return tree
        device = tree.tree_index.device
        lone = n == forest.num_nodes  # one leaf, the root: its copies get a root above them
        big = int(weight.sum())
        # Copies of one leaf are neighbours, by row and in reading order.
        row = np.repeat(np.arange(n), weight)  # old row of every new one
        first = np.cumsum(weight) - weight  # first new row of every old one
        order = reading_order(forest)
        rows = np.repeat(first[order], weight[order])
        rows += np.arange(big) - np.repeat(np.cumsum(weight[order]) - weight[order], weight[order])
        above = forest.parent[row[rows]] + big - n
        parent = np.concatenate([above, forest.parent[n:] + big - n])
        parent[np.concatenate([forest.parent[row[rows]], forest.parent[n:]]) < 0] = -1
        if lone:
            parent = np.append(np.full(big, big), -1)
        canonical = reading_canonical(parent, rows)
        old = np.where(canonical.order < big, -1, canonical.order - big + n)
        old[:big] = row
        if lone:
            old[big] = 0
        same = torch.from_numpy(old).to(device)
        moved = np.full(forest.num_nodes, -1)
        moved[old[::-1]] = np.arange(len(old))[::-1]  # a leaf's first copy
        rows_t, moved_t = (torch.from_numpy(a).to(device) for a in (row, moved))

        out = type(tree)()
        out.num_nodes = big
        copied = torch.from_numpy(weight > 1).to(device)
        for key, value in values.items():
            kind = kind_of(key, values, value)
            if key in ("num_nodes", "leaf_weight"):
                continue
            if key == "tree_index":
                value = torch.from_numpy(canonical.tree_index).to(device)
            elif key == "tree_level":
                value = torch.from_numpy(canonical.level).to(device)
            elif kind is Kind.TREE_NODES:
                value = _taken(value, same)
                if lone and key == "tree_domain":
                    value[big] = int(Domain.SET)
            elif kind in (Kind.GRAPH_EDGES, Kind.TREE_LINKS, Kind.NODE_IDS):
                value = _followed(key, value, copied, moved_t)
            elif kind is Kind.LEAF_ROWS:
                value = _expanded(value, first, weight)[1]
            elif kind is Kind.MODALITY:
                index = values[f"{key.removesuffix('x')}index"]
                value = _taken(value, _expanded(index, first, weight)[0])
            elif kind is Kind.OTHER and tree.is_node_attr(key):
                value = _taken(value, rows_t)
            out[key] = value
        return out

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(max_leaves={self.max_leaves})"


def _weights(tree: SignalTree) -> Ints:
    given = tree.to_dict().get("leaf_weight")
    found = None if given is None else check_weights(given, tree.num_leaves)
    return np.ones(tree.num_leaves, dtype=np.int64) if found is None else found


def _both(a: Ints, b: Ints) -> Ints:
    """Numbers of the different pairs."""
    return np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _rows(key: str, value: Any) -> Ints:
    """Numbers of the different rows of an attribute, compared bit by bit."""
    if isinstance(value, Tensor) and value.layout is torch.strided:
        flat = value.detach().cpu().contiguous().reshape(len(value), -1)
        if flat.size(1) == 0 or len(flat) == 0:
            return np.zeros(len(flat), dtype=np.int64)
        return np.unique(flat.view(torch.uint8).numpy(), axis=0, return_inverse=True)[1].reshape(-1)
    number: dict[Any, int] = {}
    try:
        return np.array([number.setdefault(item, len(number)) for item in value], dtype=np.int64)
    except TypeError:
        raise UnsupportedError(
            f"'{key}' is a {type(value).__name__} whose rows cannot be compared: give attrs "
            "without it."
        ) from None


def _taken(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows.to(value.device)]
    if isinstance(value, np.ndarray):
        return value[rows.cpu().numpy()]
    return type(value)([value[i] for i in rows.tolist()])


def _expanded(index: Tensor, first: Ints, weight: Ints) -> tuple[Tensor, Tensor]:
    """For features at leaves ``index``: the row that each copy repeats, and its new leaf."""
    leaf = index.cpu().numpy()
    times = weight[leaf]
    source = np.repeat(np.arange(len(leaf)), times)
    number = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
    place = first[leaf][source] + number
    return torch.from_numpy(source).to(index.device), torch.from_numpy(place).to(index.device)


def _followed(key: str, value: Tensor, copied: Tensor, moved: Tensor) -> Tensor:
    """References to leaves of weight 1 and to inner nodes, in the new numbers."""
    if value.layout is not torch.strided:
        raise UnsupportedError(
            f"'{key}' is a sparse matrix, whose leaves cannot be repeated: keep edge_index instead."
        )
    among = value[value < len(copied)]
    bad = among[copied[among.long()]]
    if bad.numel():
        raise UnsupportedError(
            f"'{key}' refers to leaf {int(bad[0])}, which is to be repeated: which of the copies "
            "it means cannot be told, so remove it first."
        )
    return moved[value.long()].to(value.dtype)
