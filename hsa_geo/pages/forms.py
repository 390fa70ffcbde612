"""From the forms of pages to the pages: targets, and labels with their probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["NONE", "form_targets", "page_labels", "page_of_form"]

#: What the output beyond the labels is called: a form of another type.
NONE = "(none of these)"


def form_targets(label: Tensor, classes: int) -> Tensor:
    """Training targets of forms.

    Args:
        label: ``form_label`` of :class:`~hsa_geo.datasets.FormPages` ``[K]``.
        classes: Number of labels.

    Returns:
        ``[K]``: the class, ``classes`` for a form that the annotators skipped, -1 for one without
        annotation, which is not trained on.

    Example:
        >>> form_targets(torch.tensor([3, -1, -2]), 8).tolist()
        [3, -1, 8]
    """
    return torch.where(label == -2, classes, label)


def page_of_form(batch: Any) -> Tensor:
    """Index in the batch of the page of every form ``[K]``.

    Args:
        batch: Pages with ``form_node [K]``.

    Returns:
        ``[K]`` int64.

    Example:
        >>> from torch_geometric.data import Batch
        >>> from hsa_geo.builders import from_html
        >>> pages = [from_html("<form><input></form>" * n) for n in (2, 1)]
        >>> page_of_form(Batch.from_data_list(pages)).tolist()
        [0, 0, 1]
    """
    plan = batch.plan
    first_leaf = plan.leaf_order[plan.leaf_start[plan.node_slot[batch.form_node]]]
    return batch.batch[first_leaf]


def page_labels(logits: Tensor, page: Tensor, pages: int) -> tuple[Tensor, Tensor]:
    """From forms to pages.

    Args:
        logits: Of the forms ``[K, C + 1]``; the last is for forms of none of the types.
        page: The page of every form ``[K]``.
        pages: How many pages.

    Returns:
        The labels ``[pages, C]`` (0 or 1), union of the forms' types, and their probabilities
        ``[pages, C]``: that of at least one form being of that type, as if forms were independent.

    Example:
        >>> logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
        >>> hit, probability = page_labels(logits, torch.tensor([0, 0]), 2)
        >>> hit.tolist(), probability.round(decimals=2).tolist()
        ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]])
    """
    classes = logits.size(1) - 1
    hit = torch.zeros(pages, classes + 1)
    hit.index_put_((page, logits.argmax(-1)), torch.tensor(1.0))
    log_none = torch.log1p(-logits.softmax(-1)[:, :classes].clamp(max=1 - 1e-6))
    probability = 1 - torch.zeros(pages, classes).index_add(0, page, log_none).exp()
    return hit[:, :classes], probability
