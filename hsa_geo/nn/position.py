r"""Embeddings e(.) of positions in a domain: siblings B, C score ``e(B) . e(C)`` more.

Random Fourier features (Rahimi and Recht, 2007) make ``e(p) . e(p')`` a function of the offset
``p - p'`` that decays with its length, so siblings far apart attend to each other less.  All
siblings share one function; a domain without positions (a set) and the root have e = 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.data.domain import Domain
from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import DomainError, ShapeError
from hsa_geo.ops.inputs import as_plan

__all__ = ["FourierPosition", "PositionEmbedding", "ReadingOrder"]


class FourierPosition(nn.Module):
    r"""Random Fourier features of coordinates, with learnable length and strength.

    .. math::
        e(p) = \frac{g}{\sqrt{P/2}} \, [\cos(\Omega p / \ell), \sin(\Omega p / \ell)], \qquad
        e(p) \cdot e(p') \approx g^2 \exp(-|p - p'|^2 / 2 \ell^2)

    with :math:`\Omega` drawn once from a normal distribution.

    Args:
        coordinates (int): Number of coordinates, 1 for sequences, 2 for grids.
        channels (int): Number of features P, even. (default: :obj:`16`)
        heads (int): Number of heads, each with its own strength g. (default: :obj:`1`)
        length (float): Initial length :math:`\ell`, in units of position. (default: :obj:`4.0`)
        strength (float): Initial strength g. (default: :obj:`1.0`)

    Shapes:
        - **input:** positions :math:`(n, \ge \text{coordinates})`; further columns do not count
        - **output:** :math:`(n, H, P)`, float32 at least, under autocast too

    Raises:
        ShapeError: If ``channels`` is odd or the positions have too few coordinates.

    Example:
        >>> e = FourierPosition(1, channels=64)(torch.tensor([[0.0], [1.0], [50.0]]))[:, 0]
        >>> near, far = e[0] @ e[1], e[0] @ e[2]
        >>> bool(near > 0.5) and bool(near > far)
        True
    """

    frequency: Tensor

    def __init__(
        self,
        coordinates: int,
        channels: int = 16,
        heads: int = 1,
        length: float = 4.0,
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if channels < 2 or channels % 2:
            raise ShapeError(f"channels={channels} must be even: cosines and sines come in pairs.")
        if length <= 0 or strength <= 0:
            raise ShapeError(f"length={length} and strength={strength} must be positive.")
        self.coordinates, self.channels, self.heads = coordinates, channels, heads
        self.length, self.strength = length, strength
        self.register_buffer("frequency", torch.empty(coordinates, channels // 2))
        self.log_length = nn.Parameter(torch.empty(()))
        self.log_strength = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies anew and set length and strength to their initial values."""
        nn.init.normal_(self.frequency)
        nn.init.constant_(self.log_length, torch.tensor(self.length).log().item())
        nn.init.constant_(self.log_strength, torch.tensor(self.strength).log().item())

    def forward(self, position: Tensor) -> Tensor:
        """Embed positions ``[n, >= coordinates]`` as ``[n, H, P]``."""
        if position.dim() != 2 or position.size(1) < self.coordinates:
            raise ShapeError(
                f"position has shape {list(position.shape)}: give [n, {self.coordinates}] or more "
                "columns."
            )
        # In float32 at least: a phase of a hundred turns has no digits left in half precision.
        wide = torch.promote_types(self.frequency.dtype, torch.float32)
        with torch.autocast(device_type=position.device.type, enabled=False):
            frequency = self.frequency.to(wide) / self.log_length.to(wide).exp()
            # No matrix product: torch.compile would compile one anew for few and for many rows.
            places = position[:, : self.coordinates].to(wide)
            phase = (places[:, :, None] * frequency).sum(1)  # [n, P/2]
            wave = torch.cat([phase.cos(), phase.sin()], -1) / (self.channels / 2) ** 0.5  # [n, P]
            return wave[:, None, :] * self.log_strength.to(wide).exp()[:, None]  # [n, H, P]

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.coordinates}, {self.channels}, heads={self.heads})"


