"""What :meth:`SignalTree.from_parents` does to its arguments: checks, and the canonical order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hsa_geo.data.canonical import Canonical
from hsa_geo.data.domain import Domain
from hsa_geo.data.store import GIVEN_NODE_KEYS, Kind, kind_of
from hsa_geo.errors import DomainError, ShapeError

__all__ = ["Renumbering", "check_domains", "domain_tensor", "int_array", "pos_tensor", "to_tensors"]


def int_array(values: Any) -> np.ndarray:
    """The parent of every node as int64 ``[M]``; ShapeError if it is anything else.

    Example:
        >>> int_array([1, -1])
        array([ 1, -1])
    """
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (ValueError, TypeError) as error:
        raise ShapeError(f"parent is no array ({error}): give one integer per node.") from None
    if array.size == 0 and array.ndim == 1:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ShapeError(
            f"parent has shape {list(array.shape)} and dtype {array.dtype}: give one integer for "
            "each node."
        )
    return array.astype(np.int64)


def domain_tensor(domain: Any, m: int) -> Tensor:
    """Domains as int64 ``[M]``, from one for all nodes or one for each.

    Example:
        >>> domain_tensor(Domain.SEQUENCE, 2)
        tensor([1, 1])
    """
    if isinstance(domain, Tensor):
        domain = domain.detach().cpu().numpy()
    array = np.asarray(Domain.SET if domain is None else domain)
    if array.dtype.kind not in "iu" and array.size:
        raise DomainError(
            f"domain has dtype {array.dtype}: give members of Domain, "
            f"{[f'{d.name}={d.value}' for d in Domain]}."
        )
    values = torch.from_numpy(array.astype(np.int64))
    if values.dim() == 0:
        values = values.expand(m)
    if values.shape != (m,):
        raise ShapeError(f"domain has shape {list(values.shape)} for {m} nodes: give [{m}] or one.")
    return values


def check_domains(inner: Tensor, ids: np.ndarray) -> None:
    """DomainError if a domain ``inner`` is unknown, which names the node by ``ids``."""
    known = torch.tensor([int(d) for d in Domain])
    bad = (~torch.isin(inner, known)).nonzero()
    if bad.numel():
        i = int(bad[0])
        raise DomainError(
            f"node {int(ids[i])} has domain {int(inner[i])}, which is none of "
            f"{[f'{d.name}={d.value}' for d in Domain]}."
        )


def pos_tensor(pos: Any, m: int) -> Tensor:
    """Positions as float32 ``[M, 2]``; missing coordinates are zero.

    Example:
        >>> pos_tensor([1, 2], 2)
        tensor([[1., 0.],
                [2., 0.]])
    """
    if pos is None:
        return torch.zeros(m, 2)
    if not isinstance(pos, Tensor):
        try:
            pos = torch.from_numpy(np.asarray(pos, dtype=np.float32))
        except (ValueError, TypeError, OverflowError) as error:
            raise ShapeError(
                f"pos is no array of numbers ({error}): give [{m}], [{m}, 1] or [{m}, 2]."
            ) from None
    pos = pos.detach().to("cpu", torch.float32)
    pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
    if pos.dim() != 2 or pos.size(0) != m or pos.size(1) > 2:
        raise ShapeError(
            f"pos has shape {list(pos.shape)} for {m} nodes: give [{m}], [{m}, 1] or [{m}, 2]."
        )
    bad = (~pos.isfinite()).any(dim=1).nonzero()
    if bad.numel():
        raise ShapeError(
            f"node {int(bad[0])} has position {pos[int(bad[0])].tolist()}: give finite numbers, "
            "zero where a node has no position."
        )
    return torch.nn.functional.pad(pos, (0, 2 - pos.size(1)))


def to_tensors(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with arrays turned into tensors; ShapeError where a tensor is needed.

    Example:
        >>> to_tensors({"x": np.zeros((2, 1), dtype=np.float32), "url": "a", "y": None})
        {'x': tensor([[0.],
                [0.]]), 'url': 'a'}
    """
    out: dict[str, Any] = {}
    for key, value in attrs.items():
        if isinstance(value, np.ndarray):
            try:
                value = torch.from_numpy(np.ascontiguousarray(value))
            except TypeError:
                raise ShapeError(
                    f"'{key}' is an array of dtype {value.dtype}: give numbers or a list."
                ) from None
        if value is not None:
            out[key] = value
    for key, value in out.items():
        stem = key.removesuffix("_index")
        needed = key in ("x", "edge_index", "tree_link", *GIVEN_NODE_KEYS) or (
            stem != key and f"{stem}_x" in out
        )
        needed |= key.endswith("_node") and isinstance(value, (int, list, tuple))
        if needed and not isinstance(value, Tensor):
            raise ShapeError(f"'{key}' is a {type(value).__name__}: give a tensor or an array.")
    return out


