"""A tree as plain Python lists: what the oracle and the public checkers read.

Derived from ``tree_index`` and the number of nodes alone, by loops over nodes that follow the
definitions; nothing is shared with :class:`~hsa_geo.data.TreePlan`, which is fast, and is
judged by what stands on these lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

__all__ = ["PlainTree"]


@dataclass(frozen=True)
class PlainTree:
    """The nodes of a tree, or of a batch of trees, as plain Python lists.

    Attributes:
        children: For every node its children in sibling order; M lists.
        roots: The roots in order of increasing id, one for each tree.
        leaves: The leaves in order of increasing id; N of them.
        order: Every node, each after its parent.
        under: [M, N] bool, whether a leaf row lies under a node (a leaf under itself).
        first_pair: For every inner node the number of its first ordered sibling pair.
        num_pairs: Ordered sibling pairs in all.
    """

    children: list[list[int]]
    roots: list[int]
    leaves: list[int]
    order: list[int]
    under: Tensor
    first_pair: dict[int, int]
    num_pairs: int

    @classmethod
    def of(cls, tree: Data) -> PlainTree:
        """Read the lists off ``tree.tree_index`` [2, M - trees] and ``tree.tree_level`` [M].

        Example:
            >>> from hsa_geo.data import SignalTree
            >>> plain = PlainTree.of(SignalTree.from_parents([-1, 0, 0, 2, 2]))
            >>> plain.children, plain.roots, plain.num_pairs
            ([[], [], [], [1, 2], [0, 3]], [4], 4)
        """
        children: list[list[int]] = [[] for _ in range(tree.tree_level.numel())]
        for parent, child in tree.tree_index.t().tolist():
            children[parent].append(child)
        has_parent = {child for group in children for child in group}
        roots = [node for node in range(len(children)) if node not in has_parent]
        leaves = [node for node, group in enumerate(children) if not group]
        order = list(roots)
        for node in order:  # grows while it is walked: breadth first
            order.extend(children[node])
        under = torch.zeros(len(children), len(leaves), dtype=torch.bool)
        under[leaves, range(len(leaves))] = True
        for node in reversed(order):
            for child in children[node]:
                under[node] |= under[child]
        first_pair, num_pairs = {}, 0
        for node, group in enumerate(children):
            if group:
                first_pair[node] = num_pairs
                num_pairs += len(group) * (len(group) - 1)
        return cls(children, roots, leaves, order, under, first_pair, num_pairs)

    def pairs(self) -> list[tuple[int, int]]:
        """The ordered sibling pairs (B, C), in the order of ``bias`` and of the pair mask."""
        groups = (self.children[parent] for parent in self.first_pair)
        return [(b, c) for group in groups for b in group for c in group if c != b]

    def entry(self) -> Tensor:
        """Where entry (i, j) of Theta comes from, [N, N] int64: the number of the sibling pair
        that separates i from j; ``num_pairs + i`` if i = j; ``num_pairs + N`` across trees."""
        n = len(self.leaves)
        entry = torch.full((n, n), self.num_pairs + n)
        rows = [under.nonzero() for under in self.under]  # [|A|, 1] each
        for number, (b, c) in enumerate(self.pairs()):
            entry[rows[b], rows[c].t()] = number
        entry.diagonal().copy_(self.num_pairs + torch.arange(n))
        return entry

    def square(self, pairs: Tensor, node: int) -> Tensor:
        """The rows of ``pairs`` [num_pairs, H] that belong to the children of ``node``, as
        [b, b, H] with a diagonal of zeros."""
        b = len(self.children[node])
        start = self.first_pair[node]
        values = pairs[start : start + b * (b - 1)]
        beside = (~torch.eye(b, dtype=torch.bool, device=pairs.device)).flatten().nonzero()
        zeros = pairs.new_zeros(b * b, pairs.size(1))
        return zeros.index_copy(0, beside.flatten(), values).view(b, b, -1)
