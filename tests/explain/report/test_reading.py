"""Pages as read: words in paragraphs, pictures in their places, all text escaped."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch

from hsa_geo.builders import from_html, from_image, from_text, from_video
from hsa_geo.data import SignalTree
from hsa_geo.explain.report.outline import Outline
from hsa_geo.explain.report.reading import MAX_NAME, escaped, names_of, pictures_of, read


def reading(tree, shade=None, budget=10**6):
    shade = np.zeros(tree.num_leaves, dtype=int) if shade is None else shade
    return read(tree, Outline.of(tree), names_of(tree), shade, budget)


def paragraphs(body):
    return [re.sub("<[^>]+>", "", text) for text in re.findall(r"<p[^>]*>(.*?)</p>", body, re.S)]


def test_paragraphs_of_a_page():
    pytest.importorskip("selectolax")
    tree = from_html(
        "<title>My page</title><p>Lone</p><h1>Big <a href=x>news</a></h1>"
        "<p>One two. Three <a>four five</a> six.</p>"
        "<ul><li>a b<li>c d</ul><form><input name=q><button>Go on</button></form>"
    )
    body = reading(tree).body
    assert paragraphs(body) == [
        *("My page", "Lone", "Big news", "One two Three four five six", "a b", "c d"),
        "input[text] q button[submit] Go on",
    ]
    assert body.count('<p class="heading">') == 2
    assert body.count('class="control"') == 2


def test_every_leaf_stands_there_once_in_reading_order():
    tree = from_text("To be. Or not.\n\nThat is it. Yes!", names=True)
    body = reading(tree).body
    words = re.findall("<i>(.*?)</i>", body)
    assert words == [tree.tree_name[leaf] for leaf in tree.plan.leaf_order.tolist()]
    assert len(paragraphs(body)) == 2
    mixed = SignalTree.from_parents([4, 3, 4, -1, 3], name=list("abcde"), keep_leaf_order=True)
    assert re.findall("<i>(.*?)</i>", reading(mixed).body) == [
        mixed.tree_name[leaf] for leaf in mixed.plan.leaf_order.tolist()
    ]


def test_shades_are_classes():
    tree = SignalTree.from_parents([3, 3, 3, -1], name=["a", "b", "c", "d"])
    body = reading(tree, np.array([9, -1, 0])).body
    assert body == '<p><i class="p9">a</i> <i class="n1">b</i> <i>c</i></p>'


@pytest.mark.parametrize(
    "evil",
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "&lt;", "]]>", "'x"],
)
def test_text_stays_text(evil):
    tree = SignalTree.from_parents([2, 2, -1], name=[evil, "b", evil])
    body = reading(tree).body
    assert escaped(evil) in body
    rest = body.replace(escaped(evil), "")
    assert re.sub(r"</?(p|i)>", "", rest).strip() == "b"
    assert "<script" not in body
    assert "<img" not in body


def test_names_without_and_characters_that_cannot_be_shown():
    assert names_of(SignalTree.from_parents([2, 2, -1])) == ["leaf 0", "leaf 1", "node 2"]
    long = SignalTree.from_parents([-1], name=["x" * 10_000])
    assert len(names_of(long)[0]) == MAX_NAME
    assert escaped("a\x00\ud800\x1b[2J\n") == "a��\ufffd[2J\n"
    escaped("\ud800").encode()


def page_with_image(size=(16, 24)):
    from base64 import b64encode

    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    uri = "data:image/png;base64," + b64encode(file.getvalue()).decode()
    return from_html(f"<p>before<p><img alt='a cat' src='{uri}'><p>after"), pixels


def test_pictures_of_a_page():
    pytest.importorskip("selectolax")
    pytest.importorskip("PIL")
    tree, pixels = page_with_image()
    (picture,) = pictures_of(tree, Outline.of(tree))
    assert (picture.pixels == pixels).all()
    assert picture.count == 6
    assert picture.boxes.tolist()[4] == [8, 8, 16, 16]
    out = reading(tree)
    assert out.pictures == [[picture.first, 6, 24, 16]]
    assert out.body.count("<img ") == 1
    assert paragraphs(out.body) == ["before", "a cat", "after"]
    small = reading(tree, budget=10)
    assert small.left_out == 1
    assert "<img" not in small.body
    assert 'data-count="6"' in small.body


def test_pictures_of_image_trees():
    pytest.importorskip("PIL")
    pixels = np.random.default_rng(0).integers(0, 256, (600, 40, 3), dtype=np.uint8)
    tree = from_image(pixels, patch_size=20)
    (picture,) = pictures_of(tree, Outline.of(tree))
    assert (picture.pixels == pixels).all()
    mosaic = np.zeros_like(pixels)
    for leaf, (top, left, bottom, right) in zip(
        tree.plan.leaf_order.tolist(), picture.boxes.tolist()
    ):
        row = tree.image_x[leaf].view(3, 20, 20).permute(1, 2, 0).numpy()
        mosaic[top:bottom, left:right] = row
    assert (mosaic == pixels).all()
    out = reading(tree)
    assert out.pictures[0][2:] == [14, 200]  # every third pixel of 600
    assert out.boxes[0].max() <= 200
    video = from_video(pixels[None, :40].repeat(3, 0), patch_size=20)
    assert [one.count for one in pictures_of(video, Outline.of(video))] == [4, 4, 4]


def test_features_that_are_no_pixels_are_no_picture():
    tree = SignalTree.from_parents(
        [2, 2, -1], image_x=torch.randn(2, 5), image_index=torch.tensor([0, 1])
    )
    assert pictures_of(tree, Outline.of(tree)) == []
    tree.image_x = torch.randn(2, 12)
    assert pictures_of(tree, Outline.of(tree)) == []
