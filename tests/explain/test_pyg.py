"""Our attribution through PyG's own Explainer."""

from __future__ import annotations

import pytest
import torch
from test_rollout import tree_of
from torch import nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity
from torch_geometric.nn import GCNConv

from hsa_geo.errors import ShapeError, UnsupportedError
from hsa_geo.explain import LeafExplainer
from hsa_geo.nn import HSAConv, subtree_mean

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


class Net(nn.Module):
    """A layer over a graph among the leaves, one over their hierarchy, and a mean."""

    def __init__(self, classes=3, level="graph"):
        super().__init__()
        self.graph, self.conv = GCNConv(5, 8), HSAConv(8, 4, heads=2)
        self.lin, self.level = nn.Linear(8, classes), level

    def forward(self, x, edge_index, tree):
        h = self.conv(self.graph(x, edge_index).tanh(), tree).tanh()
        return self.lin(subtree_mean(h, tree) if self.level == "graph" else h)


def explained(model, tree, mask="object", config=CONFIG, algorithm=None, **options):
    explainer = Explainer(
        model,
        algorithm or LeafExplainer(tolerance=1e-4),
        explanation_type=options.pop("kind", "model"),
        node_mask_type=mask,
        model_config=config,
    )
    return explainer, explainer(tree.x, EDGES, tree=tree, **options)


def net(**options):
    torch.manual_seed(1)
    return Net(**options).double()


@pytest.mark.parametrize(
    ("mask", "shape"), [("object", (1,)), ("attributes", (5,)), ("common_attributes", (5,))]
)
def test_masks_are_complete_attributions(mask, shape):
    tree, model = tree_of(), net()
    _, out = explained(model, tree, mask)
    n = 1 if mask == "common_attributes" else tree.num_leaves
    assert out.node_mask.shape == (n, *shape)
    assert out.get("edge_mask") is None
    full, empty = model(tree.x, EDGES, tree)[0], model(0 * tree.x, EDGES, tree)[0]
    change = (full - empty)[int(out.target)]
    assert float(out.node_mask.sum()) == pytest.approx(float(change.detach()), rel=1e-3)


def test_rows_of_node_tasks_and_binary_and_regression():
    tree = tree_of()
    model = net(level="node")
    _, out = explained(model, tree, config={**CONFIG, "task_level": "node"}, index=2)
    full, empty = model(tree.x, EDGES, tree)[2], model(0 * tree.x, EDGES, tree)[2]
    change = (full - empty)[int(out.target[2])]
    assert float(out.node_mask.sum()) == pytest.approx(float(change.detach()), rel=1e-3)
    single = net(classes=1)
    binary = {**CONFIG, "mode": "binary_classification"}
    both = [
        explained(single, tree, config=binary, kind="phenomenon", target=torch.tensor([label]))[1]
        for label in (0, 1)
    ]
    torch.testing.assert_close(both[0].node_mask, -both[1].node_mask)
    _, value = explained(single, tree, config={**CONFIG, "mode": "regression"})
    torch.testing.assert_close(value.node_mask, both[1].node_mask)
    slope = LeafExplainer("gradient_x_input")
    _, out = explained(single, tree, config={**CONFIG, "mode": "regression"}, algorithm=slope)
    x = tree.x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(single(x, EDGES, tree).sum(), x)
    torch.testing.assert_close(out.node_mask, (grad * tree.x).sum(1, keepdim=True))


def test_tools_of_pyg_take_the_explanation():
    tree, model = tree_of(), net()
    explainer, out = explained(model, tree, "attributes")
    assert out.validate()
    positive, negative = fidelity(explainer, out)
    assert 0 <= positive <= 1
    assert 0 <= negative <= 1
    top = explainer.get_masked_prediction(tree.x, EDGES, out.node_mask, tree=tree)
    assert top.shape == (1, 3)


def test_edge_masks_are_refused_and_pygs_own_masks_do_not_touch_our_layers():
    tree, model = tree_of(), net()
    with pytest.raises(ValueError, match="does not support"):
        Explainer(
            model,
            LeafExplainer(),
            explanation_type="model",
            node_mask_type="object",
            edge_mask_type="object",
            model_config=CONFIG,
        )
    # What the refusal is about: PyG masks the graph's layer alone and leaves the hierarchy whole.
    explainer = Explainer(
        model,
        GNNExplainer(epochs=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config=CONFIG,
    )
    none = torch.zeros(EDGES.size(1), dtype=torch.float64)
    masked = explainer.get_masked_prediction(tree.x, EDGES, None, none, tree=tree)
    with torch.no_grad():
        plain = model.graph.bias + model.graph.lin(tree.x)
    assert model.conv.explain is False
    assert torch.isfinite(masked).all()
    assert plain.shape == (tree.num_leaves, 8)


def test_wrong_inputs_are_refused():
    tree, model = tree_of(), net()
    with pytest.raises(UnsupportedError, match="shap"):
        LeafExplainer("shap")
    explainer, _ = explained(model, tree)
    with pytest.raises(ShapeError, match="dict"):
        explainer.algorithm(model, {"a": tree.x}, EDGES, target=torch.tensor([0]), tree=tree)
