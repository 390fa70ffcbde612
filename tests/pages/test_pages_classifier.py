"""Classifiers of pages as pieces and as files; what files claim is not believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hsa_geo.errors import BuilderError, FileFormatError, LabelError, NonFiniteError, ShapeError
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.nn.modalities import Symbols
from hsa_geo.nn.signal_classifier import SignalClassifier
from hsa_geo.pages import PageClassifier, PageReader
from hsa_geo.pages.forms import NONE

FORMS = "<title>Shop</title><p>Hello</p><form>Find <input name=q></form><form><input name=p></form>"


def classifier(unit: str = "page", labels=("a", "b", "ü"), **options) -> PageClassifier:
    torch.manual_seed(0)
    reader = PageReader(unit, options)
    model = SubtreeClassifier(
        num_ids=reader.hash_buckets,
        num_classes=len(labels) + (unit == "form"),
        channels=8,
        heads=2,
        dropout=0.5,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return PageClassifier(model, reader, labels)


def test_a_page_has_the_most_probable_label():
    ours = classifier()
    found = ours.predict(FORMS)
    logits = ours.model(ours.reader(FORMS))[0]
    assert list(found.probabilities.values()) == sorted(found.probabilities.values(), reverse=True)
    for label, p in zip(ours.labels, logits.softmax(-1).tolist()):
        assert found.probabilities[label] == pytest.approx(p)
    assert found.labels == [next(iter(found.probabilities))]
    assert found.forms == []
    assert ours.predict(FORMS) == found  # no dropout, whatever the mode of the model


@pytest.mark.parametrize("unit", ["page", "form"])
def test_weights_that_give_no_numbers(unit):
    ours = classifier(unit)
    with torch.no_grad():
        next(iter(ours.model.parameters())).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="train it anew"):
        ours.predict(FORMS)


def test_a_page_has_the_types_of_its_forms():
    ours = classifier("form")
    found = ours.predict(FORMS)
    tree = ours.reader(FORMS)
    p = ours.model(tree, tree.form_node).softmax(-1)  # [2, 4]
    names = [*ours.labels, NONE]
    assert [form.label for form in found.forms] == [names[i] for i in p.argmax(-1).tolist()]
    assert [form.order for form in found.forms] == [0, 1]
    for number, label in enumerate(ours.labels):
        first, second = p[:, number].tolist()
        any_form = 1 - (1 - first) * (1 - second)
        assert found.probabilities[label] == pytest.approx(any_form, abs=1e-5)
    assert set(found.labels) == {form.label for form in found.forms} - {NONE}
    empty = ours.predict("<p>No form")
    assert (empty.labels, empty.forms) == ([], [])
    assert set(empty.probabilities.values()) == {0.0}


def test_sources_of_a_page(tmp_path):
    ours = classifier()
    path = tmp_path / "page.html"
    path.write_bytes(FORMS.encode())
    assert ours.predict(FORMS) == ours.predict(FORMS.encode()) == ours.predict(path)
    with pytest.raises(BuilderError):
        ours.predict(b"")
    with pytest.raises(FileNotFoundError):
        ours.predict(tmp_path / "missing.html")


@pytest.mark.parametrize("unit", ["page", "form"])
def test_saved_and_loaded(tmp_path, unit):
    ours = classifier(unit, sectioning=True, sets="boxes")
    ours.about = {"score": 0.5}
    ours.save(tmp_path / "new" / "model")
    again = PageClassifier.load(tmp_path / "new" / "model")
    assert (again.labels, again.reader, again.about) == (ours.labels, ours.reader, ours.about)
    assert again.predict(FORMS) == ours.predict(FORMS)
    assert repr(again) == f"PageClassifier({unit}, 3 labels)"


@pytest.mark.parametrize(
    "labels",
    [["a", "(none of these)"], ["a", "a", "b"], ["a", ""], ["a", 1], [], ["x" * 1001, "b"]],
)
def test_labels_are_names(labels):
    model = SubtreeClassifier(num_ids=2**14, num_classes=max(len(labels), 1), channels=8, heads=2)
    with pytest.raises(LabelError):
        PageClassifier(model, PageReader(), labels)


def test_parts_that_do_not_fit():
    model = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8, heads=2)
    with pytest.raises(ShapeError, match="16384 and 3 are needed for 2 labels of a form"):
        PageClassifier(model, PageReader("form"), ["a", "b"])
    with pytest.raises(ShapeError, match="64 and 2 are needed"):
        PageClassifier(model, PageReader("page", {"hash_buckets": 64}), ["a", "b"])


def test_a_folder_is_no_page(tmp_path):
    with pytest.raises(BuilderError, match="is a folder: give a file") as caught:
        classifier().predict(tmp_path)
    assert str(tmp_path) in str(caught.value)


def edited(*path, value=None):
    """Change a place in ``extra``, or remove it."""

    def change(config):
        *above, last = path
        for key in above:
            config = config[key]
        if value is None:
            del config[last]
        else:
            config[last] = value

    return change


HOSTILE = {
    "no pages": edited("pages"),
    "pages are a list": edited("pages", value=[1]),
    "no reader": edited("pages", "reader"),
    "a reader that is a name": edited("pages", "reader", value="os.system"),
    "an unknown unit": edited("pages", "reader", "unit", value="site"),
    "a unit that is a list": edited("pages", "reader", "unit", value=["page"]),
    "no options": edited("pages", "reader", "options"),
    "options are a list": edited("pages", "reader", "options", value=["images"]),
    "more in the reader": edited("pages", "reader", "path", value="/etc"),
    "a folder to read images in": edited("pages", "reader", "options", "base", value="/"),
    "no limit": edited("pages", "reader", "options", "max_bytes", value=2**40),
    "a charset": edited("pages", "reader", "options", "charset", value="utf-7"),
    "an option of another type": edited("pages", "reader", "options", "images", value=1),
    "huge fields": edited("pages", "reader", "options", "field_tokens", value=2**60),
    "other tokens": edited("pages", "reader", "options", "hash_buckets", value=17),
    "fields of no tokens": edited("pages", "reader", "options", "field_tokens", value=0),
    "an unknown kind of table": edited("pages", "reader", "options", "tables", value="x" * 10**6),
    "sets of no element": edited("pages", "reader", "options", "sets", value="../etc"),
    "sets of an element without a node": edited("pages", "reader", "options", "sets", value="b"),
    "sets that are a list": edited("pages", "reader", "options", "sets", value=["nav"]),
    "rows that are sets and a grid": edited(
        *("pages", "reader", "options"), value={"tables": "grid", "sets": "tr"}
    ),
    "too many labels": edited("pages", "labels", value=[f"{n}" for n in range(10_001)]),
    "a label of a megabyte": edited("pages", "labels", value=["a", "b", "x" * 10**6]),
    "no tokens": edited("pages", "reader", "options", "hash_buckets", value=-1),
    "labels are a text": edited("pages", "labels", value="abü"),
    "labels are numbers": edited("pages", "labels", value=[1, 2, 3]),
    "equal labels": edited("pages", "labels", value=["a", "a", "b"]),
    "fewer labels": edited("pages", "labels", value=["a", "b"]),
    "about is a list": edited("pages", "about", value=[1]),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_hostile_files(tmp_path, fault):
    classifier().save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    HOSTILE[fault](content["extra"])
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=str(tmp_path)) as caught:
        PageClassifier.load(tmp_path)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_of_a_file_are_numbers(tmp_path, bad):
    """One row of a table spoils the pages with its word alone, so no answer would tell."""
    ours = classifier()
    with torch.no_grad():
        ours.model.tokens.embed.weight[7, 3] = bad
    ours.save(tmp_path)
    with pytest.raises(FileFormatError, match=r"'tokens\.embed\.weight' holds numbers that"):
        PageClassifier.load(tmp_path)


def test_models_of_something_else(tmp_path):
    classifier().model.save(tmp_path / "alone")
    with pytest.raises(FileFormatError, match="does not say how it reads pages"):
        PageClassifier.load(tmp_path / "alone")
    other = SignalClassifier({"text": Symbols(3, 8)}, 2, channels=8, heads=2)
    other.save(tmp_path / "other")
    with pytest.raises(FileFormatError, match="calls itself a 'SignalClassifier'"):
        PageClassifier.load(tmp_path / "other")
    with pytest.raises(FileFormatError, match="more than the limit of 9"):
        PageClassifier.load(tmp_path / "alone", max_bytes=9)
    with pytest.raises(FileFormatError):
        PageClassifier.load(Path(tmp_path, "missing"))
