"""What happens between the attention layers of a model, which a rollout takes to be leaf by leaf.

Two leaves are told apart by at least one bit of their numbers.  So for every bit the gradient of
what a layer is given for the leaves with that bit, with respect to the other leaves' part of what
came before, shows whether any leaf hears of another one in between; and so without the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import UnsupportedError
from hsa_geo.explain.watch import Run, answer, call_of
from hsa_geo.nn.conv.hsa_conv import HSAConv
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.modalities import PatchConv

__all__ = ["convolutions_refused", "refuse_other_ways"]

_INSTEAD = "use attribute_leaves(model, tree), which follows everything."


@contextmanager
def convolutions_refused(model: nn.Module, tree: SignalTree) -> Iterator[None]:
    """UnsupportedError if a convolution of the model runs over leaves rather than within each.

    Args:
        model: The model.
        tree: The tree that it is given meanwhile.

    Example:
        >>> tree = SignalTree.from_parents([2, 2, -1])
        >>> with convolutions_refused(nn.Conv1d(3, 3, 5), tree):
        ...     nn.Conv1d(3, 3, 5)(torch.randn(2, 3, 9)).shape  # of each leaf
        torch.Size([2, 3, 5])
    """
    n = tree.num_leaves
    rows = {n} | {len(tree[key]) for key in tree.keys() if key.endswith("_x")}  # noqa: SIM118
    own = {
        id(part) for one in model.modules() if isinstance(one, PatchConv) for part in one.modules()
    }
    names = {id(module): name for name, module in model.named_modules()}

    def look(module: Any, args: tuple[Any, ...]) -> None:
        x = args[0]
        batch, *_ = x.shape if x.dim() == len(module.kernel_size) + 2 else (1,)
        sides = x.shape[-len(module.kernel_size) :]
        if n == 1 or (batch in rows and (batch > 1 or n not in sides)):
            return
        raise UnsupportedError(
            f"'{names[id(module)]}' ({type(module).__name__}) is given {list(x.shape)}, which has "
            f"no row for each of the N={n} leaves, so it may pass something among them that "
            f"attention rollout does not follow: {_INSTEAD}"
        )

    hooks = [
        module.register_forward_pre_hook(look)
        for module in model.modules()
        if isinstance(module, _ConvNd) and id(module) not in own and max(module.kernel_size) > 1
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class _Cut:
    """A run of a model whose attention layers end the graph of gradients behind them."""

    given: list[Tensor] = field(default_factory=list)  # to each layer
    said: list[Tensor] = field(default_factory=list)  # by each layer
    names: list[str] = field(default_factory=list)


def refuse_other_ways(model: nn.Module, tree: SignalTree, run: Run | None) -> None:
    """UnsupportedError if leaves hear of each other between the layers, or layers not in a row.

    Args:
        model: A model in evaluation mode with HSAConv or FlatConv layers.
        tree: One tree.
        run: How to call a model of one's own.

    Example:
        >>> from hsa_geo.nn import HSAEncoder
        >>> tree = SignalTree.from_parents([2, 2, -1], x=torch.randn(2, 8))
        >>> refuse_other_ways(HSAEncoder(8, heads=2), tree, None)
    """
    start = tree.get("x")
    sources: list[Tensor] = []
    with torch.enable_grad(), _cut(model) as cut:
        given = tree
        if isinstance(start, Tensor) and start.is_floating_point():
            sources.append(start.detach().clone().requires_grad_())
            given = copy.copy(tree)
            given.x = sources[0].clone()  # which may be changed in place
            given._remember(tree.plan)  # made from the same tensors
        out = answer(model, given, None, run)
        for k, (x, said) in enumerate(zip(cut.given, cut.said)):
            _check_row_per_leaf(x, tree.num_leaves, cut.names[k])
            if k and not _reaches(cut.said[k - 1], x):
                raise UnsupportedError(
                    f"'{cut.names[k]}' hears nothing of '{cut.names[k - 1]}', which runs before "
                    f"it: attention rollout follows layers one after the other; {_INSTEAD}"
                )
            _check_leaf_by_leaf(x, sources, cut.names[k])
            sources.append(said)
        if isinstance(out, Tensor) and out.requires_grad and not _reaches(cut.said[-1], out):
            raise UnsupportedError(
                f"the answer hears nothing of '{cut.names[-1]}', the last layer that runs: "
                f"attention rollout follows layers one after the other; {_INSTEAD}"
            )


@contextmanager
def _cut(model: nn.Module) -> Iterator[_Cut]:
    cut = _Cut()

    def hook(name: str) -> Any:
        def note(module: nn.Module, args: tuple[Any, ...], kwargs: Any, out: Any) -> Any:
            (x, _), _ = call_of(*args, **kwargs)
            cut.given.append(x.clone())
            first = out[0] if isinstance(out, tuple) else out
            said = first.detach().requires_grad_()
            cut.said.append(said)
            cut.names.append(name or type(module).__name__)
            again = said.clone()  # which may be changed in place
            return (again, *out[1:]) if isinstance(out, tuple) else again

        return note

    hooks = [
        module.register_forward_hook(hook(name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, (HSAConv, FlatConv))
    ]
    try:
        yield cut
    finally:
        for one in hooks:
            one.remove()


def _check_row_per_leaf(x: Tensor, leaves: int, name: str) -> None:
    if x.size(0) != leaves:
        raise UnsupportedError(
            f"'{name}' runs over {x.size(0)} leaves, but the tree has {leaves}: attention rollout "
            f"follows layers over one tree; {_INSTEAD}"
        )


def _reaches(source: Tensor, x: Tensor) -> bool:
    if not x.requires_grad:
        return False
    (found,) = torch.autograd.grad(x.sum(), source, retain_graph=True, allow_unused=True)
    return found is not None


def _check_leaf_by_leaf(x: Tensor, sources: Sequence[Tensor], name: str) -> None:
    n = len(x)
    sources = [source for source in sources if source.dim() and len(source) == n]
    if not x.requires_grad or not sources:
        return
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(x.shape, generator=generator).add(0.5).to(x)  # none cancels another
    number = torch.arange(n, device=x.device)
    for bit in range((n - 1).bit_length()):
        for some in ((number >> bit) % 2 == 0, (number >> bit) % 2 == 1):
            found = torch.autograd.grad(
                (x * weight)[some].sum(), sources, retain_graph=True, allow_unused=True
            )
            if any(grad is not None and bool((grad[~some] != 0).any()) for grad in found):
                raise UnsupportedError(
                    f"what '{name}' is given of a leaf holds something of other leaves, which "
                    f"attention rollout does not follow: {_INSTEAD}"
                )
