"""Typed code of a user, which mypy checks strictly; ``test_typing.py`` runs it as well."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import networkx as nx
import torch
from torch import Tensor, nn

from hsa_geo.builders import from_image, from_nested, from_networkx, from_sequence, from_text
from hsa_geo.data import Domain, SignalTree, TreePlan
from hsa_geo.errors import HSAError, TreeError
from hsa_geo.explain import LeafScores, attention_rollout, attribute_leaves
from hsa_geo.nn import HSAConv, HSAEncoder, SignalClassifier, hierarchical_mean, subtree_mean
from hsa_geo.ops import (
    attention_cost,
    attention_matrix,
    attention_weights,
    flat_cost,
    hsa_attention,
    tree_energy,
)
from hsa_geo.testing import random_tree
from hsa_geo.training import FitResult, LeafBudgetBatchSampler, Options, fit
from hsa_geo.transforms import CommunityHierarchy, DropHierarchy, Rewindow


def trees_of_all_kinds() -> list[SignalTree]:
    tree = SignalTree.from_parents([4, 4, 5, 5, 6, 6, -1], x=torch.rand(4, 8))
    assert_type(tree, SignalTree)
    ordered, order = SignalTree.from_parents([-1, 0, 0], domain=Domain.SEQUENCE, return_order=True)
    assert_type(ordered, SignalTree)
    assert_type(order, Tensor)
    linked = SignalTree.from_parents([2, 2, -1], edge_index=torch.tensor([[0, 1], [1, 0]]))
    trees = [
        tree,
        ordered,
        linked,
        tree.restrict(torch.tensor([0, 2])),
        tree.clone(),
        tree.to("cpu"),
    ]
    trees.append(from_networkx(nx.balanced_tree(2, 2, create_using=nx.DiGraph)))
    trees.append(from_text("To be. Or not to be.\n\nThat is the question."))
    trees.append(from_nested([[1.0, 2.0], [3.0]]))
    trees.append(from_image(torch.rand(3, 8, 8), patch_size=4))
    trees.append(from_sequence(torch.rand(16, 2), [4]))
    trees.append(CommunityHierarchy(1.0).forward(DropHierarchy().forward(linked)))
    trees.append(Rewindow([2]).forward(from_sequence(torch.rand(16, 2), [4])))
    trees.append(random_tree(0))
    with tempfile.TemporaryDirectory() as folder:
        tree.save(Path(folder, "tree"))
        trees.append(SignalTree.load(Path(folder, "tree")))
    return trees


def operations(tree: SignalTree) -> None:
    plan = tree.plan
    assert_type(plan, TreePlan)
    assert_type(plan.num_leaves, int)
    q, k, v = torch.rand(3, plan.num_leaves, 2, 4).unbind()
    assert_type(hsa_attention(q, k, v, tree), Tensor)
    assert_type(hsa_attention(q, k, v, plan, energy="l2", tie="key"), Tensor)
    assert_type(attention_matrix(q, k, tree), Tensor)
    assert_type(attention_weights(q, k, tree).to_dense(), Tensor)
    assert_type(tree_energy(q, k, tree), Tensor)
    ratio: float = attention_cost(tree, 2, 4).total / flat_cost(tree, 2, 4).total
    assert ratio > 0


class Classifier(nn.Module):
    """A module that is typed throughout."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = HSAConv(8, channels // 2, heads=2, tie="key")
        self.encoder = HSAEncoder(channels, num_layers=1, heads=2)
        self.head = nn.Linear(channels, 2)

    def forward(self, tree: SignalTree) -> Tensor:
        x: Tensor = self.encoder(self.conv(tree.x, tree), tree)
        assert_type(subtree_mean(x, tree), Tensor)
        out: Tensor = self.head(hierarchical_mean(x, tree))
        return out


def loss(model: nn.Module, batch: SignalTree) -> Tensor:
    return nn.functional.cross_entropy(model(batch), batch.y, reduction="none")


def training(trees: list[SignalTree]) -> float:
    sampler = LeafBudgetBatchSampler(trees, budget=8)
    for rows in sampler:
        assert_type(rows, list[int])
    options = Options(epochs=1, budget=64)
    result = fit(Classifier(4), trees, trees, loss=loss, options=options, log=False)
    assert_type(result, FitResult)
    assert result.metric is not None  # there was a validation set
    return result.metric


def why(model: nn.Module, tree: SignalTree) -> None:
    assert_type(attribute_leaves(model, tree, target=0, steps=2), LeafScores)
    assert_type(attribute_leaves(model, tree, target=[0, 1], steps=2), list[LeafScores])
    assert_type(attention_rollout(model, tree), LeafScores)


def errors(classifier: type[SignalClassifier]) -> str:
    try:
        SignalTree.from_parents([1, 0])
    except TreeError as error:
        general: HSAError = error
        return str(general)
    return classifier.__name__
