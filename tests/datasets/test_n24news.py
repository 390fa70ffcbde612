"""N24News: tiny files in its format."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.loader import DataLoader

pytest.importorskip("PIL")
sys.path.insert(0, str(Path(__file__).parent))

from manual_cases import animated, png

from hsa_geo.data import Domain
from hsa_geo.datasets import N24News
from hsa_geo.errors import ArchiveError, UnsupportedError


def article(number, section="Health", **more):
    return {
        "section": section,
        "headline": f"Headline {number}",
        "abstract": "The rain is back. It stays!",
        "caption": "Rain in town.",
        "article": "First part. Two sentences.\n\nSecond part.",
        "article_id": f"a{number}",
        "article_url": "https://example.org/",
        "image_id": f"image-{number}",
        "image_url": "https://example.org/",
        **more,
    }


def write(root, files, images=(), news="news", imgs="imgs"):
    for name, articles in files.items():
        path = root / "raw" / news / f"nytimes_{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(articles if isinstance(articles, str) else json.dumps(articles))
    for name, content in dict(images).items():
        path = root / "raw" / imgs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


SPLITS = {"train": [article(0), article(1, "Art")], "dev": [article(2)], "test": [article(3)]}
EVERY_WORD = {"min_articles": 1}


def words_under(dataset, tree, name):
    """The words below the first node of that name."""
    parent = dict(zip(tree.tree_index[1].tolist(), tree.tree_index[0].tolist()))
    top, found = tree.tree_name.index(name), []
    for word, row in zip(tree.word_x.tolist(), tree.word_index.tolist()):
        node = row
        while node in parent and node != top:
            node = parent[node]
        if node == top:
            found.append(dataset.vocabulary[word])
    return found


def test_trees(tmp_path):
    write(tmp_path, SPLITS, {f"image-{i}.jpg": png("red", (64, 48), "JPEG") for i in range(4)})
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert list(dataset.classes) == ["Art", "Health"]
    assert dataset.column("y").tolist() == [1, 0, 1, 1]
    assert dataset.column("split").tolist() == [0, 0, 1, 2]
    assert dataset.column("doc_id").tolist() == [0, 1, 2, 3]
    assert dataset.ids[3] == "image-3"
    tree = dataset[0]
    tree.validate()
    assert words_under(dataset, tree, "headline") == ["headline", "0"]
    assert words_under(dataset, tree, "abstract") == ["the", "rain", "is", "back", "it", "stays"]
    assert words_under(dataset, tree, "body") == (
        ["first", "part", "two", "sentences", "second", "part"]
    )
    assert words_under(dataset, tree, "caption") == ["rain", "in", "town"]
    assert tree.tree_domain[-1] == Domain.SET
    assert tree.image_x.shape == (12, 3 * 16 * 16)
    assert tree.tree_name.count("paragraph") == 2
    assert tree.tree_name.count("sentence") == 4
    assert dataset.report["pictures"] == {"read": 4}
    again = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert again.num_classes == 2
    assert again.vocabulary == dataset.vocabulary
    assert [rows.tolist() for rows in dataset.split()] == [[0, 1], [2], [3]]
    assert next(iter(DataLoader(dataset, batch_size=4))).y.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "news", "imgs", "body"),
    [
        ("dataset", "news", "imgs", "article"),
        ("dataset", ".", "imgs", "article"),
        ("dataset_full", ".", "images", "body"),
    ],
)
def test_other_layouts(tmp_path, name, news, imgs, body):
    one = article(0)
    one[body] = one.pop("article")
    write(tmp_path, {name: [one]}, {"image-0.jpg": png("red", format="JPEG")}, news, imgs)
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert dataset.column("split").tolist() == [-1]
    with pytest.raises(UnsupportedError, match="N24News comes without a test set"):
        dataset.split()
    assert len(dataset[0].image_x) == 1
    assert "second" in words_under(dataset, dataset[0], "body")


def test_words_of_few_articles_are_left_out(tmp_path):
    write(tmp_path, SPLITS)
    dataset = N24News(tmp_path, log=False)
    assert "headline" in dataset.vocabulary
    assert "0" not in dataset.vocabulary
    assert words_under(dataset, dataset[0], "headline") == ["headline"]


def test_pictures(tmp_path):
    ids = ["ok", "none", "broken", "gif", "../secret", "link", "", "wide", "/etc/passwd", "a\0b"]
    write(
        tmp_path,
        {"dataset": [article(i, image_id=one) for i, one in enumerate(ids)]},
        {
            "ok.jpg": png("red", format="JPEG"),
            "broken.jpg": b"\xff\xd8\xff",
            "gif.gif": animated(["red", "blue"]),
            "../secret.jpg": png("red", format="JPEG"),
            "wide.png": png("red", (3000, 2)),
        },
    )
    (tmp_path / "raw" / "imgs" / "link.jpg").symlink_to(tmp_path / "raw" / "secret.jpg")
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert [len(tree.image_x) for tree in dataset] == [1, 0, 0, 1, 0, 0, 0, 8, 0, 0]
    assert dataset.report["pictures"] == {"read": 3, "missing": 6, "broken": 1}
    assert all(tree.image_x.shape[1] == 768 for tree in dataset)


def test_a_huge_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("hsa_geo.builders.patches.MAX_PIXELS", 100)
    write(tmp_path, {"dataset": [article(0)]}, {"image-0.jpg": png("red", format="JPEG")})
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert dataset.report["pictures"] == {"too large": 1}


def test_articles_that_lack_parts(tmp_path):
    nothing = {"section": "Art", "image_id": "x"}
    some = {"section": "Art", "headline": None, "caption": "Alone", "image_id": None}
    write(tmp_path, {"dataset": [nothing, some]})
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert len(dataset) == 1
    assert list(dataset.report["failed"]) == ["x"]
    assert [dataset.vocabulary[word] for word in dataset[0].word_x] == ["alone"]


def test_options(tmp_path):
    write(tmp_path, {"dataset": [article(0)]}, {"image-0.jpg": png("red", (64, 64), "JPEG")})
    options = {
        "parts": ["body"],
        "max_words": 3,
        "patch_size": 8,
        "max_side": 32,
        "quadtree": False,
    }
    dataset = N24News(tmp_path, log=False, options=EVERY_WORD | options)
    assert [dataset.vocabulary[word] for word in dataset[0].word_x] == ["first", "part", "two"]
    assert dataset.report["cut_bodies"] == 1
    assert dataset[0].image_x.shape == (16, 192)
    for wrong in ({"patch": 8}, {"parts": ["title"]}):
        with pytest.raises(UnsupportedError, match="is none of"):
            N24News(tmp_path, log=False, options=wrong)


def test_bodies_that_are_cut_are_counted(tmp_path, capsys):
    bodies = ["one two three", "one two three four", "one\n\ntwo three\n\nfour\n\nfive", ""]
    write(tmp_path, {"dataset": [article(i, article=body) for i, body in enumerate(bodies)]})
    dataset = N24News(tmp_path, options={"max_words": 3, "min_articles": 1})
    assert dataset.report["cut_bodies"] == 2
    assert "bodies cut to their first 3 words: 2" in capsys.readouterr().out
    assert words_under(dataset, dataset[2], "body") == ["one", "two", "three"]
    whole = N24News(tmp_path, log=False, options=EVERY_WORD)
    assert whole.report["cut_bodies"] == 0
    alone = N24News(tmp_path, log=False, options={"max_words": 3, "parts": ["headline"]})
    assert alone.report["cut_bodies"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as JSON"),
        ("{}", "holds a dict"),
        ("[3]", "article 0 of .* has no section"),
        ('[{"section": 3}]', "article 0 of .* has no section"),
        ('[{"section": "Art", "headline": ["x"]}]', "headline that is no text"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_files_in_another_format(tmp_path, content, message):
    write(tmp_path, {"dataset": content})
    with pytest.raises(ArchiveError, match=message):
        N24News(tmp_path, log=False)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ArchiveError, match="no package registry"):
        N24News(tmp_path, log=False)
    write(tmp_path, {"train": [article(0)]})
    with pytest.raises(ArchiveError, match=r"lacks nytimes_dev\.json, nytimes_test\.json"):
        N24News(tmp_path, log=False)
    assert not [
        path
        for path in (tmp_path / "processed").rglob("*")
        if path.stat().st_size and path.is_file()
    ]


def test_words_are_counted_once_an_article(tmp_path):
    write(tmp_path, {"dataset": [article(0, headline="so so so"), article(1, headline="it so")]})
    dataset = N24News(tmp_path, log=False, options={"parts": ["headline"], "min_articles": 1})
    assert dataset.vocabulary == ["so", "it"]
    assert dataset[0].word_x.tolist() == [0, 0, 0]
    assert dataset[0].word_x.dtype == torch.int64
