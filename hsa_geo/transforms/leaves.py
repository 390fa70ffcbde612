"""Leaves left out, or hidden, at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from hsa_geo.builders._arguments import shown
from hsa_geo.data import SignalTree
from hsa_geo.data.forest import Forest
from hsa_geo.data.store import Kind, kind_of
from hsa_geo.errors import BuilderError, ShapeError
from hsa_geo.transforms.arguments import attribute_or_none, attributes, seed_or_none
from hsa_geo.transforms.attach import check_tree

__all__ = ["DropLeaves", "MaskLeaves"]


class DropLeaves(BaseTransform):
    """Leave out leaves, at random or by a mask; the counts of all nodes above follow.

    As :meth:`SignalTree.restrict`: nodes without leaves go, edges of left-out leaves, too.  At
    random one leaf stays in any case, and one below every node that ``{name}_node`` refers to.
    A leaf with a ``leaf_weight`` stays or goes as a whole.

    Args:
        p (float, optional): Probability that a leaf goes, from 0 to 1.
            (default: ``0.1`` without ``mask``)
        mask (str, optional): In place of ``p`` and ``seed``: leaf attribute ``[N]`` bool, True
            where a leaf goes. (default: :obj:`None`)
        seed (int, optional): Draw the same for every tree of a size; otherwise PyTorch's own
            generator draws, as in PyG's random transforms. (default: :obj:`None`)

    Raises:
        UnsupportedError: If the input is no single SignalTree.
        BuilderError: If an argument does not fit.
        ShapeError: If a mask leaves out all leaves.
        TreeError: If it leaves out all below a node that ``{name}_node`` refers to.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], hidden=torch.arange(4) < 2)
        >>> DropLeaves(mask="hidden")(tree)
        SignalTree(leaves=2, nodes=4, depth=2, hidden=[2])
    """

    def __init__(
        self, p: float | None = None, *, mask: str | None = None, seed: int | None = None
    ) -> None:
        self.mask, self.seed = attribute_or_none(mask, "mask"), seed_or_none(seed)
        self.p = _probability(p, 0.1, self.mask, self.seed)

    def forward(self, data: Any) -> SignalTree:
        """The tree with fewer leaves."""
        tree = check_tree(data, "DropLeaves")
        if self.mask is not None:
            return tree.restrict(~_mask_of(tree, self.mask))
        score = _draw(tree, self.seed)
        forest = Forest.of(tree)
        values = tree.to_dict()
        needed = [np.array([forest.num_nodes - 1])]
        for key, value in values.items():
            if kind_of(key, values, value) is Kind.NODE_IDS:
                needed.append(value.cpu().numpy())
        order = np.argsort(score.numpy())
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        stays = (score >= self.p).numpy()
        stays[order[_highest_below(forest, rank)[np.concatenate(needed)]]] = True
        return tree.restrict(torch.from_numpy(stays))

    def __repr__(self) -> str:
        how = f"p={self.p}" if self.mask is None else f"mask={self.mask!r}"
        return f"{self.__class__.__name__}({how})"


class MaskLeaves(BaseTransform):
    """Replace the features of leaves by a value, at random or by a mask; the structure stays.

    Args:
        p (float, optional): Probability that a leaf is masked, from 0 to 1.
            (default: ``0.15`` without ``mask``)
        value (float or Tensor): What stands in place of each row: a number, or a tensor that
            broadcasts to a row. (default: ``0.0``)
        attrs (str or sequence of str): Leaf attributes, or features ``{m}_x`` of a modality, all of
            whose rows at a masked leaf are replaced. (default: ``"x"``)
        mask (str, optional): In place of ``p`` and ``seed``: leaf attribute ``[N]`` bool, True
            where a leaf is masked. (default: :obj:`None`)
        store (str, optional): Name under which the mask ``[N]`` is stored, e.g. for a loss; one
            that means nothing else in a tree, and that the tree has for a mask if at all.
            (default: not)
        seed (int, optional): As in :class:`DropLeaves`. (default: :obj:`None`)

    Raises:
        UnsupportedError: If the input is no single SignalTree.
        BuilderError: If an attribute is missing, or an argument does not fit.
        ShapeError: If the value does not fit the attribute's rows or type.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 3, -1], x=torch.ones(3, 1))
        >>> MaskLeaves(1.0, value=-1, store="masked")(tree).x.tolist()
        [[-1.0], [-1.0], [-1.0]]
    """

    def __init__(
        self,
        p: float | None = None,
        value: float | Tensor = 0.0,
        *,
        attrs: str | Sequence[str] = "x",
        mask: str | None = None,
        store: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.mask, self.seed = attribute_or_none(mask, "mask"), seed_or_none(seed)
        self.p = _probability(p, 0.15, self.mask, self.seed)
        self.value, self.attrs = _value(value), attributes(attrs, "attrs")
        self.store = attribute_or_none(store, "store")
        if self.store is not None and (_is_reserved(self.store) or self.store in self.attrs):
            raise BuilderError(
                f"store={self.store!r} is a name with a meaning of its own: give the mask another, "
                "e.g. 'masked'."
            )

    def forward(self, data: Any) -> SignalTree:
        """The tree with masked features."""
        tree = check_tree(data, "MaskLeaves")
        if self.mask is not None:
            mask = _mask_of(tree, self.mask)
        else:
            mask = (_draw(tree, self.seed) < self.p).to(tree.tree_index.device)
        for key in self.attrs:
            tree[key] = self._masked(tree, key, mask)
        return tree if self.store is None else _stored(tree, self.store, mask)

    def _masked(self, tree: SignalTree, key: str, mask: Tensor) -> Tensor:
        values = tree.to_dict()
        rows = values.get(key)
        kind = kind_of(key, values, rows)
        of_leaves = isinstance(rows, Tensor) and tree.is_node_attr(key)
        if not isinstance(rows, Tensor) or not (kind is Kind.MODALITY or of_leaves):
            raise BuilderError(
                f"attrs names '{key}', which holds no features of leaves (the tree has "
                f"{sorted(tree.keys())}): give leaf attributes, or {{m}}_x of a modality."
            )
        if kind is Kind.MODALITY:
            mask = mask[values[f"{key.removesuffix('x')}index"]]
        value = torch.as_tensor(self.value, device=rows.device)
        fits = rows.is_complex() or not value.is_complex()
        try:
            same = value.to(rows.dtype) if fits else rows
            fits &= rows.is_floating_point() or torch.equal(same.to(value.dtype), value)
            row = same.expand(rows.shape[1:]) if fits else rows
        except RuntimeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"value={self.value!r} does not fit '{key}' of dtype {rows.dtype} and row shape "
                f"{list(rows.shape[1:])}: give a number of that type, or such a row."
            )
        return torch.where(mask.view(-1, *[1] * (rows.dim() - 1)), row, rows)

    def __repr__(self) -> str:
        how = f"p={self.p}" if self.mask is None else f"mask={self.mask!r}"
        return f"{self.__class__.__name__}({how}, attrs={list(self.attrs)})"


def _probability(p: Any, default: float, mask: str | None, seed: int | None) -> float:
    """``p``, from 0 to 1; only without a mask."""
    if mask is not None and not (p is None and seed is None):
        other = f"p={shown(p)}" if p is not None else f"seed={seed}"
        raise BuilderError(
            f"mask={mask!r} and {other} are both given, but a mask leaves nothing to draw: give "
            "one of them."
        )
    p = default if p is None else p
    try:
        if 0 <= float(p) <= 1:
            return float(p)
    except Exception:  # whatever refuses to be a number
        pass
    raise BuilderError(f"p={shown(p)} is no probability: give a number from 0 to 1.")


def _value(value: Any) -> Any:
    """The value, if it is a number or a dense tensor (or what PyTorch makes one of)."""
    try:
        if torch.as_tensor(value).layout is torch.strided:
            return value
    except Exception:  # PyTorch raises errors of several types
        pass
    raise BuilderError(f"value={shown(value)} is no number: give a number, or a dense tensor.")


def _is_reserved(name: str) -> bool:
    """Whether an attribute of this name means something to a tree, to PyG or to Python."""
    return (
        name in ("leaf_weight", "num_nodes", "batch", "ptr", "adj", "adj_t", "e_id", "n_id", "")
        or name.startswith(("tree_", "_"))
        or name.endswith(("_index", "_node", "_ptr", "_batch"))
        or "edge" in name
        or (hasattr(SignalTree, name) and name not in ("x", "y", "pos", "time"))
    )


def _stored(tree: SignalTree, name: str, mask: Tensor) -> SignalTree:
    """The tree with a mask of its leaves."""
    old = tree.to_dict().get(name)
    if old is not None and not (isinstance(old, Tensor) and old.dtype == torch.bool):
        raise BuilderError(
            f"store={name!r} names an attribute that the tree has and that is no mask: give the "
            "mask another name, e.g. 'masked'."
        )
    tree[name] = mask
    if not tree.is_node_attr(name):  # form_mask beside form_node, image_x beside image_index
        raise BuilderError(
            f"store={name!r} names no leaf attribute, given what else the tree has "
            f"({sorted(tree.keys())}): give the mask another name, e.g. 'masked'."
        )
    return tree


def _draw(tree: SignalTree, seed: int | None) -> Tensor:
    """A different number from [0, 1) for each leaf, ``[N]`` float64 on the CPU."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.rand(tree.num_leaves, dtype=torch.float64, generator=generator)


def _highest_below(forest: Forest, value: NDArray[np.int64]) -> NDArray[np.int64]:
    """The highest of the leaves' values below every node, ``[M]``, by pointer doubling."""
    best = np.full(forest.num_nodes, -1)
    best[: len(value)] = value
    up = np.where(forest.parent < 0, np.arange(forest.num_nodes), forest.parent)
    for _ in range(int(forest.level.max()).bit_length()):  # so far within 2^k - 1 steps, now twice
        np.maximum.at(best, up, best.copy())
        up = up[up]
    return best


def _mask_of(tree: SignalTree, key: str) -> Tensor:
    mask = tree.to_dict().get(key)
    of_leaves = isinstance(mask, Tensor) and mask.shape == (tree.num_leaves,)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or not of_leaves:
        what = "missing" if mask is None else f"a {type(mask).__name__}"
        if isinstance(mask, Tensor):
            what = f"{mask.dtype} {list(mask.shape)}"
        raise BuilderError(
            f"mask={key!r} is {what}: give the name of a bool attribute [{tree.num_leaves}]."
        )
    return mask
