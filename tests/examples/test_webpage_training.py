"""Training of the web page classifier: one epoch, one run, one run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import webpage_training
from sklearn.metrics import f1_score
from webpage_cases import mean_loss
from webpage_data import READER, Pages
from webpage_training import Settings, build, predict, run, score, train

from hsa_geo.nn import SubtreeClassifier
from hsa_geo.nn.models import ATTENTIONS
from hsa_geo.pages import PageClassifier

TINY = Settings(channels=8, heads=2, epochs=1, batch_size=8)


@pytest.fixture
def at_root(small_web, monkeypatch):
    """A root whose pages, for ``run``, are the small ones."""
    root = Path("nowhere")
    monkeypatch.setitem(webpage_training._pages, root, small_web)
    return root


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a finished run is repeated")

    monkeypatch.setattr(webpage_training, "train", refuse)


def untrained(settings: Settings, attention: str, seed: int, fold: int) -> SubtreeClassifier:
    """The model that ``train`` starts from."""
    torch.manual_seed(1000 * seed + fold)
    return build(settings, attention)


# Training ###################################################################


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_epoch_improves_the_loss(small_web, attention):
    settings = replace(TINY, batch_size=2)
    model, record = train(small_web, attention, 1, 0, settings)
    chosen = small_web.split(1)[0]
    before = mean_loss(untrained(settings, attention, 0, 1), small_web, chosen)
    assert mean_loss(model, small_web, chosen) < before - 0.02
    assert not model.training
    assert record["attention"] == attention
    assert (record["fold"], record["seed"], record["epoch"]) == (1, 0, 1)
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    assert 0 <= record["validation"] <= 1


def test_forms_that_are_easy_to_tell_are_learned(small_web):
    settings = replace(TINY, batch_size=4, epochs=8, dropout=0.0, token_dropout=0.1)
    model, _ = train(small_web, "hsa", 0, 0, settings)
    test = small_web.split(0)[2]
    _, micro = score(small_web.y[test], predict(model, small_web, test))
    start = untrained(settings, "hsa", 0, 0)
    _, before = score(small_web.y[test], predict(start, small_web, test))
    assert micro > max(0.8, before + 0.2)


def test_a_seed_says_it_all(small_web):
    first, _ = train(small_web, "hsa", 0, 0, TINY)
    torch.manual_seed(123)  # whatever happened before
    again, _ = train(small_web, "hsa", 0, 0, TINY)
    other, _ = train(small_web, "hsa", 0, 1, TINY)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(first.lin.weight, other.lin.weight)


def test_the_best_epoch_is_what_is_returned(small_web, monkeypatch):
    """Validation that gets worse after the second epoch ends training, and the second is kept."""
    scores = iter([0.2, 0.5, 0.4, 0.3, 0.2, 0.1])
    monkeypatch.setattr(webpage_training, "score", lambda y, labels: (next(scores),) * 2)
    settings = replace(TINY, epochs=6, patience=2, learning_rate=0.01)
    seen = []
    monkeypatch.setattr(
        webpage_training,
        "predict",
        lambda model, pages, chosen: seen.append(model.lin.weight.detach().clone()),
    )
    model, record = train(small_web, "deep_set", 0, 0, settings)
    assert len(seen) == 4
    assert (record["epoch"], record["validation"]) == (2, 0.5)
    assert torch.equal(model.lin.weight, seen[1])
    assert not torch.equal(model.lin.weight, seen[3])


def test_test_pages_are_not_looked_at(small_web):
    """Other labels of the test pages do not change the model."""
    test = small_web.split(2)[2]
    changed = replace(
        small_web, y=small_web.y.copy(), trees=[tree.clone() for tree in small_web.trees]
    )
    changed.y[test] = 1 - changed.y[test]
    for i in test:
        changed.trees[i].form_label = torch.full_like(changed.trees[i].form_label, 4)
        changed.trees[i].text_x = torch.ones_like(changed.trees[i].text_x)
    a, _ = train(small_web, "hsa", 2, 0, TINY)
    b, _ = train(changed, "hsa", 2, 0, TINY)
    assert torch.equal(a.lin.weight, b.lin.weight)


def test_predict_equals_page_by_page(small_web):
    torch.manual_seed(0)
    model = build(TINY, "hsa")
    torch.nn.init.normal_(model.direct.weight)
    chosen = np.arange(len(small_web.trees))
    together = predict(model, small_web, chosen)
    alone = [predict(model, small_web, chosen[i : i + 1]) for i in chosen]
    assert np.array_equal(together, np.concatenate(alone))
    assert together.shape == (60, 8)
    none = [i for i in chosen if len(small_web.trees[i].form_node) == 0]
    assert none
    assert not together[none].any()


def test_score_is_that_of_sklearn():
    rng = np.random.default_rng(0)
    y, labels = (rng.integers(0, 2, (50, 8)) for _ in range(2))
    y[:, 3] = labels[:, 3] = 0  # a class that never occurs counts as 0, without a warning
    macro = np.mean([f1_score(y[:, k], labels[:, k], zero_division=0) for k in range(8)])
    hit = (y * labels).sum()
    micro = 2 * hit / (y.sum() + labels.sum())
    assert score(y, labels) == pytest.approx((macro, micro))


@pytest.mark.download
def test_an_epoch_on_real_pages(form_pages_dataset):
    dataset = form_pages_dataset[torch.arange(0, 954, 8)]
    pages = Pages(
        dataset,
        [READER.reduce(dataset[i]) for i in range(len(dataset))],
        dataset.column("y").numpy(),
        dataset.column("complete").numpy().reshape(-1),
        np.asarray(dataset.groups()),
    )
    settings = replace(Settings(), epochs=1, batch_size=8)
    model, record = train(pages, "hsa", 0, 0, settings)
    chosen = pages.split(0)[0]
    before = mean_loss(untrained(settings, "hsa", 0, 0), pages, chosen)
    assert mean_loss(model, pages, chosen) < before - 0.02
    assert 0 <= record["validation"] <= 1


# Runs #######################################################################


def test_a_run_and_the_same_from_its_file(small_web, at_root, tmp_path, monkeypatch):
    record = run(at_root, tmp_path, "hsa", 2, 5, TINY)
    assert [p.name for p in tmp_path.iterdir()] == ["hsa-fold2-seed5.json"]
    assert record["pages"] == small_web.split(2)[2].tolist()
    model, expected = train(small_web, "hsa", 2, 5, TINY)
    labels = predict(model, small_web, small_web.split(2)[2])
    assert np.array_equal(record["labels"], labels)
    assert record["validation"] == expected["validation"]
    monkeypatch.setattr(webpage_training, "train", None)
    assert run(at_root, tmp_path, "hsa", 2, 5, TINY) == record


def test_a_run_without_a_test_fold_saves_its_model(at_root, tmp_path, monkeypatch):
    record = run(at_root, tmp_path, "hsa", None, 0, TINY)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hsa-all-seed0.json", "model"]
    assert "labels" not in record
    saved = PageClassifier.load(tmp_path / "model")
    model = saved.model
    assert model.config["channels"] == 8
    assert saved.reader == READER
    assert len(saved.labels) == 8
    with monkeypatch.context() as patch:
        patch.setattr(webpage_training, "train", None)
        assert run(at_root, tmp_path, "hsa", None, 0, TINY) == record
    # A record without its model is half a result: it is trained again.
    (tmp_path / "model" / "config.json").unlink()
    run(at_root, tmp_path, "hsa", None, 0, TINY)
    again, _ = SubtreeClassifier.load(tmp_path / "model")
    assert torch.equal(again.lin.weight, model.lin.weight)


@pytest.mark.parametrize("moment", ["train", "predict", "dump", "rename"])
def test_a_killed_run_leaves_nothing_that_passes_for_complete(
    at_root, tmp_path, monkeypatch, moment
):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "dump":
            patch.setattr(Path, "write_text", lambda path, *a, **k: path.touch() or killed())
        elif moment == "rename":
            patch.setattr(Path, "replace", killed)
        else:
            patch.setattr(webpage_training, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            run(at_root, tmp_path, "deep_set", 0, 0, TINY)
    assert list(tmp_path.glob("*.json")) == []
    record = run(at_root, tmp_path, "deep_set", 0, 0, TINY)
    path = tmp_path / "deep_set-fold0-seed0.json"
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(path.read_text()) == record


@pytest.mark.usefixtures("no_training")
def test_other_runs_have_other_files(at_root, tmp_path):
    (tmp_path / "hsa-fold1-seed0.json").write_text('{"fold": 1}')
    assert run(at_root, tmp_path, "hsa", 1, 0, TINY) == {"fold": 1}
    for attention, fold, seed in [("flat", 1, 0), ("hsa", 2, 0), ("hsa", 1, 1), ("hsa", None, 0)]:
        with pytest.raises(AssertionError, match="repeated"):
            run(at_root, tmp_path, attention, fold, seed, TINY)
