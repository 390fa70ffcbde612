"""LeafFeatures: the modalities of a tree, each by its encoder, become one vector per leaf."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import MixedKeysError, ShapeError
from hsa_geo.nn.checks import check_tree, is_size
from hsa_geo.ops.packed import num_leaves

__all__ = ["LeafFeatures"]


class LeafFeatures(nn.Module):
    r"""Leaf features of a tree from its modalities.

    .. math::
        \mathbf{x}_i = \sum_{m \,:\, R_m(i) \neq \emptyset} \Big( \mathbf{t}_m
        + \frac{1}{|R_m(i)|} \sum_{r \in R_m(i)} \mathrm{enc}_m(\mathbf{x}^{(m)}_r) \Big)

    with :math:`R_m(i)` the rows of modality m on leaf i and :math:`\mathbf{t}_m` a learned vector
    of the modality.  Rows of one modality on one leaf are averaged, so that a leaf is not louder
    for having many; modalities add up.  A leaf without any is zero.

    Args:
        encoders (dict): By the name of a modality a module that maps its rows ``{m}_x [n, ...]``
            to ``[n, channels]``; those of name ``"x"`` read ``tree.x`` itself, a row per leaf.  A
            module with an attribute ``reads = "tree"``, such as
            :class:`~hsa_geo.nn.TokenEncoder`, is given the tree and answers with a row per leaf.
        channels (int): Width C of the output.

    Shapes:
        - **input:** a :class:`~hsa_geo.data.SignalTree` or a batch of them
        - **output:** :math:`(N, C)`

    Raises:
        MixedKeysError: If the tree does not have a modality.
        ShapeError: If there is no encoder, a name cannot be that of a module, an encoder's
            output does not fit, or leaf rows are out of range.

    Example:
        >>> from hsa_geo.nn import LinearFeatures, Symbols
        >>> tree = SignalTree.from_parents(
        ...     [3, 3, 3, -1], word_x=torch.tensor([5, 7]), word_index=torch.tensor([0, 2]),
        ...     image_x=torch.randn(1, 12), image_index=torch.tensor([1]))
        >>> features = LeafFeatures({"word": Symbols(9, 4), "image": LinearFeatures(12, 4)}, 4)
        >>> features(tree).shape
        torch.Size([3, 4])
    """

    def __init__(self, encoders: Mapping[str, nn.Module], channels: int) -> None:
        super().__init__()
        if not isinstance(encoders, Mapping) or not encoders or not is_size(channels):
            raise ShapeError(
                f"encoders={encoders!r}, channels={channels!r}: give a dict of at least one "
                "encoder by the name of its modality, and a positive width."
            )
        for name, module in encoders.items():
            if not isinstance(name, str) or not name.isidentifier() or hasattr(nn.ModuleDict, name):
                raise ShapeError(
                    f"a modality cannot be called {name!r}: give a name of letters, digits and _, "
                    "which is no method of a dict."
                )
            if not isinstance(module, nn.Module):
                raise ShapeError(f"the encoder of '{name}' is {module!r}: give a torch.nn.Module.")
            width = getattr(module, "channels", channels)
            if width != channels:
                raise ShapeError(
                    f"the encoder of '{name}' has channels={width}, but channels={channels} are "
                    "needed: give all of them this width."
                )
        self.channels = channels
        self.encoders = nn.ModuleDict(encoders)
        self.kind = nn.Parameter(torch.empty(len(encoders), channels))
        nn.init.normal_(self.kind, std=0.02)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, those of the encoders too."""
        for module in self.encoders.values():
            reset(module)
        nn.init.normal_(self.kind, std=0.02)

    def forward(self, tree: SignalTree) -> Tensor:
        """Features ``[N, channels]`` of the leaves of a tree or batch."""
        check_tree(tree)
        n = num_leaves(tree)
        total: Tensor | None = None
        for (name, module), kind in zip(self.encoders.items(), self.kind):
            if getattr(module, "reads", None) == "tree":
                part = _rows(module(tree), name, n, self.channels) + kind
            elif name == "x":
                part = _rows(module(_of(tree, "x", name)), name, n, self.channels) + kind
            else:
                part = self._modality(tree, name, module, kind, n)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _modality(
        self, tree: SignalTree, name: str, module: nn.Module, kind: Tensor, n: int
    ) -> Tensor:
        """One modality: ``[N, channels]``, zero at leaves without it."""
        x, leaf = _of(tree, f"{name}_x", name), _of(tree, f"{name}_index", name)
        if leaf.dtype != torch.int64 or leaf.dim() != 1 or leaf.size(0) != x.size(0):
            raise ShapeError(
                f"{name}_index has shape {list(leaf.shape)} and dtype {leaf.dtype}: give int64 "
                f"[{x.size(0)}], the leaf row of each row of {name}_x."
            )
        if not torch.compiler.is_compiling() and leaf.numel():
            low, high = (int(value) for value in torch.aminmax(leaf))
            if low < 0 or high >= n:
                raise ShapeError(
                    f"{name}_index holds rows {low} to {high}, but the tree has {n} leaves: give "
                    f"rows from 0 to {n - 1}."
                )
        rows = _rows(module(x), name, x.size(0), self.channels) + kind
        count = rows.new_zeros(n).index_add(0, leaf, rows.new_ones(x.size(0)))
        total = rows.new_zeros(n, self.channels).index_add(0, leaf, rows)
        return total / count.clamp(min=1)[:, None]

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({list(self.encoders)}, {self.channels})"


def _of(tree: SignalTree, key: str, name: str) -> Tensor:
    value = tree.get(key)
    if not isinstance(value, Tensor):
        raise MixedKeysError(
            f"the tree has no {key} for the encoder of '{name}' (it has {sorted(tree.keys())}): "
            "build it with this modality, empty where there is nothing, or leave the encoder out."
        )
    return value


def _rows(out: Tensor, name: str, rows: int, channels: int) -> Tensor:
    if not isinstance(out, Tensor) or out.dim() != 2 or out.size(1) != channels:
        kind = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ShapeError(
            f"the encoder of '{name}' gives {kind}: [{rows}, {channels}] is needed, a vector of "
            "the width for each row."
        )
    if not torch.compiler.is_compiling() and out.size(0) != rows:
        raise ShapeError(f"the encoder of '{name}' gives {out.size(0)} rows for {rows}.")
    return out