@dataclass(frozen=True)
class Renumbering:
    """The way from the ids and leaf rows of the input to canonical ones.

    Attributes:
        new_id: ``[M]``, canonical id of every input node.
        row: ``[N]``, input leaf row of every canonical leaf.
        new_row: ``[N]``, inverse of ``row``.
        moved: Whether any leaf has a new row.
    """

    new_id: Tensor
    row: Tensor
    new_row: Tensor
    moved: bool

    @classmethod
    def of(cls, canonical: Canonical) -> Renumbering:
        """The renumbering behind a canonical order.

        Example:
            >>> from hsa_geo.data.canonical import canonical_order
            >>> Renumbering.of(canonical_order(np.array([-1, 0, 0]))).new_id
            tensor([2, 0, 1])
        """
        order = torch.from_numpy(canonical.order)
        n = canonical.num_leaves
        new_id = torch.empty(len(order), dtype=torch.int64)
        new_id[order] = torch.arange(len(order))
        row = torch.argsort(order[:n]).argsort()
        new_row = torch.empty(n, dtype=torch.int64)
        new_row[row] = torch.arange(n)
        return cls(new_id, row, new_row, bool((row != torch.arange(n)).any()))

    def apply(self, key: str, value: Any, attrs: Mapping[str, Any]) -> Any:
        """Attribute ``key`` in canonical order; ``attrs`` are all attributes."""
        kind = kind_of(key, attrs, value)
        n = len(self.row)
        if kind in (Kind.TREE_EDGES, Kind.TREE_NODES) and key not in GIVEN_NODE_KEYS:
            raise ShapeError(
                f"'{key}' is computed from parent: pass domain=, pos= or name= instead."
            )
        if kind in (Kind.NODE_IDS, Kind.LEAF_ROWS, Kind.GRAPH_EDGES, Kind.TREE_LINKS):
            return self._references(key, value, kind)
        if kind is Kind.TREE_NODES:  # tree_pe, tree_span: one row per node
            m, k = len(self.new_id), "K" if key == "tree_pe" else 2
            fits = isinstance(value, Tensor) and value.dim() == 2 and len(value) == m
            if not fits or k not in ("K", value.size(1)):
                raise ShapeError(f"'{key}' must be a tensor [{m}, {k}].")
            return value[torch.argsort(self.new_id).to(value.device)]
        if key == "x" and (value.dim() == 0 or len(value) != n):
            raise ShapeError(
                f"'x' has shape {list(value.shape)}, but the tree has {n} leaves: give one row "
                "for each leaf, none for inner nodes."
            )
        if kind in (Kind.MODALITY, Kind.NODE_ROWS, Kind.LINK_ROWS) or not self.moved:
            return value
        if isinstance(value, Tensor):
            rows = value.dim() > 0 and value.size(0) == n and "edge" not in key
            return value[self.row.to(value.device)] if rows else value
        if isinstance(value, (list, tuple)) and len(value) == n:
            return type(value)([value[i] for i in self.row.tolist()])
        return value

    def _references(self, key: str, value: Any, kind: Kind) -> Tensor:
        ids = kind in (Kind.NODE_IDS, Kind.TREE_LINKS)
        table, what = (self.new_id, "node ids") if ids else (self.new_row, "leaf rows")
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            raise ShapeError(f"'{key}' is a {type(value).__name__}: give a dense integer tensor.")
        if value.is_floating_point() and value.numel():
            raise ShapeError(f"'{key}' has dtype {value.dtype}: give integers.")
        out = (value < 0) | (value >= len(table))
        if bool(out.any()):
            raise ShapeError(
                f"'{key}' holds {int(value[out][0])}, but its {what} are 0..{len(table) - 1}."
            )
        return table.to(value.device)[value.long()]