class PositionEmbedding(nn.Module):
    """Position embeddings of all nodes of a tree, by the domain they lie in.

    A node's embedding is that of its position ``tree_pos`` in its parent's domain: Fourier
    features in a ``SEQUENCE`` (first coordinate) or ``GRID2D`` (both), zero in a ``SET`` and at
    roots.  For other domains give a module that maps ``tree_pos`` rows ``[n, 2]`` to ``[n, H or 1,
    channels]``.

    Args:
        channels (int): Number of features P, even. (default: :obj:`16`)
        heads (int): Number of heads. (default: :obj:`1`)
        domains (dict, optional): Modules for further domains, or in place of the built-in ones;
            None as a value means no positions. (default: :obj:`None`)

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree` or a batch of them
        - **output:** :math:`(M, H, P)`

    Raises:
        DomainError: If the tree has a domain for which there is no embedding.
        ShapeError: If the tree has no positions, or a given module's output does not fit.

    Example:
        >>> from hsa_geo.data import Domain, SignalTree
        >>> tree = SignalTree.from_parents([3, 3, 3, -1], domain=Domain.SEQUENCE, pos=[0, 1, 2, 0])
        >>> PositionEmbedding(8, heads=2)(tree).shape
        torch.Size([4, 2, 8])
    """

    def __init__(
        self,
        channels: int = 16,
        heads: int = 1,
        domains: Mapping[Domain, nn.Module | None] | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.heads = channels, heads
        modules: dict[Domain, nn.Module | None] = {
            Domain.SET: None,
            Domain.SEQUENCE: FourierPosition(1, channels, heads, length=4.0),
            Domain.GRID2D: FourierPosition(2, channels, heads, length=2.0),
        }
        modules.update({Domain(key): module for key, module in (domains or {}).items()})
        self.known = frozenset(int(domain) for domain in modules)
        self.embed = nn.ModuleDict(
            {domain.name: module for domain, module in modules.items() if module is not None}
        )

    def reset_parameters(self) -> None:
        """Draw the parameters of all domains anew."""
        for module in self.embed.values():
            reset(module)

    def forward(self, tree: SignalTree) -> Tensor:
        """Embeddings ``[M, H, P]`` of the nodes of a tree or batch."""
        if "tree_domain" not in tree or "tree_pos" not in tree:
            raise ShapeError(
                f"{tree} has no tree_domain and tree_pos to embed: build it with "
                "SignalTree.from_parents, or use no position module."
            )
        parent, child = tree.tree_index
        domain = torch.full_like(tree.tree_domain, int(Domain.SET))  # of a root: no position
        domain[child] = tree.tree_domain[parent]
        if torch.compiler.is_compiling():
            return self._by_mask(tree.tree_pos, domain)
        unknown = set(domain.unique().tolist()) - self.known
        if unknown:
            label = min(unknown)
            name = Domain(label).name if label in set(Domain) else str(label)
            raise DomainError(
                f"no embedding for positions in domain {name}: pass domains={{Domain.{name}: "
                "module}, or None as the module for no positions."
            )
        like = next((p for p in self.parameters()), tree.tree_pos)
        dtype = torch.promote_types(like.dtype, torch.float32)
        out = tree.tree_pos.new_zeros(len(domain), self.heads, self.channels, dtype=dtype)
        for name, module in self.embed.items():
            rows = (domain == int(Domain[name])).nonzero().squeeze(1)
            if len(rows) == 0:
                continue
            e = module(tree.tree_pos[rows])
            shapes = [[len(rows), heads, self.channels] for heads in (self.heads, 1)]
            if list(e.shape) not in shapes:
                raise ShapeError(
                    f"the module for {name} gives {list(e.shape)}: {shapes[0]} is needed, or one "
                    "head."
                )
            out = out.index_copy(0, rows, e.expand(-1, self.heads, -1).to(dtype))
        return out

    def _by_mask(self, position: Tensor, domain: Tensor) -> Tensor:
        """The same without sizes that depend on the data: every module sees every position."""
        known = torch.zeros_like(domain, dtype=torch.bool)
        for label in sorted(self.known):
            known = known | (domain == label)
        torch._assert_async(known.all(), "a position lies in a domain without an embedding")
        like = next((p for p in self.parameters()), position)
        dtype = torch.promote_types(like.dtype, torch.float32)
        out = position.new_zeros(domain.size(0), self.heads, self.channels, dtype=dtype)
        for name, module in self.embed.items():
            here = domain == int(Domain[name])
            e = module(torch.where(here[:, None], position, 1.0))  # no stranger's position
            if e.dim() != 3 or e.size(1) not in (1, self.heads) or e.size(2) != self.channels:
                raise ShapeError(
                    f"the module for {name} gives {list(e.shape)}: [n, {self.heads} or 1, "
                    f"{self.channels}] is needed."
                )
            out = torch.where(here[:, None, None], e.to(dtype), out)
        return out


class ReadingOrder(nn.Module):
    """Embeddings of the places 0, 1, ... of the leaves in their tree's reading order.

    The position module of :class:`~hsa_geo.nn.FlatConv`, which knows no other position:
    :class:`FourierPosition` of the place of each leaf in the depth-first order of its own tree.

    Args:
        channels (int): Number of features P, even. (default: :obj:`16`)
        heads (int): Number of heads. (default: :obj:`1`)

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree`, a batch of them, or their plan
        - **output:** :math:`(N, H, P)`, a row per leaf, float32 at least

    Raises:
        ShapeError: If ``channels`` is odd, or the input is something else.

    Example:
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1])
        >>> ReadingOrder(8, heads=2)(tree).shape
        torch.Size([4, 2, 8])
    """

    def __init__(self, channels: int = 16, heads: int = 1) -> None:
        super().__init__()
        self.channels, self.heads = channels, heads
        self.embed = FourierPosition(1, channels, heads)

    def reset_parameters(self) -> None:
        """Draw the frequencies anew and set length and strength to their initial values."""
        self.embed.reset_parameters()

    def forward(self, tree: SignalTree | TreePlan) -> Tensor:
        """Embeddings ``[N, H, P]`` of the leaves of a tree or batch."""
        plan = as_plan(tree)
        first = plan.leaf_start[: plan.num_trees]  # in depth-first order, of every tree
        place = torch.empty_like(plan.leaf_order)
        place[plan.leaf_order] = torch.arange(plan.num_leaves, device=plan.device)
        place = place - first[plan.leaf_tree]
        return self.embed(place[:, None].to(torch.float32))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, heads={self.heads})"
