from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Batch

from hsa_geo.errors import LabelError, ShapeError, TrainingError
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages import PageReader, PageSettings, train_pages
from hsa_geo.pages.training import _Forms, _Pages, f1

TINY = PageSettings(channels=8, heads=2, epochs=6, batch_size=8)
WORDS = {"shop": "Buy our shoes", "news": "Elections today", "blog": "Dear diary"}
FORMS = {
    "search": "<form>Find <input name=q></form>",
    "login": "<form>Password <input name=p></form>",
    "": "<form>Something else <textarea></textarea></form>",
}


def pages(count: int = 30):
    reader, trees = PageReader(), []
    for number in range(count):
        label = number % len(WORDS)
        trees.append(reader(f"<title>{number}</title><p>{list(WORDS.values())[label]} {number}"))
        trees[-1].y = torch.tensor([label])
    return reader, trees


def form_pages(count: int = 24):
    """Pages of two forms; of every fourth one the second form is not annotated."""
    reader, trees = PageReader("form"), []
    kinds = list(FORMS)
    for number in range(count):
        chosen = [number % 3, (number + 1) % 3]
        page = f"<title>{number}</title>" + "".join(FORMS[kinds[k]] for k in chosen)
        tree = reader(page)
        label = torch.tensor([-2 if k == 2 else k for k in chosen])
        if number % 4 == 0:
            label[1] = -1
        tree.form_label = label
        tree.y = torch.zeros(1, 2)
        tree.y[0, [k for k in chosen if k < 2]] = 1
        trees.append(tree)
    return reader, trees


def test_pages_are_learned():
    reader, trees = pages()
    ours, result = train_pages(trees[:24], trees[24:], reader, list(WORDS), TINY, log=False)
    assert result.metric == 1.0
    assert ours.about["validation_score"] == 1.0
    assert ours.about["settings"]["channels"] == 8
    for label, text in WORDS.items():
        assert ours.predict(f"<p>{text}").labels == [label]
    assert type(ours.model) is SubtreeClassifier  # and so it is saved
    assert not ours.model.training


def test_forms_are_learned():
    reader, trees = form_pages()
    ours, result = train_pages(trees, trees, reader, ["search", "login"], TINY, log=False)
    assert result.metric > 0.9
    found = ours.predict(FORMS["login"] + FORMS[""])
    assert found.labels == ["login"]
    assert [form.label for form in found.forms] == ["login", "(none of these)"]


def test_without_validation_and_with_a_folder(tmp_path):
    reader, trees = pages()
    settings = PageSettings(channels=8, heads=2, epochs=2)
    arguments = (trees, None, reader, list(WORDS), settings)
    ours, result = train_pages(*arguments, folder=tmp_path, log=False)
    assert result.metric is None
    assert (tmp_path / "metrics.csv").is_file()
    with pytest.raises(TrainingError, match="resume=True"):
        train_pages(*arguments, folder=tmp_path, log=False)
    again, _ = train_pages(*arguments, folder=tmp_path, resume=True, log=False)
    assert torch.equal(again.model.lin.weight, ours.model.lin.weight)


def test_nothing_random_outside_is_touched():
    reader, trees = pages(6)
    state = torch.get_rng_state()
    train_pages(trees, None, reader, list(WORDS), PageSettings(epochs=1), log=False)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_class_weighs_the_same():
    trees = pages(30)[1]
    rare = [tree for tree in trees if int(tree.y) != 1] + [trees[1]]
    answers = _Pages(3)
    model = SubtreeClassifier(num_ids=2**14, num_classes=3, channels=8, heads=2)
    batch = Batch.from_data_list(rare)
    losses, weight = answers.loss_weighted_by(rare)(model, batch)
    assert losses.shape == weight.shape == (21,)
    totals = [float(weight[batch.y == label].sum()) for label in range(3)]
    assert totals == pytest.approx([7.0] * 3)


def test_forms_without_annotation_are_not_trained_on():
    _, trees = form_pages(4)
    batch = Batch.from_data_list(trees)
    model = SubtreeClassifier(num_ids=2**14, num_classes=3, channels=8, heads=2)
    answers = _Forms(2)
    losses, _ = answers.loss_weighted_by(trees)(model, batch)
    assert len(losses) == 7  # of eight forms
    assert answers.targets(batch).tolist() == [0, -1, 1, 2, 2, 0, 0, 1]


def test_pages_without_labels():
    reader = PageReader()
    with pytest.raises(ShapeError, match="train holds no page"):
        train_pages([], None, reader, ["a", "b"], TINY, log=False)
    for y in (
        *(None, 1, torch.tensor([0.5]), torch.tensor([2]), torch.tensor([-1])),
        *(torch.tensor(0), torch.tensor([[0]]), torch.tensor([0, 1]), torch.tensor([], dtype=int)),
    ):
        good, bad = reader("<p>words"), reader("<p>words")
        good.y = torch.tensor([0])
        if y is not None:
            bad.y = y
        for arguments, name in ((([good, bad], None), "train"), (([good], [good, bad]), "valid")):
            with pytest.raises(ShapeError, match=rf"^{name}.*\[1\] has y=.*: give int64 \[1\]"):
                train_pages(*arguments, reader, ["a", "b"], TINY, log=False)
    with pytest.raises(ShapeError, match=r"train\[0\] is a str: give a SignalTree"):
        train_pages(["<p>words"], None, reader, ["a", "b"], TINY, log=False)


def test_forms_without_labels():
    reader, trees = form_pages(3)
    for key, value in (
        *(("form_label", None), ("form_label", torch.tensor([0])), ("form_label", "login")),
        *(("form_label", torch.tensor([0, 2])), ("form_label", torch.tensor([0, -3]))),
        *(("form_label", torch.tensor([0.0, 1.0])), ("form_node", None)),
        *(("y", None), ("y", torch.zeros(1, 3)), ("y", torch.tensor([[0.5, 0]]))),
    ):
        bad = trees[1].clone()
        del bad[key]
        if value is not None:
            bad[key] = value
        sides = [(trees, [bad])] if key == "y" else [([bad], None), (trees, [bad])]
        for train, validation in sides:
            with pytest.raises(ShapeError, match=rf"\[0\] has .*{key}="):
                train_pages(train, validation, reader, ["search", "login"], TINY, log=False)


@pytest.mark.parametrize("labels", [["a"] * 2, ["a", "(none of these)"], ["a", ""], []])
def test_labels_are_looked_at_before_the_training(labels, monkeypatch):
    monkeypatch.setattr("hsa_geo.pages.training.fit", lambda *_, **__: pytest.fail("trained"))
    reader, trees = pages(3)
    many = [str(number) for number in range(10_001)]
    for names in (labels, many):
        with pytest.raises(LabelError, match="give"):
            train_pages(trees, None, reader, names, TINY, log=False)


def test_f1_is_that_of_sklearn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    true, said = (torch.rand(50, 5, generator=generator) < p for p in (0.3, 0.4))
    true[:, 4] = said[:, 4] = False  # a class that is neither there nor said
    for average, value in zip(("macro", "micro"), f1(true, said)):
        expected = metrics.f1_score(true.numpy(), said.numpy(), average=average, zero_division=0)
        assert value == pytest.approx(expected)


def test_of_equally_right_models_the_surer_is_better():
    answers = _Pages(2)
    batch = SimpleNamespace(y=torch.tensor([0, 1]))
    barely, surely, wrong = (
        answers.score(lambda batch, k=k: k * torch.eye(2), [batch]) for k in (0.1, 5.0, -5.0)
    )
    assert 0.9999 < barely < surely <= 1
    assert wrong < 0.0001
