"""Our attribution as an algorithm of ``torch_geometric.explain``."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import MaskType, ModelMode

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain.gradients import METHODS, integrate

__all__ = ["LeafExplainer"]


class LeafExplainer(ExplainerAlgorithm):
    r"""Node masks for :class:`torch_geometric.explain.Explainer`, by gradients of leaf features.

    PyG's own algorithms mask the messages of a layer, or learn such masks.  The messages of
    :class:`~hsa_geo.nn.HSAConv` are no edges of a graph (they pass through inner nodes, and with
    compiled kernels there are none), so a mask on them would say something else than it seems to;
    the layers therefore leave PyG's masks out.  What can be said honestly is what each leaf, or
    each of its features, adds to an output: integrated gradients from zero features, as
    :func:`attribute_leaves` computes them.  No edge mask is ever given.

    The model is called as PyG calls it, ``model(x, edge_index, **kwargs)``; a tree goes along as
    one of the keywords.  Of classifiers the output of the target class is explained (of binary
    ones the output, or its negative for class 0), of regressions the output; of several rows
    (``index``) their sum.

    Args:
        method: As in :func:`attribute_leaves`. (default: ``"integrated_gradients"``)
        steps: Points of the integral at first. (default: 32)
        max_steps: Points at most. (default: 128)
        tolerance: As in :func:`attribute_leaves`. (default: 0.02)

    Raises:
        UnsupportedError: If ``method`` is unknown.

    Example:
        >>> from torch_geometric.explain import Explainer
        >>> from hsa_geo.data import SignalTree
        >>> from hsa_geo.nn import HSAConv, subtree_mean
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv, self.lin = HSAConv(8, 8, heads=2), nn.Linear(16, 3)
        ...     def forward(self, x, edge_index, tree):
        ...         return self.lin(subtree_mean(self.conv(x, tree).relu(), tree))
        >>> tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.randn(4, 8))
        >>> explainer = Explainer(
        ...     Net(), LeafExplainer(), explanation_type="model", node_mask_type="object",
        ...     model_config={"mode": "multiclass_classification", "task_level": "graph",
        ...                   "return_type": "raw"})
        >>> no_edges = torch.empty(2, 0, dtype=torch.int64)
        >>> explainer(tree.x, no_edges, tree=tree).node_mask.shape
        torch.Size([4, 1])
    """

    def __init__(
        self,
        method: str = "integrated_gradients",
        steps: int = 32,
        max_steps: int = 128,
        tolerance: float = 0.02,
    ) -> None:
        super().__init__()
        if method not in METHODS:
            raise UnsupportedError(f"method={method!r} is unknown: use one of {METHODS}.")
        self.method, self.tolerance = method, tolerance
        self.steps, self.max_steps = steps, max_steps

    def supports(self) -> bool:
        """Whether the settings can be explained: no edge masks, and a node mask."""
        config = self.explainer_config
        if config.edge_mask_type is not None:
            logging.error(
                "'LeafExplainer' gives no edge masks, which would not mean edges of a graph: set "
                "edge_mask_type=None and node_mask_type='object' or 'attributes'."
            )
            return False
        return config.node_mask_type is not None

    def forward(
        self,
        model: nn.Module,
        x: Any,
        edge_index: Any,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """The explanation, as PyG's Explainer asks for it.

        Args:
            model: The model, in evaluation mode.
            x: Leaf features ``[N, F]``.
            edge_index: What the model is given as edges.
            target: Classes, or the outputs of a regression.
            index: Rows of the output that are explained. (default: all)
            **kwargs: Further arguments of the model.

        Returns:
            With a ``node_mask`` ``[N, 1]``, ``[N, F]`` or ``[1, F]``.

        Raises:
            ShapeError: If ``x`` is no floating point tensor ``[N, F]``.
        """
        if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
            raise ShapeError(
                f"x is {type(x).__name__}: give floating point features [N, F] of one graph."
            )

        def output(given: Tensor) -> Tensor:
            return self._explained(model(given, edge_index, **kwargs), target, index)

        def gradient(alpha: float) -> Tensor:
            with torch.enable_grad():
                here = (alpha * x.detach()).requires_grad_()
                (slope,) = torch.autograd.grad(output(here), here)
            return (slope * x.detach()).reshape(1, -1)

        if self.method == "gradient_x_input":
            mask = gradient(1.0)
        else:
            with torch.no_grad():
                change = (output(x) - output(torch.zeros_like(x)))[None]
            mask = integrate(gradient, change, self.steps, self.max_steps, self.tolerance)
        mask = mask.view_as(x).to(x.dtype)
        kind = self.explainer_config.node_mask_type
        if kind == MaskType.object:
            mask = mask.sum(1, keepdim=True)
        elif kind == MaskType.common_attributes:
            mask = mask.sum(0, keepdim=True)
        return Explanation(node_mask=mask)

    def _explained(self, out: Tensor, target: Tensor, index: int | Tensor | None) -> Tensor:
        """The number that is explained."""
        if index is not None:
            out, target = out[index], target[index]
        mode = self.model_config.mode
        if mode == ModelMode.multiclass_classification:
            rows = out.reshape(-1, out.size(-1))
            return rows.gather(1, target.reshape(-1, 1)).sum()
        if mode == ModelMode.binary_classification:
            return (out.reshape(-1) * (2 * target.reshape(-1) - 1)).sum()
        return out.sum()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.method!r})"
