"""The deletion test: leaves are really gone, and the best explained ones matter most."""

from __future__ import annotations

import pytest
import torch
from explain_cases import classifier, planted, trained
from test_rollout import tree_of

from hsa_geo.errors import ShapeError
from hsa_geo.explain import attention_rollout, attribute_leaves, deletion_curve


def test_the_answers_are_those_for_smaller_trees():
    tree, model = tree_of(), classifier()
    tree.form_node, tree.form_label = torch.tensor([tree.num_leaves]), torch.tensor([3])
    leaf = torch.randn(tree.num_leaves)
    curve = deletion_curve(model, tree, leaf, 1, counts=[0, 3])
    assert "form_node" in tree  # the tree itself stays as it is
    rest = torch.argsort(leaf, descending=True)[3:].sort().values
    del tree.form_node, tree.form_label
    expected = [model(tree)[0, 1], model(tree.restrict(rest))[0, 1]]
    torch.testing.assert_close(curve, torch.stack(expected).detach())
    assert len(deletion_curve(model, tree, leaf, 1)) == 1 + (tree.num_leaves - 1).bit_length()


@pytest.mark.parametrize("tie", ["block", "key"])
def test_removing_what_an_explanation_names_hurts_more_than_chance(tie):
    model = trained(tie=tie)
    torch.manual_seed(0)
    drops: dict[str, list[float]] = {"explained": [], "random": []}
    for seed in range(6):
        tree = planted(seed)
        target = int(tree.y)
        order = {
            "explained": attribute_leaves(model, tree, target=target, steps=32, max_steps=32).leaf,
            "random": torch.rand(tree.num_leaves),
        }
        for name, leaf in order.items():
            whole, less = deletion_curve(model, tree, leaf, target, counts=[0, 2])
            drops[name].append(float(whole - less))
    mean = {name: sum(values) / len(values) for name, values in drops.items()}
    assert mean["explained"] > 1
    assert mean["explained"] > 3 * abs(mean["random"])
    assert sum(a > b for a, b in zip(drops["explained"], drops["random"])) >= 5


def test_rollout_finds_what_attention_was_trained_to_look_at():
    """With an attention readout the shares of the readout are part of the rollout."""
    model = trained(readout="attention", num_layers=1)
    found = 0
    for seed in range(6):
        tree = planted(seed)
        scores = attention_rollout(model, tree)
        chance = float(tree.planted.double().mean())
        found += float(scores.leaf[tree.planted].sum()) > 2 * chance
    assert found >= 5


def test_wrong_arguments_are_refused():
    tree, model = tree_of(), classifier()
    leaf = torch.zeros(tree.num_leaves)
    for options in ({"counts": [tree.num_leaves]}, {"counts": [-1]}, {"counts": []}):
        with pytest.raises(ShapeError, match="counts"):
            deletion_curve(model, tree, leaf, 0, **options)
    with pytest.raises(ShapeError, match="counts"):
        deletion_curve(model, tree, leaf, 0, counts=[0.5])
    for target in (-1, 99, 0.0):
        with pytest.raises(ShapeError, match="target"):
            deletion_curve(model, tree, leaf, target)
    with pytest.raises(ShapeError, match="score for each"):
        deletion_curve(model, tree, leaf[1:], 0)
