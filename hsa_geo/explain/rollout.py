r"""Attention rollout: what reaches a readout from each leaf if attention were all there is.

From `"Quantifying Attention Flow in Transformers" <https://arxiv.org/abs/2005.00928>`_ (Abnar and
Zuidema, 2020): with :math:`\Theta_l` the attention of layer l, averaged over heads, and a residual
connection around it,

.. math::
    \tilde\Theta_l = (1 - \rho) \, \Theta_l + \rho \, \mathbf{I}, \qquad
    \mathbf{s}^\top = \mathbf{r}^\top \tilde\Theta_L \cdots \tilde\Theta_1,

where r holds the shares of the leaves in the readout and :math:`\rho = 1/2`.  The matrices are
never made: HSA multiplies values by Theta in the time of the layer, and the gradient of that with
respect to the values multiplies by its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain.between import convolutions_refused, refuse_other_ways
from hsa_geo.explain.scores import LeafScores, one_tree
from hsa_geo.explain.watch import (
    Run,
    answer,
    call_of,
    evaluating,
    mixings,
    refuse_other_layers,
    watched,
)
from hsa_geo.nn.conv.hsa_conv import HSAConv
from hsa_geo.nn.encoder import HSAEncoder
from hsa_geo.nn.flat import FlatConv
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.pooling import (
    AttentionReadout,
    HierarchicalReadout,
    QueryReadout,
    attend_leaves,
)
from hsa_geo.nn.signal_classifier import SignalClassifier
from hsa_geo.ops.inputs import is_number
from hsa_geo.ops.packed import leaves_under

__all__ = ["attention_rollout", "readout_shares"]

#: Models whose layers are known to run one after the other, and nothing among leaves beside them.
_KNOWN = (SignalClassifier, SubtreeClassifier, HSAEncoder, HSAConv, FlatConv)


def attention_rollout(
    model: nn.Module,
    tree: SignalTree,
    *,
    node: int | None = None,
    head: int | None = None,
    residual: float = 0.5,
    shares: Tensor | None = None,
    run: Run | None = None,
) -> LeafScores:
    r"""How much of every leaf reaches the readout through the layers' attention.

    Attention says where a model looks, not what for: the scores are no part of any output, and
    the same for all classes.  They are not negative and add up to one.

    Args:
        model: A :class:`~hsa_geo.nn.SignalClassifier` with HSA or flat attention, a
            :class:`~hsa_geo.nn.SubtreeClassifier`, a :class:`~hsa_geo.nn.HSAEncoder`, or any model
            in which leaves hear of each other by :class:`~hsa_geo.nn.HSAConv` and
            :class:`~hsa_geo.nn.FlatConv` layers alone, one after the other.
        tree: One tree.
        node: Id of the subtree that is read out. (default: the root)
        head: Follow one head of each layer. (default: their mean)
        residual: Share :math:`\rho` of what goes around each layer, from 0 to 1. (default: 0.5)
        shares: Shares ``[N]`` of the leaves in the readout, not negative; the scores add up to
            their sum. (default: those of the model's readout; of a model of one's own, the mean
            over the leaves)
        run: How to call a model of one's own, ``run(model, tree)``. (default: ``model(tree)``)

    Returns:
        The scores, in float32 at least.

    Raises:
        ShapeError: If an argument does not fit.
        UnsupportedError: For a batch, a model without such layers, or one with others among them:
            layers of other kinds, convolutions over leaves, layers side by side, or anything else
            between the layers by which a leaf hears of another (which gradients show, as far as
            the model reads ``tree.x``; what makes features of leaves out of tokens or symbols is
            taken at its word).

    Example:
        >>> from hsa_geo.nn import HSAEncoder
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 8))
        >>> scores = attention_rollout(HSAEncoder(8, heads=2), tree)
        >>> scores.leaf.shape, round(float(scores.node[-1]), 4)
        (torch.Size([4]), 1.0)
    """
    one_tree(tree)
    if not is_number(residual) or not 0 <= residual <= 1:
        raise ShapeError(f"residual={residual!r} is no share: give a number from 0 to 1.")
    if shares is not None:
        _check_shares(shares, tree.num_leaves)
    refuse_other_layers(model, (HSAConv, FlatConv))
    with torch.no_grad(), evaluating(model):
        with watched(model) as seen, convolutions_refused(model, tree):
            answer(model, tree, node, run)
        if not seen.layers:
            raise UnsupportedError(
                f"{type(model).__name__} ran no attention layer to follow: use "
                "attribute_leaves(model, tree)."
            )
        if type(model) not in _KNOWN or run is not None:
            refuse_other_ways(model, tree, run)
        steps = mixings(seen)
        at = None if node is None else torch.tensor([node], device=tree.tree_index.device)
        if shares is None:
            shares = _readout_shares(model, seen.readout, tree, at)
        (x, _), _ = call_of(*seen.layers[0][1], **seen.layers[0][2])
        wide = torch.promote_types(x.dtype, torch.float32)
        score = shares.to(tree.tree_index.device, wide)
        for (conv, _, _), step in zip(reversed(seen.layers), reversed(steps)):
            if head is not None and (not isinstance(head, int) or not 0 <= head < conv.heads):
                raise ShapeError(f"head={head!r} is none: give a number 0..{conv.heads - 1}.")
            back = _transposed(step, score, conv.heads)  # [N, H]
            heard = back.mean(1) if head is None else back[:, head]
            score = residual * score + (1 - residual) * heard.to(wide)
    return LeafScores.of(score, tree, "attention rollout")


def _check_shares(shares: Any, leaves: int) -> None:
    if not isinstance(shares, Tensor) or shares.shape != (leaves,) or shares.is_complex():
        shape = (
            f"has shape {list(shares.shape)} and dtype {shares.dtype}"
            if isinstance(shares, Tensor)
            else f"is a {type(shares).__name__}"
        )
        raise ShapeError(f"shares {shape}: give a number for each of the N={leaves} leaves.")
    if not bool((shares >= 0).all()) or not 0 < float(shares.double().sum()) < math.inf:
        bad = shares[~(shares >= 0) | shares.isinf()].tolist()[:1]
        what = f"hold {bad[0]}" if bad else "are all zero"
        raise ShapeError(
            f"shares {what}: give finite numbers, none negative and at least one positive."
        )


def _transposed(step: Callable[[Tensor], Tensor], score: Tensor, heads: int) -> Tensor:
    """``Theta^T score`` of every head, ``[N, H]``, as the gradient of ``score . (Theta v)``."""
    with torch.enable_grad():
        value = score.new_zeros(len(score), heads, 1, requires_grad=True)
        out = step(value)
        sides = score[:, None, None].to(out.dtype).expand_as(out)
        (back,) = torch.autograd.grad(out, value, sides)
    return back[..., 0]


def _readout_shares(
    model: nn.Module, x: Tensor | None, tree: SignalTree, nodes: Tensor | None
) -> Tensor:
    if isinstance(model, SignalClassifier):
        assert x is not None  # the readout has run
        return readout_shares(model.readout, x, tree, nodes)
    return readout_shares(None, tree.tree_index, tree, nodes)


def readout_shares(
    readout: nn.Module | None, x: Tensor, tree: SignalTree, nodes: Tensor | None = None
) -> Tensor:
    """The shares of the leaves in what a readout says of one node.

    Args:
        readout: One of the readouts of :mod:`hsa_geo.nn`; None for the mean over the leaves.
        x: Features of the leaves ``[N, C]`` as the readout is given them.
        tree: One tree.
        nodes: The id of one node ``[1]``. (default: the root)

    Returns:
        ``[N]``, not negative, of sum one; of several heads or queries their mean.

    Example:
        >>> tree = SignalTree.from_parents([3, 3, 4, 4, -1])
        >>> readout_shares(HierarchicalReadout(), torch.zeros(3, 2), tree).tolist()
        [0.25, 0.25, 0.5]
    """
    if isinstance(readout, (AttentionReadout, QueryReadout)):
        with torch.no_grad():
            score = readout.scores(x)
        with torch.enable_grad():
            value = torch.zeros_like(score)[..., None].requires_grad_()
            out = attend_leaves(score, value, tree.plan, nodes)  # [1, H, 1]
            (share,) = torch.autograd.grad(out.mean(), value)
        return share.sum((1, 2))
    equal = isinstance(readout, HierarchicalReadout)
    _, row, share, _ = leaves_under(tree.plan, nodes, equal_children=equal)
    dtype = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float32
    zeros = torch.zeros(tree.num_leaves, dtype=dtype, device=row.device)
    return zeros.index_add(0, row, share.to(dtype))
