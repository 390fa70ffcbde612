"""Key-tied attention as message passing: from the slots that a leaf reaches to the leaf."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from hsa_geo.data.plan import TreePlan
from hsa_geo.ops.segment import segment_sum

__all__ = ["ReachPass"]


class ReachPass(MessagePassing):
    """Slots to leaves: every leaf hears from the siblings of itself and of its ancestors.

    ``forward(value [S, H, Dv], share [Q, H], plan) -> [N, H, Dv]``.

    Example:
        >>> from hsa_geo.data import SignalTree
        >>> plan = SignalTree.from_parents([3, 3, 3, -1]).plan
        >>> value = torch.tensor([0.0, 1.0, 2.0, 4.0]).view(4, 1, 1)  # the root's, then the leaves'
        >>> ReachPass()(value, torch.full((6, 1), 0.5), plan).flatten().tolist()
        [3.0, 2.5, 1.5]
    """

    explain = False

    def __init__(self) -> None:
        super().__init__(aggr="sum", node_dim=0)

    def forward(self, value: Tensor, share: Tensor, plan: TreePlan) -> Tensor:
        """Weighted sums of what each leaf reaches."""
        reach = plan.reach
        size = (plan.num_slots, plan.num_leaves)
        edges = torch.stack([reach.slot, reach.row])
        return self.propagate(edges, value=value, share=share, reach_ptr=reach.ptr, size=size)

    def message(self, value_j: Tensor, share: Tensor) -> Tensor:
        """Mean value of the slot, weighted."""
        return value_j * share[:, :, None]

    def aggregate(self, inputs: Tensor, reach_ptr: Tensor) -> Tensor:
        """Sum over the contiguous pairs of each leaf."""
        return segment_sum(inputs, reach_ptr)
