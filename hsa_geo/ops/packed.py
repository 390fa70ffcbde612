"""Operators that make and read packed plans inside ``torch.compile``.

To the compiler they are opaque, so a plan can be made within the graph, from trees of any shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hsa_geo._optional import HAS_NUMBA
from hsa_geo.data.kept import PackedPlan, check_packed, unpack_kept
from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.data.store import leaf_count
from hsa_geo.errors import ShapeError

__all__ = [
    "leaves_under",
    "num_leaves",
    "num_pairs",
    "packed_plan",
    "pair_nodes",
    "tree_means",
    "tree_shares",
    "within_compile",
]


def within_compile(x: Any) -> bool:
    """Whether a graph is being compiled in which packed plans serve the tensor ``x``."""
    return torch.compiler.is_compiling() and HAS_NUMBA and x.device.type == "cpu"


def packed_plan(
    tree_index: Tensor, tree_level: Tensor, num_leaves: int, leaf_weight: Tensor | None = None
) -> PackedPlan:
    """The plan of a tree or batch, made within the graph.

    Args:
        tree_index: ``[2, E]``.
        tree_level: ``[M]``.
        num_leaves: Number of leaves, as far as the features say.
        leaf_weight: ``[N]``, how often every leaf counts. (default: once)

    Returns:
        The plan.

    Example:
        >>> plan = packed_plan(torch.tensor([[2, 2], [0, 1]]), torch.tensor([1, 1, 0]), 2)
        >>> plan.num_leaves, plan.num_nodes
        (2, 3)
    """
    return PackedPlan(_pack(tree_index, tree_level, leaf_weight), num_leaves, tree_level.size(0))


def num_leaves(tree: SignalTree) -> int:
    """Number of leaves N; within a graph a size that only its run will tell.

    Args:
        tree: A tree or a batch.

    Returns:
        N.

    Example:
        >>> num_leaves(SignalTree.from_parents([2, 2, -1]))
        2
    """
    if within_compile(tree.tree_index):
        return _leaf_rows(tree.tree_index, tree.tree_level).size(0)
    return tree.num_leaves


def num_pairs(plan: TreePlan | PackedPlan) -> int:
    """Number of ordered sibling pairs P; within a graph a size that only its run will tell.

    Args:
        plan: The plan.

    Returns:
        P.

    Example:
        >>> num_pairs(packed_plan(torch.tensor([[2, 2], [0, 1]]), torch.tensor([1, 1, 0]), 2))
        2
    """
    return _pair_rows(plan.packed).size(0) if isinstance(plan, PackedPlan) else plan.num_pairs


def pair_nodes(tree: SignalTree) -> Tensor:
    """Nodes of every ordered sibling pair of a tree or batch, also within a graph.

    Args:
        tree: The tree.

    Returns:
        ``[2, P]``, as :attr:`TreePlan.pair_nodes <hsa_geo.data.TreePlan>`.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> pair_nodes(SignalTree.from_parents([2, 2, -1])).tolist()
        [[0, 1], [1, 0]]
    """
    if within_compile(tree.tree_index):
        return _pair_nodes(tree.tree_index, tree.tree_level)
    return tree.plan.pair_nodes


def leaves_under(
    tree: SignalTree | TreePlan, nodes: Tensor | None, equal_children: bool = False
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The leaves under given nodes and their shares in a mean, also within a graph.

    Args:
        tree: A plan; within a graph the tree or batch itself.
        nodes: Ids ``[K]``, or None for the root of every tree.
        equal_children: The mean in which every node is the mean of its children, instead of that
            of all leaves. (default: :obj:`False`)

    Returns:
        For every leaf under every node the place of the node in ``nodes``, the row of the leaf and
        its share of the node's mean (``[T]`` each, the share float64), and K.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> *found, k = leaves_under(tree.plan, torch.tensor([2, 0]))
        >>> [t.tolist() for t in found], k
        ([[0, 0, 1], [0, 1, 0], [0.5, 0.5, 1.0]], 2)
    """
    if isinstance(tree, TreePlan):
        of, row, share, slots = _shares(tree, nodes, equal_children)
        return of, row, share, slots.size(0)
    weight = tree.leaf_weight if "leaf_weight" in tree else None
    of, row, share, slots = _leaves_under(
        tree.tree_index, tree.tree_level, weight, nodes, equal_children
    )
    return of, row, share, slots.size(0)


def tree_means(x: Tensor, plan: TreePlan | PackedPlan) -> Tensor:
    """For every leaf the mean over its own tree, without gradient: no tree touches another.

    Args:
        x: ``[N, ...]``.
        plan: The plan.

    Returns:
        ``[N, ...]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([2, 2, -1]).plan
        >>> tree_means(torch.tensor([[1.0], [3.0]]), plan).tolist()
        [[2.0], [2.0]]
    """
    if isinstance(plan, PackedPlan) or within_compile(x):
        return _packed_means(x, plan.packed)
    if plan.num_trees == 1:
        return x.mean(0, keepdim=True).expand_as(x)
    return _means(x, plan.leaf_tree, plan.count[: plan.num_trees])


def tree_shares(plan: TreePlan | PackedPlan, like: Tensor) -> tuple[Tensor, Tensor, int]:
    """For every leaf its tree and its share in means over it.

    Args:
        plan: The plan.
        like: A tensor with a row for every leaf.

    Returns:
        Tree ``[N]``, share ``[N]`` float64, and the number of trees B.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> tree, share, b = tree_shares(SignalTree.from_parents([2, 2, -1]).plan, torch.zeros(2))
        >>> tree.tolist(), share.tolist(), b
        ([0, 0], [0.5, 0.5], 1)
    """
    if isinstance(plan, PackedPlan) or within_compile(like):
        tree, share, roots = _tree_shares(like.detach(), plan.packed)
        return tree, share, roots.size(0)
    share = 1 / plan.mass[: plan.num_trees].double()[plan.leaf_tree]
    if plan.leaf_weight is not None:
        share = share * plan.leaf_weight
    return plan.leaf_tree, share, plan.num_trees


