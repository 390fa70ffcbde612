from __future__ import annotations

import numpy as np
import pytest
import torch

from hsa_geo.data import LEAF, Domain, SignalTree
from hsa_geo.errors import DomainError, HSAError, ShapeError


def test_values_are_fixed():  # they are in saved files
    assert {d.name: d.value for d in Domain} == {"SET": 0, "SEQUENCE": 1, "GRID2D": 2, "GRAPH": 3}
    assert LEAF == -1


@pytest.mark.parametrize(
    "domain",
    [
        [Domain.SEQUENCE, Domain.SET, Domain.GRID2D, Domain.SET, Domain.SET],
        [1, 0, 2, 0, 0],
        np.array([1, 0, 2, 0, 0], dtype=np.uint8),
        torch.tensor([1, -1, 2, 77, 0]),  # leaves are not looked at
    ],
)
def test_of_every_node(domain):
    tree = SignalTree.from_parents([-1, 0, 0, 2, 2], domain=domain)
    assert tree.tree_domain.tolist() == [LEAF, LEAF, LEAF, Domain.GRID2D, Domain.SEQUENCE]
    assert tree.tree_domain.dtype == torch.int64


def test_one_for_all_and_default():
    assert SignalTree.from_parents([2, 2, -1], domain=Domain.GRAPH).tree_domain.tolist() == [
        LEAF,
        LEAF,
        3,
    ]
    assert SignalTree.from_parents([2, 2, -1]).tree_domain.tolist() == [LEAF, LEAF, 0]
    assert SignalTree.from_parents([-1], domain=Domain.GRAPH).tree_domain.tolist() == [LEAF]


@pytest.mark.parametrize(
    ("domain", "error", "message"),
    [
        ([0, 0, 9], DomainError, "node 2 has domain 9.*SET=0"),
        ([0, 0, -1], DomainError, "node 2 has domain -1"),
        ([0, 0], ShapeError, r"\[2\] for 3 nodes"),
        ([0, 0, 1.5], DomainError, "dtype float64"),
        ("SEQUENCE", DomainError, "SEQUENCE=1"),
        ([None, None, 1], DomainError, "dtype object"),
        ([True, True, True], DomainError, "dtype bool"),
    ],
)
def test_unknown_ones_are_refused(domain, error, message):
    with pytest.raises(error, match=message) as caught:
        SignalTree.from_parents([2, 2, -1], domain=domain)
    assert isinstance(caught.value, HSAError)
