"""Learned biases of ordered sibling pairs, by how far apart the two stand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hsa_geo.data.domain import Domain
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import DomainError, ShapeError
from hsa_geo.nn.checks import check_positive
from hsa_geo.ops.packed import pair_nodes

__all__ = ["OffsetBias"]


class OffsetBias(nn.Module):
    r"""A learned bias per head and offset between two siblings.

    The score of siblings B, C rises by :math:`\beta_{p(C) - p(B)}`, with p their positions in
    the parent's domain.  Unlike a position embedding, whose products are symmetric, it tells
    before from behind.  Offsets beyond ``reach`` share the bias at ``reach``, as is usual for
    relative positions (Shaw et al., 2018).

    Args:
        reach (int): Largest offset along a coordinate with a bias of its own.
        heads (int): Number of heads. (default: :obj:`1`)
        domains (sequence of Domain): Domains whose siblings have offsets: ``SEQUENCE`` (a table
            of ``2 reach + 1`` offsets) and ``GRID2D`` (a table of their square); pairs in others
            have bias zero. (default: both)

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree` or a batch of them
        - **output:** :math:`(\text{pairs}, H)`, in the order of ``plan.pair_nodes``

    Raises:
        ShapeError: If ``reach`` or ``heads`` is not positive, or the tree has no positions.
        DomainError: If another domain is given.

    Example:
        >>> from hsa_geo.nn import HSAConv
        >>> tree = SignalTree.from_parents(
        ...     [3, 3, 3, -1], domain=Domain.SEQUENCE, pos=[0, 1, 2, 0], x=torch.randn(3, 8)
        ... )
        >>> conv = HSAConv(8, 4, heads=2, pair_bias=OffsetBias(4, heads=2))
        >>> conv(tree.x, tree).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        reach: int,
        heads: int = 1,
        domains: Sequence[Domain] = (Domain.SEQUENCE, Domain.GRID2D),
    ) -> None:
        super().__init__()
        check_positive(reach=reach, heads=heads)
        self.reach, self.heads = reach, heads
        self.domains = tuple(Domain(d) for d in domains)
        sizes = {Domain.SEQUENCE: (2 * reach + 1), Domain.GRID2D: (2 * reach + 1) ** 2}
        for domain in self.domains:
            if domain not in sizes:
                raise DomainError(
                    f"siblings in domain {domain.name} have no offsets: give "
                    f"{[d.name for d in sizes]}."
                )
        self.table = nn.ParameterDict(
            {d.name: nn.Parameter(torch.zeros(sizes[d], heads)) for d in self.domains}
        )

    def reset_parameters(self) -> None:
        """Set all biases to zero, where the layer is as without."""
        for table in self.table.values():
            nn.init.zeros_(table)

    def forward(self, tree: SignalTree) -> Tensor:
        """Biases ``[pairs, H]`` of the ordered sibling pairs of a tree or batch."""
        if not isinstance(tree, SignalTree) or "tree_pos" not in tree or "tree_domain" not in tree:
            raise ShapeError(
                f"{tree!r} has no tree_domain and tree_pos: give a SignalTree with positions."
            )
        parent = torch.full_like(tree.tree_domain, -1)
        parent[tree.tree_index[1]] = tree.tree_index[0]
        b, c = pair_nodes(tree)
        domain = tree.tree_domain[parent[b]]  # [pairs]
        offset = (tree.tree_pos[c] - tree.tree_pos[b]).round().long()
        offset = offset.clamp(-self.reach, self.reach) + self.reach  # [pairs, 2], from 0
        out = next(iter(self.parameters())).new_zeros(len(b), self.heads)
        for name, table in self.table.items():
            at = offset[:, 0]
            if name == Domain.GRID2D.name:
                at = at * (2 * self.reach + 1) + offset[:, 1]
            here = (domain == int(Domain[name]))[:, None]
            out = torch.where(here, table.index_select(0, at), out)
        return out

    def __repr__(self) -> str:
        names = ", ".join(d.name for d in self.domains)
        return f"{self.__class__.__name__}({self.reach}, heads={self.heads}, domains=[{names}])"
