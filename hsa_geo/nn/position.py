r"""Embeddings e(.) of positions in a domain: siblings B, C score ``e(B) . e(C)`` more.

Random Fourier features (Rahimi and Recht, 2007) make ``e(p) . e(p')`` a function of the offset
``p - p'`` that decays with its length, so siblings far apart attend to each other less.  All
siblings share one function; a domain without positions (a set) and the root have e = 0.
:mod:`hsa_geo.nn.position_modules` has the functions of single domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.data.domain import Domain
from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import DomainError, ShapeError, UnsupportedError
from hsa_geo.nn.checks import check_positive, check_tree
from hsa_geo.nn.domains import checked_domains, refuse_unknown
from hsa_geo.nn.position_modules import FourierPosition
from hsa_geo.ops.inputs import as_plan

__all__ = ["PositionEmbedding", "ReadingOrder", "register_position", "unregister_position"]


#: Makes the module of a domain from the numbers of channels and heads.
Factory = Callable[[int, int], nn.Module]

_BUILT_IN: dict[Domain, Factory | None] = {
    Domain.SET: None,
    Domain.SEQUENCE: lambda channels, heads: FourierPosition(1, channels, heads, length=4.0),
    Domain.GRID2D: lambda channels, heads: FourierPosition(2, channels, heads, length=2.0),
}
_FACTORIES = dict(_BUILT_IN)


def register_position(domain: Domain, factory: Factory | None) -> Factory | None:
    """Say how positions in a domain are embedded wherever nothing else is asked for.

    Args:
        domain: The domain.
        factory: Called with the numbers of channels P and heads H, gives a module from positions
            ``[n, 2]`` to ``[n, H or 1, P]`` (from ``tree_pe [n, K]`` if the module has an attribute
            ``reads = "tree_pe"``); None for no positions.

    Returns:
        What was registered before, if anything.  Embeddings that exist already stay as they are;
        :func:`unregister_position` takes a factory away again.

    Raises:
        DomainError: If ``domain`` is none.
        UnsupportedError: If ``factory`` cannot be called.

    Example:
        >>> from hsa_geo.nn import GraphPosition
        >>> register_position(Domain.GRAPH, lambda p, h: GraphPosition(8, p, h))
        >>> PositionEmbedding(16).embed["GRAPH"]
        GraphPosition(8, 16, heads=1)
        >>> _ = unregister_position(Domain.GRAPH)
    """
    before = _FACTORIES.get(_known(domain))
    if factory is not None and (not callable(factory) or isinstance(factory, nn.Module)):
        raise UnsupportedError(
            f"factory={factory!r} makes no modules: give a function of the numbers of channels and "
            "heads, or None."
        )
    _FACTORIES[Domain(domain)] = factory
    return before


def unregister_position(domain: Domain) -> Factory | None:
    """Forget what :func:`register_position` was told; built-in embeddings come back.

    Args:
        domain: The domain.

    Returns:
        What was registered, if anything.

    Raises:
        DomainError: If ``domain`` is none.

    Example:
        >>> unregister_position(Domain.GRAPH) is None
        True
    """
    before = _FACTORIES.pop(_known(domain), None)
    if domain in _BUILT_IN:
        _FACTORIES[domain] = _BUILT_IN[domain]
    return before


def _known(domain: Domain) -> Domain:
    if not isinstance(domain, Integral) or domain not in set(Domain):
        names = ", ".join(f"Domain.{d.name}" for d in Domain)
        raise DomainError(f"domain={domain!r:.80} is none: give one of {names}.")
    return Domain(domain)


class PositionEmbedding(nn.Module):
    """Position embeddings of all nodes of a tree, by the domain they lie in.

    A node's embedding is that of its position ``tree_pos`` in its parent's domain: Fourier
    features in a ``SEQUENCE`` (first coordinate) or ``GRID2D`` (both), zero in a ``SET`` and at
    roots.  For other domains, such as a ``GRAPH`` (:class:`~hsa_geo.nn.GraphPosition`), give a
    module that maps ``tree_pos`` rows ``[n, 2]`` to ``[n, H or 1, channels]``; one with an
    attribute ``reads = "tree_pe"`` gets the rows of that.  :func:`register_position` changes what
    is built in.

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
        check_positive(channels=channels, heads=heads)
        self.channels, self.heads = channels, heads
        given = _given(domains)
        modules: dict[Domain, nn.Module | None] = {
            domain: factory(channels, heads) if factory is not None else None
            # in one order, so that a seed makes the same weights whatever was registered meanwhile
            for domain, factory in sorted(_FACTORIES.items())
            if domain not in given
        } | given
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
        check_tree(tree)
        if "tree_domain" not in tree or "tree_pos" not in tree:
            raise ShapeError(
                f"{tree} has no tree_domain and tree_pos to embed: build it with "
                "SignalTree.from_parents, or use no position module."
            )
        parent, child = tree.tree_index
        domain = torch.full_like(tree.tree_domain, int(Domain.SET))  # of a root: no position
        domain[child] = tree.tree_domain[parent]
        if torch.compiler.is_compiling():
            return self._by_mask(tree, domain)
        refuse_unknown(domain, self.known)
        like = next((p for p in self.parameters()), tree.tree_pos)
        dtype = torch.promote_types(like.dtype, torch.float32)
        out = tree.tree_pos.new_zeros(len(domain), self.heads, self.channels, dtype=dtype)
        for name, module in self.embed.items():
            rows = (domain == int(Domain[name])).nonzero().squeeze(1)
            if len(rows) == 0:
                continue
            e = module(_read(tree, name, module)[rows])
            shapes = [[len(rows), heads, self.channels] for heads in (self.heads, 1)]
            if list(e.shape) not in shapes:
                raise ShapeError(
                    f"the module for {name} gives {list(e.shape)}: {shapes[0]} is needed, or one "
                    "head."
                )
            out = out.index_copy(0, rows, e.expand(-1, self.heads, -1).to(dtype))
        return out

    def _by_mask(self, tree: SignalTree, domain: Tensor) -> Tensor:
        """The same without sizes that depend on the data: every module sees every position."""
        position = tree.tree_pos
        if domain.device.type == "cpu":
            domain = checked_domains(domain, sorted(self.known))
        else:
            known = torch.isin(domain, torch.tensor(sorted(self.known), device=domain.device))
            torch._assert_async(known.all(), "a position lies in a domain without an embedding")
        like = next((p for p in self.parameters()), position)
        dtype = torch.promote_types(like.dtype, torch.float32)
        out = position.new_zeros(domain.size(0), self.heads, self.channels, dtype=dtype)
        for name, module in self.embed.items():
            here = domain == int(Domain[name])
            read = _read(tree, name, module)
            e = module(torch.where(here[:, None], read, 1.0))  # no stranger's position
            if e.dim() != 3 or e.size(1) not in (1, self.heads) or e.size(2) != self.channels:
                raise ShapeError(
                    f"the module for {name} gives {list(e.shape)}: [n, {self.heads} or 1, "
                    f"{self.channels}] is needed."
                )
            out = torch.where(here[:, None, None], e.to(dtype), out)
        return out


def _given(domains: Any) -> dict[Domain, nn.Module | None]:
    if domains is not None and not isinstance(domains, Mapping):
        raise DomainError(
            f"domains={domains!r:.80} is no dict: give modules by their domain, such as "
            "{Domain.SEQUENCE: FourierPosition(1, ...)}."
        )
    given = {_known(key): module for key, module in (domains or {}).items()}
    for domain, module in given.items():
        if module is not None and not isinstance(module, nn.Module):
            raise UnsupportedError(
                f"domains has {module!r:.80} for {domain.name}: give a torch.nn.Module that maps "
                "positions [n, 2] to [n, heads or 1, channels], or None for no positions."
            )
    return given


def _read(tree: SignalTree, name: str, module: nn.Module) -> Tensor:
    """What a module reads: positions, or encodings of positions."""
    key = getattr(module, "reads", "tree_pos")
    if key not in tree:
        raise ShapeError(
            f"the module for {name} reads {key}, which the tree does not have: add it, e.g. with "
            "hsa_geo.transforms.AddTreePE."
        )
    return tree[key]


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
