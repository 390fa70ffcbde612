"""Reports as files: within their limit, or a word why not."""

from __future__ import annotations

import pytest
import torch
from explain_cases import classifier
from test_rollout import tree_of
from torch_geometric.data import Batch

from hsa_geo.data import SignalTree
from hsa_geo.errors import LimitError, NonFiniteError, ShapeError, UnsupportedError
from hsa_geo.explain import write_report


def test_a_file_of_the_size_that_is_told(tmp_path):
    model = classifier().train()
    path = tmp_path / "r.html"
    path.write_text("before")
    report = write_report(str(path), model, tree_of(), title="A & B")
    assert report.path == path
    assert report.size == path.stat().st_size
    assert model.training
    assert "A &amp; B" in path.read_text(encoding="utf-8")
    assert [len(parts) > 0 for parts in report.parts].count(True) >= 1
    assert list(tmp_path.iterdir()) == [path]


def test_less_is_shown_where_it_would_not_fit(tmp_path):
    n = 400
    tree = SignalTree.from_parents(
        [n + k // 20 for k in range(n)] + [n + 20] * 20 + [-1], x=torch.randn(n, 5).double()
    )
    options = {"steps": 4, "max_steps": 4}
    model = classifier(num_classes=6, num_layers=1)
    whole = write_report(tmp_path / "a.html", model, tree, **options)
    less = write_report(tmp_path / "b.html", model, tree, max_bytes=whole.size - 5000, **options)
    assert less.size < whole.size
    assert len(less.scores) < len(whole.scores) == 5
    assert any("left out" in note for note in less.notes)
    with pytest.raises(LimitError, match="max_bytes=1000"):
        write_report(tmp_path / "c.html", model, tree, max_bytes=1000, **options)
    assert not (tmp_path / "c.html").exists()


def test_single_leaves_chains_and_models_of_ones_own(tmp_path):
    model = classifier()
    for parents in ([-1], [1, 2, 3, -1]):
        tree = SignalTree.from_parents(parents, x=torch.randn(1, 5, dtype=torch.float64))
        assert write_report(tmp_path / "r.html", model, tree).size > 1000
    lin = torch.nn.Linear(5, 2).double()
    report = write_report(
        tmp_path / "r.html", lin, tree_of(), run=lambda model, tree: model(tree.x).mean(0)
    )
    assert len(report.scores) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_answers_that_are_no_numbers_are_not_explained(tmp_path, bad):
    model = classifier()
    with torch.no_grad():
        model.lin.bias[1] = bad
    with pytest.raises(NonFiniteError, match="answers with no finite numbers"):
        write_report(tmp_path / "r.html", model, tree_of())
    assert not list(tmp_path.iterdir())


def test_names_that_are_no_unicode(tmp_path):
    labels = ["ne\udce9ws", "\x1b[2J\u202e", "<script>"]
    report = write_report(
        tmp_path / "r.html", classifier(), tree_of(), labels=labels, title="\udce9"
    )
    text = report.path.read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert text.count("<script") == 2


def test_wrong_arguments_are_refused(tmp_path):
    tree, model = tree_of(), classifier()
    with pytest.raises(ShapeError, match="2 names for 3"):
        write_report(tmp_path / "r.html", model, tree, labels=["a", "b"])
    with pytest.raises(UnsupportedError, match="2 trees"):
        write_report(tmp_path / "r.html", model, Batch.from_data_list([tree, tree]))
    assert not list(tmp_path.iterdir())


def test_the_answer_for_a_part(tmp_path):
    tree, model = tree_of(), classifier()
    node = tree.num_leaves
    report = write_report(tmp_path / "r.html", model, tree, node=node, method="gradient_x_input")
    expected = model(tree, torch.tensor([node]))[0].detach()
    assert report.logits == pytest.approx(expected.tolist())
    assert "for the part <button" in report.path.read_text(encoding="utf-8")
    with pytest.raises(ShapeError, match="node=-1"):
        write_report(tmp_path / "r.html", model, tree, node=-1)