def _means(x: Tensor, tree: Tensor, count: Tensor) -> Tensor:
    total = x.new_zeros((len(count), *x.shape[1:])).index_add_(0, tree, x)
    return (total / count.view(-1, *[1] * (x.dim() - 1))).index_select(0, tree)


@torch.library.custom_op("hsa_geo::packed_plan", mutates_args=(), device_types="cpu")
def _pack(tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None) -> Tensor:
    return TreePlan.from_index(tree_index, tree_level, leaf_weight).packed


@_pack.register_fake
def _(tree_index: Tensor, tree_level: Tensor, leaf_weight: Tensor | None) -> Tensor:
    return tree_index.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("hsa_geo::leaf_rows", mutates_args=(), device_types="cpu")
def _leaf_rows(tree_index: Tensor, tree_level: Tensor) -> Tensor:
    return tree_index.new_empty(leaf_count(tree_index, len(tree_level)), 0)


@_leaf_rows.register_fake
def _(tree_index: Tensor, tree_level: Tensor) -> Tensor:
    return tree_index.new_empty(torch.library.get_ctx().new_dynamic_size(), 0)


@torch.library.custom_op("hsa_geo::pair_rows", mutates_args=(), device_types="cpu")
def _pair_rows(packed: Tensor) -> Tensor:
    return packed.new_empty(int(packed[6]), 0)


@_pair_rows.register_fake
def _(packed: Tensor) -> Tensor:
    return packed.new_empty(torch.library.get_ctx().new_dynamic_size(), 0)


@torch.library.custom_op("hsa_geo::pair_nodes", mutates_args=(), device_types="cpu")
def _pair_nodes(tree_index: Tensor, tree_level: Tensor) -> Tensor:
    return TreePlan.from_index(tree_index, tree_level).pair_nodes


@_pair_nodes.register_fake
def _(tree_index: Tensor, tree_level: Tensor) -> Tensor:
    return tree_index.new_empty(2, torch.library.get_ctx().new_dynamic_size())


def _shares(
    plan: TreePlan, nodes: Tensor | None, equal_children: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    slots = plan.slots_of(nodes)
    rows, ptr = plan.leaves_under(slots)
    of = torch.repeat_interleave(ptr.diff())
    if equal_children:
        share = (plan.log_share[plan.row_slot[rows]] - plan.log_share[slots][of]).exp()
        return of, rows, share, slots
    share = 1 / plan.mass[slots].double()[of]
    if plan.leaf_weight is not None:
        share = share * plan.leaf_weight[rows]
    return of, rows, share, slots


@torch.library.custom_op("hsa_geo::leaves_under", mutates_args=(), device_types="cpu")
def _leaves_under(
    tree_index: Tensor,
    tree_level: Tensor,
    leaf_weight: Tensor | None,
    nodes: Tensor | None,
    equal_children: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    plan = TreePlan.from_index(tree_index, tree_level, leaf_weight)
    of, rows, share, slots = _shares(plan, nodes, equal_children)
    return of, rows, share, slots.clone()


@_leaves_under.register_fake
def _(
    tree_index: Tensor,
    tree_level: Tensor,
    leaf_weight: Tensor | None,
    nodes: Tensor | None,
    equal_children: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    context = torch.library.get_ctx()
    total = context.new_dynamic_size()
    k = context.new_dynamic_size() if nodes is None else nodes.size(0)
    new = tree_index.new_empty
    return new(total), new(total), new(total, dtype=torch.float64), new(k)


def _trees_of(x: Tensor, packed: Tensor) -> tuple[Any, Any, Tensor]:
    """Groups of leaves, kept slots, and the tree of every leaf by row."""
    from hsa_geo.ops.compiled.frame import trees
    from hsa_geo.ops.compiled.leaves import leaf_trees

    check_packed(packed)
    leaves = int(packed[4])
    if len(x) != leaves:  # nobody else can say so inside torch.compile, and kernels do not look
        raise ShapeError(
            f"q has shape {list(x.shape)}: the trees have {leaves} leaves, so give {leaves} rows."
        )
    groups, kept = trees(*unpack_kept(packed))
    tree = torch.empty(len(x), dtype=torch.int64)
    leaf_trees(groups, kept, tree.numpy())
    return groups, kept, tree


@torch.library.custom_op("hsa_geo::tree_shares", mutates_args=(), device_types="cpu")
def _tree_shares(like: Tensor, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    _, kept, tree = _trees_of(like, packed)
    weight = torch.ones(len(tree), dtype=torch.float64)
    row, size = torch.from_numpy(kept.leaf), torch.from_numpy(kept.size)
    weight[row[row >= 0]] = size[row >= 0].double()
    roots = size[: kept.trees].clone()
    return tree, weight / roots[tree], roots


@_tree_shares.register_fake
def _(like: Tensor, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = like.size(0)
    new = packed.new_empty
    return new(n), new(n, dtype=torch.float64), new(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("hsa_geo::tree_means", mutates_args=(), device_types="cpu")
def _packed_means(x: Tensor, packed: Tensor) -> Tensor:
    _, kept, tree = _trees_of(x, packed)
    return _means(x, tree, torch.from_numpy(kept.size[: kept.trees]))


@_packed_means.register_fake
def _(x: Tensor, packed: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)
