"""Hierarchies by attributes, as parents, as partitions."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hsa_geo.data import Domain
from hsa_geo.errors import BuilderError, DomainError, ShapeError, TreeError
from hsa_geo.transforms import AttributeHierarchy, GivenHierarchy


def places(**attrs) -> Data:
    base = {
        "country": torch.tensor([7, 7, -2, -2, 7]),
        "city": ["Rome", "Oslo", "Rome", "Rome", "Rome"],
        "num_nodes": 5,
    }
    return Data(**{**base, **attrs})


def test_cities_of_one_name_in_two_countries_are_two():
    tree = AttributeHierarchy(["country", "city"])(places())
    assert tree.tree_index.tolist() == [[5, 5, 6, 6, 7, 7, 8, 8], [0, 4, 5, 1, 2, 3, 6, 7]]
    # Oslo has one member and the second country one city: these stand in their place.
    assert tree.tree_level[tree.num_leaves :].tolist() == [2, 1, 1, 0]


@pytest.mark.parametrize(
    "floor", [torch.tensor([[0], [0], [1], [1], [1]]), torch.tensor([False, False] + [True] * 3)]
)
def test_kinds_of_attributes(floor):
    tree = AttributeHierarchy("floor")(places(floor=floor))
    assert tree.tree_index.tolist() == [[5, 5, 6, 6, 6, 7, 7], [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "missing"),
        (torch.rand(5), "torch.float32"),
        (torch.arange(4), r"torch.int64 \[4\]"),
        (["a", "b", "c", "d", 5], "a list"),
        (["a"] * 4, "a list"),
        ("abcde", "a str"),
    ],
)
def test_attributes_that_are_none(value, what):
    with pytest.raises(BuilderError, match=f"'city' is {what}"):
        AttributeHierarchy(["country", "city"])(places(city=value))
    with pytest.raises(BuilderError, match="keys names no attribute"):
        AttributeHierarchy([])


@pytest.mark.parametrize("wrap", [list, np.array, torch.tensor])
def test_parent(wrap):
    parent = wrap([5, 6, 5, 6, 6, 7, 7, -1])
    tree = GivenHierarchy(parent, domain=Domain.SEQUENCE)(places())
    assert tree.tree_index.tolist() == [[5, 5, 6, 6, 6, 7, 7], [0, 2, 1, 3, 4, 5, 6]]
    assert tree.tree_pos[:, 0].tolist() == [0, 0, 1, 1, 2, 0, 1, 0]
    assert tree.tree_domain[5:].tolist() == [Domain.SEQUENCE] * 3
    data = places(above=parent if wrap is torch.tensor else torch.tensor([5] * 5 + [-1]))
    tree = GivenHierarchy("above")(data)
    assert tree.above is data.above
    assert tree.num_tree_nodes == len(data.above)


def test_partitions():
    fine, coarse = [3, 3, 9, 9, 4], [0, 0, 1, 1, 1]
    tree = GivenHierarchy(partitions=torch.tensor([fine, coarse]))(places())
    assert tree.tree_index.tolist() == [[5, 5, 6, 6, 7, 7, 8, 8], [2, 3, 0, 1, 5, 4, 6, 7]]
    by_name = GivenHierarchy(partitions="p", domain=Domain.GRAPH)(places(p=torch.tensor(fine)))
    assert by_name.tree_domain[5:].unique().tolist() == [Domain.GRAPH]
    edges = torch.tensor([[0], [2]])
    linked = GivenHierarchy(partitions=[coarse], add_links=True)(places(edge_index=edges))
    assert linked.tree_link.tolist() == [[5], [6]]


def test_errors():
    with pytest.raises(BuilderError, match="either parent or partitions"):
        GivenHierarchy()
    with pytest.raises(BuilderError, match="either parent or partitions"):
        GivenHierarchy([0], partitions=[0])
    with pytest.raises(BuilderError, match="add_links goes with partitions"):
        GivenHierarchy([-1], add_links=True)
    with pytest.raises(DomainError, match="use SET, GRAPH or SEQUENCE"):
        GivenHierarchy([-1], domain=Domain.GRID2D)
    with pytest.raises(BuilderError, match="domain is SEQUENCE"):
        GivenHierarchy(partitions=[0], add_links=True, domain=Domain.SEQUENCE)
    with pytest.raises(BuilderError, match="no attribute 'above' with its hierarchy"):
        GivenHierarchy("above")(places())
    with pytest.raises(BuilderError, match=r"nodes 0 and 1 are together .* not in the next"):
        GivenHierarchy(partitions=[[0, 0, 1, 1, 1], [0, 1, 0, 0, 0]])(places())
    for partitions in ([[0, 0]], [[0.5] * 5], [[0] * 5, [0] * 4], 3):
        with pytest.raises(ShapeError, match=r"give integers \[5\] or \[L, 5\]"):
            GivenHierarchy(partitions=partitions)(places())
    with pytest.raises(TreeError):
        GivenHierarchy([0, 0, 0, 0, 0])(places())
    with pytest.raises(ShapeError, match="3 leaves but the graph 5 nodes"):
        GivenHierarchy([3, 3, 3, -1])(places())
    assert repr(GivenHierarchy("above")) == "GivenHierarchy(parent='above')"
    assert repr(GivenHierarchy(partitions=[0])) == "GivenHierarchy(partitions=...)"
