"""Domains for which there is no embedding, refused inside and outside ``torch.compile``."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from hsa_geo.data.domain import Domain
from hsa_geo.errors import DomainError

__all__ = ["checked_domains", "refuse_unknown"]


def refuse_unknown(domain: Tensor, known: Collection[int]) -> None:
    """DomainError if a domain is none of ``known``.

    Args:
        domain: Domains ``[M]`` that nodes lie in.
        known: Those that have an embedding.

    Raises:
        DomainError: If there is another; the message says what to pass.

    Example:
        >>> refuse_unknown(torch.tensor([0, 1]), {0, 1, 2})
    """
    unknown = set(domain.unique().tolist()) - set(known)
    if unknown:
        label = min(unknown)
        name = Domain(label).name if label in set(Domain) else str(label)
        raise DomainError(
            f"no embedding for positions in domain {name}: pass domains={{Domain.{name}: module}}, "
            "or None as the module for no positions (of a GRAPH, GraphPosition with the encodings "
            "of AddTreePE)."
        )


def checked_domains(domain: Tensor, known: list[int]) -> Tensor:
    """The same as an operator, on the CPU, which a compiled graph runs and does not look into.

    An assertion in the graph would be compiled anew for many nodes and for few.

    Args:
        domain: Domains ``[M]``.
        known: Those that have an embedding.

    Returns:
        A copy of ``domain``.

    Raises:
        DomainError: As :func:`refuse_unknown`.

    Example:
        >>> checked_domains(torch.tensor([0, 1]), [0, 1, 2])
        tensor([0, 1])
    """
    return _checked(domain, known)


@torch.library.custom_op("hsa_geo::checked_domains", mutates_args=(), device_types="cpu")
def _checked(domain: Tensor, known: list[int]) -> Tensor:
    refuse_unknown(domain, known)
    return domain.clone()


@_checked.register_fake
def _(domain: Tensor, known: list[int]) -> Tensor:
    return torch.empty_like(domain)
