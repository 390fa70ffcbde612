"""Classifiers that see the pictures of pages: trained, saved, asked, explained."""

from __future__ import annotations

import json

import pytest
import torch

from hsa_geo.cli import run
from hsa_geo.errors import BuilderError, ShapeError
from hsa_geo.explain import attribute_leaves
from hsa_geo.nn import SubtreeClassifier
from hsa_geo.pages import PageClassifier, PageReader

image = pytest.importorskip("PIL.Image")

COLOURS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Pages whose label only their picture tells: the words and the file's name do not."""
    generator = torch.Generator().manual_seed(0)
    for label, colour in COLOURS.items():
        folder = tmp_path / "web" / label
        folder.mkdir(parents=True)
        for number in range(12):
            shift = torch.randint(-20, 20, (3,), generator=generator).tolist()
            pixels = tuple(max(0, c + s) for c, s in zip(colour, shift))
            image.new("RGB", (24, 16), pixels).save(folder / f"{number}.png")
            (folder / f"{number}.html").write_text(f"<p>A picture<img src={number}.png>")
    for label, colour in COLOURS.items():
        image.new("RGB", (16, 16), colour).save(tmp_path / f"{label}.png")
        (tmp_path / f"{label}.html").write_text(f"<p>A picture<img src={label}.png>")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_pages_to_a_report(place, capsys):
    options = ["--channels", "16", "--epochs", "20", "--validation", "0"]
    assert run(["train", "web", "--images", *options, "-o", "seeing"]) == 0
    assert run(["train", "web", *options, "-o", "blind"]) == 0
    capsys.readouterr()
    assert run(["predict", "red.html", "blue.html", "--json", "-m", "seeing"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["labels"] for one in said] == [["red"], ["blue"]]
    assert run(["predict", "red.html", "blue.html", "--json", "-m", "blind"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0]["probabilities"] == said[1]["probabilities"]

    assert run(["explain", "red.html", "-m", "seeing", "-o", "why.html", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["remarks"] == []
    text = (place / "why.html").read_text(encoding="utf-8")
    assert text.count('<img src="data:image/png;base64,') == 1
    assert "pictures it does not see" not in text
    assert next(iter(content["parts"])) == "red"
    assert run(["explain", "red.html", "-m", "blind", "-o", "blind.html"]) == 0
    assert "pictures it does not see" in (place / "blind.html").read_text(encoding="utf-8")

    classifier = PageClassifier.load("seeing")
    assert classifier.reader.patch == classifier.model.config["patch"] == 8
    tree = classifier.reader.named(place / "red.html", base=place)
    scores = attribute_leaves(classifier.model, tree)
    assert abs(scores.gap) < 0.05 * float(scores.leaf.abs().sum())  # pictures have gates, too
    pixels = set(tree.image_index.tolist())
    order = scores.leaf.abs().argsort(descending=True).tolist()
    assert set(order[:4]) == pixels


def test_no_file_outside_the_folder_of_the_page(place, capsys):
    (place / "deep").mkdir()
    (place / "deep" / "page.html").write_text("<p>A picture<img src=../red.png>")
    reader = PageReader("page", {"images": True})
    for base in (None, place / "deep"):
        assert reader(place / "deep" / "page.html", base=base).image_x.size(0) == 0
    assert reader(place / "deep" / "page.html").image_x.shape == (0, 3 * 8 * 8)
    assert reader(place / "red.html").image_x.size(0) == 0  # no base, no file
    assert reader(place / "red.html", base=place).image_x.size(0) == 4


def test_what_does_not_fit(place, capsys):
    assert run(["train", "form-pages", "--images"]) == 2
    assert "come without pictures" in capsys.readouterr().err
    with pytest.raises(BuilderError, match="images=True: forms are read without pictures"):
        PageReader("form", {"images": True})
    plain = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8)
    with pytest.raises(ShapeError, match="patch=None and the reader patch=8"):
        PageClassifier(plain, PageReader("page", {"images": True}), ["a", "b"])
    seeing = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8, patch=8)
    with pytest.raises(ShapeError, match="patch=8 and the reader patch=None"):
        PageClassifier(seeing, PageReader("page"), ["a", "b"])


def test_pages_without_a_picture(place):
    reader = PageReader("page", {"images": True})
    torch.manual_seed(0)
    model = SubtreeClassifier(num_ids=2**14, num_classes=2, channels=8, patch=8)
    classifier = PageClassifier(model, reader, ["a", "b"])
    assert classifier.predict("<p>Words alone").labels
    classifier.save("model")
    again = PageClassifier.load("model")
    assert again.predict("<p>Words alone") == classifier.predict("<p>Words alone")
