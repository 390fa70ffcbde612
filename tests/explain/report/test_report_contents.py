"""What a report says: answers, cost, views and notes."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from explain_cases import classifier
from test_rollout import tree_of

from hsa_geo.explain import LeafScores, attribute_leaves, write_report
from hsa_geo.explain.report.contents import Contents
from hsa_geo.ops import attention_cost, flat_cost


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def array(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_views_hold_the_scores(tmp_path):
    tree, model = tree_of(), classifier()
    report = write_report(tmp_path / "r.html", model, tree, labels=["a", "b", "c"])
    text = report.path.read_text(encoding="utf-8")
    data = data_of(text)
    scores = attribute_leaves(model, tree, target=report.scores[0].target, max_steps=64)
    torch.testing.assert_close(scores.leaf, report.scores[0].leaf)
    assert len(data["views"]) == 4  # three labels and the rollout
    assert [one.target for one in report.scores] == np.argsort(report.logits)[::-1].tolist()
    view = data["views"][0]
    sums = array(view["sums"], "<i2") / 32767 * view["top"]
    preorder = tree.num_tree_nodes - 1
    assert sums[0] == pytest.approx(float(scores.node[preorder]), abs=view["top"] / 30000)
    shades = array(view["shades"], "i1")
    leaf = scores.leaf[tree.plan.leaf_order].numpy()
    assert np.abs(shades).max() == 9
    assert (np.sign(shades) * np.sign(leaf) >= 0).all()
    assert np.argmax(leaf) in np.flatnonzero(shades == shades.max())
    assert report.labels == ["a", "b", "c"]
    assert "“a” (integrated gradients)" in text


def test_cost_is_that_of_all_layers(tmp_path):
    tree, model = tree_of(), classifier(tie="key")
    report = write_report(tmp_path / "r.html", model, tree, method="gradient_x_input")
    text = report.path.read_text(encoding="utf-8")
    ours, flat = attention_cost(tree, 4, 4, tie="key"), flat_cost(tree, 4, 4)
    for cost in (ours, flat):
        assert f"<td>{2 * cost.pairs:,}</td><td>{2 * cost.total:,}</td>" in text
    assert f"Flat attention takes {flat.total / ours.total:.3g} times" in text


def test_probabilities_of_both_kinds(tmp_path):
    tree, model = tree_of(), classifier()
    out = model(tree)[0].detach()
    for multi_label, chance in ((False, out.softmax(0)), (True, out.sigmoid())):
        report = write_report(
            tmp_path / "r.html", model, tree, multi_label=multi_label, method="gradient_x_input"
        )
        text = report.path.read_text(encoding="utf-8")
        for value in chance.tolist():
            assert f"<td>{100 * value:.1f} %</td>" in text


@pytest.mark.parametrize(
    ("attention", "missing"),
    [("flat", "No attention among blocks"), ("deep_set", "No attention rollout")],
)
def test_models_without_hierarchical_layers(tmp_path, attention, missing):
    report = write_report(tmp_path / "r.html", classifier(attention=attention), tree_of())
    text = report.path.read_text(encoding="utf-8")
    assert any(missing in note for note in report.notes)
    assert "no hierarchical layer" in text
    assert '<select id="layer">' not in text


def test_notes_say_what_is_not_exact_or_left_out():
    tree = tree_of()
    leaf = torch.ones(tree.num_leaves)
    scores = [
        LeafScores.of(leaf, tree, "integrated gradients", target=k, value=90.0, baseline=0.0)
        for k in (1, 0)
    ]
    contents = Contents(tree, ["a", "b", "c"], torch.arange(3.0), scores, False)
    page = contents.page("t", (1, 0, 0))
    assert page.scores == scores[:1]
    assert any("“b” lack" in note for note in page.notes)
    assert any("Labels beyond the first 1" in note for note in page.notes)
    assert any("Only the 2 largest of 3" in note for note in contents.page("t", (2, 0, 0)).notes)


def test_scores_that_are_zero_or_not_finite_shade_nothing():
    tree = tree_of()
    leaf = torch.zeros(tree.num_leaves)
    leaf[0] = torch.nan
    scores = [LeafScores.of(leaf, tree, "given", target=0)]
    page = Contents(tree, ["a"], torch.zeros(1), scores, False).page("t", (1, 0, 0))
    assert set(array(data_of(page.text)["views"][0]["shades"], "i1").tolist()) == {0}
