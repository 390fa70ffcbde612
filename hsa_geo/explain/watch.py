"""Running a model to be explained: its answer, and what its layers were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from hsa_geo.data.plan import TreePlan
from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import LimitError, ShapeError, UnsupportedError
from hsa_geo.nn.conv.hsa_conv import HSAConv
from hsa_geo.nn.deep_set import DeepSetConv
from hsa_geo.nn.encoder import HSAEncoder
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.signal_classifier import SignalClassifier
from hsa_geo.ops.flops import count_pairs
from hsa_geo.ops.weights import AttentionWeights, attention_weights

__all__ = [
    "Run",
    "Seen",
    "answer",
    "call_of",
    "evaluating",
    "layer_weights",
    "mixings",
    "refuse_other_layers",
    "watched",
]

#: Calls a model of one's own: ``run(model, tree)`` gives its outputs.
Run = Callable[[nn.Module, SignalTree], Tensor]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation mode; every module is in its own mode again afterwards.

    Args:
        model: The model.

    Example:
        >>> model = nn.Dropout(0.5).train()
        >>> with evaluating(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def answer(model: nn.Module, tree: SignalTree, node: int | None, run: Run | None) -> Tensor:
    """What a model says of a tree or of the subtree under a node.

    Args:
        model: The model.
        tree: One tree.
        node: Id of a tree node, or None for the whole tree.
        run: How the model is called, or None for ``model(tree)`` (``model(tree.x, tree)`` for
            layers and encoders of hsa_geo).

    Returns:
        Outputs ``[C]`` of classifiers; what the model gives of others.

    Raises:
        UnsupportedError: If ``node`` is given for a model that knows no nodes.
        ShapeError: If ``node`` is none of the tree.

    Example:
        >>> model = SubtreeClassifier(num_ids=16, num_classes=3)
        >>> tree = SignalTree.from_parents(
        ...     [2, 2, -1], text_x=torch.tensor([[5, 0]]), text_index=torch.tensor([1]))
        >>> answer(model, tree, 1, None).shape
        torch.Size([3])
    """
    classifier = isinstance(model, (SignalClassifier, SubtreeClassifier))
    if node is not None and (run is not None or not classifier):
        raise UnsupportedError(
            f"node={node} is given, but {type(model).__name__} is not known to answer for nodes: "
            "give run=lambda model, tree: ... that answers for the node, and leave node out."
        )
    if node is not None:
        if not isinstance(node, int) or not 0 <= node < tree.num_tree_nodes:
            raise ShapeError(f"node={node!r} is none: give an id 0..{tree.num_tree_nodes - 1}.")
        return model(tree, torch.tensor([node], device=tree.tree_index.device))[0]
    if run is not None:
        return run(model, tree)
    if classifier:
        return model(tree)[0]
    if isinstance(model, (HSAConv, HSAEncoder, FlatConv)):
        return model(tree.x, tree)
    return model(tree)


@dataclass
class Seen:
    """What the layers of a model were given while it ran.

    Attributes:
        layers: Attention layers in the order in which they ran, each with its arguments.
        readout: The input of the readout of a :class:`~hsa_geo.nn.SignalClassifier`, if it ran.

    Example:
        >>> Seen().layers
        []
    """

    layers: list[tuple[HSAConv | FlatConv, tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list
    )
    readout: Tensor | None = None


@contextmanager
def watched(model: nn.Module) -> Iterator[Seen]:
    """Notes what a model's attention layers are given.

    Args:
        model: The model.

    Example:
        >>> model, tree = HSAEncoder(8, 2, heads=2), SignalTree.from_parents([2, 2, -1])
        >>> with watched(model) as seen:
        ...     _ = model(torch.randn(2, 8), tree)
        >>> len(seen.layers)
        2
    """
    seen, hooks = Seen(), []

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.layers.append((module, args, kwargs))

    def read(_: Any, args: tuple[Any, ...]) -> None:
        seen.readout = args[0]

    for module in model.modules():
        if isinstance(module, (HSAConv, FlatConv)):
            hooks.append(module.register_forward_pre_hook(note, with_kwargs=True))
    if isinstance(model, SignalClassifier):
        hooks.append(model.readout.register_forward_pre_hook(read))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def layer_weights(
    model: nn.Module, tree: SignalTree, *, run: Run | None = None, max_pairs: int | None = 2**23
) -> list[AttentionWeights]:
    """The attention of every hierarchical layer of a model at one tree, in compact form.

    Args:
        model: A model with :class:`~hsa_geo.nn.HSAConv` layers.
        tree: One tree, or a batch.
        run: How the model is called. (default: ``model(tree)``)
        max_pairs: Refuse trees on which a layer has more pairs than this, times heads; None for
            no limit. (default: ``2**23``)

    Returns:
        Weights of the layers in the order in which they run.

    Raises:
        LimitError: If there are more pairs than ``max_pairs``.
        UnsupportedError: If the model has no hierarchical layer.

    Example:
        >>> model = HSAEncoder(8, num_layers=2, heads=2)
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 8))
        >>> [weights.pair.shape for weights in layer_weights(model, tree)]
        [torch.Size([6, 2]), torch.Size([6, 2])]
    """
    with torch.no_grad(), evaluating(model), watched(model) as seen:
        answer(model, tree, None, run)
    out = []
    for conv, args, kwargs in seen.layers:
        if not isinstance(conv, HSAConv):
            continue
        (x, given), rest = call_of(*args, **kwargs)
        pairs = count_pairs(given, conv.tie) * conv.heads
        if max_pairs is not None and pairs > max_pairs:
            raise LimitError(
                f"a layer has {pairs} pairs, more than max_pairs={max_pairs}: give a smaller tree, "
                "tree.restrict(leaves), or raise max_pairs."
            )
        with torch.no_grad(), evaluating(conv):
            plan, (q, k, _), options = conv._attention(x, given, None, **rest, keep_weights=False)
            kept = ("pos", "bias", "energy", "scale", "tie")
            out.append(attention_weights(q, k, plan, **{key: options[key] for key in kept}))
    if not out:
        raise UnsupportedError(
            f"{type(model).__name__} ran no HSAConv layer, so there are no block-tied weights: "
            "explain it by gradients, attribute_leaves(model, tree)."
        )
    return out


def call_of(
    x: Tensor,
    tree: Any,
    tree_level: Tensor | None = None,
    *,
    pos: Tensor | None = None,
    pair_bias: Tensor | None = None,
    return_attention_weights: bool | None = None,
) -> tuple[tuple[Tensor, Any], dict[str, Any]]:
    """The arguments of a call of a layer: features and plan or tree, and what replaces modules.

    Example:
        >>> call_of(torch.zeros(2, 3), tree=SignalTree.from_parents([2, 2, -1]))[0][0].shape
        torch.Size([2, 3])
    """
    del return_attention_weights  # changes nothing that is looked at here
    if isinstance(tree, Tensor):
        assert tree_level is not None
        tree = TreePlan.from_index(tree, tree_level)
    return (x, tree), {"pos": pos, "pair_bias": pair_bias}


def mixings(seen: Seen) -> list[Callable[[Tensor], Tensor]]:
    """What each layer's attention does to values, in the order in which they ran.

    Args:
        seen: What was noted.

    Returns:
        Functions from ``[N, H, Dv]`` to ``[N, H, Dv]``.

    Example:
        >>> mixings(Seen())
        []
    """
    out = []
    for conv, args, kwargs in seen.layers:
        (x, tree), rest = call_of(*args, **kwargs)
        out.append(conv.mixing(x, tree, **(rest if isinstance(conv, HSAConv) else {})))
    return out


def refuse_other_layers(model: nn.Module, known: Sequence[type[nn.Module]]) -> None:
    """UnsupportedError if leaves also hear of each other by layers that are not followed.

    Args:
        model: The model.
        known: Layers that are.

    Example:
        >>> refuse_other_layers(HSAEncoder(8, 1), (HSAConv,))
    """
    own = {
        id(part)
        for layer in model.modules()
        if isinstance(layer, tuple(known))
        for part in layer.modules()
    }
    mixing = (MessagePassing, nn.MultiheadAttention, nn.RNNBase, DeepSetConv)
    for name, module in model.named_modules():
        if isinstance(module, mixing) and id(module) not in own:
            raise UnsupportedError(
                f"'{name}' ({type(module).__name__}) passes something among leaves that attention "
                "rollout does not follow: use attribute_leaves(model, tree), which does."
            )
