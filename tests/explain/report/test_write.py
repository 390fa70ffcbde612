"""Reports as files: within their limit, or a word why not."""

from __future__ import annotations

import re

import pytest
import torch
from explain_cases import classifier
from test_rollout import tree_of
from torch_geometric.data import Batch

from hsa_geo.builders import from_html
from hsa_geo.data import SignalTree
from hsa_geo.errors import LimitError, NonFiniteError, PathError, ShapeError, UnsupportedError
from hsa_geo.explain import attention_rollout, attribute_leaves, write_report
from hsa_geo.nn import HSAConv, SignalClassifier, TokenEncoder, subtree_mean


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


def test_remarks_are_text(tmp_path):
    write_report(tmp_path / "r.html", classifier(), tree_of(), remarks=["<b>one</b>", "two"])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert '<p class="note">&lt;b&gt;one&lt;/b&gt;</p><p class="note">two</p>' in text


@pytest.mark.parametrize("name", ["labels", "remarks"])
def test_lists_of_names(tmp_path, name):
    for given in ("ab", 3, {"a", "b"}):
        with pytest.raises(ShapeError, match=f"{name}=.* is no list"):
            write_report(tmp_path / "r.html", classifier(), tree_of(), **{name: given})


def test_columns_have_one_number_of_digits(tmp_path):
    write_report(tmp_path / "r.html", classifier(), tree_of())
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    answers = text.partition('id="labels"')[2].partition("</section>")[0]
    cells = re.findall(r"<td>([+−]?\d+\.(\d+))</td>", answers)
    assert len(cells) >= 4
    assert len({digits for _, digits in [(a, len(b)) for a, b in cells]}) == 1


@pytest.mark.parametrize("shape", ["chain of leaves", "chain of one leaf"])
def test_thousands_of_levels(tmp_path, shape):
    n = 2500
    if shape == "chain of leaves":  # a leaf at every level
        parents = [n + k for k in range(n)] + [n + k - 1 if k else -1 for k in range(n)]
    else:
        parents = [*range(1, 5001), -1]
    leaves = n if shape == "chain of leaves" else 1
    tree = SignalTree.from_parents(parents, x=torch.randn(leaves, 8))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.lin = HSAConv(8, 4, heads=2), torch.nn.Linear(8, 2)

        def forward(self, tree):
            return self.lin(subtree_mean(self.conv(tree.x, tree), tree))

    model = Model()
    assert float(attention_rollout(model, tree).leaf.sum()) == pytest.approx(1, abs=1e-4)
    assert attribute_leaves(model, tree).leaf.shape == (leaves,)
    assert write_report(tmp_path / "r.html", model, tree).size < 1_000_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(tmp_path, dtype):
    page = from_html("<h1>Log in</h1><form>Name <input name=user></form>")
    torch.manual_seed(0)
    model = SignalClassifier({"text": TokenEncoder(2**14, 16)}, 2, channels=16).eval()
    expected = attribute_leaves(model, page, target=0)
    half = model.to(dtype)
    found = attribute_leaves(half, page, target=0)
    size = float(expected.leaf.abs().sum())
    assert float((found.leaf - expected.leaf).abs().sum()) < 0.1 * size
    assert abs(found.gap) < 0.05 * size
    assert float(attention_rollout(half, page).leaf.sum()) == pytest.approx(1, abs=1e-3)
    report = write_report(tmp_path / "r.html", half, page)
    assert report.notes == []
    assert len(report.scores) == 2


def test_a_folder_is_no_report(tmp_path):
    def never(*arguments):
        raise AssertionError("asked before the path was looked at")

    for path, says in ((tmp_path, "is a folder"), (tmp_path / "no" / "r.html", "does not exist")):
        with pytest.raises(PathError, match=says) as caught:
            write_report(path, classifier(), tree_of(), run=never)
        assert ".part" not in str(caught.value)
