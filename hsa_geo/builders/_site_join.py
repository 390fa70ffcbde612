"""Many pages as one tree: arrays put behind each other, without a loop over nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hsa_geo.data import Domain

__all__ = ["SiteLinks", "join_pages"]


def join_pages(pages: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments of one tree from those of the trees of its pages.

    Args:
        pages: What :meth:`PageArrays.fields` returned for each page; emptied on the way, so that
            no page is kept twice.

    Returns:
        The same fields for the whole, below a root that is node 0 and of domain GRAPH, and
        ``page_node [K]``, the ids of the pages.
    """
    nodes = np.array([len(page["parent"]) for page in pages], dtype=np.int64)
    leaves = np.array([len(page["leaf_kind"]) for page in pages], dtype=np.int64)
    first_node = 1 + np.cumsum(nodes) - nodes
    first_leaf = np.cumsum(leaves) - leaves
    root = {
        "parent": np.array([-1]),
        "domain": np.array([int(Domain.GRAPH)]),
        "pos": np.zeros((1, 2), dtype=np.float32),
    }
    out: dict[str, Any] = {}
    for key in list(pages[0]):
        parts = [page.pop(key) for page in pages]
        if key == "name":
            out[key] = parts[0] and ["site", *(name for part in parts for name in part)]
            continue
        if key == "parent":
            parts = [np.append(0, part[1:] + k) for part, k in zip(parts, first_node)]
        elif key == "form_node":
            parts = [part + k for part, k in zip(parts, first_node)]
        elif key.endswith("_index"):
            parts = [part + k for part, k in zip(parts, first_leaf)]
        out[key] = np.concatenate([*([root[key]] if key in root else []), *parts])
    out["page_node"] = first_node
    return out


class SiteLinks:
    """Links between pages, counted."""

    def __init__(self) -> None:
        self._ends: list[np.ndarray] = []

    def add(self, page: int, targets: Counter[int]) -> None:
        """The links of one page: how many lead to each other page."""
        ends = np.empty((3, len(targets)), dtype=np.int64)
        ends[0] = page
        ends[1] = np.fromiter(targets.keys(), np.int64, len(targets))
        ends[2] = np.fromiter(targets.values(), np.int64, len(targets))
        self._ends.append(ends)

    def among(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Links between the pages that have a node.

        Args:
            node: Node of every page, -1 where it has none.

        Returns:
            Nodes ``[2, E]``, sorted by (source, target), and how many links each stands for.
        """
        ends = np.concatenate([np.empty((3, 0), dtype=np.int64), *self._ends], axis=1)
        link = node[ends[:2]]
        kept = (link >= 0).all(axis=0)
        link, count = link[:, kept], ends[2, kept]
        order = np.lexsort((link[1], link[0]))
        return link[:, order], count[order].astype(np.float32)
