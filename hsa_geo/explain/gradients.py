r"""Attribution by gradients: what each leaf adds to an output.

Every leaf has a gate :math:`g_i` that multiplies what it says, that is its row of the features that
enter the layers.  With all gates open (1) the model answers as ever; with all closed (0) it knows
the tree and the positions, but no leaf says anything.  Then

.. math::
    \text{gradient x input:} \quad s_i = \frac{\partial f}{\partial g_i}\Big|_{g = 1}, \qquad
    \text{integrated gradients:} \quad
    s_i = \int_0^1 \frac{\partial f}{\partial g_i}\Big|_{g = \alpha} \, d\alpha,

which are the gradient times the input, and `"Axiomatic Attribution for Deep Networks"
<https://arxiv.org/abs/1703.01365>`_ (Sundararajan et al., 2017) with zero as the baseline, each
summed over the features of a leaf.  Integrated gradients are complete,

.. math:: \sum_i s_i = f(1) - f(0),

and the sum over the leaves under a node says what its subtree adds.

A norm turns a small input into a large change, so as much happens between :math:`\alpha = 0.001`
and 0.01 as between 0.1 and 1: the integral is taken over t with :math:`\alpha = (e^{7t} - 1) /
(e^7 - 1)`, by Gauss's rule, with more points until the sum is complete.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from hsa_geo.data.signal_tree import SignalTree
from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain.scores import LeafScores, one_tree
from hsa_geo.explain.watch import Run, answer, evaluating
from hsa_geo.nn.models import SubtreeClassifier
from hsa_geo.nn.signal_classifier import SignalClassifier
from hsa_geo.ops.inputs import is_number

__all__ = ["METHODS", "attribute_leaves", "gate_gradients", "integrate"]

#: Names accepted by ``method=``.
METHODS = ("integrated_gradients", "gradient_x_input")

#: Rate k of alpha = (exp(k t) - 1) / (exp(k) - 1).
_RATE = 7.0


@overload
def attribute_leaves(
    model: nn.Module,
    tree: SignalTree,
    *,
    target: int | None = ...,
    node: int | None = ...,
    method: str = ...,
    inputs: Sequence[nn.Module] | None = ...,
    run: Run | None = ...,
    steps: int = ...,
    max_steps: int = ...,
    tolerance: float = ...,
) -> LeafScores: ...


@overload
def attribute_leaves(
    model: nn.Module,
    tree: SignalTree,
    *,
    target: Sequence[int],
    node: int | None = ...,
    method: str = ...,
    inputs: Sequence[nn.Module] | None = ...,
    run: Run | None = ...,
    steps: int = ...,
    max_steps: int = ...,
    tolerance: float = ...,
) -> list[LeafScores]: ...


def attribute_leaves(
    model: nn.Module,
    tree: SignalTree,
    *,
    target: int | Sequence[int] | None = None,
    node: int | None = None,
    method: str = "integrated_gradients",
    inputs: Sequence[nn.Module] | None = None,
    run: Run | None = None,
    steps: int = 32,
    max_steps: int = 128,
    tolerance: float = 0.02,
) -> LeafScores | list[LeafScores]:
    r"""What every leaf, and every subtree, adds to an output of a model.

    Args:
        model: A :class:`~hsa_geo.nn.SignalClassifier`, a :class:`~hsa_geo.nn.SubtreeClassifier`, or
            any other model.
        tree: One tree.
        target: Number of the output that is explained, or several. (default: the largest)
        node: Id of the subtree whose answer is explained. (default: the root)
        method: ``"integrated_gradients"``, or ``"gradient_x_input"``, one step, which is as good as
            the model is linear: where norms remove the size of what leaves say, its scores nearly
            cancel and do not show what matters. (default: ``"integrated_gradients"``)
        inputs: Modules whose outputs ``[N, ...]``, a row per leaf, are all that the model is told
            of the leaves. (default: the leaf features of a classifier of hsa_geo; of other models
            ``tree.x``)
        run: How to call a model of one's own, ``run(model, tree)``; it gives outputs ``[C]`` or
            ``[1, C]``. (default: ``model(tree)``)
        steps: Points of the integral at first. (default: 32)
        max_steps: Points at most; they are doubled while the scores are not complete.
            (default: 128)
        tolerance: How complete the scores have to be: their sum, relative to the sum of their
            sizes. (default: 0.02)

    Returns:
        :class:`LeafScores`, or a list of them where several targets are given;
        :attr:`LeafScores.gap` says what the sum still lacks.

    Raises:
        ShapeError: If an argument does not fit, or the inputs do not have a row per leaf.
        UnsupportedError: For a batch, an unknown method, or a model whose outputs do not depend on
            the inputs in a way that can be differentiated.

    Example:
        >>> from hsa_geo.nn import HSAEncoder, LinearFeatures
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 8))
        >>> model = SignalClassifier({"x": LinearFeatures(8, 16)}, 3, channels=16, zero_init=False)
        >>> scores = attribute_leaves(model, tree, target=2)
        >>> scores.leaf.shape, scores.node.shape, abs(scores.gap) < 0.05
        (torch.Size([4]), torch.Size([7]), True)
    """
    one_tree(tree)
    if method not in METHODS:
        raise UnsupportedError(f"method={method!r} is unknown: use one of {METHODS}.")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if not isinstance(value, int) or value < 1:
            raise ShapeError(f"{name}={value!r}: give a whole number of at least 1.")
    if not is_number(tolerance) or tolerance <= 0:
        raise ShapeError(f"tolerance={tolerance!r}: give a positive number.")
    inputs = _inputs_of(model, tree) if inputs is None else list(inputs)
    # The numbers of the model decide in what the gates are computed.
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    dtype = torch.float32 if like is None or like.dtype != torch.float64 else torch.float64
    ones = torch.ones(tree.num_leaves, dtype=dtype, device=tree.tree_index.device)

    def gated(gate: Tensor) -> Tensor:
        with _gates(inputs, gate, tree) as given:
            return _row(answer(model, given, node, run))

    with evaluating(model):
        with torch.no_grad():
            full, empty = gated(ones), gated(torch.zeros_like(ones))
        several = isinstance(target, (list, tuple))
        targets = _targets(target, full)
        if method == "gradient_x_input":
            found = gate_gradients(gated, ones, targets)
        else:
            change = (full - empty)[targets].double()
            found = integrate(
                lambda alpha: gate_gradients(gated, alpha * ones, targets),
                change,
                steps,
                max_steps,
                tolerance,
            ).to(dtype)
    name = method.replace("_", " ")
    out = [
        LeafScores.of(row, tree, name, target=t, value=float(full[t]), baseline=float(empty[t]))
        for t, row in zip(targets, found)
    ]
    return out if several else out[0]


def gate_gradients(gated: Callable[[Tensor], Tensor], gate: Tensor, targets: list[int]) -> Tensor:
    """Gradients of outputs with respect to the gates of the leaves.

    Args:
        gated: From gates ``[N]`` to outputs ``[C]``.
        gate: Where, ``[N]``.
        targets: Numbers of K outputs.

    Returns:
        ``[K, N]``.

    Raises:
        UnsupportedError: If an output cannot be differentiated.

    Example:
        >>> gate_gradients(lambda g: (g * g)[None].sum(1), torch.ones(2), [0]).tolist()
        [[2.0, 2.0]]
    """
    with torch.enable_grad():
        gate = gate.detach().clone().requires_grad_()
        out = gated(gate)
        last = len(targets) - 1
        rows: list[Tensor | None] = [None]
        if out.requires_grad:
            rows = [
                torch.autograd.grad(out[t], gate, retain_graph=k < last, allow_unused=True)[0]
                for k, t in enumerate(targets)
            ]
    known = [row for row in rows if row is not None]
    if len(known) < len(targets):
        raise UnsupportedError(
            "the outputs have no gradient with respect to what the leaves say: give inputs=, the "
            "modules of the model whose outputs have a row for each leaf."
        )
    return torch.stack(known)


def integrate(
    gradient: Callable[[float], Tensor],
    change: Tensor,
    steps: int,
    max_steps: int,
    tolerance: float,
) -> Tensor:
    """Integrals over alpha from 0 to 1, with more points until they add up.

    Args:
        gradient: From alpha to ``[K, N]``.
        change: What each row has to add up to ``[K]``.
        steps: Number of points at first.
        max_steps: Number of points at most.
        tolerance: Largest gap, relative to the sum of the sizes of a row.

    Returns:
        ``[K, N]`` float64.

    Example:
        >>> integrate(lambda a: torch.full((1, 2), 2 * a), torch.tensor([2.0]), 16, 16, 0.01)
        tensor([[1.0000, 1.0000]], dtype=torch.float64)
    """
    steps = min(steps, max_steps)
    while True:
        at, weight = np.polynomial.legendre.leggauss(steps)
        t = (at + 1) / 2
        total: Tensor | None = None
        alphas = np.expm1(_RATE * t) / np.expm1(_RATE)
        for alpha, w in zip(alphas, weight / 2 * _RATE * np.exp(_RATE * t) / np.expm1(_RATE)):
            part = gradient(float(alpha)).double() * w
            total = part if total is None else total + part
        assert total is not None
        gap = (change.double() - total.sum(1)).abs()
        if steps >= max_steps or bool((gap <= tolerance * total.abs().sum(1) + 1e-12).all()):
            return total
        steps = min(2 * steps, max_steps)


def _inputs_of(model: nn.Module, tree: SignalTree) -> list[nn.Module]:
    """The modules that say what the leaves are; none where the model reads ``tree.x``."""
    if isinstance(model, SignalClassifier):
        return [model.features]
    if isinstance(model, SubtreeClassifier):
        pictures = [] if model.pictures is None else [model.pictures]
        return [model.tokens, model.direct, *pictures]
    x = tree.get("x")
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 1:
        raise UnsupportedError(
            f"{type(model).__name__} is a model of one's own and the tree has no floating point x "
            "to attribute to: give inputs=, the modules of the model whose outputs have a row for "
            "each leaf."
        )
    return []


@contextmanager
def _gates(inputs: Sequence[nn.Module], gate: Tensor, tree: SignalTree) -> Iterator[SignalTree]:
    """Let the leaves say no more than their gates allow; the tree that the model is to be given."""

    def scaled(out: Any) -> Tensor:
        if not isinstance(out, Tensor) or out.dim() < 1 or out.size(0) != len(gate):
            shape = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ShapeError(
                f"an input gives {shape}: name modules in inputs= whose outputs have a row for "
                f"each of the N={len(gate)} leaves."
            )
        return out * gate.to(out.dtype).view(-1, *[1] * (out.dim() - 1))

    if not inputs:
        given = copy.copy(tree)
        given.x = scaled(tree.x)
        given._remember(tree.plan)  # made from the same tensors
        yield given
        return
    hooks = [m.register_forward_hook(lambda module, args, out: scaled(out)) for m in inputs]
    try:
        yield tree
    finally:
        for hook in hooks:
            hook.remove()


def _row(out: Any) -> Tensor:
    """The outputs ``[C]``."""
    if isinstance(out, Tensor) and out.dim() == 2 and out.size(0) == 1:
        out = out[0]
    if not isinstance(out, Tensor) or out.dim() != 1:
        shape = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ShapeError(
            f"the model answers with {shape}: give run=lambda model, tree: ... that answers with "
            "[C] or [1, C], what is to be explained."
        )
    return out


def _targets(target: int | Sequence[int] | None, out: Tensor) -> list[int]:
    if target is None:
        return [int(out.argmax())]
    targets: list[Any] = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise ShapeError(
            f"target={target!r} names no output: give numbers 0..{len(out) - 1}, or leave it out."
        )
    for one in targets:
        if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < len(out):
            raise ShapeError(f"target={one!r} is no output: give a number 0..{len(out) - 1}.")
    return targets
