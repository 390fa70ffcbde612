"""Domains without an embedding are refused, in Python and as an operator."""

from __future__ import annotations

import pytest
import torch

from hsa_geo.errors import DomainError
from hsa_geo.nn.domains import _checked, checked_domains, refuse_unknown


@pytest.mark.parametrize("check", [refuse_unknown, checked_domains])
def test_unknown_domains_are_named(check):
    check(torch.tensor([0, 1, 0]), [0, 1])
    with pytest.raises(DomainError, match=r"domain GRAPH: pass domains=\{Domain.GRAPH: module\}"):
        check(torch.tensor([0, 3]), [0, 1])
    with pytest.raises(DomainError, match="in domain 7"):
        check(torch.tensor([7]), [0, 1])


def test_the_operator_is_registered_well():
    domain = torch.tensor([0, 1, 1])
    assert torch.equal(checked_domains(domain, [0, 1]), domain)
    torch.library.opcheck(_checked, (domain, [0, 1]))
