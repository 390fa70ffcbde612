"""What from_parents makes of its arguments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hsa_geo.data.canonical import canonical_order, with_leaves_sorted
from hsa_geo.data.parents import Renumbering, check_domains, domain_tensor, int_array, pos_tensor
from hsa_geo.errors import DomainError, ShapeError

#: leaves 0, 2, 4; inner 3 (of 0, 4); root 1
PARENTS = np.array([3, -1, 1, 1, 3])


def test_integers_of_any_kind():
    for given in ([1, -1], (1, -1), np.array([1, -1], np.int8), torch.tensor([1, -1])):
        assert int_array(given).tolist() == [1, -1]
        assert int_array(given).dtype == np.int64
    assert int_array([]).tolist() == []
    for bad in ([1.0, -1.0], [[1], [-1]], ["a"], [[1], [2, 3]], 3):
        with pytest.raises(ShapeError, match="integer"):
            int_array(bad)


def test_domains_and_positions():
    assert domain_tensor(None, 2).tolist() == [0, 0]
    assert domain_tensor(torch.tensor([1, 2]), 2).tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"\[3\] for 2 nodes"):
        domain_tensor([1, 2, 3], 2)
    with pytest.raises(DomainError, match="node 9 has domain 7"):
        check_domains(torch.tensor([0, 7]), np.array([8, 9]))
    assert pos_tensor([1, 2], 2).tolist() == [[1, 0], [2, 0]]
    with pytest.raises(ShapeError, match="node 1 has position"):
        pos_tensor([1.0, float("nan")], 2)
    with pytest.raises(ShapeError, match=r"\[2, 3\] for 2 nodes"):
        pos_tensor(np.zeros((2, 3)), 2)


@pytest.mark.parametrize("keep", [False, True])
def test_everything_moves_along(keep):
    canonical = canonical_order(PARENTS)
    assert canonical.order.tolist() == [0, 4, 2, 3, 1]
    if keep:
        canonical = with_leaves_sorted(canonical)
        assert canonical.order.tolist() == [0, 2, 4, 3, 1]
    renumbering = Renumbering.of(canonical)
    attrs = {
        "x": torch.tensor([0, 2, 4]),
        "names": ["zero", "two", "four"],
        "edge_index": torch.tensor([[0, 1], [1, 2]]),
        "text_x": torch.tensor([10, 12, 14]),
        "text_index": torch.tensor([0, 1, 2]),
        "form_node": torch.tensor([3, 4]),
        "tree_pe": torch.arange(5.0)[:, None],
        "tree_span": torch.arange(10).view(5, 2),
        "tree_link": torch.tensor([[0, 4], [4, 0]]),
        "tree_link_weight": torch.tensor([0.5, 1.0]),
        "y": torch.tensor([[1, 2]]),
    }
    out = {key: renumbering.apply(key, value, attrs) for key, value in attrs.items()}
    order = canonical.order.tolist()
    leaves = order[:3]
    assert out["x"].tolist() == leaves
    assert out["names"] == [{0: "zero", 2: "two", 4: "four"}[leaf] for leaf in leaves]
    assert out["x"][out["edge_index"]].tolist() == [[0, 2], [2, 4]]
    assert out["x"][out["text_index"]].tolist() == [0, 2, 4]
    assert out["text_x"] is attrs["text_x"]
    assert [order[node] for node in out["form_node"].tolist()] == [3, 4]
    assert out["tree_pe"].flatten().tolist() == order
    assert out["tree_span"][:, 0].tolist() == [2 * node for node in order]
    assert [order[node] for node in out["tree_link"].flatten().tolist()] == [0, 4, 4, 0]
    assert out["tree_link_weight"] is attrs["tree_link_weight"]
    assert out["y"] is attrs["y"]


def test_references_out_of_range_are_named():
    renumbering = Renumbering.of(canonical_order(PARENTS))
    for key, value, message in (
        ("form_node", torch.tensor([5]), "holds 5, but its node ids are 0..4"),
        ("tree_link", torch.tensor([[0], [-1]]), "holds -1, but its node ids are 0..4"),
        ("edge_index", torch.tensor([[0], [3]]), "holds 3, but its leaf rows are 0..2"),
        ("tree_level", torch.zeros(5), "computed from parent"),
    ):
        with pytest.raises(ShapeError, match=message):
            renumbering.apply(key, value, {key: value})
